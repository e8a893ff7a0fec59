package trie

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"golang.org/x/mod/sumdb/note"
)

func someStatement() (identity.Key, Statement) {
	return identity.FromSeed([32]byte{7}), Statement{
		Store: lattice.StoreID{0xaa, 31: 0xbb}, Entries: 306, Root: lattice.Hash{1, 2, 3}, Frontier: lattice.Hash{4, 5, 6},
		Incarnation: 9, Time: 1_700_000_000_000 << 16,
	}
}

func signed(t testing.TB) []byte {
	t.Helper()
	key, s := someStatement()
	b, err := SignStatement(key, s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoldenStatement pins a signed statement, and that other tools for notes read it.
func TestGoldenStatement(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("testdata", "v1", "statement.note"))
	if err != nil {
		t.Fatal(err)
	}
	if b := signed(t); !bytes.Equal(b, want) {
		t.Errorf("now\n%s\nas frozen\n%s", b, want)
	}
	key, s := someStatement()
	got, author, err := OpenStatement(want)
	if err != nil || got != s || author != key.Author() {
		t.Errorf("%+v of %s, %v", got, author.Short(), err)
	}
	v, err := note.NewVerifier(identity.VerifierKey(key.Author()))
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Open(want, note.VerifierList(v))
	if err != nil || len(n.Sigs) != 1 || !strings.HasPrefix(n.Text, "lattice/aa") {
		t.Errorf("by another tool: %+v, %v", n, err)
	}
}

// TestStatementAnyByte: no byte can be changed, cut or added.
func TestStatementAnyByte(t *testing.T) {
	b := signed(t)
	for i := range b {
		for mask := 1; mask < 256; mask <<= 1 {
			b[i] ^= byte(mask)
			if s, _, err := OpenStatement(b); err == nil {
				t.Fatalf("byte %d ^ %#x is accepted: %+v", i, mask, s)
			} else if !errors.Is(err, ErrStatement) && !errors.Is(err, identity.ErrSignature) {
				t.Fatalf("byte %d ^ %#x: %v", i, mask, err)
			}
			b[i] ^= byte(mask)
		}
		if _, _, err := OpenStatement(b[:i]); err == nil {
			t.Fatalf("the first %d bytes are accepted", i)
		}
	}
	last := b[bytes.LastIndex(b[:len(b)-1], []byte("\n"))+1:]
	for name, more := range map[string][]byte{"a signature twice": last, "a line": []byte("\n"), "a space": []byte(" ")} {
		if _, _, err := OpenStatement(append(bytes.Clone(b), more...)); err == nil {
			t.Errorf("%s more is accepted", name)
		}
	}
}

// TestStatementSigners: one signer, whose key is in the name.
func TestStatementSigners(t *testing.T) {
	key, s := someStatement()
	other := identity.FromSeed([32]byte{8})
	n := &note.Note{Text: string(s.Body())}
	two, err := note.Sign(n, key.NoteSigner(), other.NoteSigner())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenStatement(two); !errors.Is(err, ErrStatement) {
		t.Errorf("two signers: %v", err)
	}
	cosigned, err := note.Sign(n, key.Cosigner(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenStatement(cosigned); !errors.Is(err, identity.ErrSignature) {
		t.Errorf("a cosignature alone: %v", err)
	}
	log, err := note.Sign(&note.Note{Text: strings.Replace(string(s.Body()), "/state\n", "/orders\n", 1)}, key.NoteSigner())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenStatement(log); !errors.Is(err, ErrStatement) {
		t.Errorf("of a log: %v", err)
	}
}

// FuzzParseStatement checks, for any text: no panic; what parses prints back to the
// exact bytes it came from.
func FuzzParseStatement(f *testing.F) {
	_, s := someStatement()
	f.Add(s.Body())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStatement(b)
		if err != nil {
			if !errors.Is(err, ErrStatement) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(s.Body(), b) {
			t.Fatalf("%q comes back as %q", b, s.Body())
		}
	})
}
