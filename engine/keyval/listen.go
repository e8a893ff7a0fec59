package keyval

import (
	"slices"

	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/state"
)

// Listener hears of what changes the state besides UpdateQuietly: updates of other
// front ends, and entries of other writers. It is called with the state locked, in
// the order in which that is decided: it must neither block nor call the DB.
type Listener interface {
	// Changed tells of operations of one writer's entry that have taken effect; some are nil.
	Changed(ops []state.Op)
	// Remade tells that any key may have changed: the state was made again.
	Remade()
}

// Listen adds a listener.
func (db *DB) Listen(l Listener) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.listeners = append(db.listeners, l)
}

// Unlisten takes a listener away: it is not called any more once this returns.
func (db *DB) Unlisten(l Listener) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.listeners = slices.DeleteFunc(db.listeners, func(x Listener) bool { return x == l })
}

// tell notes that listeners hear of the group's operations from one on.
func (g *group) tell(from int) {
	if n := len(g.told); n > 0 && g.told[n-1][1] == from {
		g.told[n-1][1] = len(g.ops)
		return
	}
	g.told = append(g.told, [2]int{from, len(g.ops)})
}

// tellOwn tells listeners of what they hear of an own group. db.mu is held.
func (db *DB) tellOwn(all []fold.Folded, g *group) {
	if len(g.told) == 0 {
		return
	}
	for _, f := range all {
		if f.Entry.ID != g.entry.ID {
			continue
		}
		for _, r := range g.told {
			for _, l := range db.listeners {
				l.Changed(f.Ops[r[0]:r[1]])
			}
		}
	}
}

// tell tells listeners of an entry that another wrote. db.mu is held, or nobody
// else is there yet.
func (db *DB) tell(f fold.Folded) {
	if db.replaying || f.Void != nil {
		return
	}
	for _, l := range db.listeners {
		l.Changed(f.Ops)
	}
}

// lag has every watcher go on from its frontier, and tells listeners: the state was
// made again, and what changed in it is not known one by one. db.mu is held.
func (db *DB) lag() { db.shake(false) }

// upset is lag for when what had been folded does not count as it did: a watcher's
// frontier says nothing any more.
func (db *DB) upset() { db.shake(true) }

func (db *DB) shake(upset bool) {
	for w := range db.watchers {
		w.mu.Lock()
		w.lagged = true
		w.upset = w.upset || upset
		w.mu.Unlock()
		w.wake()
	}
	for _, l := range db.listeners {
		l.Remade()
	}
}
