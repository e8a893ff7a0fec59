package keyval

import (
	"context"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// Enter writes an entry that holds these operations alone, and returns it when it is
// durable at the store's level. It is for operations whose entry's id is a name, such
// as the creation of a topic, and for those that need more rights than clients' writes,
// which must not be void together with them; operations on state are written by
// Update. Kind Invalid for those, Storage when nothing can be written now.
func (db *DB) Enter(ctx context.Context, ops ...sigchain.Op) (sigchain.Signed, error) {
	return db.enterAs(ctx, roster.Writer, ops...)
}

// enterAs is Enter for operations that count if their author has a role.
func (db *DB) enterAs(ctx context.Context, needs roster.Role, ops ...sigchain.Op) (sigchain.Signed, error) {
	for _, op := range ops {
		if state.IsOp(op.Kind) {
			return sigchain.Signed{}, lattice.E(lattice.Invalid, fmt.Errorf("keyval: an operation on state is written by Update"))
		}
	}
	g, err := db.enqueueAlone(needs, ops)
	if err != nil {
		return sigchain.Signed{}, err
	}
	if err := (Ticket{g}).Wait(ctx); err != nil {
		return sigchain.Signed{}, err
	}
	return g.entry, nil
}

// enqueueAlone makes a group of operations, and closes it.
func (db *DB) enqueueAlone(needs roster.Role, ops []sigchain.Op) (*group, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for {
		if err := db.admit(); err != nil {
			return nil, err
		}
		if len(db.queue) < maxQueue-1 {
			break
		}
		db.kick()
		db.room.Wait()
	}
	if db.building != nil && len(db.building.ops) > 0 { // it becomes an entry of its own
		db.queue = append(db.queue, db.building)
		db.building = nil
	}
	if err := db.openGroup(needs); err != nil {
		return nil, err
	}
	g := db.building
	for _, op := range ops {
		g.ops, g.bytes = append(g.ops, op), g.bytes+opOverhead+len(op.Body)
	}
	g.foreign = true
	db.queue = append(db.queue, g)
	db.building = nil
	db.kick()
	return g, nil
}

// Settle commits, on the caller's goroutine, what Update has taken. It is for who
// writes before Run; with Run it must not be called.
func (db *DB) Settle() {
	for g := db.take(true); g != nil; g = db.take(true) {
		db.commit(g)
	}
	db.tellFollowers()
}

// Sync makes durable what has been decided, whatever the level. At level Fsync it
// is so already, and nothing is done.
func (db *DB) Sync() error {
	if db.o.Durability == signedlog.Fsync {
		return nil
	}
	return db.logs.flush()
}
