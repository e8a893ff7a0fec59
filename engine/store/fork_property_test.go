package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/storage/disk"
)

// after opens the stores of two fixtures again as a power cut now leaves them.
func after(mem *disk.Mem, f, k *fixture) (*disk.Mem, *fixture, *fixture) {
	clone := mem.CrashClone(0, nil)
	open := func(x *fixture) *fixture {
		y := &fixture{t: x.t, cfg: x.cfg}
		y.cfg.FS = clone
		y.open()
		return y
	}
	return clone, open(f), open(k)
}

// TestForkLosesAndRepeatsNothing writes at random to a store and its fork, brings the fork
// back now and then, and cuts the power: what was acknowledged on either side is in the
// store once, each side's in its order, and no offset names another record than before.
func TestForkLosesAndRepeatsNothing(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 45))
			mem := disk.NewMem()
			f := newFixture(t, mem)
			top := f.topic("t", 2, map[string]string{"segment.bytes": "1000"})
			f.send(top, 0, "begin")
			k := f.fork("try")
			acked := [2][2][]string{} // by side and partition
			acked[0][0] = []string{"begin"}
			at := [2]map[int64]string{{0: "begin"}, {}} // of the origin, by partition
			sum := 0
			for n := range 60 {
				side, part := rng.IntN(2), int32(rng.IntN(2))
				x := []*fixture{f, k}[side]
				switch what := rng.IntN(12); {
				case what < 7:
					v := fmt.Sprintf("%d-%d", side, n)
					r, err := produce(x.part(top, part), batchOf(1, v, v+"'"))
					if err != nil {
						t.Fatal(err)
					}
					acked[side][part] = append(acked[side][part], v, v+"'")
					if side == 0 {
						at[part][r.Base], at[part][r.Base+1] = v, v+"'"
					}
				case what < 9:
					sum++
					x.do(func(m *structs.Map) error { _, err := m.Incr([]byte("n"), 1); return err })
					x.put("last", fmt.Sprint(side))
				case what < 11:
					k.back(f)
				default:
					if rng.IntN(2) == 0 { // broken off somewhere
						ctx, cancel := context.WithCancel(context.Background())
						cancel()
						_, _ = k.BringBack(ctx, f.Store)
					}
					mem, f, k = after(mem, f, k)
				}
			}
			k.back(f)
			_, f, k = after(mem, f, k)
			root := f.root()
			if again := k.back(f); again.Entries != 0 || len(again.Partitions) != 0 || f.root() != root {
				t.Errorf("the last time it brings %+v", again)
			}
			for part := range int32(2) {
				got := values(t, f.part(top, part), 0)
				for side := range 2 {
					mine := slices.DeleteFunc(slices.Clone(got), func(v string) bool { return !slices.Contains(acked[side][part], v) })
					if !slices.Equal(mine, acked[side][part]) {
						t.Errorf("partition %d has of side %d\n%q, want\n%q", part, side, mine, acked[side][part])
					}
				}
				if len(got) != len(acked[0][part])+len(acked[1][part]) {
					t.Errorf("partition %d has %d records", part, len(got))
				}
				for offset, v := range at[part] {
					if got[offset] != v {
						t.Errorf("partition %d has %q at %d, it was %q", part, got[offset], offset, v)
					}
				}
			}
			var n int64
			f.do(func(m *structs.Map) error { var err error; n, err = m.Incr([]byte("n"), 0); return err })
			if n != int64(sum) {
				t.Errorf("the counter is %d after %d increments", n, sum)
			}
		})
	}
}
