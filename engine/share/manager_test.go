package share

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
)

func earliest(c *Config) { c.Defaults.Reset = Reset{Earliest: true} }

// TestSessions holds the epochs of sessions, their limit, and that the next
// partition begins the answer each time.
func TestSessions(t *testing.T) {
	w := newWorld(t, 3, earliest, func(c *Config) { c.MaxSessions = 2 })
	s := w.open("g", "m")
	if _, err := w.Continue("g", "m", 0, nil, nil); !errors.Is(err, ErrSessionEpoch) {
		t.Errorf("epoch 0: %v", err)
	}
	first := s.Partitions()[0]
	if again, err := w.Continue("g", "m", 1, nil, []lattice.TopicPartition{w.tp(2)}); err != nil || again != s {
		t.Fatal(err)
	}
	if _, err := w.Continue("g", "m", 1, nil, nil); !errors.Is(err, ErrSessionEpoch) {
		t.Errorf("epoch 1 again: %v", err)
	}
	if p := s.Partitions(); len(p) != 2 || p[0] == first {
		t.Errorf("partitions %v, the first was %v", p, first)
	}
	if _, err := w.Continue("g", "other", 1, nil, nil); !errors.Is(err, ErrSessionNotFound) {
		t.Errorf("no session: %v", err)
	}
	if _, err := w.Continue("none", "m", 1, nil, nil); !errors.Is(err, ErrSessionNotFound) {
		t.Errorf("no group: %v", err)
	}
	again := w.open("g", "m") // replaces the one before
	if !s.Closed() || again.Closed() {
		t.Error("two sessions of one member")
	}
	w.open("g", "n")
	if _, err := w.Open("g", "o", w.all()); !errors.Is(err, ErrSessionLimit) {
		t.Errorf("a third session: %v", err)
	}
	w.Close(again)
	w.Close(again)
	if _, err := w.Open("g", "o", w.all()); err != nil {
		t.Errorf("after one ended: %v", err)
	}
	if _, err := w.Open("g", "a member id of more than thirty-six bytes", nil); !errors.Is(err, ErrInvalidRequest) {
		t.Errorf("long member id: %v", err)
	}
}

// TestWhereAGroupBegins is durable before a record is given.
func TestWhereAGroupBegins(t *testing.T) {
	for reset, want := range map[string]int64{"earliest": 2, "latest": 10, "by_duration:PT1H": 6} {
		w := newWorld(t, 1)
		w.logs.logs[0].append(10, 0, false)
		w.logs.logs[0].start = 2
		if err := w.SetConfig("g", map[string]string{"share.auto.offset.reset": reset}); err != nil {
			t.Fatal(err)
		}
		s, err := w.Open("g", "m", w.all())
		if err != nil {
			t.Fatal(err)
		}
		ready := false
		w.Prepare(context.Background(), s, func() { ready = true })
		if _, err := w.Acquire(s, w.tp(0), Want{MaxBytes: 100, MaxRecords: 10}); !errors.Is(err, ErrNotStored) || ready {
			t.Errorf("%s: before it is written: %v, ready %v", reset, err, ready)
		}
		w.settle()
		w.restart()
		w.logs.logs[0].append(5, 0, false)
		p, err := w.Offsets("g", nil)
		if err != nil || len(p) != 1 || p[0].Start != want || p[0].Lag != 15-want || !ready {
			t.Errorf("%s: %+v, %v", reset, p, err)
		}
	}
}

// TestWhatWakesAWaiter holds each thing that makes records available.
func TestWhatWakesAWaiter(t *testing.T) {
	for name, happen := range map[string]func(w *world, held *Session){
		"a record is written":  func(w *world, _ *Session) { w.logs.logs[0].append(1, 0, false) },
		"a record is released": func(w *world, s *Session) { w.ack(s, 0, 0, 0, Release) },
		"a lock is over":       func(w *world, _ *Session) { w.clock.Advance(30 * time.Second) },
		"a session ends":       func(w *world, s *Session) { w.Close(s) },
		"records are given back": func(w *world, s *Session) {
			w.GiveBack(s, w.tp(0), []Acquired{{3, 4, 1}})
		},
		"the group is set to something": func(w *world, _ *Session) {
			if err := w.SetConfig("g", map[string]string{"share.isolation.level": "read_committed"}); err != nil {
				w.t.Error(err)
			}
		},
		"the topic is deleted":   func(w *world, _ *Session) { w.logs.gone = true; w.TopicDeleted(w.logs.topic.ID) },
		"the coordinator closes": func(w *world, _ *Session) { w.close() },
		"the waiter's session ends": func(w *world, _ *Session) {
			s, err := w.Current("g", "waits")
			if err != nil {
				w.t.Error(err)
			}
			w.Close(s)
		},
	} {
		w := newWorld(t, 1, earliest)
		w.logs.logs[0].append(5, 0, false)
		held, waits := w.open("g", "m"), w.open("g", "waits")
		if got := w.get(held, 0, 5); len(got) != 1 || got[0].Last != 4 {
			t.Fatalf("%s: acquired %v", name, got)
		}
		seen := waits.Changes()
		if got := w.get(waits, 0, 5); len(got) != 0 {
			t.Fatalf("%s: acquired %v", name, got)
		}
		woken := false
		cancel := w.Wait(waits, seen, nil, func() { woken = true })
		if woken {
			t.Errorf("%s: woken before", name)
		}
		happen(w, held)
		if !woken {
			t.Errorf("%s: not woken", name)
		}
		cancel()
	}
}

