package share

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
)

// record is what the test knows of one record.
type record struct {
	deliveries int    // that members saw
	accepted   bool   // an Accept was answered with success
	decided    bool   // an Accept or a Reject was asked for, whatever the answer
	holder     string // who may think that it has it
}

// history is what members were told, over all crashes.
type history struct {
	*world
	limit   int16
	records map[lattice.TopicPartition]map[int64]*record
	first   map[lattice.TopicPartition]int64 // highest offset that was delivered for the first time
	session map[string]*Session
}

func (h *history) record(tp lattice.TopicPartition, offset int64) *record {
	if h.records[tp] == nil {
		h.records[tp] = map[int64]*record{}
	}
	r := h.records[tp][offset]
	if r == nil {
		r = &record{}
		h.records[tp][offset] = r
	}
	return r
}

// TestEveryRecordIsDeliveredAndAcknowledgedOnce runs random members that acquire,
// accept, release, reject, renew, do nothing until their locks are over, leave and
// come back, on logs with gaps and markers, with disks that fail and nodes that
// crash. No record that was accepted comes again; none is given to two members at a
// time; none is delivered more often than the limit; first deliveries are in order.
// In the end everything heals, one member takes all that is left, and then each
// record was accepted, rejected, or delivered as often as the limit allows.
func TestEveryRecordIsDeliveredAndAcknowledgedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := int16(rapid.IntRange(2, 4).Draw(rt, "limit"))
		locks := rapid.SampledFrom([]int{5, 12, 100}).Draw(rt, "locks")
		w := newWorld(t, 2, func(c *Config) {
			c.Defaults.Reset, c.Defaults.Deliveries = Reset{Earliest: true}, limit
			c.Defaults.MaxLocks = locks
		})
		h := &history{
			world: w, limit: limit, records: map[lattice.TopicPartition]map[int64]*record{},
			first: map[lattice.TopicPartition]int64{}, session: map[string]*Session{},
		}
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			h.step(rt)
			if err := w.verify(); err != nil {
				rt.Fatal(err)
			}
		}
		h.heal(rt)
	})
}

func (h *history) step(rt *rapid.T) {
	member := fmt.Sprintf("member-%d", rapid.IntRange(0, 2).Draw(rt, "member"))
	tp := h.tp(int32(rapid.IntRange(0, 1).Draw(rt, "partition")))
	s := h.session[member]
	switch do := rapid.IntRange(0, 15).Draw(rt, "do"); {
	case do < 3:
		l, _ := h.logs.log(tp)
		l.append(int64(rapid.IntRange(1, 6).Draw(rt, "records")), int64(rapid.SampledFrom([]int{0, 0, 0, 3}).Draw(rt, "gap")), rapid.IntRange(0, 5).Draw(rt, "marker") == 0)
	case do < 4 || s == nil:
		h.join(member)
	case do < 8:
		h.fetch(rt, s, tp)
	case do < 12:
		h.answer(rt, s, tp)
	case do == 12:
		h.clock.Advance(time.Duration(rapid.IntRange(1, 40).Draw(rt, "seconds")) * time.Second)
	case do == 13:
		h.Close(s)
		h.session[member] = nil
		h.forget(member)
	case do == 14:
		h.Manager.store.(*memRecords).err = nil
		if rapid.Bool().Draw(rt, "failing") {
			h.Manager.store.(*memRecords).err = errors.New("the disk says no")
			h.Manager.store.(*memRecords).keep = rapid.Bool().Draw(rt, "kept")
		}
	default:
		h.crash()
	}
	if rapid.IntRange(0, 2).Draw(rt, "write") > 0 {
		h.settle()
	}
}

func (h *history) join(member string) {
	h.Heartbeat(HeartbeatRequest{Group: "g", MemberID: member, Topics: []string{"t"}})
	s, err := h.Open("g", member, h.all())
	if err != nil {
		h.t.Fatal(err)
	}
	h.session[member] = s
	h.Prepare(context.Background(), s, func() {})
}

// forget notes that a member has nothing any more.
func (h *history) forget(member string) {
	for _, records := range h.records {
		for _, r := range records {
			if r.holder == member {
				r.holder = ""
			}
		}
	}
}

func (h *history) crash() {
	h.restart()
	h.session = map[string]*Session{}
	for _, records := range h.records {
		for _, r := range records {
			r.holder = ""
		}
	}
}

func (h *history) fetch(rt *rapid.T, s *Session, tp lattice.TopicPartition) {
	want := Want{
		MaxBytes: rapid.SampledFrom([]int{1, 60, 1000}).Draw(rt, "bytes"), One: true,
		MaxRecords: rapid.IntRange(1, 12).Draw(rt, "max"), Strict: rapid.Bool().Draw(rt, "strict"), BatchSize: rapid.IntRange(0, 4).Draw(rt, "batch"),
	}
	h.acquire(rt, s, tp, want)
}

