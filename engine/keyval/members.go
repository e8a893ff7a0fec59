package keyval

import (
	"cmp"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
)

// ReadRoster lets f read who may do what, as far as is folded. f must not keep the
// roster, nor call the DB.
func (db *DB) ReadRoster(f func(*roster.Roster)) {
	db.mu.Lock() // the roster remembers what it concludes
	defer db.mu.Unlock()
	f(db.machine.Roster())
}

// AuthorChain is how far one chain of an author is here.
type AuthorChain struct {
	Tip    sigchain.Link // the last entry that is here, durable
	Time   uint64        // of the last that has entered the fold
	Folded uint64        // sequence number of that
}

// AuthorChains returns an author's chains, ascending by incarnation: up to where its
// entries are here, whether they have entered or still wait.
func (db *DB) AuthorChains(author lattice.AuthorID) []AuthorChain {
	db.mu.RLock()
	defer db.mu.RUnlock()
	chains := map[uint64]AuthorChain{}
	for c := range db.machine.Chains {
		if c.Writer.Author == author {
			chains[c.Writer.Incarnation] = AuthorChain{Tip: c.Tip, Time: c.Time, Folded: c.Tip.Seq}
		}
	}
	for _, l := range db.logs.all() {
		w := l.Writer()
		if w.Author != author {
			continue
		}
		c := chains[w.Incarnation]
		if tip, _ := l.Tip(); tip.Seq > c.Tip.Seq && tip.Seq <= l.Durable() && db.machine.ForkOf(author).Seq == 0 {
			c.Tip = tip
		}
		if c.Tip.Seq > 0 {
			chains[w.Incarnation] = c
		}
	}
	out := make([]AuthorChain, 0, len(chains))
	for _, c := range chains {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b AuthorChain) int { return cmp.Compare(a.Tip.Incarnation, b.Tip.Incarnation) })
	return out
}

// Forked reports the place for which an author signed two entries first; zero: none is known.
func (db *DB) Forked(author lattice.AuthorID) sigchain.Place {
	db.mu.RLock()
	defer db.mu.RUnlock()
	return db.machine.ForkOf(author)
}
