package keyval

import (
	"bytes"
	"context"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
)

// Event is an operation on a key, as an entry holds it.
type Event struct {
	Op    state.Op
	Order state.Order
	Entry lattice.Hash
}

// EntryID returns the id of an entry: Kind NotFound when it is not here, because
// it is not written yet or was pruned.
func (db *DB) EntryID(w state.Writer, seq uint64) (lattice.Hash, error) {
	l := db.logs.get(w)
	if l != nil {
		if first, last := l.Bounds(); seq >= first && seq <= last {
			e, err := l.Read(seq)
			return e.ID, err
		}
	}
	return lattice.Hash{}, lattice.E(lattice.NotFound, fmt.Errorf("entry %d of %s is not here", seq, authorlog.Name(w)))
}

// historyStep is how many entries of a log are read at a time.
const historyStep = 256

// History yields the operations on a key, the newest first, until yield says stop
// or the logs end. It reads them backwards, from what is durable: it costs what
// they hold. Effects of entries that are void are yielded as well.
func (db *DB) History(ctx context.Context, m string, key []byte, yield func(Event) bool) error {
	var tails []*tail
	for _, l := range db.logs.all() {
		first, _ := l.Bounds()
		tails = append(tails, &tail{log: l, first: first, next: l.Durable(), m: m, key: key})
	}
	for {
		var newest *tail
		for _, t := range tails {
			if err := t.fill(ctx); err != nil {
				return err
			}
			if len(t.found) > 0 && (newest == nil || t.last().Order.Compare(newest.last().Order) > 0) {
				newest = t
			}
		}
		if newest == nil {
			return nil
		}
		e := newest.last()
		newest.found = newest.found[:len(newest.found)-1]
		if !yield(e) {
			return nil
		}
	}
}

// tail reads one log backwards.
type tail struct {
	log         *authorlog.Log
	first, next uint64 // what is left to read: from first to next
	m           string
	key         []byte
	found       []Event // ascending
}

func (t *tail) last() Event { return t.found[len(t.found)-1] }

// fill reads back to the next entry with something about the key.
func (t *tail) fill(ctx context.Context) error {
	for len(t.found) == 0 && t.next >= t.first {
		if err := ctx.Err(); err != nil {
			return err
		}
		from := t.first
		if t.next-t.first >= historyStep {
			from = t.next - historyStep + 1
		}
		err := t.log.Scan(from, t.next, func(s sigchain.Signed) error {
			t.add(s)
			return nil
		})
		if err != nil {
			return fmt.Errorf("history from the log of %s: %w", authorlog.Name(t.log.Writer()), err)
		}
		t.next = from - 1
	}
	return nil
}

// add notes the operations of an entry that are on the key.
func (t *tail) add(s sigchain.Signed) {
	w := t.log.Writer()
	for i, op := range s.Ops {
		if !state.IsOp(op.Kind) {
			continue
		}
		o, err := state.ParseOp(op, w)
		if err != nil {
			return // without effect, everywhere
		}
		if m, key := o.Target(); m == t.m && bytes.Equal(key, t.key) {
			t.found = append(t.found, Event{o, state.Order{Time: s.Time, Dot: state.Dot{Writer: w, Seq: s.Seq, Index: uint32(i)}}, s.ID})
		}
	}
}
