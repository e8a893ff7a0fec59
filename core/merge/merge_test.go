package merge

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/internal/testkit/laws"
	"pgregory.net/rapid"
)

// In these tests a history is a string, each letter a block of ten offsets, and
// stands for its own tree: one is a prefix of another if it is as a string.

func at(history string) Point {
	if history == "" {
		return Empty()
	}
	return Point{uint64(len(history)), sha256.Sum256([]byte(history)), int64(10 * len(history))}
}

func id(name string) lattice.Hash { return sha256.Sum256([]byte("id " + name)) }

func author(name string) lattice.AuthorID { return lattice.AuthorID(id("author " + name)) }

// head is a checkpoint of a term, by the term's name ("" for none).
func head(term, history string, start int64) Head {
	h := Head{ID: id(fmt.Sprint("head ", term, history, start)), Author: author("leader " + term), Point: at(history), Start: start, Time: 1}
	if term != "" {
		h.Grant = id(term)
	}
	return h
}

// term is a grant after another ("" for the first), whose ack set is its leader.
func term(name, previous string, number int32, base string) Term {
	t := Term{ID: id(name), Number: number, Leader: author("leader " + name), Base: at(base), AckSet: []lattice.AuthorID{author("leader " + name)}, Min: 1}
	if previous != "" {
		t.Previous = id(previous)
	}
	return t
}

func ack(who, term, history string) Ack { return Ack{author(who), id(term), at(history)} }

// proven is evidence that each history is a prefix of the next.
func proven(histories ...string) []Prefix {
	var p []Prefix
	for i, to := range histories[1:] {
		if !strings.HasPrefix(to, histories[i]) {
			panic("no such proof exists")
		}
		p = append(p, Prefix{at(histories[i]), at(to)})
	}
	return p
}

func state(parts ...any) State {
	var s State
	for _, p := range parts {
		switch p := p.(type) {
		case Head:
			s.Heads = append(s.Heads, p)
		case []Head:
			s.Heads = append(s.Heads, p...)
		case Ack:
			s.Acks = append(s.Acks, p)
		case Term:
			s.Terms = append(s.Terms, p)
		case []Prefix:
			s.Prefixes = append(s.Prefixes, p...)
		case State:
			s = Join(s, p)
		}
	}
	return New(s)
}

func equalStates(a, b State) bool { return reflect.DeepEqual(a, b) }

// branches draws a tree of histories: each grows out of a prefix of an earlier
// one, as those of honest and equivocating writers do.
func branches(t *rapid.T) []string {
	all := []string{""}
	for i := range rapid.IntRange(1, 4).Draw(t, "branches") {
		from := rapid.SampledFrom(all).Draw(t, "from")
		from = from[:rapid.IntRange(0, len(from)).Draw(t, "cut")]
		for range rapid.IntRange(1, 4).Draw(t, "blocks") {
			from += string(rune('a' + i))
			all = append(all, from)
		}
	}
	return all
}

func heads(histories []string, terms []string) *rapid.Generator[Head] {
	return rapid.Custom(func(t *rapid.T) Head {
		history := rapid.SampledFrom(histories).Draw(t, "history")
		h := head(rapid.SampledFrom(terms).Draw(t, "term"), history, rapid.Int64Range(0, int64(10*len(history))).Draw(t, "start"))
		h.Time = rapid.Uint64Range(1, 3).Draw(t, "time")
		h.ID[0] = byte(h.Time)
		if rapid.IntRange(0, 9).Draw(t, "lies") == 0 && h.End > h.Start {
			h.End-- // the same tree, said to end elsewhere
		}
		return h
	})
}

// TestHeadsAreALattice joins heads by what is true of their histories.
func TestHeadsAreALattice(t *testing.T) {
	laws.JoinWithin(t, func(t *rapid.T) *rapid.Generator[[]Head] {
		all := branches(t)
		known := map[Point]string{}
		for _, h := range all {
			known[at(h)] = h
		}
		return rapid.Map(rapid.SliceOfN(heads(all, []string{"t1", "t2"}), 0, 5), func(hs []Head) []Head { return JoinHeads(hs, nil, truth(known)) })
	}, func(a, b []Head) []Head {
		return JoinHeads(a, b, func(p, q Point) bool { return truth(histories(a, b))(p, q) })
	}, func(a, b []Head) bool { return reflect.DeepEqual(a, b) })
}

