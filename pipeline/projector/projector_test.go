package projector_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/node"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/projector"
	"github.com/lattice-log/lattice/pipeline/relay"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// within bounds every wait for something that must happen.
const within = 2 * time.Minute

// startNode runs a node of this repository in the process and returns its Kafka address.
func startNode(t *testing.T) string {
	t.Helper()
	cfg := node.Default()
	cfg.Data, cfg.Kafka.Listen, cfg.Redis.Listen, cfg.HTTP.Listen = t.TempDir(), "127.0.0.1:0", "", ""
	ctx, stop := context.WithCancel(context.Background())
	n, err := node.Open(ctx, cfg, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- errors.Join(n.Run(ctx), n.Close()) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the node: %v", err)
		}
	})
	<-n.Ready()
	return n.Info().Kafka
}

// rig is an application on a node of its own and one database.
type rig struct {
	t     *testing.T
	url   string
	kafka []kgo.Opt
	app   *spec.App
	db    sqldb.DB
	store *projection.Store
	send  *kgo.Client
	n     map[string]int64 // sequence numbers by entity
	sent  []event.Projection
}

const partitions = 3

func newRig(t *testing.T, broker, url string, l *ledger.Ledger) *rig {
	t.Helper()
	app, err := spec.Load(os.DirFS("../../examples/concertapp"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, url: url, app: app, n: map[string]int64{}, kafka: []kgo.Opt{
		kgo.SeedBrokers(broker), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}}
	if r.db, err = sqldb.Open(t.Context(), url, sqldb.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.db.Close() })
	if r.store, err = projection.Open(t.Context(), r.db, projection.Options{App: app, Ledger: l}); err != nil {
		t.Fatal(err)
	}
	if r.send, err = kgo.NewClient(r.kafka...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.send.Close)
	if err := topic.Ensure(t.Context(), r.send, topic.Spec{Name: topic.ProjectionEvents, Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	return r
}

// options are those of a projector that is quick to try again.
func (r *rig) options() projector.Options {
	return projector.Options{
		Store: r.store, Topic: topic.Spec{Name: topic.ProjectionEvents, Partitions: partitions}, Kafka: r.kafka, CommitEvery: 20 * time.Millisecond,
		Lane:   projector.Config{Retries: 2, RetryBase: time.Millisecond, Base: 5 * time.Millisecond, Max: 50 * time.Millisecond, PauseAfter: 3, Batch: 16},
		Logger: slog.New(slog.NewTextHandler(r.t.Output(), nil)),
	}
}

// start runs a projector. stop ends it and waits.
func (r *rig) start(o projector.Options) (p *projector.Projector, stop func()) {
	r.t.Helper()
	p, err := projector.New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
	r.t.Cleanup(stop)
	return p, stop
}

// event makes the next event of a user, well-formed or not.
func (r *rig) event(user string, payload map[string]any) event.Projection {
	r.n[user]++
	b, _ := json.Marshal(payload)
	return event.Projection{
		EventType: "ARTIST_FOLLOWED", EntityID: user, ForkID: "prod", TenantSchema: r.app.TenantSchema(""), IRVersion: "v42",
		SequenceNumber: r.n[user], TS: 1719331200000 + r.n[user], Payload: b,
	}
}

func (r *rig) produce(events ...event.Projection) {
	r.t.Helper()
	var records []*kgo.Record
	for _, e := range events {
		b, err := e.Encode()
		if err != nil {
			r.t.Fatal(err)
		}
		records = append(records, &kgo.Record{Topic: topic.ProjectionEvents, Key: []byte(e.EntityID), Value: b})
	}
	r.raw(records...)
}

func (r *rig) raw(records ...*kgo.Record) {
	r.t.Helper()
	if err := r.send.ProduceSync(r.t.Context(), records...).FirstErr(); err != nil {
		r.t.Fatal(err)
	}
}

// follow sends n events over seven users and four artists. Each counts 1.
func (r *rig) follow(n int) {
	r.t.Helper()
	var all []event.Projection
	for range n {
		i := len(r.sent)
		e := r.event(fmt.Sprint("user-", i%7), map[string]any{"user_id": fmt.Sprint("user-", i%7), "artist_id": fmt.Sprint("artist-", i%4)})
		r.sent, all = append(r.sent, e), append(all, e)
	}
	r.produce(all...)
}

func (r *rig) until(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("after %s not so: %s", within, what)
		}
	}
}

