package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/internal/testkit/kgotxn"
)

// transactions is a producer that writes the same records to pair-a and pair-b, and
// two members of a group that copy pair-a to "copied" with their offsets in the
// transactions. Of each transaction all records can be read in both topics, or none.
type transactions struct {
	committed atomic.Int64

	mu    sync.Mutex
	next  int                 // record
	tried map[string]*outcome // by transaction
	order []string

	read map[string]map[string]int // by topic, then by transaction: its records, as a full audit read them
}

// outcome is what the producer was told of a transaction.
type outcome struct {
	records int
	ended   string // "committed", "aborted" or, when the answer was lost, ""
}

// write begins again under the same transactional id whenever the outcome of a
// transaction is not known, as any such program does.
func (x *transactions) write(s *soak, rng *rand.Rand) {
	x.tried = map[string]*outcome{}
	for s.ctx.Err() == nil {
		c := s.dial(kgo.TransactionalID("pair"), kgo.ProducerLinger(0), kgo.TransactionTimeout(20*time.Second))
		for s.sleep(time.Duration(20+rng.IntN(160)) * time.Millisecond) {
			if !x.one(s, rng, c) {
				break
			}
		}
		c.Close()
	}
}

// one is one transaction; false: the client cannot go on.
func (x *transactions) one(s *soak, rng *rand.Rand, c *kgo.Client) bool {
	if err := c.BeginTransaction(); err != nil {
		return false
	}
	x.mu.Lock()
	id := fmt.Sprint(len(x.order))
	o := &outcome{records: 1 + rng.IntN(8)}
	x.tried[id], x.order = o, append(x.order, id)
	x.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var failed atomic.Bool
	for range o.records {
		p, value := int32(rng.IntN(len(s.pairA.ledgers))), filler(rng)
		for _, t := range []*topic{s.pairA, s.pairB} {
			r := &kgo.Record{Topic: t.name, Partition: p, Value: value,
				Headers: []kgo.RecordHeader{{Key: "w", Value: fmt.Appendf(nil, "pair %d", x.next)}, {Key: "txn", Value: []byte(id)}}}
			c.Produce(ctx, r, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.Store(true)
				}
			})
		}
		x.next++
	}
	if err := errors.Join(c.Flush(ctx), kgotxn.Loaded(ctx, c, s.pairA.name, s.pairB.name)); err != nil {
		return false
	}
	commit := !failed.Load() && rng.IntN(5) > 0
	if err := c.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if commit {
		o.ended = "committed"
		x.committed.Add(1)
		s.records.Add(2 * int64(o.records))
	} else {
		o.ended = "aborted"
		s.aborts.Add(1)
	}
	return true
}

// copy is one member of the group that copies.
func (x *transactions) copy(s *soak, rng *rand.Rand) {
	id := fmt.Sprint("copier-", rng.Uint64())
	for s.ctx.Err() == nil {
		_ = x.copySession(s, id) // the next session begins where this one's last commit was
	}
}

func (x *transactions) copySession(s *soak, id string) error {
	g, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(s.at), kgo.TransactionalID(id), kgo.ConsumerGroup("copiers"), kgo.ConsumeTopics(s.pairA.name),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.SessionTimeout(8*time.Second), kgo.MetadataMinAge(50*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.RetryTimeout(30*time.Second),
		kgo.DefaultProduceTopic(s.copied.name), kgo.TransactionTimeout(20*time.Second), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(200*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer g.Close()
	for s.sleep(100 * time.Millisecond) {
		poll, cancel := context.WithTimeout(s.ctx, 2*time.Second)
		fetches := g.PollRecords(poll, 200)
		cancel()
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := g.Begin(); err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		promise := kgo.AbortingFirstErrPromise(g.Client())
		fetches.EachRecord(func(r *kgo.Record) {
			g.Produce(context.Background(), &kgo.Record{Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}, promise.Promise())
		})
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, err := g.End(ctx, promise.Err() == nil)
		cancel()
		if err != nil {
			return fmt.Errorf("end: %w", err)
		}
	}
	return nil
}

// keep keeps what a full audit read of a topic.
func (x *transactions) keep(t *topic, spans []*span) {
	if x.read == nil {
		x.read = map[string]map[string]int{}
	}
	m := map[string]int{}
	for _, sp := range spans {
		for id, n := range sp.seen {
			m[id] += n
		}
	}
	x.read[t.name] = m
}

// check holds the three topics to what the producer was told.
func (x *transactions) check(s *soak) {
	a, b, c := x.read[s.pairA.name], x.read[s.pairB.name], x.read[s.copied.name]
	for _, id := range x.order {
		o := x.tried[id]
		want := o.records
		switch {
		case o.ended == "aborted", o.ended == "" && a[id] == 0:
			want = 0
		}
		if a[id] != want || b[id] != want || c[id] != want {
			s.wrong("transaction %s of %d records, %q: %d can be read in pair-a, %d in pair-b, and %d were copied", id, o.records, o.ended, a[id], b[id], c[id])
			return
		}
	}
}

// transaction says of which one a record is.
func transaction(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == "txn" {
			return string(h.Value)
		}
	}
	return ""
}
