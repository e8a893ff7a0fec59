package txn

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
)

// client is one transactional id's producer. Like a real one it has one request
// out at a time; another instance may take over at any time.
type client struct {
	who     Request
	waiting bool
}

// TestEveryTransactionEndsOneWay runs random producers of two transactional ids
// with failures of disk and logs, time-outs and crashes. Then everything heals, and
// what was written must read as transactions: every batch has a fate, a fate that
// was acknowledged is that one, each partition's epochs only rise, and each marker
// ends something.
func TestEveryTransactionEndsOneWay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		clients := []*client{{who: Request{"a", -1, -1}}, {who: Request{"b", -1, -1}}}
		parts := []lattice.TopicPartition{part('t', 0), part('t', 1), part('u', 0)}
		acknowledged := map[int]bool{} // number of a batch -> commit
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			c := clients[rapid.IntRange(0, 1).Draw(rt, "id")]
			w.step(t, rt, c, clients, parts[rapid.IntRange(0, 2).Draw(rt, "partition")], acknowledged)
			if rapid.IntRange(0, 3).Draw(rt, "settle") > 0 {
				w.settle()
			}
			if err := w.verify(); err != nil && !strings.Contains(err.Error(), "without a state") {
				rt.Fatal(err)
			}
		}
		w.logs.hold, w.records.err = false, nil
		clear(w.logs.refuse)
		for range 4 {
			w.settle()
			w.clock.Advance(time.Hour) // what is open is aborted, what failed is tried again
		}
		w.settle()
		if err := w.verify(); err != nil {
			rt.Fatal(err)
		}
		for _, tr := range w.List() {
			if tr.State == Ongoing || tr.State.deciding() {
				rt.Fatalf("%q is still %v", tr.ID, tr.State)
			}
		}
		for n := 1; n <= w.logs.batches; n++ {
			fate, known := w.logs.fate[n]
			if said, ok := acknowledged[n]; !known || ok && said != fate {
				rt.Fatalf("batch %d: ended %v with commit=%v, acknowledged %v as commit=%v", n, known, fate, ok, said)
			}
		}
		for _, tp := range parts {
			checkEpochs(rt, w.logs.log[tp])
		}
	})
}

// step does one thing to the world.
func (w *world) step(t *testing.T, rt *rapid.T, c *client, all []*client, tp lattice.TopicPartition, acknowledged map[int]bool) {
	do := rapid.IntRange(0, 12).Draw(rt, "do")
	if c.waiting && 1 <= do && do <= 8 && (do < 4 || do > 6) {
		return
	}
	switch do {
	case 0:
		r := InitRequest{ID: c.who.ID, Timeout: time.Minute, Producer: -1, Epoch: -1}
		if rapid.Bool().Draw(rt, "named") {
			r.Producer, r.Epoch = c.who.Producer, c.who.Epoch
		}
		w.Init(r, func(p Producer, err error) {
			if err == nil {
				c.who.Producer, c.who.Epoch = p.ID, p.Epoch
			}
		})
	case 1, 2, 3:
		c.waiting = true
		w.Add(c.who, []lattice.TopicPartition{tp}, []string{"g"}, func(error) { c.waiting = false })
	case 4, 5, 6:
		_ = w.logs.append(w.Manager, tp, c.who.Producer, c.who.Epoch) // refused is as good
	case 7, 8:
		commit := rapid.Bool().Draw(rt, "commit")
		var sent []int
		for _, open := range w.logs.open {
			sent = append(sent, open[c.who.Producer]...)
		}
		c.waiting = true
		w.End(c.who, commit, func(err error) {
			c.waiting = false
			for _, n := range sent {
				if err == nil {
					acknowledged[n] = commit
				}
			}
		})
	case 9:
		w.clock.Advance(rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(rt, "time"))
	case 10:
		w.close()
		w.Manager = nil
		w.records.kept = clone(w.records.durable)
		w.logs.late = nil
		w.restart(t)
		for _, c := range all {
			c.waiting = false
		}
	case 11:
		w.records.err = rapid.SampledFrom([]error{nil, errDisk}).Draw(rt, "disk")
		w.records.keep = rapid.Bool().Draw(rt, "kept")
		w.logs.refuse[tp] = rapid.SampledFrom([]error{nil, errors.New("no leader")}).Draw(rt, "log")
	case 12:
		w.logs.hold = !w.logs.hold
	}
}

// checkEpochs holds one partition's log to what transactions promise.
func checkEpochs(rt *rapid.T, log []string) {
	open, epochs := map[int64]bool{}, map[int64]int16{}
	for i, entry := range log {
		what, name, _ := strings.Cut(entry, ":")
		var producer int64
		var epoch int16
		if _, err := fmt.Sscanf(name, "%d/%d", &producer, &epoch); err != nil {
			rt.Fatal(err)
		}
		switch {
		case epoch < epochs[producer]:
			rt.Fatalf("%v: entry %d is of an epoch that is over", log, i)
		case what != "batch" && !open[producer]:
			rt.Fatalf("%v: the marker at %d ends nothing", log, i)
		}
		epochs[producer], open[producer] = epoch, what == "batch"
	}
}

// TestEpochsRunOut walks one transactional id to its last epoch: it gets another
// producer id, and is never without an epoch to be fenced with.
func TestEpochsRunOut(t *testing.T) {
	at := Transaction{ID: "x", State: Empty, Producer: 1, Epoch: maxEpoch - 1, LastProducer: -1, LastEpoch: -1, Timeout: time.Minute, Updated: epoch0}
	v := at.initialise(epoch0, time.Minute, producerName{-1, -1}, -1)
	if !v.write || v.next.Epoch != maxEpoch {
		t.Fatalf("%+v", v)
	}
	v = v.next.add(epoch0, v.next.name(), []lattice.TopicPartition{part('t', 0)}, nil)
	v = v.next.expire(epoch0.Add(time.Hour))
	if v.next.State != PrepareAbort || v.next.Epoch != maxEpoch+1 {
		t.Fatalf("%+v", v.next)
	}
	done := v.next.complete(epoch0)
	if v := done.add(epoch0, done.name(), nil, []string{"g"}); !errors.Is(v.err, ErrFenced) {
		t.Errorf("the epoch that is for fencing was taken: %+v", v)
	}
	if v := done.initialise(epoch0, time.Minute, done.lastName(), -1); !v.newID {
		t.Fatalf("%+v", v)
	}
	v = done.initialise(epoch0, time.Minute, done.lastName(), 9)
	if v.next.Producer != 9 || v.next.Epoch != 0 || v.next.LastProducer != 1 || v.next.LastEpoch != maxEpoch {
		t.Errorf("%+v", v.next)
	}
	if again := v.next.initialise(epoch0, time.Minute, done.lastName(), -1); again.write || again.next.Producer != 9 {
		t.Errorf("asked again: %+v", again)
	}
}
