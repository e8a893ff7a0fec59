package partition

import (
	"fmt"
	"math"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// loadGrants reads the terms that came before: each start of a leader opened one
// with its first append.
func (p *Partition) loadGrants() error {
	all, err := p.o.Meta.Grants()
	if err != nil {
		return fmt.Errorf("load grants: %w", err)
	}
	var prev *grant.Signed
	for i, b := range all {
		g, err := grant.Parse(b)
		if err == nil {
			err = g.Verify()
		}
		if err == nil && g.Partition != p.id {
			err = lattice.E(lattice.Corrupt, fmt.Errorf("it is for %s", g.Partition))
		}
		if err == nil {
			err = g.Follows(prev)
		}
		if err != nil {
			return fmt.Errorf("grant %d of %d: %w", i+1, len(all), err)
		}
		prev = &g
		p.keepGrant(g)
		p.stored = append(p.stored, g)
	}
	p.term.Store(p.grantTerm)
	lost, err := p.o.Meta.Lost()
	if err != nil {
		return fmt.Errorf("load grants that lost: %w", err)
	}
	for _, b := range lost {
		if g, err := parseShown(b); err == nil && g.Verify() == nil && g.Partition == p.id {
			p.lost, p.lostTerm = append(p.lost, g.Signed), max(p.lostTerm, g.Term)
		}
	}
	return nil
}

// openTerm prepares this incarnation's term: numbered above the last one, and not
// below the minutes since 1970, so that a restored copy of the directory does not
// count through the same numbers again. The grant becomes durable with the first
// append: a start that writes nothing costs nothing, and since a term names
// records only together with an offset, no (term, offset) ever names two. Where several
// have to acknowledge, the term is there already: see Waits.
func (p *Partition) openTerm() error {
	if p.log.Failed() != "" {
		return nil // it takes no writes: there is nothing to open a term for
	}
	start, _, end := p.log.Bounds()
	c := p.log.Checkpoint()
	if end == 0 {
		c = signedlog.Certified{} // nobody has signed anything of an empty log
	}
	if c.End != end {
		return fmt.Errorf("open term: checkpoint ends at %d, the log at %d (start %d): %w", c.End, end, start, signedlog.ErrNeedsRepair)
	}
	if c.Size == 0 {
		c.Root = merkle.EmptyRoot()
	}
	if last := p.known.last; several(last) && last.Incarnation == p.o.Incarnation {
		// It was granted in this incarnation: by promises, or by a seal when the set changed.
		p.pending, p.granted = last.Grant, true
		p.term.Store(last.Term)
		return nil
	}
	minutes := p.o.Clock.Now().Unix() / int64(time.Minute/time.Second)
	term := max(int64(p.grantTerm)+1, int64(p.lostTerm)+1, minutes)
	if term > math.MaxInt32 {
		return lattice.E(lattice.Unsupported, fmt.Errorf("term %d does not fit a Kafka leader epoch", term))
	}
	me := p.o.Key.Author()
	p.pending = grant.Grant{
		Store: p.o.Store, Partition: p.id, Term: int32(term), Leader: me, Incarnation: p.o.Incarnation,
		BaseSize: c.Size, BaseRoot: c.Root, BaseOffset: end, Previous: p.grantSum,
		AckSet: []lattice.AuthorID{me}, Min: 1, Kind: grant.Self,
	}
	p.keepSeats()
	p.term.Store(int32(term))
	if p.o.Alone && p.alone() {
		// At once: what readers may see of the copy follows from it.
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.grantTermLocked()
	}
	return nil
}

// grantTermLocked makes the term's grant durable, once, before the term's first
// batch is written. A crash after it leaves a term without records, which the
// next start passes over. p.mu is held.
func (p *Partition) grantTermLocked() error {
	if p.granted {
		return nil
	}
	g, err := grant.Sign(p.o.Key, p.pending)
	if err != nil {
		return fmt.Errorf("sign grant of term %d: %w", p.pending.Term, err)
	}
	if err := p.o.Meta.PutGrant(g.Term, g.Bytes()); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("save grant of term %d: %w", g.Term, err))
	}
	p.granted = true
	p.keepGrant(g)
	return nil
}

// checkpointTerms is what checkpoints say of the term: the newest with a durable
// grant, which is the one that the newest block was written in.
func (p *Partition) checkpointTerms() signedlog.Terms {
	p.mu.Lock()
	defer p.mu.Unlock()
	return signedlog.Terms{Term: p.grantTerm, Grant: p.grantSum, Incarnation: p.grantInc}
}
