package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/spec"
)

// commitWithin bounds an answer to a commit of offsets: a broker that is away must not
// hold up a shutdown, and what is not committed is a duplicate.
const commitWithin = 3 * time.Second

// consumer is one projection's member of its group.
type consumer struct {
	o      *Options
	p      *spec.Projection
	group  string
	client *kgo.Client // set by run
	counts counters

	mu        sync.Mutex
	joined    bool // it has been in the group
	idle      bool // and owns nothing: said once
	owned     map[int32]*worker
	committed map[int32]int64
}

// counters are read by Status while others count.
type counters struct {
	applied, duplicates, healed, gaps, unknown, foreign, buried, parked, retries, patches atomic.Int64
}

func newConsumer(o *Options, p *spec.Projection) *consumer {
	return &consumer{o: o, p: p, group: GroupOf(o.Group, p.Name), owned: map[int32]*worker{}, committed: map[int32]int64{}}
}

// run consumes until the context ends.
func (c *consumer) run(ctx context.Context) error {
	opts := append([]kgo.Opt{
		kgo.ClientID("lattice-projector"), kgo.ConsumerGroup(c.group), kgo.ConsumeTopics(c.o.Topic.Name),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		// A process that was killed holds its partitions for so long.
		kgo.SessionTimeout(10 * time.Second), kgo.HeartbeatInterval(c.o.Heartbeat),
		// Nothing is handed to a partition while it is being taken away.
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { c.assigned(ctx, m[c.o.Topic.Name]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { c.release(m[c.o.Topic.Name], true) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { c.release(m[c.o.Topic.Name], false) }),
		kgo.FetchMaxBytes(16 << 20), kgo.FetchMaxPartitionBytes(2 << 20),
	}, c.o.Kafka...)
	client, err := kgo.NewClient(opts...)
	if err != nil {
		return lattice.E(lattice.Invalid, fmt.Errorf("connect to Kafka for %s: %w", c.p.Name, err))
	}
	c.client = client
	var committer sync.WaitGroup
	committer.Go(func() { c.keepCommitting(ctx) })
	c.poll(ctx)
	committer.Wait()
	// What is durable is said to the group, then the partitions are let go.
	c.release(c.partitions(), true)
	client.CloseAllowingRebalance()
	return nil
}

// poll hands records to their partitions until the context ends.
func (c *consumer) poll(ctx context.Context) {
	for ctx.Err() == nil {
		fetches := c.client.PollRecords(ctx, 4096)
		fetches.EachError(func(topic string, partition int32, err error) {
			if ctx.Err() == nil && !errors.Is(err, kgo.ErrClientClosed) {
				c.o.Logger.Warn("reading events failed; it is tried again", "projection", c.p.Name, "topic", topic, "partition", partition, "error", err)
			}
		})
		fetches.EachPartition(func(f kgo.FetchTopicPartition) {
			c.mu.Lock()
			w := c.owned[f.Partition]
			c.mu.Unlock()
			if w != nil {
				w.deliver(f.Records)
			}
		})
		c.client.AllowRebalance()
	}
}

// assigned starts the work on partitions.
func (c *consumer) assigned(ctx context.Context, partitions []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined = true
	for _, n := range partitions {
		if c.owned[n] == nil {
			w := newWorker(c, n)
			c.owned[n] = w
			go w.run(ctx)
		}
	}
}

func (c *consumer) partitions() []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []int32
	for n := range c.owned {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// release ends the work on partitions: each finishes the transaction that it is in. Then,
// if they are still ours to speak for, their offsets are committed.
func (c *consumer) release(partitions []int32, ours bool) {
	c.mu.Lock()
	var ended []*worker
	for _, n := range partitions {
		if w := c.owned[n]; w != nil {
			ended = append(ended, w)
			w.end()
		}
	}
	c.mu.Unlock()
	for _, w := range ended {
		<-w.done
	}
	if ours {
		c.commit()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range ended {
		delete(c.owned, w.partition)
		delete(c.committed, w.partition)
		c.client.ResumeFetchPartitions(map[string][]int32{c.o.Topic.Name: {w.partition}})
	}
}

// keepCommitting commits what is durable, again and again.
func (c *consumer) keepCommitting(ctx context.Context) {
	t := time.NewTicker(c.o.CommitEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			c.commit()
			c.sayIdle()
		case <-ctx.Done():
			return
		}
	}
}

// commit commits the offsets that moved. A failure is said and made good by the next one;
// what is read again meanwhile is a duplicate.
func (c *consumer) commit() {
	if c.o.crash() {
		return
	}
	c.mu.Lock()
	moved := map[int32]kgo.EpochOffset{}
	for n, w := range c.owned {
		if at := w.position.Load(); at >= 0 && at != c.committed[n] {
			moved[n] = kgo.EpochOffset{Epoch: -1, Offset: at}
		}
	}
	c.mu.Unlock()
	if len(moved) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitWithin)
	defer cancel()
	var failed error
	c.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{c.o.Topic.Name: moved}, commitAnswer(&failed))
	if failed != nil {
		c.o.Logger.Warn("offsets were not committed; it is tried again", "projection", c.p.Name, "error", failed)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n, at := range moved {
		if c.owned[n] != nil {
			c.committed[n] = at.Offset
		}
	}
}

// sayIdle says once that others have all partitions.
func (c *consumer) sayIdle() {
	_, generation := c.client.GroupMetadata()
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.idle
	c.idle = generation > 0 && len(c.owned) == 0
	if c.idle && !was {
		c.o.Logger.Info("idle: other instances have all partitions; this one takes over when one of them goes", "projection", c.p.Name, "group", c.group)
	}
}

func (c *consumer) status() Status {
	n := &c.counts
	s := Status{Projection: c.p.Name, Group: c.group, Counts: Counts{
		Applied: n.applied.Load(), Duplicates: n.duplicates.Load(), Healed: n.healed.Load(), Gaps: n.gaps.Load(), Unknown: n.unknown.Load(),
		Foreign: n.foreign.Load(), Buried: n.buried.Load(), Parked: n.parked.Load(), Retries: n.retries.Load(), Patches: n.patches.Load(),
	}}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Idle = c.idle
	for n, w := range c.owned {
		s.Partitions = append(s.Partitions, PartitionStatus{n, w.position.Load(), *w.paused.Load(), w.waiting()})
	}
	slices.SortFunc(s.Partitions, func(a, b PartitionStatus) int { return int(a.Partition - b.Partition) })
	return s
}
