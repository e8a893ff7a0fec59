package identity

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"
)

func seeded(b byte) Key {
	var seed [32]byte
	for i := range seed {
		seed[i] = b
	}
	return FromSeed(seed)
}

// TestGoldenBytes pins what is frozen: if a case changes, the design is wrong,
// not the test.
func TestGoldenBytes(t *testing.T) {
	k := seeded(1)
	for _, c := range []struct{ what, got, want string }{
		{"author", k.Author().String(), "8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c"},
		{"key file", string(k.KeyFile()), "lattice-key-v1 AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n"},
		{"verifier key", VerifierKey(k.Author()), goldenVerifierKey},
		{"entry signature", hexSig(k.Sign(DomainEntry, []byte("hello"))), goldenEntry},
		{"grant signature", hexSig(k.Sign(DomainGrant, []byte("hello"))), goldenGrant},
		{"compaction signature", hexSig(k.Sign(DomainCompaction, []byte("hello"))), goldenCompaction},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.what, c.got, c.want)
		}
	}
}

const (
	goldenVerifierKey = "lattice/8a88e3dd7409f195fd52db2d3cba5d72ca6709bf1d94121bf3748801b40f6f5c+be56b839+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c"
	goldenEntry       = "d2d875cacbfda7f83265093e215ddea228441006a46aa978e629c6f65ceedf3bf215e676f170a6ac300746ba721aa926a2aebde3fb00fcd19a7dbcf8e2b7260c"
	goldenGrant       = "56ce2981a6ad58184e5edb5a74044cb4a4dd893377add69a0e5b60b3bce0390168777a1a9b26a10fe921fa774789a37218829286425ccd5ab541beafbd3fb30f"
	goldenCompaction  = "f14de4ab5c2de2e5e3760db04c6dc9a25d2cbff724cc1f9d91d527c6a1a838a8cf4c98359a9dd30233c0d891d98476d9e32518d5d3eeb89b6b15594b929c430e"
)

func hexSig(s Signature) string { return hex.EncodeToString(s[:]) }

func TestDomainsArePrefixFree(t *testing.T) {
	for i, a := range Domains() {
		if strings.IndexByte(string(a), 0) != len(a)-1 {
			t.Errorf("%q: the zero byte must be the last and only one", a)
		}
		for j, b := range Domains() {
			if i != j && strings.HasPrefix(string(b), string(a)) {
				t.Errorf("%q is a prefix of %q", a, b)
			}
		}
	}
}

func TestSignVerify(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, other := seeded(rapid.Byte().Draw(t, "k")), seeded(0xaa)
		msg := rapid.SliceOf(rapid.Byte()).Draw(t, "msg")
		d := rapid.SampledFrom(Domains()).Draw(t, "domain")
		sig := k.Sign(d, msg)
		if !Verify(k.Author(), d, msg, sig) {
			t.Fatal("own signature refused")
		}
		for _, wrong := range Domains() {
			if wrong != d && Verify(k.Author(), wrong, msg, sig) {
				t.Fatalf("signature for %q counts for %q", d, wrong)
			}
		}
		if k.Author() != other.Author() && Verify(other.Author(), d, msg, sig) {
			t.Fatal("counts for another author")
		}
		if Verify(k.Author(), d, append(bytes.Clone(msg), 0), sig) {
			t.Fatal("counts for another message")
		}
		sig[rapid.IntRange(0, 63).Draw(t, "at")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if Verify(k.Author(), d, msg, sig) {
			t.Fatal("changed signature counts")
		}
	})
}

// TestSmallOrderKeys forges, for each listed key, a signature that the standard
// library accepts, and checks that it does not count here.
func TestSmallOrderKeys(t *testing.T) {
	forged := 0
	for _, text := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		for _, sign := range []byte{0, 0x80} {
			a, err := lattice.ParseAuthorID(text)
			if err != nil {
				t.Fatal(err)
			}
			a[31] |= sign
			// R = identity, S = 0: holds whenever the challenge times A is the identity.
			var sig Signature
			sig[0] = 1
			for i := range 200 {
				msg := fmt.Appendf(nil, "forged %d", i)
				if !ed25519.Verify(a[:], message(DomainEntry, msg), sig[:]) {
					continue
				}
				forged++
				if Verify(a, DomainEntry, msg, sig) {
					t.Errorf("%x: a signature that anybody can make counts", a)
				}
				break
			}
			if !smallOrder(a) {
				t.Errorf("%x is not known as of small order", a)
			}
		}
	}
	if forged != 14 {
		t.Errorf("forged signatures for %d of 14 encodings: the list names keys that are not weak", forged)
	}
	if smallOrder(seeded(1).Author()) {
		t.Error("an ordinary key is refused")
	}
}

