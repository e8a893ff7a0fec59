package redis

import (
	"context"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
)

// Over returns the state of a store as the server wants it.
func Over(db *keyval.DB) State { return engine{db} }

// engine is keyval's DB as a State that knows its past.
type engine struct{ *keyval.DB }

// past is what a State may know beside its present: where writes come from. The
// commands that tell of it are refused by one that does not.
type past interface {
	// EntryID returns the hash of an entry. Kind NotFound: not here (any more).
	EntryID(w state.Writer, seq uint64) (lattice.Hash, error)
	// History yields the operations on a key, the newest first.
	History(ctx context.Context, m string, key []byte, yield func(keyval.Event) bool) error
	// ProveFile returns the proof file of a key.
	ProveFile(ctx context.Context, m string, key []byte) ([]byte, error)
	// Floor returns up to where entries were pruned.
	Floor() (keyval.Floor, bool)
	// Watch streams changes; Each yields the keys as they are. Tokens say where a
	// watch goes on.
	Watch(m string, prefix []byte, from state.Frontier) (*keyval.Watcher, error)
	Each(ctx context.Context, m string, prefix []byte, yield func(keyval.Change) error) error
	ParseToken(b []byte) (state.Frontier, error)
}

// hurries is a State whose caller may decide its updates by itself.
type hurries interface {
	// UpdateLater is Update. What it wrote is decided when Decide returned for its
	// ticket, or for a later one.
	UpdateLater(fn func(structs.Rows) error) (Ticket, error)
	Decide(Ticket)
}

// listens is a State that others write to as well, and that tells of it.
type listens interface {
	Listen(keyval.Listener)
	Unlisten(keyval.Listener)
}

// View implements State.
func (e engine) View(f func(structs.Rows) error) (Ticket, error) {
	t, err := e.DB.View(func(tx *keyval.Tx) error { return f(tx) })
	return ticketOf(t), err
}

// Update implements State. The server tells its clients itself of what it writes.
func (e engine) Update(f func(structs.Rows) error) (Ticket, error) {
	t, err := e.DB.UpdateQuietly(func(tx *keyval.Tx) error { return f(tx) })
	return ticketOf(t), err
}

// UpdateLater implements hurries.
func (e engine) UpdateLater(f func(structs.Rows) error) (Ticket, error) {
	t, err := e.DB.UpdateLater(func(tx *keyval.Tx) error { return f(tx) })
	return ticketOf(t), err
}

// Decide implements hurries.
func (e engine) Decide(t Ticket) { e.DB.Decide(t.(keyval.Ticket)) }

// ticketOf returns nil for a ticket that is decided.
func ticketOf(t keyval.Ticket) Ticket {
	if t == (keyval.Ticket{}) {
		return nil
	}
	return t
}