// TestRoomWakesAWaiter: a full window is no reason to wait for the log, and room in
// it is one to look again.
func TestRoomWakesAWaiter(t *testing.T) {
	w := newWorld(t, 1, earliest, func(c *Config) { c.Defaults.MaxLocks = 3 })
	w.logs.logs[0].append(5, 0, false)
	s := w.open("g", "m")
	w.get(s, 0, 5)
	woken := false
	w.Wait(s, s.Changes(), nil, func() { woken = true })
	w.logs.logs[0].append(5, 0, false)
	w.ack(s, 0, 1, 1, Accept)
	if woken {
		t.Error("woken without room")
	}
	w.ack(s, 0, 0, 0, Accept)
	if got := w.get(s, 0, 5); !woken || !reflect.DeepEqual(got, []Acquired{{3, 4, 1}}) {
		t.Errorf("woken %v, acquired %v", woken, got)
	}
}

// TestAnAcknowledgementIsAnsweredWhenDurable, also when the first write fails.
func TestAnAcknowledgementIsAnsweredWhenDurable(t *testing.T) {
	w := newWorld(t, 1, earliest)
	w.logs.logs[0].append(5, 0, false)
	s := w.open("g", "m")
	w.get(s, 0, 5)
	var answers []error
	ack := func(first, last int64) {
		w.Acknowledge("g", "m", []Acknowledgement{{w.tp(0), []Ack{{first, last, []AckType{Accept}}}}}, false, func(errs []error) {
			answers = append(answers, errs...)
		})
	}
	ack(0, 0)
	ack(1, 1)
	if len(answers) != 0 {
		t.Fatal("answered before anything was written")
	}
	puts := w.records.puts
	w.settle()
	if len(answers) != 2 || answers[0] != nil || answers[1] != nil || w.records.puts != puts+1 {
		t.Fatalf("%v after %d writes", answers, w.records.puts-puts)
	}
	w.records.err = errors.New("the disk says no")
	ack(2, 2)
	w.settle()
	if !errors.Is(answers[2], ErrNotStored) {
		t.Errorf("%v", answers[2])
	}
	w.records.err = nil
	w.clock.Advance(time.Second)
	w.settle()
	w.restart()
	if p, err := w.Offsets("g", nil); err != nil || p[0].Start != 3 {
		t.Errorf("after the second try: %+v, %v", p, err)
	}
}

// TestACrash: what was answered stays, what was held comes again and counts.
func TestACrash(t *testing.T) {
	w := newWorld(t, 1, earliest)
	w.logs.logs[0].append(5, 0, false)
	s := w.open("g", "m")
	w.get(s, 0, 5)
	if err := w.ack(s, 0, 1, 2, Accept); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if _, err := w.Continue("g", "m", 1, nil, nil); !errors.Is(err, ErrSessionNotFound) {
		t.Errorf("the session: %v", err)
	}
	if r := w.Heartbeat(HeartbeatRequest{Group: "g", MemberID: "m", MemberEpoch: 1}); !errors.Is(r.Err, ErrUnknownMember) {
		t.Errorf("the member: %v", r.Err)
	}
	if got := w.get(w.open("g", "m"), 0, 5); !reflect.DeepEqual(got, []Acquired{{0, 0, 2}, {3, 4, 2}}) {
		t.Errorf("acquired %v", got)
	}
}

