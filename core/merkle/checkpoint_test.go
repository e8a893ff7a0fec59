package merkle

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	flog "github.com/transparency-dev/formats/log"
	"golang.org/x/mod/sumdb/note"
	"pgregory.net/rapid"
)

func seeded(b byte) identity.Key { return identity.FromSeed([32]byte(bytes.Repeat([]byte{b}, 32))) }

func goldenLeaf() Leaf {
	return Leaf{Base: 1000, Last: 1041, MaxTime: 1700000000123, Epoch: 28333333, Length: 4321, Sum: lattice.Hash{0xde, 0xad, 31: 0xef}}
}

func goldenCheckpoint() Checkpoint {
	return Checkpoint{
		Origin: Origin(lattice.StoreID{1, 31: 2}, "aa0000000000000000000000000000bb/2"),
		Size:   12345, Root: lattice.Hash{0xde, 0xad, 31: 0xef}, Start: 1000, End: 99999, Term: 28333333,
		Grant: lattice.Hash{0xca, 0xfe, 31: 1}, Incarnation: 7, Time: 0x018bcfe568000001,
	}
}

func goldenCompaction() Compaction {
	return Compaction{
		Store: lattice.StoreID{1, 31: 2}, Log: "aa0000000000000000000000000000bb/2", FirstLeaf: 256, EndLeaf: 512,
		Base: 1000, End: 2000, Size: 12345, Root: lattice.Hash{0xde, 0xad, 31: 0xef}, Length: 777, Sum: lattice.Hash{5, 31: 6},
	}
}

