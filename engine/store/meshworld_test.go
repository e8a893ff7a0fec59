package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/internal/tick"
)

// TestWorld has three nodes create, change and delete topics, commit, restart, and
// exchange what they wrote in random order. In the end all show the same, also one
// that joins then.
func TestWorld(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runWorld(t, seed) })
	}
}

func runWorld(t *testing.T, seed uint64) {
	r := rng(seed)
	clock := tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	nodes := []*member{a, a.joiner("bob", roster.Writer), a.joiner("carl", roster.Writer)}
	for _, m := range nodes[1:] {
		m.receive(r, a)
	}
	for range 60 {
		m := nodes[r.IntN(len(nodes))]
		clock.Advance(time.Duration(r.IntN(2000)) * time.Millisecond)
		all := m.Topics()
		pick := func() Topic { return all[r.IntN(len(all))] }
		switch n := r.IntN(12); {
		case n == 0:
			m.restart()
		case n < 4 || len(all) == 0:
			_, err := m.CreateTopic(t.Context(), NewTopic{Name: fmt.Sprintf("t%d", r.IntN(4)), Partitions: 1 + r.Int32N(3)})
			if err != nil && !errors.Is(err, ErrTopicExists) {
				t.Fatal(err)
			}
		case n == 4:
			m.must(m.DeleteTopic(t.Context(), pick().ID))
		case n == 5:
			x := pick()
			m.must(m.AddPartitions(t.Context(), x.ID, x.Partitions+1+r.Int32N(2), false))
		case n == 6:
			v := fmt.Sprint(1000 + r.IntN(1000))
			m.must(m.AlterTopic(t.Context(), pick().ID, []ConfigChange{{Name: []string{"retention.ms", "segment.ms"}[r.IntN(2)], Value: &v}}, r.IntN(3) == 0, false))
		case n < 9:
			x := pick()
			m.must(m.commit(fmt.Sprintf("g%d", r.IntN(2)), x.ID, r.Int32N(x.Partitions), r.Int64N(100)))
		default:
			m.receive(r, nodes[r.IntN(len(nodes))])
		}
	}
	for range 2 {
		for _, m := range nodes {
			m.receive(r, nodes...)
		}
	}
	nodes = append(nodes, a.joiner("dora", roster.Reader))
	nodes[3].receive(r, nodes[1], a)
	for range 2 {
		want := a.catalogue()
		for i, m := range nodes {
			if got := m.catalogue(); got != want {
				t.Fatalf("node %d shows\n%s, the first\n%s", i, got, want)
			}
			for _, x := range m.Topics() {
				for p := range x.Partitions {
					log, err := m.Partition(x.ID, p)
					if err != nil || log.Leads() != (x.Leader == m.Info().Node) || log.Leader() != x.Leader {
						t.Fatalf("node %d, %s/%d of %s: %v", i, x.Name, p, x.Leader.Short(), err)
					}
				}
			}
			m.restart()
		}
	}
}
