package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/gateway/flow"
	"github.com/lattice-log/lattice/pipeline/topic"
)

const (
	tickEvery  = time.Second
	heldEvery  = 25 * time.Millisecond // patches that wait for others
	partsEvery = 30 * time.Second      // new partitions, another topic of the name
	retryAfter = time.Second
)

// ErrTopic means that the topic was deleted and made again: what the gateway knows is of
// another one.
var ErrTopic = lattice.E(lattice.Diverged, errors.New("the patch topic was made anew: start the gateway again"))

// Run reads the topic and serves the connections until the context ends. A broker that is
// away is waited for.
func (g *Gateway) Run(ctx context.Context) error {
	client, err := kgo.NewClient(append(g.o.Kafka, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))...)
	if err != nil {
		return lattice.E(lattice.Invalid, fmt.Errorf("gateway: %w", err))
	}
	defer client.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var id kadm.TopicID
	var ends flow.Position
	for {
		if id, ends, err = g.locate(ctx, client); err == nil {
			break
		}
		g.o.Logger.Warn("the patch topic cannot be read yet", "topic", g.o.Topic, "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryAfter):
		}
	}
	done := make(chan struct{})
	go func() { defer close(done); g.ticker(ctx, client, id, stop) }()
	g.poll(ctx, client, ends)
	stop(nil)
	<-done
	if err := context.Cause(ctx); errors.Is(err, ErrTopic) {
		return err
	}
	return nil
}

// ensure makes the topic if it is not there. It asks with a client of its own: a client
// believes for seconds (kgo.MetadataMinAge) that a topic is not there that was not, and the one
// that reads would wait for that to pass.
func (g *Gateway) ensure(ctx context.Context) error {
	client, err := kgo.NewClient(g.o.Kafka...)
	if err != nil {
		return lattice.E(lattice.Invalid, fmt.Errorf("gateway: %w", err))
	}
	defer client.Close()
	return topic.Ensure(ctx, client, topic.Spec{Name: g.o.Topic})
}

// locate finds the partitions and begins to read each near its end: so far before, that
// clients who were away for a moment find what they missed.
func (g *Gateway) locate(ctx context.Context, client *kgo.Client) (id kadm.TopicID, ends flow.Position, err error) {
	if err := g.ensure(ctx); err != nil {
		return id, nil, err
	}
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx, g.o.Topic)
	if err == nil {
		err = topics[g.o.Topic].Err
	}
	if err != nil {
		return id, nil, err
	}
	first, err := admin.ListStartOffsets(ctx, g.o.Topic)
	if err == nil {
		err = first.Error()
	}
	if err != nil {
		return id, nil, err
	}
	last, err := admin.ListEndOffsets(ctx, g.o.Topic)
	if err == nil {
		err = last.Error()
	}
	if err != nil {
		return id, nil, err
	}
	id = topics[g.o.Topic].ID
	parts := topics[g.o.Topic].Partitions.Numbers()
	if len(parts) == 0 {
		return id, nil, lattice.E(lattice.Unavailable, errors.New("the topic has no partitions"))
	}
	backlog := int64(g.o.Feed.Recent / len(parts))
	begin, from := make(flow.Position, len(parts)), map[int32]kgo.Offset{}
	ends = make(flow.Position, len(parts))
	for _, p := range parts {
		s, _ := first.Lookup(g.o.Topic, p)
		e, _ := last.Lookup(g.o.Topic, p)
		begin[p], ends[p] = max(s.Offset, e.Offset-backlog), e.Offset
		from[p] = kgo.NewOffset().At(begin[p])
	}
	cfg := g.o.Feed
	cfg.ID = hex.EncodeToString(id[:4])
	g.mu.Lock()
	g.feed = flow.NewFeed(cfg, begin)
	g.mu.Unlock()
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{g.o.Topic: from})
	return id, ends, nil
}

