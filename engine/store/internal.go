package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

// OffsetsTopic is the name of the topic in which Kafka keeps the offsets that
// groups commit. Ours are in the catalogue, but clients and tools expect the
// topic once a group was used, so it is there: one partition, whose log is empty
// for ever and in memory. Nothing of it is in the catalogue, in a directory or in
// a chain of entries, so that nodes that meet do not bring one each.
//
// A topic of that name that somebody created before this existed hides it.
const OffsetsTopic = "__consumer_offsets"

// ErrInternal (17): an internal topic can only be read.
var ErrInternal = lattice.E(lattice.Invalid, errors.New("internal topic: committed offsets are not kept in it, and it can only be read"))

// internal is the store's internal topic.
type internal struct {
	*topic
	used atomic.Bool // a group was used, now or in the past
}

// OffsetsTopicID is the internal topic's id: the same on every node of a store,
// and after every start, since groups can commit offsets for it. Not to be changed.
func OffsetsTopicID(id lattice.StoreID) lattice.TopicID {
	h := sha256.Sum256(append([]byte("lattice/internal-topic/v1\x00"+OffsetsTopic+"\x00"), id[:]...))
	return lattice.TopicID(h[:len(lattice.TopicID{})])
}

// openInternal opens the internal topic's log.
func (s *Store) openInternal() error {
	rec := TopicRecord{
		ID: OffsetsTopicID(s.info.ID), Name: OffsetsTopic, Partitions: 1, Created: s.info.Created.UnixMilli(),
		Config: map[string]string{"cleanup.policy": "compact"},
	}
	cfg, err := parseConfig(s.cfg.TopicDefaults, rec.Config)
	if err != nil {
		return err
	}
	fs := disk.NewMem()
	if err := fs.MkdirAll("log", 0o700); err != nil {
		return err
	}
	o := s.partitionOptions(rec, s.info.Node, 0)
	o.FS, o.Dir, o.ReadOnly = fs, "log", true
	p, err := partition.Open(o, cfg)
	if err != nil {
		return fmt.Errorf("topic %s: %w", rec.Name, err)
	}
	s.offsets.topic = &topic{rec: rec, from: origin{leader: s.info.Node}, name: rec.Name, parts: []*partition.Partition{p}, internal: true}
	return nil
}

// UseGroups says that a client looks for a group's coordinator, which is when
// Kafka makes the internal topic.
func (s *Store) UseGroups() {
	if !s.offsets.used.Swap(true) {
		s.topicsChanged()
	}
}

// InternalTopics returns the internal topics that clients are to see beside
// Topics. By name and by id they are found in any case.
func (s *Store) InternalTopics() []Topic {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if t, ok := s.listedInternal(); ok {
		return []Topic{t.public()}
	}
	return nil
}

// listedInternal returns the internal topic if it is to be listed. s.mu is held.
func (s *Store) listedInternal() (*topic, bool) {
	_, hidden := s.byName[OffsetsTopic]
	return s.offsets.topic, s.offsets.used.Load() && !hidden
}

// named returns the topic that has a name. s.mu is held.
func (s *Store) named(name string) (*topic, bool) {
	t, ok := s.byName[name]
	if !ok && name == OffsetsTopic {
		return s.offsets.topic, true
	}
	return t, ok
}

// identified returns the topic that has an id. s.mu is held.
func (s *Store) identified(id lattice.TopicID) (*topic, bool) {
	t, ok := s.byID[id]
	if !ok && id == s.offsets.rec.ID {
		return s.offsets.topic, true
	}
	return t, ok
}

// unchangeable says why a topic that is not in byID cannot be changed.
func (s *Store) unchangeable(id lattice.TopicID) error {
	if id == s.offsets.rec.ID {
		return fmt.Errorf("%s: %w", OffsetsTopic, ErrInternal)
	}
	return ErrNoTopic
}
