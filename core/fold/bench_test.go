package fold

import (
	"fmt"
	"testing"

	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
)

// BenchmarkOffer folds the log of one author, and of three that name each other,
// with some operations in each entry.
func BenchmarkOffer(b *testing.B) {
	for _, authors := range []int{1, 3} {
		for _, ops := range []int{1, 100} {
			b.Run(fmt.Sprintf("authors=%d/ops=%d", authors, ops), func(b *testing.B) { benchmarkOffer(b, authors, ops) })
		}
	}
}

func benchmarkOffer(b *testing.B, authors, ops int) {
	const size = 3000
	genesis := found(b, "olga")
	entries := []sigchain.Signed{genesis}
	last := make([]sigchain.Signed, authors)
	last[0] = genesis
	if authors > 1 {
		last[0] = after(b, "olga", genesis, nil, grant(b, "ann", roster.Writer), grant(b, "bob", roster.Writer))
		entries = append(entries, last[0])
		for i := 1; i < authors; i++ {
			last[i] = first(b, names[i], genesis.Home(), 1, sigchain.Link{}, last[:1])
			entries = append(entries, last[i])
		}
	}
	for n := range size {
		i := n % authors
		var body []sigchain.Op
		for k := range ops {
			body = append(body, set(b, names[i], 1, fmt.Sprint("key ", k), "a value"))
		}
		var parents []sigchain.Signed
		if authors > 1 {
			parents = []sigchain.Signed{last[(i+authors-1)%authors]}
		}
		last[i] = after(b, names[i], last[i], parents, body...)
		entries = append(entries, last[i])
	}
	raw := make([][]byte, len(entries))
	for i, s := range entries {
		raw[i] = s.Bytes()
	}
	b.ReportAllocs()
	b.ResetTimer()
	var m *Machine
	folded := 0
	for n := 0; n < b.N; n += ops {
		i := n / ops % len(raw)
		if i == 0 {
			var err error
			if m, err = New(Config{Genesis: genesis, MaxDriftMs: driftMs, Limits: Limits{1, 1, 1, 1}}); err != nil {
				b.Fatal(err)
			}
		}
		s, err := sigchain.Parse(raw[i])
		if err != nil {
			b.Fatal(err)
		}
		e, err := m.Offer(s, startMs+10*size)
		if err != nil || len(e.Fold) != 1 || e.Fold[0].Void != nil {
			b.Fatal(e, err)
		}
		folded += len(e.Fold[0].Ops)
		if n/ops%100 == 99 {
			m.Changes()
		}
	}
	b.ReportMetric(float64(folded)/b.Elapsed().Seconds(), "operations/s")
}
