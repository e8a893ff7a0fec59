package group

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/tick"
	"pgregory.net/rapid"
)

func newManualClock() *tick.Manual { return tick.NewManual(epoch0) }

// consumerClient behaves as a KIP-848 client does: it uses a partition from the
// answer that gave it until it has let go of it, and only then reports so.
type consumerClient struct {
	t        *rapid.T
	w        *world
	id       string
	instance string
	topics   []string
	regex    *string

	epoch   int32
	joined  bool
	full    bool // the next heartbeat says everything
	uses    partitionSet
	wants   partitionSet // as last told
	dead    bool
	changed bool // the subscription has to be said
}

func (c *consumerClient) heartbeat(lost bool) {
	if c.dead {
		return
	}
	r := ConsumerHeartbeatRequest{Group: "g", MemberID: c.id, MemberEpoch: c.epoch, InstanceID: c.instance, ClientMakesID: true}
	if !c.joined {
		r.MemberEpoch = EpochJoin
		c.uses, c.wants = partitionSet{}, partitionSet{}
	}
	if !c.joined || c.full {
		r.Rebalance, r.Owned = 20*time.Second, []lattice.TopicPartition{}
	}
	if !c.joined || c.full || c.changed {
		r.Topics, r.Regex = append([]string{}, c.topics...), c.regex
	}
	// Owned is always the truth when it is said.
	if r.Owned != nil || !c.uses.equal(c.wants) || rapid.Bool().Draw(c.t, "owned") {
		r.Owned = append([]lattice.TopicPartition{}, c.uses.sorted()...)
	}
	res := c.w.ConsumerHeartbeat(r)
	if lost {
		c.full = true
		return
	}
	switch {
	case res.Err == nil:
	case errors.Is(res.Err, ErrUnknownMember), errors.Is(res.Err, ErrFencedMemberEpoch):
		c.joined, c.uses, c.wants = false, partitionSet{}, partitionSet{}
		return
	case errors.Is(res.Err, ErrUnreleasedInstance):
		return // it tries again
	case errors.Is(res.Err, ErrFencedInstance):
		c.dead, c.uses = true, partitionSet{}
		return
	default:
		c.t.Fatalf("%s: unexpected %v", c.id, res.Err)
	}
	if c.joined && res.MemberEpoch < c.epoch {
		c.t.Fatalf("%s: epoch went from %d to %d", c.id, c.epoch, res.MemberEpoch)
	}
	c.joined, c.full, c.changed, c.epoch = true, false, false, res.MemberEpoch
	if res.Assign {
		c.wants = partitionSet{}
		for _, a := range res.Assigned {
			for _, p := range a.Partitions {
				c.wants.add(lattice.TopicPartition{Topic: a.ID, Partition: p})
			}
		}
		for tp := range c.wants {
			c.uses.add(tp)
		}
	}
}

// release lets go of what is not wanted any more, as soon as the application is ready.
func (c *consumerClient) release() {
	for tp := range c.uses {
		if !c.wants.has(tp) {
			delete(c.uses, tp)
		}
	}
}

// checkApart fails when two living clients use one partition.
func checkApart(t *rapid.T, clients []*consumerClient) {
	users := map[lattice.TopicPartition]string{}
	for _, c := range clients {
		if c.dead {
			continue
		}
		for tp := range c.uses {
			if other, ok := users[tp]; ok {
				t.Fatalf("%s and %s both use %s", other, c.id, tp)
			}
			users[tp] = c.id
		}
	}
}

