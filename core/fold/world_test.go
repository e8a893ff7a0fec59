package fold

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/trie"
	"pgregory.net/rapid"
)

const (
	startMs = 1_700_000_000_000
	driftMs = 60_000
)

func keyOf(name string) identity.Key {
	var seed [32]byte
	copy(seed[:], name)
	return identity.FromSeed(seed)
}

func id(name string) lattice.AuthorID { return keyOf(name).Author() }

// sign signs an entry of the test store by the author of that name; the genesis
// entry is signed by found.
func sign(t rapid.TB, name string, e sigchain.Entry) sigchain.Signed {
	t.Helper()
	s, err := sigchain.Sign(keyOf(name), e)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func found(t rapid.TB, name string) sigchain.Signed {
	op, err := sigchain.Genesis{Name: "test"}.Op()
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, name, sigchain.Entry{Incarnation: 1, Seq: 1, Time: uint64(clock.At(startMs, 0)), Ops: []sigchain.Op{op}})
}

// after is an entry that follows prev in its chain, a millisecond later.
func after(t rapid.TB, name string, prev sigchain.Signed, parents []sigchain.Signed, ops ...sigchain.Op) sigchain.Signed {
	t.Helper()
	return sign(t, name, sigchain.Entry{
		Store: prev.Home(), Incarnation: prev.Incarnation, Seq: prev.Seq + 1, Time: prev.Time + 1<<16, Prev: prev.Link(), Parents: refs(parents), Ops: ops,
	})
}

// first is the first entry of an incarnation that follows prev; a zero prev is nothing.
func first(t rapid.TB, name string, store lattice.StoreID, incarnation uint64, prev sigchain.Link, parents []sigchain.Signed, ops ...sigchain.Op) sigchain.Signed {
	t.Helper()
	return sign(t, name, sigchain.Entry{
		Store: store, Incarnation: incarnation, Seq: 1, Time: uint64(clock.At(startMs+1, 0)), Prev: prev, Parents: refs(parents), Ops: ops,
	})
}

func refs(all []sigchain.Signed) []sigchain.Ref {
	var out []sigchain.Ref
	for _, s := range all {
		out = append(out, s.Ref())
	}
	return out
}

// set is an operation that sets a key of the map "0", ending these dots.
func set(t rapid.TB, name string, incarnation uint64, key, value string, supersedes ...state.Dot) sigchain.Op {
	t.Helper()
	return setIn(t, "0", name, incarnation, key, value, supersedes...)
}

