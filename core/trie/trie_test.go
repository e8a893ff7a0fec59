package trie

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"pgregory.net/rapid"
)

// memory is a store that counts what is asked of it.
type memory struct {
	nodes map[string][]byte
	reads map[string]int
}

func (m *memory) Get(p Place) ([]byte, error) {
	k := string(p.AppendTo(nil))
	if m.reads == nil {
		m.reads = map[string]int{}
	}
	m.reads[k]++
	return m.nodes[k], nil
}

func (m *memory) apply(t rapid.TB, puts []Put) {
	t.Helper()
	if m.nodes == nil {
		m.nodes = map[string][]byte{}
	}
	seen := map[Place]bool{}
	for _, p := range puts {
		if seen[p.Place] {
			t.Fatalf("place %q is put twice", p.Place)
		}
		seen[p.Place] = true
		if p.Data == nil {
			delete(m.nodes, string(p.Place.AppendTo(nil)))
		} else {
			m.nodes[string(p.Place.AppendTo(nil))] = bytes.Clone(p.Data)
		}
	}
}

func (m *memory) update(t rapid.TB, changes []Leaf) lattice.Hash {
	t.Helper()
	m.reads = nil
	root, puts, err := Update(m, changes)
	if err != nil {
		t.Fatal(err)
	}
	for p, n := range m.reads {
		if n != 1 {
			t.Fatalf("place %x is read %d times", p, n)
		}
	}
	m.apply(t, puts)
	return root
}

// naive hashes leaves bit by bit, as the definition has it.
func naive(leaves map[Path]lattice.Hash) lattice.Hash {
	var under func(all []Path, bit int) lattice.Hash
	under = func(all []Path, bit int) lattice.Hash {
		if len(all) == 1 {
			v := leaves[all[0]]
			return sha256.Sum256(slices.Concat([]byte("lattice/state-leaf/v1\x00"), all[0][:], v[:]))
		}
		var sides [2][]Path
		for _, p := range all {
			side := p[bit/8] >> (7 - bit%8) & 1
			sides[side] = append(sides[side], p)
		}
		for i, side := range sides {
			if len(side) == 0 {
				return under(sides[1-i], bit+1)
			}
		}
		left, right := under(sides[0], bit+1), under(sides[1], bit+1)
		return sha256.Sum256(slices.Concat([]byte("lattice/state-node/v1\x00"), binary.BigEndian.AppendUint16(nil, uint16(bit)), left[:], right[:]))
	}
	if len(leaves) == 0 {
		return sha256.Sum256(nil)
	}
	return under(slices.Collect(maps.Keys(leaves)), 0)
}

// paths draws paths that often share long and short beginnings, with each other
// and with the middle of a byte.
func paths() *rapid.Generator[Path] {
	return rapid.Custom(func(t *rapid.T) Path {
		var p Path
		n := rapid.SampledFrom([]int{0, 1, 2, 31, 32, 33, 63}).Draw(t, "byte")
		p[n] = rapid.SampledFrom([]byte{0, 1, 8, 0x10, 0x80, 0xff}).Draw(t, "value")
		if rapid.Bool().Draw(t, "second") {
			p[rapid.SampledFrom([]int{0, 32, 40, 63}).Draw(t, "other byte")] = rapid.Byte().Draw(t, "other value")
		}
		return p
	})
}

func values() *rapid.Generator[lattice.Hash] {
	return rapid.Custom(func(t *rapid.T) lattice.Hash { return lattice.Hash{rapid.ByteRange(1, 3).Draw(t, "value")} })
}

func sorted(leaves map[Path]lattice.Hash) []Leaf {
	var out []Leaf
	for p, v := range leaves {
		out = append(out, Leaf{p, v})
	}
	slices.SortFunc(out, func(a, b Leaf) int { return bytes.Compare(a.Path[:], b.Path[:]) })
	return out
}

// TestUpdate changes rows in random batches: the root and the stored nodes are
// those of the rows that are there, whatever was there before.
func TestUpdate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m memory
		leaves := map[Path]lattice.Hash{}
		known := rapid.SliceOfNDistinct(paths(), 1, 40, rapid.ID[Path]).Draw(t, "paths")
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			var batch []Leaf
			for _, p := range rapid.SliceOfNDistinct(rapid.SampledFrom(known), 0, len(known), rapid.ID[Path]).Draw(t, "batch") {
				l := Leaf{Path: p}
				if rapid.IntRange(0, 2).Draw(t, "what") > 0 {
					l.Value = values().Draw(t, "to")
					leaves[p] = l.Value
				} else {
					delete(leaves, p)
				}
				batch = append(batch, l)
			}
			root := m.update(t, batch)
			if want := naive(leaves); root != want {
				t.Fatalf("root %s, want %s", root, want)
			}
			if again, err := Root(&m); err != nil || again != root {
				t.Fatalf("read back as %s, %v", again, err)
			}
			if again := Rebuild(sorted(leaves)); again != root {
				t.Fatalf("rebuilt as %s, want %s", again, root)
			}
		}
		var fresh memory
		fresh.update(t, sorted(leaves))
		if !maps.EqualFunc(m.nodes, fresh.nodes, bytes.Equal) {
			t.Fatalf("%d nodes are stored, %d when made at once", len(m.nodes), len(fresh.nodes))
		}
		checkWhole(t, &m, leaves)
	})
}

