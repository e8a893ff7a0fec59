package appbench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	appbench "github.com/lattice-log/lattice/app/bench"
	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

const (
	tenant    = "bench_counts_main"
	batch     = 256 // events in a transaction of the plain loop: what a projector that is behind takes
	users     = 20_000
	artists   = 5_000
	eventsFor = 150_000 // that many events of one projection, or as many effects of several
)

// countsApp writes an application with n projections of one event, each with a table of its own.
func (b *bench) countsApp(n int) (dir string, app *spec.App) {
	dir = b.t.TempDir()
	var s strings.Builder
	s.WriteString(`platform: bench
app: counts
ir_version: v1
state: { user: { entity_key: user_id } }
events:
  FOLLOWED: { state: user, entity_expr: event.user_id, payload: { user_id: string, artist_id: string } }
projections:
`)
	for i := range n {
		fmt.Fprintf(&s, `  counts%d:
    source_events: [FOLLOWED]
    target: { table: counts%d, primary_key: [artist_id] }
    fields: { artist_id: TEXT, followers: BIGINT, followed_at: BIGINT, last_follower: TEXT }
    derive: { artist_id: event.payload.artist_id }
    mutations: { FOLLOWED: { op: upsert, set: { followed_at: event.ts, last_follower: event.payload.user_id } } }
    aggregates: { FOLLOWED: { followers: { op: add, by: 1 } } }
`, i, i)
	}
	if err := os.WriteFile(filepath.Join(dir, "app.yaml"), []byte(s.String()), 0o600); err != nil {
		b.t.Fatal(err)
	}
	app, err := spec.Load(os.DirFS(dir))
	if err != nil {
		b.t.Fatal(err)
	}
	return dir, app
}

// followed is the ith event.
func followed(i int) (e event.Projection, user, artist string) {
	user, artist = fmt.Sprint("user-", i%users), fmt.Sprint("artist-", i*7919%artists)
	return event.Projection{
		EventType: "FOLLOWED", EntityID: user, ForkID: "main", TenantSchema: tenant, IRVersion: "v1", SequenceNumber: int64(i/users) + 1,
		TS: 1719331200000 + int64(i), Payload: fmt.Appendf(nil, `{"user_id":%q,"artist_id":%q}`, user, artist),
	}, user, artist
}

// projector measures one projector that is behind, beside a plain loop.
func (b *bench) projector() {
	var rows [][]string
	for _, s := range b.stores() {
		for _, projections := range []int{1, 5} {
			n := eventsFor / projections
			if b.short {
				n /= 20
			}
			dir, app := b.countsApp(projections)
			loop := b.loop(app, s.url(), n)
			rate, own, server, node := b.project(dir, s, n, projections)
			ratio := rate / loop
			million := func(d time.Duration) string { return fmt.Sprintf("%.0f", d.Seconds()*1e6/float64(n)) }
			rows = append(rows, []string{fmt.Sprintf("%s, %d for each event", s.name, projections), count(rate), count(loop), fmt.Sprintf("%.2f", ratio), million(own), million(server), million(node)})
			b.goal(fmt.Sprintf("projector beside a plain loop, %s, %d projections for each event", s.name, projections), "at least 0.6", fmt.Sprintf("%.2f", ratio), ratio >= 0.6)
		}
	}
	b.table("One projector that is behind", []string{"projections", "events/s", "plain loop, events/s", "ratio", "projector, CPU s/M", "database, CPU s/M", "node, CPU s/M"}, rows)
	fmt.Fprintf(&b.out, "\nThe loop runs, for each event and projection, the statements that it needs: read guard and row, write row, guard, position and outbox; %d events in a transaction, "+
		"one after the other, in one goroutine. It reads no topic, parses nothing, evaluates nothing and publishes no patches; the projector's rate has all of that in it. "+
		"s/M: CPU seconds for a million events.\n", batch)
}

// project lets a projector catch up with n events.
func (b *bench) project(dir string, s store, n, projections int) (rate float64, own, server, ofNode time.Duration) {
	node := realnode.Start(b.t, b.bin, b.t.TempDir(), "--redis", "")
	defer node.Kill()
	b.produce(node.Kafka, n)
	at := realnode.FreeAddress(b.t)
	p := b.start("app", "projector", dir, "--bootstrap", node.Kafka, "--projections", s.url(), "--ledger", "none", "--http", at)
	defer p.Kill()
	applied := func() (sum int64) {
		resp, err := http.Get("http://" + at + "/status")
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		var all []struct{ Counts struct{ Applied int64 } }
		if json.NewDecoder(resp.Body).Decode(&all) != nil {
			return 0
		}
		for _, one := range all {
			sum += one.Counts.Applied
		}
		return sum
	}
	var first, last int64
	b.until("it applies something", time.Millisecond, func() bool { first = applied(); return first > 0 })
	began, own0, server0, node0 := time.Now(), appbench.ServerCPU(p.pid), s.cpu(), appbench.ServerCPU(node.PID)
	b.until("it has applied all", 5*time.Millisecond, func() bool { last = applied(); return last >= int64(n)*int64(projections) })
	took := time.Since(began)
	done := float64(last-first) / float64(projections)
	part := func(d time.Duration) time.Duration { return time.Duration(float64(d) * float64(n) / done) }
	return done / took.Seconds(), part(appbench.ServerCPU(p.pid) - own0), part(s.cpu() - server0), part(appbench.ServerCPU(node.PID) - node0)
}

