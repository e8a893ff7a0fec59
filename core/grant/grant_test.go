package grant

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"pgregory.net/rapid"
)

func seeded(b byte) identity.Key { return identity.FromSeed([32]byte(bytes.Repeat([]byte{b}, 32))) }

func sign(t testing.TB, key identity.Key, g Grant) Signed {
	t.Helper()
	s, err := Sign(key, g)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var partition = lattice.TopicPartition{Topic: lattice.TopicID{0xaa, 15: 0xbb}, Partition: 2}

func firstGrant(t testing.TB) Signed {
	return sign(t, seeded(1), Grant{
		Store: lattice.StoreID{1, 31: 2}, Partition: partition, Term: 28333333, Leader: seeded(1).Author(), Incarnation: 7,
		BaseRoot: merkle.EmptyRoot(), AckSet: []lattice.AuthorID{seeded(1).Author()}, Min: 1, Kind: Self,
	})
}

func sealGrant(t testing.TB) Signed {
	first := firstGrant(t)
	return sign(t, seeded(1), Grant{
		Store: first.Store, Partition: partition, Term: 28333340, Leader: seeded(2).Author(), Incarnation: 3,
		BaseSize: 5, BaseRoot: lattice.Hash{9, 31: 9}, BaseOffset: 50, Previous: first.ID,
		AckSet: []lattice.AuthorID{seeded(1).Author(), seeded(2).Author()}, Min: 2, Kind: Seal,
	})
}

// TestGoldenBytes pins whole grants as they were first signed, with a line for
// each field. If a case changes, the design is wrong, not the test.
func TestGoldenBytes(t *testing.T) {
	for name, make := range map[string]func(testing.TB) Signed{"first": firstGrant, "seal": sealGrant} {
		text, err := os.ReadFile(filepath.Join("testdata", "v1", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		var id string
		for line := range strings.Lines(string(text)) {
			field, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if value = strings.TrimSpace(value); field == "id" {
				id = value
				continue
			}
			b, err := hex.DecodeString(value)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, b...)
		}
		if s := make(t); !bytes.Equal(s.Bytes(), want) {
			t.Errorf("%s: signed now:\n%x\nas frozen:\n%x", name, s.Bytes(), want)
		}
		old, err := Parse(want)
		if err != nil || old.ID.String() != id || old.Verify() != nil {
			t.Errorf("%s: the frozen grant reads as id %s, %v, %v; want %s", name, old.ID, err, old.Verify(), id)
		}
	}
}

func TestAnyChangedByte(t *testing.T) {
	for _, s := range []Signed{firstGrant(t), sealGrant(t)} {
		for i := range s.Bytes() {
			for _, mask := range []byte{0x01, 0x80, 0xff} {
				b := bytes.Clone(s.Bytes())
				b[i] ^= mask
				if p, err := Parse(b); err == nil && p.Verify() == nil {
					t.Errorf("byte %d ^ %#x: still a valid grant", i, mask)
				}
			}
			if _, err := Parse(s.Bytes()[:i]); err == nil {
				t.Errorf("the first %d bytes parse", i)
			}
		}
	}
}

// FuzzCut checks, for any input: no panic; what parses encodes back to the exact
// bytes it came from; the rest is a suffix of the input.
func FuzzCut(f *testing.F) {
	f.Add(firstGrant(f).Bytes())
	f.Add(append(bytes.Clone(sealGrant(f).Bytes()), firstGrant(f).Bytes()...))
	huge := bytes.Clone(firstGrant(f).Bytes())
	huge[fixedSize-2], huge[fixedSize-1] = 0xff, 0xff
	f.Add(huge)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, rest, err := Cut(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) {
				t.Fatalf("error %v is none of those promised", err)
			}
			return
		}
		sig := s.Signature
		if again := append(s.Grant.appendTo(nil), sig[:]...); !bytes.Equal(append(again, rest...), b) {
			t.Fatalf("encodes back as\n%x, was\n%x", again, b)
		}
	})
}

func TestSignSortsTheSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfNDistinct(rapid.ByteRange(1, 40), 1, 20, rapid.ID[byte]).Draw(t, "keys")
		g := Grant{Partition: partition, Leader: seeded(keys[0]).Author(), BaseRoot: merkle.EmptyRoot(), Min: 1, Kind: Promises}
		for _, k := range keys {
			g.AckSet = append(g.AckSet, seeded(k).Author())
		}
		s, err := Sign(seeded(9), g)
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(g.AckSet)
		again, err := Sign(seeded(9), g)
		if err != nil || !bytes.Equal(s.Bytes(), again.Bytes()) || s.Verify() != nil {
			t.Fatalf("the order of the set changes the bytes, or %v, %v", err, s.Verify())
		}
	})
}

func TestRefused(t *testing.T) {
	a, b := seeded(1).Author(), seeded(2).Author()
	for name, change := range map[string]func(*Grant){
		"negative partition":         func(g *Grant) { g.Partition.Partition = -1 },
		"negative term":              func(g *Grant) { g.Term = -1 },
		"negative base offset":       func(g *Grant) { g.BaseOffset = -1 },
		"more blocks than offsets":   func(g *Grant) { g.Previous, g.BaseSize, g.BaseOffset = lattice.Hash{1}, 6, 5 },
		"no blocks but an offset":    func(g *Grant) { g.BaseOffset = 5 },
		"no blocks but a root":       func(g *Grant) { g.BaseRoot = lattice.Hash{1} },
		"first with a base":          func(g *Grant) { g.BaseSize, g.BaseOffset = 5, 5 },
		"no ack set":                 func(g *Grant) { g.AckSet = nil },
		"the same member twice":      func(g *Grant) { g.Kind, g.AckSet = Promises, []lattice.AuthorID{a, a} },
		"minimum 0":                  func(g *Grant) { g.Min = 0 },
		"minimum above the set":      func(g *Grant) { g.Min = 2 },
		"kind 0":                     func(g *Grant) { g.Kind = 0 },
		"kind 5":                     func(g *Grant) { g.Kind = 5 },
		"leader outside the set":     func(g *Grant) { g.Kind, g.AckSet = Promises, []lattice.AuthorID{b} },
		"self for somebody else":     func(g *Grant) { g.Leader, g.AckSet = b, []lattice.AuthorID{b} },
		"self with others in a set":  func(g *Grant) { g.AckSet = []lattice.AuthorID{a, b} },
		"offsets beyond what int64 ": func(g *Grant) { g.Previous, g.BaseSize, g.BaseOffset = lattice.Hash{1}, 1<<63, -1<<63 },
	} {
		g := firstGrant(t).Grant
		change(&g)
		if _, err := Sign(seeded(1), g); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want malformed", name, err)
		}
	}
	later := bytes.Clone(firstGrant(t).Bytes())
	later[2] = 2
	if _, err := Parse(later); !errors.Is(err, ErrVersion) || lattice.KindOf(err) != lattice.Unsupported {
		t.Errorf("version 2: %v", err)
	}
	if _, err := Parse(append(bytes.Clone(firstGrant(t).Bytes()), 0)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a byte too many: %v", err)
	}
}

