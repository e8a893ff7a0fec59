package store

import (
	"errors"
	"fmt"
	"strconv"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/lattice-log/lattice/storage/disk"
)

// ErrClosed means that the store was closed.
var ErrClosed = lattice.E(lattice.Unavailable, errors.New("store is closed"))

func (s *Store) topicDir(id lattice.TopicID) string {
	return s.cfg.FS.PathJoin(s.cfg.Dir, "topics", id.String())
}

func (s *Store) partitionDir(id lattice.TopicID, n int32) string {
	return s.cfg.FS.PathJoin(s.topicDir(id), strconv.Itoa(int(n)))
}

// makeDirs makes the directories of partitions [from, to) durable, with one sync
// for all of them.
func (s *Store) makeDirs(id lattice.TopicID, from, to int32) error {
	fs, missing := s.cfg.FS, false
	if err := disk.MkdirAll(fs, s.topicDir(id)); err != nil {
		return err
	}
	for n := from; n < to; n++ {
		dir := s.partitionDir(id, n)
		if _, err := fs.Stat(dir); err == nil {
			continue
		}
		missing = true
		if err := fs.MkdirAll(dir, 0o700); err != nil {
			return lattice.E(lattice.Storage, fmt.Errorf("make %s: %w", dir, err))
		}
	}
	if !missing {
		return nil
	}
	return disk.SyncDir(fs, s.topicDir(id))
}

// openTopics opens every partition of every topic: as a follower where another node leads.
func (s *Store) openTopics() error {
	var recs []TopicRecord
	if err := s.cat.Topics(func(t TopicRecord) error { recs = append(recs, t); return nil }); err != nil {
		return err
	}
	for i, rec := range recs {
		t, err := s.readyTopic(rec)
		if err != nil {
			s.cfg.Logger.Warn("passed over a topic", "store", s.info.ID.Short(), "err", err)
			continue
		}
		if err := s.addTopic(t); err != nil {
			return fmt.Errorf("%d of %d: %w", i+1, len(recs), err)
		}
	}
	s.nameTopics()
	return nil
}

// openPartitions opens partitions [from, to) of a topic that a node leads, or makes them.
func (s *Store) openPartitions(rec TopicRecord, leader lattice.NodeID, from, to int32) ([]*partition.Partition, error) {
	cfg, err := parseConfig(s.cfg.TopicDefaults, rec.Config)
	if err != nil {
		return nil, err
	}
	if err := s.makeDirs(rec.ID, from, to); err != nil {
		return nil, err
	}
	parts := make([]*partition.Partition, 0, to-from)
	for n := from; n < to; n++ {
		p, err := partition.Open(s.partitionOptions(rec, leader, n), cfg)
		if err != nil {
			return nil, errors.Join(err, closeAll(parts))
		}
		parts = append(parts, p)
	}
	return parts, nil
}

func (s *Store) partitionOptions(rec TopicRecord, leader lattice.NodeID, n int32) partition.Options {
	tp := lattice.TopicPartition{Topic: rec.ID, Partition: n}
	return partition.Options{
		ID: tp, Store: s.home, Alone: s.fork != nil, FS: s.cfg.FS, Dir: s.partitionDir(rec.ID, n),
		Key: s.cfg.Key, Incarnation: s.info.Incarnation, Clock: s.cfg.Clock, Stamp: s.stamps.next,
		Committer: s.committer, Handles: s.handles, Logger: s.cfg.Logger, Meta: s.cat.Meta(tp), Transactions: logsOf{s},
		Limits:  record.Limits{MaxDecompressed: s.cfg.MaxDecompressed},
		Genesis: s.genesis.Bytes(), Creation: rec.Creation, Leader: leader, Named: func() { s.news.led(tp) },
		Asks: s.fork == nil, Admitted: func(id lattice.Hash) bool { return s.admitted(tp, id) },
	}
}

func closeAll(parts []*partition.Partition) error {
	var errs error
	for _, p := range parts {
		errs = errors.Join(errs, p.Close())
	}
	return errs
}

func (s *Store) closeTopics() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var errs error
	for _, t := range s.byID {
		errs = errors.Join(errs, closeAll(t.parts))
	}
	if s.offsets.topic != nil {
		errs = errors.Join(errs, closeAll(s.offsets.parts))
	}
	return errs
}