func checkWhole(t rapid.TB, m *memory, leaves map[Path]lattice.Hash) {
	t.Helper()
	var got []Leaf
	root, err := Check(m, func(l Leaf) error {
		got = append(got, l)
		return nil
	})
	if err != nil || root != naive(leaves) || !slices.Equal(got, sorted(leaves)) {
		t.Fatalf("Check: root %s, %d leaves, %v", root, len(got), err)
	}
}

// TestSameChangeTwice: what changes nothing writes nothing.
func TestSameChangeTwice(t *testing.T) {
	var m memory
	var rows []Leaf
	for i := range 100 {
		rows = append(rows, row("0", fmt.Sprint("key ", i), "v"))
	}
	root := m.update(t, rows)
	again, puts, err := Update(&m, append(rows, Leaf{Path: Path{1, 2, 3}}))
	if err != nil || again != root || len(puts) != 0 {
		t.Errorf("root %s, %d puts, %v", again, len(puts), err)
	}
	if _, _, err := Update(&m, []Leaf{rows[0], rows[0]}); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("one path twice: %v", err)
	}
}

func row(m, key, value string) Leaf {
	return LeafOf(state.Address{Map: m, Key: []byte(key), Kind: state.Register}, state.Row{{
		Dot:     state.Dot{Writer: state.Writer{Author: lattice.AuthorID{1}, Incarnation: 2}, Seq: 3},
		Payload: state.Payload{Bytes: []byte(value)},
	}})
}

// TestReadsTheWayOnly: one changed row among many reads and writes what lies
// between it and the root.
func TestReadsTheWayOnly(t *testing.T) {
	var m memory
	var rows []Leaf
	for i := range 10000 {
		rows = append(rows, row("0", fmt.Sprint("key ", i), "v"))
	}
	m.update(t, rows)
	for i := range 100 {
		m.reads = nil
		_, puts, err := Update(&m, []Leaf{row("0", fmt.Sprint("key ", i), "w")})
		if err != nil || len(m.reads) > 7 || len(puts) != len(m.reads) {
			t.Fatalf("key %d: %d reads, %d puts, %v", i, len(m.reads), len(puts), err)
		}
	}
}

