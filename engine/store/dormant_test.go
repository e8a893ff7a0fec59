package store

import (
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/internal/tick"
)

// TestDormancyByPolicy: an admin's node says of who was neither heard nor seen for longer than the policy
// that it is dormant, and of nobody else; pruning does not wait for it then; and it says itself that it is back,
// with what it wrote meanwhile.
func TestDormancyByPolicy(t *testing.T) {
	const policy, day = 30 * 24 * time.Hour, 24 * time.Hour
	r, clock := rng(1), tick.NewManual(time.UnixMilli(1_767_225_600_000))
	a := founder(t, "ann", clock)
	b, c, d := a.joiner("bob", roster.Admin), a.joiner("carl", roster.Writer), a.joiner("dora", roster.Writer)
	all := []*member{a, b, c}
	for _, m := range all {
		m.cfg.State.DormantAfter = policy
		m.restart()
		m.receive(r, a)
	}
	for _, m := range []*member{b, c} { // dora was admitted, and never came
		_, err := m.CreateTopic(t.Context(), NewTopic{Name: "of-" + m.Info().Node.Short(), Partitions: 1})
		m.must(err)
	}
	for range 2 {
		for _, m := range all {
			m.receive(r, all...)
			_, err := m.State().Report(t.Context())
			m.must(err)
		}
	}
	idC, idD := c.Info().Node, d.Info().Node
	a.must(a.SetDormant(t.Context(), idD, true)) // by hand: of who was never seen no policy says anything
	for _, m := range []*member{a, b} {
		m.UseSeen(func(n lattice.NodeID) time.Time { // their meshes are connected, and with nobody else
			if n == idC || n == idD {
				return time.Time{}
			}
			return clock.Now()
		})
	}
	dormant := func(m *member, who lattice.NodeID) bool {
		st, err := m.standing(who)
		m.must(err)
		return st.Dormant
	}
	waits := func() bool {
		return slices.ContainsFunc(a.State().Watermark().Others, func(m keyval.MemberMark) bool { return m.Author == idC })
	}
	meet := func() {
		for range 2 {
			for _, m := range []*member{b, a} {
				m.receive(r, a, b)
				_, err := m.State().Report(t.Context())
				m.must(err)
			}
		}
	}
	mine := func() (n uint64) { // of what ann wrote, below the watermark
		w := a.State().Watermark()
		for at, seq := range w.Frontier {
			if at.Author == a.Info().Node {
				n += seq
			}
		}
		return n
	}
	until := func(what string, cond func() bool) {
		t.Helper()
		for range 6000 {
			if cond() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("it never came to: %s", what)
	}

	clock.Advance(policy - day)
	_, err := a.CreateTopic(t.Context(), NewTopic{Name: "today", Partitions: 1})
	a.must(err)
	meet()
	before := mine()
	if got := append(a.absent(clock.Now()), b.absent(clock.Now())...); len(got) != 0 || dormant(a, idC) || !waits() {
		t.Fatalf("before its time: %v, dormant %v, waited for %v", got, dormant(a, idC), waits())
	}
	if got := c.absent(clock.Now().Add(2 * day)); len(got) != 0 {
		t.Fatalf("a writer's node says %v", got)
	}
	clock.Advance(2 * day)
	until("an admin's node says by itself that carl is dormant", func() bool { return dormant(a, idC) || dormant(b, idC) })
	meet()
	if !dormant(a, idC) || !dormant(b, idC) || waits() || mine() <= before {
		t.Fatalf("dormant %v and %v, waited for %v, the watermark is at %d, was at %d", dormant(a, idC), dormant(b, idC), waits(), mine(), before)
	}
	for _, m := range []*member{a, b} {
		if dormant(m, a.Info().Node) || dormant(m, b.Info().Node) {
			t.Fatal("who is connected is dormant")
		}
	}

	// Carl comes back, with a topic that it made meanwhile.
	_, err = c.CreateTopic(t.Context(), NewTopic{Name: "unsent", Partitions: 1})
	c.must(err)
	c.receive(r, a, b)
	clock.Advance(presenceEvery)
	until("carl's node says by itself that it is back", func() bool { return !dormant(c, idC) })
	for _, m := range []*member{a, b} {
		m.receive(r, c)
		if dormant(m, idC) {
			t.Fatal("it is back, and dormant")
		}
		if _, ok := m.Topic("unsent"); !ok {
			t.Fatal("what it wrote while it was dormant is not there")
		}
	}
	if !waits() {
		t.Fatal("who is back is not waited for")
	}
}
