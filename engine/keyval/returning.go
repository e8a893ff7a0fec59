package keyval

import (
	"errors"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// A node that has lost its disk and kept its key must not write before what it wrote once
// is here again: an entry that follows nothing, of an author that began before, has no
// effect on any node. What it once wrote comes from the others. That some of it is
// here is enough: a first entry may follow any that its author wrote.
//
// Whether there is something to come cannot be seen from nothing. It follows from:
//
//   - The invitation by which the node joined (Options.Claim). The entry that admitted it
//     names as parents all that the inviter had folded, so that what the inviter had of
//     this node enters before. An admission of earlier times does not do.
//   - Entries that are here and wait for some of this node.
//
// If it comes to light all the same, when entries were written that follow nothing,
// nothing more is written in this start: the next one follows what is here then.

var (
	// ErrReturning: this node wrote in the store before, and that is not here yet, or it
	// cannot be known yet whether it did. Kind Unavailable.
	ErrReturning = lattice.E(lattice.Unavailable, errors.New("what this node wrote in the store before, or that it wrote nothing, is not known here yet: it comes with the first sync"))
	// ErrBegunAnew: what this start of the node has written has no effect. Kind Diverged.
	ErrBegunAnew = lattice.E(lattice.Diverged, errors.New("the node had written in the store before, and has begun anew without that: what it wrote since its start has no effect anywhere; restart it"))
)

// mayBegin says why nothing can be written because of how this start begins: nil,
// ErrReturning or ErrBegunAnew. db.mu is held.
func (db *DB) mayBegin() error {
	if db.nextSeq > 0 && db.machine.Tip(db.own).Seq > 0 {
		if !db.machine.Valid(sigchain.Place{Author: db.own.Author, Incarnation: db.own.Incarnation, Seq: db.nextSeq + 1}) {
			return ErrBegunAnew
		}
		return nil
	}
	if db.findBefore(); !db.before.IsZero() {
		return nil
	}
	if db.machine.Awaited(db.own.Author) {
		return ErrReturning
	}
	if db.o.Claim.IsZero() {
		return nil
	}
	for e := range db.machine.Roster().Entries {
		for _, c := range e.Claims {
			if c.ID == db.o.Claim && c.Author == db.own.Author {
				return nil
			}
		}
	}
	return ErrReturning
}
