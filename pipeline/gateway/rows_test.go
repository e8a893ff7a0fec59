package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/gateway"
	"github.com/lattice-log/lattice/pipeline/gateway/flow"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
)

// A snapshot has the projection's rows, those alone, as patches write them.
func TestSQLRows(t *testing.T) {
	sqldbtest.Run(t, sqldbtest.Case{Name: "rows", Run: func(t *testing.T, url string) {
		db := sqldbtest.Open(t, url)
		rows := gateway.SQLRows{DB: db, App: concertapp(t)}
		whole := flow.Selector{Projection: flow.Projection{Tenant: tenant, Fork: "prod", Name: "follows"}}
		if _, err := rows.Snapshot(t.Context(), whole, nil); lattice.KindOf(err) != lattice.Unavailable {
			t.Errorf("before the projector has made its tables: %v", err)
		}
		d := db.Dialect()
		stamp, wide := "TEXT", "INTEGER"
		if d == sqldb.Postgres {
			stamp, wide = "TIMESTAMP WITH TIME ZONE", "BIGINT"
		}
		statements := []string{
			"CREATE TABLE projection_head (id " + wide + " PRIMARY KEY, position " + wide + " NOT NULL)",
			"INSERT INTO projection_head VALUES (1, 41)",
			"CREATE TABLE " + d.Table(tenant, "follows") + ` (user_id TEXT, artist_id TEXT, since ` + stamp + `, "cursor:follows" ` + wide + ")",
		}
		if d == sqldb.Postgres {
			statements = append([]string{"CREATE SCHEMA " + tenant}, statements...)
		}
		const insert = " (user_id, artist_id, since, \"cursor:follows\") VALUES "
		statements = append(statements, "INSERT INTO "+d.Table(tenant, "follows")+insert+"('u1', 'a', '2024-06-25T15:20:00.500000Z', 7), ('u2', 'a', NULL, 8), ('u3', 'another''s', NULL, NULL)")
		if err := db.Write(t.Context(), func(tx sqldb.Tx) error {
			for _, s := range statements {
				if _, err := tx.Exec(t.Context(), s); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		read := func(s flow.Selector) string {
			var all []string
			asOf, err := rows.Snapshot(t.Context(), s, func(some []flow.Row) error {
				for _, r := range some {
					b, _ := json.Marshal(r)
					all = append(all, string(b))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(asOf, " ", strings.Join(all, " "))
		}
		const u1 = `{"Key":{"artist_id":"a","user_id":"u1"},"Row":{"artist_id":"a","since":"2024-06-25T15:20:00.5Z","user_id":"u1"},"Cursor":7}`
		if got, want := read(whole), `41 `+u1+` {"Key":{"artist_id":"a","user_id":"u2"},"Row":{"artist_id":"a","user_id":"u2"},"Cursor":8}`; got != want {
			t.Errorf("all:  %s\nwant: %s", got, want)
		}
		one := whole
		one.Stream, one.Entity = "user_stream", "u1"
		if got := read(one); got != "41 "+u1 {
			t.Errorf("one: %s", got)
		}
		one.Name = "artist_followers"
		if _, err := rows.Snapshot(t.Context(), one, nil); lattice.KindOf(err) != lattice.Unsupported {
			t.Errorf("an entity of rows that several write: %v", err)
		}
	}})
}
