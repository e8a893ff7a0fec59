package keyval

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// keyModel is a key with its rows, whose cites are found by looking at all of them.
type keyModel struct {
	keyState
	rows   map[int]state.Row // with subs
	unsure bool              // a kind went as a whole while another stayed
}

func (m *keyModel) writers() []state.Writer {
	all := map[state.Writer]bool{}
	for _, r := range append(slices.Collect(maps.Values(m.rows)), m.register, m.expiry) {
		for _, h := range r {
			all[h.Dot.Writer] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), state.Writer.Compare)
}

// check holds the cites to what they are for: they cover every head, and name nobody
// who has none.
func (m *keyModel) check() error {
	for _, r := range append(slices.Collect(maps.Values(m.rows)), m.register, m.expiry) {
		for _, h := range r {
			if !m.seen.Covers(h.Dot) {
				return fmt.Errorf("%v does not cover %v", m.seen, h.Dot)
			}
		}
	}
	var cited []state.Writer
	for _, c := range m.seen {
		cited = append(cited, c.Writer)
	}
	if want := m.writers(); !m.unsure && !slices.Equal(cited, want) {
		return fmt.Errorf("cites %v, and heads are of %v", cited, want)
	}
	if !slices.IsSortedFunc(m.seen, func(a, b state.Cite) int { return a.Writer.Compare(b.Writer) }) {
		return fmt.Errorf("out of order: %v", m.seen)
	}
	return nil
}

// TestSeen changes keys at random, as the fold does, and has the cites checked against
// all rows after each change; a key that is written and read again goes on as it was.
func TestSeen(t *testing.T) {
	w := newWriters()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		m := &keyModel{rows: map[int]state.Row{}}
		seq := map[state.Writer]uint64{}
		head := func() state.Head {
			x := state.Writer{Author: keyOf(byte(rng.IntN(2))).Author(), Incarnation: uint64(rng.IntN(4)) + 1}
			seq[x]++
			return state.Head{Dot: state.Dot{Writer: x, Seq: seq[x]}}
		}
		some := func(r state.Row) (out []state.Dot) {
			for _, h := range r {
				if rng.IntN(4) > 0 {
					out = append(out, h.Dot)
				}
			}
			return out
		}
		for step := range 120 {
			switch rng.IntN(8) {
			case 0:
				h := head()
				m.register = m.register.Put(h, some(m.register))
				m.counts[state.Register] = 1
				m.settle(h.Dot)
			case 1:
				h := head()
				m.expiry = m.expiry.Put(h, some(m.expiry))
				m.counts[state.Expiry] = 1
				m.settle(h.Dot)
			case 2:
				m.register, _ = m.register.End(m.register.Cites())
				m.counts[state.Register] = 0
				m.settle(state.Dot{})
			case 3, 4: // end a row
				if len(m.rows) > 0 {
					at := slices.Sorted(maps.Keys(m.rows))
					m.put(at[rng.IntN(len(at))], nil)
				}
				m.settle(state.Dot{})
			default:
				i, h := rng.IntN(12), head()
				m.put(i, m.rows[i].Put(h, some(m.rows[i])))
				m.settle(h.Dot)
			}
			if rng.IntN(40) == 0 && m.counts[state.Field] > 0 { // as wipe does
				m.unsure = m.unsure || m.counts[state.Member] > 0 && len(m.seen) > 1
				for i := range m.rows {
					if kindAt(i) == state.Field {
						delete(m.rows, i)
					}
				}
				m.counts[state.Field], m.live = 0, nil
				m.settle(state.Dot{})
			}
			m.unsure = m.unsure && len(m.rows) > 0
			if err := m.check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			if rng.IntN(4) == 0 {
				if err := m.again().check(); err != nil {
					t.Fatalf("seed %d, step %d, read again: %v", seed, step, err)
				}
			}
			if !m.absent() && !m.apart() && rng.IntN(4) == 0 {
				c := codec{w}
				k, _, err := c.parseKey(c.appendKey(nil, &m.keyState))
				if err != nil || !slices.Equal(k.seen, m.seen) || !slices.Equal(k.live, m.live) {
					t.Fatalf("seed %d: %v %v comes back as %v %v, %v", seed, m.seen, m.live, k.seen, k.live, err)
				}
				m.keyState = k
			}
		}
	}
}

// again is the key as it is made of its rows, as a snapshot has them.
func (m *keyModel) again() *keyModel {
	out := &keyModel{rows: m.rows}
	if len(m.register) > 0 {
		out.take(state.Register, m.register)
	}
	for _, kind := range []state.Kind{state.Field, state.Member} {
		for _, i := range slices.Sorted(maps.Keys(m.rows)) {
			if kindAt(i) == kind {
				out.take(kind, m.rows[i])
			}
		}
	}
	if len(m.expiry) > 0 {
		out.take(state.Expiry, m.expiry)
	}
	out.settle(state.Dot{})
	return out
}

