package forward

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// world is an asker and a leader with a stream between them that carries a part of
// what is on it, and may break at any time. Each ask is a number, and the leader
// appends it to a list.
type world struct {
	t      *rapid.T
	asker  *Asker[int]
	leader *Leader
	there  []byte   // on the way to the leader
	back   []byte   // on the way to the asker
	under  []uint64 // asks that the leader works on
	number map[uint64]int
	done   map[uint64]int // where an ask's number is in log

	log    []int          // of the leader
	asked  int            // numbers so far
	told   map[int]string // what became of each number
	ids    map[int]uint64 // of numbers on this stream
	unsent []int          // numbers that were told ErrUnreachable
}

func (w *world) begin() {
	w.asker, w.leader = NewAsker[int](Limits{Bytes: 400, Asks: 5}), NewLeader(Records, Limits{Bytes: 200, Asks: 3})
	w.there, w.back, w.under, w.number, w.done, w.ids = nil, nil, nil, map[uint64]int{}, map[uint64]int{}, map[int]uint64{}
}

func (w *world) tell(n int, what string) {
	if was, ok := w.told[n]; ok {
		w.t.Fatalf("ask %d is told %q after %q", n, what, was)
	}
	w.told[n] = what
}

func (w *world) gave(n int, why error) {
	switch {
	case errors.Is(why, ErrUnreachable):
		w.unsent = append(w.unsent, n)
		w.tell(n, "unreachable")
	case errors.Is(why, ErrLost):
		w.tell(n, "lost")
	default:
		w.t.Fatalf("ask %d is given back because of %v", n, why)
	}
}

func (w *world) ask() {
	n := w.asked
	w.asked++
	id, err := w.asker.Ask(Ask{Op: Append, Partition: tp(1, 0), Batches: fmt.Appendf(nil, "%d", n)}, n)
	switch {
	case err == nil:
		w.ids[n] = id
	case errors.Is(err, ErrBusy):
		w.unsent = append(w.unsent, n)
		w.tell(n, "busy")
	default:
		w.t.Fatal(err)
	}
}

// take has the leader read one ask, if one is there whole.
func (w *world) take() {
	if !w.leader.Room() || len(w.there) < LengthSize {
		return
	}
	n, err := Records.AskLength([LengthSize]byte(w.there))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(w.there) < LengthSize+n {
		return
	}
	a, err := w.leader.Asked(w.there[LengthSize : LengthSize+n])
	if err != nil {
		w.t.Fatal(err)
	}
	w.there = w.there[LengthSize+n:]
	var number int
	if _, err := fmt.Sscan(string(a.Batches), &number); err != nil {
		w.t.Fatal(err)
	}
	w.number[a.ID], w.done[a.ID] = number, len(w.log)
	w.log = append(w.log, number)
	w.under = append(w.under, a.ID)
}

// answer has the leader answer one of its asks, in any order.
func (w *world) answer(i int) {
	id := w.under[i]
	w.under = slices.Delete(w.under, i, i+1)
	if w.leader.Done(id) == 0 {
		w.t.Fatalf("ask %d had no bytes", id)
	}
	a := Answer{ID: id, Base: int64(w.done[id]), Time: -1}
	w.back = a.AppendTo(w.back)
}

func (w *world) hear() {
	if len(w.back) < LengthSize {
		return
	}
	n, err := Records.AnswerLength([LengthSize]byte(w.back))
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := Records.ParseAnswer(w.back[LengthSize : LengthSize+n])
	if err != nil {
		w.t.Fatal(err)
	}
	w.back = w.back[LengthSize+n:]
	number, told, err := w.asker.Answered(a)
	switch {
	case err != nil:
		w.t.Fatal(err)
	case !told:
		return
	case w.number[a.ID] != number || w.log[a.Base] != number:
		w.t.Fatalf("ask %d is told that it is at %d, where %d is", number, a.Base, w.log[a.Base])
	}
	w.tell(number, "done")
}

