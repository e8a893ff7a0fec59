package keyval

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/storage/kv"
)

// Name is a key with its map.
type Name struct {
	Map string
	Key []byte
}

// Reaper ends keys whose time has come. What expired is not seen whether it was
// reaped or not, so a crash leaves only work for the next time. For one goroutine.
//
// It finds keys by the index of the fold database, so one whose expiry was
// written within the last round or two is found the next time.
type Reaper struct {
	db   *DB
	from []byte // where in the index the next pass goes on; nil: at the beginning
}

// Reaper returns a reaper of this state's keys.
func (db *DB) Reaper() *Reaper { return &Reaper{db: db} }

const (
	// reapAfter is how late a key must be to be reaped by another node than the one
	// that wrote its expiry: that one does it, if it is still there.
	reapAfter = time.Hour
	// reapLook is how many entries of the index are looked at for each key that may be reaped.
	reapLook = 16
)

// Pass looks for up to n keys that are due and this node's to end, and returns
// those that are gone, once that is durable; more says that others may be due.
func (r *Reaper) Pass(ctx context.Context, n int) (gone []Name, more bool, err error) {
	now := r.db.nowMs()
	found, more, err := r.look(now, n)
	if err != nil || len(found) == 0 {
		return nil, more, err
	}
	t, err := r.db.UpdateQuietly(func(tx *Tx) error { // who asked for the pass tells of it
		for _, name := range found {
			if mine, err := r.mine(tx, name, now); err != nil || !mine {
				if err != nil {
					return err
				}
				continue
			}
			all, err := structs.In(tx, name.Map).Reap(name.Key)
			if err != nil {
				return fmt.Errorf("reap key %.64q: %w", name.Key, err)
			}
			if all {
				gone = append(gone, name)
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	if err := t.Wait(ctx); err != nil {
		return nil, false, err
	}
	return gone, more, nil
}

// mine reports whether a key has an expiry that this node acts upon.
func (r *Reaper) mine(tx *Tx, name Name, now int64) (bool, error) {
	k, err := tx.Key(name.Map, name.Key)
	if err != nil || len(k.Expiry) == 0 {
		return false, err
	}
	last := k.Expiry.Last()
	if last.Dot.Writer.Author == r.db.own.Author {
		return true, nil
	}
	x, err := state.ParseExpiring(last.Payload)
	return err == nil && now-x.At >= reapAfter.Milliseconds(), err
}

// look returns up to n keys that are due by the index, from where the last pass
// ended; more says that the index goes on.
func (r *Reaper) look(now int64, n int) (found []Name, more bool, err error) {
	from, looked := r.from, 0
	r.from = nil
	_, err = r.db.View(func(tx *Tx) error {
		return r.db.kv.IterateFrom([]byte{tagExpiry}, from, func(k, _ []byte) error {
			name, at, err := r.db.indexed(k)
			switch {
			case err != nil:
				return err
			case at > now:
				return kv.ErrStop
			case len(found) == n || looked == n*reapLook:
				r.from, more = append([]byte(nil), k...), true
				return kv.ErrStop
			}
			looked++
			mine, err := r.mine(tx, name, now)
			if mine {
				found = append(found, name)
			}
			return err
		})
	})
	return found, more, err
}

// indexed reads a key of the index of expiries.
func (db *DB) indexed(k []byte) (name Name, at int64, err error) {
	if len(k) < 10 {
		return name, 0, corrupt("a key of the index of expiries has %d bytes", len(k))
	}
	id, size := binary.Uvarint(k[9:])
	m := db.t.mapNumber(id)
	if size <= 0 || m == nil {
		return name, 0, corrupt("the index of expiries names map %d, which is not known", id)
	}
	return Name{m.name, append([]byte(nil), k[9+size:]...)}, int64(binary.BigEndian.Uint64(k[1:]) ^ 1<<63), nil
}

// mapNumber returns the map of a number, nil when there is none.
func (t *table) mapNumber(id uint64) *mapInfo {
	t.mapMu.RLock()
	defer t.mapMu.RUnlock()
	if id >= uint64(len(t.byID)) {
		return nil
	}
	return t.byID[id]
}
