package share

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/internal/tick"
)

// memRecords keeps states as bytes, so that every test also runs the encoding. What
// is in it is durable.
type memRecords struct {
	states  map[string][]byte
	configs map[string]map[string]string
	err     error // what the next writes end with,
	keep    bool  // and whether they are there all the same
	puts    int
}

func newRecords() *memRecords {
	return &memRecords{states: map[string][]byte{}, configs: map[string]map[string]string{}}
}

func (r *memRecords) LoadShares(yield func(group.Key, State) error) error {
	for k, v := range r.states {
		key, err := group.ParseKey([]byte(k))
		if err != nil {
			return err
		}
		s, err := ParseState(v)
		if err != nil {
			return err
		}
		if err := yield(key, s); err != nil {
			return err
		}
	}
	return nil
}

func (r *memRecords) PutShares(changes []Change) error {
	r.puts++
	if r.err == nil || r.keep {
		for _, c := range changes {
			k := string(c.Key.AppendTo(nil))
			if delete(r.states, k); c.State != nil {
				r.states[k] = c.State.AppendTo(nil)
			}
		}
	}
	return r.err
}

func (r *memRecords) LoadGroupConfigs(yield func(string, map[string]string) error) error {
	for name, set := range r.configs {
		if err := yield(name, set); err != nil {
			return err
		}
	}
	return nil
}

func (r *memRecords) PutGroupConfig(name string, set map[string]string) error {
	if r.err == nil || r.keep {
		if delete(r.configs, name); len(set) > 0 {
			r.configs[name] = set
		}
	}
	return r.err
}

// memLog is a log of batches of size 10 a record.
type memLog struct {
	batches     []Batch
	start, end  int64
	stable      int64 // -1: the end
	term        int32
	ends        map[int32]int64 // of past terms
	waiting     []func()
	unreadable  error
	recordBytes int
}

func newLog() *memLog { return &memLog{stable: -1, ends: map[int32]int64{}, recordBytes: 10} }

// append adds a batch of n records behind gap offsets without any.
func (l *memLog) append(n, gap int64, skip bool) {
	first := l.end + gap
	l.batches = append(l.batches, Batch{First: first, Last: first + n - 1, Size: int(n) * l.recordBytes, Skip: skip})
	l.end = first + n
	l.wake()
}

func (l *memLog) wake() {
	waiting := l.waiting
	l.waiting = nil
	for _, wake := range waiting {
		wake()
	}
}

func (l *memLog) Bounds() partition.Bounds {
	b := partition.Bounds{Start: l.start, Committed: l.end, End: l.end, Stable: l.end, Term: l.term}
	if l.stable >= 0 {
		b.Stable = l.stable
	}
	return b
}

func (l *memLog) Find(from int64, max int, stable bool) (Found, error) {
	b := l.Bounds()
	limit := b.Committed
	if stable {
		limit = b.Stable
	}
	switch {
	case l.unreadable != nil:
		return Found{}, l.unreadable
	case from < b.Start:
		return Found{}, lattice.E(lattice.OutOfRange, errors.New("below the start"))
	case from > b.Committed:
		return Found{}, lattice.E(lattice.NotYet, errors.New("above the end"))
	}
	var f Found
	size := 0
	for _, b := range l.batches {
		if b.Last < from || b.Last >= limit {
			continue
		}
		if size += b.Size; size > max && len(f.Batches) > 0 {
			break
		}
		f.Batches = append(f.Batches, b)
	}
	return f, nil
}

func (l *memLog) Readable(from int64, _ int, stable bool) (int, error) {
	f, err := l.Find(from, 1<<30, stable)
	size := 0
	for _, b := range f.Batches {
		size += b.Size
	}
	return size, err
}

func (l *memLog) Wait(from int64, min int, stable bool, wake func()) func() {
	if n, err := l.Readable(from, min, stable); err != nil || n >= min {
		wake()
		return func() {}
	}
	l.waiting = append(l.waiting, wake)
	return func() {}
}

func (l *memLog) OffsetAt(context.Context, int64) (int64, error) {
	return l.start + (l.end-l.start)/2, nil
}

// real reports whether a record for members is at the offset.
func (l *memLog) real(offset int64) bool {
	return slices.ContainsFunc(l.batches, func(b Batch) bool { return !b.Skip && b.First <= offset && offset <= b.Last })
}

// memLogs is one topic and its logs.
type memLogs struct {
	topic group.TopicInfo
	logs  []*memLog
	gone  bool
}

func (s *memLogs) TopicByName(name string) (group.TopicInfo, bool) {
	return s.topic, !s.gone && name == s.topic.Name
}

func (s *memLogs) TopicByID(id lattice.TopicID) (group.TopicInfo, bool) {
	return s.topic, !s.gone && id == s.topic.ID
}