func (w *world) giveUp(n int) {
	if tag, why, ok := w.asker.GiveUp(w.ids[n]); ok {
		if tag != n {
			w.t.Fatalf("gave up %d, asked for %d", tag, n)
		}
		w.gave(n, why)
	}
}

// TestBooks: whatever a stream does, each ask is told exactly once what became of it:
// done only where it is; unreachable only if the leader never has it. On one stream
// the leader has asks in the order in which they were made.
func TestBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, told: map[int]string{}}
		w.begin()
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			switch rapid.IntRange(0, 12).Draw(t, "step") {
			case 0, 1, 2, 3:
				w.ask()
			case 4, 5:
				w.there = w.asker.Take(w.there, rapid.IntRange(0, 200).Draw(t, "most"))
			case 6, 7, 8:
				w.take()
			case 9, 10:
				if n := len(w.under); n > 0 {
					w.answer(rapid.IntRange(0, n-1).Draw(t, "which"))
				}
				w.hear()
			case 11:
				if w.asked > 0 {
					n := rapid.IntRange(0, w.asked-1).Draw(t, "of")
					if _, here := w.ids[n]; here {
						w.giveUp(n)
					}
				}
			case 12:
				if rapid.IntRange(0, 3).Draw(t, "break") == 0 {
					w.asker.End(w.gave)
					w.begin()
				}
			}
		}
		w.asker.End(w.gave)
		if w.asker.Out() != 0 {
			t.Fatalf("%d asks are out of an ended stream", w.asker.Out())
		}
		for n := range w.asked {
			if _, ok := w.told[n]; !ok {
				t.Fatalf("ask %d is never told", n)
			}
		}
		for _, n := range w.unsent {
			if slices.Contains(w.log, n) {
				t.Fatalf("ask %d, told that it was not sent, was done", n)
			}
		}
		if !slices.IsSorted(w.log) {
			t.Fatalf("out of order: %v", w.log)
		}
	})
}