// removeDropped finishes deletions that a crash interrupted.
func (s *Store) removeDropped() error {
	var ids []lattice.TopicID
	if err := s.cat.Dropped(func(id lattice.TopicID) error { ids = append(ids, id); return nil }); err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.removeFiles(id); err != nil {
			return err
		}
	}
	return nil
}

// removeFiles deletes a dropped topic's files and then what the catalogue knows
// of it, so that a crash leaves at least the mark to go on from.
func (s *Store) removeFiles(id lattice.TopicID) error {
	if err := s.cfg.FS.RemoveAll(s.topicDir(id)); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("remove the files of topic %s: %w", id, err))
	}
	// Durable before the mark goes, or a power cut brings back files that nobody knows.
	if err := disk.SyncDir(s.cfg.FS, s.cfg.FS.PathDir(s.topicDir(id))); err != nil && !disk.IsNotExist(err) {
		return lattice.E(lattice.Storage, err)
	}
	return s.cat.Forget(id)
}

// topicsOf is group.Topics over a store.
type topicsOf struct{ s *Store }

var _ group.Topics = topicsOf{}

func (t *topic) info() group.TopicInfo {
	return group.TopicInfo{ID: t.rec.ID, Name: t.name, Partitions: t.rec.Partitions}
}

func (v topicsOf) TopicByName(name string) (group.TopicInfo, bool) {
	v.s.mu.RLock()
	defer v.s.mu.RUnlock()
	t, ok := v.s.named(name)
	if !ok {
		return group.TopicInfo{}, false
	}
	return t.info(), true
}

func (v topicsOf) TopicByID(id lattice.TopicID) (group.TopicInfo, bool) {
	v.s.mu.RLock()
	defer v.s.mu.RUnlock()
	t, ok := v.s.identified(id)
	if !ok {
		return group.TopicInfo{}, false
	}
	return t.info(), true
}

func (v topicsOf) AllTopics() []group.TopicInfo {
	v.s.mu.RLock()
	defer v.s.mu.RUnlock()
	out := make([]group.TopicInfo, 0, len(v.s.byID))
	for _, t := range v.s.byID {
		out = append(out, t.info())
	}
	if t, ok := v.s.listedInternal(); ok { // as in Kafka: who wants all topics by a pattern gets this one, too
		out = append(out, t.info())
	}
	return out
}

// leading returns a partition that this node leads: what a follower lacks is not lost.
func (s *Store) leading(tp lattice.TopicPartition) (*partition.Partition, error) {
	p, err := s.Partition(tp.Topic, tp.Partition)
	if err == nil && !p.Leads() {
		return nil, ErrNotLeader
	}
	return p, err
}

func (v topicsOf) Committed(tp lattice.TopicPartition) (int64, int32, bool) {
	p, err := v.s.leading(tp)
	if err != nil {
		return 0, 0, false
	}
	b := p.Bounds()
	return b.Committed, b.Term, true
}

// logsOf is txn.Logs over a store, and tells its partitions of transactions. Nobody
// appends before the store is open, when there is a coordinator to ask.
type logsOf struct{ s *Store }

var (
	_ txn.Logs               = logsOf{}
	_ partition.Transactions = logsOf{}
)

func (v logsOf) End(tp lattice.TopicPartition, m record.Marker, done func(error)) {
	p, err := v.s.Partition(tp.Topic, tp.Partition)
	if err != nil {
		done(err)
		return
	}
	p.End(m, done)
}

func (v logsOf) Ongoing(tp lattice.TopicPartition, producer int64, epoch int16) error {
	return v.s.txns.Ongoing(tp, producer, epoch)
}

func (v logsOf) Holds(tp lattice.TopicPartition, producer int64) bool {
	return v.s.txns.Holds(tp, producer)
}

func (v topicsOf) TermEnd(tp lattice.TopicPartition, term int32) (int64, bool) {
	p, err := v.s.Partition(tp.Topic, tp.Partition)
	if err != nil || !p.Leads() && term >= p.Bounds().Term {
		return 0, false // what a follower lacks of its term is not lost
	}
	found, end, err := p.TermEnd(term)
	return end, err == nil && found >= 0
}
