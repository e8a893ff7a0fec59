package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// group reads the topic that keeps everything. Its members come, leave, and vanish.
type group struct {
	name string
	opts []kgo.Opt

	mu         sync.Mutex
	places     []place // by partition
	generation int32
}

// place is what a group was told of one partition.
type place struct {
	acked, tried int64    // the greatest offset whose commit was acknowledged, and was asked for
	delivered    []uint64 // a bit for each offset that a member was given
}

const (
	mostMembers = 4
	commitEvery = 300 * time.Millisecond
)

func newGroups(s *soak) []*group {
	server := []kgo.Opt{kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()}
	var all []*group
	for name, opts := range map[string][]kgo.Opt{
		"eager": {kgo.Balancers(kgo.RangeBalancer())}, "cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())}, "server": server,
	} {
		all = append(all, &group{name: name, opts: opts, places: make([]place, len(s.kept.ledgers))})
	}
	return all
}

// run keeps one to four members.
func (g *group) run(s *soak, rng *rand.Rand) {
	var wg sync.WaitGroup
	defer wg.Wait()
	var ends []chan bool // of the members: false tells one to leave, true to vanish
	join := func() {
		end := make(chan bool, 1)
		ends = append(ends, end)
		wg.Go(func() { g.member(s, end) })
	}
	join()
	for s.sleep(time.Duration(1000+rng.IntN(7000)) * time.Millisecond) {
		if len(ends) == 1 || len(ends) < mostMembers && rng.IntN(2) == 0 {
			join()
			continue
		}
		i := rng.IntN(len(ends))
		ends[i] <- rng.IntN(4) == 0
		ends = append(ends[:i], ends[i+1:]...)
	}
}

// member reads, and commits what it read, until it is told to end or the run ends.
func (g *group) member(s *soak, end <-chan bool) {
	wire := &wire{}
	c := s.dial(append([]kgo.Opt{
		kgo.ConsumerGroup(g.name), kgo.ConsumeTopics(s.kept.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.SessionTimeout(8 * time.Second), kgo.FetchMaxWait(250 * time.Millisecond),
		kgo.BlockRebalanceOnPoll(), kgo.Dialer(wire.dial), kgo.RetryTimeout(10 * time.Second), // also of one that cannot leave
		kgo.OnPartitionsAssigned(func(_ context.Context, c *kgo.Client, _ map[string][]int32) { g.assigned(s, c) }),
	}, g.opts...)...)
	vanish := false
	for next := time.Now(); s.ctx.Err() == nil; {
		poll, cancel := context.WithTimeout(s.ctx, 500*time.Millisecond)
		fs := c.PollFetches(poll)
		cancel()
		g.deliver(fs)
		if now := time.Now(); now.After(next) {
			g.commit(s, c)
			next = now.Add(commitEvery)
		}
		c.AllowRebalance()
		select {
		case vanish = <-end:
		default:
			continue
		}
		break
	}
	if vanish {
		wire.cut()
		gone, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.LeaveGroupContext(gone) // it cannot: the node must notice
	} else {
		g.commit(s, c)
	}
	c.CloseAllowingRebalance()
}

func (g *group) assigned(s *soak, c *kgo.Client) {
	_, generation := c.GroupMetadata()
	g.mu.Lock()
	defer g.mu.Unlock()
	if generation != g.generation {
		g.generation = generation
		s.rebalances.Add(1)
	}
}

func (g *group) deliver(fs kgo.Fetches) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fs.EachRecord(func(r *kgo.Record) {
		p := &g.places[r.Partition]
		for int64(len(p.delivered)) <= r.Offset/64 {
			p.delivered = append(p.delivered, 0)
		}
		p.delivered[r.Offset/64] |= 1 << (r.Offset % 64)
	})
}

// commit commits what the member was given, and keeps what was asked and what was
// acknowledged. An error leaves the outcome open.
func (g *group) commit(s *soak, c *kgo.Client) {
	offsets := c.UncommittedOffsets()
	if len(offsets) == 0 {
		return
	}
	g.mu.Lock()
	for p, o := range offsets[s.kept.name] {
		g.places[p].tried = max(g.places[p].tried, o.Offset)
	}
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 {
					g.places[p.Partition].acked = max(g.places[p.Partition].acked, offsets[s.kept.name][p.Partition].Offset)
					s.commits.Add(1)
				}
			}
		}
	})
}

