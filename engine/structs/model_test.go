package structs_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/engine/structs/memory"
	"pgregory.net/rapid"
)

// TestListModel compares a list with a slice.
func TestListModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.New(state.Writer{Incarnation: 1})
		var model []string
		key := b("l")
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			m := structs.In(mem.Begin(1), "0")
			left, n := rapid.Bool().Draw(t, "left"), rapid.IntRange(0, 3).Draw(t, "n")
			v := rapid.StringMatching("[ab]").Draw(t, "value")
			i := rapid.IntRange(-6, 6).Draw(t, "index")
			at := i
			if i < 0 {
				at += len(model)
			}
			within := at >= 0 && at < len(model)
			var err error
			switch rapid.SampledFrom([]string{"push", "push", "push", "pop", "set", "insert", "rem", "trim"}).Draw(t, "do") {
			case "push":
				var size int64
				if size, err = m.Push(key, left, b(v), b(v+v)); left {
					model = append([]string{v + v, v}, model...)
				} else {
					model = append(model, v, v+v)
				}
				if err == nil && size != int64(len(model)) {
					t.Fatalf("length %d of %v", size, model)
				}
			case "pop":
				var got [][]byte
				got, err = m.Pop(key, left, int64(n))
				for _, g := range got {
					j := 0
					if !left {
						j = len(model) - 1
					}
					if string(g) != model[j] {
						t.Fatalf("popped %q of %v", g, model)
					}
					model = slices.Delete(model, j, j+1)
				}
			case "set":
				switch err = m.LSet(key, int64(i), b(v)); {
				case within && err == nil:
					model[at] = v
				case !within && (errors.Is(err, structs.ErrIndex) || errors.Is(err, structs.ErrNoKey)):
					err = nil
				}
			case "insert":
				if _, err = m.LInsert(key, left, b(v), b("x")); slices.Contains(model, v) {
					j := slices.Index(model, v)
					if !left {
						j++
					}
					model = slices.Insert(model, j, "x")
				}
			case "rem":
				var removed int64
				removed, err = m.LRem(key, left, int64(n), b(v))
				for range removed {
					j := slices.Index(model, v)
					if !left {
						for k := range model {
							if model[k] == v {
								j = k
							}
						}
					}
					model = slices.Delete(model, j, j+1)
				}
				if n == 0 && slices.Contains(model, v) {
					t.Fatalf("%s is left in %v", v, model)
				}
			case "trim":
				if err = m.LTrim(key, int64(n), 1); n+1 >= len(model) {
					model = nil
				} else {
					model = model[n : len(model)-1]
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := m.LRange(key, 0, 1<<40)
			if err != nil || fmt.Sprintf("%s", got) != fmt.Sprintf("%s", model) {
				t.Fatalf("%s, want %s, %v", got, model, err)
			}
			if e, ok, err := m.LIndex(key, int64(i)); err != nil || ok != (at >= 0 && at < len(model)) && len(model) > 0 && i >= 0 || ok && i >= 0 && string(e) != model[i] {
				t.Fatalf("at %d: %q %v %v of %v", i, e, ok, err, model)
			}
		}
	})
}

// TestSortedSetModel compares a sorted set with a map.
func TestSortedSetModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.New(state.Writer{Incarnation: 1})
		model := map[string]float64{}
		key := b("z")
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			m := structs.In(mem.Begin(1), "0")
			e := rapid.StringMatching("[a-e]").Draw(t, "member")
			if rapid.IntRange(0, 3).Draw(t, "do") == 0 {
				if _, err := m.ZRem(key, b(e)); err != nil {
					t.Fatal(err)
				}
				delete(model, e)
			} else {
				s := rapid.SampledFrom([]float64{-1, 0, 0.5, 2}).Draw(t, "score")
				if err := m.ZSet(key, b(e), s); err != nil {
					t.Fatal(err)
				}
				model[e] = s
			}
			var want []structs.Scored
			for e, s := range model {
				want = append(want, structs.Scored{Member: b(e), Score: s})
			}
			slices.SortFunc(want, func(a, b structs.Scored) int {
				return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(string(a.Member), string(b.Member)))
			})
			got, err := m.ZRange(key, 0, 100, false)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%v, want %v, %v", got, want, err)
			}
			for i, w := range want {
				if r, ok, err := m.ZRank(key, w.Member, true); err != nil || !ok || r != int64(len(want)-1-i) {
					t.Fatalf("rank of %s from above: %d %v %v in %v", w.Member, r, ok, err, want)
				}
			}
			if n, err := m.ZLen(key); err != nil || int(n) != len(want) {
				t.Fatal(n, err)
			}
		}
	})
}
