package partition

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// grants are the terms that are known, whoever leads. A follower has no term of its own:
// its terms are those that it was given grants of.
type grants struct {
	chain []grantAt     // oldest first
	last  *grant.Signed // the newest; nil: none
}

// grantAt is what of a grant is compared with batches and checkpoints.
type grantAt struct {
	id          lattice.Hash
	term        int32
	leader      lattice.NodeID
	incarnation uint64
	size        uint64
	root        lattice.Hash
	offset      int64
	cuts        bool // it can begin before the end of what a member has
}

func at(g *grant.Signed) grantAt {
	return grantAt{g.ID, g.Term, g.Leader, g.Incarnation, g.BaseSize, g.BaseRoot, g.BaseOffset, cutsBack(g.Kind)}
}

// leader is who leads by the newest grant; without one, who created the topic.
func (k *grants) leader(creator lattice.NodeID) lattice.NodeID {
	if k.last == nil {
		return creator
	}
	return k.last.Leader
}

// handed reports whether the newest term was given to its leader by another word than
// its own, so that it may lack what the term builds on.
func (k *grants) handed() bool { return k.last != nil && passes(k.last) }

// passes reports whether a grant gives the term to another than who led before, by another
// right than its own word alone. A leader's own are "self", and "seal" where others
// acknowledge, too.
func passes(g *grant.Signed) bool { return g.Signer != g.Leader || cutsBack(g.Kind) }

// shown is a grant, with what makes it right if that is not in it.
type shown struct {
	grant.Signed
	evidence []byte
}

// bytes is the grant with its evidence behind it.
func (s shown) bytes() []byte {
	return append(s.Bytes()[:len(s.Bytes()):len(s.Bytes())], s.evidence...)
}

// parseShown reads a grant with its evidence behind it, as Grants returns it.
func parseShown(b []byte) (shown, error) {
	g, rest, err := grant.Cut(b)
	if err == nil && len(rest) > 0 && g.Kind != grant.Promises {
		err = fmt.Errorf("%w: %d bytes too many", grant.ErrMalformed, len(rest))
	}
	return shown{g, rest}, err
}

// Leads reports whether this node leads the partition.
func (p *Partition) Leads() bool { return p.leads }

// Leader is the node that leads the partition, or will once it has what its term builds
// on.
func (p *Partition) Leader() lattice.NodeID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known.leader(p.o.Leader)
}

// keepGrant notes a stored grant. p.mu is held, or nobody else has p yet.
func (p *Partition) keepGrant(g grant.Signed) {
	p.known.chain = append(p.known.chain, at(&g))
	p.known.last = &g
	p.grantSum, p.grantTerm, p.grantInc = g.ID, g.Term, g.Incarnation
	p.terms = p.terms.add(g.Term, g.BaseOffset)
	p.beginTerm(&g)
}

// signer is who signs checkpoints of a term.
func (p *Partition) signer(id lattice.Hash) lattice.AuthorID {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.known.chain) - 1; i >= 0; i-- {
		if p.known.chain[i].id == id {
			return p.known.chain[i].leader
		}
	}
	for _, g := range p.lost {
		if g.ID == id {
			return g.Leader
		}
	}
	if id.IsZero() {
		return p.o.Leader // before the first grant there is nothing to sign but nothing
	}
	return lattice.AuthorID{}
}

// termsAt is what a follower's head says of the term of the block that ends before end.
func (p *Partition) termsAt(end int64) signedlog.Terms {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.known.chain
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].offset < end {
			return signedlog.Terms{Term: c[i].term, Grant: c[i].id, Incarnation: c[i].incarnation}
		}
	}
	return signedlog.Terms{}
}

// openFollower restores what a follower knows of its producers. What a stop left of a
// log that had just begun anew is made whole.
func (p *Partition) openFollower() error {
	if err := p.loadProducers(); err != nil {
		return err
	}
	if start, _, _ := p.log.Bounds(); start > 0 && p.snapEnd < start && p.log.Failed() == "" {
		return p.saveProducers()
	}
	return nil
}

// storeGrants makes new grants durable, oldest first. A crash leaves some of them, in
// order: terms without batches, which do no harm.
func (p *Partition) storeGrants(fresh []shown) error {
	for _, g := range fresh {
		if err := p.putGrant(g); err != nil {
			return err
		}
		p.mu.Lock()
		p.keepGrant(g.Signed)
		p.mu.Unlock()
		p.term.Store(g.Term)
	}
	return nil
}

// putGrant makes a grant durable, behind what makes it right.
func (p *Partition) putGrant(g shown) error {
	if len(g.evidence) > 0 {
		if err := p.o.Meta.PutEvidence(g.Term, g.evidence); err != nil {
			return lattice.E(lattice.Storage, fmt.Errorf("save the promises of term %d: %w", g.Term, err))
		}
	}
	if err := p.o.Meta.PutGrant(g.Term, g.Bytes()); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("save grant of term %d: %w", g.Term, err))
	}
	return nil
}

// wrote folds batches that were written, before readers can see them.
func (p *Partition) wrote(heads []int64, batches [][]byte) {
	now := p.o.Clock.Now().UnixMilli()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, b := range batches {
		if err := p.producers.fold(b); err != nil {
			// A control batch of a shape that is not known here: it says nothing.
			p.o.Logger.Warn("passed over a control batch", "partition", p.id, "err", err)
		}
		p.producers.touch(heads[i], now)
	}
	p.settle(0)
}

// jumped forgets what was known of producers whose batches were dropped unseen.
func (p *Partition) jumped() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.producers = newProducers()
	p.settle(0)
	p.forgets.Add(1)
}
