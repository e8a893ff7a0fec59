package trie

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"pgregory.net/rapid"
)

func tree(t rapid.TB, rows []Leaf) (*memory, lattice.Hash) {
	m := &memory{}
	return m, m.update(t, slices.Clone(rows))
}

// ofKey returns the rows of a key, ascending.
func ofKey(leaves []Leaf, key lattice.Hash) []Leaf {
	return slices.DeleteFunc(slices.Clone(leaves), func(l Leaf) bool { return l.Path.Key() != key })
}

// TestProofs: of any tree, everything that is there can be proven, everything
// that is not too, and no proof shows the contrary.
func TestProofs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leaves := sorted(rapid.MapOfN(paths(), values(), 0, 30).Draw(t, "leaves"))
		m, root := tree(t, leaves)
		asked := rapid.SliceOfN(paths(), 1, 10).Draw(t, "asked")
		for _, l := range leaves {
			asked = append(asked, l.Path)
		}
		for _, p := range asked {
			provesRow(t, m, root, leaves, p)
			provesKey(t, m, root, leaves, p.Key())
		}
	})
}

func provesRow(t *rapid.T, m *memory, root lattice.Hash, leaves []Leaf, p Path) {
	i := slices.IndexFunc(leaves, func(l Leaf) bool { return l.Path == p })
	proof, present, err := ProveRow(m, p)
	if err != nil || present != (i >= 0) {
		t.Fatalf("row %x: present %v, %v", p, present, err)
	}
	proof = parsed(t, proof)
	if !present {
		if err := proof.NoRow(root, p); err != nil {
			t.Fatalf("row %x: %v", p, err)
		}
		if proof.Row(root, Leaf{p, lattice.Hash{1}}) == nil {
			t.Fatalf("row %x is not there, and proven", p)
		}
		return
	}
	if err := proof.Row(root, leaves[i]); err != nil {
		t.Fatalf("row %x: %v", p, err)
	}
	other := leaves[i]
	other.Value[9]++
	if proof.Row(root, other) == nil || proof.Row(lattice.Hash{1}, leaves[i]) == nil || proof.NoRow(root, p) == nil {
		t.Fatalf("row %x: another value, root or its absence is proven", p)
	}
	for _, l := range leaves { // the best that a liar can do: the proof of another row
		near, _, err := ProveRow(m, l.Path)
		near.Near = &l
		if err != nil || near.NoRow(root, p) == nil {
			t.Fatalf("row %x: shown to be absent by row %x, %v", p, l.Path, err)
		}
	}
}

func provesKey(t *rapid.T, m *memory, root lattice.Hash, leaves []Leaf, key lattice.Hash) {
	rows := ofKey(leaves, key)
	proof, present, err := ProveKey(m, key)
	if err != nil || present != (len(rows) > 0) {
		t.Fatalf("key %s: present %v, %v", key, present, err)
	}
	proof = parsed(t, proof)
	if !present {
		if err := proof.NoKey(root, key); err != nil {
			t.Fatalf("key %s: %v", key, err)
		}
		return
	}
	if err := proof.Rows(root, key, rows); err != nil {
		t.Fatalf("key %s: %v", key, err)
	}
	changed := slices.Clone(rows)
	changed[0].Value[0] ^= 0x40
	more := append(slices.Clone(rows), Leaf{rows[len(rows)-1].Path, lattice.Hash{1}})
	more[len(rows)].Path[PathSize-1]++
	for what, some := range map[string][]Leaf{"without the first": rows[1:], "without the last": rows[:len(rows)-1], "with a changed": changed, "with one more": more} {
		if proof.Rows(root, key, some) == nil {
			t.Fatalf("key %s: proven %s row", key, what)
		}
	}
	for _, l := range leaves {
		near, _, err := ProveRow(m, l.Path)
		near.Near = &l
		if err != nil || near.NoKey(root, key) == nil {
			t.Fatalf("key %s: shown to be absent by row %x, %v", key, l.Path, err)
		}
	}
}

func parsed(t rapid.TB, proof Proof) Proof {
	t.Helper()
	b := proof.AppendTo(nil)
	p, err := ParseProof(b)
	if err != nil || !bytes.Equal(p.AppendTo(nil), b) {
		t.Fatalf("proof %x is read as %+v, %v", b, p, err)
	}
	return p
}

// TestProofIsShort: a row among many takes a few hundred bytes.
func TestProofIsShort(t *testing.T) {
	var rows []Leaf
	for i := range 100000 {
		rows = append(rows, row("0", fmt.Sprint("key ", i), "v"))
	}
	m, root := tree(t, rows)
	longest := 0
	for i := range 100 {
		l := row("0", fmt.Sprint("key ", i), "v")
		proof, _, err := ProveRow(m, l.Path)
		if err != nil || proof.Row(root, l) != nil {
			t.Fatal(err)
		}
		longest = max(longest, len(proof.AppendTo(nil)))
	}
	if longest > 1200 { // 35 steps: 17 are needed on average
		t.Errorf("%d bytes", longest)
	}
}

