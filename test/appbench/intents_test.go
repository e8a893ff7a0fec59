package appbench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lattice-log/lattice/client/live"
	"github.com/lattice-log/lattice/internal/testkit/realnode"
	"github.com/lattice-log/lattice/pipeline/sqldb"

	appbench "github.com/lattice-log/lattice/app/bench"
)

// post sends one intent and returns how long its answer took.
func (b *bench) post(client *http.Client, at string, id, user, artist string) time.Duration {
	body := fmt.Appendf(nil, `{"intentId":%q,"intentType":"FOLLOW_ARTIST","payload":{"user_id":%q,"artist_id":%q}}`, id, user, artist)
	began := time.Now()
	resp, err := client.Post("http://"+at+"/v1/intents", "application/json", bytes.NewReader(body))
	if err != nil {
		b.t.Error(err)
		return 0
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	took := time.Since(began)
	var a struct{ Accepted bool }
	if err != nil || json.Unmarshal(text, &a) != nil || !a.Accepted {
		b.t.Errorf("intent %s: %d %s, %v", id, resp.StatusCode, text, err)
	}
	return took
}

// answers waits until an address serves a path.
func (b *bench) answers(at, path string) {
	b.t.Helper()
	b.until(at+path, 10*time.Millisecond, func() bool {
		resp, err := http.Get("http://" + at + path)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

func (b *bench) concertapp() string { return filepath.Join(realnode.Root(b.t), "examples/concertapp") }

// brokers are a quick one, one that takes 200 ms for each request to produce, and none.
func (b *bench) brokers() []struct{ name, address string } {
	fake := func(think time.Duration) string {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SleepOutOfOrder())
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(c.Close)
		if think > 0 {
			c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				c.SleepControl(func() { time.Sleep(think) })
				return nil, nil, false
			})
		}
		return c.ListenAddrs()[0]
	}
	return []struct{ name, address string }{{"quick", fake(0)}, {"200 ms for each request", fake(200 * time.Millisecond)}, {"down", realnode.FreeAddress(b.t)}}
}

// intents measures the write path by HTTP. What the broker does must not show in a call.
func (b *bench) intents() {
	var rows [][]string
	within := 4 * time.Second
	if b.short {
		within = 500 * time.Millisecond
	}
	for _, s := range b.stores() {
		var quick []time.Duration
		for _, broker := range b.brokers() {
			at := realnode.FreeAddress(b.t)
			p := b.start("app", "runtime", b.concertapp(), "--bootstrap", broker.address, "--ledger", s.url(), "--http", at)
			b.answers(at, "/metrics")
			b.submit(at, 1, 200*time.Millisecond, "warm") // connections, plans, caches
			one, _ := b.submit(at, 1, within, "one")
			own, server := appbench.ServerCPU(p.pid), s.cpu()
			many, rate := b.submit(at, 64, within, "many")
			million := func(d time.Duration) string { return fmt.Sprintf("%.0f", d.Seconds()*1e6/float64(len(many))) }
			rows = append(rows, []string{
				s.name + ", broker " + broker.name, quantile(one, 0.5), quantile(one, 0.99), count(rate), quantile(many, 0.5), quantile(many, 0.99),
				million(appbench.ServerCPU(p.pid) - own), million(s.cpu() - server),
			})
			p.Kill()
			if quick == nil {
				quick = one
				continue
			}
			a, z := median(quick), median(one)
			b.goal(fmt.Sprintf("one intent at a time, %s, broker %s: p50 beside that with a quick one", s.name, broker.name), "at most 1.25, or 1 ms more",
				fmt.Sprintf("%.2f ms, %.2f ms", z.Seconds()*1e3, a.Seconds()*1e3), z <= a*5/4 || z <= a+time.Millisecond)
		}
	}
	b.table("Intents by HTTP", []string{"ledger", "one caller, p50 ms", "p99 ms", "64 callers, intents/s", "p50 ms", "p99 ms", "runtime, CPU s/M", "database, CPU s/M"}, rows)
}

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(all))[len(all)/2]
}

