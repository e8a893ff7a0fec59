package fsck

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/forkpoint"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// storeCheck checks one store.
type storeCheck struct {
	*checker
	dir string
	cat string // path of the catalogue
	db  *kv.DB

	id    lattice.StoreID   // by the genesis entry
	fork  *forkpoint.Signed // nil: it is no fork
	owner lattice.AuthorID  // likewise
	chain sigchain.Chain    // of entries in the catalogue: the genesis, and those of older versions
	next  uint64            // number of the next entry
	moved bool              // topics and offsets are state
	state state.Space       // what the author logs say of those
	tips  map[state.Writer]sigchain.Link
	// pruned is what the base covers of each writer; key is the node's, if it is known.
	pruned map[state.Writer]uint64
	key    *lattice.AuthorID
	joined bool   // another node made the store
	bound  uint64 // of the hybrid clock
	last   uint64 // greatest timestamp seen that the bound must cover

	created map[lattice.TopicID]sigchain.CreateTopic // by the entries
	topics  map[lattice.TopicID]store.TopicRecord
	dropped map[lattice.TopicID]bool
	named   map[lattice.TopicPartition]bool // partitions that records speak of
	groups  map[lattice.TopicPartition]int  // committed offsets of a partition
}

// checkStore checks the store in dir. key is the node's, nil when unknown.
func (c *checker) checkStore(dir string, key *lattice.AuthorID) error {
	c.store = c.fs.PathBase(dir)
	defer func() { c.store = "" }()
	c.r.Stores++
	s := &storeCheck{
		checker: c, dir: dir, cat: c.fs.PathJoin(dir, "kv"), created: map[lattice.TopicID]sigchain.CreateTopic{},
		topics: map[lattice.TopicID]store.TopicRecord{}, dropped: map[lattice.TopicID]bool{},
		named: map[lattice.TopicPartition]bool{}, groups: map[lattice.TopicPartition]int{}, tips: map[state.Writer]sigchain.Link{},
		pruned: map[state.Writer]uint64{}, key: key,
	}
	for _, name := range c.list(dir) {
		if name != "kv" && name != "topics" && name != "authors" && name != "state" && name != "forks" && name != "snapshots" && name != "forkpoint" {
			c.note(c.fs.PathJoin(dir, name), "belongs to nothing", "")
		}
	}
	db, err := kv.OpenReadOnly(c.fs, s.cat, kv.Options{Logger: c.o.Logger})
	if err != nil {
		c.damage(s.cat, "catalogue unreadable", "%v; nothing of the store can be checked", err)
		return nil
	}
	s.db = db
	s.readCatalogue()
	s.readFork()
	s.checkSnapshots()
	s.checkOwner(key)
	if err = s.checkAuthors(); err == nil {
		s.readState()
		s.checkFold()
		err = s.checkTopics()
	}
	s.checkClock()
	if cerr := db.Close(); cerr != nil {
		c.damage(s.cat, "catalogue unreadable", "%v", cerr)
	}
	return err
}

// readCatalogue decodes every record and keeps what the rest is checked against.
func (s *storeCheck) readCatalogue() {
	err := s.db.Iterate(nil, func(k, v []byte) error {
		s.r.Catalogue++
		rec, err := store.DecodeRecord(k, v)
		if err != nil {
			s.damage(s.cat, "catalogue record damaged", "key %x: %v", k, err)
			return nil
		}
		s.record(rec)
		return nil
	})
	if err != nil {
		s.damage(s.cat, "catalogue unreadable", "%v", err)
	}
}

func (s *storeCheck) checkClock() {
	if s.last >= s.bound && s.last > 0 {
		s.damage(s.cat, "clock bound too low", "timestamps up to %d were issued, the bound is %d: they could be issued again", s.last, s.bound)
	}
}

