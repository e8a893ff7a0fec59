package share

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

// show draws a window: one letter and the deliveries for each offset from start on.
func (w *window) show() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", w.start)
	for _, s := range w.spans {
		letter := map[state]string{available: "a", acquired: s.member, acknowledged: "K", archived: "X", absent: "-"}[s.state]
		for range s.len() {
			fmt.Fprintf(&b, " %s", letter)
			if !s.state.settled() {
				fmt.Fprint(&b, s.deliveries)
			}
		}
	}
	return b.String()
}

var epoch = time.Unix(1000, 0)

// three batches of offsets 0-2, 3 (a marker) and 6-9; nothing is at 4 and 5.
var three = []Batch{{0, 2, 30, false}, {3, 3, 10, true}, {6, 9, 40, false}}

func TestWindow(t *testing.T) {
	l := limits{lock: 30 * time.Second, deliveries: 2, locks: 100}
	acks := func(runs ...Ack) []Ack { return runs }
	one := func(first, last int64, kind AckType) Ack { return Ack{first, last, []AckType{kind}} }
	for name, tc := range map[string]struct {
		do   func(w *window) error
		want string
		err  error
	}{
		"a batch comes whole, markers and gaps are passed over": {
			do: func(w *window) error {
				got, _ := w.acquire(epoch, l, take{member: "m", most: 4}, 0, three)
				if want := []Acquired{{0, 2, 1}, {6, 9, 1}}; !reflect.DeepEqual(got, want) {
					return fmt.Errorf("acquired %v, want %v", got, want)
				}
				return nil
			},
			want: "0: m1 m1 m1 - - - m1 m1 m1 m1",
		},
		"a strict member gets what it asks for": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 4, strict: true}, 0, three)
				return nil
			},
			want: "0: m1 m1 m1 - - - m1",
		},
		"locks bound what is undecided": {
			do: func(w *window) error {
				few := l
				few.locks = 5
				w.acquire(epoch, few, take{member: "m", most: 100}, 0, three)
				if _, ok := w.next(few); ok {
					return errors.New("there is room")
				}
				return nil
			},
			want: "0: m1 m1 m1 - - - m1 m1",
		},
		"types for each offset": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 100}, 0, three)
				return w.acks(l, "m", acks(Ack{0, 2, []AckType{Release, Accept, Reject}}, one(7, 7, Accept), one(9, 9, Gap)))
			},
			want: "0: a1 K X - - - m1 K m1 -",
		},
		"the start moves over what is settled": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 100}, 0, three)
				return w.acks(l, "m", acks(one(0, 2, Accept), one(6, 7, Reject)))
			},
			want: "8: m1 m1",
		},
		"what is below the start is passed over": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 100}, 0, three)
				return errors.Join(w.acks(l, "m", acks(one(0, 2, Accept))), w.acks(l, "m", acks(one(0, 6, Accept))))
			},
			want: "7: m1 m1 m1",
		},
		"all or nothing": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 3}, 0, three)
				w.acquire(epoch, l, take{member: "n", most: 100}, 3, three[1:])
				return w.acks(l, "m", acks(one(0, 1, Accept), one(6, 6, Accept)))
			},
			want: "0: m1 m1 m1 - - - n1 n1 n1 n1",
			err:  ErrRecordState,
		},
		"what was given to nobody": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 3}, 0, three)
				return w.acks(l, "m", acks(one(1, 6, Accept)))
			},
			want: "0: m1 m1 m1 - - -",
			err:  ErrInvalidRequest,
		},
		"twice": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 3}, 0, three)
				return errors.Join(w.acks(l, "m", acks(one(1, 1, Accept))), w.acks(l, "m", acks(one(1, 1, Accept))))
			},
			want: "0: m1 K m1 - - -",
			err:  ErrRecordState,
		},
		"the last delivery archives": {
			do: func(w *window) error {
				for range 2 {
					w.acquire(epoch, l, take{member: "m", most: 3}, 0, three)
					if err := w.acks(l, "m", acks(one(1, 2, Release))); err != nil {
						return err
					}
				}
				return nil
			},
			want: "0: m1 X X - - - m1 m1 m1 m1",
		},
		"a lock that is over": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 3}, 0, three)
				err := w.acks(l, "m", acks(one(0, 0, Accept)))
				w.expire(epoch.Add(l.lock-1), l)
				w.acquire(epoch.Add(l.lock-1), l, take{member: "n", most: 4}, 3, three[1:])
				w.expire(epoch.Add(l.lock), l)
				return err
			},
			want: "1: a1 a1 - - - n1 n1 n1 n1",
		},
		"a renewed lock": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 3}, 0, three)
				runs, err := runsOf(acks(one(1, 1, Renew)), true)
				if err == nil {
					err = w.acknowledge(epoch.Add(time.Second), l, "m", runs)
				}
				w.expire(epoch.Add(l.lock), l)
				return err
			},
			want: "0: a1 m1 a1 - - -",
		},
		"given back": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 3}, 0, three)
				w.giveBack("m", 1, 1)
				w.giveBack("n", 0, 0)
				return nil
			},
			want: "0: m1 a0 m1 - - -",
		},
		"the log's start moves": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 100}, 0, three)
				w.moveStart(7)
				return w.acks(l, "m", acks(one(0, 2, Accept), one(6, 7, Accept)))
			},
			want: "8: m1 m1",
		},
		"the log's start moves beyond all": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 3}, 0, three)
				w.moveStart(50)
				return nil
			},
			want: "50:",
		},
		"the log loses its end": {
			do: func(w *window) error {
				w.acquire(epoch, l, take{member: "m", most: 100}, 0, three)
				w.cut(7)
				return nil
			},
			want: "0: m1 m1 m1 - - - m1",
		},
		"the limit was lowered": {
			do: func(w *window) error {
				high := l
				high.deliveries = 5
				for range 3 {
					w.acquire(epoch, high, take{member: "m", most: 3}, 0, three)
					w.leave("m", high)
				}
				got, _ := w.acquire(epoch, l, take{member: "m", most: 3}, 0, three)
				if len(got) != 1 || got[0].First != 6 {
					return fmt.Errorf("acquired %v", got)
				}
				return nil
			},
			want: "6: m1 m1 m1 m1",
		},
	} {
		w := &window{}
		if err := tc.do(w); !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %v", name, err, tc.err)
		}
		if got := w.show(); got != tc.want {
			t.Errorf("%s:\nhave %s\nwant %s", name, got, tc.want)
		}
		if err := w.verify(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func (w *window) acks(l limits, member string, acks []Ack) error {
	runs, err := runsOf(acks, false)
	if err != nil {
		return err
	}
	return w.acknowledge(epoch, l, member, runs)
}

// TestRunsOf holds the shapes that no acknowledgement may have.
func TestRunsOf(t *testing.T) {
	a := Accept
	for name, acks := range map[string][]Ack{
		"backwards":             {{5, 4, []AckType{a}}},
		"out of order":          {{5, 6, []AckType{a}}, {4, 4, []AckType{a}}},
		"overlapping":           {{5, 6, []AckType{a}}, {6, 7, []AckType{a}}},
		"negative":              {{-1, 4, []AckType{a}}},
		"no type":               {{5, 6, nil}},
		"too few types":         {{5, 7, []AckType{a, a}}},
		"unknown type":          {{5, 5, []AckType{5}}},
		"negative type":         {{5, 5, []AckType{-1}}},
		"renewal where none is": {{5, 5, []AckType{Renew}}},
	} {
		if runs, err := runsOf(acks, false); !errors.Is(err, ErrInvalidRequest) {
			t.Errorf("%s: %v, %v", name, runs, err)
		}
	}
	runs, err := runsOf([]Ack{{1, 3, []AckType{a, a, Release}}, {4, 1 << 40, []AckType{Release}}}, false)
	if want := []run{{1, 2, a}, {3, 1 << 40, Release}}; err != nil || !reflect.DeepEqual(runs, want) {
		t.Errorf("%v, %v, want %v", runs, err, want)
	}
}

// TestSplit cuts at the ends of batches.
func TestSplit(t *testing.T) {
	batches := []Batch{{0, 2, 0, false}, {3, 5, 0, false}, {6, 9, 0, false}}
	for size, want := range map[int][]Acquired{
		0: {{1, 9, 2}}, 1: {{1, 2, 2}, {3, 5, 2}, {6, 9, 2}}, 3: {{1, 5, 2}, {6, 9, 2}}, 100: {{1, 9, 2}},
	} {
		if got := split([]Acquired{{1, 9, 2}}, batches, size); !reflect.DeepEqual(got, want) {
			t.Errorf("size %d: %v, want %v", size, got, want)
		}
	}
}
