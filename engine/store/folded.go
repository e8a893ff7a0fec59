package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	// (termsMap, who leads what: terms.go)
	//
	// offsetsMap has each group's committed offsets: group.Key -> group.Value.
	offsetsMap = "$offsets"
)

const (
	partitionsField = "partitions"
	configField     = "config:"
)

// folded is the catalogue of a store whose topics, configurations and committed
// offsets are state, folded from author logs. What belongs to this node alone
// stays in local records: grants, producer snapshots, transactions, offsets that
// wait for one, numbers and bounds that must not be given twice.
type folded struct {
	*local // whose Topics, Dropped, Load, Apply and Close are hidden by those here
	db     *keyval.DB
	fork   bool // committed offsets are local records: they are of a fork's own logs
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
	t, err := f.db.UpdateQuietly(do) // whoever calls knows it
	if err != nil {
		return err
	}
	if err := t.Wait(context.Background()); err != nil {
		return err
	}
	return f.db.Sync()
}

// Topics yields every topic. What is malformed, or what a change left that had not
// seen the topic's deletion, is passed over: any member may have written it.
func (f *folded) Topics(yield func(TopicRecord) error) error {
	var failed error
	t, err := f.db.View(func(tx *keyval.Tx) error {
		var keys [][]byte
		err := structs.In(tx, topicsMap).Keys(nil, func(key []byte, _ structs.Type) bool {
			keys = append(keys, slices.Clone(key))
			return true
		})
		for _, key := range keys {
			if err != nil || failed != nil {
				break
			}
			var rec TopicRecord
			var ok bool
			if rec, ok, err = readTopic(tx, key); ok {
				failed = yield(rec)
			}
		}
		return errors.Join(err, failed)
	})
	if err != nil {
		return err
	}
	return t.Wait(context.Background())
}

// Topic returns one topic.
func (f *folded) Topic(id lattice.TopicID) (rec TopicRecord, ok bool, err error) {
	t, err := f.db.View(func(tx *keyval.Tx) error {
		rec, ok, err = readTopic(tx, id[:])
		return err
	})
	if err != nil {
		return rec, ok, err
	}
	return rec, ok, t.Wait(context.Background())
}

// readTopic reads a topic's hash; false: it is none.
func readTopic(tx *keyval.Tx, key []byte) (TopicRecord, bool, error) {
	t := TopicRecord{Config: map[string]string{}}
	if len(key) != len(t.ID) {
		return t, false, nil
	}
	copy(t.ID[:], key)
	var bad error
	err := structs.In(tx, topicsMap).HScan(key, nil, func(field, value []byte) bool {
		bad = errors.Join(bad, t.setField(string(field), slices.Clone(value)))
		return true
	})
	if errors.Is(err, structs.ErrWrongType) {
		return t, false, nil
	}
	if err != nil {
		return t, false, fmt.Errorf("catalogue: topic %x: %w", key, err)
	}
	row, err := tx.Row(state.Address{Map: topicsMap, Key: key, Kind: state.Field, Sub: []byte(partitionsField)})
	if err != nil {
		return t, false, fmt.Errorf("catalogue: topic %x: %w", key, err)
	}
	t.Partitions = max(t.Partitions, mostPartitions(row))
	return t, bad == nil && len(t.Creation) > 0, nil
}

// mostPartitions returns the greatest of the numbers of partitions that were set
// apart from each other: a topic never loses one.
func mostPartitions(r state.Row) int32 {
	most := int32(0)
	for _, h := range r {
		if n, err := strconv.ParseInt(string(h.Payload.Bytes), 10, 32); err == nil {
			most = max(most, int32(n))
		}
	}
	return most
}

// setField takes over one field of a topic's hash. What a later version may have
// added is passed over.
func (t *TopicRecord) setField(name string, value []byte) error {
	switch name {
	case "name":
		t.Name = string(value)
	case "creation":
		t.Creation = value
	case partitionsField:
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
		"name": t.Name, partitionsField: strconv.FormatInt(int64(t.Partitions), 10),
		"created": strconv.FormatInt(t.Created, 10), "creation": string(t.Creation),
	}
	for k, v := range t.Config {
		f[configField+k] = v
	}
	return f
}

// PutTopic writes a new topic.
func (f *folded) PutTopic(t TopicRecord) error {
	err := f.update(func(tx *keyval.Tx) error { return writeTopic(structs.In(tx, topicsMap), TopicRecord{ID: t.ID}, t) })
	if err != nil {
		return fmt.Errorf("save topic %s: %w", t.Name, err)
	}
	return nil
}

// ChangeTopic writes what is different between two records of a topic, and leaves
// the rest as others may have changed it. Wraps ErrNoTopic if somebody deleted it.
func (f *folded) ChangeTopic(old, t TopicRecord) error {
	err := f.update(func(tx *keyval.Tx) error {
		m := structs.In(tx, topicsMap)
		if _, there, err := m.HGet(t.ID[:], []byte("creation")); err != nil || !there {
			return errors.Join(err, ErrNoTopic)
		}
		return writeTopic(m, old, t)
	})
	if err != nil {
		return fmt.Errorf("save topic %s: %w", t.Name, err)
	}
	return nil
}

