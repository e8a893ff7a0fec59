package ledger

import (
	"context"
	"fmt"

	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// Lease is the right to publish the ledger under a name, with how far that has
// come. It knows no clock: its owner raises Beat again and again, and who wants it
// takes it after seeing, by a clock of its own, that Beat stood still for long
// enough.
type Lease struct {
	Name  string
	Owner string // empty: given back
	Beat  int64
	// Position: every event up to it is published.
	Position int64
}

// Lease returns the lease of a name; one that was never taken has no owner.
func (l *Ledger) Lease(ctx context.Context, name string) (Lease, error) {
	s := Lease{Name: name}
	err := l.db.Read(ctx, func(tx sqldb.Tx) error {
		_, err := sqldb.One(ctx, tx, []any{&s.Owner, &s.Beat, &s.Position},
			"SELECT owner, beat, position FROM ledger_publishers WHERE name = $1", name)
		return err
	})
	if err != nil {
		return Lease{}, fmt.Errorf("read the cursor of publisher %s: %w", name, err)
	}
	return s, nil
}

// Take gives the lease to another owner if it still is as it was seen. It reports
// whether it did.
func (l *Ledger) Take(ctx context.Context, seen Lease, owner string) (Lease, bool, error) {
	next := Lease{seen.Name, owner, seen.Beat + 1, seen.Position}
	var n int64
	err := l.db.Write(ctx, func(tx sqldb.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO ledger_publishers (name, owner, beat, position) VALUES ($1, '', 0, 0)
			ON CONFLICT (name) DO NOTHING`, seen.Name); err != nil {
			return err
		}
		var err error
		n, err = tx.Exec(ctx, "UPDATE ledger_publishers SET owner = $1, beat = $2 WHERE name = $3 AND owner = $4 AND beat = $5 AND position = $6",
			owner, next.Beat, seen.Name, seen.Owner, seen.Beat, seen.Position)
		return err
	})
	if err != nil {
		return Lease{}, false, fmt.Errorf("take the lease of publisher %s: %w", seen.Name, err)
	}
	return next, n == 1, nil
}

// Renew shows that the owner lives and how far it has published. It reports
// whether the lease is still the owner's.
func (l *Ledger) Renew(ctx context.Context, held Lease, position int64) (Lease, bool, error) {
	return l.renew(ctx, held, held.Owner, position)
}

// Release gives the lease back, so that the next owner need not wait.
func (l *Ledger) Release(ctx context.Context, held Lease, position int64) error {
	_, _, err := l.renew(ctx, held, "", position)
	return err
}

func (l *Ledger) renew(ctx context.Context, held Lease, owner string, position int64) (Lease, bool, error) {
	next := Lease{held.Name, owner, held.Beat + 1, max(position, held.Position)}
	var n int64
	err := l.db.Write(ctx, func(tx sqldb.Tx) error {
		var err error
		// Beat is not compared: after an error nobody knows whether the last one counted.
		n, err = tx.Exec(ctx, "UPDATE ledger_publishers SET owner = $1, beat = beat + 1, position = $2 WHERE name = $3 AND owner = $4 AND position <= $2",
			owner, next.Position, held.Name, held.Owner)
		return err
	})
	if err != nil {
		return held, true, fmt.Errorf("renew the lease of publisher %s: %w", held.Name, err)
	}
	return next, n == 1, nil
}

// Rewind moves the cursor of a publisher back, so that it publishes again what
// follows. Whoever holds the lease notices and starts over.
func (l *Ledger) Rewind(ctx context.Context, name string, position int64) error {
	err := l.db.Write(ctx, func(tx sqldb.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE ledger_publishers SET owner = '', beat = beat + 1, position = $1 WHERE name = $2 AND position > $1", max(position, 0), name)
		return err
	})
	if err != nil {
		return fmt.Errorf("rewind publisher %s: %w", name, err)
	}
	return nil
}

// Skipped is an event that no broker would take.
type Skipped struct {
	Position int64
	Error    string
	At       int64 // milliseconds since 1970
}

// Skip remembers that an event was passed over in publishing.
func (l *Ledger) Skip(ctx context.Context, name string, s Skipped) error {
	err := l.db.Write(ctx, func(tx sqldb.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO ledger_unpublished (name, position, error, at) VALUES ($1, $2, $3, $4)
			ON CONFLICT (name, position) DO UPDATE SET error = excluded.error, at = excluded.at`, name, s.Position, s.Error, s.At)
		return err
	})
	if err != nil {
		return fmt.Errorf("remember that position %d was not published: %w", s.Position, err)
	}
	return nil
}

// Skips returns up to limit events that were passed over, behind a position.
func (l *Ledger) Skips(ctx context.Context, name string, after int64, limit int) ([]Skipped, error) {
	var all []Skipped
	err := l.db.Read(ctx, func(tx sqldb.Tx) error {
		all = nil
		return tx.Query(ctx, func(scan sqldb.Scan) error {
			var s Skipped
			if err := scan(&s.Position, &s.Error, &s.At); err != nil {
				return err
			}
			all = append(all, s)
			return nil
		}, "SELECT position, error, at FROM ledger_unpublished WHERE name = $1 AND position > $2 ORDER BY position LIMIT $3", name, after, rows(limit))
	})
	if err != nil {
		return nil, fmt.Errorf("list what was not published: %w", err)
	}
	return all, nil
}
