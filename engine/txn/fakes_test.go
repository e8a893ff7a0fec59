package txn

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/internal/tick"
)

// memRecords keeps transactions as bytes, so that every test also runs the
// encoding. What was not synced is lost by a crash.
type memRecords struct {
	kept, durable map[string]string
	err           error // what the next write ends with,
	keep          bool  // and whether it is there all the same
	synced        int
}

func (r *memRecords) LoadTransactions(yield func(Transaction) error) error {
	for id, v := range r.kept {
		t, err := Parse(id, []byte(v))
		if err != nil {
			return err
		}
		if err := yield(t); err != nil {
			return err
		}
	}
	return nil
}

func (r *memRecords) PutTransactions(put []Transaction, gone []string, sync bool) error {
	if r.err == nil || r.keep {
		for _, t := range put {
			r.kept[t.ID] = string(t.AppendTo(nil))
		}
		for _, id := range gone {
			delete(r.kept, id)
		}
	}
	if (r.err == nil || r.keep) && sync {
		r.durable = clone(r.kept)
		r.synced++
	}
	return r.err
}

func clone(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// memLogs is the partitions of a store and the groups: what was written, and what
// is open, by producer.
type memLogs struct {
	log     map[lattice.TopicPartition][]string
	open    map[lattice.TopicPartition]map[int64][]int // producer -> numbers of the batches of its transaction
	fate    map[int]bool                               // number of a batch -> whether it was committed
	batches int
	offsets map[string][]string
	refuse  map[lattice.TopicPartition]error
	late    []func() // answers that wait for settle
	hold    bool
}

func (l *memLogs) End(tp lattice.TopicPartition, m record.Marker, done func(error)) {
	if err := l.refuse[tp]; err != nil {
		done(err)
		return
	}
	if batches := l.open[tp][m.ProducerID]; len(batches) > 0 {
		for _, n := range batches {
			l.fate[n] = m.Commit
		}
		delete(l.open[tp], m.ProducerID)
		what := "abort"
		if m.Commit {
			what = "commit"
		}
		l.log[tp] = append(l.log[tp], fmt.Sprintf("%s:%d/%d", what, m.ProducerID, m.Epoch))
	}
	if l.hold {
		l.late = append(l.late, func() { done(nil) })
		return
	}
	done(nil)
}

func (l *memLogs) EndTransaction(group string, producer int64, commit bool, done func(error)) {
	l.offsets[group] = append(l.offsets[group], fmt.Sprintf("%d commit=%v", producer, commit))
	done(nil)
}

// append writes a batch if the manager says that its transaction is under way.
func (l *memLogs) append(m *Manager, tp lattice.TopicPartition, producer int64, epoch int16) error {
	if err := m.Ongoing(tp, producer, epoch); err != nil {
		return err
	}
	if l.open[tp] == nil {
		l.open[tp] = map[int64][]int{}
	}
	l.batches++
	l.open[tp][producer] = append(l.open[tp][producer], l.batches)
	l.log[tp] = append(l.log[tp], fmt.Sprintf("batch:%d/%d", producer, epoch))
	return nil
}

// world is a Manager with everything around it under the test's control. Its
// writes wait for settle.
type world struct {
	*Manager
	clock   *tick.Manual
	records *memRecords
	logs    *memLogs
	drawn   int64
}

var epoch0 = time.UnixMilli(1_700_000_000_000).UTC()

var errDisk = errors.New("no space")

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		clock:   tick.NewManual(epoch0),
		records: &memRecords{kept: map[string]string{}, durable: map[string]string{}},
		logs: &memLogs{
			log: map[lattice.TopicPartition][]string{}, open: map[lattice.TopicPartition]map[int64][]int{}, fate: map[int]bool{},
			offsets: map[string][]string{}, refuse: map[lattice.TopicPartition]error{},
		},
	}
	w.restart(t)
	return w
}

// restart makes another manager over the same records, as after a crash.
func (w *world) restart(t testing.TB) {
	t.Helper()
	if w.Manager != nil {
		w.close()
	}
	cfg := DefaultConfig()
	cfg.Clock, cfg.Logger = w.clock, slog.New(slog.DiscardHandler)
	m, err := New(cfg, w.records, w.logs, w.logs, func() (int64, error) { w.drawn++; return w.drawn, nil })
	if err != nil {
		t.Fatal(err)
	}
	w.Manager = m
	m.resume()
}

// settle writes all that waits.
func (w *world) settle() {
	for {
		late := w.logs.late
		w.logs.late = nil
		for _, f := range late {
			f()
		}
		if !w.flush() && len(w.logs.late) == 0 {
			return
		}
	}
}

// verify checks what must always hold.
func (w *world) verify() error {
	for _, e := range w.entries() {
		e.mu.Lock()
		t, busy, parked, timer := e.t, e.busy, len(e.parked), e.stop != nil
		e.mu.Unlock()
		switch {
		case t.State == 0:
			return fmt.Errorf("%q was left without a state", e.id)
		case t.State.deciding() && !busy:
			return fmt.Errorf("%q is %v, and nobody is at it", e.id, t.State)
		case parked > 0 && !busy:
			return fmt.Errorf("%q: %d requests wait for nothing", e.id, parked)
		case t.State == Ongoing && !busy && !timer:
			return fmt.Errorf("%q has no timer", e.id)
		case w.byProducer[t.Producer] != e:
			return fmt.Errorf("%q: producer %d is filed wrongly", e.id, t.Producer)
		}
		if err := t.verify(); err != nil {
			return err
		}
	}
	return nil
}

func part(topic byte, n int32) lattice.TopicPartition {
	return lattice.TopicPartition{Topic: lattice.TopicID{topic}, Partition: n}
}

// parts returns the partitions that were written to, in order.
func (l *memLogs) parts() []lattice.TopicPartition {
	var all []lattice.TopicPartition
	for tp := range l.log {
		all = append(all, tp)
	}
	slices.SortFunc(all, comparePartitions)
	return all
}