// poll gives records to the feed, and says when it has those that were there at the start.
// Where the end is a transaction's marker no record shows it: a fetch without records that
// comes back whole after the last one does.
func (g *Gateway) poll(ctx context.Context, client *kgo.Client, ends flow.Position) {
	ready := false
	for quiet := 0; ; {
		if !ready && (quiet >= 2 || g.caughtUp(ends)) {
			ready = true
			close(g.ready)
		}
		wait, cancel := ctx, context.CancelFunc(func() {})
		if !ready {
			wait, cancel = context.WithTimeout(ctx, time.Second)
		}
		fetches := client.PollFetches(wait)
		cancel()
		if ctx.Err() != nil || fetches.IsClientClosed() {
			return
		}
		quiet++
		g.take(fetches, &quiet)
	}
}

// caughtUp reports whether the feed has all records before ends.
func (g *Gateway) caughtUp(ends flow.Position) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for p, end := range ends {
		if g.feed.Read(int32(p)) < end {
			return false
		}
	}
	return true
}

// take adds what was fetched. What says that there may be more sets quiet to 0.
func (g *Gateway) take(fetches kgo.Fetches, quiet *int) {
	fetches.EachError(func(t string, p int32, err error) {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return
		}
		*quiet = 0
		g.stats.readErrors.Add(1)
		g.o.Logger.Warn("read patches", "topic", t, "partition", p, "error", err)
	})
	now := time.Now()
	fetches.EachRecord(func(r *kgo.Record) {
		*quiet = 0
		g.record(now, r)
	})
}

// record adds one record and offers what it releases.
func (g *Gateway) record(now time.Time, r *kgo.Record) {
	patch, err := event.ParsePatch(r.Value)
	if err != nil {
		g.o.Logger.Warn("a record is no patch", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		g.offer(g.feed.Add(now, r.Partition, r.Offset, nil))
		return
	}
	g.offer(g.feed.Add(now, r.Partition, r.Offset, &patch))
}

// ticker does what time asks for.
func (g *Gateway) ticker(ctx context.Context, client *kgo.Client, id kadm.TopicID, stop context.CancelCauseFunc) {
	conns, held, parts := time.NewTicker(tickEvery), time.NewTicker(heldEvery), time.NewTicker(partsEvery)
	defer conns.Stop()
	defer held.Stop()
	defer parts.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-conns.C:
			g.tick(now)
		case now := <-held.C:
			g.mu.Lock()
			if g.feed.Stats().Held > 0 {
				g.offer(g.feed.Tick(now))
			}
			g.mu.Unlock()
		case <-parts.C:
			if err := g.partitions(ctx, client, id); errors.Is(err, ErrTopic) {
				stop(err)
			} else if err != nil && ctx.Err() == nil {
				g.o.Logger.Warn("look for new partitions", "topic", g.o.Topic, "error", err)
			}
		}
	}
}

// partitions begins to read partitions that were added.
func (g *Gateway) partitions(ctx context.Context, client *kgo.Client, id kadm.TopicID) error {
	ctx, cancel := context.WithTimeout(ctx, partsEvery)
	defer cancel()
	topics, err := kadm.NewClient(client).ListTopics(ctx, g.o.Topic)
	if err != nil {
		return err
	}
	d := topics[g.o.Topic]
	switch {
	case errors.Is(d.Err, kerr.UnknownTopicOrPartition):
		return d.Err
	case d.Err != nil:
		return d.Err
	case d.ID != id:
		return ErrTopic
	}
	g.mu.Lock()
	known := g.feed.Partitions()
	g.mu.Unlock()
	added := map[int32]kgo.Offset{}
	for _, p := range d.Partitions.Numbers() {
		if int(p) >= known {
			added[p] = kgo.NewOffset().AtStart()
		}
	}
	if len(added) > 0 {
		client.AddConsumePartitions(map[string]map[int32]kgo.Offset{g.o.Topic: added})
	}
	return nil
}
