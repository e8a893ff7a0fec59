package partition

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/cosign"
)

// How appends with acks=all wait, at the leader.

var (
	// ErrNotEnough (19): fewer members than the term needs are in sync. Nothing was
	// appended.
	ErrNotEnough = lattice.E(lattice.Unavailable, errors.New("fewer members hold the partition than acks=all needs (min.insync.replicas); nothing was appended"))
	// ErrNotEnoughAfter (20): the batch is durable here and has its offset, and fewer
	// members than the term needs acknowledged it in time. It becomes committed when
	// they do; an idempotent producer's retry waits for that, and does not repeat it.
	ErrNotEnoughAfter = lattice.E(lattice.Unavailable, errors.New("the records are on this node, and too few other members have acknowledged them in time (min.insync.replicas)"))
)

const (
	// inSyncFor is how long a member may lack something and is still in sync; Kafka's
	// replica.lag.time.max.ms is three times as long.
	inSyncFor = 10 * time.Second
	// syncWait is how long acks=all waits, once enough members have acknowledged, for the
	// others that are in sync. A member for which that was in vain is not in sync any more.
	syncWait = time.Second
	// ackTime is how long acks=all waits when nothing is said.
	ackTime = 30 * time.Second
)

// ackWait is an append that waits for acknowledgements.
type ackWait struct {
	end  int64
	done func(error)
	stop func() bool // of the timer for its whole time
	rest func() bool // of that for members in sync; nil: not begun
	over bool
}

// finish answers it. No lock is held.
func (w *ackWait) finish(err error) {
	w.stop()
	if w.rest != nil {
		w.rest()
	}
	w.done(err)
}

// several reports whether acknowledgements of other members decide what is committed.
func (p *Partition) several() bool { return p.limit.Load() != never }

// enough refuses an append with acks=all for which too few members are in sync.
func (p *Partition) enough() error {
	l := &p.acks
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.newest()
	if t == nil {
		return nil
	}
	now, in := p.o.Clock.Now(), 1
	for _, m := range l.members {
		if l.inSync(m, now) {
			in++
		}
	}
	if in < t.Min {
		return fmt.Errorf("%d of %d are in sync, %d are needed: %w", in, len(t.Set), t.Min, ErrNotEnough)
	}
	return nil
}

// inSync reports whether a member has everything, or began to lack something not long ago.
func (l *ledger) inSync(m *member, now time.Time) bool {
	return m.held.End >= l.end || !m.slow && now.Sub(m.since) <= inSyncFor
}

// wrote is told of an append, of the log up to end. p.mu is held.
func (l *ledger) wrote(end int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.members {
		if m.held.End >= l.end {
			m.since = now
		}
	}
	l.end = end
}

// heard takes what a member holds now. What was signed when it was at the log's end it
// had in time.
func (l *ledger) heard(a cosign.Ack, now time.Time) {
	m := l.members[a.By]
	if m == nil || a.Size < m.held.Size {
		return
	}
	m.held = cosign.Held{Size: a.Size, End: a.End}
	if at := time.UnixMilli(clock.Timestamp(a.Time).Milli()); at.After(m.since) && !at.After(now) {
		m.since = at
	}
	if m.held.End >= l.end || m.held.End >= l.mark.End && now.Sub(m.since) <= syncWait {
		m.slow = false
	}
}

// answered takes out those whose wait is over: what they wait for is committed, and every
// member that is in sync has it.
func (l *ledger) answered(now time.Time) []*ackWait {
	if len(l.waiting) == 0 {
		return nil
	}
	upTo := l.mark.End
	if t := l.newest(); t != nil && !t.several(l.mark.Term) {
		upTo = never
	}
	all := upTo
	for _, m := range l.members {
		if l.inSync(m, now) {
			all = min(all, m.held.End)
		}
	}
	var done []*ackWait
	l.waiting = slices.DeleteFunc(l.waiting, func(w *ackWait) bool {
		if w.end > all {
			return false
		}
		w.over = true
		done = append(done, w)
		return true
	})
	return done
}

