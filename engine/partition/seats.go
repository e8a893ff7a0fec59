package partition

import (
	"context"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/cosign"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// The set of a term and its number change with the term alone, by its leader's seal of
// what the log is then: one member joins or leaves at a time.

// wanted is the quorum that the topic's configuration asks for, of a partition that this
// node leads.
func (p *Partition) wanted() cosign.Quorum {
	cfg, me := p.cfg.Load(), p.o.Key.Author()
	if len(cfg.Replicas) == 0 || p.o.ReadOnly || p.o.Alone {
		return cosign.Quorum{Set: []lattice.AuthorID{me}, Min: 1}
	}
	set := append(slices.Clone(cfg.Replicas), me)
	slices.SortFunc(set, func(a, b lattice.AuthorID) int { return slices.Compare(a[:], b[:]) })
	set = slices.Compact(set)
	return cosign.Quorum{Set: set, Min: min(max(cfg.MinInSync, 1), len(set))}
}

// step returns what comes next on the way from one quorum to another: members join while
// the number is what it was, then it changes, then members leave.
func step(now, want cosign.Quorum) cosign.Quorum {
	next := cosign.Quorum{Set: slices.Clone(now.Set), Min: now.Min}
	for _, a := range want.Set {
		if !slices.Contains(now.Set, a) {
			next.Set = append(next.Set, a)
			slices.SortFunc(next.Set, func(a, b lattice.AuthorID) int { return slices.Compare(a[:], b[:]) })
			if len(next.Set) == len(want.Set) {
				next.Min = want.Min // the last one: in one term
			}
			return next
		}
	}
	for i, a := range now.Set {
		if !slices.Contains(want.Set, a) {
			next.Set = slices.Delete(next.Set, i, i+1)
			next.Min = min(max(next.Min, want.Min), len(next.Set))
			if len(next.Set) == len(want.Set) {
				next.Min = want.Min
			}
			return next
		}
	}
	next.Min = want.Min
	return next
}

// Reseat brings the term's set and number to what the topic's configuration asks for, in
// as many terms as there are members that change. Cheap when there is nothing to do; call it
// when the configuration has changed, and every second or so. Kind Storage.
//
// A step, and what a crash leaves:
//
//  1. What is here is made durable and signed. A crash: the term as it was.
//  2. With nothing appended since, the new term's grant is signed and stored. A crash
//     before that: the term as it was. After it: the next start begins a term with this
//     one's set. No batch is of the new term before.
func (p *Partition) Reseat(ctx context.Context) error {
	if !p.Leads() || p.o.ReadOnly || !p.several() && len(p.cfg.Load().Replicas) == 0 || p.log.Failed() != "" {
		return nil
	}
	p.seating.Lock()
	defer p.seating.Unlock()
	want := p.wanted()
	for {
		now, ready := p.seated()
		if now.Equal(want) || !ready {
			return nil
		}
		if err := p.seat(ctx, step(now, want)); err != nil {
			return fmt.Errorf("change who acknowledges %s: %w", p.id, err)
		}
	}
}

// seated returns the quorum of the term that rules, and whether another may follow.
func (p *Partition) seated() (cosign.Quorum, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.acks
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.newest()
	ready := !p.closed && !p.sealed && (t == nil || len(t.Before) < maxBefore || l.mark.Term >= t.number)
	if !p.granted {
		return cosign.Quorum{Set: p.pending.AckSet, Min: int(p.pending.Min)}, ready
	}
	return t.Quorum, ready
}

// maxBefore bounds the earlier sets that a term has to hear from.
const maxBefore = 8

// seatTries is how often a seat is tried while appends go on, before they are held up.
const seatTries = 20

func (p *Partition) seat(ctx context.Context, q cosign.Quorum) error {
	defer func() {
		p.mu.Lock()
		p.holdUp = false
		p.mu.Unlock()
	}()
	for try := 0; ; try++ {
		if err := p.log.Flush(); err != nil {
			return err
		}
		c, err := p.log.Certify(ctx)
		if err != nil {
			return err
		}
		if done, err := p.sealSeat(c, q, try >= seatTries); done || err != nil {
			p.showLimit()
			p.watchOwn()
			return err
		}
	}
}

// sealSeat stores the grant of the next term, unless something was appended since c.
func (p *Partition) sealSeat(c signedlog.Certified, q cosign.Quorum, holdUp bool) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return true, ErrClosed
	case p.sealed:
		return true, ErrNotLeader
	}
	if _, _, end := p.log.Bounds(); c.End != end {
		p.holdUp = holdUp
		return false, nil
	}
	if err := p.grantTermLocked(); err != nil { // what follows must follow something
		return true, err
	}
	if c.Size == 0 {
		c.Root = merkle.EmptyRoot()
	}
	p.pending.Term = p.grantTerm + 1
	p.pending.BaseSize, p.pending.BaseRoot, p.pending.BaseOffset, p.pending.Previous = c.Size, c.Root, c.End, p.grantSum
	p.pending.AckSet, p.pending.Min, p.pending.Kind = q.Set, uint16(q.Min), grant.Seal
	p.granted = false
	if err := p.grantTermLocked(); err != nil {
		return true, err
	}
	p.term.Store(p.pending.Term)
	return true, nil
}

// keepSeats gives the term of a new start the set of the one before it, where nobody asks
// for promises (Options.Asks).
func (p *Partition) keepSeats() {
	p.acks.mu.Lock()
	t := p.acks.newest()
	p.acks.mu.Unlock()
	if t == nil || t.Alone() {
		return
	}
	p.pending.AckSet, p.pending.Min, p.pending.Kind = t.Set, uint16(t.Min), grant.Seal
}

// watchOwn has what is committed counted when the leader signs something, as long as that
// counts for others.
func (p *Partition) watchOwn() {
	l := &p.acks
	l.mu.Lock()
	begin := p.limit.Load() != never && l.unwatch == nil
	if begin {
		l.unwatch = func() {}
	}
	l.mu.Unlock()
	if begin {
		stop := p.log.Follow(p.recount)
		l.mu.Lock()
		l.unwatch = stop
		l.mu.Unlock()
	}
}
