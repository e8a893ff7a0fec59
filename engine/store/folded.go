package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
)

// System maps: keys of the store itself, which its clients can read and not write.
const (
	// topicsMap has a hash for each topic, under its id: name, partitions, created
	// (ms since 1970), creation (the creating entry) and config:NAME for each
	// configuration that was set.
	topicsMap = "$topics"
	// offsetsMap has each group's committed offsets: group.Key -> group.Value.
	offsetsMap = "$offsets"
)

const configField = "config:"

// folded is the catalogue of a store whose topics, configurations and committed
// offsets are state, folded from author logs. What belongs to this node alone
// stays in local records: grants, producer snapshots, transactions, offsets that
// wait for one, numbers and bounds that must not be given twice.
type folded struct {
	*local // whose Topics, Dropped, Load, Apply and Close are hidden by those here
	db     *keyval.DB
}

var _ Catalogue = (*folded)(nil)

// Enter signs an entry that holds op alone.
func (f *folded) Enter(ctx context.Context, op sigchain.Op) (sigchain.Signed, error) {
	e, err := f.db.Enter(ctx, op)
	if err != nil {
		return e, err
	}
	return e, f.db.Sync()
}

// update runs a transaction, and returns when it is durable, at whatever level
// clients write keys: records of a topic are lost with the topic.
func (f *folded) update(do func(*keyval.Tx) error) error {
	t, err := f.db.Update(do)
	if err != nil {
		return err
	}
	if err := t.Wait(context.Background()); err != nil {
		return err
	}
	return f.db.Sync()
}

// Topics yields every topic.
func (f *folded) Topics(yield func(TopicRecord) error) error {
	var failed error
	t, err := f.db.View(func(tx *keyval.Tx) error {
		m := structs.In(tx, topicsMap)
		err := m.Keys(nil, func(key []byte, _ structs.Type) bool {
			var rec TopicRecord
			if rec, failed = readTopic(m, slices.Clone(key)); failed == nil {
				failed = yield(rec)
			}
			return failed == nil
		})
		return errors.Join(err, failed)
	})
	if err != nil {
		return err
	}
	return t.Wait(context.Background())
}

