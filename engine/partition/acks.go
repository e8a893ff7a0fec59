package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/cosign"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/promise"
)

// Acknowledgements of members: given here (cosign), and taken from others (TakeAck).
//
// # A follower's acknowledgement is its cosignature
//
// The steps, and what a crash leaves:
//
//  1. The batches and the head with the leader's checkpoint of all of them are durable
//     (Receive). The head is the record of what may have been cosigned: from here on
//     nothing smaller, and of this size nothing else, is. A crash: the next open finds
//     it, and signs that very checkpoint.
//  2. Of a new term, a record of its own is made durable (Meta.PutCosigned), so that no
//     head of an older one counts any more. It is made, too, before a log begins anew
//     behind what was cosigned. A crash: the same as before.
//  3. The cosignature is made. A crash: the same checkpoint is cosigned again, with a
//     later date.
//  4. It goes to other nodes. What they have of it is true whatever becomes of this one.

// What an acknowledgement is refused for, besides cosign.ErrAck.
var (
	// ErrAckForged: a signature in it does not hold. What the leader never signed is
	// such.
	ErrAckForged = lattice.E(lattice.Corrupt, errors.New("a signature of the acknowledgement does not hold"))
	// ErrAckForeign: it is about another log.
	ErrAckForeign = lattice.E(lattice.Invalid, errors.New("the acknowledgement is of another log"))
	// ErrAckStranger: its author is not in the term's set.
	ErrAckStranger = lattice.E(lattice.Denied, errors.New("the acknowledgement is by no member of the term's set"))
	// ErrAckOld: its author has said as much or more, or its term is long over.
	ErrAckOld = lattice.E(lattice.Fenced, errors.New("the acknowledgement is an old one"))
	// ErrAckEarly: its term is not known here so far. It is looked at again then.
	ErrAckEarly = lattice.E(lattice.NotYet, errors.New("the acknowledgement is of a term that is not known here yet"))
	// ErrAckTerm: it says otherwise about its term than the grant does.
	ErrAckTerm = lattice.E(lattice.Corrupt, errors.New("the acknowledgement contradicts the grant of its term"))
	// ErrAckDiverged: it is of a history that this log does not have: the leader signed
	// both. Evidence against the leader, not against who sent it.
	ErrAckDiverged = lattice.E(lattice.Diverged, errors.New("the acknowledgement is of another history than the one that is here"))
)

// Acks returns the newest acknowledgement of each member that is known here, in the
// newest term.
func (p *Partition) Acks() []AckNote { return p.acks.notes() }

// TakeAck takes an acknowledgement of whoever has it; nothing of it is believed. It keeps
// nothing of note. Errors: cosign.ErrAck, ErrAckForged, ErrAckForeign, ErrAckStranger,
// ErrAckOld, ErrAckEarly, ErrAckTerm, ErrAckDiverged; Kind Storage and Unavailable: not now.
func (p *Partition) TakeAck(note []byte) error {
	err := p.takeAck(note)
	if err != nil {
		return fmt.Errorf("acknowledgement of %s: %w", p.id, err)
	}
	p.recount()
	p.acks.tell()
	return nil
}

func (p *Partition) takeAck(note []byte) error {
	c, by, err := cosign.Peek(note) // nothing is checked that costs more before this
	if err != nil {
		return err
	}
	if c.Origin != merkle.Origin(p.o.Store, p.id.String()) {
		return fmt.Errorf("%q: %w", c.Origin, ErrAckForeign)
	}
	leader, err := p.admitAck(c, by, note)
	if err != nil {
		return err
	}
	a, err := cosign.Open(note, leader)
	switch {
	case errors.Is(err, identity.ErrSignature):
		return fmt.Errorf("%w: %w", ErrAckForged, err)
	case err != nil:
		return err
	}
	here, err := p.compareAck(a)
	if err != nil {
		return err
	}
	l := &p.acks
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.By == p.o.Key.Author() { // of an earlier life, perhaps, of which the disk says less
		l.last = l.last.Join(cosign.LastOf(a.Checkpoint))
	}
	if !l.take(a, note, here) {
		return ErrAckOld
	}
	if here {
		l.heard(a, p.o.Clock.Now())
	}
	return nil
}

