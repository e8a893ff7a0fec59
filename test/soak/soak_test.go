// Package soak has no code of its own: its test runs everything that a node does at
// once, for as long as it is told to (an hour with "make soak"), and kills the node
// again and again. Idempotent and transactional producers, groups of both protocols
// whose members come and go, topics that are made and deleted, retention, compaction,
// DeleteRecords and kcat share one node, a process found as users find theirs.
//
// What the clients were told is kept here, and the node is held to it as the run goes
// and at its end: every acknowledged record at its offset, once and in order, every
// committed offset, every topic, the last value of each key, transactions whole or not
// at all, nothing dropped before its time. The data directory must verify, and memory,
// files and goroutines must be flat: see trend_test.go.
package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

const (
	// shortRun is how long the ordinary tests soak: enough that this program
	// cannot rot.
	shortRun = 25 * time.Second
	// patience is for one thing that must happen on a busy machine.
	patience = 2 * time.Minute
)

// plan is how long a run takes and how the node lives in it. The first and the last
// third are brief lives; between them one node lives a third of the run, since what
// grows slowly grows there.
type plan struct {
	length   time.Duration
	seed     uint64
	brief    [2]time.Duration // how long a brief life is: from, to
	retained time.Duration    // retention.ms of the topic that has one
}

// newPlan reads LATTICE_SOAK_DURATION and LATTICE_SOAK_SEED. A seed repeats the
// choices of a run, as far as a run with real processes can be repeated.
func newPlan(t *testing.T) plan {
	p := plan{length: shortRun, seed: uint64(time.Now().UnixNano())}
	if testing.Short() {
		p.length = shortRun / 2
	}
	var err error
	if s := os.Getenv("LATTICE_SOAK_DURATION"); s != "" {
		if p.length, err = time.ParseDuration(s); err != nil || p.length < 5*time.Second {
			t.Fatalf("LATTICE_SOAK_DURATION=%q: want a duration of at least 5s, such as 1h", s)
		}
	}
	if s := os.Getenv("LATTICE_SOAK_SEED"); s != "" {
		if p.seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("LATTICE_SOAK_SEED=%q: want a number", s)
		}
	}
	within := func(d, lo, hi time.Duration) time.Duration { return min(max(d, lo), hi) }
	p.brief = [2]time.Duration{within(p.length/720, time.Second, 5*time.Second), within(p.length/10, 2*time.Second, time.Minute)}
	p.retained = within(p.length/30, 2*time.Second, time.Minute)
	return p
}

// soak is one run. Its clients run until ctx ends; whoever finds the node wrong calls
// wrong, which ends the run.
type soak struct {
	t      *testing.T
	report func(...any) // fails the test
	plan   plan
	bin    string
	dir    string
	at     string // the node's Kafka address, the same in all lives

	ctx     context.Context // of the clients
	end     context.CancelFunc
	clients sync.WaitGroup
	begun   time.Time

	kept, retained, trimmed, compacted, byKcat *topic // see topics
	pairA, pairB, copied                       *topic
	writers                                    []*writer
	keys                                       keyed
	trims                                      trims
	txns                                       transactions
	groups                                     []*group
	churn                                      churn
	kcats                                      kcats
	sampler                                    sampler

	records, commits, rebalances, aborts, audits atomic.Int64
	kills, stops, sentinelsWritten               int
}

func TestSoak(t *testing.T) {
	p := newPlan(t)
	t.Logf("%s; repeat with LATTICE_SOAK_SEED=%d", p.length, p.seed)
	s := &soak{t: t, report: t.Error, plan: p, bin: realnode.Build(t), dir: os.Getenv("LATTICE_SOAK_DATA"), at: realnode.FreeAddress(t)}
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	s.ctx, s.end = context.WithCancel(t.Context())
	defer func() {
		s.end()
		s.clients.Wait()
	}()
	node := s.up()
	s.prepare()
	s.begun = time.Now()
	s.run()
	s.live(node)
}

// run starts the clients. Each goroutine has its own choices, made from the seed.
func (s *soak) run() {
	for i, w := range s.writers {
		s.client(uint64(i), w.run)
	}
	s.client(100, s.keys.run)
	s.client(101, s.trims.run)
	s.client(102, s.txns.write)
	s.client(103, s.txns.copy)
	s.client(104, s.txns.copy)
	for i, g := range s.groups {
		s.client(200+uint64(i), g.run)
	}
	s.client(300, s.churn.run)
	s.client(301, s.kcats.run)
	s.clients.Go(func() { s.sampler.run(s.ctx, s.begun) })
}

func (s *soak) client(stream uint64, run func(*soak, *rand.Rand)) {
	s.clients.Go(func() { run(s, rand.New(rand.NewPCG(s.plan.seed, stream))) })
}

// wrong reports what is wrong with the node, and ends the run.
func (s *soak) wrong(format string, args ...any) {
	s.report(fmt.Sprintf("after %s: "+format, append([]any{time.Since(s.begun).Round(time.Millisecond)}, args...)...))
	s.end()
}

// sleep waits, and reports whether the run goes on.
func (s *soak) sleep(d time.Duration) bool {
	select {
	case <-s.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// dial returns a client of this node that keeps trying while it is down.
func (s *soak) dial(opts ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(s.at), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Minute),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.RetryTimeout(patience),
		kgo.RequestRetries(1 << 20), kgo.UnknownTopicRetries(-1), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, opts...)...)
	if err != nil {
		s.t.Error(err) // an option that contradicts another
		panic(err)
	}
	return c
}

// prepare makes the topics.
func (s *soak) prepare() {
	s.topics()
	c := s.dial()
	defer c.Close()
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	a := kadm.NewClient(c)
	for _, t := range s.all() {
		if _, err := a.CreateTopic(ctx, int32(len(t.ledgers)), 1, t.configs, t.name); err != nil {
			s.t.Fatalf("create %s: %v", t.name, err)
		}
	}
}

// figures is the run in one line.
func (s *soak) figures(trends []trend) string {
	line := fmt.Sprintf("soak %s seed %d: %d records, %d commits, %d transactions and %d aborted, %d rebalances, %d topics made and %d deleted, "+
		"%d kcat runs, %d trims, %d audits, %d kills and %d stops, max rss %d MiB, max handles %d, max goroutines %d",
		time.Since(s.begun).Round(time.Second), s.plan.seed, s.records.Load(), s.commits.Load(), s.txns.committed.Load(), s.aborts.Load(), s.rebalances.Load(),
		s.churn.made.Load(), s.churn.deleted.Load(), s.kcats.done.Load(), s.trims.done.Load(), s.audits.Load(), s.kills, s.stops,
		s.sampler.most(rss)>>20, s.sampler.most(handles), s.sampler.most(goroutines))
	for _, t := range trends {
		line += "; " + t.String()
	}
	return line
}