func (s *storeCheck) record(rec any) {
	switch r := rec.(type) {
	case store.EntryRecord:
		s.entry(r)
	case store.TopicRecord:
		s.topics[r.ID] = r
	case store.DroppedRecord:
		s.dropped[r.ID] = true
	case store.MovedRecord:
		s.moved = true
	case store.JoinedRecord:
		s.joined = true
	case store.ClockRecord:
		s.bound = r.Bound
	case store.OffsetRecord:
		s.groups[r.Key.TopicPartition]++
	case store.GrantRecord:
		s.named[r.TopicPartition] = true
	case store.SnapshotRecord:
		s.named[r.TopicPartition] = true
	case store.CleanedRecord:
		s.named[r.TopicPartition] = true
	case store.CosignedRecord:
		s.named[r.TopicPartition] = true
	case store.PromisedRecord:
		s.named[r.TopicPartition] = true
	case store.EvidenceRecord:
		s.named[r.TopicPartition] = true
	case store.CommittedRecord:
		s.named[r.TopicPartition] = true
	case store.StatementRecord:
		s.named[r.TopicPartition] = true
	}
}

// entry checks the next of the node's entries.
func (s *storeCheck) entry(r store.EntryRecord) {
	e := r.Entry
	bad := func(err error) {
		s.damage(s.cat, "entry does not belong", "entry %d (%s): %v", r.Number, e.ID.Short(), err)
	}
	if r.Number != s.next {
		bad(fmt.Errorf("it should be number %d: entries are missing", s.next))
	}
	s.next = r.Number + 1
	next, err := store.Follow(s.chain, e)
	if err != nil {
		bad(err)
		return
	}
	if s.chain.Tip.IsZero() {
		id, _, err := sigchain.StoreID(e)
		if err != nil {
			bad(fmt.Errorf("the first entry is no genesis: %w", err))
			return
		}
		s.id, s.owner, s.chain = id, e.Author, next
		return
	}
	s.chain = next
	s.stamped(e.Time)
	id, ct, err := sigchain.TopicID(e)
	if err != nil {
		bad(err)
		return
	}
	s.created[id] = ct
}

// stamped notes a timestamp that this node issued.
func (s *storeCheck) stamped(t uint64) { s.last = max(s.last, t) }

// readFork reads what makes the directory a fork's.
func (s *storeCheck) readFork() {
	path := s.fs.PathJoin(s.dir, "forkpoint")
	b, err := disk.ReadFile(s.fs, path)
	if disk.IsNotExist(err) {
		return
	}
	f, perr := forkpoint.Parse(b)
	if err == nil {
		err = perr
	}
	if err == nil && f.Store != s.id {
		err = fmt.Errorf("it is of store %s, the genesis entry of %s", f.Store.Short(), s.id.Short())
	}
	if err != nil {
		s.damage(path, "fork point damaged", "%v; nothing else says what the directory is", err)
		return
	}
	s.fork = &f
}

func (s *storeCheck) checkOwner(key *lattice.AuthorID) {
	if s.chain.Tip.IsZero() {
		s.damage(s.cat, "no genesis entry", "nothing says which store this is")
		return
	}
	id, by := s.id, "genesis entry"
	if s.fork != nil {
		id, by = s.fork.ID, "fork point"
	}
	if name := s.fs.PathBase(s.dir); name != id.String() {
		s.damage(s.dir, "wrong store id", "the %s makes it %s", by, id)
	}
	if key != nil && *key != s.owner && !s.joined && len(s.pruned) == 0 { // a snapshot may be another's
		s.damage(s.fs.PathJoin(s.root, "identity.key"), "not the store's key", "the store was made by %s, this is %s", s.owner, *key)
	}
}

// node is who writes here: the node's key, or else the store's owner.
func (s *storeCheck) node() lattice.AuthorID {
	if s.key != nil {
		return *s.key
	}
	return s.owner
}

