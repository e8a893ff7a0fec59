package keyval

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// model is the plainest fold of the entries in the logs, against which a DB is
// checked.
type model struct {
	space state.Space
	ops   int
}

// follow folds what the logs of n hold that the model has not seen, in order of time.
func (m *model) follow(n *node) {
	n.t.Helper()
	var feeds []*feed
	for _, l := range n.logs.all() {
		feeds = append(feeds, &feed{log: l, next: m.space.Frontier[l.Writer()] + 1, last: l.Durable()})
	}
	n.must(mergeLogs(feeds, func(e sigchain.Signed) (bool, error) {
		m.ops += len(e.Ops)
		return true, m.space.Fold(e)
	}))
}

type modelKey struct{ m, key string }

func keysOf(s *state.Space) map[modelKey]map[state.Kind]map[string]state.Row {
	out := map[modelKey]map[state.Kind]map[string]state.Row{}
	for a, r := range s.Rows {
		k := modelKey{a.Map, string(a.Key)}
		if out[k] == nil {
			out[k] = map[state.Kind]map[string]state.Row{}
		}
		if out[k][a.Kind] == nil {
			out[k][a.Kind] = map[string]state.Row{}
		}
		out[k][a.Kind][string(a.Sub)] = r
	}
	return out
}

func sameRow(a, b state.Row) bool { return bytes.Equal(a.AppendTo(nil), b.AppendTo(nil)) }

// compare checks everything that a transaction can read against the model.
func (m *model) compare(tx *Tx, rng *rand.Rand) error {
	want := keysOf(&m.space)
	for _, name := range []string{"0", "one", "", "nobody"} {
		n, err := tx.Len(name)
		if err != nil {
			return err
		}
		var keys, wantKeys []string
		for k := range want {
			if k.m == name {
				wantKeys = append(wantKeys, k.key)
			}
		}
		slices.Sort(wantKeys)
		if int(n) != len(wantKeys) {
			return fmt.Errorf("map %q has %d keys, want %d", name, n, len(wantKeys))
		}
		from := fmt.Sprintf("k%d", rng.IntN(8))
		if rng.IntN(2) == 0 {
			from = ""
		}
		err = tx.Keys(name, []byte(from), func(key []byte, k structs.Key) bool {
			keys = append(keys, string(key))
			if k.Counts != countsOf(want[modelKey{name, string(key)}]) {
				keys = append(keys, fmt.Sprintf("counts %v", k.Counts))
			}
			return true
		})
		wantKeys = slices.DeleteFunc(wantKeys, func(k string) bool { return k < from })
		if err != nil || !slices.Equal(keys, wantKeys) {
			return fmt.Errorf("map %q from %q: keys %q, want %q; %v", name, from, keys, wantKeys, err)
		}
		for i := range 8 {
			key := fmt.Sprintf("k%d", i)
			if err := m.compareKey(tx, rng, name, key, want[modelKey{name, key}]); err != nil {
				return fmt.Errorf("map %q, key %q: %w", name, key, err)
			}
		}
	}
	return nil
}

func countsOf(kinds map[state.Kind]map[string]state.Row) (c [state.Kinds]int64) {
	for k, rows := range kinds {
		c[k] = int64(len(rows))
	}
	return c
}