func TestKeysDoNotPrintTheSecret(t *testing.T) {
	k := seeded(7)
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		if s := fmt.Sprintf(format, k); strings.Contains(s, "0707070707") || strings.Contains(s, "7 7 7 7") {
			t.Errorf("%s prints the seed: %s", format, s)
		}
	}
}

func TestGenerate(t *testing.T) {
	k, err := Generate(bytes.NewReader(bytes.Repeat([]byte{9}, 32)))
	if err != nil || k.Author() != seeded(9).Author() {
		t.Fatalf("Generate = %v, %v", k, err)
	}
	if _, err := Generate(bytes.NewReader(make([]byte, 31))); err == nil {
		t.Fatal("31 random bytes were enough")
	}
}

// FuzzParseKeyFile checks, for any input: no panic; what parses prints back to
// the exact bytes it came from; errors do not quote the text.
func FuzzParseKeyFile(f *testing.F) {
	good := seeded(3).KeyFile()
	f.Add(good)
	f.Add(append(bytes.Clone(good), '\n'))
	f.Add(bytes.Replace(good, []byte("="), []byte("\n"), 1))
	f.Add(bytes.Replace(good, []byte("M="), []byte("N="), 1))                  // other trailing bits
	f.Add(append([]byte("lattice-key-v1 "), bytes.Repeat([]byte("A"), 45)...)) // more bytes than a seed
	f.Add(append([]byte("lattice-key-v1 "), append(bytes.Repeat([]byte("A"), 44), '\n')...))
	f.Fuzz(func(t *testing.T, text []byte) {
		k, err := ParseKeyFile(text)
		if err == nil && !bytes.Equal(k.KeyFile(), text) {
			t.Fatalf("%q parses and prints as %q", text, k.KeyFile())
		}
		if err != nil && !errors.Is(err, ErrKeyFile) {
			t.Fatalf("%v does not wrap ErrKeyFile", err)
		}
		if err != nil && len(text) > 20 && strings.Contains(err.Error(), string(text[15:])) {
			t.Fatalf("the error quotes the secret: %v", err)
		}
	})
}

func TestNotes(t *testing.T) {
	k, co := seeded(1), seeded(2)
	const text = "lattice/log\n5\nroot\n"
	msg, err := note.Sign(&note.Note{Text: text}, k.NoteSigner(), co.Cosigner(1700000000))
	if err != nil {
		t.Fatal(err)
	}
	std, err := note.NewVerifier(VerifierKey(k.Author()))
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]note.Verifier{
		"ours": NoteVerifier(k.Author()), "x/mod": std, "cosignature": CosignatureVerifier(co.Author()),
	} {
		n, err := note.Open(msg, note.VerifierList(v))
		if err != nil || len(n.Sigs) != 1 || n.Text != text {
			t.Errorf("%s: %+v, %v", name, n, err)
		}
	}
	if _, err := note.Open(msg, note.VerifierList(NoteVerifier(co.Author()))); err == nil {
		t.Error("a cosignature counts as the log's signature")
	}
	bad := bytes.Replace(msg, []byte("\n5\n"), []byte("\n6\n"), 1)
	for _, v := range []note.Verifier{NoteVerifier(k.Author()), CosignatureVerifier(co.Author())} {
		var invalid *note.InvalidSignatureError
		if _, err := note.Open(bad, note.VerifierList(v)); !errors.As(err, &invalid) {
			t.Errorf("changed text: %v, want an invalid signature", err)
		}
	}
}

func TestNoteNames(t *testing.T) {
	a := seeded(1).Author()
	if got, err := ParseNoteName(NoteName(a)); err != nil || got != a {
		t.Errorf("ParseNoteName(%q) = %v, %v", NoteName(a), got, err)
	}
	for _, bad := range []string{"", "lattice/", "other/" + a.String(), "lattice/" + strings.ToUpper(a.String()), NoteName(a) + "0", NoteName(a) + " "} {
		if _, err := ParseNoteName(bad); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("ParseNoteName(%q): %v, want an error of kind invalid", bad, err)
		}
	}
	if strings.ContainsAny(NoteName(a), " +\t\n") {
		t.Errorf("%q is not a note key name", NoteName(a))
	}
}
