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
	// ErrNotLeader (6): another node leads the partition.
	ErrNotLeader = lattice.E(lattice.NotLeader, errors.New("another node leads the partition"))
	// ErrNotOpen (5): this node leads the partition and could not open it yet.
	ErrNotOpen = lattice.E(lattice.Unavailable, errors.New("the partition is not open yet"))
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
	// Leader is the node that leads its partitions: who created it.
	Leader lattice.NodeID
	// Created as: the name that it was created with, if an earlier topic has that;
	// Name is then another (see namesOf). Otherwise empty.
	CreatedAs string
}

// NewTopic is a request to create a topic.
type NewTopic struct {
	Name         string
	Partitions   int32 // 0 or -1: the store's default
	Config       map[string]string
	ValidateOnly bool
}

func (t *topic) public() Topic {
	p := Topic{
		ID: t.rec.ID, Name: t.name, Partitions: t.rec.Partitions, Config: maps.Clone(t.rec.Config),
		Created: time.UnixMilli(t.rec.Created).UTC(), Internal: t.internal, Leader: t.from.leader,
	}
	if t.name != t.rec.Name {
		p.CreatedAs = t.rec.Name
	}
	return p
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

// Partition returns one partition, of which this node may be a follower (Leads); wraps
// ErrNoTopic, ErrNotLeader or ErrNotOpen. It does not allocate.
func (s *Store) Partition(id lattice.TopicID, p int32) (*partition.Partition, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.identified(id)
	switch {
	case !ok || p < 0 || p >= t.rec.Partitions:
		return nil, ErrNoTopic
	case int(p) < len(t.parts):
		return t.parts[p], nil
	case t.from.leader != s.info.Node:
		return nil, ErrNotLeader
	}
	return nil, ErrNotOpen
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
		return (&topic{rec: rec, name: rec.Name, from: origin{leader: s.info.Node}}).public(), nil
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
	from, err := originOf(rec, s.home)
	if err != nil {
		return Topic{}, fmt.Errorf("create topic %q: %w", n.Name, err)
	}
	// The logs are made first: a crash before the record leaves directories that
	// nothing names, a crash after it a topic that is whole.
	parts, err := s.openPartitions(rec, from.leader, 0, rec.Partitions)
	if err != nil {
		return Topic{}, fmt.Errorf("create topic %q: %w", n.Name, err)
	}
	if err := s.cat.PutTopic(rec); err != nil {
		return Topic{}, errors.Join(fmt.Errorf("create topic %q: %w", n.Name, err), closeAll(parts))
	}
	t := &topic{rec: rec, from: from, name: rec.Name, parts: parts}
	s.mu.Lock()
	s.byID[rec.ID] = t
	s.count += rec.Partitions
	s.mu.Unlock()
	// Another node may have created one of that name that came meanwhile.
	s.nameTopics()
	s.topicsChanged()
	if now, ok := s.TopicByID(rec.ID); ok {
		return now, nil
	}
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
	if err := s.checkReplicas(n.Config); err != nil {
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
	if err := s.mayDelete(t); err != nil {
		return err
	}
	if err := s.cat.DropTopic(id); err != nil {
		return err
	}
	err := s.letGo(t)
	s.nameTopics()
	s.topicsChanged()
	return errors.Join(err, s.removeFiles(id))
}

// letGo takes a topic out of memory, and closes its partitions. Whoever calls it
// names the topics again.
func (s *Store) letGo(t *topic) error {
	s.mu.Lock()
	delete(s.byID, t.rec.ID)
	if s.byName[t.name] == t {
		delete(s.byName, t.name)
	}
	s.count -= t.rec.Partitions
	s.mu.Unlock()
	s.groups.TopicDeleted(t.rec.ID)
	s.shares.TopicDeleted(t.rec.ID)
	s.forgetHeard(t.rec.ID)
	return closeAll(t.parts)
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
		return fmt.Errorf("topic %s has %d partitions, %d are no increase: %w", t.name, t.rec.Partitions, total, ErrPartitions)
	case total-t.rec.Partitions > room:
		return fmt.Errorf("add partitions to %s: %w", t.name, ErrTooMany)
	case validateOnly:
		return nil
	}
	grown := *t
	grown.rec.Partitions = total
	added, err := s.openPartitions(grown.rec, t.from.leader, t.rec.Partitions, total)
	if err != nil {
		return fmt.Errorf("add partitions to %s: %w", t.name, err)
	}
	if err := s.cat.ChangeTopic(t.rec, grown.rec); err != nil {
		return errors.Join(err, closeAll(added))
	}
	grown.parts = append(slices.Clip(slices.Clone(t.parts)), added...)
	s.replace(&grown, total-t.rec.Partitions)
	s.topicsChanged()
	return nil
}

// topicsChanged tells the groups' coordinators, and who watches.
func (s *Store) topicsChanged() {
	s.groups.TopicsChanged()
	s.shares.TopicsChanged()
	s.watch.tell()
}

func (s *Store) replace(t *topic, more int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[t.name], s.byID[t.rec.ID] = t, t
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
		return fmt.Errorf("alter topic %s: %w", t.name, err)
	}
	if err := s.checkReplicas(set); err != nil {
		return fmt.Errorf("alter topic %s: %w", t.name, err)
	}
	if validateOnly {
		return nil
	}
	cfg, err := parseConfig(s.cfg.TopicDefaults, set)
	if err != nil {
		return fmt.Errorf("alter topic %s: %w", t.name, err)
	}
	changed := *t
	changed.rec.Config = set
	if err := s.cat.ChangeTopic(t.rec, changed.rec); err != nil {
		return err
	}
	s.replace(&changed, 0)
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