// TestLyingLeader: an answer that cannot be ends the stream, and nothing is told twice.
func TestLyingLeader(t *testing.T) {
	a := NewAsker[string](Limits{Bytes: 1000, Asks: 10})
	ask := func(op Op) uint64 {
		id, err := a.Ask(Ask{Op: op, Partition: tp(1, 0), Batches: []byte("b")}, "tag")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	first, second, third := ask(Append), ask(Append), ask(Truncate)
	if _, _, err := a.Answered(Answer{ID: first}); !errors.Is(err, ErrMessage) {
		t.Errorf("an answer to what was not sent: %v", err)
	}
	a.Take(nil, 1<<20)
	if _, _, err := a.Answered(Answer{ID: 99}); !errors.Is(err, ErrMessage) {
		t.Errorf("an answer to nothing: %v", err)
	}
	if _, told, err := a.Answered(Answer{ID: first, Base: 7}); err != nil || !told {
		t.Errorf("the answer: %v", err)
	}
	if _, _, err := a.Answered(Answer{ID: first, Base: 7}); !errors.Is(err, ErrMessage) {
		t.Errorf("an answer twice: %v", err)
	}
	if _, _, err := a.Answered(Answer{ID: second, Base: -1}); !errors.Is(err, ErrMessage) {
		t.Errorf("an append without an offset: %v", err)
	}
	if _, _, err := a.Answered(Answer{ID: third, Base: 1}); !errors.Is(err, ErrMessage) {
		t.Errorf("a truncation with an offset: %v", err)
	}
	if _, why, ok := a.GiveUp(second); !ok || !errors.Is(why, ErrLost) {
		t.Errorf("given up: %v", why)
	}
	if _, told, err := a.Answered(Answer{ID: second, Base: 8}); told || err != nil {
		t.Errorf("a late answer: told %v, %v", told, err)
	}
}

// TestHostileAsker: ids that do not rise, and bytes that are no ask, end the stream.
func TestHostileAsker(t *testing.T) {
	l := NewLeader(Records, Limits{Bytes: 60, Asks: 10})
	ask := Ask{Op: Append, ID: 5, Partition: tp(1, 0), Batches: []byte("b")}
	b := ask.AppendTo(nil)[LengthSize:]
	if _, err := l.Asked(b); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Asked(b); !errors.Is(err, ErrMessage) {
		t.Errorf("an id twice: %v", err)
	}
	if _, err := l.Asked(b[:20]); !errors.Is(err, ErrMessage) {
		t.Errorf("a piece: %v", err)
	}
	ask.ID = 6
	if _, err := l.Asked(ask.AppendTo(nil)[LengthSize:]); err != nil || l.Room() {
		t.Errorf("room for more: %v", err)
	}
	if l.Done(5) == 0 || l.Done(5) != 0 || !l.Room() {
		t.Error("what is answered takes no room")
	}
}

// TestCalls: whatever is asked, cancelled and answered, in whatever order, the home is told
// of each call that was given up after it was sent, and of no other; and every place is free
// in the end.
func TestCalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asker, home := NewAsker[int](Limits{Bytes: 4000, Asks: 20}), NewLeader(Groups, Limits{Bytes: 5000, Asks: 21})
		var there []byte
		var ids []uint64
		under, gone, cancelled := map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}
		back := 0
		answer := func(id uint64) {
			delete(under, id)
			if home.Done(id) == 0 {
				t.Fatalf("call %d had no place", id)
			}
			_, told, err := asker.Answered(Answer{ID: id, Base: -1, Time: -1, Body: []byte("x")})
			if err != nil || told == gone[id] {
				t.Fatalf("call %d, given up: %v, is told: %v, %v", id, gone[id], told, err)
			}
			if told {
				back++
			}
		}
		read := func() {
			for len(there) > 0 {
				n, err := Groups.AskLength([LengthSize]byte(there))
				if err != nil {
					t.Fatal(err)
				}
				a, err := home.Asked(there[LengthSize : LengthSize+n])
				if err != nil {
					t.Fatal(err)
				}
				there = there[LengthSize+n:]
				if a.Op == Cancel {
					if cancelled[a.ID] = true; !gone[a.ID] {
						t.Fatalf("call %d is cancelled, and was not given up", a.ID)
					}
					continue
				}
				under[a.ID] = true
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				if id, err := asker.Ask(Ask{Op: Call, Body: []byte("call")}, 0); err == nil {
					ids = append(ids, id)
				}
			case 2:
				there = asker.Take(there, rapid.IntRange(1, 300).Draw(t, "most"))
				read()
			case 3:
				if len(ids) > 0 {
					id := rapid.SampledFrom(ids).Draw(t, "given up")
					if _, why, ok := asker.GiveUp(id); ok {
						back++
						gone[id] = errors.Is(why, ErrLost)
					}
				}
			case 4:
				for _, id := range slices.Sorted(maps.Keys(under)) {
					if rapid.Bool().Draw(t, "answer") {
						answer(id)
					}
				}
			}
		}
		for asker.Out() > 0 {
			there = asker.Take(there, 1000)
			read()
			for _, id := range slices.Sorted(maps.Keys(under)) {
				answer(id)
			}
		}
		there = asker.Take(there, 10_000)
		read()
		for id, lost := range gone {
			if lost && !cancelled[id] {
				t.Fatalf("the home does not hear that call %d was given up", id)
			}
		}
		if back != len(ids) || home.Under() != 0 {
			t.Fatalf("%d of %d calls came back, %d are under way", back, len(ids), home.Under())
		}
	})
}

// TestEarlyCancel: who cancels what was not asked breaks the rules.
func TestEarlyCancel(t *testing.T) {
	home := NewLeader(Groups, Limits{Bytes: 100, Asks: 1})
	c := Ask{Op: Cancel, ID: 1}
	if _, err := home.Asked(c.AppendTo(nil)[LengthSize:]); !errors.Is(err, ErrMessage) {
		t.Errorf("%v", err)
	}
}