// checkCommits holds the groups' committed offsets to what was acknowledged.
func (s *soak) checkCommits(ctx context.Context, a *kadm.Client) {
	for _, g := range s.groups {
		g.mu.Lock()
		before := append([]place(nil), g.places...)
		g.mu.Unlock()
		at := s.committed(ctx, a, g.name, s.kept)
		g.mu.Lock()
		for p, o := range at {
			if o < before[p].acked || o > g.places[p].tried {
				s.wrong("group %s is at %d of %s/%d; %d was acknowledged and %d is the last that was asked for", g.name, o, s.kept.name, p, before[p].acked, g.places[p].tried)
			}
		}
		g.mu.Unlock()
	}
}

// committed returns a group's offsets by partition, 0 where it has none.
func (s *soak) committed(ctx context.Context, a *kadm.Client, group string, t *topic) []int64 {
	got, err := a.FetchOffsets(ctx, group)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		s.wrong("offsets of group %s: %v", group, err)
		return nil
	}
	at := make([]int64, len(t.ledgers))
	for p := range at {
		if o, ok := got.Lookup(t.name, int32(p)); ok {
			at[p] = max(o.At, 0)
		}
	}
	return at
}

// skipped returns the first offset below end that no member was given, -1 if none.
func (p *place) skipped(end int64) int64 {
	for o := range end {
		if i := o / 64; i >= int64(len(p.delivered)) || p.delivered[i]&(1<<(o%64)) == 0 {
			return o
		}
	}
	return -1
}

// drain lets the groups and the copiers come to the ends of their topics, and checks
// that they were given everything on the way.
func (s *soak) drain() {
	s.ctx, s.end = context.WithCancel(s.t.Context())
	for _, g := range s.groups {
		s.clients.Go(func() { g.member(s, nil) })
	}
	s.client(900, s.txns.copy)
	s.drained()
	s.end()
	s.clients.Wait()
	for _, g := range s.groups {
		for p := range g.places {
			if o := g.places[p].skipped(g.places[p].acked); o >= 0 {
				s.wrong("group %s was never given offset %d of %s/%d, and is at %d", g.name, o, s.kept.name, p, g.places[p].acked)
			}
		}
	}
}

func (s *soak) drained() {
	ctx, cancel := context.WithTimeout(s.ctx, 2*patience)
	defer cancel()
	c := s.dial()
	defer c.Close()
	a := kadm.NewClient(c)
	ends := make([]int64, len(s.kept.ledgers))
	for p, l := range s.kept.ledgers {
		ends[p] = int64(len(l.sums))
	}
	copied := s.spans(ctx, a, s.pairA, true)
	if !s.ends(ctx, a, copied) {
		return
	}
	behind := func() string {
		for _, g := range s.groups {
			for p, o := range s.committed(ctx, a, g.name, s.kept) {
				if o < ends[p] {
					return fmt.Sprintf("group %s at %d of %d in %s/%d", g.name, o, ends[p], s.kept.name, p)
				}
			}
		}
		for p, o := range s.committed(ctx, a, "copiers", s.pairA) {
			if o < copied[p].end {
				return fmt.Sprintf("the copiers at %d of %d in %s", o, copied[p].end, copied[p])
			}
		}
		return ""
	}
	for s.ctx.Err() == nil {
		last := behind()
		switch {
		case last == "":
			return
		case ctx.Err() != nil:
			s.wrong("the groups do not come to the end: %s", last)
			return
		}
		s.sleep(200 * time.Millisecond)
	}
}

// wire is a member's network, which can be cut.
type wire struct {
	mu   sync.Mutex
	off  bool
	open []net.Conn
}

func (w *wire) dial(ctx context.Context, network, at string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.off {
		return nil, net.ErrClosed
	}
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, at)
	if err == nil {
		w.open = append(w.open, c)
	}
	return c, err
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = true
	for _, c := range w.open {
		c.Close()
	}
}
