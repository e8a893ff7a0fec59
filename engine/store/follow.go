package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/group"
)

// What others write of the catalogue takes effect here as it is folded: the state
// tells of each key that changed, with its lock held, and follow then reads it and
// brings the topics and groups in memory to it. What this node writes itself it
// knows already.
//
// A crash loses nothing by it: Open reads all there is.

// followAgain is when it is tried again after a failure.
const followAgain = time.Second

// news is what changed in the catalogue and was not followed yet. It is a
// keyval.Listener, so it must not block.
type news struct {
	wake chan struct{} // capacity 1: there is something

	mu      sync.Mutex
	all     bool // anything may have changed
	topics  map[lattice.TopicID]bool
	offsets map[string]bool
	terms   map[lattice.TopicPartition]bool // who leads may have changed
	homes   map[string]bool                 // groups whose home may have changed
	// deleted are topics that somebody deleted. A topic that is gone and is not here
	// does not count any more, which is no reason to remove its records.
	deleted map[lattice.TopicID]bool
}

func newNews() *news {
	n := &news{wake: make(chan struct{}, 1)}
	n.clear()
	return n
}

func (n *news) clear() {
	n.all, n.topics, n.offsets, n.deleted = false, map[lattice.TopicID]bool{}, map[string]bool{}, map[lattice.TopicID]bool{}
	n.terms, n.homes = map[lattice.TopicPartition]bool{}, map[string]bool{}
}

// Changed implements keyval.Listener.
func (n *news) Changed(ops []state.Op) {
	any := false
	n.mu.Lock()
	for _, op := range ops {
		if op == nil {
			continue
		}
		switch m, key := op.Target(); {
		case m == topicsMap && len(key) == len(lattice.TopicID{}):
			id := lattice.TopicID(key)
			n.topics[id], any = true, true
			if end, ok := op.(*state.End); ok && end.Scope == state.ScopeKey {
				n.deleted[id] = true
			}
		case m == offsetsMap:
			n.offsets[string(key)], any = true, true
		case m == groupsMap:
			n.homes[string(key)], any = true, true
		case m == termsMap:
			if tp, ok := parseTermsKey(key); ok {
				n.terms[tp], any = true, true
			}
		case m == fold.UncleanMap:
			if tp, ok := parseUncleanKey(key); ok {
				n.terms[tp], any = true, true
			}
		}
	}
	n.mu.Unlock()
	if any {
		n.signal()
	}
}

// Remade implements keyval.Listener.
func (n *news) Remade() {
	n.mu.Lock()
	n.all = true
	n.mu.Unlock()
	n.signal()
}

func (n *news) signal() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns what there is, and forgets it.
func (n *news) take() *news {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := &news{all: n.all, topics: n.topics, offsets: n.offsets, deleted: n.deleted, terms: n.terms, homes: n.homes}
	n.clear()
	return got
}

// back takes what was not followed.
func (n *news) back(got *news) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = n.all || got.all
	maps.Copy(n.topics, got.topics)
	maps.Copy(n.offsets, got.offsets)
	maps.Copy(n.deleted, got.deleted)
	maps.Copy(n.terms, got.terms)
	maps.Copy(n.homes, got.homes)
}

// follow brings what is in memory to what others wrote, until ctx ends. What fails
// is logged and tried again.
func (s *Store) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.news.wake:
		}
		got, err := s.followNews()
		if err == nil || ctx.Err() != nil {
			continue
		}
		s.cfg.Logger.Error("take over what others wrote about topics and groups", "store", s.info.ID.Short(), "err", err)
		s.news.back(got)
		s.cfg.Clock.AfterFunc(followAgain, s.news.signal)
	}
}

// followNews follows what there is. When it returns without an error, all of which was
// told before the call has taken effect.
func (s *Store) followNews() (*news, error) {
	s.followMu.Lock()
	defer s.followMu.Unlock()
	got := s.news.take()
	err := s.followTopics(got)
	if err == nil {
		err = s.followOffsets(got)
	}
	if err == nil {
		err = s.followHomes(got) // behind the offsets, which the new home has then
	}
	if err == nil {
		err = s.followTerms(got)
	}
	return got, err
}

