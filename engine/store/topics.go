package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/partition"
)

// Errors of topic operations, with the Kafka code that each stands for.
var (
	// ErrTopicName (17): the name is not legal.
	ErrTopicName = lattice.E(lattice.Invalid, errors.New("invalid topic name"))
	// ErrPartitions (37): the number of partitions is not possible.
	ErrPartitions = lattice.E(lattice.Invalid, errors.New("invalid number of partitions"))
	// ErrTopicExists (36): there is a topic of that name.
	ErrTopicExists = lattice.E(lattice.Exists, errors.New("topic exists"))
	// ErrNoTopic (3): there is no such topic or partition.
	ErrNoTopic = lattice.E(lattice.NotFound, errors.New("no such topic or partition"))
	// ErrTooMany (44): the node's limit of partitions is reached.
	ErrTooMany = lattice.E(lattice.TooLarge, errors.New("partition limit of the store reached"))
)

// Topic is one topic incarnation.
type Topic struct {
	ID         lattice.TopicID
	Name       string
	Partitions int32
	Config     map[string]string // what was set; defaults are not in it
	Created    time.Time
	Internal   bool // the store's own: see OffsetsTopic
}

// NewTopic is a request to create a topic.
type NewTopic struct {
	Name         string
	Partitions   int32 // 0 or -1: the store's default
	Config       map[string]string
	ValidateOnly bool
}

func (t *topic) public() Topic {
	return Topic{t.rec.ID, t.rec.Name, t.rec.Partitions, maps.Clone(t.rec.Config), time.UnixMilli(t.rec.Created).UTC(), t.internal}
}

