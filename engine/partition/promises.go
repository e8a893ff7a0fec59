package partition

import (
	"errors"
	"fmt"
	"math"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/core/span"
)

// A partition gets another leader by promises of its set's members (core/promise). Who
// asks whom is decided elsewhere.
//
// # A member's promise, and what a crash leaves
//
//  1. It is held to the grant that rules here, and to what was promised before. A crash:
//     nothing was promised.
//  2. What this node is bound by from now on is made durable (Meta.PutPromised), with
//     nothing received or cosigned meanwhile. A crash: it is bound, to a candidate that
//     may not know it; who asks again for the same is promised the same. From here on it
//     cosigns nothing of an older term, also after every restart.
//  3. The promise is signed and goes. What it says of the log was durable before.
//
// # A candidate's grant, and what a crash leaves
//
//  1. The candidate has promised to itself, and others to it. A crash: nobody leads; the
//     next start is another incarnation, which asks for another term.
//  2. The promises are stored (Meta.PutEvidence). A crash: as before; they are of a term
//     that has no grant.
//  3. The grant is stored. A crash: the term rules here, and for all who hear of it. The
//     next start is not its incarnation, so it asks for promises again, after this term.
//  4. The partition is closed and opened again, and leads.

var (
	// ErrLeadsOn: this node leads the partition, and gives it by its seal. Kind Conflict.
	ErrLeadsOn = lattice.E(lattice.Conflict, errors.New("this node leads the partition, and hands it over in order"))
	// ErrLostAcks: this node acknowledged more than it holds now, so a promise of it
	// would say too little. Kind NotYet: it holds it again when it has followed.
	ErrLostAcks = lattice.E(lattice.NotYet, errors.New("this node acknowledged more of the partition than it holds now"))
	// ErrBase: the log here is not what the promises make the base. Kind NotYet.
	ErrBase = lattice.E(lattice.NotYet, errors.New("the log here is not yet what the term builds on"))
)

// several reports whether a term has acknowledgements of others.
func several(g *grant.Signed) bool { return g != nil && len(g.AckSet) > 1 }

// Waits reports whether this node led the partition, by the terms that are known, before
// it was started, and members of the set have to promise it to it again: it is read only
// until then.
func (p *Partition) Waits() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.leads && p.waits()
}

// waits is Waits of one whose lead is not settled. p.mu is held, or nobody else has p yet.
func (p *Partition) waits() bool {
	last := p.known.last
	return p.o.Asks && several(last) && last.Leader == p.o.Key.Author() && last.Incarnation != p.o.Incarnation && !p.o.ReadOnly
}

// Ruling returns the grant that rules, as far as is known here; nil: there is none.
func (p *Partition) Ruling() *grant.Signed {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known.last
}

// Bound returns what this node is bound by.
func (p *Partition) Bound() promise.Bound {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bound
}

// Candidate returns a promise as this node asks others, and itself, for it: of a term
// above all that it knows of, and above after. Wraps promise.ErrNoMember; ErrLeadsOn.
func (p *Partition) Candidate(after int32) (promise.Promise, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, me := p.known.last, p.o.Key.Author()
	switch {
	case p.closed:
		return promise.Promise{}, ErrClosed
	case p.leads && !p.sealed:
		return promise.Promise{}, ErrLeadsOn
	case last == nil:
		return promise.Promise{}, fmt.Errorf("%s has no term so far: %w", p.id, promise.ErrNoMember)
	}
	minutes := p.o.Clock.Now().Unix() / int64(time.Minute/time.Second)
	term, err := promise.Term(last, me, max(after, p.bound.Term), min(minutes, math.MaxInt32))
	return promise.Promise{
		Store: p.o.Store, Partition: p.id, Previous: last.ID, Term: term, Candidate: me, Incarnation: p.o.Incarnation,
	}, err
}