func (m *model) compareKey(tx *Tx, rng *rand.Rand, name, key string, want map[state.Kind]map[string]state.Row) error {
	k, err := tx.Key(name, []byte(key))
	if err != nil {
		return err
	}
	if k.Counts != countsOf(want) {
		return fmt.Errorf("counts %v, want %v", k.Counts, countsOf(want))
	}
	for kind := state.Register; kind < state.Kinds; kind++ {
		rows := want[kind]
		for sub, r := range rows {
			got, err := tx.Row(state.Address{Map: name, Key: []byte(key), Kind: kind, Sub: []byte(sub)})
			if err != nil || !sameRow(got, r) {
				return fmt.Errorf("%s %q is %v, want %v; %v", kind, sub, got, r, err)
			}
			for _, h := range r {
				if !k.Seen.Covers(h.Dot) {
					return fmt.Errorf("%s %q: %v is not among what was seen: %v", kind, sub, h.Dot, k.Seen)
				}
			}
		}
		if got, err := tx.Row(state.Address{Map: name, Key: []byte(key), Kind: kind, Sub: []byte("no")}); kind != state.Register && kind != state.Expiry && (err != nil || len(got) > 0) {
			return fmt.Errorf("%s: a row that is not there: %v, %v", kind, got, err)
		}
		for _, reverse := range []bool{false, true} {
			if err := compareScan(tx, rng, name, key, kind, reverse, rows); err != nil {
				return err
			}
		}
	}
	if !sameRow(k.Expiry, want[state.Expiry][""]) {
		return fmt.Errorf("expiry %v", k.Expiry)
	}
	return compareScores(tx, rng, name, key, want[state.Scored])
}

func compareScan(tx *Tx, rng *rand.Rand, name, key string, kind state.Kind, reverse bool, rows map[string]state.Row) error {
	var subs []string
	for sub := range rows {
		subs = append(subs, sub)
	}
	slices.Sort(subs)
	var from []byte
	if rng.IntN(2) == 0 && len(subs) > 0 {
		from = []byte(subs[rng.IntN(len(subs))])
		if rng.IntN(2) == 0 && kind != state.Element {
			from = append(from, byte(rng.IntN(2)))
		}
	}
	if from != nil {
		subs = slices.DeleteFunc(subs, func(s string) bool {
			return !reverse && s < string(from) || reverse && s > string(from)
		})
	}
	if reverse {
		slices.Reverse(subs)
	}
	var got []string
	bad := ""
	err := tx.Scan(name, []byte(key), kind, from, reverse, func(sub []byte, r state.Row) bool {
		got = append(got, string(sub))
		if !sameRow(r, rows[string(sub)]) {
			bad = string(sub)
		}
		return true
	})
	if err != nil || bad != "" || !slices.Equal(got, subs) {
		return fmt.Errorf("scan of %s from %q, reverse %t: %q, want %q; differs %q; %v", kind, from, reverse, got, subs, bad, err)
	}
	return nil
}

func compareScores(tx *Tx, rng *rand.Rand, name, key string, rows map[string]state.Row) error {
	type pair struct {
		s state.Score
		m string
	}
	cmp := func(a, b pair) int { return bytes.Compare([]byte(scoreKey(a.s, a.m)), []byte(scoreKey(b.s, b.m))) }
	var all []pair
	for m, r := range rows {
		s, err := state.ParseScore(r.Last().Payload)
		if err != nil {
			return err
		}
		all = append(all, pair{s, m})
	}
	slices.SortFunc(all, cmp)
	for _, reverse := range []bool{false, true} {
		f, _ := state.ScoreOf(float64(rng.IntN(6) - 1))
		var member []byte
		if rng.IntN(2) == 0 {
			member = fmt.Appendf(nil, "s%d", rng.IntN(6))
		}
		want := slices.DeleteFunc(slices.Clone(all), func(p pair) bool {
			c := cmp(p, pair{f, string(member)})
			if reverse && member == nil {
				return p.s > f
			}
			return !reverse && c < 0 || reverse && c > 0
		})
		if reverse {
			slices.Reverse(want)
		}
		var got []pair
		err := tx.Scores(name, []byte(key), f, member, reverse, func(s state.Score, m []byte) bool {
			got = append(got, pair{s, string(m)})
			return true
		})
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("scores from %v %q, reverse %t: %v, want %v; %v", f.Float(), member, reverse, got, want, err)
		}
	}
	return nil
}