// setIn is set in a map.
func setIn(t rapid.TB, in, name string, incarnation uint64, key, value string, supersedes ...state.Dot) sigchain.Op {
	t.Helper()
	slices.SortFunc(supersedes, state.Dot.Compare)
	slices.SortFunc(supersedes, state.Dot.Compare)
	p := &state.Put{
		Address: state.Address{Map: in, Key: []byte(key), Kind: state.Register}, Payload: state.Payload{Bytes: []byte(value)}, Supersedes: supersedes,
	}
	op, err := p.Encode(state.Writer{Author: id(name), Incarnation: incarnation})
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func dotOf(s sigchain.Signed, index uint32) state.Dot {
	return state.Dot{Writer: state.Writer{Author: s.Author, Incarnation: s.Incarnation}, Seq: s.Seq, Index: index}
}

func grant(t rapid.TB, to string, r roster.Role) sigchain.Op {
	op, err := roster.Member{Author: id(to), Role: r}.Op()
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func remove(t rapid.TB, of string, cut ...sigchain.Signed) sigchain.Op {
	rm := roster.Remove{Author: id(of)}
	for _, s := range cut {
		rm.Cut = append(rm.Cut, s.Link())
	}
	op, err := rm.Op()
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// replica is a caller of a machine that does its duties, in memory.
type replica struct {
	t       rapid.TB
	m       *Machine
	config  Config
	now     int64
	log     []sigchain.Signed // all that was offered and not refused, and forks
	entered map[sigchain.Place]lattice.Hash
	void    map[sigchain.Place]error
	order   []sigchain.Place // in which they entered
	space   *state.Space
	tree    memory
	records map[string][]byte
	rebuilt int
	base    *snap // it begins from this; nil: from nothing
}

type memory map[trie.Place][]byte

func (m memory) Get(p trie.Place) ([]byte, error) { return m[p], nil }

func newReplica(t rapid.TB, genesis sigchain.Signed) *replica {
	r := &replica{t: t, now: startMs + 1000, records: map[string][]byte{}}
	r.clear()
	r.config = Config{
		Genesis: genesis, MaxDriftMs: driftMs,
		Limits: Limits{Entries: 1000, Bytes: 1 << 20, AuthorEntries: 500, AuthorBytes: 1 << 19},
		Entry: func(p sigchain.Place) (sigchain.Signed, bool, error) {
			i := slices.IndexFunc(r.log, func(s sigchain.Signed) bool { return s.ID == r.entered[p] })
			if i < 0 {
				t.Fatalf("asked for %s, which has not come out", p)
			}
			return r.log[i], true, nil
		},
	}
	m, err := New(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.m = m
	return r
}

func (r *replica) clear() {
	r.entered, r.void, r.order = map[sigchain.Place]lattice.Hash{}, map[sigchain.Place]error{}, nil
	r.space, r.tree = &state.Space{}, memory{}
}

// offer offers entries and does what follows. It returns the status of the last.
func (r *replica) offer(all ...sigchain.Signed) Status {
	r.t.Helper()
	var last Status
	for _, s := range all {
		r.log = append(r.log, s) // durable before it is offered
		e, err := r.m.Offer(s, r.now)
		if err != nil {
			r.t.Fatal(err)
		}
		r.apply(e)
		r.rebuild()
		last = e.Status
	}
	return last
}

func (r *replica) advance(ms int64) {
	r.now += ms
	e, err := r.m.Advance(r.now)
	if err != nil {
		r.t.Fatal(err)
	}
	r.apply(e)
	r.rebuild()
}

func (r *replica) apply(e Effects) {
	for _, f := range e.Fold {
		s := f.Entry
		at := s.Ref().Place()
		if _, twice := r.entered[at]; twice {
			r.t.Fatalf("%s enters twice", at)
		}
		r.entered[at] = s.ID
		r.order = append(r.order, at)
		if f.Void != nil {
			r.void[at] = f.Void
		}
		for i, op := range f.Ops {
			if op != nil {
				r.space.Apply(op, dotOf(s, uint32(i)), s.Time)
			}
		}
	}
	for _, rec := range r.m.Changes() {
		r.records[string(rec.Key)] = bytes.Clone(rec.Value)
	}
	if len(r.m.Changes()) != 0 {
		r.t.Fatal("changes come twice")
	}
}

func (r *replica) rebuild() {
	for tries := 0; r.m.Stale(); tries++ {
		if tries > 3 {
			r.t.Fatal("a rebuild asks for a rebuild, again and again")
		}
		r.rebuilt++
		r.clear()
		if r.base != nil {
			r.m.Rebase(r.base.found(r.t))
			r.space = r.base.copied()
		} else {
			r.m.Reset()
		}
		r.records = map[string][]byte{}
		r.reoffer()
	}
}

func (r *replica) reoffer() {
	left := r.log
	for progress := true; progress && len(left) > 0; {
		var again []sigchain.Signed
		for _, s := range left {
			e, err := r.m.Offer(s, r.now)
			if errors.Is(err, ErrFull) {
				again = append(again, s)
			} else if err != nil {
				r.t.Fatal(err)
			}
			r.apply(e)
		}
		progress = len(again) < len(left)
		left = again
	}
}

// restart is the end of a process and the next one.
func (r *replica) restart() {
	m, err := Restore(r.config, func(yield func(Record) bool) {
		for k, v := range r.records {
			if !yield(Record{[]byte(k), v}) {
				return
			}
		}
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.m = m
	r.rebuild()
	r.reoffer()
	r.rebuild()
}

// rows is the whole state as text, with its root.
func (r *replica) rows() string {
	var b bytes.Buffer
	var leaves []trie.Leaf
	for a, row := range r.space.Rows {
		fmt.Fprintf(&b, "%s %q %s %x: %x\n", a.Map, a.Key, a.Kind, a.Sub, row.AppendTo(nil))
		leaves = append(leaves, trie.LeafOf(a, row))
	}
	root, _, err := trie.Update(memory{}, leaves)
	if err != nil {
		r.t.Fatal(err)
	}
	fmt.Fprintf(&b, "root %s\n", root)
	return b.String()
}

// get returns the values of a key's heads, sorted.
func (r *replica) get(key string) string {
	var all []string
	for _, h := range r.space.Row(state.Address{Map: "0", Key: []byte(key), Kind: state.Register}) {
		all = append(all, string(h.Payload.Bytes))
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// effective lists what has an effect.
func (r *replica) effective() []sigchain.Place {
	return slices.SortedFunc(func(yield func(sigchain.Place) bool) {
		for p := range r.entered {
			if r.void[p] == nil && !yield(p) {
				return
			}
		}
	}, sigchain.Place.Compare)
}

func (r *replica) waits() []sigchain.Place {
	var all []sigchain.Place
	waits, held := 0, 0
	for w := range r.m.Waiting {
		all = append(all, w.Entry.Ref().Place())
		if w.Status == Held {
			held++
		} else {
			waits++
		}
	}
	if gotWaits, gotHeld := r.m.Count(); gotWaits != waits || gotHeld != held {
		r.t.Errorf("counted %d that wait and %d held, there are %d and %d", gotWaits, gotHeld, waits, held)
	}
	slices.SortFunc(all, sigchain.Place.Compare)
	return all
}

// checkRecords fails if the records that were kept are not all there are.
func (r *replica) checkRecords() {
	r.t.Helper()
	all := map[string][]byte{}
	for rec := range r.m.records {
		all[string(rec.Key)] = rec.Value
	}
	if _, ok := r.records["m"]; !ok {
		delete(all, "m")
	}
	if !maps.EqualFunc(all, r.records, bytes.Equal) {
		for k, v := range all {
			if !bytes.Equal(v, r.records[k]) {
				r.t.Errorf("record %x: kept %x, is %x", k, r.records[k], v)
			}
		}
		for k, v := range r.records {
			if _, ok := all[k]; !ok {
				r.t.Errorf("record %x: kept %x, is nothing", k, v)
			}
		}
		r.t.FailNow()
	}
}

func permutations[T any](all []T) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		var rec func(done, rest []T) bool
		rec = func(done, rest []T) bool {
			if len(rest) == 0 {
				return yield(slices.Clone(done))
			}
			for i := range rest {
				if !rec(append(done, rest[i]), slices.Delete(slices.Clone(rest), i, i+1)) {
					return false
				}
			}
			return true
		}
		rec(nil, all)
	}
}