// Promise binds this node to the candidate that asks, and returns the signed promise: see
// the steps above. Errors wrap ErrLeadsOn, ErrLostAcks, promise.ErrOtherGrant,
// ErrNoMember, ErrBound; ErrClosed, Kind Storage.
func (p *Partition) Promise(ask promise.Promise) ([]byte, error) {
	p.receiving.Lock() // nothing is taken or cosigned meanwhile
	defer p.receiving.Unlock()
	b, err := p.promise(ask)
	if err != nil {
		return nil, fmt.Errorf("promise %s: %w", p.id, err)
	}
	return b, nil
}

func (p *Partition) promise(ask promise.Promise) ([]byte, error) {
	p.mu.Lock()
	ruling, bound, closed, leads, sealed := p.known.last, p.bound, p.closed, p.leads, p.sealed
	p.mu.Unlock()
	switch {
	case closed:
		return nil, ErrClosed
	case p.o.ReadOnly:
		return nil, ErrReadOnly
	case leads && !sealed && p.log.Failed() == "":
		return nil, ErrLeadsOn
	case ruling == nil:
		return nil, fmt.Errorf("no term is known: %w", promise.ErrOtherGrant)
	}
	me := p.o.Key.Author()
	ask.Member = me
	next, err := bound.May(ruling, &ask)
	if err != nil {
		return nil, err
	}
	if err := p.holds(ruling, &ask); err != nil {
		return nil, err
	}
	if next != bound {
		if err := p.o.Meta.PutPromised(next.AppendTo(nil)); err != nil {
			return nil, lattice.E(lattice.Storage, fmt.Errorf("record a promise: %w", err))
		}
		p.mu.Lock()
		p.bound = next
		p.mu.Unlock()
	}
	return promise.Sign(p.o.Key, ask)
}

// holds fills in what this node holds of a partition: what it can prove to others, and all
// that it may have cosigned is in that. A candidate's own word is of all that is here: it
// need not be shown to anybody before it leads.
func (p *Partition) holds(ruling *grant.Signed, ask *promise.Promise) error {
	if failed := p.log.Failed(); failed != "" {
		return lattice.E(lattice.Storage, errors.New(failed))
	}
	c := p.log.Checkpoint()
	ask.Held = merge.Empty()
	if len(c.Note) > 0 {
		ask.HeldTerm, ask.Held = c.Term, merge.Point{Size: c.Size, Root: c.Root, End: c.End}
	}
	if c.Grant != ruling.ID {
		ask.HeldTerm = min(ask.HeldTerm, max(ruling.Term-1, 0))
	}
	if here := p.log.Here(); ask.Candidate == ask.Member && here.Size > max(ask.Held.Size, ruling.BaseSize) && p.log.TermHere() == ruling.Term {
		ask.HeldTerm, ask.Held = ruling.Term, merge.Point{Size: here.Size, Root: here.Root, End: here.End}
	}
	p.acks.mu.Lock()
	last := p.acks.last
	p.acks.mu.Unlock()
	switch {
	case last.Term >= ask.Term:
		return fmt.Errorf("term %d was acknowledged: %w", last.Term, promise.ErrBound)
	case last.Grant == ruling.ID && (ask.HeldTerm != ruling.Term || ask.Held.Size < last.Size):
		return fmt.Errorf("%d batches in term %d, and %d are here: %w", last.Size, last.Term, ask.Held.Size, ErrLostAcks)
	}
	return nil
}

// Holds reports whether the log here begins with what a term is to build on, and whether
// it goes on beyond that.
func (p *Partition) Holds(base merge.Point) (has, beyond bool, err error) {
	root, end, err := p.log.PrefixAt(base.Size)
	switch {
	case lattice.KindOf(err) == lattice.NotYet:
		return false, false, nil
	case err != nil:
		return false, false, err
	case root != base.Root || end != base.End:
		return false, false, fmt.Errorf("%d batches are here, and not those of the base: %w", base.Size, ErrDiverged)
	}
	return true, p.log.Here().Size > base.Size, nil
}