// Topics returns every topic but the internal ones, sorted by name.
func (s *Store) Topics() []Topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]Topic, 0, len(s.byID))
	for _, t := range s.byID {
		out = append(out, t.public())
	}
	slices.SortFunc(out, func(a, b Topic) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Topic finds a topic by name.
func (s *Store) Topic(name string) (Topic, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.named(name)
	if !ok {
		return Topic{}, false
	}
	return t.public(), true
}

// TopicByID finds a topic incarnation.
func (s *Store) TopicByID(id lattice.TopicID) (Topic, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.identified(id)
	if !ok {
		return Topic{}, false
	}
	return t.public(), true
}

// TopicIDOf returns the id of the topic that has the name now. It does not allocate.
func (s *Store) TopicIDOf(name string) (lattice.TopicID, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.named(name)
	if !ok {
		return lattice.TopicID{}, false
	}
	return t.rec.ID, true
}

// Partition returns one partition; wraps ErrNoTopic. It does not allocate.
func (s *Store) Partition(id lattice.TopicID, p int32) (*partition.Partition, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.identified(id)
	if !ok || p < 0 || int(p) >= len(t.parts) {
		return nil, ErrNoTopic
	}
	return t.parts[p], nil
}

// CreateTopic makes a topic; it is durable when the call returns. The topic's id
// comes from the signed entry that creates it.
// Errors: ErrTopicName, ErrPartitions, ErrTopicExists, ErrTooMany, *ConfigError.
func (s *Store) CreateTopic(ctx context.Context, n NewTopic) (Topic, error) {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	rec, err := s.checkNew(n)
	if err != nil {
		return Topic{}, fmt.Errorf("create topic %q: %w", n.Name, err)
	}
	if n.ValidateOnly {
		return (&topic{rec: rec}).public(), nil
	}
	op, err := creation(rec)
	if err != nil {
		return Topic{}, fmt.Errorf("create topic %q: %w", n.Name, err)
	}
	// A crash after the entry and before the record leaves an entry that created
	// nothing: nobody was told of the topic.
	e, err := s.cat.Enter(ctx, op)
	if err != nil {
		return Topic{}, fmt.Errorf("create topic %q: %w", n.Name, err)
	}
	if rec.ID, _, err = sigchain.TopicID(e); err != nil {
		return Topic{}, fmt.Errorf("create topic %q: %w", n.Name, err)
	}
	rec.Created, rec.Creation = int64(e.Time>>16), e.Bytes()
	// The logs are made first: a crash before the record leaves directories that
	// nothing names, a crash after it a topic that is whole.
	parts, err := s.openPartitions(rec, 0, rec.Partitions)
	if err != nil {
		return Topic{}, fmt.Errorf("create topic %q: %w", n.Name, err)
	}
	if err := s.cat.PutTopic(rec); err != nil {
		return Topic{}, errors.Join(fmt.Errorf("create topic %q: %w", n.Name, err), closeAll(parts))
	}
	t := &topic{rec: rec, parts: parts}
	s.mu.Lock()
	s.byName[rec.Name], s.byID[rec.ID] = t, t
	s.count += rec.Partitions
	s.mu.Unlock()
	s.topicsChanged()
	return t.public(), nil
}

// checkNew holds a request to the rules and fills in defaults.
func (s *Store) checkNew(n NewTopic) (TopicRecord, error) {
	if err := sigchain.CheckTopicName(n.Name); err != nil {
		return TopicRecord{}, fmt.Errorf("%w: %w", ErrTopicName, err)
	}
	if n.Partitions == 0 || n.Partitions == -1 {
		n.Partitions = s.cfg.DefaultPartitions
	}
	if n.Partitions < 0 {
		return TopicRecord{}, fmt.Errorf("%d: %w", n.Partitions, ErrPartitions)
	}
	if _, err := parseConfig(s.cfg.TopicDefaults, n.Config); err != nil {
		return TopicRecord{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if _, ok := s.named(n.Name); ok {
		return TopicRecord{}, ErrTopicExists
	}
	if s.closed {
		return TopicRecord{}, ErrClosed
	}
	if n.Partitions > s.cfg.MaxPartitions-s.count {
		return TopicRecord{}, fmt.Errorf("%d more partitions, %d of %d are there: %w", n.Partitions, s.count, s.cfg.MaxPartitions, ErrTooMany)
	}
	cfg := maps.Clone(n.Config)
	if cfg == nil {
		cfg = map[string]string{}
	}
	return TopicRecord{Name: n.Name, Partitions: n.Partitions, Config: cfg}, nil
}

// creation is the operation that creates a topic.
func creation(rec TopicRecord) (sigchain.Op, error) {
	ct := sigchain.CreateTopic{Name: rec.Name, Partitions: uint32(rec.Partitions)}
	for _, k := range slices.Sorted(maps.Keys(rec.Config)) {
		ct.Configs = append(ct.Configs, sigchain.Config{Key: k, Value: rec.Config[k]})
	}
	return ct.Op()
}

// follow adds an entry to this node's entries: the next of its incarnation, or the
// first of a new one, which names the tip of the one before.
func follow(c sigchain.Chain, e sigchain.Signed) (sigchain.Chain, error) {
	if e.Incarnation == c.Incarnation || c.Tip.IsZero() {
		return c.Next(e)
	}
	if e.Home() != c.Store || e.Author != c.Author || e.Prev != c.Tip || e.Time <= c.Time {
		return c, lattice.E(lattice.Corrupt, fmt.Errorf("entry %s begins an incarnation that does not follow %s", e.ID.Short(), c.Tip.ID.Short()))
	}
	return sigchain.Chain{}.Next(e)
}

// DeleteTopic removes a topic: at once for clients, its files right after. A crash
// in between is finished by the next Open. Errors: ErrNoTopic, ErrInternal.
func (s *Store) DeleteTopic(ctx context.Context, id lattice.TopicID) error {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	s.mu.RLock()
	t, ok := s.byID[id]
	s.mu.RUnlock()
	if !ok {
		return fmt.Errorf("delete topic %s: %w", id, s.unchangeable(id))
	}
	if err := s.cat.DropTopic(id); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.byName, t.rec.Name)
	delete(s.byID, id)
	s.count -= t.rec.Partitions
	s.mu.Unlock()
	s.groups.TopicDeleted(id)
	s.shares.TopicDeleted(id)
	s.topicsChanged()
	err := closeAll(t.parts)
	return errors.Join(err, s.removeFiles(id))
}

// AddPartitions raises a topic's number of partitions to total.
func (s *Store) AddPartitions(ctx context.Context, id lattice.TopicID, total int32, validateOnly bool) error {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	s.mu.RLock()
	t, ok := s.byID[id]
	room := s.cfg.MaxPartitions - s.count
	s.mu.RUnlock()
	switch {
	case !ok:
		return fmt.Errorf("add partitions to %s: %w", id, s.unchangeable(id))
	case total <= t.rec.Partitions:
		return fmt.Errorf("topic %s has %d partitions, %d are no increase: %w", t.rec.Name, t.rec.Partitions, total, ErrPartitions)
	case total-t.rec.Partitions > room:
		return fmt.Errorf("add partitions to %s: %w", t.rec.Name, ErrTooMany)
	case validateOnly:
		return nil
	}
	rec := t.rec
	rec.Partitions = total
	added, err := s.openPartitions(rec, t.rec.Partitions, total)
	if err != nil {
		return fmt.Errorf("add partitions to %s: %w", t.rec.Name, err)
	}
	if err := s.cat.PutTopic(rec); err != nil {
		return errors.Join(err, closeAll(added))
	}
	s.replace(&topic{rec: rec, parts: append(slices.Clip(slices.Clone(t.parts)), added...)}, total-t.rec.Partitions)
	s.topicsChanged()
	return nil
}

// topicsChanged tells the groups' coordinators.
func (s *Store) topicsChanged() {
	s.groups.TopicsChanged()
	s.shares.TopicsChanged()
}

func (s *Store) replace(t *topic, more int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[t.rec.Name], s.byID[t.rec.ID] = t, t
	s.count += more
}

// AlterTopic changes configs; with replace, everything that is not named goes
// back to its default (AlterConfigs). Errors: ErrNoTopic, ErrInternal, *ConfigError.
func (s *Store) AlterTopic(ctx context.Context, id lattice.TopicID, ch []ConfigChange, replace, validateOnly bool) error {
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	s.mu.RLock()
	t, ok := s.byID[id]
	s.mu.RUnlock()
	if !ok {
		return fmt.Errorf("alter topic %s: %w", id, s.unchangeable(id))
	}
	set, err := change(t.rec.Config, s.cfg.TopicDefaults, ch, replace)
	if err != nil {
		return fmt.Errorf("alter topic %s: %w", t.rec.Name, err)
	}
	if validateOnly {
		return nil
	}
	cfg, err := parseConfig(s.cfg.TopicDefaults, set)
	if err != nil {
		return fmt.Errorf("alter topic %s: %w", t.rec.Name, err)
	}
	rec := t.rec
	rec.Config = set
	if err := s.cat.PutTopic(rec); err != nil {
		return err
	}
	s.replace(&topic{rec: rec, parts: t.parts}, 0)
	for _, p := range t.parts {
		p.SetConfig(cfg)
	}
	return nil
}

// TopicConfig lists every topic config with value, default, source and
// documentation, sorted by name.
func (s *Store) TopicConfig(id lattice.TopicID) ([]ConfigEntry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.identified(id)
	if !ok {
		return nil, ErrNoTopic
	}
	return describe(s.cfg.TopicDefaults, t.rec.Config), nil
}