// await waits until every event that was sent is in the rows of every projection.
func (r *rig) await() {
	r.t.Helper()
	for user, n := range r.n {
		for _, p := range r.app.Projections {
			ctx, cancel := context.WithTimeout(r.t.Context(), within)
			err := r.store.Await(ctx, p.Name, ledger.Address{TenantSchema: r.app.TenantSchema(""), ForkID: "prod", Stream: "user_stream", EntityID: user}, n)
			cancel()
			if err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// table reads a table as text, in order of its first columns.
func (r *rig) table(db sqldb.DB, name string, columns ...string) string {
	r.t.Helper()
	var out strings.Builder
	list := strings.Join(columns, ", ")
	if err := db.Read(r.t.Context(), func(tx sqldb.Tx) error {
		out.Reset()
		return tx.Query(r.t.Context(), func(scan sqldb.Scan) error {
			values := make([]any, len(columns))
			dest := make([]any, len(columns))
			for i := range values {
				dest[i] = &values[i]
			}
			err := scan(dest...)
			for _, v := range values {
				if at, ok := v.(time.Time); ok {
					v = at.UTC().Format("2006-01-02T15:04:05.000000Z")
				}
				fmt.Fprint(&out, v, " ")
			}
			out.WriteString("\n")
			return err
		}, "SELECT "+list+" FROM "+tx.Dialect().Table(r.app.TenantSchema(""), name)+" ORDER BY "+list)
	}); err != nil {
		r.t.Fatal(err)
	}
	return out.String()
}

// verify compares the rows with those of a projection that is made afresh, with no Kafka,
// from what was sent, in its order; and each add counted once.
func (r *rig) verify() {
	r.t.Helper()
	db, err := sqldb.Open(r.t.Context(), "sqlite:"+filepath.Join(r.t.TempDir(), "fresh.db"), sqldb.Options{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer db.Close()
	fresh, err := projection.Open(r.t.Context(), db, projection.Options{App: r.app})
	if err != nil {
		r.t.Fatal(err)
	}
	// Artists are written by several users on several partitions, so who came last depends
	// on the order of those: it is compared for what any order has.
	for _, e := range r.sent {
		for _, p := range r.app.Projections {
			if _, err := fresh.Apply(r.t.Context(), p, []projection.Event{{Projection: e, Follows: true}}); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	for _, q := range [][]string{{"artist_followers", "artist_id", "followers"}, {"follows", "user_id", "artist_id"}, {"follows_by_day", "day", "artist_id", "followed"}} {
		if have, want := r.table(r.db, q[0], q[1:]...), r.table(db, q[0], q[1:]...); have != want {
			r.t.Fatalf("table %s is\n%swanted\n%s", q[0], have, want)
		}
	}
}

// patches publishes the outbox and reads the topic: of each row, without the ids that come
// again, the chain of cursors is unbroken, and the last document is the row.
func (r *rig) patches() {
	r.t.Helper()
	out := relay.New(relay.Options{Store: r.store, Patches: topic.Spec{Partitions: partitions}, DeadLetters: topic.Spec{Partitions: 1}, Kafka: r.kafka, PollEvery: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan error, 1)
	go func() { done <- out.Run(ctx) }()
	r.until("the outbox is empty", func() bool {
		n, err := r.store.Waiting(r.t.Context())
		return err == nil && n == 0
	})
	cancel()
	<-done
	var all []event.Patch
	seen := map[int64]bool{}
	for _, rec := range readAll(r.t, r.kafka, topic.Patches) {
		p, err := event.ParsePatch(rec.Value)
		if err != nil || string(rec.Key) != p.EntityID || len(rec.Headers) != 1 || string(rec.Headers[0].Value) != fmt.Sprint(p.Cursor) {
			r.t.Fatalf("%s, headers %v: %v", rec.Value, rec.Headers, err)
		}
		if !seen[p.Cursor] {
			seen[p.Cursor] = true
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b event.Patch) int { return int(a.Cursor - b.Cursor) })
	cursors, docs := map[string]int64{}, map[string]json.RawMessage{}
	for _, p := range all {
		row := p.Projection + string(p.Key)
		if p.PrevCursor != cursors[row] {
			r.t.Fatalf("patch %d of %s says %d was before it, and that was %d", p.Cursor, row, p.PrevCursor, cursors[row])
		}
		doc, err := event.Apply(docs[row], p.Operations)
		if err != nil {
			r.t.Fatal(err)
		}
		cursors[row], docs[row] = p.Cursor, doc
	}
	var have strings.Builder
	for row, doc := range docs {
		if strings.HasPrefix(row, "artist_followers") {
			var d struct {
				A string `json:"artist_id"`
				N int64  `json:"followers"`
			}
			_ = json.Unmarshal(doc, &d)
			fmt.Fprintf(&have, "%s %d \n", d.A, d.N)
		}
	}
	if got, want := sortLines(have.String()), r.table(r.db, "artist_followers", "artist_id", "followers"); got != want {
		r.t.Fatalf("a client has\n%sthe table\n%s", got, want)
	}
}

func sortLines(s string) string {
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// readAll returns what is on a topic now.
func readAll(t *testing.T, kafka []kgo.Opt, name string) []*kgo.Record {
	t.Helper()
	client, err := kgo.NewClient(append(slices.Clone(kafka), kgo.ConsumeTopics(name))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lags, err := projector.Lags(t.Context(), kafka, "nobody", name, []string{""})
	if err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	for _, l := range lags {
		want += l.Lag
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var all []*kgo.Record
	for int64(len(all)) < want {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records of %s", len(all), want, name)
		}
		all = append(all, fetches.Records()...)
	}
	return all
}