func goldenTree(t testing.TB) (*memory, lattice.Hash, []Leaf) {
	var rows []Leaf
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		rows = append(rows, row("0", key, "value of "+key))
	}
	for _, member := range []string{"x", "y"} {
		rows = append(rows, LeafOf(state.Address{Map: "0", Key: []byte("set"), Kind: state.Member, Sub: []byte(member)}, state.Row{{
			Dot: state.Dot{Writer: state.Writer{Author: lattice.AuthorID{9}, Incarnation: 1}, Seq: 7}, Time: 1,
		}}))
	}
	m, root := tree(t, rows)
	return m, root, rows
}

// TestGoldenBytes pins stored nodes and proofs as they were first written.
func TestGoldenBytes(t *testing.T) {
	m, root, rows := goldenTree(t)
	got := fmt.Sprintf("root %s\n", root)
	for _, place := range slices.Sorted(func(yield func(string) bool) {
		for p := range m.nodes {
			if !yield(p) {
				return
			}
		}
	}) {
		got += fmt.Sprintf("node %x %x\n", place, m.nodes[place])
	}
	row1, _, err1 := ProveRow(m, rows[1].Path)
	set, _, err2 := ProveKey(m, rows[5].Path.Key())
	none, _, err3 := ProveKey(m, KeyOf("0", []byte("nobody")))
	if err := errors.Join(err1, err2, err3, row1.Row(root, rows[1]), none.NoKey(root, KeyOf("0", []byte("nobody")))); err != nil {
		t.Fatal(err)
	}
	got += fmt.Sprintf("row %x\nkey %x\nabsent %x\n", row1.AppendTo(nil), set.AppendTo(nil), none.AppendTo(nil))
	want, err := os.ReadFile("testdata/v1/golden.txt")
	if err != nil || got != string(want) {
		t.Errorf("%v; now:\n%s", err, got)
	}
}

func goldenProofs(t testing.TB) [][]byte {
	text, err := os.ReadFile("testdata/v1/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for line := range strings.Lines(string(text)) {
		what, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if b, err := hex.DecodeString(value); err == nil && what != "root" {
			out = append(out, b)
		}
	}
	if len(out) != 3 {
		t.Fatalf("%d proofs, want 3", len(out))
	}
	return out
}

// TestChangedProof: no changed byte of a proof goes unnoticed.
func TestChangedProof(t *testing.T) {
	_, root, rows := goldenTree(t)
	set := ofKey(sorted(map[Path]lattice.Hash{rows[5].Path: rows[5].Value, rows[6].Path: rows[6].Value}), rows[5].Path.Key())
	holds := []func(Proof) error{
		func(p Proof) error { return p.Row(root, rows[1]) },
		func(p Proof) error { return p.Rows(root, rows[5].Path.Key(), set) },
		func(p Proof) error { return p.NoKey(root, KeyOf("0", []byte("nobody"))) },
	}
	for n, b := range goldenProofs(t) {
		check := func(b []byte) error {
			p, err := ParseProof(b)
			if err != nil {
				return err
			}
			return holds[n](p)
		}
		if err := check(b); err != nil {
			t.Fatalf("proof %d: %v", n, err)
		}
		for i := range b {
			for _, mask := range []byte{1, 0x80, 0xff} {
				c := bytes.Clone(b)
				c[i] ^= mask
				if err := check(c); !errors.Is(err, ErrProof) {
					t.Errorf("proof %d, byte %d ^ %#x: %v, want ErrProof", n, i, mask, err)
				}
			}
			if _, err := ParseProof(b[:i]); !errors.Is(err, ErrProof) {
				t.Errorf("proof %d, the first %d bytes: %v", n, i, err)
			}
		}
	}
}

// FuzzParseProof checks, for any bytes: no panic; what parses encodes back to the
// bytes it came from, and shows nothing of a tree that it was not made for.
func FuzzParseProof(f *testing.F) {
	for _, b := range goldenProofs(f) {
		f.Add(b)
	}
	root := lattice.Hash{7}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseProof(b)
		if err != nil {
			if !errors.Is(err, ErrProof) {
				t.Fatalf("%v is no ErrProof", err)
			}
			return
		}
		if again := p.AppendTo(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x is read and written as %x", b, again)
		}
		l := Leaf{Path{1}, lattice.Hash{2}}
		if p.Row(root, l) == nil || p.Rows(root, l.Path.Key(), []Leaf{l}) == nil || p.NoRow(root, l.Path) == nil || p.NoKey(root, l.Path.Key()) == nil {
			t.Fatalf("%x shows something", b)
		}
	})
}
