package keyval

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
)

// mayWrite says why nothing that this node writes would count: nil, or an error of Kind
// Denied or Diverged. What it writes needs a role. db.mu is held.
func (db *DB) mayWrite(needs roster.Role) error {
	if f := db.machine.ForkOf(db.own.Author); f.Seq > 0 {
		return lattice.E(lattice.Diverged, fmt.Errorf("this node's key signed two entries for one place (%s), so nothing that it writes counts any more: make a new identity and have it admitted", f))
	}
	if err := db.gone(); err != nil {
		return err
	}
	r := db.machine.Roster().Member(db.own.Author)
	if r == roster.None {
		return lattice.E(lattice.Denied, errors.New("this node is no member of the store, as far as is known here, and needs to be a writer: an admin can grant it, and what was granted arrives with the first sync"))
	}
	if r < needs {
		return lattice.E(lattice.Denied, fmt.Errorf("this node is a %s of the store, and needs to be a writer: an admin can grant it", r))
	}
	return db.mayBegin()
}

// gone says that this node was removed, as far as is folded here: nil, or an error of
// Kind Denied. It never waits.
func (db *DB) gone() error { return db.people.Load().gone }

// ErrRemovedBy is why a node that was removed writes nothing. Kind Denied.
func ErrRemovedBy(who lattice.AuthorID) error {
	return lattice.E(lattice.Denied, fmt.Errorf("this node was removed from the store by %s: what it writes counts nowhere; to take part again, make a new identity and have it invited", who.Short()))
}