// TestTheLogLostItsEnd: at a durability below fsync a crash can take records that
// were accepted; what gets their offsets is delivered.
func TestTheLogLostItsEnd(t *testing.T) {
	for _, grown := range []int64{0, 10} {
		w := newWorld(t, 1, earliest)
		l := w.logs.logs[0]
		l.append(10, 0, false)
		s := w.open("g", "m")
		w.get(s, 0, 10)
		if err := w.ack(s, 0, 2, 9, Accept); err != nil {
			t.Fatal(err)
		}
		l.batches, l.end, l.ends[0], l.term = []Batch{{0, 3, 40, false}}, 4, 4, 1
		w.restart()
		if grown > 0 {
			l.append(grown, 0, false)
		}
		got := w.get(w.open("g", "m"), 0, 100)
		want := []Acquired{{0, 1, 2}}
		if grown > 0 {
			want = append(want, Acquired{4, 13, 1})
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("grown by %d: acquired %v, want %v", grown, got, want)
		}
	}
}

// TestDeletedTopic: nothing is left of it, also when a crash comes between.
func TestDeletedTopic(t *testing.T) {
	w := newWorld(t, 2, earliest)
	w.logs.logs[0].append(5, 0, false)
	s := w.open("g", "m")
	w.get(s, 0, 5)
	w.logs.gone = true
	if err := w.ack(s, 0, 0, 1, Accept); !errors.Is(err, ErrUnknownTopicID) {
		t.Errorf("acknowledge: %v", err)
	}
	if _, err := w.Acquire(s, w.tp(0), Want{MaxBytes: 1, MaxRecords: 1}); !errors.Is(err, ErrUnknownTopicID) {
		t.Errorf("acquire: %v", err)
	}
	before := fmt.Sprint(w.records.states)
	w.restart()
	w.settle()
	if len(w.records.states) != 0 || before == "map[]" {
		t.Errorf("states %v, were %s", w.records.states, before)
	}
	if l := w.List(); len(l) != 0 {
		t.Errorf("groups %v", l)
	}
}

// TestOffsetsAreAlteredInAnEmptyGroup only, and groups are deleted when empty.
func TestOffsetsAreAlteredInAnEmptyGroup(t *testing.T) {
	w := newWorld(t, 2)
	w.logs.logs[0].append(20, 0, false)
	alter := func(name string, p int32, start int64) (errs []error, err error) {
		w.AlterOffsets(name, []Move{{w.tp(p), start}}, func(e error, es []error) { err, errs = e, es })
		w.settle()
		return errs, err
	}
	if errs, err := alter("g", 0, 8); err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	if errs, err := alter("g", 7, 8); err != nil || !errors.Is(errs[0], ErrUnknownTopicOrPartition) {
		t.Errorf("no such partition: %v %v", err, errs)
	}
	if errs, err := alter("g", 0, -1); err != nil || !errors.Is(errs[0], ErrInvalidRequest) {
		t.Errorf("negative: %v %v", err, errs)
	}
	if _, err := alter("consumers", 0, 1); !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("another kind of group: %v", err)
	}
	w.restart()
	s := w.open("g", "m")
	if got := w.get(s, 0, 1); len(got) != 1 || got[0].First != 8 {
		t.Errorf("acquired %v", got)
	}
	if _, err := alter("g", 0, 8); !errors.Is(err, ErrNonEmpty) {
		t.Errorf("with members: %v", err)
	}
	var answer error
	w.DeleteGroup("g", func(err error) { answer = err })
	if !errors.Is(answer, ErrNonEmpty) {
		t.Errorf("delete with members: %v", answer)
	}
	w.Heartbeat(HeartbeatRequest{Group: "g", MemberID: "m", MemberEpoch: EpochLeave})
	if l := w.List(); len(l) != 1 || l[0].State != group.Empty || l[0].Type != group.Share {
		t.Errorf("groups %+v", l)
	}
	if errs, err := alter("g", 0, 3); err != nil || errs[0] != nil {
		t.Error(err, errs)
	}
	var left []error
	w.DeleteOffsets("g", []lattice.TopicPartition{w.tp(0), w.tp(1)}, func(err error, errs []error) { left = append(errs, err) })
	w.settle()
	if p, err := w.Offsets("g", nil); !errors.Is(err, ErrGroupNotFound) || len(left) != 3 || errors.Join(left...) != nil {
		t.Errorf("a group of nothing: %+v, %v (%v)", p, err, left)
	}
	alter("g", 0, 3)
	answer = errors.New("not answered")
	w.DeleteGroup("g", func(err error) { answer = err })
	w.settle()
	w.restart()
	if _, err := w.Describe("g"); answer != nil || !errors.Is(err, ErrGroupNotFound) || len(w.records.states) != 0 {
		t.Errorf("delete: %v; %v; %v", answer, err, w.records.states)
	}
}

