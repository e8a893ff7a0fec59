package node

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/store"
)

// seen is what the members of a group have been given, by partition.
type seen struct {
	mu  sync.Mutex
	got map[string]int
}

func (s *seen) add(r *kgo.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.got == nil {
		s.got = map[string]int{}
	}
	s.got[string(r.Value)]++
}

// has returns how many different records came, and how often one came again.
func (s *seen) has() (different, again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.got {
		again += n - 1
	}
	return len(s.got), again
}

// consume has a member of a group consume by way of a node, and commit what it got, until
// the test ends or stop is called.
func (s *seen) consume(t *testing.T, n *Node, group, topic string, opts ...kgo.Opt) (stop func()) {
	t.Helper()
	cl := client(t, n, append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.SessionTimeout(10 * time.Second), kgo.RebalanceTimeout(20 * time.Second),
		kgo.DisableAutoCommit(), kgo.FetchMaxWait(200 * time.Millisecond),
	}, opts...)...)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			poll, end := context.WithTimeout(ctx, 300*time.Millisecond)
			cl.PollFetches(poll).EachRecord(s.add)
			end()
			_ = cl.CommitUncommittedOffsets(ctx) // who was evicted may not, and gets the records again; who is joining, the next time
		}
	}()
	return func() {
		cancel()
		<-over
		cl.Close()
	}
}

// quick makes the nodes' groups wait for nobody.
func quick(c *Config) { c.Groups.RebalanceDelayMs = 100 }

