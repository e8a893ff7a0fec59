package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// ErrBehind is the error of a read that wanted more than the projection has yet.
var ErrBehind = lattice.E(lattice.NotYet, errors.New("the projection has not come so far yet: ask again, or wait longer"))

// GuardOf returns how far a projection is with an entity.
func (s *Store) GuardOf(ctx context.Context, projection string, a ledger.Address) (Guard, error) {
	var g Guard
	err := s.db.Read(ctx, func(tx sqldb.Tx) error {
		g = Guard{}
		table := ""
		if p := s.app.Projection(projection); p != nil {
			table = p.Table
		}
		live, err := liveSet(ctx, tx, a.TenantSchema, table, "")
		if err != nil {
			return err
		}
		_, err = sqldb.One(ctx, tx, []any{&g.Applied, &g.Parked}, "SELECT applied, parked FROM projection_guards WHERE "+guardKey, guardArgs(live.key(projection), a)...)
		return err
	})
	if err != nil {
		return Guard{}, fmt.Errorf("read how far %s is with %s: %w", projection, a, err)
	}
	return g, nil
}

// Await waits until a projection has the events of an entity up to a sequence number: at
// least those, so that a row that is read next shows them. It returns ErrBehind when the
// context ends first, and lattice.Conflict when they wait behind a dead letter. Give the
// context a deadline.
//
// A projection does not take every event, and its guard tells those that it took. With a
// ledger, Await knows when there is nothing to wait for; without one the number must be that
// of an event that the projection takes.
func (s *Store) Await(ctx context.Context, projection string, a ledger.Address, sequence int64) error {
	p := s.app.Projection(projection)
	if p == nil {
		return lattice.E(lattice.NotFound, fmt.Errorf("the application has no projection %q", projection))
	}
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		g, err := s.GuardOf(ctx, projection, a)
		if err == nil && g.Applied < sequence && s.ledger != nil {
			sequence, err = s.lastTaken(ctx, p.Sources, a, g.Applied, sequence)
		}
		if err == nil && g.Applied >= sequence {
			return nil
		}
		if err == nil && g.Parked > 0 && g.Applied < sequence {
			return lattice.E(lattice.Conflict, fmt.Errorf("%s: events of %s behind sequence %d wait behind a dead letter: retry or discard that", projection, a, g.Applied))
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return fmt.Errorf("%s: sequence %d of %s: %w", projection, sequence, a, ErrBehind)
		}
	}
}

// lastTaken returns the greatest sequence number above after, up to most, of an event of
// the types; after if there is none.
func (s *Store) lastTaken(ctx context.Context, types []string, a ledger.Address, after, most int64) (int64, error) {
	last := after
	for at := after; at < most; {
		found, err := s.ledger.History(ctx, a, at, 500)
		if err != nil {
			return 0, err
		}
		if len(found) == 0 {
			return most, nil // the ledger has not heard of it: it is another's, or to come
		}
		for _, e := range found {
			if at = e.SequenceNumber; at <= most && slices.Contains(types, e.EventType) {
				last = at
			}
		}
	}
	return last, nil
}
