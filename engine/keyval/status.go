package keyval

import (
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/engine/authorlog"
)

// Status is what people are shown of a store's state.
type Status struct {
	Writers int // author logs
	// Entries that are here and not in the state: they wait for others, or are held
	// by the clock or for a newer program.
	Waiting, Held int
	Refused       uint64 // entries that Receive did not take, since the start
	// Equivocations is the number of authors that signed two entries for one place.
	Equivocations int
	Failed        string   // why nothing can be written; empty: it can
	Damaged       []string // logs that need repair, with the reason
}

// Status returns a snapshot.
func (db *DB) Status() Status {
	db.mu.RLock()
	defer db.mu.RUnlock()
	s := Status{Refused: db.refused.Load()}
	if err := db.writable(); err != nil {
		s.Failed = err.Error()
	}
	inMemory := 0
	for w := range db.machine.Waiting {
		inMemory++
		if w.Status == fold.Held {
			s.Held++
		}
	}
	forked := map[[32]byte]bool{}
	for _, l := range db.logs.all() {
		s.Writers++
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
	s.Waiting += inMemory - s.Held
	s.Equivocations = len(forked)
	return s
}