// awaitAcks calls done once, with no lock held, when what lies below end is committed and
// the members in sync have it, or with ErrNotEnoughAfter after wait.
func (p *Partition) awaitAcks(end int64, wait time.Duration, done func(error)) {
	if wait <= 0 {
		wait = ackTime
	}
	l := &p.acks
	w := &ackWait{end: end, done: done}
	w.stop = p.o.Clock.AfterFunc(wait, func() { p.lateAck(w) })
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		w.finish(ErrClosed)
		return
	}
	i := sort.Search(len(l.waiting), func(i int) bool { return l.waiting[i].end > end })
	l.waiting = slices.Insert(l.waiting, i, w)
	l.mu.Unlock()
	p.recount()
	l.mu.Lock()
	if !w.over { // those for which others are waited for too long
		w.rest = p.o.Clock.AfterFunc(syncWait, func() { p.slowAck(w) })
	}
	l.mu.Unlock()
}

// lateAck ends a wait whose time is over.
func (p *Partition) lateAck(w *ackWait) {
	l := &p.acks
	l.mu.Lock()
	if w.over {
		l.mu.Unlock()
		return
	}
	w.over = true
	l.waiting = slices.DeleteFunc(l.waiting, func(x *ackWait) bool { return x == w })
	committed := l.mark.End >= w.end
	l.mu.Unlock()
	if committed {
		w.finish(nil)
		return
	}
	w.finish(fmt.Errorf("%s: %w", p.id, ErrNotEnoughAfter))
}

// slowAck looks, now and then, whether a wait is for members in sync alone, and lets go
// of those that kept it waiting.
func (p *Partition) slowAck(w *ackWait) {
	l := &p.acks
	l.mu.Lock()
	if w.over {
		l.mu.Unlock()
		return
	}
	if l.mark.End >= w.end {
		for a, m := range l.members {
			if m.held.End < w.end && !m.slow {
				m.slow = true
				p.o.Logger.Warn("a member is not in sync any more: appends waited for it", "partition", p.id, "member", a.Short(), "holds", m.held.End)
			}
		}
	}
	done := l.answered(p.o.Clock.Now())
	if !w.over {
		w.rest = p.o.Clock.AfterFunc(syncWait, func() { p.slowAck(w) })
	}
	l.mu.Unlock()
	for _, x := range done {
		x.finish(nil)
	}
}

// closeAcks answers who waits.
func (p *Partition) closeAcks() error {
	l := &p.acks
	l.mu.Lock()
	l.closed = true
	all := l.waiting
	l.waiting = nil
	for _, w := range all {
		w.over = true
	}
	l.mu.Unlock()
	for _, w := range all {
		w.finish(ErrClosed)
	}
	return p.saveMark()
}

// ReplicaStatus is what is known of one member of a partition's set.
type ReplicaStatus struct {
	Node   lattice.NodeID
	End    int64         // it holds what lies below
	InSync bool          // as acks=all sees it
	Behind time.Duration // for how long it has lacked something; at the leader only
}

// AckStatus is who has to hold the partition, and does.
type AckStatus struct {
	Min      int
	Replicas []ReplicaStatus // the set, ascending
	// OnlyHere are the records that no other member is known to hold.
	OnlyHere int64
}

// AckStatus returns what is known here. A follower knows what members said, and takes
// those to be in sync that hold what is committed.
func (p *Partition) AckStatus() AckStatus {
	start, _, end := p.log.Bounds()
	signed := p.log.Checkpoint().End
	me, leads := p.o.Key.Author(), p.Leads()
	now := p.o.Clock.Now()
	l := &p.acks
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.newest()
	if t == nil {
		lead := p.o.Leader
		if leads {
			lead = me
		}
		return AckStatus{Min: 1, Replicas: []ReplicaStatus{{Node: lead, End: end, InSync: true}}, OnlyHere: end - start}
	}
	out := AckStatus{Min: t.Min}
	most := start
	for _, a := range t.Set {
		r := ReplicaStatus{Node: a, End: t.held[a].End}
		m := l.members[a]
		switch {
		case a == me && leads:
			r.End, r.InSync = end, true
		case a == me:
			r.End, r.InSync = end, end >= l.mark.End
		case a == t.leader:
			r.End, r.InSync = max(r.End, signed), true
		case m != nil:
			r.End, r.InSync = m.held.End, l.inSync(m, now)
			if m.held.End < end {
				r.Behind = now.Sub(m.since)
			}
		default:
			r.InSync = r.End >= l.mark.End
		}
		if a != me {
			most = max(most, r.End)
		}
		out.Replicas = append(out.Replicas, r)
	}
	out.OnlyHere = max(0, end-most)
	return out
}