func (s *memLogs) AllTopics() []group.TopicInfo { return []group.TopicInfo{s.topic} }

func (s *memLogs) log(tp lattice.TopicPartition) (*memLog, bool) {
	if s.gone || tp.Topic != s.topic.ID || int(tp.Partition) >= len(s.logs) {
		return nil, false
	}
	return s.logs[tp.Partition], true
}

func (s *memLogs) Committed(tp lattice.TopicPartition) (int64, int32, bool) {
	l, ok := s.log(tp)
	if !ok {
		return 0, 0, false
	}
	return l.end, l.term, true
}

func (s *memLogs) TermEnd(tp lattice.TopicPartition, term int32) (int64, bool) {
	l, ok := s.log(tp)
	if !ok {
		return 0, false
	}
	if end, past := l.ends[term]; past {
		return end, true
	}
	return l.end, true
}

func (s *memLogs) Log(tp lattice.TopicPartition) (Log, bool) {
	l, ok := s.log(tp)
	return l, ok
}

// names gives out every name but one.
type names struct{ taken string }

func (n names) Claim(name string) bool { return name != n.taken }
func (n names) Unclaim(string)         {}

// world is a manager, the disk and logs under it, and a clock. It stands for Run.
type world struct {
	*Manager
	t       *testing.T
	clock   *tick.Manual
	records *memRecords
	logs    *memLogs
	change  func(*Config)
}

func newWorld(t *testing.T, partitions int, change ...func(*Config)) *world {
	w := &world{
		t: t, clock: tick.NewManual(time.Unix(1000, 0)), records: newRecords(),
		logs: &memLogs{topic: group.TopicInfo{ID: lattice.TopicID{'t'}, Name: "t", Partitions: int32(partitions)}},
		change: func(c *Config) {
			for _, f := range change {
				f(c)
			}
		},
	}
	for range partitions {
		w.logs.logs = append(w.logs.logs, newLog())
	}
	w.restart()
	return w
}

// restart is a crash and a new start: what was not written is lost.
func (w *world) restart() {
	cfg := DefaultConfig()
	cfg.Clock, cfg.Logger = w.clock, slog.New(slog.DiscardHandler)
	w.change(&cfg)
	m, err := New(cfg, w.records, w.logs, names{taken: "consumers"})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Manager = m
}

// settle writes all that waits.
func (w *world) settle() {
	for w.flush() {
	}
}

func (w *world) tp(p int32) lattice.TopicPartition {
	return lattice.TopicPartition{Topic: w.logs.topic.ID, Partition: p}
}

func (w *world) all() []lattice.TopicPartition {
	var all []lattice.TopicPartition
	for p := range w.logs.logs {
		all = append(all, w.tp(int32(p)))
	}
	return all
}

// verify checks every window of every group.
func (w *world) verify() error {
	for _, e := range w.entries() {
		for tp, d := range e.parts {
			if err := d.w.verify(); err != nil {
				return fmt.Errorf("%s %s: %w", e.name, tp, err)
			}
			if l := e.settings.limits(); d.w.held() > l.locks || len(d.w.spans) > 2*l.locks+1 {
				return fmt.Errorf("%s %s: %d records in %d spans, limit %d", e.name, tp, d.w.held(), len(d.w.spans), l.locks)
			}
		}
	}
	return nil
}

// open joins a group and opens a session of every partition.
func (w *world) open(g, member string) *Session {
	w.t.Helper()
	if r := w.Heartbeat(HeartbeatRequest{Group: g, MemberID: member, Topics: []string{"t"}}); r.Err != nil {
		w.t.Fatal(r.Err)
	}
	s, err := w.Open(g, member, w.all())
	if err != nil {
		w.t.Fatal(err)
	}
	prepared := false
	w.Prepare(context.Background(), s, func() { prepared = true })
	w.settle()
	if !prepared {
		w.t.Fatal("the session is not ready after everything was written")
	}
	return s
}

// get acquires up to n records of a partition.
func (w *world) get(s *Session, p int32, n int) []Acquired {
	w.t.Helper()
	a, err := w.Acquire(s, w.tp(p), Want{MaxBytes: 1 << 20, One: true, MaxRecords: n, Strict: true})
	if err != nil {
		w.t.Fatal(err)
	}
	return a.Acquired
}

// ack acknowledges a run of one partition, waits until it is written, and returns the
// answer.
func (w *world) ack(s *Session, p int32, first, last int64, kind AckType) error {
	w.t.Helper()
	var answer error
	answered := false
	w.Acknowledge(s.Group(), s.Member(), []Acknowledgement{{w.tp(p), []Ack{{first, last, []AckType{kind}}}}}, true, func(errs []error) {
		answer, answered = errs[0], true
	})
	w.settle()
	if !answered {
		w.t.Fatal("not answered after everything was written")
	}
	return answer
}
