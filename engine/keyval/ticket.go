package keyval

import "context"

// Ticket is a promise that what a transaction wrote, and what it read that was not
// decided, will be decided. The zero Ticket is decided. Tickets may be copied;
// one that was given later vouches for all that were given before.
type Ticket struct{ g *group }

// Wait waits until everything is durable at the store's level (nil), or has been
// dropped: then the error says why, and nothing of it may be shown. An error of
// ctx says nothing about the outcome.
func (t Ticket) Wait(ctx context.Context) error {
	if t.g == nil {
		return nil
	}
	select {
	case <-t.g.done:
		return t.g.err
	default:
	}
	select {
	case <-t.g.done:
		return t.g.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decided reports whether Wait would not block.
func (t Ticket) decided() bool {
	if t.g == nil {
		return true
	}
	select {
	case <-t.g.done:
		return true
	default:
		return false
	}
}

// Done is closed when Wait would not block; nil when it never would have.
func (t Ticket) Done() <-chan struct{} {
	if t.g == nil {
		return nil
	}
	return t.g.done
}

// ticket returns the ticket of a group by its number. db.mu is held, shared or not.
func (db *DB) ticket(id uint64) Ticket {
	if id <= db.decided {
		return Ticket{}
	}
	if g := db.building; g != nil && g.id <= id {
		return Ticket{g}
	}
	for i := len(db.queue) - 1; i >= 0; i-- {
		if db.queue[i].id <= id {
			return Ticket{db.queue[i]}
		}
	}
	return Ticket{db.writing}
}
