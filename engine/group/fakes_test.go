package group

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/tick"
)

// memOffsets keeps offsets as bytes, so that every test also runs the encoding.
type memOffsets struct {
	mu      sync.Mutex
	kept    map[string][]byte
	applies int
	// next decides how the next Apply ends: err is returned, and with kept the
	// changes are there all the same.
	err  error
	keep bool
	// theirs are keys of offsets that another node committed.
	theirs map[string]bool
}

func newMemOffsets() *memOffsets {
	return &memOffsets{kept: map[string][]byte{}, theirs: map[string]bool{}}
}

// foreign stores what another node committed (nil: removed), joined with what is there.
func (o *memOffsets) foreign(k Key, v *Value) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := string(k.AppendTo([]byte{'o'}))
	if v == nil {
		delete(o.kept, name)
		return
	}
	if old, err := ParseValue(o.kept[name]); err == nil && Join(old, *v) == old {
		return
	}
	o.kept[name], o.theirs[name] = v.AppendTo(nil), true
}

func (o *memOffsets) Read(k Key) (v Value, own, ok bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	name := k.AppendTo([]byte{'o'})
	b, ok := o.kept[string(name)]
	if !ok {
		return v, false, false, nil
	}
	v, err = ParseValue(b)
	return v, !o.theirs[string(name)], true, err
}

func (o *memOffsets) Load(yield func(Key, Value, bool) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, v := range o.kept {
		if k[0] != 'o' {
			continue
		}
		key, err := ParseKey([]byte(k[1:]))
		if err != nil {
			return err
		}
		value, err := ParseValue(v)
		if err != nil {
			return err
		}
		if err := yield(key, value, !o.theirs[k]); err != nil {
			return err
		}
	}
	return nil
}

func (o *memOffsets) LoadPending(yield func(PendingKey, Value) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for k, v := range o.kept {
		if k[0] != 'q' {
			continue
		}
		key, err := ParsePendingKey([]byte(k[1:]))
		if err != nil {
			return err
		}
		value, err := ParseValue(v)
		if err != nil {
			return err
		}
		if err := yield(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (o *memOffsets) Apply(changes []Change) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.applies++
	if o.err == nil || o.keep {
		for _, ch := range changes {
			k := string(ch.Key.AppendTo([]byte{'o'}))
			if ch.Pending {
				k = string(PendingKey{ch.Key, ch.Producer}.AppendTo([]byte{'q'}))
			}
			if ch.Value == nil {
				delete(o.kept, k)
			} else {
				// Another's that the Manager had not heard of is joined, as the store does.
				v := *ch.Value
				if old, err := ParseValue(o.kept[k]); err == nil && o.theirs[k] {
					v = Join(old, v)
				}
				o.kept[k] = v.AppendTo(nil)
				delete(o.theirs, k)
			}
		}
	}
	return o.err
}

// memTopics is a store's topics and logs. Every partition has the same end.
type memTopics struct {
	mu     sync.Mutex
	topics map[string]TopicInfo
	made   uint32
	end    int64
	term   int32
	ends   map[int32]int64 // of past terms
}

func newMemTopics() *memTopics {
	return &memTopics{topics: map[string]TopicInfo{}, ends: map[int32]int64{}, end: 1000}
}

func (s *memTopics) create(name string, partitions int32) TopicInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	var id lattice.TopicID
	binary.BigEndian.PutUint32(id[:], s.made)
	t := TopicInfo{ID: id, Name: name, Partitions: partitions}
	s.topics[name] = t
	return t
}

func (s *memTopics) grow(name string, partitions int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	t.Partitions = partitions
	s.topics[name] = t
}

func (s *memTopics) remove(name string) lattice.TopicID {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.topics[name].ID
	delete(s.topics, name)
	return id
}

// lose ends the term at end and begins another one there.
func (s *memTopics) lose(end int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends[s.term] = end
	s.term++
	s.end = end
}

func (s *memTopics) TopicByName(name string) (TopicInfo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.topics[name]
	return t, ok
}

func (s *memTopics) TopicByID(id lattice.TopicID) (TopicInfo, bool) {
	for _, t := range s.AllTopics() {
		if t.ID == id {
			return t, true
		}
	}
	return TopicInfo{}, false
}

func (s *memTopics) AllTopics() []TopicInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []TopicInfo
	for _, t := range s.topics {
		all = append(all, t)
	}
	return all
}

