package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
)

// ErrOpenTransactions: transactions are open in the partition, whose end only the
// coordinator on the node that leads it can write. Kind Conflict.
var ErrOpenTransactions = lattice.E(lattice.Conflict, errors.New("transactions are open in the partition, and end only where it is led now"))

// Seal ends this node's lead: nothing more is appended, what is here becomes durable and
// signed, and the grant of the next term, which names to as its leader, is signed and
// stored. From then on, and after any restart, this node is a follower: close the
// partition and open it again. Who is to lead learns it from the grants (Grants), from
// whoever has them, and begins once it has all batches.
//
// What a crash leaves:
//
//  1. Appends are refused. A crash: this node leads, in its next term.
//  2. What was appended is synced and signed, and those who wait for it are answered.
//     A crash: the same.
//  3. The grant is stored. A crash after it: this node is a follower, and whoever opens
//     it tells of the grant again.
//
// If storing the grant fails, it may be stored or not: nothing is appended until the
// next start shows which, or Seal is called again, which stores the same grant, whoever
// it is called for.
//
// Errors: ErrReadOnly, ErrNotLeader, ErrClosed, ErrOpenTransactions; Kind Invalid (to leads
// it already), Storage, Unavailable.
func (p *Partition) Seal(ctx context.Context, to lattice.NodeID) error {
	p.houseMu.Lock() // nothing is truncated or rewritten meanwhile
	defer p.houseMu.Unlock()
	g, err := p.seal(ctx, to)
	if err == nil {
		err = p.handOver(g)
	}
	if err != nil {
		return fmt.Errorf("give %s to %s: %w", p.id, to.Short(), err)
	}
	return nil
}

// stopAppends is step 1. It returns the grant of an earlier try of which it is not known
// whether it was stored.
func (p *Partition) stopAppends(to lattice.NodeID) (*grant.Signed, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.o.ReadOnly:
		return nil, ErrReadOnly
	case p.closed:
		return nil, ErrClosed
	case p.sealing != nil:
		return p.sealing, nil
	case !p.leads || p.sealed:
		return nil, ErrNotLeader
	case to == p.o.Key.Author():
		return nil, lattice.E(lattice.Invalid, errors.New("it leads the partition already"))
	case len(p.producers.txns.open) > 0:
		return nil, ErrOpenTransactions
	}
	if failed := p.log.Failed(); failed != "" {
		return nil, lattice.E(lattice.Storage, errors.New(failed))
	}
	if p.known.last == nil { // what follows must follow something
		if err := p.grantTermLocked(); err != nil {
			return nil, err
		}
	}
	p.sealed = true
	return nil, nil
}

// seal makes the grant of the next leader's term.
func (p *Partition) seal(ctx context.Context, to lattice.NodeID) (*grant.Signed, error) {
	if g, err := p.stopAppends(to); g != nil || err != nil {
		return g, err
	}
	g, err := p.nextGrant(ctx, to)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.sealed = false
		return nil, err
	}
	p.sealing = &g
	return p.sealing, nil
}

// nextGrant is step 2, and signs a grant that is not stored yet.
func (p *Partition) nextGrant(ctx context.Context, to lattice.NodeID) (grant.Signed, error) {
	if err := p.log.Flush(); err != nil {
		return grant.Signed{}, err
	}
	c, err := p.log.Certify(ctx)
	if err != nil {
		return grant.Signed{}, err
	}
	_, _, end := p.log.Bounds()
	if c.End != end {
		return grant.Signed{}, lattice.E(lattice.Unavailable, fmt.Errorf("the log ends at %d, and is signed up to %d", end, c.End))
	}
	if end == 0 {
		c.Size, c.Root = 0, merkle.EmptyRoot()
	}
	p.mu.Lock()
	previous := p.grantSum
	p.mu.Unlock()
	// Above the term that clients were shown, also if nothing was written in it.
	term := max(int64(p.term.Load())+1, p.o.Clock.Now().Unix()/int64(time.Minute/time.Second))
	if term > math.MaxInt32 {
		return grant.Signed{}, lattice.E(lattice.Unsupported, fmt.Errorf("term %d does not fit a Kafka leader epoch", term))
	}
	// Its incarnation is the new leader's to say, in the term that it grants itself.
	return grant.Sign(p.o.Key, grant.Grant{
		Store: p.o.Store, Partition: p.id, Term: int32(term), Leader: to,
		BaseSize: c.Size, BaseRoot: c.Root, BaseOffset: end, Previous: previous,
		AckSet: []lattice.AuthorID{to}, Min: 1, Kind: grant.Seal,
	})
}

// handOver is step 3.
func (p *Partition) handOver(g *grant.Signed) error {
	if err := p.o.Meta.PutGrant(g.Term, g.Bytes()); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("save the grant of term %d: %w", g.Term, err))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealing = nil
	p.keepGrant(*g)
	return nil
}

// Grants returns the signed grants of all terms that are known, oldest first, each with the
// promises behind it that made it, if some did.
func (p *Partition) Grants() ([][]byte, error) {
	all, err := p.o.Meta.Grants()
	for i, b := range all {
		g, perr := grant.Parse(b)
		if err != nil || perr != nil || g.Kind != grant.Promises {
			continue
		}
		var evidence []byte
		evidence, err = p.o.Meta.Evidence(g.Term)
		all[i] = append(b[:len(b):len(b)], evidence...)
	}
	return all, err
}

// Handed reports whether the newest term was given to its leader by another, which has
// written nothing in it that is known here.
func (p *Partition) Handed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known.handed()
}

// ToLead reports whether the partition is a follower that is to lead, and has all that
// its term builds on: closed and opened again, it leads.
func (p *Partition) ToLead() bool {
	p.mu.Lock()
	last := p.known.last
	p.mu.Unlock()
	return !p.leads && last != nil && last.Leader == p.o.Key.Author() && !p.Waits() && p.has(last)
}

// has reports whether all that a term builds on is here.
func (p *Partition) has(g *grant.Signed) bool {
	if g.BaseSize == 0 {
		return true
	}
	here := p.log.Here()
	return here.Size > g.BaseSize || here.Size == g.BaseSize && here.Root == g.BaseRoot
}

// hasBase reports the same of a partition whose log is not open.
func (p *Partition) hasBase() (bool, error) {
	if p.known.last.BaseSize == 0 {
		return true, nil
	}
	leads := p.leads
	p.leads = false
	defer func() { p.leads = leads }()
	if err := p.openLog(); err != nil {
		return false, err
	}
	ok := p.has(p.known.last) && p.log.Failed() == ""
	return ok, p.log.Close()
}