// change issues a random operation.
func change(tx *Tx, rng *rand.Rand) error {
	name := []string{"0", "one", ""}[rng.IntN(3)]
	key := fmt.Appendf(nil, "k%d", rng.IntN(8))
	a := state.Address{Map: name, Key: key, Kind: state.Kind(1 + rng.IntN(5))}
	switch a.Kind {
	case state.Element:
		n := uint64(1 + rng.IntN(6))
		a.Sub = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, n), 7)
	case state.Register:
	default:
		a.Sub = fmt.Appendf(nil, "s%d", rng.IntN(6))
	}
	k, err := tx.Key(name, key)
	if err != nil {
		return err
	}
	row, err := tx.Row(a)
	if err != nil {
		return err
	}
	switch rng.IntN(12) {
	case 0:
		return tx.End(a, state.ScopeKey, k.Seen)
	case 1:
		return tx.End(a, state.ScopeKind, k.Seen)
	case 2, 3:
		return tx.End(a, state.ScopeRow, row.Cites())
	case 4: // what was not all seen
		if len(k.Seen) == 0 {
			return nil
		}
		some := slices.Clone(k.Seen)
		some = slices.Delete(some, 0, 1)
		if rng.IntN(2) == 0 {
			some = slices.Clone(k.Seen)
			some[0].Index = uint32(rng.IntN(int(some[0].Index + 1)))
		}
		return tx.End(a, state.Scope(1+rng.IntN(2)), some)
	case 5:
		var old []state.Dot
		if rng.IntN(2) == 0 {
			old = k.Expiry.Dots()
		}
		return tx.Expire(name, key, state.Expiring{At: rng.Int64N(1000), Cover: k.Seen}, old)
	}
	var p state.Payload
	switch a.Kind {
	case state.Member:
	case state.Scored:
		s, _ := state.ScoreOf(float64(rng.IntN(4)))
		p = s.Payload()
	case state.Register, state.Field:
		if rng.IntN(3) == 0 {
			p.Sum = &state.Subtotal{From: 5, Count: int64(rng.IntN(100))}
			if len(row) > 0 && row[0].Payload.Sum == nil {
				p.Sum.Base = row[0].Dot
			}
			break
		}
		fallthrough
	default:
		p.Bytes = bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, []int{1, 20, 700}[rng.IntN(3)])
	}
	old := row.Dots()
	if rng.IntN(4) == 0 && len(old) > 0 {
		old = old[:len(old)-1] // keeps a head that it has seen
	}
	var under state.Dot
	if len(k.Expiry) > 0 && rng.IntN(2) == 0 {
		under = k.Expiry.Last().Dot
	}
	_, err = tx.Put(a, p, old, under)
	return err
}

var errAbort = errors.New("abort")

// TestModel runs random transactions, with restarts, lost fold databases, crowded
// memory and rounds in between, and compares all that can be read with the plain
// fold of the logs.
func TestModel(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runModel(t, seed, 100) })
	}
}

func runModel(t *testing.T, seed uint64, steps int) {
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	incarnation := uint64(2)
	open := func() *node {
		o := options(fs, 0, incarnation, clock)
		if rng.IntN(2) == 0 {
			o.CacheBytes = 1 // forget whatever can be forgotten
		}
		if rng.IntN(2) == 0 {
			o.DirtyBytes = 8 << 10 // rounds while the logs are folded
		}
		incarnation++
		return start(t, o)
	}
	n := open()
	var m model
	for step := range steps {
		switch rng.IntN(30) {
		case 0:
			n.close()
			if rng.IntN(3) == 0 {
				n.must(fs.RemoveAll("/store/state"))
			}
			n = open()
		case 1, 2, 3:
			clock.Advance(time.Second) // a round is due
		}
		abort := rng.IntN(4) == 0
		err := n.update(func(tx *Tx) error {
			for range 1 + rng.IntN(8) {
				if err := change(tx, rng); err != nil {
					return err
				}
			}
			if abort {
				return errAbort
			}
			return nil
		})
		if abort != errors.Is(err, errAbort) || !abort && err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		m.follow(n)
		check := func(f func(func(*Tx) error) (Ticket, error)) {
			tk, err := f(func(tx *Tx) error { return m.compare(tx, rng) })
			n.must(tk.Wait(context.Background()))
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
		}
		if step%5 == 0 {
			check(n.View)
			check(n.Update)
		}
	}
	n.close()
	if m.ops == 0 {
		t.Fatal("nothing was written")
	}
}