func (s *memTopics) Committed(tp lattice.TopicPartition) (int64, int32, bool) {
	t, ok := s.TopicByID(tp.Topic)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end, s.term, ok && tp.Partition >= 0 && tp.Partition < t.Partitions
}

func (s *memTopics) TermEnd(_ lattice.TopicPartition, term int32) (int64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term == s.term {
		return s.end, true
	}
	end, ok := s.ends[term]
	return end, ok
}

// counter is randomness that repeats: the hashes of 1, 2, 3...
type counter struct{ n uint64 }

func (c *counter) Read(b []byte) (int, error) {
	c.n++
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(nil, c.n))
	return copy(b, sum[:]), nil
}

var _ io.Reader = (*counter)(nil)

var epoch0 = time.UnixMilli(1_700_000_000_000).UTC()

func testConfig(clock tick.Clock) Config {
	cfg := DefaultConfig()
	cfg.Clock, cfg.Rand, cfg.Logger = clock, &counter{}, slog.New(slog.DiscardHandler)
	return cfg
}

// world is a Manager with everything around it under the test's control. Its
// writes wait for settle.
type world struct {
	*Manager
	clock   *tick.Manual
	offsets *memOffsets
	topics  *memTopics
}

func newWorld(t testing.TB, change func(*Config)) *world {
	t.Helper()
	w := &world{clock: tick.NewManual(epoch0), offsets: newMemOffsets(), topics: newMemTopics()}
	w.restart(t, change)
	return w
}

func (w *world) restart(t testing.TB, change func(*Config)) {
	t.Helper()
	cfg := testConfig(w.clock)
	if change != nil {
		change(&cfg)
	}
	m, err := New(cfg, w.offsets, w.topics)
	if err != nil {
		t.Fatal(err)
	}
	w.Manager = m
}

// settle writes all that waits.
func (w *world) settle() {
	for w.flush() {
	}
}

// verify checks every group's own rules.
func (w *world) verify() error {
	for _, e := range w.entries() {
		e.mu.Lock()
		var err error
		if e.classic != nil {
			err = e.classic.verify()
		} else {
			err = e.consumer.verify()
		}
		if next := e.deadline(); err == nil && !next.IsZero() && (e.at.IsZero() || e.at.After(next)) {
			err = io.ErrNoProgress // a deadline without a timer
		}
		e.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) tp(topic string, partition int32) lattice.TopicPartition {
	t, _ := w.topics.TopicByName(topic)
	return lattice.TopicPartition{Topic: t.ID, Partition: partition}
}

// subscription and assignment write the consumer protocol's bytes by hand, so
// that tests do not depend on the code under test.
func subscription(topics ...string) []byte {
	b := []byte{0, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(len(topics)))
	for _, t := range slices.Sorted(slices.Values(topics)) {
		b = binary.BigEndian.AppendUint16(b, uint16(len(t)))
		b = append(b, t...)
	}
	return append(b, 0xff, 0xff, 0xff, 0xff)
}

func assignment(topic string, partitions ...int32) []byte {
	b := []byte{0, 0, 0, 0, 0, 1}
	b = binary.BigEndian.AppendUint16(b, uint16(len(topic)))
	b = append(b, topic...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(partitions)))
	for _, p := range partitions {
		b = binary.BigEndian.AppendUint32(b, uint32(p))
	}
	return append(b, 0xff, 0xff, 0xff, 0xff)
}
