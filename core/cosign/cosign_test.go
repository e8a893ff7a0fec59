package cosign

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
)

func seeded(b byte) identity.Key { return identity.FromSeed([32]byte(bytes.Repeat([]byte{b}, 32))) }

func checkpoint() merkle.Checkpoint {
	return merkle.Checkpoint{
		Origin: merkle.Origin(lattice.StoreID{1, 31: 2}, "aa0000000000000000000000000000bb/2"),
		Size:   12345, Root: lattice.Hash{0xde, 0xad, 31: 0xef}, Start: 1000, End: 99999, Term: 28333333,
		Grant: lattice.Hash{0xca, 0xfe, 31: 1}, Incarnation: 7, Time: 0x018bcfe568000001,
	}
}

func noted(t testing.TB, k identity.Key, c merkle.Checkpoint) []byte {
	t.Helper()
	b, err := merkle.SignCheckpoint(k, c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func acked(t testing.TB) []byte {
	t.Helper()
	b, err := Sign(seeded(2), 1700000000, noted(t, seeded(1), checkpoint()), seeded(1).Author())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGolden holds the bytes of an acknowledgement, a record and a mark.
func TestGolden(t *testing.T) {
	l := LastOf(checkpoint())
	m := Mark{28333333, Held{12345, 99999}}
	all := "ack:\n" + string(acked(t)) + "record: " + hex.EncodeToString(l.AppendTo(nil)) + "\nmark: " + hex.EncodeToString(m.AppendTo(nil)) + "\n"
	path := filepath.Join("testdata", "golden.txt")
	want, err := os.ReadFile(path)
	if err != nil || string(want) != all {
		t.Fatalf("%v\nhave %s\nwant %s", err, all, want)
	}
	if again, err := ParseLast(l.AppendTo(nil)); err != nil || again != l {
		t.Errorf("the record comes back as %+v, %v", again, err)
	}
	if again, err := ParseMark(m.AppendTo(nil)); err != nil || again != m {
		t.Errorf("the mark comes back as %+v, %v", again, err)
	}
}

// TestOthersRead: a C2SP note library that knows the follower's key finds its cosignature.
func TestOthersRead(t *testing.T) {
	n, err := note.Open(acked(t), note.VerifierList(identity.CosignatureVerifier(seeded(2).Author())))
	if err != nil || len(n.Sigs) != 1 || n.Text != string(checkpoint().Body()) {
		t.Fatalf("%+v, %v", n, err)
	}
}

func TestOpen(t *testing.T) {
	leader := seeded(1).Author()
	a, err := Open(acked(t), leader)
	if err != nil || a.By != seeded(2).Author() || a.Unix != 1700000000 || a.Checkpoint != checkpoint() {
		t.Fatalf("%+v, %v", a, err)
	}
	c, by, err := Peek(acked(t))
	if err != nil || by != a.By || c != a.Checkpoint {
		t.Errorf("at a glance %+v of %s, %v", c, by.Short(), err)
	}
	signed := noted(t, seeded(1), checkpoint())
	two, err := merkle.Cosign(seeded(3), 5, acked(t), leader)
	if err != nil {
		t.Fatal(err)
	}
	own, err := merkle.Cosign(seeded(1), 5, signed, leader)
	if err != nil {
		t.Fatal(err)
	}
	junk := append(bytes.Clone(signed), "— somebody "+strings.Repeat("AAAA", 8)+"\n"...)
	if clean, err := Sign(seeded(2), 1700000000, junk, leader); err != nil || !bytes.Equal(clean, acked(t)) {
		t.Errorf("junk under the leader's note goes on: %v\n%s", err, clean)
	}
	other := checkpoint()
	other.Size--
	swapped := bytes.Replace(acked(t), []byte("\n12345\n"), []byte("\n12344\n"), 1)
	for name, b := range map[string][]byte{
		"no cosignature": signed, "two": two, "the leader's own": own, "another size": swapped, "nothing": nil, "long": bytes.Repeat([]byte{'a'}, MaxNote+1),
		"another leader's": noted(t, seeded(4), checkpoint()), "with junk": append(acked(t), "— x AAAAAA==\n"...),
	} {
		if _, err := Open(b, leader); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if _, err := Open(swapped, leader); !errors.Is(err, identity.ErrSignature) {
		t.Errorf("a size that was never signed: %v", err)
	}
	if _, err := Sign(seeded(2), 1, acked(t), seeded(4).Author()); !errors.Is(err, identity.ErrSignature) {
		t.Errorf("cosigned what another signed: %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte("x"))
	f.Add(acked(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		leader := seeded(1).Author()
		a, err := Open(b, leader)
		c, by, perr := Peek(b)
		if err == nil && (perr != nil || c != a.Checkpoint || by != a.By) {
			t.Errorf("opened as %+v, at a glance %+v of %s: %v", a, c, by.Short(), perr)
		}
		if l, err := ParseLast(b); err == nil && !bytes.Equal(l.AppendTo(nil), b) {
			t.Error("two encodings of a record")
		}
		if m, err := ParseMark(b); err == nil && !bytes.Equal(m.AppendTo(nil), b) {
			t.Error("two encodings of a mark")
		}
	})
}

// TestMay: whatever a node is asked to cosign, what it cosigned never goes back in term or
// size, and of one term and size it cosigned one history.
func TestMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var last Last
		type place struct {
			term int32
			size uint64
		}
		at := map[place]Last{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			c := merkle.Checkpoint{
				Term: rapid.Int32Range(1, 3).Draw(t, "term"), Size: rapid.Uint64Range(1, 4).Draw(t, "size"),
				Root: lattice.Hash{rapid.Byte().Draw(t, "root") % 2}, Grant: lattice.Hash{rapid.Byte().Draw(t, "grant") % 2, 1},
			}
			if last.May(c) != nil {
				continue
			}
			now := LastOf(c)
			if now.Term < last.Term || now.Term == last.Term && (now.Size < last.Size || now.Grant != last.Grant) {
				t.Fatalf("%+v after %+v", now, last)
			}
			was, ok := at[place{now.Term, now.Size}]
			if ok && was != now {
				t.Fatalf("%+v and %+v", was, now)
			}
			at[place{now.Term, now.Size}] = now
			if last.Join(now) != now {
				t.Fatalf("%+v is not after %+v", now, last)
			}
			last = now
		}
	})
}

// TestMayNames: each refusal has its name.
func TestMayNames(t *testing.T) {
	last := Last{5, lattice.Hash{1}, 10, lattice.Hash{2}}
	for _, x := range []struct {
		c    merkle.Checkpoint
		want error
	}{
		{merkle.Checkpoint{Term: 4, Grant: lattice.Hash{3}, Size: 20}, ErrOldTerm},
		{merkle.Checkpoint{Term: 5, Grant: lattice.Hash{3}, Size: 20}, ErrOtherGrant},
		{merkle.Checkpoint{Term: 5, Grant: lattice.Hash{1}, Size: 9}, ErrSmaller},
		{merkle.Checkpoint{Term: 5, Grant: lattice.Hash{1}, Size: 10, Root: lattice.Hash{9}}, ErrOtherRoot},
		{merkle.Checkpoint{Term: 5, Grant: lattice.Hash{1}, Size: 10, Root: lattice.Hash{2}}, nil},
		{merkle.Checkpoint{Term: 6, Grant: lattice.Hash{3}, Size: 3}, nil},
	} {
		if err := last.May(x.c); !errors.Is(err, x.want) || (err == nil) != (x.want == nil) {
			t.Errorf("%+v: %v, want %v", x.c, err, x.want)
		}
	}
}
