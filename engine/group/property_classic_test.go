package group

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// classicClient behaves as a client of the classic protocol does. Its requests
// are answered through once, which fails the test on a second answer.
type classicClient struct {
	t        *rapid.T
	w        *world
	name     string
	instance string
	v4       bool

	id         string
	generation int32
	seen       int32 // the greatest generation ever told
	waiting    bool  // a request is parked
	joined     bool
	leads      bool
	members    []JoinedMember
	assigned   bool
	holds      []int32
	dead       bool
	calls      int // requests with a reply
	answers    int
}

const classicPartitions = 7

// step does what the client would do next.
func (c *classicClient) step() {
	switch {
	case c.dead || c.waiting:
	case !c.joined:
		c.join()
	case !c.assigned:
		c.sync()
	default:
		c.handle(c.w.Heartbeat(HeartbeatRequest{Group: "g", MemberID: c.id, InstanceID: c.instance, Generation: c.generation}))
	}
}

func (c *classicClient) handle(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrRebalanceInProgress), errors.Is(err, ErrIllegalGeneration):
		c.joined, c.assigned, c.holds = false, false, nil
	case errors.Is(err, ErrUnknownMember):
		c.id, c.joined, c.assigned, c.holds = "", false, false, nil
	case errors.Is(err, ErrMemberIDRequired):
	case errors.Is(err, ErrFencedInstance):
		c.dead = true
	default:
		c.t.Fatalf("%s: unexpected %v", c.name, err)
	}
}

func (c *classicClient) join() {
	c.waiting = true
	c.calls++
	answered := false
	c.w.Join(JoinRequest{
		Group: "g", MemberID: c.id, InstanceID: c.instance, Client: Client{ID: c.name},
		Session: 10 * time.Second, Rebalance: 20 * time.Second, ProtocolType: consumerProtocol, NeedsMemberID: c.v4,
		Protocols: []Protocol{{Name: "range", Metadata: subscription("t")}},
	}, func(r JoinResult) {
		if answered {
			c.t.Fatalf("%s: a join was answered twice", c.name)
		}
		answered = true
		c.answers++
		if c.dead {
			return
		}
		c.waiting = false
		if r.Err != nil {
			if errors.Is(r.Err, ErrMemberIDRequired) {
				c.id = r.MemberID
			}
			c.handle(r.Err)
			return
		}
		if r.Generation < c.seen {
			c.t.Fatalf("%s: generation went from %d to %d", c.name, c.seen, r.Generation)
		}
		c.seen = r.Generation
		c.id, c.generation, c.joined, c.leads, c.members = r.MemberID, r.Generation, true, r.Leader == r.MemberID, r.Members
	})
}

func (c *classicClient) sync() {
	r := SyncRequest{Group: "g", MemberID: c.id, InstanceID: c.instance, Generation: c.generation}
	if c.leads {
		shares := make([][]int32, len(c.members))
		for p := range int32(classicPartitions) {
			i := int(p) % len(shares)
			shares[i] = append(shares[i], p)
		}
		for i, m := range c.members {
			r.Assignments = append(r.Assignments, MemberAssignment{MemberID: m.ID, Assignment: assignment("t", shares[i]...)})
		}
	}
	c.waiting = true
	c.calls++
	answered := false
	c.w.Sync(r, func(r SyncResult) {
		if answered {
			c.t.Fatalf("%s: a sync was answered twice", c.name)
		}
		answered = true
		c.answers++
		if c.dead {
			return
		}
		c.waiting = false
		if r.Err != nil {
			c.handle(r.Err)
			return
		}
		c.assigned = true
		c.holds = nil
		all, err := parseAssignment(r.Assignment)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, a := range all {
			c.holds = append(c.holds, a.Partitions...)
		}
	})
}

// TestClassicSettles lets clients come, go, hang and restart at random, and
// then behave. Whatever happened before: the group becomes Stable, every
// partition is with exactly one client, generations only went up, and no
// request was answered twice, or is left unanswered when the manager closes.
func TestClassicSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorldRapid(t)
		w.topics.create("t", classicPartitions)
		var clients []*classicClient
		some := func() *classicClient {
			if len(clients) == 0 {
				return &classicClient{t: t, w: w, dead: true}
			}
			return rapid.SampledFrom(clients).Draw(t, "client")
		}
		t.Repeat(map[string]func(*rapid.T){
			"arrive": func(t *rapid.T) {
				if len(clients) > 8 {
					return
				}
				c := &classicClient{t: t, w: w, name: fmt.Sprint("c", len(clients)), v4: rapid.Bool().Draw(t, "v4")}
				c.instance = rapid.SampledFrom([]string{"", "", "A", "B"}).Draw(t, "instance")
				clients = append(clients, c)
				c.step()
			},
			"step":  func(t *rapid.T) { some().step() },
			"crash": func(t *rapid.T) { some().dead = true },
			"leave": func(t *rapid.T) {
				if c := some(); !c.dead && c.id != "" {
					w.Leave(LeaveRequest{Group: "g", Members: []LeavingMember{{MemberID: c.id}}})
					c.dead = true
				}
			},
			"restart": func(t *rapid.T) {
				if c := some(); !c.dead && c.instance != "" {
					c.dead = true
					clients = append(clients, &classicClient{t: t, w: w, name: c.name + "'", instance: c.instance})
				}
			},
			"rejoin": func(t *rapid.T) { // gave up waiting and asks again
				if c := some(); !c.dead {
					c.waiting, c.joined, c.assigned, c.holds = false, false, false, nil
					c.step()
				}
			},
			"time": func(t *rapid.T) {
				w.clock.Advance(time.Duration(rapid.IntRange(1, 15_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				if err := w.verify(); err != nil {
					t.Fatal(err)
				}
			},
		})
		for range 400 {
			for _, c := range clients {
				c.t = t
				c.step()
			}
			w.clock.Advance(time.Second)
		}
		checkClassicSettled(t, w, clients)
		w.close()
		for _, c := range clients {
			if c.calls != c.answers {
				t.Fatalf("%s: %d requests, %d answers", c.name, c.calls, c.answers)
			}
		}
	})
}

