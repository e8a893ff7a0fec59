// Package projectortest runs projectors of the example on a broker and a database, and
// checks what must be true of any of them at the end, whatever happened on the way: the
// rows are those of a projection that is computed afresh from what was sent, each add
// counted once, and the patches of each row are an unbroken chain to it.
package projectortest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/projector"
	"github.com/lattice-log/lattice/pipeline/relay"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// Within bounds every wait for something that must happen.
const Within = 2 * time.Minute

// Rig is an application on a node of its own and one database.
type Rig struct {
	T     *testing.T
	URL   string // of the database
	Kafka []kgo.Opt
	App   *spec.App
	DB    sqldb.DB
	Store *projection.Store
	N     map[string]int64   // last sequence numbers by entity
	Sent  []event.Projection // what must be in the rows

	send *kgo.Client
}

// Partitions is how many the topic of the events has.
const Partitions = 3

// New opens the example in an empty database and makes its topic. A test stands two
// directories below the root.
func New(t *testing.T, broker, url string, l *ledger.Ledger) *Rig {
	t.Helper()
	app, err := spec.Load(os.DirFS("../../examples/concertapp"))
	if err != nil {
		t.Fatal(err)
	}
	r := &Rig{T: t, URL: url, App: app, N: map[string]int64{}, Kafka: []kgo.Opt{
		kgo.SeedBrokers(broker), kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(100 * time.Millisecond),
	}}
	if r.DB, err = sqldb.Open(t.Context(), url, sqldb.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.DB.Close() })
	if r.Store, err = projection.Open(t.Context(), r.DB, projection.Options{App: app, Ledger: l}); err != nil {
		t.Fatal(err)
	}
	if r.send, err = kgo.NewClient(r.Kafka...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.send.Close)
	if err := topic.Ensure(t.Context(), r.send, topic.Spec{Name: topic.ProjectionEvents, Partitions: Partitions}); err != nil {
		t.Fatal(err)
	}
	return r
}

// Options are those of a projector that is quick to try again.
func (r *Rig) Options() projector.Options {
	return projector.Options{
		Store: r.Store, Topic: topic.Spec{Name: topic.ProjectionEvents, Partitions: Partitions}, Kafka: r.Kafka, CommitEvery: 20 * time.Millisecond, Heartbeat: 100 * time.Millisecond,
		Lane:   projector.Config{Retries: 2, RetryBase: time.Millisecond, Base: 5 * time.Millisecond, Max: 50 * time.Millisecond, PauseAfter: 3, Batch: 16},
		Logger: slog.New(slog.NewTextHandler(r.T.Output(), nil)),
	}
}

// Start runs a projector. stop ends it and waits.
func (r *Rig) Start(o projector.Options) (p *projector.Projector, stop func()) {
	r.T.Helper()
	p, err := projector.New(o)
	if err != nil {
		r.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.T.Errorf("Run: %v", err)
		}
	})
	r.T.Cleanup(stop)
	return p, stop
}

// Event makes the next event of a user, well-formed or not.
func (r *Rig) Event(user string, payload map[string]any) event.Projection {
	r.N[user]++
	b, _ := json.Marshal(payload)
	return event.Projection{
		EventType: "ARTIST_FOLLOWED", EntityID: user, ForkID: "prod", TenantSchema: r.App.TenantSchema(""), IRVersion: "v42",
		SequenceNumber: r.N[user], TS: 1719331200000 + r.N[user], Payload: b,
	}
}

// Produce sends events.
func (r *Rig) Produce(events ...event.Projection) {
	r.T.Helper()
	var records []*kgo.Record
	for _, e := range events {
		b, err := e.Encode()
		if err != nil {
			r.T.Fatal(err)
		}
		records = append(records, &kgo.Record{Topic: topic.ProjectionEvents, Key: []byte(e.EntityID), Value: b})
	}
	r.Raw(records...)
}

// Raw sends records.
func (r *Rig) Raw(records ...*kgo.Record) {
	r.T.Helper()
	if err := r.send.ProduceSync(r.T.Context(), records...).FirstErr(); err != nil {
		r.T.Fatal(err)
	}
}

