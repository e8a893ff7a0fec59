package fold

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/watermark"
)

// reported is the operation that reports f.
func reported(t rapid.TB, f state.Frontier) sigchain.Op {
	op, err := watermark.Op(f)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// report is what a node reports, which may be more than is true.
func (h *history) report(n *node) sigchain.Op {
	f := n.m.Frontier()
	for w := range f {
		f[w] += rapid.Uint64Range(0, 2).Draw(h.t, "more")
	}
	f[state.Writer{Author: id("olga"), Incarnation: 77}] = 1 // never without any
	return reported(h.t, f)
}

// TestReports: of a member counts what it reports in entries that have an effect, a
// reader's too; a rebuild takes back what does not count any more, records and a base
// bring it again.
func TestReports(t *testing.T) {
	g := found(t, "olga")
	w := state.Writer{Author: id("olga"), Incarnation: g.Incarnation}
	admit := after(t, "olga", g, nil, grant(t, "ann", roster.Reader), grant(t, "bob", roster.Writer))
	one := first(t, "ann", g.Home(), 5, sigchain.Link{}, []sigchain.Signed{admit}, reported(t, state.Frontier{w: 1}))
	two := after(t, "ann", one, nil, reported(t, state.Frontier{w: 2}))
	bob := first(t, "bob", g.Home(), 3, sigchain.Link{}, []sigchain.Signed{admit}, reported(t, state.Frontier{w: 2}))
	eve := first(t, "eve", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{admit}, reported(t, state.Frontier{w: 9}))
	cut := after(t, "olga", admit, nil, remove(t, "ann", one))
	for order := range permutations([]sigchain.Signed{one, two, bob, eve, cut}) {
		r := newReplica(t, g)
		r.offer(append([]sigchain.Signed{g, admit}, order...)...)
		want := map[string]state.Frontier{
			"ann": {w: 1, {Author: id("ann"), Incarnation: 5}: 1}, "bob": {w: 2, {Author: id("bob"), Incarnation: 3}: 1}, "eve": nil, "olga": nil,
		}
		check := func(m *Machine, what string) {
			t.Helper()
			for name, f := range want {
				if got := m.Said(id(name)).Frontier; !maps.Equal(got, f) {
					t.Errorf("%s: %s has said %v, want %v", what, name, got, f)
				}
			}
		}
		check(r.m, "folded")
		r.restart()
		check(r.m, "restarted")
		s := r.snapshot()
		check(s.found(t), "from a snapshot")
		if again := s.found(t).Snapshot(); !slices.EqualFunc(again, s.records, sameRecord) {
			t.Error("a snapshot of a snapshot is another")
		}
	}
}

// TestGoldenReport pins the record of a report.
func TestGoldenReport(t *testing.T) {
	w := state.Writer{Author: id("bob"), Incarnation: 3}
	a := id("ann")
	rec := saidRecord(a, watermark.Said{At: sigchain.Place{Author: a, Incarnation: 0x0102030405060708, Seq: 9}, Frontier: state.Frontier{w: 300}})
	want := append([]byte{1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9, 1}, w.Author[:]...)
	want = append(want, 1, 0, 0, 0, 0, 0, 0, 0, 3, 0xac, 0x02)
	if !slices.Equal(rec.Key, append([]byte{'f'}, a[:]...)) || !slices.Equal(rec.Value, want) {
		t.Errorf("%x: %x", rec.Key, rec.Value)
	}
	for n := range len(want) {
		if _, err := Restore(Config{Genesis: found(t, "olga")}, slices.Values([]Record{{rec.Key, want[:n]}})); err == nil {
			t.Errorf("%d bytes of it are a record", n)
		}
	}
}
