package projection

import (
	"context"
	"fmt"

	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// Kinds of what is in the outbox.
const (
	KindPatch      = "patch"
	KindDeadLetter = "dead letter"
)

// Boxed is a message that is to be published.
type Boxed struct {
	// Position is its stable id: a message that comes twice has the same.
	Position     int64
	Kind         string
	Key, Message []byte
}

// Relay hands up to limit messages of the outbox, in order, to publish, and takes them out
// once that returns nil. It returns how many there were, and false when another process is
// at it.
//
// A crash, or an error, between the two makes them come again. In PostgreSQL the row that
// says how far the relay has come is locked meanwhile, so that one process works at a
// time; a SQLite file is one process's, and nothing is locked while a broker is slow.
func (s *Store) Relay(ctx context.Context, limit int, publish func(context.Context, []Boxed) error) (n int, ours bool, err error) {
	if s.db.Dialect() == sqldb.SQLite {
		n, err = s.relayLite(ctx, limit, publish)
		return n, true, err
	}
	err = s.db.Write(ctx, func(tx sqldb.Tx) error {
		n, ours = 0, false
		if err := tx.Query(ctx, func(sqldb.Scan) error { ours = true; return nil },
			"SELECT relayed FROM projection_relay WHERE id = 1 FOR UPDATE SKIP LOCKED"); err != nil || !ours {
			return err
		}
		all, err := waiting(ctx, tx, limit)
		if err != nil || len(all) == 0 {
			return err
		}
		if err := publish(ctx, all); err != nil {
			return err
		}
		n = len(all)
		return takeOut(ctx, tx, all[n-1].Position)
	})
	if err != nil {
		return 0, ours, fmt.Errorf("relay the outbox: %w", err)
	}
	return n, ours, nil
}

func (s *Store) relayLite(ctx context.Context, limit int, publish func(context.Context, []Boxed) error) (int, error) {
	var all []Boxed
	err := s.db.Read(ctx, func(tx sqldb.Tx) (err error) {
		all, err = waiting(ctx, tx, limit)
		return err
	})
	if err == nil && len(all) > 0 {
		if err = publish(ctx, all); err == nil {
			err = s.db.Write(ctx, func(tx sqldb.Tx) error { return takeOut(ctx, tx, all[len(all)-1].Position) })
		}
	}
	if err != nil {
		return 0, fmt.Errorf("relay the outbox: %w", err)
	}
	return len(all), nil
}

func waiting(ctx context.Context, tx sqldb.Tx, limit int) ([]Boxed, error) {
	var all []Boxed
	err := tx.Query(ctx, func(scan sqldb.Scan) error {
		var m Boxed
		if err := scan(&m.Position, &m.Kind, &m.Key, &m.Message); err != nil {
			return err
		}
		all = append(all, m)
		return nil
	}, "SELECT position, kind, key, message FROM projection_outbox ORDER BY position LIMIT $1", int64(limit))
	return all, err
}

// takeOut removes what is published. Positions below the last that are not there yet do
// not exist: they are given in the order of commits.
func takeOut(ctx context.Context, tx sqldb.Tx, last int64) error {
	if _, err := tx.Exec(ctx, "DELETE FROM projection_outbox WHERE position <= $1", last); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "UPDATE projection_relay SET relayed = $1 WHERE id = 1", last)
	return err
}

// Waiting returns how many messages the outbox has.
func (s *Store) Waiting(ctx context.Context) (int64, error) {
	var n int64
	err := s.db.Read(ctx, func(tx sqldb.Tx) error {
		_, err := sqldb.One(ctx, tx, []any{&n}, "SELECT count(*) FROM projection_outbox")
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("count the outbox: %w", err)
	}
	return n, nil
}