// produce writes n events, as a runtime does.
func (b *bench) produce(broker string, n int) {
	c, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.DefaultProduceTopic(topic.ProjectionEvents), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	if err := topic.Ensure(b.t.Context(), c, topic.Spec{Name: topic.ProjectionEvents}); err != nil {
		b.t.Fatal(err)
	}
	for i := range n {
		e, user, _ := followed(i)
		value, err := e.Encode()
		if err != nil {
			b.t.Fatal(err)
		}
		c.Produce(b.t.Context(), &kgo.Record{Key: []byte(user), Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.t.Error(err)
			}
		})
	}
	if err := c.Flush(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// loop is the plain loop's rate. The tables are those that a projector makes.
func (b *bench) loop(app *spec.App, url string, n int) float64 {
	ctx := b.t.Context()
	db, err := sqldb.Open(ctx, url, sqldb.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	if _, err := projection.Open(ctx, db, projection.Options{App: app}); err != nil {
		b.t.Fatal(err)
	}
	const within = 15 * time.Second
	done, began := 0, time.Now()
	for from := 0; from < n && time.Since(began) < within; from += batch {
		done = min(from+batch, n)
		if err := db.Write(ctx, func(tx sqldb.Tx) error {
			for i := from; i < done; i++ {
				for k := range app.Projections {
					if err := plainly(ctx, tx, i, k); err != nil {
						return err
					}
				}
			}
			return nil
		}); err != nil {
			b.t.Fatal(err)
		}
	}
	return float64(done) / time.Since(began).Seconds()
}

// plainly does what one event needs in one projection, statement by statement.
func plainly(ctx context.Context, tx sqldb.Tx, i, k int) error {
	e, user, artist := followed(i)
	name, lock := fmt.Sprint("counts", k), ""
	if tx.Dialect() == sqldb.Postgres {
		lock = " FOR UPDATE"
	}
	table := tx.Dialect().Table(tenant, name)
	guard := []any{name, tenant, "main", "user_stream", user}
	var applied, followers, position int64
	if _, err := sqldb.One(ctx, tx, []any{&applied}, "SELECT applied FROM projection_guards WHERE projection = $1 AND tenant_schema = $2 AND fork_id = $3 AND stream = $4 AND entity_id = $5"+lock,
		guard...); err != nil || applied >= e.SequenceNumber {
		return err
	}
	found, err := sqldb.One(ctx, tx, []any{&followers}, "SELECT followers FROM "+table+" WHERE artist_id = $1"+lock, artist)
	if err != nil {
		return err
	}
	if _, err := sqldb.One(ctx, tx, []any{&position}, "UPDATE projection_head SET position = position + 1 WHERE id = 1 RETURNING position"); err != nil {
		return err
	}
	cursor := sqldb.Quote("cursor:" + name)
	statement := "INSERT INTO " + table + " (followers, followed_at, last_follower, " + cursor + ", artist_id) VALUES ($1, $2, $3, $4, $5)"
	if found {
		statement = "UPDATE " + table + " SET followers = $1, followed_at = $2, last_follower = $3, " + cursor + " = $4 WHERE artist_id = $5"
	}
	if _, err := tx.Exec(ctx, statement, followers+1, e.TS, user, position, artist); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `INSERT INTO projection_guards (projection, tenant_schema, fork_id, stream, entity_id, applied, parked) VALUES ($1, $2, $3, $4, $5, $6, 0)
		ON CONFLICT (projection, tenant_schema, fork_id, stream, entity_id) DO UPDATE SET applied = excluded.applied`, append(guard, e.SequenceNumber)...); err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"projection":%q,"tenantSchema":%q,"forkId":"main","stream":"user_stream","entityId":%q,"eventType":"FOLLOWED","key":{"artist_id":%q},"operations":[{"op":"replace","path":"/followers","value":%d},{"op":"replace","path":"/followed_at","value":%d},{"op":"replace","path":"/last_follower","value":%q}],"prevCursor":0,"cursor":%d,"epoch":1,"ts":%d}`,
		name, tenant, user, artist, followers+1, e.TS, user, position, e.TS)
	_, err = tx.Exec(ctx, "INSERT INTO projection_outbox (position, kind, key, message) VALUES ($1, $2, $3, $4)", position, projection.KindPatch, []byte(user), patch)
	return err
}