// truth is the prefix relation of all known histories.
func truth(known map[Point]string) func(p, q Point) bool {
	return func(p, q Point) bool {
		a, ok := known[p]
		b, ok2 := known[q]
		return p == q || ok && ok2 && strings.HasPrefix(b, a)
	}
}

// histories finds the history of each head by trying: all there are in a test.
func histories(sets ...[]Head) map[Point]string {
	known := map[Point]string{}
	for _, set := range sets {
		for _, h := range set {
			if s, ok := spell(h.Point); ok {
				known[h.Point] = s
			}
		}
	}
	return known
}

// spelled holds every history of up to five runs of letters that branches draws.
func spell(p Point) (string, bool) {
	s, ok := spelled[p]
	return s, ok
}

var spelled = func() map[Point]string {
	out := map[Point]string{Empty(): ""}
	var grow func(s string)
	grow = func(s string) {
		if len(s) > 9 {
			return
		}
		last := byte('a' - 1)
		if s != "" {
			last = s[len(s)-1]
		}
		for c := max(last, 'a'); c <= 'd'; c++ {
			out[at(s+string(c))] = s + string(c)
			grow(s + string(c))
		}
	}
	grow("")
	return out
}()

func states(t *rapid.T) *rapid.Generator[State] {
	all := branches(t)
	terms := []Term{term("t1", "", 1, ""), term("t2", "t1", 2, rapid.SampledFrom(all).Draw(t, "base")), term("t3", "t1", 2, rapid.SampledFrom(all).Draw(t, "base"))}
	return rapid.Custom(func(t *rapid.T) State {
		var s State
		s.Heads = rapid.SliceOfN(heads(all, []string{"t1", "t2", "t3", ""}), 0, 4).Draw(t, "heads")
		s.Terms = rapid.SliceOf(rapid.SampledFrom(terms)).Draw(t, "terms")
		for range rapid.IntRange(0, 3).Draw(t, "acks") {
			s.Acks = append(s.Acks, ack(rapid.SampledFrom([]string{"x", "y"}).Draw(t, "by"), "t1", rapid.SampledFrom(all).Draw(t, "up to")))
		}
		for range rapid.IntRange(0, 6).Draw(t, "proofs") { // not all: a replica has some
			to := rapid.SampledFrom(all).Draw(t, "to")
			from := to[:rapid.IntRange(0, len(to)).Draw(t, "from")]
			if slices.Contains(all, from) {
				s.Prefixes = append(s.Prefixes, proven(from, to)...)
			}
		}
		return New(s)
	})
}

// TestStatesAreALattice joins states that hold only some of the evidence, with
// writers that equivocate, lie about offsets and truncate.
func TestStatesAreALattice(t *testing.T) {
	laws.JoinWithin(t, states, Join, equalStates)
}

// TestNothingIsLost: whatever a join drops, something in it stands for it, and
// what one state knows to be a fork, their join knows.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		gen := states(t)
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		j := Join(a, b)
		k := j.knowledge()
		for _, h := range slices.Concat(a.Heads, b.Heads) {
			if !slices.ContainsFunc(j.Heads, func(o Head) bool {
				return o.Grant == h.Grant && o.Start >= h.Start && k.prefix(h.Point, o.Point)
			}) {
				t.Fatalf("nothing stands for %+v in %+v", h, j.Heads)
			}
		}
		for _, x := range slices.Concat(a.Acks, b.Acks) {
			if !slices.ContainsFunc(j.Acks, func(o Ack) bool { return o.Author == x.Author && o.Grant == x.Grant && k.prefix(x.Point, o.Point) }) {
				t.Fatalf("nothing stands for %+v", x)
			}
		}
		if len(a.View(Empty()).Forks) > 0 && len(j.View(Empty()).Forks) == 0 {
			t.Fatal("evidence of a fork is gone")
		}
	})
}

