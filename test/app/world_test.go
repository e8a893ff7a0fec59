package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/client/live"
	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/sqldb"
	"github.com/lattice-log/lattice/pipeline/topic"
)

const tenant = "platform1_concertapp_prod"

// world is one column: its processes, and what clients of every kind have seen.
type world struct {
	t             *testing.T
	bin, app, dir string
	broker        broker
	reach         func(role string) []string // flags that say how Kafka is reached
	consumer      []kgo.Opt                  // the same for the test's own consumer
	roles         []*role
	ledgerURL     string
	tablesURL     string
	ledger        *ledger.Ledger // opened by startAll
	tables        sqldb.DB
	next          atomic.Int64
	feeds         map[string]*live.Feed // by projection
	sse           *events

	mu       sync.Mutex
	records  map[string][]*kgo.Record // by topic, as a consumer got them
	accepted map[string]answer        // by intent id, what was answered
}

// answer is what POST /v1/intents says.
type answer struct {
	Accepted bool
	Cursor   int64
	Events   []struct {
		EventType      string
		SequenceNumber int64
	}
	RejectionCode string
	Error         string
}

func newWorld(t *testing.T, bin string, b broker, ledgerURL, tablesURL string) *world {
	return &world{
		t: t, bin: bin, app: filepath.Join(realnode.Root(t), "examples/concertapp"), dir: t.TempDir(), broker: b,
		reach:    func(string) []string { return []string{"--bootstrap", b.address} },
		consumer: []kgo.Opt{kgo.SeedBrokers(b.address)}, ledgerURL: ledgerURL, tablesURL: tablesURL,
		feeds: map[string]*live.Feed{}, records: map[string][]*kgo.Record{}, accepted: map[string]answer{},
	}
}

// startAll starts the roles, then the clients.
func (w *world) startAll() {
	w.add("runtime", "/metrics", "--ledger", w.ledgerURL, "--partitions", "3")
	w.add("projector", "/readyz", "--ledger", w.ledgerURL, "--projections", w.tablesURL, "--partitions", "3")
	w.add("gateway", "/readyz", "--projections", w.tablesURL)
	w.add("browser", "/readyz", "--ledger", w.ledgerURL, "--projections", w.tablesURL)
	for _, r := range w.roles {
		w.start(r)
	}
	db, err := sqldb.Open(w.t.Context(), w.ledgerURL, sqldb.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { db.Close() })
	if w.ledger, err = ledger.Open(w.t.Context(), db, ledger.Options{}); err != nil {
		w.t.Fatal(err)
	}
	if w.tables, err = sqldb.Open(w.t.Context(), w.tablesURL, sqldb.Options{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { w.tables.Close() })
	w.consume(w.consumer...)
	w.follows()
}

// consume keeps what comes on the topics.
func (w *world) consume(reach ...kgo.Opt) {
	c, err := kgo.NewClient(append(reach, kgo.MetadataMinAge(50*time.Millisecond), kgo.MetadataMaxAge(500*time.Millisecond), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ConsumeTopics(topic.ProjectionEvents, topic.LedgerEvents, topic.Patches, topic.DeadLetters))...)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	w.t.Cleanup(func() { cancel(); <-done; c.Close() })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			fetches := c.PollFetches(ctx)
			w.mu.Lock()
			fetches.EachRecord(func(r *kgo.Record) { w.records[r.Topic] = append(w.records[r.Topic], r) })
			w.mu.Unlock()
		}
	}()
}

func (w *world) on(name string) []*kgo.Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.records[name][:len(w.records[name]):len(w.records[name])]
}

// follows are the gateway's clients: a WebSocket for each projection, and one of SSE.
func (w *world) follows() {
	gateway := w.role("gateway").address
	f := live.New(live.Options{URL: "ws://" + gateway + "/ws", MinWait: 20 * time.Millisecond, MaxWait: 500 * time.Millisecond})
	for _, p := range []string{"artist_followers", "follows"} {
		w.feeds[p] = f.Follow("user_stream", p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = f.Run(ctx) })
	w.sse = &events{url: "http://" + gateway + "/v1/events?stream_id=user_stream&channel=artist_followers"}
	all.Go(func() { w.sse.run(ctx) })
	w.t.Cleanup(func() { cancel(); all.Wait() })
}

// post sends one intent once.
func (w *world) post(intent map[string]any) (int, answer, error) {
	body, err := json.Marshal(intent)
	if err != nil {
		return 0, answer{}, err
	}
	resp, err := http.Post("http://"+w.role("runtime").address+"/v1/intents", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, answer{}, err
	}
	defer resp.Body.Close()
	var a answer
	b, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	return resp.StatusCode, a, err
}

// submit sends an intent until it is answered, as a client does that keeps its id.
func (w *world) submit(intent map[string]any) answer {
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		status, a, err := w.post(intent)
		switch {
		case err == nil && status == http.StatusOK:
			if a.Accepted {
				w.mu.Lock()
				w.accepted[fmt.Sprint(intent["intentId"])] = a
				w.mu.Unlock()
			}
			return a
		case err == nil && status != http.StatusServiceUnavailable:
			w.t.Errorf("intent %v: %d %+v", intent, status, a)
			return a
		case time.Now().After(end):
			w.t.Errorf("intent %v is not answered: %d, %v", intent, status, err)
			return a
		}
	}
}

func follow(id, user, artist string) map[string]any {
	return map[string]any{"intentId": id, "intentType": "FOLLOW_ARTIST", "entityId": user, "forkId": "prod",
		"payload": map[string]string{"user_id": user, "artist_id": artist}}
}

// follow has a user follow an artist that it does not follow yet.
func (w *world) follow(user, artist string) answer {
	a := w.submit(follow(fmt.Sprintf("i-%d", w.next.Add(1)), user, artist))
	if !a.Accepted || len(a.Events) != 1 {
		w.t.Errorf("%s follows %s: %+v", user, artist, a)
	}
	return a
}
