package keyval

import (
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// Status is what people are shown of a store's state.
type Status struct {
	Durability signedlog.Durability // what an acknowledged write survives

	Writers int    // author logs
	Entries uint64 // in them, pruned ones as well
	// Entries that are here and not in the state: they wait for others, or are held
	// by the clock or for a newer program.
	Waiting, Held int
	Refused       uint64 // entries of others that were not taken, since the start
	// Void are entries that are kept and have no effect: by authors without the right to
	// them, beyond a cut or a fork. Since the start, or since all was folded again.
	Void uint64
	// What was pruned since the start.
	PrunedEntries, PrunedBytes uint64
	// Equivocations is the number of authors that signed two entries for one place.
	Equivocations int
	Failed        string   // why nothing can be written; empty: it can
	Damaged       []string // logs that need repair, with the reason
	Dismissed     string   // that this node was removed, and by whom; empty: it was not, as far as is known
}

// Tip is how far a writer's log is.
type Tip struct {
	Log string // its name
	sigchain.Link
}

// Tips returns how far the logs are that hold anything, ascending by writer.
func (db *DB) Tips() []Tip {
	var out []Tip
	for _, l := range db.logs.all() {
		if tip, _ := l.Tip(); !tip.IsZero() {
			out = append(out, Tip{authorlog.Name(l.Writer()), tip})
		}
	}
	return out
}

// Status returns a snapshot.
func (db *DB) Status() Status {
	db.mu.RLock()
	defer db.mu.RUnlock()
	s := Status{
		Durability: db.o.Durability, Refused: db.refused.Load(), Void: db.void.Load(),
		PrunedEntries: db.freedEntries.Load(), PrunedBytes: db.freedBytes.Load(),
	}
	if err := db.writable(); err != nil {
		s.Failed = err.Error()
	}
	if err := db.gone(); err != nil {
		s.Dismissed = err.Error()
	}
	waits, held := db.machine.Count()
	s.Held = held
	forked := map[[32]byte]bool{}
	for _, l := range db.logs.all() {
		s.Writers++
		_, last := l.Bounds()
		s.Entries += last
		w := l.Writer()
		if db.machine.ForkOf(w.Author).Seq > 0 {
			forked[w.Author] = true
		} else if at := max(db.machine.Tip(w).Seq, db.offered[w]); w != db.own && l.Durable() > at {
			s.Waiting += int(l.Durable() - at) // in the log, until memory has room
		}
		if why := l.Failed(); why != "" {
			s.Damaged = append(s.Damaged, authorlog.Name(w)+": "+why)
		}
	}
	s.Waiting += waits
	s.Equivocations = len(forked)
	return s
}

// Role returns what this node may do in the store, as far as is folded here.
func (db *DB) Role() roster.Role {
	db.mu.Lock() // the roster remembers what it concludes
	defer db.mu.Unlock()
	return db.machine.Roster().Member(db.own.Author)
}
