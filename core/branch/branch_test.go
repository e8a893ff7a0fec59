package branch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/branch"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
)

func filled(b byte) (h [32]byte) {
	copy(h[:], bytes.Repeat([]byte{b}, 32))
	return h
}

func example() branch.Branch {
	return branch.Branch{
		Store: filled(1), Partition: lattice.TopicPartition{Topic: lattice.TopicID(bytes.Repeat([]byte{2}, 16)), Partition: 3},
		From: 4, Blocks: 5, First: 6, End: 17, Records: 8, Bytes: 9, Sum: filled(10), FirstTerm: 11, LastTerm: 12, Since: 13,
		By: filled(14), Rewritten: true, Left: []lattice.Hash{filled(15)}, Note: []byte("note"), Grants: [][]byte{[]byte("a"), []byte("bc")},
	}
}

// TestGolden pins a branch and a progress as they were first written. If one changes, the
// design is wrong, not the test.
func TestGolden(t *testing.T) {
	x := func(b string, n int) string { return strings.Repeat(b, n) }
	raw, err := example().AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	want := "4c620101" + x("01", 32) + x("02", 16) + "00000003" +
		"0000000000000004" + "0000000000000005" + "0000000000000006" + "0000000000000011" + "0000000000000008" + "0000000000000009" + x("0a", 32) +
		"0000000b" + "0000000c" + "000000000000000d" + x("0e", 32) +
		"01" + x("0f", 32) + "0004" + hex.EncodeToString([]byte("note")) + "0002" + "00000001" + "61" + "00000002" + "6263" + "GOLDENSUM"
	if got := hex.EncodeToString(raw); got != strings.Replace(want, "GOLDENSUM", goldenSum, 1) {
		t.Fatalf("a branch is\n%s", got)
	}
	p, err := branch.Progress{State: branch.Underway, Producer: 1, Epoch: 2, Blocks: 3, Records: 4, First: 5, End: 6}.AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(p); got != "4c700101"+"0000000000000001"+"0002"+"0000000000000003"+"0000000000000004"+"0000000000000005"+"0000000000000006"+goldenProgressSum {
		t.Fatalf("a progress is\n%s", got)
	}
	if id := example().ID(); id != "6-"+x("0a", 8) {
		t.Fatal(id)
	}
}

const (
	goldenSum         = "a59bcf1c"
	goldenProgressSum = "9bcb713b"
)

// TestRefused: every changed or missing byte is noticed, and later versions are refused by
// name.
func TestRefused(t *testing.T) {
	raw, err := example().AppendTo(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := branch.Parse(raw); err != nil || !reflect.DeepEqual(got, example()) {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range raw {
		bad := bytes.Clone(raw)
		bad[i] ^= 4
		if _, err := branch.Parse(bad); err == nil {
			t.Fatalf("byte %d was changed, and nobody noticed", i)
		}
		if _, err := branch.Parse(raw[:i]); err == nil {
			t.Fatalf("%d bytes pass for a branch", i)
		}
	}
	bad := bytes.Clone(raw)
	bad[2] = 2
	if _, err := branch.Parse(bad); lattice.KindOf(err) != lattice.Unsupported {
		t.Fatal(err)
	}
	for _, change := range []func(*branch.Branch){
		func(b *branch.Branch) { b.End = b.First }, func(b *branch.Branch) { b.Blocks = 0 }, func(b *branch.Branch) { b.LastTerm = 1 },
		func(b *branch.Branch) { b.Left = make([]lattice.Hash, 65) }, func(b *branch.Branch) { b.Grants = [][]byte{make([]byte, branch.MaxSize)} },
	} {
		x := example()
		change(&x)
		if _, err := x.AppendTo(nil); !errors.Is(err, branch.ErrMalformed) {
			t.Fatalf("%v", err)
		}
	}
}

// TestProve: a branch is proven by what its leader signed, and by nothing else.
func TestProve(t *testing.T) {
	key := identity.FromSeed([32]byte{1})
	var leaves []lattice.Hash
	a := merkle.NewAppender(merkle.Range{})
	var left merkle.Range
	for i := range 20 {
		if i == 7 {
			left = a.Range()
		}
		leaves = append(leaves, sha256.Sum256([]byte{byte(i)}))
		a.Append(nil, leaves[i])
	}
	b := example()
	b.From, b.Left = 7, left.Hashes()
	note, err := merkle.SignCheckpoint(key, merkle.Checkpoint{
		Origin: merkle.Origin(b.Store, b.Partition.String()), Size: 20, Root: a.Root(), End: 40, Term: 12, Grant: lattice.Hash{1}, Incarnation: 1, Time: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Note = note
	if n, err := b.Prove(leaves[7:], key.Author()); n != 13 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := b.Prove(append(leaves[7:20:20], lattice.Hash{1}), key.Author()); n != 13 || err != nil {
		t.Fatal("what came behind the checkpoint is not proven, and takes nothing away", n, err)
	}
	for name, err := range map[string]error{
		"fewer":   second(b.Prove(leaves[7:19], key.Author())),
		"others":  second(b.Prove(append([]lattice.Hash{{1}}, leaves[8:]...), key.Author())),
		"another": second(b.Prove(leaves[7:], identity.FromSeed([32]byte{2}).Author())),
		"no note": second(branch.Branch{}.Prove(leaves, key.Author())),
	} {
		if !errors.Is(err, branch.ErrUnproven) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second(_ uint64, err error) error { return err }

func FuzzParse(f *testing.F) {
	raw, err := example().AppendTo(nil)
	if err != nil {
		f.Fatal(err)
	}
	p, err := branch.Progress{State: branch.Reproduced, End: 1}.AppendTo(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(p)
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := branch.Parse(b); err == nil {
			if again, err := x.AppendTo(nil); err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%x is written again as %x: %v", b, again, err)
			}
		}
		if x, err := branch.ParseProgress(b); err == nil {
			if again, err := x.AppendTo(nil); err != nil || !bytes.Equal(again, b) {
				t.Fatalf("%x is written again as %x: %v", b, again, err)
			}
		}
	})
}
