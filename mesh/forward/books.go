package forward

import (
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

var (
	// ErrUnreachable means that nothing was sent: the leader cannot be reached. Kind
	// Unavailable.
	ErrUnreachable = lattice.E(lattice.Unavailable, errors.New("the partition's leader cannot be reached from this node"))
	// ErrBusy means that nothing was sent: the leader is slower than what is asked of
	// it. Kind Unavailable.
	ErrBusy = lattice.E(lattice.Unavailable, errors.New("too much waits for the partition's leader already"))
	// ErrLost means that the leader was asked and gave no answer: whether it has done
	// it, or will, is not known. Kind Unavailable.
	ErrLost = lattice.E(lattice.Unavailable, errors.New("the partition's leader was asked, and gave no answer"))
)

// Limits bound what is under way on one stream.
type Limits struct {
	Bytes int // of asks; one more than fits is taken
	Asks  int
}

// Asker keeps the books of the asking end of one stream. T is what the caller wants to
// have back with an answer. One goroutine at a time uses it.
//
// Every T that Ask took comes back once: from Answered, GiveUp or End.
type Asker[T any] struct {
	limits Limits
	next   uint64
	out    map[uint64]*asked[T]
	queue  []*asked[T] // not sent, in order
	bytes  int         // of all in out
}

// asked is an ask without an answer.
type asked[T any] struct {
	id    uint64
	op    Op
	tag   T
	frame []byte // nil: it was sent
	size  int
	gone  bool // given up: the tag is back
}

// NewAsker returns the books of a stream that begins.
func NewAsker[T any](l Limits) *Asker[T] {
	return &Asker[T]{limits: l, next: 1, out: map[uint64]*asked[T]{}}
}

// Ask takes something to be asked, behind all that it took before, and copies it; the
// id is set here. Errors: ErrBusy, ErrTooLarge.
func (a *Asker[T]) Ask(m Ask, tag T) (id uint64, err error) {
	switch {
	case len(m.Batches) > MaxBatches, len(m.Body) > MaxBody:
		return 0, ErrTooLarge
	case len(a.out) >= a.limits.Asks, a.bytes >= a.limits.Bytes:
		return 0, ErrBusy
	}
	m.ID = a.next
	x := &asked[T]{id: m.ID, op: m.Op, tag: tag, size: m.size()}
	x.frame = m.AppendTo(make([]byte, 0, x.size))
	a.next++
	a.out[x.id] = x
	a.queue = append(a.queue, x)
	a.bytes += x.size
	return x.id, nil
}

// Out returns how many asks have no answer.
func (a *Asker[T]) Out() int { return len(a.out) }

// Take appends to b what is to be sent next: up to about most bytes, but at least one
// ask if any waits. From then on it counts as sent.
func (a *Asker[T]) Take(b []byte, most int) []byte {
	begin := len(b)
	for len(a.queue) > 0 {
		x := a.queue[0]
		if n := len(b) - begin; n > 0 && n+len(x.frame) > most {
			break
		}
		b = append(b, x.frame...)
		x.frame, a.queue[0] = nil, nil
		a.queue = a.queue[1:]
	}
	return b
}

// Answered takes an answer. told is false if the ask was given up, and tag is back
// already. The error, which wraps ErrMessage, means that the answer cannot be: the
// stream must end.
func (a *Asker[T]) Answered(m Answer) (tag T, told bool, err error) {
	x := a.out[m.ID]
	switch {
	case x == nil, x.frame != nil:
		return tag, false, fmt.Errorf("an answer to ask %d, which does not wait for one: %w", m.ID, ErrMessage)
	case !m.Refused && (x.op == Append) != (m.Base >= 0):
		return tag, false, fmt.Errorf("an answer to ask %d with offset %d: %w", m.ID, m.Base, ErrMessage)
	}
	a.drop(x)
	if x.gone {
		return tag, false, nil
	}
	return x.tag, true, nil
}

func (a *Asker[T]) drop(x *asked[T]) {
	delete(a.out, x.id)
	a.bytes -= x.size
}

// GiveUp says that an ask's time is over, or that nobody waits for it. ok is false if it
// has an answer. why is ErrUnreachable for one that was not sent, and never will be; else
// ErrLost, and it keeps its place until the leader answers; of a Call that one is told.
func (a *Asker[T]) GiveUp(id uint64) (tag T, why error, ok bool) {
	x := a.out[id]
	if x == nil || x.gone {
		return tag, nil, false
	}
	if x.frame == nil {
		x.gone = true
		if x.op == Call {
			c := Ask{Op: Cancel, ID: id}
			a.queue = append(a.queue, &asked[T]{id: id, op: Cancel, frame: c.AppendTo(nil)})
		}
		return x.tag, ErrLost, true
	}
	a.drop(x)
	for i, q := range a.queue {
		if q == x {
			a.queue = append(a.queue[:i:i], a.queue[i+1:]...)
			break
		}
	}
	return x.tag, ErrUnreachable, true
}

// End says that the stream is over. It calls each for all asks without an answer that
// were not given up, in order: with ErrUnreachable for what was not sent, else ErrLost.
func (a *Asker[T]) End(each func(tag T, why error)) {
	ids := make([]uint64, 0, len(a.out))
	for id := range a.out {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		switch x := a.out[id]; {
		case x.gone:
		case x.frame != nil:
			each(x.tag, ErrUnreachable)
		default:
			each(x.tag, ErrLost)
		}
	}
	a.out, a.queue, a.bytes = map[uint64]*asked[T]{}, nil, 0
}

// Leader keeps the books of the leader's end of one stream. One goroutine at a time
// uses it.
type Leader struct {
	lane   Lane
	limits Limits
	last   uint64
	under  map[uint64]int // asks under way, and their bytes
	bytes  int
}

// NewLeader returns the books of a stream that begins.
func NewLeader(lane Lane, l Limits) *Leader {
	return &Leader{lane: lane, limits: l, under: map[uint64]int{}}
}

// Has reports whether an ask is under way.
func (l *Leader) Has(id uint64) bool { return l.under[id] > 0 }

// Under returns how many asks are under way.
func (l *Leader) Under() int { return len(l.under) }

// Room reports whether another ask may be read.
func (l *Leader) Room() bool { return len(l.under) < l.limits.Asks && l.bytes < l.limits.Bytes }

// Asked takes an ask, without its length. It is to be done before any that comes later
// is begun, as far as the order of their partition goes. A Cancel is not counted, and may
// name an ask that is done. Wraps ErrMessage: the stream must end.
func (l *Leader) Asked(b []byte) (Ask, error) {
	a, err := l.lane.ParseAsk(b)
	switch {
	case err != nil:
		return Ask{}, err
	case a.Op == Cancel && a.ID <= l.last:
		return a, nil
	case a.Op == Cancel:
		return Ask{}, fmt.Errorf("a cancel of ask %d, which has not come: %w", a.ID, ErrMessage)
	case a.ID <= l.last:
		return Ask{}, fmt.Errorf("ask %d behind %d: %w", a.ID, l.last, ErrMessage)
	}
	l.last = a.ID
	l.under[a.ID] = len(b)
	l.bytes += len(b)
	return a, nil
}

// Done says that an ask is answered, and returns how many bytes it had; 0: it had an
// answer.
func (l *Leader) Done(id uint64) (size int) {
	size = l.under[id]
	delete(l.under, id)
	l.bytes -= size
	return size
}
