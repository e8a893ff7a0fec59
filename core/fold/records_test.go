package fold

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// goldenReplica has a record of every kind.
func goldenReplica(t testing.TB) *replica {
	sc := newScene(t)
	r := sc.replica(t)
	a := after(t, "ann", sc.ann, []sigchain.Signed{sc.bob}, set(t, "ann", 1, "k", "a"))
	b := after(t, "ann", a, nil, set(t, "ann", 1, "k", "b"))
	next := first(t, "ann", sc.genesis.Home(), 5, b.Link(), []sigchain.Signed{sc.eve})
	copied := first(t, "ann", sc.genesis.Home(), 6, a.Link(), nil)
	broken := sign(t, "ann", sigchain.Entry{Store: sc.genesis.Home(), Incarnation: 5, Seq: 2, Time: next.Time, Prev: next.Link()})
	left, right := after(t, "eve", sc.eve, nil), after(t, "eve", sc.eve, []sigchain.Signed{a})
	cut := after(t, "olga", sc.grants, nil, remove(t, "bob", sc.bob))
	r.offer(a, b, next, copied, broken, left, right, cut)
	return r
}

func text(records map[string][]byte) string {
	var b bytes.Buffer
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range records {
			if !yield(k) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "%x %x\n", k, records[k])
	}
	return b.String()
}

// TestGoldenRecords pins the records, as a node that was stopped finds them again.
func TestGoldenRecords(t *testing.T) {
	r := goldenReplica(t)
	want, err := os.ReadFile("testdata/v1/records.txt")
	if got := text(r.records); err != nil || got != string(want) {
		t.Errorf("%v; now:\n%s", err, got)
	}
	tags := map[byte]bool{}
	for k := range r.records {
		tags[k[0]] = true
	}
	if len(tags) != 8 {
		t.Errorf("%d kinds of records, want 8", len(tags))
	}
	before := r.rows()
	r.restart()
	if r.rows() != before {
		t.Error("a restart changes the rows")
	}
	r.checkRecords()
}

// TestStaleIsKept: a rebuild that is due is due after a restart, too.
func TestStaleIsKept(t *testing.T) {
	sc := newScene(t)
	r := sc.replica(t)
	a := after(t, "ann", sc.ann, nil, set(t, "ann", 1, "k", "a"))
	r.offer(a)
	cut := after(t, "olga", sc.grants, nil, remove(t, "ann", sc.ann))
	r.log = append(r.log, cut)
	e, err := r.m.Offer(cut, r.now)
	if err != nil || !e.Rebuild {
		t.Fatalf("%+v, %v", e, err)
	}
	r.apply(e)
	m, err := Restore(r.config, slices.Values(r.list()))
	if err != nil || !m.Stale() {
		t.Fatalf("stale %v, %v", m.Stale(), err)
	}
	r.rebuild()
	r.wantVoid(a, ErrRights)
	if m, err = Restore(r.config, slices.Values(r.list())); err != nil || m.Stale() {
		t.Fatalf("after the rebuild: stale %v, %v", m.Stale(), err)
	}
}

func (r *replica) list() []Record {
	var all []Record
	for k, v := range r.records {
		all = append(all, Record{[]byte(k), v})
	}
	slices.SortFunc(all, func(a, b Record) int { return bytes.Compare(a.Key, b.Key) })
	return all
}

// TestDamagedRecords: of no record may anything be missing or too much.
func TestDamagedRecords(t *testing.T) {
	r := goldenReplica(t)
	for _, rec := range r.list() {
		for what, bad := range map[string]Record{
			"key cut off": {rec.Key[:len(rec.Key)-1], rec.Value}, "longer key": {append(slices.Clone(rec.Key), 0), rec.Value},
			"value cut off": {rec.Key, rec.Value[:len(rec.Value)-1]}, "longer value": {rec.Key, append(slices.Clone(rec.Value), 0)},
			"unknown tag": {append([]byte{'?'}, rec.Key[1:]...), rec.Value},
		} {
			if _, err := Restore(r.config, slices.Values([]Record{bad})); !errors.Is(err, ErrRecord) {
				t.Errorf("%x %x: %s: %v", rec.Key, rec.Value, what, err)
			}
		}
		later := Record{rec.Key, append([]byte{2}, rec.Value[1:]...)}
		if _, err := Restore(r.config, slices.Values([]Record{later})); lattice.KindOf(err) != lattice.Unsupported {
			t.Errorf("version 2 of %x: %v", rec.Key, err)
		}
	}
}

// FuzzRestore restores good records with a bad one among them: no panic, also when
// the machine is used; an error is the one promised; what was restored restores
// to the same.
func FuzzRestore(f *testing.F) {
	r := goldenReplica(f)
	good := r.list()
	for _, rec := range good {
		f.Add(rec.Key, rec.Value)
	}
	genesis, later := r.config.Genesis, r.log[len(r.log)-1]
	f.Fuzz(func(t *testing.T, key, value []byte) {
		records := append(slices.Clone(good), Record{key, value})
		config := r.config
		config.Entry = func(sigchain.Place) (sigchain.Signed, bool, error) { return sigchain.Signed{}, false, nil }
		m, err := Restore(config, slices.Values(records))
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatalf("%v is no ErrRecord", err)
			}
			return
		}
		first := map[string][]byte{}
		for rec := range m.records {
			first[string(rec.Key)] = rec.Value
		}
		again, err := Restore(config, m.records)
		if err != nil {
			t.Fatal(err)
		}
		for rec := range again.records {
			if !bytes.Equal(first[string(rec.Key)], rec.Value) {
				t.Fatalf("record %x is restored as %x, then %x", rec.Key, first[string(rec.Key)], rec.Value)
			}
		}
		m.recheck()
		m.Frontier()
		m.Parents(state.Writer{Author: id("ann"), Incarnation: 9}, sigchain.Link{Incarnation: 5, Seq: 1, ID: genesis.ID})
		if m.Roster().Member(id("olga")) != roster.Owner {
			t.Fatal("the creator is no owner")
		}
		for _, s := range []sigchain.Signed{genesis, later} {
			if _, err := m.Offer(s, startMs); err != nil && !errors.Is(err, ErrFull) {
				t.Fatal(err)
			}
		}
	})
}

// TestRestartWithinRebuild: a rebuild that a restart cuts in two comes to the same:
// what a chain will have named, when others that follow it enter, is not what it
// had named at the restart.
func TestRestartWithinRebuild(t *testing.T) {
	g := found(t, "olga")
	admit := after(t, "olga", g, nil, grant(t, "ann", roster.Writer), grant(t, "bob", roster.Writer))
	good := first(t, "ann", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{admit}, set(t, "ann", 1, "k", "good"))
	one := first(t, "bob", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{admit, good}, set(t, "bob", 1, "x", "1"))
	two := first(t, "bob", g.Home(), 2, one.Link(), nil, set(t, "bob", 2, "k", "two", dotOf(good, 0)))
	r := newReplica(t, g)
	r.offer(g, admit, good, one, two)
	r.m.Reset()
	r.clear()
	r.records = map[string][]byte{}
	r.log = nil
	r.offer(g, admit, good)
	r.restart()
	r.offer(one, two)
	if r.get("k") != "[two]" {
		t.Fatalf("k is %s: %v", r.get("k"), r.void)
	}
}
