package keyval

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestPackedKeys holds packed to a map, with hashes that collide, payloads that
// grow, and resets.
func TestPackedKeys(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	p := newPacked()
	want := map[string]string{}
	hash := func(name string) uint64 { return uint64(len(name))<<32 | uint64(name[0])%7 }
	check := func() {
		t.Helper()
		for name, value := range want {
			n, ok := p.find(hash(name), []byte(name))
			if !ok || string(p.valueOf(p.at(n))) != value || string(p.nameOf(p.at(n))) != name {
				t.Fatalf("%.20q: %v", name, ok)
			}
		}
	}
	dirty := map[string]bool{}
	for range 4 {
		for range 8_000 {
			name := strings.Repeat(fmt.Sprint(rng.IntN(3000)), 1+rng.IntN(40))
			value := strings.Repeat("v", rng.IntN(packedValue))
			n, ok := p.find(hash(name), []byte(name))
			if _, is := want[name]; ok != is {
				t.Fatalf("%.20q is there: %v, want %v", name, ok, is)
			}
			switch {
			case !ok:
				n = p.add(hash(name), []byte(name))
			case rng.IntN(10) == 0:
				p.at(n).flags |= packedGone
				delete(want, name)
				delete(dirty, name)
				continue
			}
			p.set(p.at(n), 1, state.Dot{Seq: 2}, 3, []byte(value))
			p.touch(n)
			want[name], dirty[name] = value, true
		}
		check()
		var order []string
		p.write(func(x *packedKey) { order = append(order, string(p.nameOf(x))) })
		if !slices.Equal(order, slices.Sorted(maps.Keys(dirty))) {
			t.Fatalf("%d keys were written in order %v; want %d", len(order), slices.IsSorted(order), len(dirty))
		}
		clear(dirty)
		p.write(func(*packedKey) { t.Fatal("written twice") })
		check()
		if rng.IntN(2) == 0 {
			p.reset()
			clear(want)
		}
	}
}

// TestPacked makes the state again from logs in which keys become what is packed,
// and stop being it, in every way: with rounds in between and what was packed forgotten.
func TestPacked(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fs, clock := disk.NewMem(), tick.NewManual(testEpoch)
		n := start(t, options(fs, 0, 2, clock))
		for range 60 {
			n.must(n.update(func(tx *Tx) error {
				for range 20 {
					if err := simple(tx, rng); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		want := n.dump()
		root, err := n.Root(context.Background())
		n.must(err)
		n.close()
		for i, dirty := range []int64{0, 1, 4 << 10} {
			n.must(fs.RemoveAll("/store/state"))
			o := options(fs, 0, uint64(3+i), clock)
			o.DirtyBytes, o.CacheBytes = dirty, 1
			n = start(t, o)
			if got := n.dump(); got != want {
				t.Fatalf("seed %d, rounds of %d bytes:\n%s\nwant:\n%s", seed, dirty, got, want)
			}
			again, err := n.Root(context.Background())
			n.must(err)
			if again.Hash != root.Hash {
				t.Fatalf("seed %d, rounds of %d bytes: another root", seed, dirty)
			}
			n.close()
		}
	}
}

// simple changes one of a few keys, mostly to one value.
func simple(tx *Tx, rng *rand.Rand) error {
	key := fmt.Sprint("key ", rng.IntN(60))
	a := state.Address{Map: []string{"0", "one"}[rng.IntN(2)], Key: []byte(key), Kind: state.Register}
	row, err := tx.Row(a)
	if err != nil {
		return err
	}
	k, err := tx.Key(a.Map, a.Key)
	if err != nil {
		return err
	}
	p := state.Payload{Bytes: []byte(strings.Repeat("v", rng.IntN(40)))}
	heads := row.Dots()
	switch rng.IntN(30) {
	case 0: // beside what is there
		heads = nil
	case 1: // apart
		p.Bytes = make([]byte, inlineMax+rng.IntN(40)-20)
	case 2, 3:
		p = state.Payload{Sum: &state.Subtotal{Count: rng.Int64() - 1<<62}}
	case 4:
		p = state.Payload{Sum: &state.Subtotal{Base: state.Dot{Writer: tx.Writer(), Seq: 1}, From: 5, Count: 7}}
	case 5, 6:
		return tx.End(a, state.ScopeKey, k.Seen)
	case 7:
		return tx.Expire(a.Map, a.Key, state.Expiring{At: 1 << 50, Cover: k.Seen}, k.Expiry.Dots())
	case 8:
		a.Kind, a.Sub = state.Field, []byte{byte(rng.IntN(3))}
		if row, err = tx.Row(a); err != nil {
			return err
		}
		heads = row.Dots()
	case 9:
		a.Key = []byte(strings.Repeat(key, 300)) // too long
		if row, err = tx.Row(a); err != nil {
			return err
		}
		heads = row.Dots()
	}
	_, err = tx.Put(a, p, heads, state.Dot{})
	return err
}

// TestLoading makes the state again from logs that are long enough for the fold
// database to be opened for loading. A power cut right afterwards takes nothing.
func TestLoading(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	fs, clock := disk.NewMem(), tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	value := make([]byte, 400)
	for i := range 25 {
		n.must(n.update(func(tx *Tx) error {
			for j := range 1000 {
				a := reg(fmt.Sprint(i, j*7919%1000))
				row, err := tx.Row(a)
				if err != nil {
					return err
				}
				if _, err := tx.Put(a, state.Payload{Bytes: value}, row.Dots(), state.Dot{}); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	if size := n.logs.size(); size < loadLeast {
		t.Fatalf("%d bytes of logs, want %d", size, loadLeast)
	}
	want, err := n.Root(context.Background())
	n.must(err)
	n.close()
	n.must(fs.RemoveAll("/store/state"))
	o := options(fs, 0, 3, clock)
	o.DirtyBytes = 1 << 20
	db, err := Open(o)
	n.must(err)
	if db.loading {
		t.Error("the fold database is still open for loading")
	}
	crashed := fs.CrashClone(0, rng)
	n.must(db.Close())
	for i, fs := range []disk.FS{crashed, fs} {
		o := options(fs, 0, uint64(4+i), clock)
		n := start(t, o)
		if got, err := n.Root(context.Background()); err != nil || got.Hash != want.Hash {
			t.Errorf("another state than before: %v", err)
		}
		n.close()
	}
}
