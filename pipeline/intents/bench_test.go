package intents_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lattice-log/lattice/internal/testkit/realpostgres"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/intents"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/publisher"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// BenchmarkSubmit measures an intent of the example (rules, one event, a new state)
// from Submit to its durable answer: how many a second, how long one takes, and the
// processor time of this process and of PostgreSQL for each. "slow broker" takes
// 200 ms for each request: it must change the latency by nothing but the work of
// publishing itself.
func BenchmarkSubmit(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, broker := range []string{"none", "slow"} {
			b.Run(fmt.Sprintf("sqlite/callers=%d/broker=%s", callers, broker), func(b *testing.B) {
				benchmarkSubmit(b, sqldbtest.SQLite(b), callers, broker, func() time.Duration { return 0 })
			})
		}
	}
	b.Run("postgres", func(b *testing.B) {
		server := realpostgres.Start(b, "-c", "fsync=on", "-c", "shared_buffers=256MB")
		for _, callers := range []int{1, 64} {
			for _, broker := range []string{"none", "slow"} {
				b.Run(fmt.Sprintf("callers=%d/broker=%s", callers, broker), func(b *testing.B) {
					benchmarkSubmit(b, server.Database(b), callers, broker, func() time.Duration { return server.CPU(b) })
				})
			}
		}
	})
}

func benchmarkSubmit(b *testing.B, url string, callers int, broker string, also func() time.Duration) {
	var committed func([]event.Event)
	l := opened(b, url, ledger.Options{Committed: func(e []event.Event) {
		if committed != nil {
			committed(e)
		}
	}})
	s := service(b, intents.Options{App: load(b, "../../examples/concertapp"), Ledger: l})
	if broker == "slow" {
		p := slowPublisher(b, l)
		committed = p.Committed
	}
	var next atomic.Int64
	took := make([][]time.Duration, callers)
	before, beforeAlso := cpu(b), also()
	b.ResetTimer()
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				user := n / 20 // everybody follows twenty
				start := time.Now()
				a, err := s.Submit(b.Context(), intents.Request{
					IntentID: fmt.Sprint("i", n), IntentType: "FOLLOW_ARTIST",
					Payload: json.RawMessage(fmt.Sprintf(`{"user_id":"user-%d","artist_id":"artist-%d"}`, user, n)),
				})
				if err != nil || !a.Accepted() {
					b.Errorf("have %+v, %v", a, err)
				}
				took[c] = append(took[c], time.Since(start))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	times := slices.Concat(took...)
	slices.Sort(times)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "intents/s")
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "cpu-us/intent")
	if d := also() - beforeAlso; d > 0 {
		b.ReportMetric(float64(d.Microseconds())/float64(b.N), "server-cpu-us/intent")
	}
}

// slowPublisher publishes to a broker that thinks for 200 ms about each request.
func slowPublisher(b *testing.B, l *ledger.Ledger) *publisher.Publisher {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SleepOutOfOrder())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() { time.Sleep(200 * time.Millisecond) })
		return nil, nil, false
	})
	p, err := publisher.New(l, publisher.Options{
		Projection: topic.Spec{Name: topic.ProjectionEvents}, Ledger: topic.Spec{Name: topic.LedgerEvents},
		Kafka: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, TakeOver: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.Run(ctx)
	}()
	b.Cleanup(func() { cancel(); <-done })
	return p
}

// cpu returns the processor time that this process has used.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
