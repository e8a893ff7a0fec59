package lag_test

import (
	"cmp"
	"testing"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/lag"
)

// TestModel drives a table with drawn events beside a model that keeps, for each node and log, how much
// the node has: what the table says a node lacks is what the model says, and so are the worst, and what
// nobody else has.
func TestModel(t *testing.T) {
	nodes := []lattice.NodeID{{1}, {2}, {3}}
	rapid.Check(t, func(t *rapid.T) {
		here := map[int]uint64{}
		table := lag.New(func(k int) uint64 { return here[k] })
		has := map[lattice.NodeID]map[int]uint64{} // of nodes that were met
		since := map[lattice.NodeID]map[int]int64{}
		now := int64(1)
		note := func(n lattice.NodeID, k int, v uint64) {
			has[n][k] = v
			if v >= here[k] {
				delete(since[n], k)
			} else if since[n][k] == 0 {
				since[n][k] = now
			}
		}
		node := func(label string) lattice.NodeID { return rapid.SampledFrom(nodes).Draw(t, label) }
		t.Repeat(map[string]func(*rapid.T){
			"equal": func(t *rapid.T) {
				n := node("n")
				table.Equal(n, now)
				has[n], since[n] = map[int]uint64{}, map[int]int64{}
				for k, v := range here {
					has[n][k] = v
				}
			},
			"grown": func(t *rapid.T) {
				k := rapid.IntRange(0, 4).Draw(t, "k")
				from := here[k]
				here[k] += rapid.Uint64Range(1, 9).Draw(t, "more")
				is := lattice.NodeID{}
				if rapid.Bool().Draw(t, "from a peer") {
					is = node("n")
				}
				table.Grown(k, from, is, now)
				for n := range has {
					if n == is {
						note(n, k, here[k])
					} else {
						note(n, k, has[n][k])
					}
				}
			},
			"has": func(t *rapid.T) {
				n, k := node("n"), rapid.IntRange(0, 4).Draw(t, "k")
				v := rapid.Uint64Range(0, here[k]+2).Draw(t, "v")
				table.Has(n, k, v, now)
				if has[n] != nil {
					note(n, k, v)
				}
			},
			"": func(t *rapid.T) {
				now++
				least := map[int]uint64{}
				for _, n := range nodes {
					s := table.Sum(n)
					want := lag.Sum{Known: has[n] != nil}
					for k, v := range has[n] {
						if v < here[k] {
							want.Logs++
							want.Behind += here[k] - v
							if want.Since == 0 || since[n][k] < want.Since {
								want.Since = since[n][k]
							}
						}
						least[k] = max(least[k], v)
					}
					if s != want {
						t.Fatalf("node %d: %+v, want %+v", n[0], s, want)
					}
					all := table.Worst(n, 3, cmp.Compare[int])
					if len(all) != min(3, want.Logs) {
						t.Fatalf("%d worst of %d", len(all), want.Logs)
					}
					for i, l := range all {
						if l.Has != has[n][l.Log] || l.Here != here[l.Log] || i > 0 && l.Behind() > all[i-1].Behind() {
							t.Fatalf("worst %d: %+v", i, l)
						}
					}
				}
				alone, more, ok := table.Alone(nodes, 100)
				if more || ok != (len(has) > 0) {
					t.Fatalf("more %v, ok %v", more, ok)
				}
				got := map[int]uint64{}
				for _, l := range alone {
					got[l.Log] = l.Behind()
				}
				for k, v := range here {
					if ok && got[k] != v-min(v, least[k]) {
						t.Fatalf("log %d: %d are alone, want %d", k, got[k], v-least[k])
					}
				}
			},
		})
	})
}

// TestSince: how long a node lacks something outlives that its connection breaks and that it is compared
// with anew, and ends when it has all.
func TestSince(t *testing.T) {
	here := map[string]uint64{"a": 10, "b": 5}
	table := lag.New(func(k string) uint64 { return here[k] })
	n := lattice.NodeID{7}
	table.Equal(n, 1)
	here["a"] = 20
	table.Grown("a", 10, lattice.NodeID{}, 100)
	table.Met(n, 900) // it came back, and lacks more than was thought, and something else
	if s := table.Sum(n); s.Logs != 0 || !s.Known {
		t.Fatalf("before it says anything: %+v", s)
	}
	table.Has(n, "a", 4, 910)
	table.Has(n, "b", 4, 920)
	if s := table.Sum(n); s != (lag.Sum{Known: true, Logs: 2, Behind: 17, Since: 100}) {
		t.Fatalf("%+v", s)
	}
	table.Has(n, "a", 20, 930)
	if s := table.Sum(n); s.Since != 920 || s.Behind != 1 {
		t.Fatalf("%+v", s)
	}
	table.Gone("b")
	if s := table.Sum(n); s.Since != 0 || s.Behind != 0 {
		t.Fatalf("%+v", s)
	}
	if s := table.Sum(lattice.NodeID{8}); s.Known {
		t.Fatal("a node that was never met is known")
	}
	table.Equal(n, 1000)
	here["a"] = 21
	table.Grown("a", 20, lattice.NodeID{}, 1001)
	if s := table.Sum(n); s.Since != 1001 {
		t.Fatalf("a new lack begins at %d", s.Since)
	}
}

// TestBounds: many nodes and logs cost so much and no more, and the count says that there are others.
func TestBounds(t *testing.T) {
	table := lag.New(func(int) uint64 { return 1 })
	for i := range 1500 {
		table.Met(lattice.NodeID{byte(i), byte(i >> 8)}, int64(i))
	}
	if table.Sum(lattice.NodeID{0}).Known || !table.Sum(lattice.NodeID{byte(1499 & 255), 1499 >> 8}).Known {
		t.Error("it is not the one heard of longest ago that is forgotten")
	}
	n := lattice.NodeID{1, 5}
	for k := range 70_000 {
		table.Has(n, k, 0, 1)
	}
	if s := table.Sum(n); !s.More || s.Logs != 65_536 {
		t.Errorf("%+v", s)
	}
	if all := table.Worst(n, 5, cmp.Compare[int]); len(all) != 5 || all[0].Log != 0 || all[4].Log != 4 {
		t.Errorf("%+v", all)
	}
}