// admitAck holds an acknowledgement to the grant of its term, before any signature is
// looked at, and returns who must have signed the checkpoint.
func (p *Partition) admitAck(c merkle.Checkpoint, by lattice.AuthorID, note []byte) (leader lattice.AuthorID, err error) {
	l := &p.acks
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.term(c.Grant)
	switch {
	case t == nil && len(l.terms) > 0 && c.Term <= l.newest().number:
		return leader, fmt.Errorf("term %d of grant %s: %w", c.Term, c.Grant.Short(), ErrAckOld)
	case t == nil:
		if len(l.early) == keptEarly {
			l.early = slices.Delete(l.early, 0, 1)
		}
		l.early = append(l.early, slices.Clone(note))
		return leader, fmt.Errorf("term %d of grant %s: %w", c.Term, c.Grant.Short(), ErrAckEarly)
	case by == t.leader || !slices.Contains(t.Voters(), by) && !l.seated[by]:
		return leader, fmt.Errorf("%s: %w", by.Short(), ErrAckStranger)
	case c.Term != t.number || c.Size < t.base.Size || c.End < t.base.End:
		return leader, fmt.Errorf("%d batches up to %d in term %d, which is number %d and begins with %d at %d: %w",
			c.Size, c.End, c.Term, t.number, t.base.Size, t.base.End, ErrAckTerm)
	case l.over(t) < c.Size:
		return leader, fmt.Errorf("%d batches in term %d, a later one begins after %d: %w", c.Size, c.Term, l.over(t), ErrAckOld)
	case t.notes[by] != nil && t.sizes[by] >= c.Size:
		return leader, fmt.Errorf("%d batches, it has said %d: %w", c.Size, t.sizes[by], ErrAckOld)
	}
	return t.leader, nil
}

// over is up to how many batches a term counts, by those that follow it.
func (l *ledger) over(t *ackTerm) uint64 {
	most, later := ^uint64(0), false
	for _, x := range l.terms {
		if later {
			most = min(most, x.base.Size)
		}
		later = later || x == t
	}
	return most
}

// compareAck compares an acknowledgement with the log; false: it is of more than is here.
func (p *Partition) compareAck(a cosign.Ack) (here bool, err error) {
	root, end, err := p.log.PrefixAt(a.Size)
	switch {
	case err == nil && (root != a.Root || end != a.End):
		return false, fmt.Errorf("of %d batches: %w", a.Size, ErrAckDiverged)
	case err == nil:
		return true, nil
	case lattice.KindOf(err) == lattice.NotYet && p.Leads():
		return false, fmt.Errorf("of %d batches, of which this node signed them and has %d: it lost some: %w", a.Size, p.log.Here().Size, ErrAckDiverged)
	case lattice.KindOf(err) == lattice.NotYet:
		return false, nil
	case lattice.KindOf(err) == lattice.OutOfRange:
		return false, fmt.Errorf("%w: %w", ErrAckOld, err)
	}
	return false, err
}

// beginTerm has acknowledgements of a term count from now on. p.mu may be held.
func (p *Partition) beginTerm(g *grant.Signed) {
	p.acks.begin(g, p.o.Key.Author(), p.o.Clock.Now())
	p.showLimit()
}

// showLimit is called when what readers may see can be other than before.
func (p *Partition) showLimit() {
	p.acks.mu.Lock()
	defer p.acks.mu.Unlock()
	p.limit.Store(p.acks.limit())
}

// recount works out what is committed after an acknowledgement, a checkpoint or a term,
// and tells those who wait for it. No lock is held.
func (p *Partition) recount() {
	c := p.log.Checkpoint()
	l := &p.acks
	l.mu.Lock()
	if t := l.newest(); t == nil || !t.several(l.mark.Term) {
		l.mu.Unlock()
		return
	}
	due := l.dueBeyond(p.log.Here().Size)
	early := l.early
	if l.early = nil; len(l.terms) == 0 {
		early = nil
	}
	l.mu.Unlock()
	for _, note := range early {
		if err := p.takeAck(note); err != nil && !errors.Is(err, ErrAckEarly) {
			p.o.Logger.Debug("an acknowledgement that came early is not taken", "partition", p.id, "err", err)
		}
	}
	for _, a := range due {
		here, err := p.compareAck(a)
		if err != nil || !here {
			p.o.Logger.Warn("an acknowledgement that came before its batches does not hold", "partition", p.id, "by", a.By.Short(), "err", err)
			continue
		}
		l.mu.Lock()
		if t := l.term(a.Grant); t != nil {
			t.holds(a.By, cosign.Held{Size: a.Size, End: a.End})
			l.heard(a, p.o.Clock.Now())
		}
		l.mu.Unlock()
	}
	l.mu.Lock()
	grown := len(c.Note) > 0 && l.count(cosign.Held{Size: c.Size, End: c.End}, c.Grant)
	limit := l.limit()
	p.limit.Store(limit)
	done := l.answered(p.o.Clock.Now())
	l.mu.Unlock()
	if grown {
		if limit == never {
			p.waiters.all(false)
		} else {
			p.waiters.moved(p)
		}
	}
	for _, w := range done {
		w.finish(nil)
	}
}

