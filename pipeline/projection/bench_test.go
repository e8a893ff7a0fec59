package projection

import (
	"fmt"
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/realpostgres"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

// BenchmarkApply applies events in transactions of 256, as a projector that is behind does,
// beside a plain loop that runs the statements that one event needs, in transactions of as
// many events: read the guard and the row, write the row, the guard and the outbox. One
// iteration is one event of one projection.
func BenchmarkApply(b *testing.B) {
	for _, name := range []string{"sqlite", "postgres"} {
		b.Run(name, func(b *testing.B) {
			url := ""
			if name == "sqlite" {
				url = sqldbtest.SQLite(b)
			} else {
				url = realpostgres.Start(b, "-c", "fsync=on").Database(b)
			}
			app := load(b, "../../examples/concertapp")
			db, err := sqldb.Open(b.Context(), url, sqldb.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			s, err := Open(b.Context(), db, Options{App: app})
			if err != nil {
				b.Fatal(err)
			}
			for _, artists := range []int{10, 100_000} {
				b.Run(fmt.Sprintf("projector/artists=%d", artists), func(b *testing.B) { benchApply(b, s, artists) })
				b.Run(fmt.Sprintf("loop/artists=%d", artists), func(b *testing.B) { benchLoop(b, s, artists) })
			}
		})
	}
}

const benchBatch = 256

// benchEvents makes one event of each of n users that no other round has.
func benchEvents(app *spec.App, round, artists, n int) []Event {
	events := make([]Event, n)
	for i := range events {
		user := fmt.Sprintf("user-%d-%d", round, i)
		events[i] = followed(app, user, fmt.Sprint("artist-", (round*benchBatch+i*7919)%artists), 1)
		events[i].Follows = true
	}
	return events
}

func benchApply(b *testing.B, s *Store, artists int) {
	p := s.app.Projection("artist_followers")
	round := int(head(b, s)) // unlike all before
	for done := 0; done < b.N; done += benchBatch {
		round++
		if _, err := s.Apply(b.Context(), p, benchEvents(s.app, round, artists, min(benchBatch, b.N-done))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func head(b *testing.B, s *Store) int64 {
	var n int64
	if err := s.db.Read(b.Context(), func(tx sqldb.Tx) error {
		_, err := sqldb.One(b.Context(), tx, []any{&n}, "SELECT position FROM projection_head")
		return err
	}); err != nil {
		b.Fatal(err)
	}
	return n
}

func benchLoop(b *testing.B, s *Store, artists int) {
	ctx, table := b.Context(), s.db.Dialect().Table(s.app.TenantSchema(""), "artist_followers")
	lock := forUpdate(s.db.Dialect())
	round := int(head(b, s))
	for done := 0; done < b.N; done += benchBatch {
		round++
		events := benchEvents(s.app, round, artists, min(benchBatch, b.N-done))
		if err := s.db.Write(ctx, func(tx sqldb.Tx) error {
			for i := range events {
				if err := plainly(b, tx, &events[i], table, lock); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// plainly does what one event needs, statement by statement.
func plainly(b *testing.B, tx sqldb.Tx, e *Event, table, lock string) error {
	ctx := b.Context()
	guard := []any{"loop", e.TenantSchema, e.ForkID, "user_stream", e.EntityID}
	var applied, followers, position int64
	if _, err := sqldb.One(ctx, tx, []any{&applied}, "SELECT applied FROM projection_guards WHERE "+guardKey+lock, guard...); err != nil || applied >= e.SequenceNumber {
		return err
	}
	artist := string(e.Payload[len(`{"artist_id":"`) : len(e.Payload)-len(`","user_id":""}`)-len(e.EntityID)])
	found, err := sqldb.One(ctx, tx, []any{&followers}, "SELECT followers FROM "+table+" WHERE artist_id = $1"+lock, artist)
	if err != nil {
		return err
	}
	if _, err := sqldb.One(ctx, tx, []any{&position}, "UPDATE projection_head SET position = position + 1 WHERE id = 1 RETURNING position"); err != nil {
		return err
	}
	statement := "INSERT INTO " + table + ` (followers, followed_at, last_follower, "cursor:artist_followers", artist_id) VALUES ($1, $2, $3, $4, $5)`
	if found {
		statement = "UPDATE " + table + ` SET followers = $1, followed_at = $2, last_follower = $3, "cursor:artist_followers" = $4 WHERE artist_id = $5`
	}
	if _, err := tx.Exec(ctx, statement, followers+1, e.TS, e.EntityID, position, artist); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO projection_guards (projection, tenant_schema, fork_id, stream, entity_id, applied, parked) VALUES ($1, $2, $3, $4, $5, $6, 0)
		ON CONFLICT (projection, tenant_schema, fork_id, stream, entity_id) DO UPDATE SET applied = excluded.applied`, append(guard, e.SequenceNumber)...); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"projection":"artist_followers","tenantSchema":%q,"forkId":%q,"stream":"user_stream","entityId":%q,"eventType":%q,"key":{"artist_id":%q},"operations":[{"op":"replace","path":"/followers","value":%d},{"op":"replace","path":"/followed_at","value":%d},{"op":"replace","path":"/last_follower","value":%q}],"prevCursor":0,"cursor":%d,"epoch":1,"ts":%d}`,
		e.TenantSchema, e.ForkID, e.EntityID, e.EventType, artist, followers+1, e.TS, e.EntityID, position, e.TS)
	_, err = tx.Exec(ctx, "INSERT INTO projection_outbox (position, kind, key, message) VALUES ($1, $2, $3, $4)", position, KindPatch, []byte(e.EntityID), patch)
	return err
}
