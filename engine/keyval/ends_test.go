package keyval

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestEndsOfLists pushes, pops, inserts, trims and fails at random, with rows that
// go to the fold database and out of memory between, and holds lists to what a slice
// does: also what is remembered of their ends.
func TestEndsOfLists(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runEnds(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}

func runEnds(t *testing.T, rng *rand.Rand) {
	o := options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch))
	o.CacheBytes = 1 << rng.IntN(18)
	n := start(t, o)
	defer n.close()
	want := map[string][]string{}
	undone := errors.New("undone")
	pushed := 0
	for step := range 300 {
		key := fmt.Sprintf("list %d", rng.IntN(3))
		list := slices.Clone(want[key])
		fails := rng.IntN(8) == 0
		err := n.update(func(tx *Tx) error {
			m := structs.In(tx, "0")
			for range 1 + rng.IntN(4) {
				var err error
				if list, err = oneChange(m, []byte(key), list, rng, &pushed); err != nil {
					return err
				}
			}
			if err := sameList(m, key, list); err != nil {
				return err
			}
			if fails {
				return undone
			}
			return nil
		})
		switch {
		case fails && errors.Is(err, undone):
			list = want[key]
		case err != nil || fails:
			t.Fatalf("step %d: %v", step, err)
		}
		want[key] = list
		if rng.IntN(10) == 0 { // all of it is in the fold database now
			now, err := n.settledNow(t.Context())
			n.must(err)
			now.release()
		}
		_, err = n.View(func(tx *Tx) error { return sameList(structs.In(tx, "0"), key, list) })
		n.must(err)
		n.must(sameEnds(n, key))
	}
}

// oneChange does one thing to a list, and returns what it is then.
func oneChange(m *structs.Map, key []byte, list []string, rng *rand.Rand, pushed *int) ([]string, error) {
	left, value := rng.IntN(2) == 0, fmt.Sprint(*pushed)
	*pushed++
	switch k := rng.IntN(12); {
	case k < 5 && left:
		_, err := m.Push(key, true, []byte(value))
		return slices.Insert(list, 0, value), err
	case k < 5:
		_, err := m.Push(key, false, []byte(value))
		return append(list, value), err
	case k < 9:
		popped, err := m.Pop(key, left, int64(1+rng.IntN(3)))
		for _, p := range popped {
			i := 0
			if !left {
				i = len(list) - 1
			}
			if list[i] != string(p) {
				return list, fmt.Errorf("popped %q of %q", p, list)
			}
			list = slices.Delete(list, i, i+1)
		}
		return list, err
	case k < 10 && len(list) > 0:
		i := rng.IntN(len(list))
		_, err := m.LInsert(key, left, []byte(list[i]), []byte(value))
		if !left {
			i++
		}
		return slices.Insert(list, i, value), err
	case k < 11 && len(list) > 60:
		return list[2 : len(list)-3], m.LTrim(key, 2, 3)
	case len(list) > 0 && rng.IntN(4) == 0:
		_, err := m.Delete(key)
		return nil, err
	}
	for range 70 { // more than an end remembers
		value := fmt.Sprint(*pushed)
		*pushed++
		if _, err := m.Push(key, false, []byte(value)); err != nil {
			return list, err
		}
		list = append(list, value)
	}
	return list, nil
}

func sameList(m *structs.Map, key string, want []string) error {
	for _, left := range []bool{true, false} {
		var got []string
		err := m.LScan([]byte(key), left, func(value []byte) bool {
			got = append(got, string(value))
			return true
		})
		if !left {
			slices.Reverse(got)
		}
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("%s, left %t: %q, want %q; %v", key, left, got, want, err)
		}
	}
	return nil
}

// sameEnds checks what is remembered of a list's ends against its rows.
func sameEnds(n *node, key string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	tx := Tx{db: n.DB}
	e, err := tx.entry("0", []byte(key))
	if err != nil || e == nil {
		return err
	}
	var names []string
	err = n.DB.t.walk(e, state.Element, nil, false, false, func(name []byte, _ state.Row) bool {
		names = append(names, string(name))
		return true
	})
	if err != nil {
		return err
	}
	for _, right := range []bool{false, true} {
		run := e.ends.names(right)
		if len(run) > len(names) {
			return fmt.Errorf("%s: an end of %d elements, of %d", key, len(run), len(names))
		}
		outer := slices.Clone(names[:len(run)])
		slices.Reverse(outer)
		if right {
			outer = names[len(names)-len(run):]
		}
		if !slices.Equal(run, outer) {
			return fmt.Errorf("%s, right %t: the end is %x, and remembered as %x", key, right, outer, run)
		}
	}
	return nil
}