// Follow sends n events over seven users and four artists. Each counts 1.
func (r *Rig) Follow(n int) {
	r.T.Helper()
	var all []event.Projection
	for range n {
		i := len(r.Sent)
		e := r.Event(fmt.Sprint("user-", i%7), map[string]any{"user_id": fmt.Sprint("user-", i%7), "artist_id": fmt.Sprint("artist-", i%4)})
		r.Sent, all = append(r.Sent, e), append(all, e)
	}
	r.Produce(all...)
}

// Until waits for something that must happen.
func (r *Rig) Until(what string, ok func() bool) {
	r.T.Helper()
	for end := time.Now().Add(Within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.T.Fatalf("after %s not so: %s", Within, what)
		}
	}
}

// Await waits until every event that was sent is in the rows of every projection.
func (r *Rig) Await() {
	r.T.Helper()
	for user, n := range r.N {
		for _, p := range r.App.Projections {
			ctx, cancel := context.WithTimeout(r.T.Context(), Within)
			err := r.Store.Await(ctx, p.Name, ledger.Address{TenantSchema: r.App.TenantSchema(""), ForkID: "prod", Stream: "user_stream", EntityID: user}, n)
			cancel()
			if err != nil {
				r.T.Fatal(err)
			}
		}
	}
}

// Table reads a table as text, in order of its first columns.
func (r *Rig) Table(db sqldb.DB, name string, columns ...string) string {
	r.T.Helper()
	var out strings.Builder
	list := strings.Join(columns, ", ")
	if err := db.Read(r.T.Context(), func(tx sqldb.Tx) error {
		out.Reset()
		return tx.Query(r.T.Context(), func(scan sqldb.Scan) error {
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
		}, "SELECT "+list+" FROM "+tx.Dialect().Table(r.App.TenantSchema(""), name)+" ORDER BY "+list)
	}); err != nil {
		r.T.Fatal(err)
	}
	return out.String()
}

// Verify compares the rows with those of a projection that is made afresh, with no Kafka,
// from what was sent, in its order; and each add counted once.
func (r *Rig) Verify() {
	r.T.Helper()
	db, err := sqldb.Open(r.T.Context(), "sqlite:"+filepath.Join(r.T.TempDir(), "fresh.db"), sqldb.Options{})
	if err != nil {
		r.T.Fatal(err)
	}
	defer db.Close()
	fresh, err := projection.Open(r.T.Context(), db, projection.Options{App: r.App})
	if err != nil {
		r.T.Fatal(err)
	}
	// Artists are written by several users on several partitions, so who came last depends
	// on the order of those: it is compared for what any order has.
	for _, e := range r.Sent {
		for _, p := range r.App.Projections {
			if _, err := fresh.Apply(r.T.Context(), p, []projection.Event{{Projection: e, Follows: true}}); err != nil {
				r.T.Fatal(err)
			}
		}
	}
	for _, q := range [][]string{{"artist_followers", "artist_id", "followers"}, {"follows", "user_id", "artist_id"}, {"follows_by_day", "day", "artist_id", "followed"}} {
		if have, want := r.Table(r.DB, q[0], q[1:]...), r.Table(db, q[0], q[1:]...); have != want {
			r.T.Fatalf("table %s is\n%swanted\n%s", q[0], have, want)
		}
	}
}