func TestFollows(t *testing.T) {
	first, seal := firstGrant(t), sealGrant(t)
	if err := first.Follows(nil); err != nil {
		t.Errorf("first: %v", err)
	}
	if err := seal.Follows(nil); !errors.Is(err, ErrSuccession) {
		t.Errorf("a later grant as the first: %v", err)
	}
	if err := seal.Follows(&first); err != nil {
		t.Errorf("seal: %v", err)
	}
	next := func(key identity.Key, change func(*Grant)) Signed {
		g := first.Grant
		g.Previous, g.Term, g.Incarnation = first.ID, first.Term+1, first.Incarnation+1
		g.BaseSize, g.BaseRoot, g.BaseOffset = 5, lattice.Hash{5}, 5
		change(&g)
		return sign(t, key, g)
	}
	if err := next(seeded(1), func(*Grant) {}).Follows(&first); err != nil {
		t.Errorf("the leader's new incarnation: %v", err)
	}
	b := seeded(2).Author()
	onSeal := func(g *Grant) { // by the leader of the sealed term, or so it says
		g.Previous, g.Term, g.BaseSize, g.BaseOffset = seal.ID, seal.Term+1, seal.BaseSize, seal.BaseOffset
		g.BaseRoot, g.Leader, g.AckSet, g.Kind = seal.BaseRoot, b, seal.AckSet, Promises
	}
	for _, tc := range []struct {
		what string
		prev Signed
		s    Signed
		ok   bool
	}{
		{"the same term again", first, next(seeded(1), func(g *Grant) { g.Term = first.Term }), false},
		{"an older term", first, next(seeded(1), func(g *Grant) { g.Term--; g.Term-- }), false},
		{"another predecessor", first, next(seeded(1), func(g *Grant) { g.Previous = lattice.Hash{1} }), false},
		{"another partition", first, next(seeded(1), func(g *Grant) { g.Partition.Partition++ }), false},
		{"another topic", first, next(seeded(1), func(g *Grant) { g.Partition.Topic[3]++ }), false},
		{"another store", first, next(seeded(1), func(g *Grant) { g.Store[3]++ }), false},
		{"an older incarnation", first, next(seeded(1), func(g *Grant) { g.Incarnation = 6 }), false},
		{"self by another node", first, next(seeded(2), func(g *Grant) { g.Leader, g.AckSet = b, []lattice.AuthorID{b} }), false},
		{"a seal by another node", first, next(seeded(2), func(g *Grant) { g.Kind = Seal }), false},
		{"a member joins", first, next(seeded(1), func(g *Grant) { g.Kind, g.AckSet = Seal, []lattice.AuthorID{seeded(1).Author(), b} }), true},
		{"a member joins, and the number changes", first, next(seeded(1), func(g *Grant) { g.Kind, g.AckSet, g.Min = Seal, []lattice.AuthorID{seeded(1).Author(), b}, 2 }), true},
		{"two members join", first, next(seeded(1), func(g *Grant) {
			g.Kind, g.AckSet = Seal, []lattice.AuthorID{seeded(1).Author(), b, seeded(3).Author()}
		}), false},
		{"a member takes another's place", seal, next(seeded(2), func(g *Grant) {
			onSeal(g)
			g.Kind, g.Leader, g.AckSet, g.Min = Seal, seal.Leader, []lattice.AuthorID{seal.Leader, seeded(9).Author()}, 1
		}), false},
		{"promises at the base", seal, next(seeded(2), onSeal), true},
		{"self out of a larger set", seal, next(seeded(2), func(g *Grant) {
			onSeal(g)
			g.Kind, g.AckSet, g.Min = Self, []lattice.AuthorID{b}, 1
		}), false},
		{"another root at the base", seal, next(seeded(2), func(g *Grant) { onSeal(g); g.BaseRoot[0]++ }), false},
		{"another offset at the base", seal, next(seeded(2), func(g *Grant) { onSeal(g); g.BaseOffset++ }), false},
		{"below the base", seal, next(seeded(2), func(g *Grant) { onSeal(g); g.BaseSize-- }), false},
		{"below the base, unclean", seal, next(seeded(2), func(g *Grant) { onSeal(g); g.BaseSize--; g.Kind = Unclean }), true},
	} {
		if err := tc.s.Follows(&tc.prev); (err == nil) != tc.ok || err != nil && !errors.Is(err, ErrSuccession) {
			t.Errorf("%s: %v", tc.what, err)
		}
	}
}

func TestVerifyNeedsTheSigner(t *testing.T) {
	s := firstGrant(t)
	s.Signer = seeded(2).Author()
	if err := s.Verify(); !errors.Is(err, identity.ErrSignature) {
		t.Errorf("%v, want ErrSignature", err)
	}
	if err := (Signed{}).Verify(); !errors.Is(err, identity.ErrSignature) {
		t.Errorf("zero value: %v, want ErrSignature", err)
	}
}