func (s *Store) followOffsets(got *news) error {
	if got.all {
		return s.groups.Reload()
	}
	if s.fork != nil {
		return nil // what the state has of offsets is of other logs
	}
	keys := make([]group.Key, 0, len(got.offsets))
	for _, name := range slices.Sorted(maps.Keys(got.offsets)) {
		k, err := group.ParseKey([]byte(name))
		if err != nil {
			s.cfg.Logger.Debug("passed over an offset", "store", s.info.ID.Short(), "err", err)
			continue
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil
	}
	s.UseGroups()
	return s.groups.Refresh(keys)
}

// followTopics brings the topics in memory to what the state has of them.
func (s *Store) followTopics(got *news) error {
	if !got.all && len(got.topics) == 0 {
		return nil
	}
	s.changeMu.Lock()
	defer s.changeMu.Unlock()
	ids := got.topics
	there := map[lattice.TopicID]TopicRecord{}
	if got.all {
		if err := s.cat.Topics(func(t TopicRecord) error { there[t.ID] = t; return nil }); err != nil {
			return err
		}
		ids = map[lattice.TopicID]bool{}
		for id := range there {
			ids[id] = true
		}
		s.mu.RLock()
		for id := range s.byID {
			ids[id] = true
		}
		s.mu.RUnlock()
	} else {
		for id := range ids {
			switch t, ok, err := s.cat.Topic(id); {
			case err != nil:
				return err
			case ok:
				there[id] = t
			}
		}
	}
	var errs error
	changed := false
	for id := range ids {
		rec, ok := there[id]
		did, err := s.followTopic(id, rec, ok, got.deleted[id])
		changed, errs = changed || did, errors.Join(errs, err)
		for n := range there[id].Partitions { // who leads may have been told before
			if did {
				got.terms[lattice.TopicPartition{Topic: id, Partition: n}] = true
			}
		}
	}
	if changed {
		s.nameTopics()
		s.topicsChanged()
	}
	return errs
}

// followTopic brings one topic in memory to its record; ok: there is one. It reports
// whether a topic has come, gone or grown. s.changeMu is held.
func (s *Store) followTopic(id lattice.TopicID, rec TopicRecord, ok, deleted bool) (changed bool, err error) {
	s.mu.RLock()
	old := s.byID[id]
	s.mu.RUnlock()
	if ok {
		t, err := s.readyTopic(rec)
		switch {
		case err != nil:
			s.cfg.Logger.Warn("passed over a topic", "store", s.info.ID.Short(), "err", err)
			ok = false
		case old == nil:
			return true, s.addTopic(t)
		default:
			return s.changeTopic(old, t)
		}
	}
	if old == nil {
		return false, nil
	}
	return true, s.dropTopic(old, deleted)
}

// addTopic opens a topic that is not in memory.
func (s *Store) addTopic(t *topic) error {
	var err error
	if t.parts, err = s.openPartitions(t.rec, t.from.leader, 0, t.rec.Partitions); err != nil {
		return fmt.Errorf("topic %s: %w", t.rec.Name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.Join(ErrClosed, closeAll(t.parts))
	}
	s.byID[t.rec.ID] = t
	s.count += t.rec.Partitions
	return nil
}

// changeTopic takes over what differs in a topic's record.
func (s *Store) changeTopic(old, t *topic) (grown bool, err error) {
	more := t.rec.Partitions - old.rec.Partitions
	if more <= 0 { // a topic never loses partitions
		t.rec.Partitions, more = old.rec.Partitions, 0
	}
	if more == 0 && maps.Equal(old.rec.Config, t.rec.Config) {
		return false, nil
	}
	t.name, t.parts = old.name, old.parts
	if more > 0 {
		added, err := s.openPartitions(t.rec, t.from.leader, old.rec.Partitions, t.rec.Partitions)
		if err != nil {
			return false, fmt.Errorf("add partitions to %s: %w", t.rec.Name, err)
		}
		t.parts = append(slices.Clip(slices.Clone(old.parts)), added...)
	}
	cfg, err := parseConfig(s.cfg.TopicDefaults, t.rec.Config)
	if err != nil {
		return false, fmt.Errorf("topic %s: %w", t.rec.Name, err)
	}
	s.replace(t, more)
	for _, p := range t.parts {
		p.SetConfig(cfg)
	}
	return more > 0, nil
}

// dropTopic lets go of a topic that is not in the state any more. Its files are
// removed if somebody deleted it, and stay if its creation does not count any more
// (its author was removed, or forked), for whoever wants to know what was in it.
//
// A crash before the mark leaves files that nothing names, after it a mark that the
// next Open finishes.
func (s *Store) dropTopic(t *topic, deleted bool) error {
	id := t.rec.ID
	if deleted {
		if err := s.cat.MarkDropped(id); err != nil {
			return err
		}
	}
	err := s.letGo(t)
	if deleted {
		return errors.Join(err, s.removeFiles(id))
	}
	s.cfg.Logger.Warn("a topic does not count any more: what created it was taken back; its records are kept on the disk",
		"store", s.info.ID.Short(), "topic", t.rec.Name, "dir", s.topicDir(id))
	return err
}

// readyTopic makes of a record what can be kept in memory: within the node's limits,
// and with the configs that are known here. Kind Corrupt: it is no topic.
func (s *Store) readyTopic(rec TopicRecord) (*topic, error) {
	from, err := originOf(rec, s.home)
	if err != nil {
		return nil, err
	}
	rec.Name, rec.Created = from.name, int64(from.time>>16)
	s.mu.RLock()
	room := s.cfg.MaxPartitions - s.count
	if old := s.byID[rec.ID]; old != nil {
		room += old.rec.Partitions
	}
	s.mu.RUnlock()
	if rec.Partitions = max(rec.Partitions, from.partitions); rec.Partitions > room {
		s.cfg.Logger.Warn("a topic has more partitions than this node takes", "topic", rec.Name, "partitions", rec.Partitions, "of", room)
		rec.Partitions = max(room, 0)
		rec.Partitions = max(rec.Partitions, s.madePartitions(rec.ID))
	}
	if _, err := parseConfig(s.cfg.TopicDefaults, rec.Config); err != nil {
		rec.Config = s.knownConfig(rec)
	}
	return &topic{rec: rec, from: from, name: rec.Name}, nil
}

// madePartitions returns how many partitions of a topic have a directory.
func (s *Store) madePartitions(id lattice.TopicID) int32 {
	names, err := s.cfg.FS.List(s.topicDir(id))
	if err != nil {
		return 0
	}
	return int32(len(names))
}

// knownConfig returns a topic's configs without those that this node cannot have:
// a newer one may have set them.
func (s *Store) knownConfig(rec TopicRecord) map[string]string {
	known := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(rec.Config)) {
		known[k] = rec.Config[k]
		if _, err := parseConfig(s.cfg.TopicDefaults, known); err != nil {
			delete(known, k)
			s.cfg.Logger.Warn("passed over a config of a topic", "topic", rec.Name, "err", err)
		}
	}
	return known
}

// nameTopics gives every topic the name by which it is known.
func (s *Store) nameTopics() {
	s.mu.Lock()
	defer s.mu.Unlock()
	origins := make(map[lattice.TopicID]origin, len(s.byID))
	for id, t := range s.byID {
		origins[id] = t.from
	}
	clear(s.byName)
	for id, name := range namesOf(origins) {
		t := s.byID[id]
		if t.name != name {
			s.cfg.Logger.Warn("two topics were created with one name", slog.String("store", s.info.ID.Short()),
				slog.String("name", t.from.name), slog.String("id", id.String()), slog.String("known as", name))
			renamed := *t
			renamed.name = name
			t = &renamed
			s.byID[id] = t
		}
		s.byName[name] = t
	}
}