// submit has callers send intents one after the other for a while. Everybody follows twenty.
func (b *bench) submit(at string, callers int, within time.Duration, name string) (took []time.Duration, rate float64) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	var next atomic.Int64
	var all sync.WaitGroup
	each := make([][]time.Duration, callers)
	began := time.Now()
	for c := range callers {
		all.Go(func() {
			for time.Since(began) < within {
				n := next.Add(1)
				each[c] = append(each[c], b.post(client, at, fmt.Sprint(name, n), fmt.Sprint(name, n/20), fmt.Sprint("artist-", n)))
			}
		})
	}
	all.Wait()
	took = slices.Concat(each...)
	return took, float64(len(took)) / time.Since(began).Seconds()
}

// latency measures from the beginning of a call to the row and to a WebSocket client, one
// intent at a time.
func (b *bench) latency() {
	var rows [][]string
	n := 500
	if b.short {
		n = 30
	}
	for _, s := range b.stores() {
		node := realnode.Start(b.t, b.bin, b.t.TempDir(), "--redis", "")
		ledger, tables := s.url(), s.url()
		var at [3]string
		var roles []process
		for i, role := range [][]string{
			{"runtime", "--ledger", ledger}, {"projector", "--ledger", ledger, "--projections", tables, "--only", "follows"}, {"gateway", "--projections", tables},
		} {
			at[i] = realnode.FreeAddress(b.t)
			roles = append(roles, b.start(append([]string{"app", role[0], b.concertapp(), "--bootstrap", node.Kafka, "--http", at[i]}, role[1:]...)...))
			b.answers(at[i], []string{"/metrics", "/readyz", "/readyz"}[i])
		}
		row, socket, call := b.ways(at[0], at[2], tables, n)
		rows = append(rows, []string{s.name, quantile(call, 0.5), quantile(call, 0.99), quantile(row, 0.5), quantile(row, 0.99), quantile(socket, 0.5), quantile(socket, 0.99)})
		for _, p := range roles {
			p.Kill()
		}
		node.Kill()
	}
	b.table("From an intent on, ms", []string{"databases", "answer, p50", "p99", "row, p50", "p99", "WebSocket, p50", "p99"}, rows)
}

func (b *bench) ways(runtime, gateway, tables string, n int) (row, socket, call []time.Duration) {
	ctx := b.t.Context()
	db, err := sqldb.Open(ctx, tables, sqldb.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	defer db.Close()
	f := live.New(live.Options{URL: "ws://" + gateway + "/ws"})
	feed := f.Follow("user_stream", "follows")
	go func() { _ = f.Run(ctx) }()
	if err := feed.UpToDate(ctx); err != nil {
		b.t.Fatal(err)
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for i := range n + 20 { // the first twenty are no figures
		user, artist := fmt.Sprint("user-", i/20), fmt.Sprint("artist-", i)
		began := time.Now()
		shown := make(chan time.Duration, 1)
		go func() {
			key := fmt.Sprintf(`{"artist_id":%q,"user_id":%q}`, artist, user)
			for there := false; !there; {
				feed.Read(func(v *live.View) { _, there = v.At(key) })
				if there {
					shown <- time.Since(began)
					return
				}
				select {
				case <-feed.Changes():
				case <-ctx.Done():
					return
				}
			}
		}()
		answered := b.post(client, runtime, fmt.Sprint("way", i), user, artist)
		b.until("the row", 200*time.Microsecond, func() bool {
			found := false
			if err := db.Read(ctx, func(tx sqldb.Tx) error {
				var one int64
				found, err = sqldb.One(ctx, tx, []any{&one}, "SELECT 1 FROM "+tx.Dialect().Table("platform1_concertapp_prod", "follows")+" WHERE user_id = $1 AND artist_id = $2", user, artist)
				return err
			}); err != nil {
				b.t.Fatal(err)
			}
			return found
		})
		there := time.Since(began)
		seen := <-shown
		if i >= 20 {
			row, socket, call = append(row, there), append(socket, seen), append(call, answered)
		}
	}
	return row, socket, call
}