func checkClassicSettled(t *rapid.T, w *world, clients []*classicClient) {
	var held []int32
	alive := 0
	for _, c := range clients {
		if !c.dead {
			alive++
			held = append(held, c.holds...)
			if !c.assigned {
				t.Fatalf("%s has no assignment (joined %v, waiting %v)", c.name, c.joined, c.waiting)
			}
		}
	}
	if len(w.entries()) == 0 {
		if alive > 0 {
			t.Fatal("clients without a group")
		}
		return
	}
	d, err := w.Describe("g")
	if err != nil {
		t.Fatal(err)
	}
	if alive == 0 {
		if d.State != Empty {
			t.Fatalf("everybody is gone, the group is %s with %d members", d.State, len(d.Members))
		}
		return
	}
	slices.Sort(held)
	if d.State != Stable || len(d.Members) != alive || !slices.Equal(held, []int32{0, 1, 2, 3, 4, 5, 6}) {
		t.Fatalf("%d clients hold %v of a %s group with %d members", alive, held, d.State, len(d.Members))
	}
}

func newWorldRapid(t *rapid.T) *world {
	w := &world{offsets: newMemOffsets(), topics: newMemTopics()}
	w.clock = newManualClock()
	cfg := testConfig(w.clock)
	m, err := New(cfg, w.offsets, w.topics)
	if err != nil {
		t.Fatal(err)
	}
	w.Manager = m
	return w
}

// TestClassicStrangers sends requests that follow no protocol at all, with ids
// and generations that are right now and then. Nothing panics, the group's own
// rules hold after every step, generations only go up, and every request is
// answered exactly once.
func TestClassicStrangers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorldRapid(t)
		w.topics.create("t", 3)
		ids := []string{"", "nobody"}
		answers := map[int]int{}
		asked := 0
		last := int32(0)
		ask := func() int { asked++; return asked }
		id := func(t *rapid.T) string { return rapid.SampledFrom(ids).Draw(t, "id") }
		instance := func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"", "", "A", "B"}).Draw(t, "instance")
		}
		generation := func(t *rapid.T) int32 {
			return rapid.SampledFrom([]int32{last, last, last - 1, -1, 0, 1}).Draw(t, "generation")
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				n := ask()
				protocols := rapid.SampledFrom([][]Protocol{
					{{Name: "a", Metadata: subscription("t")}}, {{Name: "a", Metadata: []byte("x")}, {Name: "b"}}, {{Name: "b"}}, nil,
				}).Draw(t, "protocols")
				w.Join(JoinRequest{
					Group: "g", MemberID: id(t), InstanceID: instance(t), ProtocolType: "consumer", Protocols: protocols,
					Session:       rapid.SampledFrom([]time.Duration{0, 6 * time.Second, time.Minute}).Draw(t, "session"),
					Rebalance:     rapid.SampledFrom([]time.Duration{-1, 0, time.Millisecond, time.Minute}).Draw(t, "rebalance"),
					NeedsMemberID: rapid.Bool().Draw(t, "v4"), CanSkipAssignment: rapid.Bool().Draw(t, "v9"),
				}, func(r JoinResult) {
					answers[n]++
					if r.MemberID != "" && !slices.Contains(ids, r.MemberID) {
						ids = append(ids, r.MemberID)
					}
				})
			},
			"sync": func(t *rapid.T) {
				n := ask()
				w.Sync(SyncRequest{
					Group: "g", MemberID: id(t), InstanceID: instance(t), Generation: generation(t),
					Assignments: []MemberAssignment{{MemberID: id(t), Assignment: []byte("x")}},
				}, func(SyncResult) { answers[n]++ })
			},
			"heartbeat": func(t *rapid.T) {
				_ = w.Heartbeat(HeartbeatRequest{Group: "g", MemberID: id(t), InstanceID: instance(t), Generation: generation(t)}) // any answer will do
			},
			"leave": func(t *rapid.T) {
				w.Leave(LeaveRequest{Group: "g", Members: []LeavingMember{{MemberID: id(t), InstanceID: instance(t)}, {MemberID: id(t)}}})
			},
			"commit": func(t *rapid.T) {
				n := ask()
				w.CommitOffsets(CommitRequest{
					Group: "g", MemberID: id(t), InstanceID: instance(t), Generation: generation(t), Offsets: []OffsetCommit{{TopicPartition: w.tp("t", 0)}},
				}, func(CommitResult) { answers[n]++ })
			},
			"delete": func(t *rapid.T) {
				n := ask()
				w.DeleteGroup("g", func(error) { answers[n]++ })
			},
			"settle": func(*rapid.T) { w.settle(); w.expire() },
			"time": func(t *rapid.T) {
				w.clock.Advance(time.Duration(rapid.IntRange(0, 70_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				if err := w.verify(); err != nil {
					t.Fatal(err)
				}
				d, err := w.Describe("g")
				switch {
				case err != nil:
					last = 0 // a group that was deleted begins anew
				case d.Epoch < last:
					t.Fatalf("generation went from %d to %d", last, d.Epoch)
				default:
					last = d.Epoch
				}
			},
		})
		w.settle()
		w.close()
		for n := 1; n <= asked; n++ {
			if answers[n] != 1 {
				t.Fatalf("request %d of %d was answered %d times", n, asked, answers[n])
			}
		}
	})
}