func kindAt(i int) state.Kind { return []state.Kind{state.Field, state.Member}[i%2] }

// put replaces a row, as setRow does.
func (m *keyModel) put(i int, r state.Row) {
	old := m.rows[i]
	m.replaced(old, r)
	switch {
	case len(old) == 0 && len(r) > 0:
		m.counts[kindAt(i)]++
	case len(old) > 0 && len(r) == 0:
		m.counts[kindAt(i)]--
	}
	if m.rows[i] = r; len(r) == 0 {
		delete(m.rows, i)
	}
}

// TestSeenStaysSmall: a key that a hundred starts have written to costs as many cites
// as starts it holds something of, in the fold database, too, and when that is made
// again from a snapshot.
func TestSeenStaysSmall(t *testing.T) {
	fs, clock := disk.NewMem(), tick.NewManual(testEpoch)
	const starts = 100
	seen := func(n *node, key string) (all state.Cites) {
		tk, err := n.View(func(tx *Tx) error {
			k, err := tx.Key("0", []byte(key))
			all = k.Seen
			return err
		})
		n.must(err)
		n.must(tk.Wait(context.Background()))
		return all
	}
	write := func(n *node, i int) {
		n.must(n.update(func(tx *Tx) error {
			m := structs.In(tx, "0")
			if _, err := m.HSet([]byte("hash"), []byte("last"), fmt.Append(nil, i)); err != nil {
				return err
			}
			if i < 5 {
				if _, err := m.HSet([]byte("hash"), fmt.Append(nil, i), []byte("first")); err != nil {
					return err
				}
			}
			if _, err := m.Push([]byte("list"), false, fmt.Append(nil, i)); err != nil || i < 3 {
				return err
			}
			_, err := m.Pop([]byte("list"), true, 1)
			return err
		}))
	}
	var n *node
	for i := range starts {
		n = start(t, options(fs, 0, uint64(i)+2, clock))
		write(n, i)
		if got := seen(n, "hash"); len(got) > 6 {
			t.Fatalf("start %d: a hash with fields of 6 starts has %d cites", i, len(got))
		}
		if got := seen(n, "list"); len(got) > 4 {
			t.Fatalf("start %d: a list of 3 elements has %d cites", i, len(got))
		}
		if i < starts-1 {
			n.close()
		}
	}
	hash := seen(n, "hash")
	k, err := n.Snapshot(context.Background())
	n.must(err)
	_, err = n.PruneAnyway(context.Background(), k.ID)
	n.must(err)
	n.close()
	n.must(fs.RemoveAll("/store/state"))
	n = start(t, options(fs, 0, starts+10, clock))
	if got := seen(n, "hash"); !slices.Equal(got, hash) {
		t.Errorf("made again from the snapshot: %v, was %v", got, hash)
	}
	n.must(n.update(func(tx *Tx) error {
		_, err := structs.In(tx, "0").Delete([]byte("hash"))
		return err
	}))
	if got := seen(n, "hash"); len(got) > 0 {
		t.Errorf("deleted: %v", got)
	}
	n.close()
}

// TestOlderLayout: a fold database of layout version 1 is taken as it is, and becomes
// one of this version.
func TestOlderLayout(t *testing.T) {
	fs, clock := goldenState(t)
	old, err := os.ReadFile(filepath.Join("testdata", "fold-v1.txt"))
	if err != nil {
		t.Fatal(err)
	}
	replaceState(t, fs, string(old), nil)
	n := start(t, options(fs, 0, 9, clock))
	before := n.root()
	n.must(n.update(func(tx *Tx) error {
		_, err := structs.In(tx, "0").HSet([]byte("hash"), []byte("field"), []byte("w"))
		return err
	}))
	n.close()
	store := genesis.Home()
	if !strings.Contains(dump(t, fs), fmt.Sprintf("%x %02x%x\n", []byte{tagVersion}, layoutVersion, store[:])) {
		t.Error("the fold database says that it is of another version")
	}
	n = start(t, options(fs, 0, 10, clock))
	if n.root() == before {
		t.Error("nothing was written")
	}
	tk, err := n.View(func(tx *Tx) error {
		v, _, err := structs.In(tx, "0").HGet([]byte("hash"), []byte("field"))
		if string(v.Bytes) != "w" {
			t.Errorf("the field is %q", v.Bytes)
		}
		return err
	})
	n.must(err)
	n.must(tk.Wait(context.Background()))
	n.close()
}
