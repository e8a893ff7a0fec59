package clients

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

const shared = 6 // partitions of a group's topic

// groups: a second member joins while records come in, and leaves again. Every
// record is seen, and the group ends where the partitions end.
func (b *bench) groups(t *testing.T) {
	b.each(t, func(t *testing.T, c client) {
		for _, way := range c.group {
			t.Run(way.name, func(t *testing.T) {
				t.Parallel()
				b.rebalance(t, c, way)
			})
		}
	})
}

func (b *bench) rebalance(t *testing.T, c client, way balancer) {
	m := membership{at: b.at, topic: name("group", c.name, way.name), group: name("by", c.name, way.name), balancer: way.name}
	makeTopic(t, b.at, m.topic, shared)
	writes := writeOn(t, b.at, m.topic)

	first := c.join(t, m)
	owns(t, first, shared)
	until(t, "the first member reads", func() (string, bool) { return first.String(), first.reads() > 50 })
	before := len(first.history())

	second := c.join(t, m)
	halves(t, first, second)
	until(t, "the second member reads", func() (string, bool) { return second.String(), second.reads() > 50 })
	if way.keeps {
		// What the first one has now it had all the time.
		for _, e := range first.history()[before:] {
			for _, p := range e.Partitions {
				if slices.Contains(first.has(), p) {
					t.Errorf("partition %d was %s although the member keeps it", p, e.Event)
				}
			}
		}
	}

	if way.drops {
		writes.pause()
		allSeen(t, writes.ends, first, second)
	}
	second.leave(t)
	if way.drops {
		writes.resume()
	}
	owns(t, first, shared)
	ends := writes.stop(t)
	allSeen(t, ends, first, second)
	first.leave(t)
	checkCommitted(t, b.at, m, ends)
}

// allSeen waits until each record below the ends was read by some member.
func allSeen(t *testing.T, ends []int64, members ...*member) {
	t.Helper()
	until(t, "every record is seen", func() (string, bool) {
		var missing []place
		for p, end := range ends {
			for offset := range end {
				at := place{int32(p), offset}
				if !slices.ContainsFunc(members, func(m *member) bool { return m.saw(at) }) {
					missing = append(missing, at)
				}
			}
		}
		return fmt.Sprintf("%d are missing, such as %v; %v", len(missing), missing[:min(len(missing), 5)], members), len(missing) == 0
	})
}

// owns waits until a member has n partitions.
func owns(t *testing.T, m *member, n int) {
	t.Helper()
	until(t, fmt.Sprintf("a member with %d partitions", n), func() (string, bool) {
		m.alive(t)
		return m.String(), len(m.has()) == n
	})
}

// halves waits until two members share the partitions fairly.
func halves(t *testing.T, a, b *member) {
	t.Helper()
	until(t, "two members with half of the partitions each", func() (string, bool) {
		a.alive(t)
		b.alive(t)
		union := map[int32]bool{}
		for _, p := range append(a.has(), b.has()...) {
			union[p] = true
		}
		return a.String() + "; " + b.String(), len(a.has()) == shared/2 && len(b.has()) == shared/2 && len(union) == shared
	})
}

func checkCommitted(t *testing.T, at string, m membership, ends []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	offsets, err := kadm.NewClient(observer(t, at)).FetchOffsets(ctx, m.group)
	if err == nil {
		err = offsets.Error()
	}
	if err != nil {
		t.Fatalf("committed offsets of %s: %v", m.group, err)
	}
	for p, end := range ends {
		o, ok := offsets.Lookup(m.topic, int32(p))
		if !ok || o.At != end {
			t.Errorf("%s is at %d in partition %d (found: %t), want %d", m.group, o.At, p, ok, end)
		}
	}
}

// static: a named member that comes back finds its partitions, and nobody else
// notices.
func (b *bench) static(t *testing.T) {
	for _, c := range b.clients {
		for _, way := range c.group {
			if way.static {
				t.Run(c.name+"/"+way.name, func(t *testing.T) {
					t.Parallel()
					b.comeBack(t, c, way)
				})
			}
		}
	}
}

func (b *bench) comeBack(t *testing.T, c client, way balancer) {
	m := membership{at: b.at, topic: name("static", c.name, way.name), group: name("named", c.name, way.name), balancer: way.name}
	makeTopic(t, b.at, m.topic, shared)
	one, two := m, m
	one.instance, two.instance = "one", "two"
	stays := c.join(t, one)
	owns(t, stays, shared)
	goes := c.join(t, two)
	halves(t, stays, goes)
	had, before := goes.has(), len(moves(stays))

	if way.releases {
		goes.leave(t)
	} else {
		goes.Kill()
	}
	back := c.join(t, two)
	owns(t, back, shared/2)
	if got := back.has(); !slices.Equal(got, had) {
		t.Errorf("the member came back to %v, had %v", got, had)
	}
	// A record shows that the group works, and gives a rebalance that should
	// not be the time to show.
	writes := writeOn(t, b.at, m.topic)
	until(t, "both members read", func() (string, bool) {
		return stays.String() + "; " + back.String(), stays.reads() > 300 && back.reads() > 300
	})
	writes.stop(t)
	if after := moves(stays); len(after) != before {
		t.Errorf("the other member noticed: %+v", after[before:])
	}
}

// moves returns the changes that moved a partition: a cooperative group ends
// its rebalance with some that move none, at any time after the partitions are
// where they belong.
func moves(m *member) []event {
	return slices.DeleteFunc(m.history(), func(e event) bool { return len(e.Partitions) == 0 })
}