// checkTopics checks every topic's record and partitions, and what belongs to none.
func (s *storeCheck) checkTopics() error {
	ids := slices.SortedFunc(maps.Keys(s.topics), func(a, b lattice.TopicID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range ids {
		t := s.topics[id]
		s.r.Topics++
		s.checkTopic(t)
		leader, ok := t.Leader()
		if !ok {
			leader = s.node()
		}
		for n := range t.Partitions {
			if err := s.checkPartition(lattice.TopicPartition{Topic: id, Partition: n}, leader); err != nil {
				return err
			}
		}
	}
	s.checkStrays()
	return nil
}

// checkTopic compares a topic's record with the entry that created it.
func (s *storeCheck) checkTopic(t store.TopicRecord) {
	bad := func(format string, args ...any) {
		s.damage(s.cat, "topic record wrong", "topic %q (%s): %s", t.Name, t.ID, fmt.Sprintf(format, args...))
	}
	e, err := sigchain.Parse(t.Creation)
	if err == nil {
		err = e.Verify()
	}
	var id lattice.TopicID
	if err == nil {
		id, _, err = sigchain.TopicID(e)
	}
	if err != nil {
		bad("creating entry: %v", err)
		return
	}
	ct, known := s.created[t.ID]
	if err == nil && !known && s.below(e) {
		_, ct, err = sigchain.TopicID(e)
		known = err == nil
	}
	switch {
	case id != t.ID:
		bad("its entry creates %s", id)
	case !known:
		bad("its entry is not among the node's")
	case ct.Name != t.Name:
		bad("its entry names it %q", ct.Name)
	case t.Partitions < 0 || uint32(t.Partitions) < ct.Partitions:
		bad("%d partitions, it was created with %d", t.Partitions, ct.Partitions)
	case t.Created != int64(e.Time>>16):
		bad("created at %d ms, its entry says %d", t.Created, e.Time>>16)
	}
	if err := store.CheckTopicConfig(t.Config); err != nil {
		bad("%v", err)
	}
	if s.dropped[t.ID] {
		bad("it is marked as dropped")
	}
}

// exists reports whether a partition belongs to a topic that is there.
func (s *storeCheck) exists(tp lattice.TopicPartition) bool {
	t, ok := s.topics[tp.Topic]
	return ok && tp.Partition < t.Partitions
}

// internal is the partition that a store has without a record of it.
func (s *storeCheck) internal() lattice.TopicPartition {
	return lattice.TopicPartition{Topic: store.OffsetsTopicID(s.id)}
}

// checkStrays looks at records and directories of topics that are not there.
func (s *storeCheck) checkStrays() {
	for tp := range s.named {
		if !s.exists(tp) && !s.dropped[tp.Topic] {
			s.warn(s.cat, "record of no topic", "the catalogue speaks of partition %s, which does not exist", tp)
		}
	}
	offsets := 0
	for tp, n := range s.groups {
		if !s.exists(tp) && tp != s.internal() {
			offsets += n
		}
	}
	if offsets > 0 {
		s.note(s.cat, "offsets of no topic", "%d committed offsets of partitions that do not exist", offsets)
	}
	dir := s.fs.PathJoin(s.dir, "topics")
	for _, name := range s.list(dir) {
		path := s.fs.PathJoin(dir, name)
		id, err := lattice.ParseTopicID(name)
		_, live := s.topics[id]
		switch {
		case err != nil || name != id.String():
			s.note(path, "belongs to nothing", "")
		case live:
			s.strayPartitions(path, id)
		case s.dropped[id]:
			s.note(path, "deleted topic", "the next start removes its files")
		case s.hasBlocks(path):
			s.damage(path, "topic unknown", "there are batches, but the catalogue does not know the topic")
		default:
			s.note(path, "unfinished topic", "its creation was interrupted")
		}
	}
}

// strayPartitions notes what is beside a topic's partitions.
func (s *storeCheck) strayPartitions(dir string, id lattice.TopicID) {
	for _, name := range s.list(dir) {
		n, err := strconv.ParseInt(name, 10, 32)
		path := s.fs.PathJoin(dir, name)
		switch {
		case err != nil || strconv.FormatInt(n, 10) != name || n < 0:
			s.note(path, "belongs to nothing", "")
		case s.exists(lattice.TopicPartition{Topic: id, Partition: int32(n)}):
		case s.partitionHasBlocks(path):
			s.damage(path, "partition unknown", "there are batches, but the topic has fewer partitions")
		default:
			s.note(path, "unfinished partition", "adding it was interrupted")
		}
	}
}

func (s *storeCheck) hasBlocks(topic string) bool {
	return slices.ContainsFunc(s.list(topic), func(name string) bool {
		return s.partitionHasBlocks(s.fs.PathJoin(topic, name))
	})
}

func (s *storeCheck) partitionHasBlocks(dir string) bool {
	return slices.ContainsFunc(s.list(dir), func(name string) bool {
		_, ext, ok := parseName(name)
		return ok && ext == ".log"
	})
}