// TestConsumersNeverShare lets clients come, go, hang, lose answers, change
// their minds and the topics change, at random. At no moment do two living
// clients use one partition. When all behave at last, the group becomes Stable,
// and every partition that somebody subscribes to is with exactly one client.
//
// A client that hangs for longer than its session stops using its partitions
// (in Kafka's clients that is the poll timeout's task), so time never passes
// here for longer than that without heartbeats of those that live.
func TestConsumersNeverShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorldRapid(t)
		w.topics.create("t0", 3)
		w.topics.create("t1", 4)
		var clients []*consumerClient
		some := func(t *rapid.T) *consumerClient {
			if len(clients) == 0 {
				return &consumerClient{t: t, w: w, dead: true}
			}
			c := rapid.SampledFrom(clients).Draw(t, "client")
			c.t = t
			return c
		}
		subscribe := func(t *rapid.T, c *consumerClient) {
			c.topics = rapid.SliceOfDistinct(rapid.SampledFrom([]string{"t0", "t1", "t2"}), rapid.ID).Draw(t, "topics")
			regex := rapid.SampledFrom([]string{"", "t.*", "t2"}).Draw(t, "regex")
			c.regex, c.changed = &regex, true
		}
		arrive := func(t *rapid.T, instance string) {
			c := &consumerClient{t: t, w: w, id: fmt.Sprintf("c%02d", len(clients)), instance: instance, uses: partitionSet{}, wants: partitionSet{}}
			subscribe(t, c)
			clients = append(clients, c)
			c.heartbeat(false)
		}
		all := func(t *rapid.T) {
			for _, c := range clients {
				c.t = t
				c.heartbeat(false)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				if len(clients) < 10 {
					arrive(t, rapid.SampledFrom([]string{"", "", "A", "B"}).Draw(t, "instance"))
				}
			},
			"heartbeat": func(t *rapid.T) { some(t).heartbeat(false) },
			"lost":      func(t *rapid.T) { some(t).heartbeat(true) },
			"release":   func(t *rapid.T) { some(t).release() },
			"subscribe": func(t *rapid.T) { subscribe(t, some(t)) },
			"rejoin":    func(t *rapid.T) { c := some(t); c.joined, c.uses = false, partitionSet{} },
			"crash":     func(t *rapid.T) { some(t).dead = true },
			"leave": func(t *rapid.T) {
				c := some(t)
				if c.dead || !c.joined {
					return
				}
				c.uses, c.dead = partitionSet{}, true
				if c.instance == "" {
					w.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: "g", MemberID: c.id, MemberEpoch: EpochLeave})
					return
				}
				w.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: "g", MemberID: c.id, MemberEpoch: EpochLeaveStatic, InstanceID: c.instance})
				if rapid.Bool().Draw(t, "comes back") {
					arrive(t, c.instance)
				}
			},
			"topics": func(t *rapid.T) {
				switch rapid.IntRange(0, 2).Draw(t, "change") {
				case 0:
					info, _ := w.topics.TopicByName("t0")
					w.topics.grow("t0", info.Partitions+1)
				case 1:
					w.topics.create("t2", 2)
				default:
					w.TopicDeleted(w.topics.remove("t2"))
				}
				w.TopicsChanged()
			},
			"time": func(t *rapid.T) {
				all(t)
				w.clock.Advance(time.Duration(rapid.IntRange(1, 44_000).Draw(t, "ms")) * time.Millisecond)
				all(t)
			},
			"": func(t *rapid.T) {
				checkApart(t, clients)
				if err := w.verify(); err != nil {
					t.Fatal(err)
				}
			},
		})
		for range 40 {
			all(t)
			checkApart(t, clients)
			for _, c := range clients {
				c.release()
			}
			w.clock.Advance(5 * time.Second)
		}
		checkConsumersSettled(t, w, clients)
	})
}

func checkConsumersSettled(t *rapid.T, w *world, clients []*consumerClient) {
	want := partitionSet{}
	got := map[lattice.TopicPartition]int{}
	alive := 0
	for _, c := range clients {
		if c.dead || !c.joined { // not joined: another one holds its instance id
			continue
		}
		alive++
		for _, topic := range w.topics.AllTopics() {
			if slices.Contains(c.topics, topic.Name) || *c.regex == topic.Name || *c.regex == "t.*" {
				for p := range topic.Partitions {
					want.add(lattice.TopicPartition{Topic: topic.ID, Partition: p})
				}
			}
		}
		for tp := range c.uses {
			got[tp]++
		}
		if !c.uses.equal(c.wants) {
			t.Fatalf("%s uses %v, may use %v", c.id, c.uses.sorted(), c.wants.sorted())
		}
	}
	if alive == 0 {
		return
	}
	if d, err := w.Describe("g"); err != nil || d.State != Stable || len(d.Members) != alive {
		t.Fatalf("the group is %s with %d members for %d clients (%v)", d.State, len(d.Members), alive, err)
	}
	for tp := range want {
		if got[tp] != 1 {
			t.Fatalf("%s is used by %d clients", tp, got[tp])
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d partitions are used, %d are subscribed to", len(got), len(want))
	}
}