// TestGoldenRoots pins roots that others may have signed. If one changes, the
// design is wrong, not the test.
func TestGoldenRoots(t *testing.T) {
	one := []Leaf{row("0", "greeting", "hello")}
	three := []Leaf{one[0], row("0", "other", ""), row("$topics", "greeting", "hello")}
	set := three
	for _, member := range []string{"a", "b"} {
		set = append(set, LeafOf(state.Address{Map: "0", Key: []byte("set"), Kind: state.Member, Sub: []byte(member)}, state.Row{{
			Dot: state.Dot{Writer: state.Writer{Author: lattice.AuthorID{9}, Incarnation: 1}, Seq: 7, Index: 300}, Time: 1 << 40,
		}}))
	}
	for _, c := range []struct {
		rows []Leaf
		want string
	}{
		{nil, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
		{one, "834b62a6b46b6d8a35cca810f3985082ec1e5747b4b7980dffaee8bb7d638197"},
		{three, "f57fd76e0db41e2f59238fa498270ffbcac57a4134673e049520953d7f4e0ad5"},
		{set, "aed537d846d6cd8a821f58ea08ba1025ca325b34ef9ddd5cad323febe659a64b"},
	} {
		var m memory
		if root := m.update(t, slices.Clone(c.rows)); root.String() != c.want {
			t.Errorf("%d rows: root %s, want %s", len(c.rows), root, c.want)
		}
	}
	if got := fmt.Sprintf("%x", one[0].Path); got != "b2a8d1293fdd929217ce2fb0c6db515483b85f8acab92bc45fbf8d20f82a66e34bf5122f344554c53bde2ebb8cd2b7e3d1600ad631c385a5d7cce23c7785459a" {
		t.Errorf("path %s", got)
	}
	if got := one[0].Value.String(); got != "08a3db4e7122574b3508af76caadcecd400f4ec22534dfb83e8e616e8741ab96" {
		t.Errorf("value %s", got)
	}
}

// TestDamage: every changed byte of a stored node is noticed, by its form or by
// its hash, and no node may be missing.
func TestDamage(t *testing.T) {
	var m memory
	var rows []Leaf
	for i := range 60 {
		rows = append(rows, row("0", fmt.Sprint("key ", i), "v"))
	}
	root := m.update(t, rows)
	intact := func() bool {
		var leaves []Leaf
		got, err := Check(&m, func(l Leaf) error {
			leaves = append(leaves, l)
			return nil
		})
		if err != nil && !errors.Is(err, ErrNode) {
			t.Fatalf("%v is no ErrNode", err)
		}
		return err == nil && got == root && len(leaves) == len(rows)
	}
	if !intact() {
		t.Fatal("damaged from the start")
	}
	for place, data := range m.nodes {
		for i := range data {
			data[i] ^= 1 << (i % 8)
			if intact() {
				t.Errorf("node %x, byte %d: not noticed", place, i)
			}
			data[i] ^= 1 << (i % 8)
		}
		m.nodes[place] = data[:len(data)-1]
		if intact() {
			t.Errorf("node %x cut off: not noticed", place)
		}
		delete(m.nodes, place)
		if intact() {
			t.Errorf("node %x missing: not noticed", place)
		}
		m.nodes[place] = data
	}
}

var errBroken = errors.New("broken")

type broken struct{}

func (broken) Get(Place) ([]byte, error) { return nil, errBroken }

func TestStoreFails(t *testing.T) {
	if _, _, err := Update(broken{}, nil); !errors.Is(err, errBroken) {
		t.Errorf("Update: %v", err)
	}
	if _, err := Root(broken{}); !errors.Is(err, errBroken) {
		t.Errorf("Root: %v", err)
	}
	if _, _, err := ProveRow(broken{}, Path{}); !errors.Is(err, errBroken) {
		t.Errorf("ProveRow: %v", err)
	}
	if _, err := Check(broken{}, nil); !errors.Is(err, errBroken) {
		t.Errorf("Check: %v", err)
	}
}

// FuzzParse checks, for any place and bytes: no panic; what parses encodes back
// to the bytes it came from.
func FuzzParse(f *testing.F) {
	var m memory
	var rows []Leaf
	for i := range 300 {
		rows = append(rows, row("0", fmt.Sprint("key ", i), "v"))
	}
	m.update(f, rows)
	for place, data := range m.nodes {
		f.Add(place[0], []byte(place[1:]), data)
	}
	f.Fuzz(func(t *testing.T, depth uint8, path, data []byte) {
		at := Place{Depth: depth % leafDepth}
		copy(at.Path[:], path)
		at.Path = at.Path.cut(int(at.Depth))
		var b branch
		if err := b.parse(at, data); err != nil {
			if !errors.Is(err, ErrNode) {
				t.Fatalf("%v is no ErrNode", err)
			}
			return
		}
		if again := b.appendTo(nil); !bytes.Equal(again, data) {
			t.Fatalf("%x is read and written as %x", data, again)
		}
	})
}

// BenchmarkUpdate changes rows of a state of a million, in batches.
func BenchmarkUpdate(b *testing.B) {
	const n = 1 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([]Leaf, n)
	for i := range rows {
		rows[i].Path = PathOf(state.Address{Map: "0", Key: fmt.Append(nil, i), Kind: state.Register})
		rows[i].Value = lattice.Hash{1}
	}
	m := places{}
	_, puts, err := Update(m, slices.Clone(rows))
	if err != nil {
		b.Fatal(err)
	}
	m.apply(puts)
	for _, size := range []int{1, 100, 10000, 100000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			written := 0
			for left := b.N; left > 0; left -= size {
				batch := make(map[Path]Leaf, size)
				for len(batch) < min(size, left) {
					l := rows[rng.IntN(n)]
					binary.BigEndian.PutUint64(l.Value[:], rng.Uint64())
					batch[l.Path] = l
				}
				_, puts, err := Update(m, slices.Collect(maps.Values(batch)))
				if err != nil {
					b.Fatal(err)
				}
				m.apply(puts)
				for _, p := range puts {
					written += len(p.Data)
				}
			}
			b.ReportMetric(float64(written)/float64(b.N), "stored-B/op")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "updates/s")
		})
	}
}

// places is a store in memory that is quick enough to be left out of a figure.
type places map[Place][]byte

func (m places) Get(p Place) ([]byte, error) { return m[p], nil }

func (m places) apply(puts []Put) {
	for _, p := range puts {
		if p.Data == nil {
			delete(m, p.Place)
		} else {
			m[p.Place] = p.Data
		}
	}
}