// Patches publishes the outbox and reads the topic: of each row, without the ids that come
// again, the chain of cursors is unbroken, and the last document is the row.
func (r *Rig) Patches() {
	r.T.Helper()
	out := relay.New(relay.Options{Store: r.Store, Patches: topic.Spec{Partitions: Partitions}, DeadLetters: topic.Spec{Partitions: 1}, Kafka: r.Kafka, PollEvery: 10 * time.Millisecond})
	ctx, cancel := context.WithCancel(r.T.Context())
	done := make(chan error, 1)
	go func() { done <- out.Run(ctx) }()
	r.Until("the outbox is empty", func() bool {
		n, err := r.Store.Waiting(r.T.Context())
		return err == nil && n == 0
	})
	cancel()
	<-done
	var all []event.Patch
	seen := map[int64]bool{}
	for _, rec := range ReadAll(r.T, r.Kafka, topic.Patches) {
		p, err := event.ParsePatch(rec.Value)
		if err != nil || string(rec.Key) != p.EntityID || len(rec.Headers) != 1 || string(rec.Headers[0].Value) != fmt.Sprint(p.Cursor) {
			r.T.Fatalf("%s, headers %v: %v", rec.Value, rec.Headers, err)
		}
		if !seen[p.Cursor] {
			seen[p.Cursor] = true
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b event.Patch) int { return int(a.Cursor - b.Cursor) })
	cursors, docs, epochs := map[string]int64{}, map[string]json.RawMessage{}, map[string]int64{}
	for _, p := range all {
		if epochs[p.Projection] == 0 {
			epochs[p.Projection] = 1
		}
		if p.Reset { // everybody reads the rows anew
			epochs[p.Projection]++
			for row := range docs {
				if strings.HasPrefix(row, p.Projection+"{") {
					delete(docs, row)
					delete(cursors, row)
				}
			}
		}
		if p.Epoch != epochs[p.Projection] {
			r.T.Fatalf("patch %d of %s is of epoch %d, and this is %d", p.Cursor, p.Projection, p.Epoch, epochs[p.Projection])
		}
		if p.Reset {
			continue
		}
		row := p.Projection + string(p.Key)
		// Behind a reset, the rows that were read have cursors of their own.
		if _, known := cursors[row]; p.PrevCursor != cursors[row] && (known || p.Epoch == 1) {
			r.T.Fatalf("patch %d of %s says %d was before it, and that was %d", p.Cursor, row, p.PrevCursor, cursors[row])
		}
		doc, err := event.Apply(docs[row], p.Operations)
		if err != nil {
			r.T.Fatal(err)
		}
		cursors[row], docs[row] = p.Cursor, doc
	}
	r.sameAsPatched(docs, epochs["artist_followers"] <= 1)
}

// sameAsPatched compares what a client has of the followers with the table: all rows, or,
// of one that began to listen later, those that changed since.
func (r *Rig) sameAsPatched(docs map[string]json.RawMessage, all bool) {
	r.T.Helper()
	want := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(r.Table(r.DB, "artist_followers", "artist_id", "followers")), "\n") {
		artist, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		if artist != "" {
			want[fmt.Sprintf("artist_followers{%q:%q}", "artist_id", artist)] = n
		}
	}
	for row, doc := range docs {
		if !strings.HasPrefix(row, "artist_followers{") {
			continue
		}
		var d struct{ Followers json.Number }
		if err := json.Unmarshal(doc, &d); err != nil || d.Followers.String() != want[row] {
			r.T.Fatalf("a client has %s for %s, the table %q (%v)", doc, row, want[row], err)
		}
		delete(want, row)
	}
	if all && len(want) > 0 {
		r.T.Fatalf("a client has nothing of %v", want)
	}
}

// ReadAll returns what is on a topic now.
func ReadAll(t *testing.T, kafka []kgo.Opt, name string) []*kgo.Record {
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
	ctx, cancel := context.WithTimeout(t.Context(), Within)
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

// FollowByLedger commits n events to a ledger and sends those that publish says.
func (r *Rig) FollowByLedger(l *ledger.Ledger, n int, publish func(i int) bool) {
	r.T.Helper()
	for range n {
		i := len(r.Sent)
		user := fmt.Sprint("user-", i%3)
		e := r.Event(user, map[string]any{"user_id": user, "artist_id": fmt.Sprint("artist-", i%2)})
		a := ledger.Address{TenantSchema: e.TenantSchema, ForkID: e.ForkID, Stream: "user_stream", EntityID: user}
		answer, err := l.Commit(r.T.Context(), &ledger.Proposal{Address: a, IntentID: fmt.Sprint(i), IRVersion: "v42", TS: e.TS,
			Decide: func(ledger.Entity, ledger.Lookup) (ledger.Decision, error) {
				return ledger.Decision{Events: []ledger.NewEvent{{EventType: e.EventType, Payload: e.Payload}}}, nil
			}})
		if err != nil {
			r.T.Fatal(err)
		}
		if r.Sent = append(r.Sent, answer.Events[0].Projection()); publish(i) {
			r.Produce(r.Sent[i])
		}
	}
}

// Truncate takes all that is on the topic of the events off it, as retention does.
func (r *Rig) Truncate() {
	r.T.Helper()
	admin := kadm.NewClient(r.send)
	ends, err := admin.ListEndOffsets(r.T.Context(), topic.ProjectionEvents)
	if err == nil {
		var out kadm.DeleteRecordsResponses
		if out, err = admin.DeleteRecords(r.T.Context(), ends.Offsets()); err == nil {
			err = out.Error()
		}
	}
	if err != nil {
		r.T.Fatal(err)
	}
}