// acquire fetches, and holds what came to what may come.
func (h *history) acquire(rt *rapid.T, s *Session, tp lattice.TopicPartition, want Want) []Acquired {
	a, err := h.Acquire(s, tp, want)
	if err != nil && !errors.Is(err, ErrSessionNotFound) && !errors.Is(err, ErrNotStored) {
		rt.Fatal(err)
	}
	if want.Strict && a.Records() > want.MaxRecords {
		rt.Fatalf("%d records, at most %d were asked for", a.Records(), want.MaxRecords)
	}
	l, _ := h.logs.log(tp)
	next := int64(0)
	for _, run := range a.Acquired {
		if run.First < next || run.Last < run.First || run.Deliveries < 1 || run.Deliveries > h.limit {
			rt.Fatalf("%+v after %d, limit %d", run, next, h.limit)
		}
		next = run.Last + 1
		for o := run.First; o <= run.Last; o++ {
			r := h.record(tp, o)
			switch {
			case !l.real(o):
				rt.Fatalf("%s: nothing is at %d", tp, o)
			case r.accepted:
				rt.Fatalf("%s: %d was accepted, and comes again", tp, o)
			case r.holder != "" && r.holder != s.Member() && h.holds(r.holder, tp, o):
				rt.Fatalf("%s: %d is given to %s, %s has it", tp, o, s.Member(), r.holder)
			case int(run.Deliveries) > r.deliveries+1:
				rt.Fatalf("%s: %d has %d deliveries, members saw %d", tp, o, run.Deliveries, r.deliveries+1)
			case r.deliveries == 0 && o < h.first[tp]:
				rt.Fatalf("%s: %d is delivered for the first time after %d", tp, o, h.first[tp])
			}
			if r.deliveries == 0 {
				h.first[tp] = o
			}
			r.deliveries++
			r.holder = s.Member()
		}
	}
	return a.Acquired
}

// holds asks the window.
func (h *history) holds(member string, tp lattice.TopicPartition, offset int64) bool {
	for _, e := range h.entries() {
		for _, sp := range e.parts[tp].w.spans {
			if sp.first <= offset && offset <= sp.last && sp.state == acquired && sp.member == member {
				return true
			}
		}
	}
	return false
}

// answer acknowledges some of what the member thinks that it has.
func (h *history) answer(rt *rapid.T, s *Session, tp lattice.TopicPartition) {
	kind := AckType(rapid.SampledFrom([]int{1, 1, 1, 2, 2, 3, 4}).Draw(rt, "type"))
	var acks []Ack
	var mine []*record
	for o := int64(0); o < 1000; o++ {
		r := h.records[tp][o]
		if r == nil || r.holder != s.Member() || rapid.IntRange(0, 3).Draw(rt, "skip") == 0 {
			continue
		}
		acks, mine = append(acks, Ack{o, o, []AckType{kind}}), append(mine, r)
		if len(acks) == 8 {
			break
		}
	}
	if len(acks) == 0 {
		return
	}
	m := h.Manager
	h.Acknowledge("g", s.Member(), []Acknowledgement{{tp, acks}}, true, func(errs []error) {
		if errs[0] != nil || h.Manager != m {
			return // nobody hears what a node says after it has crashed
		}
		for _, r := range mine {
			if kind == Accept && r.accepted {
				rt.Fatalf("%s: accepted twice", tp)
			}
			r.accepted = r.accepted || kind == Accept
		}
	})
	for _, r := range mine {
		r.decided = r.decided || kind == Accept || kind == Reject
		if kind != Renew {
			r.holder = ""
		}
	}
}

// heal mends everything, takes what is left, and looks whether anything was lost.
func (h *history) heal(rt *rapid.T) {
	h.Manager.store.(*memRecords).err = nil
	h.settle()
	h.clock.Advance(2 * time.Second) // what failed is written
	h.settle()
	h.crash()
	h.join("last")
	h.settle()
	s := h.session["last"]
	for _, tp := range h.all() {
		for {
			got := h.acquire(rt, s, tp, Want{MaxBytes: 1 << 20, One: true, MaxRecords: 100})
			if len(got) == 0 {
				break
			}
			for _, run := range got {
				if err := h.ack(s, tp.Partition, run.First, run.Last, Accept); err != nil {
					rt.Fatal(err)
				}
				for o := run.First; o <= run.Last; o++ {
					r := h.record(tp, o)
					r.accepted, r.decided = true, true
				}
			}
		}
		l, _ := h.logs.log(tp)
		p, err := h.Offsets("g", []lattice.TopicPartition{tp})
		if err != nil || p[0].Start != l.end || p[0].Lag != 0 {
			rt.Fatalf("%+v, %v, the log ends at %d", p, err, l.end)
		}
		for o := range l.end {
			if r := h.record(tp, o); l.real(o) && !r.decided && r.deliveries < int(h.limit) {
				rt.Fatalf("%s: %d is settled after %d deliveries, and nobody decided", tp, o, r.deliveries)
			}
		}
	}
}