// TestMembers holds heartbeats: epochs, assignment, limits.
func TestMembers(t *testing.T) {
	w := newWorld(t, 4, func(c *Config) { c.MaxSize = 2 })
	beat := func(member string, epoch int32, topics ...string) HeartbeatResult {
		return w.Heartbeat(HeartbeatRequest{Group: "g", MemberID: member, MemberEpoch: epoch, Topics: topics})
	}
	if r := beat("a", 0, "t"); r.Err != nil || !r.Assign || len(r.Assigned) != 1 || len(r.Assigned[0].Partitions) != 4 {
		t.Errorf("the first of a group: %+v", r)
	}
	b := beat("b", 0, "t")
	a := beat("a", 1)
	if !a.Assign || !b.Assign || len(a.Assigned) != 1 || len(b.Assigned) != 1 || a.MemberEpoch != 2 || a.Interval != 5*time.Second {
		t.Fatalf("%+v\n%+v", a, b)
	}
	if both := slices.Concat(a.Assigned[0].Partitions, b.Assigned[0].Partitions); len(both) != 4 || len(a.Assigned[0].Partitions) != 2 {
		t.Errorf("%v", both)
	}
	if r := beat("a", 2); r.Assign {
		t.Errorf("nothing changed: %+v", r)
	}
	if r := beat("a", 1); r.Err != nil { // the answer before may have been lost
		t.Error(r.Err)
	}
	if r := beat("a", 7); !errors.Is(r.Err, ErrFencedMemberEpoch) {
		t.Errorf("epoch 7: %v", r.Err)
	}
	if r := beat("c", 0, "t"); !errors.Is(r.Err, ErrMaxSize) {
		t.Errorf("a third: %v", r.Err)
	}
	if r := beat("c", 3); !errors.Is(r.Err, ErrUnknownMember) {
		t.Errorf("unknown: %v", r.Err)
	}
	if r := beat("b", EpochLeave); r.Err != nil || r.MemberEpoch != EpochLeave {
		t.Error(r)
	}
	if r := beat("a", 2); r.Err != nil || !r.Assign || len(r.Assigned[0].Partitions) != 4 {
		t.Errorf("alone: %+v", r)
	}
	w.logs.logs, w.logs.topic.Partitions = append(w.logs.logs, newLog()), 5
	w.TopicsChanged()
	if r := beat("a", 3); len(r.Assigned) != 1 || len(r.Assigned[0].Partitions) != 5 {
		t.Errorf("a partition more: %+v", r)
	}
	w.clock.Advance(45 * time.Second)
	if d, err := w.Describe("g"); !errors.Is(err, ErrGroupNotFound) {
		t.Errorf("a group of nothing: %+v", d)
	}
	for name, r := range map[string]HeartbeatRequest{
		"no group":        {MemberID: "m", Topics: []string{"t"}},
		"no member":       {Group: "g", Topics: []string{"t"}},
		"no subscription": {Group: "g", MemberID: "m"},
		"epoch -2":        {Group: "g", MemberID: "m", MemberEpoch: -2, Topics: []string{"t"}},
	} {
		if res := w.Heartbeat(r); !errors.Is(res.Err, ErrInvalidRequest) {
			t.Errorf("%s: %v", name, res.Err)
		}
	}
	if r := w.Heartbeat(HeartbeatRequest{Group: "consumers", MemberID: "m", Topics: []string{"t"}}); !errors.Is(r.Err, ErrGroupNotFound) {
		t.Errorf("another kind of group: %v", r.Err)
	}
}

// TestALastWord: a member that has left can still acknowledge what it has.
func TestALastWord(t *testing.T) {
	w := newWorld(t, 1, earliest)
	w.logs.logs[0].append(5, 0, false)
	s := w.open("g", "m")
	w.get(s, 0, 5)
	if r := w.Heartbeat(HeartbeatRequest{Group: "g", MemberID: "m", MemberEpoch: EpochLeave}); r.Err != nil {
		t.Fatal(r.Err)
	}
	if err := w.ack(s, 0, 0, 3, Accept); err != nil || s.Closed() {
		t.Errorf("after it left: %v, session closed %v", err, s.Closed())
	}
	w.Close(s)
	if got := w.get(w.open("g", "n"), 0, 5); !reflect.DeepEqual(got, []Acquired{{4, 4, 2}}) {
		t.Errorf("acquired %v", got)
	}
}

// TestNoTimerSpins: after every member is gone, no timer is left that fires at once.
func TestNoTimerSpins(t *testing.T) {
	w := newWorld(t, 1, earliest)
	w.logs.logs[0].append(5, 0, false)
	w.get(w.open("g", "m"), 0, 5)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.clock.Advance(24 * time.Hour)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the clock does not get on: a timer sets itself again and again")
	}
	if l := w.List(); len(l) != 1 || l[0].Members != 0 {
		t.Errorf("groups %+v", l)
	}
}