func readTopic(m *structs.Map, key []byte) (TopicRecord, error) {
	t := TopicRecord{Config: map[string]string{}}
	var failed error
	err := m.HScan(key, nil, func(field, value []byte) bool {
		failed = t.setField(string(field), slices.Clone(value))
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	if len(key) != len(t.ID) {
		err = errors.New("its key is no topic id")
	}
	if err != nil {
		return t, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: topic %x: %w", key, err))
	}
	copy(t.ID[:], key)
	return t, nil
}

// setField takes over one field of a topic's hash. What a later version may have
// added is passed over.
func (t *TopicRecord) setField(name string, value []byte) error {
	switch name {
	case "name":
		t.Name = string(value)
	case "creation":
		t.Creation = value
	case "partitions":
		n, err := strconv.ParseInt(string(value), 10, 32)
		t.Partitions = int32(n)
		return err
	case "created":
		n, err := strconv.ParseInt(string(value), 10, 64)
		t.Created = n
		return err
	default:
		if key, ok := strings.CutPrefix(name, configField); ok {
			t.Config[key] = string(value)
		}
	}
	return nil
}

func (t TopicRecord) fields() map[string]string {
	f := map[string]string{
		"name": t.Name, "partitions": strconv.FormatInt(int64(t.Partitions), 10),
		"created": strconv.FormatInt(t.Created, 10), "creation": string(t.Creation),
	}
	for k, v := range t.Config {
		f[configField+k] = v
	}
	return f
}

// PutTopic writes a topic: of its hash, what differs.
func (f *folded) PutTopic(t TopicRecord) error {
	err := f.update(func(tx *keyval.Tx) error { return writeTopic(structs.In(tx, topicsMap), t) })
	if err != nil {
		return fmt.Errorf("save topic %s: %w", t.Name, err)
	}
	return nil
}

func writeTopic(m *structs.Map, t TopicRecord) error {
	want := t.fields()
	var gone [][]byte
	err := m.HScan(t.ID[:], nil, func(field, value []byte) bool {
		switch w, ok := want[string(field)]; {
		case ok && w == string(value):
			delete(want, string(field))
		case !ok && strings.HasPrefix(string(field), configField):
			gone = append(gone, slices.Clone(field))
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, field := range sortedKeys(want) {
		if _, err := m.HSet(t.ID[:], []byte(field), []byte(want[field])); err != nil {
			return err
		}
	}
	_, err = m.HDel(t.ID[:], gone...)
	return err
}

func sortedKeys(m map[string]string) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// DropTopic removes a topic. Its files are marked first: a crash before the topic
// is gone leaves a mark that Dropped takes back.
func (f *folded) DropTopic(id lattice.TopicID) error {
	if err := f.local.markDropped(id); err != nil {
		return err
	}
	err := f.update(func(tx *keyval.Tx) error {
		_, err := structs.In(tx, topicsMap).Delete(id[:])
		return err
	})
	if err != nil {
		return fmt.Errorf("drop topic %s: %w", id, err)
	}
	return nil
}

// Dropped yields topics whose files may still be there, and takes back the marks
// of topics that are there after all.
func (f *folded) Dropped(yield func(lattice.TopicID) error) error {
	there := map[lattice.TopicID]bool{}
	if err := f.Topics(func(t TopicRecord) error { there[t.ID] = true; return nil }); err != nil {
		return err
	}
	return f.local.Dropped(func(id lattice.TopicID) error {
		if there[id] {
			return f.local.unmarkDropped(id)
		}
		return yield(id)
	})
}

// Load yields every committed offset.
func (f *folded) Load(yield func(group.Key, group.Value) error) error {
	var failed error
	t, err := f.db.View(func(tx *keyval.Tx) error {
		m := structs.In(tx, offsetsMap)
		err := m.Keys(nil, func(key []byte, _ structs.Type) bool {
			failed = loadOffset(m, slices.Clone(key), yield)
			return failed == nil
		})
		return errors.Join(err, failed)
	})
	if err != nil {
		return err
	}
	return t.Wait(context.Background())
}

func loadOffset(m *structs.Map, key []byte, yield func(group.Key, group.Value) error) error {
	k, err := group.ParseKey(key)
	if err != nil {
		return err
	}
	b, ok, err := m.Get(key)
	if err != nil || !ok {
		return fmt.Errorf("offset of group %q, %s: %w", k.Group, k.TopicPartition, err)
	}
	v, err := group.ParseValue(slices.Clone(b.Bytes))
	if err != nil {
		return fmt.Errorf("offset of group %q, %s: %w", k.Group, k.TopicPartition, err)
	}
	return yield(k, v)
}

// Apply writes committed offsets into state, and offsets that wait for a
// transaction into local records. The committed come first: a crash in between
// leaves offsets waiting whose transaction has ended, and is ended again, with
// the same outcome, by the next start.
func (f *folded) Apply(changes []group.Change) error {
	var committed, pending []group.Change
	for _, c := range changes {
		if c.Pending {
			pending = append(pending, c)
		} else {
			committed = append(committed, c)
		}
	}
	if len(committed) > 0 {
		err := f.update(func(tx *keyval.Tx) error { return writeOffsets(structs.In(tx, offsetsMap), committed) })
		if err != nil {
			return fmt.Errorf("save offsets: %w", err)
		}
	}
	if len(pending) == 0 {
		return nil
	}
	return f.local.Apply(pending)
}

func writeOffsets(m *structs.Map, changes []group.Change) error {
	for _, c := range changes {
		key := c.Key.AppendTo(nil)
		var err error
		if c.Value == nil {
			_, err = m.Delete(key)
		} else {
			err = m.Set(key, c.Value.AppendTo(nil), false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes both.
func (f *folded) Close() error { return errors.Join(f.db.Close(), f.local.Close()) }

// moveEntries puts the entries that a catalogue of an older version holds into
// author logs, where they stand from now on. Doing it again changes nothing: a
// log that a crash left short is filled up.
func (s *Store) moveEntries(l *local) error {
	dir := s.cfg.FS.PathJoin(s.cfg.Dir, "authors")
	runs := map[state.Writer][]sigchain.Signed{}
	err := l.Entries(func(e sigchain.Signed) error {
		w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
		runs[w] = append(runs[w], e)
		return nil
	})
	if err != nil {
		return err
	}
	for w, entries := range runs {
		log, err := authorlog.Open(authorlog.Options{
			FS: s.cfg.FS, Dir: dir, Store: s.info.ID, Writer: w, Key: s.cfg.Key, Clock: s.cfg.Clock, Stamp: s.stamps.next,
			Committer: s.committer, Handles: s.handles, Logger: s.cfg.Logger,
		}, authorlog.DefaultSettings())
		if err != nil {
			return err
		}
		tip, _ := log.Tip()
		if uint64(len(entries)) > tip.Seq {
			err = errors.Join(log.Append(entries[tip.Seq:]...), log.Flush())
		}
		if err := errors.Join(err, log.Close()); err != nil {
			return fmt.Errorf("move entries of incarnation %d: %w", w.Incarnation, err)
		}
	}
	return nil
}

// moveRecords makes state of the topics and offsets that a catalogue of an older
// version holds, and forgets them there when the state is durable. A crash in
// between does it again, to the same end.
func (f *folded) moveRecords() error {
	var topics []TopicRecord
	if err := f.local.Topics(func(t TopicRecord) error { topics = append(topics, t); return nil }); err != nil {
		return err
	}
	var offsets []group.Change
	err := f.local.Load(func(k group.Key, v group.Value) error {
		offsets = append(offsets, group.Change{Key: k, Value: &v})
		return nil
	})
	if err != nil {
		return err
	}
	var last keyval.Ticket
	step := func(do func(*keyval.Tx) error) {
		if err == nil {
			last, err = f.db.Update(do)
			f.db.Settle()
		}
	}
	for _, t := range topics {
		step(func(tx *keyval.Tx) error { return writeTopic(structs.In(tx, topicsMap), t) })
	}
	for part := range slices.Chunk(offsets, 1000) {
		step(func(tx *keyval.Tx) error { return writeOffsets(structs.In(tx, offsetsMap), part) })
	}
	if err == nil {
		err = last.Wait(context.Background())
	}
	if err != nil {
		return fmt.Errorf("make state of the catalogue: %w", err)
	}
	return f.local.forgetMoved()
}

// greatestIncarnation returns the greatest number of an incarnation of an author
// that has left entries.
func (s *Store) greatestIncarnation(author lattice.AuthorID) (uint64, error) {
	ws, err := authorlog.List(s.cfg.FS, s.cfg.FS.PathJoin(s.cfg.Dir, "authors"))
	most, berr := keyval.Incarnation(s.cfg.FS, s.cfg.Dir, author) // of those that were pruned
	if err = errors.Join(err, berr); err != nil {
		return 0, err
	}
	for _, w := range ws {
		if w.Author == author {
			most = max(most, w.Incarnation)
		}
	}
	return most, nil
}
