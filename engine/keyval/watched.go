package keyval

import (
	"bytes"
	"context"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
)

// ChangeNow returns what a watcher would be told of a key now, decided. Order and
// Entry are of its latest head, and zero when there is no such key.
func (db *DB) ChangeNow(ctx context.Context, m string, key []byte) (Change, error) {
	return db.changeOf(ctx, m, event{key: string(key)})
}

// eachStep is how many keys Each finds at a time, eachBytes what their names take.
const (
	eachStep  = 1000
	eachBytes = 1 << 20
)

// Each yields the keys of a map that begin with prefix, ascending, as ChangeNow tells
// of them; yield returns an error to stop. Each key is read when its turn comes:
// with a watch that began before, nothing that changes meanwhile is missed.
func (db *DB) Each(ctx context.Context, m string, prefix []byte, yield func(Change) error) error {
	for from, more := prefix, true; more; {
		var keys [][]byte
		size := 0
		more = false
		_, err := db.View(func(tx *Tx) error {
			return tx.Keys(m, from, func(key []byte, _ structs.Key) bool {
				if !bytes.HasPrefix(key, prefix) {
					return false
				}
				if more = len(keys) == eachStep || size > eachBytes; more {
					from = bytes.Clone(key)
					return false
				}
				keys = append(keys, bytes.Clone(key))
				size += len(key)
				return true
			})
		})
		if err != nil {
			return err
		}
		for _, key := range keys {
			c, err := db.ChangeNow(ctx, m, key)
			if err == nil && !c.Deleted { // else its end is told by a watch
				err = yield(c)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// changeOf reads a key as it is now, decided.
func (db *DB) changeOf(ctx context.Context, m string, e event) (Change, error) {
	for {
		c := Change{Map: m, Key: []byte(e.key), Order: e.order, Entry: e.entry}
		tk, err := db.View(func(tx *Tx) error { return tx.fill(&c) })
		if err != nil {
			return c, err
		}
		if err := tk.Wait(ctx); err != nil {
			if ctx.Err() != nil {
				return c, err
			}
			continue // what it saw was dropped
		}
		if d := c.Order.Dot; d != e.order.Dot {
			if c.Entry, err = db.EntryID(d.Writer, d.Seq); err != nil && lattice.KindOf(err) != lattice.NotFound && lattice.KindOf(err) != lattice.OutOfRange {
				return c, fmt.Errorf("the entry of %s: %w", d, err)
			}
		}
		return c, nil
	}
}

// fill reads c's key.
func (tx *Tx) fill(c *Change) error {
	k, err := tx.Key(c.Map, c.Key)
	if err != nil {
		return err
	}
	gone, err := k.Expiry.Expired(tx.now)
	if err != nil {
		return err
	}
	var best state.Order
	for kind := state.Register; kind < state.Expiry; kind++ {
		if k.Counts[kind] == 0 {
			continue
		}
		err := tx.Scan(c.Map, c.Key, kind, nil, false, func(_ []byte, r state.Row) bool {
			r, _ = r.End(gone)
			if len(r) > 0 && r.Last().Order().Compare(best) > 0 {
				best, c.Kind = r.Last().Order(), kind
			}
			return !single(k.Counts) || len(r) == 0
		})
		if err != nil {
			return err
		}
	}
	if c.Deleted = c.Kind == 0; c.Kind != state.Register {
		if c.Order == (state.Order{}) {
			c.Order = best
		}
		return nil
	}
	row, err := tx.Row(state.Address{Map: c.Map, Key: c.Key, Kind: state.Register})
	if err != nil {
		return err
	}
	row, _ = row.End(gone)
	all := row.Resolve()
	c.Value, c.Conflicted, c.Order = all[0].Value, len(all) > 1, all[0].Order
	return nil
}

// single reports whether a key has rows of one kind, expiry aside.
func single(counts [state.Kinds]int64) bool {
	n := 0
	for k := state.Register; k < state.Expiry; k++ {
		if counts[k] > 0 {
			n++
		}
	}
	return n == 1
}