// fill produces numbered records, spread over all partitions.
func fill(t *testing.T, n *Node, topic string, from, to int) {
	t.Helper()
	cl := client(t, n, kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	for i := from; i < to; i++ {
		cl.Produce(t.Context(), kgo.StringRecord(strconv.Itoa(i)), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("record %d: %v", i, err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// committed returns the sum of a group's committed offsets, as a node answers them.
func committed(t *testing.T, n *Node, group string, topic store.Topic) (sum int64) {
	t.Helper()
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	rt := kmsg.NewOffsetFetchRequestTopic()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	rt.Topic = topic.Name
	gt := kmsg.NewOffsetFetchRequestGroupTopic()
	gt.Topic, gt.TopicID = topic.Name, topic.ID
	for i := range topic.Partitions {
		rt.Partitions, gt.Partitions = append(rt.Partitions, i), append(gt.Partitions, i)
	}
	req.Topics, g.Topics = append(req.Topics, rt), append(g.Topics, gt)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(t.Context(), client(t, n))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range resp.Groups {
		for _, gt := range g.Topics {
			for _, p := range gt.Partitions {
				sum += max(p.Offset, 0)
			}
		}
	}
	return sum
}

// protocols are the two that groups speak.
func protocols() map[string][]kgo.Opt {
	//lint:ignore SA1029 the client's own name for it
	next := context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
	return map[string][]kgo.Opt{"classic": nil, "consumer": {kgo.WithContext(next)}}
}

// homeIs waits until a store takes a node for a group's home.
func homeIs(t *testing.T, st, of *store.Store, group string) {
	t.Helper()
	soon(t, "the home of the group", func() bool {
		h, ok := st.GroupHome(group)
		return ok && h.Node == of.Info().Node
	})
}

// TestGroupOfTwoNodes: members on two nodes are one group, of either protocol: each
// partition is one member's, the group's home is where it was first used, both nodes
// answer alike, and a move while records come loses and skips none.
func TestGroupOfTwoNodes(t *testing.T) {
	c := newCouple(t, quick)
	for name, opts := range protocols() {
		t.Run(name, func(t *testing.T) {
			topic := c.topic("of-"+name, 4)
			s := &seen{}
			s.consume(t, c.a, name, topic.Name, opts...)
			homeIs(t, c.sb, c.sa, name)
			stop := s.consume(t, c.b, name, topic.Name, opts...)
			soon(t, "two members", func() bool { return members(t, c.a, name) == 2 && members(t, c.b, name) == 2 })
			if d, err := c.sa.Groups().Describe(name); err != nil || d.Type.String() != name {
				t.Errorf("a group of type %s: %v", d.Type, err)
			}
			fill(t, c.a, topic.Name, 0, 200)
			soon(t, "all records", func() bool { n, _ := s.has(); return n == 200 })
			soon(t, "all commits, at both nodes", func() bool {
				return committed(t, c.a, name, topic) == 200 && committed(t, c.b, name, topic) == 200
			})
			if _, again := s.has(); again > 100 { // what was read before the second member came
				t.Errorf("%d records came again", again)
			}

			moved := make(chan error, 1)
			go func() { moved <- c.sa.MoveGroup(name, c.sb.Info().Node) }()
			fill(t, c.b, topic.Name, 200, 600)
			if err := <-moved; err != nil {
				t.Fatal(err)
			}
			homeIs(t, c.sa, c.sb, name)
			soon(t, "all records after the move", func() bool { n, _ := s.has(); return n == 600 })
			soon(t, "all commits after the move", func() bool {
				return committed(t, c.a, name, topic) == 600 && committed(t, c.b, name, topic) == 600
			})
			soon(t, "two members after the move", func() bool { return members(t, c.a, name) == 2 && members(t, c.b, name) == 2 })
			stop()
			soon(t, "one member", func() bool { return members(t, c.a, name) == 1 })
		})
	}
}

// members counts a group's members, as a node answers; -1: it does not say.
func members(t *testing.T, n *Node, group string) int {
	t.Helper()
	cl := client(t, n)
	defer cl.Close()
	d := kmsg.NewPtrConsumerGroupDescribeRequest()
	d.Groups = []string{group}
	resp, err := d.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	if g := resp.Groups[0]; g.ErrorCode == 0 {
		return len(g.Members)
	}
	q := kmsg.NewPtrDescribeGroupsRequest()
	q.Groups = []string{group}
	old, err := q.RequestWith(t.Context(), cl)
	if err != nil || old.Groups[0].ErrorCode != 0 {
		return -1
	}
	return len(old.Groups[0].Members)
}

// states lists groups and their states, as a node answers.
func states(t *testing.T, n *Node) map[string]string {
	t.Helper()
	cl := client(t, n)
	defer cl.Close()
	resp, err := kmsg.NewPtrListGroupsRequest().RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, g := range resp.Groups {
		if _, twice := out[g.Group]; twice {
			t.Errorf("group %s is listed twice", g.Group)
		}
		out[g.Group] = g.GroupState
	}
	return out
}

// TestHomeAway: while a group's home is off its members elsewhere wait, and go on when it is
// back; another node takes it only if told to; and where the node is set to it coordinates
// meanwhile.
func TestHomeAway(t *testing.T) {
	for _, mode := range []string{"home", "local"} {
		t.Run(mode, func(t *testing.T) {
			c := newCouple(t, quick, func(cfg *Config) { cfg.Groups.Availability = mode })
			topic := c.topic("t", 2)
			if _, err := c.sa.Coordinator("g", true); err != nil {
				t.Fatal(err)
			}
			homeIs(t, c.sb, c.sa, "g")
			// What b leads can be read there while a is off.
			for i := range topic.Partitions {
				lead(t, c, topic, i)
			}
			s := &seen{}
			s.consume(t, c.b, "g", "t")
			fill(t, c.b, "t", 0, 50)
			soon(t, "the first records", func() bool { n, _ := s.has(); return n == 50 })
			soon(t, "their commits", func() bool { return committed(t, c.b, "g", topic) == 50 })
			if err := c.stopA(); err != nil {
				t.Fatal(err)
			}
			soon(t, "the home to be away", func() bool { return !c.sb.Reaches(c.sa.Info().Node) })
			fill(t, c.b, "t", 50, 100)
			switch mode {
			case "home":
				if _, err := c.sb.Coordinator("g", true); err == nil {
					t.Error("it coordinates a group whose home is away")
				}
				if got := states(t, c.b); !maps.Equal(got, map[string]string{"g": "Unknown"}) {
					t.Errorf("listed: %v", got)
				}
				if err := c.sb.MoveGroup("g", c.sb.Info().Node); err == nil {
					t.Error("it moved a group that is at home elsewhere")
				}
			case "local":
				soon(t, "commits without the home", func() bool { return len(own(c.sb, "g")) > 0 && sum(c.sb, "g") == 100 })
			}
			c.a, c.stopA = runNode(t, c.ca)
			c.sa = defaultOf(t, c.a)
			soon(t, "all records", func() bool { n, _ := s.has(); return n == 100 })
			fill(t, c.b, "t", 100, 150)
			soon(t, "all records when it is back", func() bool { n, _ := s.has(); return n == 150 })
			soon(t, "their commits, at the home", func() bool { return sum(c.sa, "g") == 150 })
			soon(t, "its member, at the home", func() bool { return len(own(c.sa, "g")) == 1 && members(t, c.b, "g") == 1 })

			if err := c.stopA(); err != nil {
				t.Fatal(err)
			}
			soon(t, "the home to be away again", func() bool { return !c.sb.Reaches(c.sa.Info().Node) })
			if err := c.sb.TakeGroup("g", c.sb.Info().Node); err != nil {
				t.Fatal(err)
			}
			fill(t, c.b, "t", 150, 200)
			soon(t, "records without the old home", func() bool { n, _ := s.has(); return n == 200 })
			c.a, c.stopA = runNode(t, c.ca)
			c.sa = defaultOf(t, c.a)
			homeIs(t, c.sa, c.sb, "g")
			soon(t, "both to list it alike", func() bool {
				want := map[string]string{"g": "Stable"}
				return maps.Equal(states(t, c.a), want) && maps.Equal(states(t, c.b), want)
			})
		})
	}
}

// lead gives a partition to node b.
func lead(t *testing.T, c *couple, topic store.Topic, n int32) {
	t.Helper()
	tp := lattice.TopicPartition{Topic: topic.ID, Partition: n}
	soon(t, "b to be reached", func() bool { return c.sa.MayLead(c.sb.Info().Node) == nil })
	if err := c.sa.Lead(t.Context(), tp, c.sb.Info().Node, time.Minute); err != nil {
		t.Fatal(err)
	}
	soon(t, "b to lead", func() bool { p, err := c.sb.Partition(tp.Topic, n); return err == nil && p.Leads() })
}

// sum is what a store knows that a group has committed, of all partitions.
func sum(st *store.Store, name string) (all int64) {
	for _, o := range st.Groups().FetchOffsets(group.FetchRequest{Group: name, MemberEpoch: -1, All: true}).Offsets {
		all += max(o.Offset, 0)
	}
	return all
}

// own lists the members that a store's own coordinator has.
func own(st *store.Store, name string) []string {
	d, err := st.Groups().Describe(name)
	if err != nil {
		return nil
	}
	var ids []string
	for _, m := range d.Members {
		ids = append(ids, m.ID)
	}
	return ids
}

// TestFirstUseApart: two nodes that do not reach each other begin to use a group; when they
// meet it has one home, the same on both, and one set of members.
func TestFirstUseApart(t *testing.T) {
	c := newCouple(t, quick)
	topic := c.topic("t", 2)
	c.cut(true)
	soon(t, "the nodes to be apart", func() bool {
		return !c.sa.Reaches(c.sb.Info().Node) && !c.sb.Reaches(c.sa.Info().Node)
	})
	s := &seen{}
	s.consume(t, c.a, "g", "t")
	s.consume(t, c.b, "g", "t")
	soon(t, "a member at each", func() bool { return len(own(c.sa, "g")) == 1 && len(own(c.sb, "g")) == 1 })
	c.cut(false)
	soon(t, "one home", func() bool {
		x, ok := c.sa.GroupHome("g")
		y, there := c.sb.GroupHome("g")
		return ok && there && x == y
	})
	soon(t, "one set of members", func() bool {
		return len(own(c.sa, "g"))+len(own(c.sb, "g")) == 2 && members(t, c.a, "g") == 2 && members(t, c.b, "g") == 2
	})
	fill(t, c.b, "t", 0, 100)
	soon(t, "all records", func() bool { n, _ := s.has(); return n == 100 })
	soon(t, "all commits", func() bool { return committed(t, c.b, "g", topic) == 100 })
}