func signed(t testing.TB, k identity.Key, c Checkpoint) []byte {
	t.Helper()
	b, err := SignCheckpoint(k, c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func cosigned(t testing.TB, b []byte, keys ...byte) []byte {
	t.Helper()
	for _, k := range keys {
		var err error
		if b, err = Cosign(seeded(k), 1700000000+uint64(k), b, seeded(1).Author()); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestGoldenBytes pins what is signed or hashed for ever. If a case changes, the
// design is wrong, not the test.
func TestGoldenBytes(t *testing.T) {
	statement, err := SignCompaction(seeded(1), goldenCompaction())
	if err != nil {
		t.Fatal(err)
	}
	var growing Appender
	for i := range uint64(7) {
		growing.Append(nil, leafHash(i))
	}
	leaf := goldenLeaf().Hash()
	for name, got := range map[string][]byte{
		"leaf.hex":        goldenLeaf().AppendTo(nil),
		"leaf-hash.hex":   leaf[:],
		"range.hex":       growing.Range().AppendTo(nil),
		"compaction.hex":  statement,
		"checkpoint.note": signed(t, seeded(1), goldenCheckpoint()),
		"cosigned.note":   cosigned(t, signed(t, seeded(1), goldenCheckpoint()), 2, 3),
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		if err != nil {
			t.Fatal(err)
		}
		want := text
		if strings.HasSuffix(name, ".hex") {
			if want, err = hex.DecodeString(strings.Join(strings.Fields(string(text)), "")); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: now\n%q\nas frozen\n%q", name, got, want)
		}
	}
}

// TestOtherToolsReadOurCheckpoints opens a cosigned checkpoint as other people's
// software does: with the common checkpoint format, and with note verifiers made
// from the text of our keys.
func TestOtherToolsReadOurCheckpoints(t *testing.T) {
	k, c := seeded(1), goldenCheckpoint()
	b := cosigned(t, signed(t, k, c), 2)
	v, err := note.NewVerifier(identity.VerifierKey(k.Author()))
	if err != nil {
		t.Fatal(err)
	}
	got, rest, n, err := flog.ParseCheckpoint(b, c.Origin, v, identity.CosignatureVerifier(seeded(2).Author()))
	if err != nil {
		t.Fatal(err)
	}
	if got.Size != c.Size || !bytes.Equal(got.Hash, c.Root[:]) || len(n.Sigs) != 2 {
		t.Errorf("they read %+v with %d signatures", got, len(n.Sigs))
	}
	common := got.Marshal()
	if string(common)+string(rest) != string(c.Body()) {
		t.Errorf("their text and the rest are\n%s%s", common, rest)
	}
	for line := range strings.Lines(string(rest)) {
		if strings.TrimSpace(line) == "" {
			t.Error("an extension line is empty, which tlog-checkpoint forbids")
		}
	}
	for _, s := range n.Sigs {
		if strings.ContainsAny(s.Name, " +") {
			t.Errorf("key name %q", s.Name)
		}
	}
}

func checkpoints() *rapid.Generator[Checkpoint] {
	return rapid.Custom(func(t *rapid.T) Checkpoint {
		c := Checkpoint{
			Origin: Origin(lattice.StoreID{rapid.Byte().Draw(t, "store")}, rapid.StringMatching(`[!-*,-~]{1,40}`).Draw(t, "log")),
			End:    rapid.Int64Min(0).Draw(t, "end"), Term: rapid.Int32Min(0).Draw(t, "term"),
			Root: EmptyRoot(), Grant: lattice.Hash{rapid.Byte().Draw(t, "grant")},
			Incarnation: rapid.Uint64().Draw(t, "inc"), Time: rapid.Uint64().Draw(t, "time"),
		}
		c.Start = rapid.Int64Range(0, c.End).Draw(t, "start")
		if c.End > 0 {
			c.Size = rapid.Uint64Range(1, uint64(c.End)).Draw(t, "size")
			c.Root[3] = rapid.Byte().Draw(t, "root")
		}
		return c
	})
}

func TestSignOpenCheckpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, k := checkpoints().Draw(t, "c"), seeded(rapid.ByteRange(1, 3).Draw(t, "k"))
		b, err := SignCheckpoint(k, c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := OpenCheckpoint(b, k.Author())
		if err != nil || got != c {
			t.Fatalf("opens as %+v, %v", got, err)
		}
		if _, err := OpenCheckpoint(b, seeded(9).Author()); !errors.Is(err, identity.ErrSignature) {
			t.Fatalf("opens for another author: %v", err)
		}
	})
}

func TestCheckpointRefused(t *testing.T) {
	for name, change := range map[string]func(*Checkpoint){
		"start beyond the end":     func(c *Checkpoint) { c.Start = c.End + 1 },
		"truncation bomb":          func(c *Checkpoint) { c.Start = 1<<63 - 1 },
		"negative start":           func(c *Checkpoint) { c.Start = -1 },
		"negative end":             func(c *Checkpoint) { c.Start, c.End = -5, -2 },
		"more blocks than offsets": func(c *Checkpoint) { c.Size = uint64(c.End) + 1 },
		"no blocks but an end":     func(c *Checkpoint) { c.Size, c.Root = 0, EmptyRoot() },
		"no blocks but a root":     func(c *Checkpoint) { c.Size, c.Start, c.End = 0, 0, 0 },
		"negative term":            func(c *Checkpoint) { c.Term = -1 },
		"no origin":                func(c *Checkpoint) { c.Origin = "" },
		"no log name":              func(c *Checkpoint) { c.Origin = Origin(lattice.StoreID{}, "") },
		"a space in the log name":  func(c *Checkpoint) { c.Origin += " " },
		"a plus in the log name":   func(c *Checkpoint) { c.Origin += "+" },
		"a line in the log name":   func(c *Checkpoint) { c.Origin += "\n1" },
		"an endless log name":      func(c *Checkpoint) { c.Origin += strings.Repeat("x", 255) },
		"upper-case store":         func(c *Checkpoint) { c.Origin = strings.Replace(c.Origin, "0100", "AA00", 1) },
		"another prefix":           func(c *Checkpoint) { c.Origin = "x" + c.Origin },
	} {
		c := goldenCheckpoint()
		change(&c)
		if _, err := SignCheckpoint(seeded(1), c); !errors.Is(err, ErrCheckpoint) {
			t.Errorf("%s: signed, %v", name, err)
		}
		b, err := note.Sign(&note.Note{Text: string(c.Body())}, seeded(1).NoteSigner())
		if err != nil {
			continue // not even a note
		}
		if _, err := OpenCheckpoint(b, seeded(1).Author()); !errors.Is(err, ErrCheckpoint) {
			t.Errorf("%s: opened, %v", name, err)
		}
	}
}

func TestLooseTextRefused(t *testing.T) {
	text := string(goldenCheckpoint().Body())
	for _, r := range [][2]string{
		{"\n12345\n", "\n012345\n"}, {"\n12345\n", "\n+12345\n"}, {"start 1000", "start  1000"}, {"start 1000", "start 1_000"},
		{"start", "begin"}, {"term 28333333", "term 28333333 "}, {"cafe", "CAFE"}, {"time", "\ntime"}, {"incarnation 7", "incarnation -7"},
		{"8=\n", "9=\n"}, {"end 99999\n", ""}, {"end 99999", "end 99999\nend 99999"}, {"start 1000\nend 99999", "end 99999\nstart 1000"},
		{"term 28333333", "term 4294967296"}, {"\n", "\r\n"},
	} {
		changed := strings.Replace(text, r[0], r[1], 1)
		if changed == text {
			t.Fatalf("%q is not in the text", r[0])
		}
		if _, err := ParseBody([]byte(changed)); !errors.Is(err, ErrCheckpoint) {
			t.Errorf("%q for %q: %v", r[1], r[0], err)
		}
	}
}

// FuzzParseBody checks, for any text: no panic; what parses prints back to the
// exact bytes it came from, and can be signed.
func FuzzParseBody(f *testing.F) {
	f.Add(goldenCheckpoint().Body())
	f.Add(Checkpoint{Origin: Origin(lattice.StoreID{}, "x"), Root: EmptyRoot()}.Body())
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseBody(text)
		if err != nil {
			if !errors.Is(err, ErrCheckpoint) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(c.Body(), text) {
			t.Fatalf("%q prints back as %q", text, c.Body())
		}
		if _, err := SignCheckpoint(seeded(1), c); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzOpenCosigned checks, for any note: no panic; what is accepted is the note
// that was signed, byte for byte.
func FuzzOpenCosigned(f *testing.F) {
	author := seeded(1).Author()
	golden := cosigned(f, signed(f, seeded(1), goldenCheckpoint()), 2, 3)
	f.Add(golden)
	f.Add(append(bytes.Clone(golden), golden[bytes.LastIndex(golden, []byte("\n—"))+1:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, co, err := OpenCosigned(b, author)
		if err == nil && c != goldenCheckpoint() {
			t.Fatalf("accepts %q with %d cosignatures, which nobody signed", b, len(co))
		}
	})
}

func TestCosignatures(t *testing.T) {
	author := seeded(1).Author()
	plain := signed(t, seeded(1), goldenCheckpoint())
	b := cosigned(t, plain, 2, 3)
	c, co, err := OpenCosigned(b, author)
	if err != nil || c != goldenCheckpoint() || len(co) != 2 ||
		co[0] != (Cosignature{seeded(2).Author(), 1700000002}) || co[1] != (Cosignature{seeded(3).Author(), 1700000003}) {
		t.Fatalf("%+v, %+v, %v", c, co, err)
	}
	if _, err := OpenCheckpoint(b, author); err != nil {
		t.Errorf("cosignatures disturb: %v", err)
	}
	again, err := Cosign(seeded(2), 1800000000, b, author)
	if err != nil {
		t.Fatal(err)
	}
	if _, co, err := OpenCosigned(again, author); err != nil || len(co) != 2 {
		t.Errorf("a renewed cosignature: %+v, %v", co, err)
	}
	if _, err := Cosign(seeded(2), 1, signed(t, seeded(4), goldenCheckpoint()), author); !errors.Is(err, identity.ErrSignature) {
		t.Errorf("cosigned what another signed: %v", err)
	}
	last := b[bytes.LastIndex(b, []byte("\n—"))+1:]
	own, err := Cosign(seeded(1), 5, plain, author)
	if err != nil {
		t.Fatal(err)
	}
	if _, co, err := OpenCosigned(own, author); err != nil || len(co) != 1 || co[0].Author != author {
		t.Errorf("the writer's own cosignature: %+v, %v", co, err)
	}
	for name, bad := range map[string][]byte{
		"a line twice":          append(bytes.Clone(b), last...),
		"an unknown signature":  append(bytes.Clone(b), "— witness.example Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"...),
		"a cosignature only":    append(bytes.Clone(goldenCheckpoint().Body()), append([]byte("\n"), last...)...),
		"a text after the note": append(bytes.Clone(b), "x\n"...),
	} {
		if _, _, err := OpenCosigned(bad, author); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// TestAnyChangedByte: no change to a note goes unnoticed, not even one that
// leaves its meaning, such as the spare bits of base64.
func TestAnyChangedByte(t *testing.T) {
	b := cosigned(t, signed(t, seeded(1), goldenCheckpoint()), 2, 3)
	for i := range b {
		for _, mask := range []byte{1, 2, 3, 0x20, 0xff} {
			changed := bytes.Clone(b)
			changed[i] ^= mask
			if _, _, err := OpenCosigned(changed, seeded(1).Author()); err == nil {
				t.Fatalf("byte %d (%q) ^ %#x: accepted", i, b[i], mask)
			}
		}
	}
}

func TestOpenLarge(t *testing.T) {
	b := append(signed(t, seeded(1), goldenCheckpoint()), strings.Repeat("— x AAAAAAA=\n", MaxNote/10)...)
	if _, err := OpenCheckpoint(b, seeded(1).Author()); !errors.Is(err, ErrCheckpoint) {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	if _, err := ParseBody(make([]byte, MaxNote+1)); !errors.Is(err, ErrCheckpoint) {
		t.Errorf("a large text: %v", err)
	}
}

func TestOrigin(t *testing.T) {
	store, log, err := ParseOrigin(goldenCheckpoint().Origin)
	if err != nil || store != (lattice.StoreID{1, 31: 2}) || log != "aa0000000000000000000000000000bb/2" {
		t.Errorf("%v, %q, %v", store, log, err)
	}
}

func TestCompactionStatement(t *testing.T) {
	want := goldenCompaction()
	b, err := SignCompaction(seeded(1), want)
	if err != nil {
		t.Fatal(err)
	}
	want.Author = seeded(1).Author()
	if got, err := OpenCompaction(b); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range b {
		for _, mask := range []byte{1, 0x80, 0xff} {
			changed := bytes.Clone(b)
			changed[i] ^= mask
			if _, err := OpenCompaction(changed); err == nil {
				t.Errorf("byte %d ^ %#x: accepted", i, mask)
			}
		}
		if _, err := OpenCompaction(b[:i]); err == nil {
			t.Errorf("the first %d bytes are accepted", i)
		}
	}
	for name, change := range map[string]func(*Compaction){
		"no leaves":           func(c *Compaction) { c.EndLeaf = c.FirstLeaf },
		"leaves not in it":    func(c *Compaction) { c.EndLeaf = c.Size + 1 },
		"no offsets":          func(c *Compaction) { c.End = c.Base },
		"negative offsets":    func(c *Compaction) { c.Base = -1 },
		"a log without name":  func(c *Compaction) { c.Log = "" },
		"a log named by line": func(c *Compaction) { c.Log = "a\nb" },
	} {
		c := goldenCompaction()
		change(&c)
		if _, err := SignCompaction(seeded(1), c); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b[2] = 2
	if _, err := OpenCompaction(b); !errors.Is(err, ErrVersion) {
		t.Errorf("version 2: %v", err)
	}
}

// FuzzOpenCompaction checks, for any input: no panic; what is accepted encodes
// back to the exact bytes it came from.
func FuzzOpenCompaction(f *testing.F) {
	b, err := SignCompaction(seeded(1), goldenCompaction())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := OpenCompaction(b)
		if err == nil && !bytes.HasPrefix(b, c.appendTo(nil)) {
			t.Fatalf("%x encodes back as %x", b, c.appendTo(nil))
		}
	})
}

func TestRootIsPaddedBase64(t *testing.T) {
	line := strings.Split(string(goldenCheckpoint().Body()), "\n")[2]
	if len(line) != base64.StdEncoding.EncodedLen(32) || !strings.HasSuffix(line, "=") {
		t.Errorf("root line %q", line)
	}
}