// TestWindowsOfOneLog takes all copies [start, end) of a log of five records and
// of one that diverges, in all pairs and triples. (Merging such copies by their
// length is where the simple rule stops being commutative.)
func TestWindowsOfOneLog(t *testing.T) {
	var all [][]Head
	for _, history := range []string{"aaaaa", "aaabb"} {
		for end := 1; end <= 5; end++ {
			for start := range end + 1 {
				all = append(all, []Head{head("", history[:end], int64(10*start))})
			}
		}
	}
	prefix := func(p, q Point) bool { return truth(histories([]Head{{Point: p}, {Point: q}}))(p, q) }
	join := func(a, b []Head) []Head { return JoinHeads(a, b, prefix) }
	if broken := laws.Broken(join, func(a, b []Head) bool { return reflect.DeepEqual(a, b) }, all...); broken != "" {
		t.Error(broken)
	}
}

// TestProve takes its evidence from real trees.
func TestProve(t *testing.T) {
	a := merkle.NewAppender(merkle.Range{})
	var hashes []lattice.Hash
	points := []Point{Empty()}
	for i := range int64(20) {
		h := merkle.Leaf{Base: i, Last: i, Length: 1}.Hash()
		hashes = append(hashes, h)
		a.Append(nil, h)
		points = append(points, Point{a.Size(), a.Root(), i + 1})
	}
	s := merkle.Source{Leaves: func(from, to uint64) ([]lattice.Hash, error) { return hashes[from:to], nil }}
	for from := range points {
		for to := from; to < len(points); to++ {
			proof, err := merkle.Consistency(s, uint64(from), uint64(to))
			if err != nil {
				t.Fatal(err)
			}
			p, err := Prove(points[from], points[to], proof)
			if err != nil || p != (Prefix{points[from], points[to]}) {
				t.Fatalf("%d to %d: %+v, %v", from, to, p, err)
			}
			other := points[to]
			other.Root[0]++
			if _, err := Prove(points[from], other, proof); from > 0 && !errors.Is(err, merkle.ErrProof) {
				t.Fatalf("%d to %d, another root: %v", from, to, err)
			}
			other = points[to]
			other.End = int64(from) - 1
			if _, err := Prove(points[from], other, proof); !errors.Is(err, ErrContradiction) {
				t.Fatalf("%d to %d, an end below: %v", from, to, err)
			}
			if from < to {
				other.End = points[from].End
				if _, err := Prove(points[from], other, proof); !errors.Is(err, ErrContradiction) {
					t.Fatalf("%d to %d, the same end: %v", from, to, err)
				}
			}
		}
	}
}

func TestFromSigned(t *testing.T) {
	key := identity.FromSeed([32]byte{1})
	g, err := grant.Sign(key, grant.Grant{Term: 7, Leader: key.Author(), Incarnation: 3, BaseSize: 2, BaseRoot: lattice.Hash{1}, BaseOffset: 5,
		Previous: lattice.Hash{9}, AckSet: []lattice.AuthorID{key.Author()}, Min: 1, Kind: grant.Unclean})
	if err != nil {
		t.Fatal(err)
	}
	tm := TermOf(g)
	if tm.ID != g.ID || tm.Previous != g.Previous || tm.Number != 7 || tm.Base != (Point{2, lattice.Hash{1}, 5}) || !tm.Unclean || tm.Min != 1 || tm.Leader != key.Author() {
		t.Errorf("%+v", tm)
	}
	c := merkle.Checkpoint{Origin: merkle.Origin(lattice.StoreID{}, "x"), Size: 3, Root: lattice.Hash{4}, Start: 1, End: 6, Term: 7, Grant: g.ID, Incarnation: 3, Time: 11}
	h := HeadOf(c, key.Author())
	if h.Point != (Point{3, lattice.Hash{4}, 6}) || h.Start != 1 || h.Grant != g.ID || h.Term != 7 || h.Time != 11 || h.Incarnation != 3 || h.ID.IsZero() || h.Author != key.Author() {
		t.Errorf("%+v", h)
	}
	c.Time++
	if HeadOf(c, key.Author()).ID == h.ID {
		t.Error("two checkpoints have one id")
	}
}
