package cosign

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/merkle"
)

func who(n int) lattice.AuthorID { return lattice.AuthorID{byte(n), 1} }

func whos(n int) []lattice.AuthorID {
	var all []lattice.AuthorID
	for i := range n {
		all = append(all, who(i))
	}
	return all
}

// TestHolds by hand.
func TestHolds(t *testing.T) {
	held := map[lattice.AuthorID]Held{who(0): {10, 100}, who(1): {7, 70}, who(9): {99, 990}}
	q := Quorum{whos(3), 2}
	if h, ok := q.Holds(held); !ok || h != (Held{7, 70}) {
		t.Errorf("two of three hold %+v, %v", h, ok)
	}
	q.Min = 3
	if h, ok := q.Holds(held); ok {
		t.Errorf("three of three hold %+v, but one said nothing", h)
	}
	if _, ok := (Quorum{}).Holds(held); ok {
		t.Error("nobody holds something")
	}
}

// TestCommittedAsMerge: without earlier quorums, what is committed is what the merge of all
// that is known says (core/merge).
func TestCommittedAsMerge(t *testing.T) {
	// Proofs that each shorter one begins each longer: as a tree of one leaf after another
	// would give them.
	tree := merkle.NewAppender(merkle.Range{})
	roots := []lattice.Hash{tree.Root()}
	for i := range 12 {
		tree.Append(nil, merkle.LeafHash(&[merkle.LeafSize]byte{byte(i)}))
		roots = append(roots, tree.Root())
	}
	at := func(n uint64) merge.Point {
		if n == 0 {
			return merge.Empty()
		}
		return merge.Point{Size: n, Root: roots[n], End: int64(n * 10)}
	}
	var prefixes []merge.Prefix
	nodes := leaves{}
	for i := range 12 {
		nodes = append(nodes, merkle.LeafHash(&[merkle.LeafSize]byte{byte(i)}))
	}
	for a := uint64(1); a <= 12; a++ {
		for b := a + 1; b <= 12; b++ {
			proof, err := merkle.Consistency(nodes, a, b)
			if err != nil {
				t.Fatal(err)
			}
			p, err := merge.Prove(at(a), at(b), proof)
			if err != nil {
				t.Fatal(err)
			}
			prefixes = append(prefixes, p)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		set := whos(rapid.IntRange(1, 5).Draw(t, "set"))
		min := rapid.IntRange(1, len(set)).Draw(t, "min")
		grant := lattice.Hash{7}
		s := merge.State{Prefixes: prefixes, Terms: []merge.Term{{ID: grant, Number: 1, Leader: who(0), Base: merge.Empty(), AckSet: set, Min: min}}}
		held := map[lattice.AuthorID]Held{}
		top := rapid.Uint64Range(1, 12).Draw(t, "signed")
		s.Heads = append(s.Heads, merge.Head{ID: lattice.Hash{9}, Author: who(0), Grant: grant, Term: 1, Point: at(top)})
		held[who(0)] = Held{top, int64(top * 10)}
		for range rapid.IntRange(0, 8).Draw(t, "acks") {
			a, n := who(rapid.IntRange(1, 6).Draw(t, "who")), rapid.Uint64Range(1, top).Draw(t, "size")
			s.Acks = append(s.Acks, merge.Ack{Author: a, Grant: grant, Point: at(n)})
			if n > held[a].Size {
				held[a] = Held{n, int64(n * 10)}
			}
		}
		got, _ := Term{Quorum: Quorum{set, min}}.Committed(held)
		if want := merge.New(s).View(at(top)).Committed; got.Size != want.Size || got.End != want.End {
			t.Fatalf("committed %+v, the merge says %+v", got, want)
		}
	})
}

// leaves are the hashes of a tree's leaves.
type leaves []lattice.Hash

func (l leaves) Node(level uint, index uint64) (lattice.Hash, error) {
	if level == 0 {
		return l[index], nil
	}
	a, _ := l.Node(level-1, 2*index)
	b, err := l.Node(level-1, 2*index+1)
	return merkle.NodeHash(a, b), err
}

// TestPromisesMeetWhatIsCommitted: whatever sets and numbers follow each other, if something
// is committed in a term, any promises that would be enough by an earlier set, or by
// this one, include one by a member that knows of it.
func TestPromisesMeetWhatIsCommitted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		quorum := func() Quorum {
			n := rapid.IntRange(0, 3).Draw(t, "others")
			set := []lattice.AuthorID{who(0)} // the leader is always one of them
			for _, i := range rapid.Permutation([]int{1, 2, 3, 4}).Draw(t, "who")[:n] {
				set = append(set, who(i))
			}
			return Quorum{set, rapid.IntRange(1, len(set)).Draw(t, "min")}
		}
		all := []Quorum{quorum()}
		term := Term{Quorum: all[0]}
		since := 0 // the first quorum since something was committed
		for range rapid.IntRange(0, 3).Draw(t, "terms") {
			settled := rapid.Bool().Draw(t, "settled")
			if settled {
				since = len(all) - 1
			}
			q := quorum()
			term, all = term.After(q, settled), append(all, q)
		}
		held := map[lattice.AuthorID]Held{who(0): {1, 1}}
		for i := 1; i <= 4; i++ {
			if rapid.Bool().Draw(t, "acked") && slices.Contains(term.Voters(), who(i)) {
				held[who(i)] = Held{1, 1}
			}
		}
		if _, ok := term.Committed(held); !ok {
			return
		}
		for _, q := range all[since:] {
			silent := 0 // members of the set who could promise and know nothing
			for _, a := range q.Set {
				if _, knows := held[a]; !knows {
					silent++
				}
			}
			if silent >= len(q.Set)-q.Min+1 {
				t.Fatalf("committed in %+v by %v; %d of %+v know nothing of it, and may promise", term, held, silent, q)
			}
		}
	})
}