// loadAcks restores what is kept, and takes the terms that are known. It comes before
// loadGrants.
func (p *Partition) loadAcks() error {
	b, err := p.o.Meta.Cosigned()
	l := &p.acks
	if err == nil && b != nil {
		l.kept, err = cosign.ParseLast(b)
	}
	if err != nil {
		return fmt.Errorf("load what was cosigned: %w", err)
	}
	if b, err = p.o.Meta.Committed(); err == nil && b != nil {
		l.mark, err = cosign.ParseMark(b)
	}
	if err != nil {
		return fmt.Errorf("load what is committed: %w", err)
	}
	if b, err = p.o.Meta.Promised(); err == nil && b != nil {
		p.bound, err = promise.ParseBound(b)
	}
	if err != nil {
		return fmt.Errorf("load what was promised: %w", err)
	}
	l.last, l.saved = l.kept, l.mark
	return nil
}

// saveMark keeps what is committed, so that readers do not see less after a restart. An
// old mark is true, so it need not be there after a crash.
func (p *Partition) saveMark() error {
	l := &p.acks
	l.mu.Lock()
	mark, t := l.mark, l.newest()
	due := mark != l.saved && t != nil && (!t.Alone() || len(t.Before) > 0)
	l.mu.Unlock()
	if !due {
		return nil
	}
	if err := p.o.Meta.PutCommitted(mark.AppendTo(nil)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saved = mark
	return nil
}

// openAcks is what an open log adds: what its head says may have been cosigned, too.
func (p *Partition) openAcks() error {
	if !p.Leads() {
		if c := p.log.Checkpoint(); len(c.Note) > 0 {
			p.acks.last = p.acks.last.Join(cosign.LastOf(c.Checkpoint))
		}
		p.adopt()
		err := p.cosign()
		p.recount()
		return err
	}
	_, _, p.acks.end = p.log.Bounds()
	p.watchOwn()
	return p.Reseat(context.Background())
}

// cosign acknowledges the newest checkpoint of which all is here, if this node is one of
// those that the term needs and has not done so. See the steps above. Receive's lock is
// held, or nobody else has p yet.
func (p *Partition) cosign() error {
	c := p.log.Checkpoint()
	if len(c.Note) == 0 || p.log.Here().Size != c.Size || c.Origin == "" || p.Leads() {
		return nil
	}
	if p.Bound().Term > c.Term {
		return nil // it was promised to follow a later term
	}
	me := p.o.Key.Author()
	l := &p.acks
	l.mu.Lock()
	t := l.newest()
	votes := t != nil && t.id == c.Grant && t.leader != me && t.several(l.mark.Term) && slices.Contains(t.Voters(), me)
	if !votes || t.notes[me] != nil && t.sizes[me] >= c.Size {
		l.mu.Unlock()
		return nil
	}
	last, kept, leader := l.last, l.kept, t.leader
	l.mu.Unlock()
	if err := last.May(c.Checkpoint); err != nil {
		return fmt.Errorf("cosign %d batches of %s: %w", c.Size, p.id, err)
	}
	now := cosign.LastOf(c.Checkpoint)
	if kept.Grant != now.Grant {
		if err := p.keepLast(now); err != nil {
			return err
		}
	}
	note, err := cosign.Sign(p.o.Key, uint64(p.o.Clock.Now().Unix()), c.Note, leader)
	if err != nil {
		return err
	}
	a := cosign.Ack{Checkpoint: c.Checkpoint, By: me}
	l.mu.Lock()
	l.last = now
	l.take(a, note, true)
	l.mu.Unlock()
	return nil
}

// keepLast makes a record of what may be cosigned durable.
func (p *Partition) keepLast(last cosign.Last) error {
	if err := p.o.Meta.PutCosigned(last.AppendTo(nil)); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("record what is cosigned of %s: %w", p.id, err))
	}
	p.acks.mu.Lock()
	defer p.acks.mu.Unlock()
	p.acks.kept = last
	p.acks.last = p.acks.last.Join(last)
	return nil
}

// received is what follows when batches, or a term, came to a follower.
func (p *Partition) received() {
	p.adopt()
	if err := p.cosign(); err != nil {
		p.o.Logger.Error("not cosigned", "partition", p.id, "err", err)
	}
	p.recount()
	p.acks.tell()
}

// beforeJump keeps what was cosigned of a log whose head will not say it any more.
func (p *Partition) beforeJump() error {
	p.acks.mu.Lock()
	last, kept := p.acks.last, p.acks.kept
	p.acks.mu.Unlock()
	if last == kept {
		return nil
	}
	return p.keepLast(last)
}

// visible returns the log's bounds, with what readers may see of it.
func (p *Partition) visible() (start, committed, end int64) {
	start, committed, end = p.log.Bounds()
	if limit := p.limit.Load(); limit < committed {
		committed = max(start, limit)
	}
	return start, committed, end
}