func writeTopic(m *structs.Map, old, t TopicRecord) error {
	was, want := map[string]string{}, t.fields()
	if len(old.Creation) > 0 {
		was = old.fields()
	}
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if v, ok := was[field]; ok && v == want[field] {
			continue
		}
		if _, err := m.HSet(t.ID[:], []byte(field), []byte(want[field])); err != nil {
			return err
		}
	}
	var gone [][]byte
	for _, field := range slices.Sorted(maps.Keys(was)) {
		if _, ok := want[field]; !ok {
			gone = append(gone, []byte(field))
		}
	}
	_, err := m.HDel(t.ID[:], gone...)
	return err
}

// DropTopic removes a topic. Its files are marked first: a crash before the topic
// is gone leaves a mark that Dropped takes back.
func (f *folded) DropTopic(id lattice.TopicID) error {
	if err := f.local.MarkDropped(id); err != nil {
		return err
	}
	err := f.update(func(tx *keyval.Tx) error {
		_, err := structs.In(tx, topicsMap).Delete(id[:])
		return errors.Join(err, forgetTerms(tx, id))
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

// Load yields every committed offset. What is malformed is passed over.
func (f *folded) Load(yield func(k group.Key, v group.Value, own bool) error) error {
	if f.fork {
		return f.local.Load(yield)
	}
	var failed error
	t, err := f.db.View(func(tx *keyval.Tx) error {
		var keys [][]byte
		err := structs.In(tx, offsetsMap).Keys(nil, func(key []byte, _ structs.Type) bool {
			keys = append(keys, slices.Clone(key))
			return true
		})
		for _, key := range keys {
			if err != nil || failed != nil {
				break
			}
			k, kerr := group.ParseKey(key)
			if kerr != nil {
				continue
			}
			var v group.Value
			var own, ok bool
			if v, own, ok, err = readOffset(tx, key); ok {
				failed = yield(k, v, own)
			}
		}
		return errors.Join(err, failed)
	})
	if err != nil {
		return err
	}
	return t.Wait(context.Background())
}

// Read returns one committed offset.
func (f *folded) Read(k group.Key) (v group.Value, own, ok bool, err error) {
	if f.fork {
		v, ok, err = f.local.read(k)
		return v, true, ok, err
	}
	t, err := f.db.View(func(tx *keyval.Tx) error {
		v, own, ok, err = readOffset(tx, k.AppendTo(nil))
		return err
	})
	if err != nil {
		return v, own, ok, err
	}
	return v, own, ok, t.Wait(context.Background())
}

// readOffset joins what nodes committed that had not seen each other's. own says
// that this node committed the value.
func readOffset(tx *keyval.Tx, key []byte) (v group.Value, own, ok bool, err error) {
	row, err := tx.Row(state.Address{Map: offsetsMap, Key: key, Kind: state.Register})
	for _, h := range row {
		x, perr := group.ParseValue(slices.Clone(h.Payload.Bytes))
		if perr != nil || ok && group.Join(v, x) == v {
			continue
		}
		v, own, ok = x, h.Dot.Writer.Author == tx.Writer().Author, true
	}
	if err != nil {
		err = fmt.Errorf("catalogue: offset %x: %w", key, err)
	}
	return v, own, ok, err
}

// Apply writes committed offsets into state, and offsets that wait for a
// transaction into local records. The committed come first: a crash in between
// leaves offsets waiting whose transaction has ended, and is ended again, with
// the same outcome, by the next start.
func (f *folded) Apply(changes []group.Change) error {
	if f.fork {
		return f.local.Apply(changes)
	}
	var committed, pending []group.Change
	for _, c := range changes {
		if c.Pending {
			pending = append(pending, c)
		} else {
			committed = append(committed, c)
		}
	}
	if len(committed) > 0 {
		err := f.update(func(tx *keyval.Tx) error { return writeOffsets(tx, committed) })
		if err != nil {
			return fmt.Errorf("save offsets: %w", err)
		}
	}
	if len(pending) == 0 {
		return nil
	}
	return f.local.Apply(pending)
}

// writeOffsets writes changes. What another node committed meanwhile, and whoever
// made the change had not seen, is joined: it must be neither lost nor go back.
func writeOffsets(tx *keyval.Tx, changes []group.Change) error {
	m := structs.In(tx, offsetsMap)
	for _, c := range changes {
		key := c.Key.AppendTo(nil)
		if c.Value == nil {
			if _, err := m.Delete(key); err != nil {
				return err
			}
			continue
		}
		v := *c.Value
		there, _, ok, err := readOffset(tx, key)
		if err != nil {
			return err
		}
		if ok {
			v = group.Join(there, v)
		}
		if err := m.Set(key, v.AppendTo(nil), false); err != nil {
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
			FS: s.cfg.FS, Dir: dir, Store: s.home, Writer: w, Key: s.cfg.Key, Clock: s.cfg.Clock, Stamp: s.stamps.next,
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
	err := f.local.Load(func(k group.Key, v group.Value, _ bool) error {
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
		step(func(tx *keyval.Tx) error { return writeTopic(structs.In(tx, topicsMap), TopicRecord{ID: t.ID}, t) })
	}
	for part := range slices.Chunk(offsets, 1000) {
		step(func(tx *keyval.Tx) error { return writeOffsets(tx, part) })
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