// Succeed begins the term that promises make, which follows ruling: see the steps above.
// evidence are they, encoded, one behind the other; promise.Count says what the base is,
// which the term's first checkpoint is signed of. The log here must be that base. Errors wrap ErrBase, promise.ErrOtherGrant,
// ErrEvidence, ErrBound; Kind Storage. After it, close the partition and open it again.
func (p *Partition) Succeed(mine promise.Promise, base merge.Point, evidence []byte) error {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	if err := p.succeed(mine, base, evidence); err != nil {
		return fmt.Errorf("begin term %d of %s: %w", mine.Term, p.id, err)
	}
	return nil
}

func (p *Partition) succeed(mine promise.Promise, base merge.Point, evidence []byte) error {
	p.mu.Lock()
	ruling, bound, closed := p.known.last, p.bound, p.closed
	p.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case ruling == nil || ruling.ID != mine.Previous:
		return promise.ErrOtherGrant
	case bound != promise.Bound{Term: mine.Term, Candidate: p.o.Key.Author(), Incarnation: p.o.Incarnation}:
		return fmt.Errorf("term %d was promised meanwhile: %w", bound.Term, promise.ErrBound)
	}
	if has, beyond, err := p.Holds(base); err != nil || !has || beyond {
		return fmt.Errorf("%w (has it: %v, goes on beyond it: %v): %w", ErrBase, has, beyond, err)
	}
	if err := p.log.Flush(); err != nil {
		return err
	}
	g, err := grant.Sign(p.o.Key, grant.Grant{
		Store: p.o.Store, Partition: p.id, Term: mine.Term, Leader: mine.Candidate, Incarnation: mine.Incarnation,
		BaseSize: base.Size, BaseRoot: base.Root, BaseOffset: base.End, Previous: ruling.ID,
		AckSet: ruling.AckSet, Min: ruling.Min, Kind: grant.Promises,
	})
	var first []byte
	if err == nil {
		first, err = p.firstCheckpoint(&g)
	}
	if err != nil {
		return err
	}
	evidence = append(evidence[:len(evidence):len(evidence)], first...)
	if err := promise.Judge(ruling, &g, evidence); err != nil {
		return err
	}
	return p.storeGrants([]shown{{g, evidence}})
}

// firstCheckpoint signs what a term of this node's begins with.
func (p *Partition) firstCheckpoint(g *grant.Signed) ([]byte, error) {
	now, err := p.o.Stamp()
	if err != nil {
		return nil, err
	}
	start, _, _ := p.log.Bounds()
	return merkle.SignCheckpoint(p.o.Key, merkle.Checkpoint{
		Origin: merkle.Origin(p.o.Store, p.id.String()), Size: g.BaseSize, Root: g.BaseRoot, Start: start, End: g.BaseOffset,
		Term: g.Term, Grant: g.ID, Incarnation: g.Incarnation, Time: max(now, p.log.Checkpoint().Time+1),
	})
}

// adopt takes the first checkpoint of the newest term, if promises made that, and what it
// is of is here: with it the base can be acknowledged in the term. Receive's lock is held,
// or nobody else has p yet.
func (p *Partition) adopt() {
	p.mu.Lock()
	last := p.known.last
	p.mu.Unlock()
	if p.leads || last == nil || last.Kind != grant.Promises || last.BaseSize == 0 || p.log.Checkpoint().Grant == last.ID {
		return
	}
	size, edge := p.log.Edge()
	if size != last.BaseSize {
		return
	}
	evidence, err := p.o.Meta.Evidence(last.Term)
	if err == nil {
		_, first := promise.Evidence(evidence).Split()
		_, err = p.receive(span.Span{Partition: p.id, From: size, Note: first, Left: edge})
	}
	if err != nil {
		p.o.Logger.Warn("the first checkpoint of a term is not taken", "partition", p.id, "term", last.Term, "err", err)
	}
}
