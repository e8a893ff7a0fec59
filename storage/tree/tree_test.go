package tree

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

func newFS(t interface{ Fatal(...any) }) *disk.Mem {
	fs := disk.NewMem()
	if err := disk.MkdirAll(fs, "/log"); err != nil {
		t.Fatal(err)
	}
	return fs
}

func hash(n ...int) (h lattice.Hash) {
	for i, x := range n {
		h[2*i], h[2*i+1] = byte(x), byte(x>>8)
	}
	h[31] = 1
	return h
}

func record(n int) []byte { return bytes.Repeat([]byte{byte(n), byte(n >> 8)}, RecordSize/2) }

// TestGoldenBytes holds the formats. If it fails, a format changed, which needs a
// new version.
func TestGoldenBytes(t *testing.T) {
	zeros := func(n int) string { return strings.Repeat("00", n) }
	prefix, err := EncodePrefix(Prefix{Leaves: 3, Hashes: []lattice.Hash{{0xaa}, {0xbb}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"leaves": {EncodeLeavesHeader(0x0102, 0x0304), "4c4c0100" + "0000000000000304" + "0000000000000102" + zeros(40) + "7b118872"},
		"level":  {encodeLevel(16), "4c540110" + zeros(24) + "e047bad8"},
		"prefix": {prefix, "4c500100" + "0000000000000003" + "00000002" + "aa" + zeros(31) + "bb" + zeros(31) + "6524b1e0"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s\n%s\nwant\n%s", name, got, c.want)
		}
	}
}

func TestPrefix(t *testing.T) {
	fs := newFS(t)
	if p, err := ReadPrefix(fs, "/log"); err != nil || !reflect.DeepEqual(p, Prefix{}) {
		t.Fatalf("no file: %+v, %v", p, err)
	}
	want := Prefix{Leaves: 300, Hashes: []lattice.Hash{hash(1), hash(2)}}
	if err := WritePrefix(fs, "/log", want); err != nil {
		t.Fatal(err)
	}
	if p, err := ReadPrefix(fs.CrashClone(0, nil), "/log"); err != nil || !reflect.DeepEqual(p, want) {
		t.Fatalf("%+v, %v", p, err)
	}
	b, _ := EncodePrefix(want)
	for i := range b {
		for _, bad := range [][]byte{b[:i], append(append(bytes.Clone(b[:i]), b[i]^0x40), b[i+1:]...)} {
			if p, err := DecodePrefix(bad); lattice.KindOf(err) != lattice.Corrupt {
				t.Fatalf("byte %d of %d: %+v, %v", i, len(bad), p, err)
			}
		}
	}
	if err := WritePrefix(fs, "/log", Prefix{Hashes: make([]lattice.Hash, MaxHashes+1)}); lattice.KindOf(err) != lattice.TooLarge {
		t.Errorf("too many hashes: %v", err)
	}
}

// TestPrefixFaults: whatever step of WritePrefix fails, and whatever a crash takes,
// the prefix is the old or the new one; the new one if WritePrefix said so.
func TestPrefixFaults(t *testing.T) {
	was, want := Prefix{Leaves: 1, Hashes: []lattice.Hash{hash(1)}}, Prefix{Leaves: 2, Hashes: []lattice.Hash{hash(2)}}
	for step := range 8 {
		for _, kept := range []bool{false, true} {
			for _, percent := range []int{0, 50, 100} {
				fs := newFS(t)
				if err := WritePrefix(fs, "/log", was); err != nil {
					t.Fatal(err)
				}
				n := 0
				fs.SetFault(func(op disk.Op) *disk.Fault {
					if op.Kind.Changes() {
						if n++; n == step+1 {
							return &disk.Fault{Kept: kept, Short: 20}
						}
					}
					return nil
				})
				err := WritePrefix(fs, "/log", want)
				fs.SetFault(nil)
				p, readErr := ReadPrefix(fs.CrashClone(percent, rand.New(rand.NewPCG(uint64(step), 0))), "/log")
				if readErr != nil || p.Leaves != want.Leaves && (p.Leaves != was.Leaves || err == nil) {
					t.Errorf("step %d kept %v %d%%: %+v, %v after %v", step, kept, percent, p, readErr, err)
				}
			}
		}
	}
}

func openLeaves(t fataler, fs disk.FS) *Leaves {
	t.Helper()
	l, damaged, err := OpenLeaves(fs, "/log")
	if err != nil || damaged != nil {
		t.Fatalf("open: %v, %v", damaged, err)
	}
	return l
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// TestLeavesModel runs random operations on leaves and compares with a slice.
func TestLeavesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := newFS(t)
		l := openLeaves(t, fs)
		var recs [][]byte // all ever appended; those before start were dropped
		type seg struct {
			base  int64
			first int
		}
		var segs []seg
		start, count := 0, 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"begin", "append", "append", "append", "truncate", "drop", "reopen", "sync"}).Draw(t, "op") {
			case "begin":
				base := int64(0)
				if len(segs) > 0 {
					base = segs[len(segs)-1].base + 10
				}
				if err := l.Begin(base, uint64(len(recs))); err != nil {
					t.Fatal(err)
				}
				segs = append(segs, seg{base, len(recs)})
			case "append":
				if len(segs) == 0 {
					if err := l.Append(record(1)); lattice.KindOf(err) != lattice.Invalid {
						t.Fatal(err)
					}
					continue
				}
				var b []byte
				for range rapid.IntRange(0, 5).Draw(t, "n") {
					count++
					recs = append(recs, record(count))
					b = append(b, record(count)...)
				}
				if err := l.Append(b); err != nil {
					t.Fatal(err)
				}
			case "truncate":
				n := rapid.IntRange(start, len(recs)).Draw(t, "to")
				if err := l.Truncate(uint64(n)); err != nil {
					t.Fatal(err)
				}
				if len(segs) > 0 {
					recs = recs[:n]
				}
				for len(segs) > 0 && segs[len(segs)-1].first > n {
					segs = segs[:len(segs)-1]
				}
				if len(segs) == 0 {
					recs, start = nil, 0
				}
			case "drop":
				if len(segs) > 1 {
					k := rapid.IntRange(0, len(segs)-1).Draw(t, "k")
					if err := l.Drop(segs[k].base); err != nil {
						t.Fatal(err)
					}
					segs = segs[k:]
					start = segs[0].first
				}
			case "reopen":
				l = openLeaves(t, fs)
			case "sync":
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				checkLeaves(t, openLeaves(t, fs.CrashClone(0, nil)), recs, start)
			}
			checkLeaves(t, l, recs, start)
			if n := len(segs); n > 0 && segs[n-1].first < len(recs) {
				if base, first, err := l.SegmentOf(uint64(len(recs) - 1)); err != nil || base != segs[n-1].base || first != uint64(segs[n-1].first) {
					t.Fatalf("segment of the last leaf: %d, %d, %v, want %+v", base, first, err, segs[n-1])
				}
			}
		}
	})
}

// checkLeaves compares the leaves from start on with records.
func checkLeaves(t *rapid.T, l *Leaves, recs [][]byte, start int) {
	if l.Next() != uint64(len(recs)) {
		t.Fatalf("next %d, want %d", l.Next(), len(recs))
	}
	if first, err := l.First(); err != nil || first != uint64(start) {
		t.Fatalf("first %d, %v, want %d", first, err, start)
	}
	from := rapid.IntRange(start, len(recs)).Draw(t, "from")
	n := rapid.IntRange(0, len(recs)-from).Draw(t, "count")
	b, err := l.Read(uint64(from), n, []byte("x"))
	if err != nil || string(b) != "x"+string(bytes.Join(recs[from:from+n], nil)) {
		t.Fatalf("read %d, %d: %d bytes, %v", from, n, len(b), err)
	}
	if _, err := l.Read(uint64(from), len(recs)-from+1, nil); lattice.KindOf(err) != lattice.NotFound {
		t.Fatalf("read beyond: %v", err)
	}
}

// TestDamagedLeaves damages every byte of a header, and cuts the file everywhere.
func TestDamagedLeaves(t *testing.T) {
	fs := newFS(t)
	l := openLeaves(t, fs)
	for base := range int64(3) {
		if err := l.Begin(base*10, uint64(base)*4); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(slices.Concat(record(1), record(2), record(3), record(4))); err != nil {
			t.Fatal(err)
		}
	}
	whole := slices.Concat(EncodeLeavesHeader(20, 8), record(1), record(2), record(3), record(4))
	name := l.name(20)
	for i := range leavesHead {
		b := bytes.Clone(whole)
		b[i] ^= 4
		if err := disk.WriteFile(fs, name, b); err != nil {
			t.Fatal(err)
		}
		l, damaged, err := OpenLeaves(fs, "/log")
		if err != nil || lattice.KindOf(damaged) != lattice.Corrupt || l.Next() != 8 {
			t.Fatalf("byte %d: next %d, %v, %v", i, l.Next(), damaged, err)
		}
		if err := l.Begin(20, 8); err != nil {
			t.Fatal(err)
		}
		if l := openLeaves(t, fs); l.Next() != 8 || len(l.Segments()) != 3 {
			t.Fatalf("byte %d: begun again: %d", i, l.Next())
		}
	}
	for n := range len(whole) {
		if err := disk.WriteFile(fs, name, whole[:n]); err != nil {
			t.Fatal(err)
		}
		l, damaged, err := OpenLeaves(fs, "/log")
		want := uint64(8 + max(n-leavesHead, 0)/RecordSize)
		if err != nil || l.Next() != want || (damaged != nil) != (n < leavesHead) {
			t.Fatalf("cut at %d: next %d, want %d, %v, %v", n, l.Next(), want, damaged, err)
		}
		if err := l.Truncate(want); err != nil || n >= leavesHead && l.Append(record(9)) != nil {
			t.Fatalf("cut at %d: %v", n, err)
		}
		if n >= leavesHead {
			if b, err := openLeaves(t, fs).Read(want, 1, nil); err != nil || !bytes.Equal(b, record(9)) {
				t.Fatalf("cut at %d: read %x, %v", n, b, err)
			}
		}
	}
	// In the middle, damage is found when it is read.
	if err := fs.Truncate(l.name(10), leavesHead+RecordSize); err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFile(fs, name, whole); err != nil {
		t.Fatal(err)
	}
	l = openLeaves(t, fs)
	if _, err := l.Read(4, 1, nil); err != nil {
		t.Error(err)
	}
	if _, err := l.Read(4, 2, nil); lattice.KindOf(err) != lattice.Corrupt {
		t.Errorf("a short file: %v", err)
	}
}

func TestLevels(t *testing.T) {
	fs := newFS(t)
	open := func(fs disk.FS) *Levels {
		l, damaged, err := OpenLevels(fs, "/log")
		if err != nil || damaged != nil {
			t.Fatal(damaged, err)
		}
		return l
	}
	l := open(fs)
	if l.Append(7, hash(1)) == nil || l.Truncate(9, 0) == nil {
		t.Error("levels that are not kept were taken")
	}
	for _, level := range StoredLevels() {
		for i := range 5 {
			if err := l.Append(level, hash(int(level), 2*i), hash(int(level), 2*i+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(8, hash(8, 10)); err != nil {
		t.Fatal(err)
	}
	if n := open(fs.CrashClone(0, nil)).Len(8); n != 10 {
		t.Errorf("after a crash %d", n)
	}
	l = open(fs)
	for _, level := range StoredLevels() {
		for i := range l.Len(level) {
			if h, err := l.Hash(level, i); err != nil || h != hash(int(level), int(i)) {
				t.Fatalf("level %d, %d: %v, %v", level, i, h, err)
			}
		}
	}
	if _, err := l.Hash(8, 11); lattice.KindOf(err) != lattice.NotFound {
		t.Error(err)
	}
	if err := l.Truncate(8, 4); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(8, hash(99)); err != nil {
		t.Fatal(err)
	}
	l = open(fs)
	if h, err := l.Hash(8, 4); err != nil || h != hash(99) || l.Len(8) != 5 {
		t.Errorf("%v %v %d", h, err, l.Len(8))
	}
}

// TestDamagedLevel damages each byte of a header; the level is then empty, and can
// be written again.
func TestDamagedLevel(t *testing.T) {
	for i := range levelHead + 1 {
		fs := newFS(t)
		b := slices.Concat(encodeLevel(16), make([]byte, 64))
		if i < levelHead {
			b[i] ^= 1
		} else {
			b = b[:levelHead-1]
		}
		if err := disk.WriteFile(fs, "/log/tree.16", b); err != nil {
			t.Fatal(err)
		}
		l, damaged, err := OpenLevels(fs, "/log")
		if err != nil || lattice.KindOf(damaged) != lattice.Corrupt || l.Len(16) != 0 {
			t.Fatalf("byte %d: %d, %v, %v", i, l.Len(16), damaged, err)
		}
		if err := l.Append(16, hash(1)); err != nil {
			t.Fatal(err)
		}
		if l, damaged, err = OpenLevels(fs, "/log"); err != nil || damaged != nil || l.Len(16) != 1 {
			t.Fatalf("byte %d: written again: %d, %v, %v", i, l.Len(16), damaged, err)
		}
	}
}

// TestFaults: a failed append to leaves or levels adds nothing that counts, and
// works when it is repeated.
func TestFaults(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 5))
		fs := newFS(t)
		l := openLeaves(t, fs)
		v, _, err := OpenLevels(fs, "/log")
		if err != nil {
			t.Fatal(err)
		}
		fs.SetFault(func(op disk.Op) *disk.Fault {
			if op.Kind.Changes() && rng.IntN(3) == 0 {
				return &disk.Fault{Kept: rng.IntN(2) == 0, Short: rng.Int64N(200)}
			}
			return nil
		})
		retry := func(what string, f func() error) {
			for range 100 {
				err := f()
				if err == nil {
					return
				}
				if lattice.KindOf(err) != lattice.Storage {
					t.Fatalf("%s: %v", what, err)
				}
			}
			t.Fatalf("%s never works", what)
		}
		n := 0
		for base := range int64(3) {
			retry("begin", func() error { return l.Begin(base, uint64(n)) })
			for range 4 {
				retry("append", func() error { return l.Append(slices.Concat(record(n), record(n+1))) })
				retry("append", func() error { return v.Append(8, hash(n), hash(n+1)) })
				n += 2
			}
			retry("truncate", func() error { return l.Truncate(uint64(n - 1)) })
			retry("truncate", func() error { return v.Truncate(8, uint64(n-1)) })
			n--
		}
		fs.SetFault(nil) // after a failed sync only writing again would help, so none fails here
		l = openLeaves(t, fs)
		if v, _, err = OpenLevels(fs, "/log"); err != nil {
			t.Fatal(err)
		}
		if l.Next() != uint64(n) || v.Len(8) != uint64(n) {
			t.Fatalf("seed %d: %d leaves, %d hashes, want %d", seed, l.Next(), v.Len(8), n)
		}
		for i := range n {
			b, err := l.Read(uint64(i), 1, nil)
			h, err2 := v.Hash(8, uint64(i))
			if err != nil || err2 != nil || !bytes.Equal(b, record(i)) || h != hash(i) {
				t.Fatalf("seed %d: leaf %d: %x, %v, %v", seed, i, b, err, err2)
			}
		}
	}
}

// FuzzDecode checks, for any input: no panic; what decodes encodes to the same
// bytes; errors are of Kind Corrupt.
func FuzzDecode(f *testing.F) {
	p, _ := EncodePrefix(Prefix{Leaves: 9, Hashes: []lattice.Hash{hash(1)}})
	f.Add(p)
	f.Add(EncodeLeavesHeader(1, 2))
	f.Add(encodeLevel(8))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := DecodePrefix(b); err == nil {
			if again, err := EncodePrefix(p); err != nil || !bytes.Equal(again, b) {
				t.Fatalf("prefix %+v: %v", p, err)
			}
		} else if lattice.KindOf(err) != lattice.Corrupt {
			t.Fatal(err)
		}
		if base, first, err := DecodeLeavesHeader(b); err == nil {
			if !bytes.Equal(EncodeLeavesHeader(base, first), b) {
				t.Fatalf("leaves header %d, %d", base, first)
			}
		} else if lattice.KindOf(err) != lattice.Corrupt {
			t.Fatal(err)
		}
		for _, level := range StoredLevels() {
			if err := decodeLevel(b, level); err != nil && lattice.KindOf(err) != lattice.Corrupt {
				t.Fatal(err)
			}
		}
	})
}

// TestOpenReadsLittle: opening does not depend on how many files there are.
func TestOpenReadsLittle(t *testing.T) {
	fs := newFS(t)
	l := openLeaves(t, fs)
	for i := range int64(200) {
		if err := l.Begin(i, uint64(i)); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(record(int(i))); err != nil {
			t.Fatal(err)
		}
	}
	opens := 0
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpOpen {
			opens++
		}
		return nil
	})
	l = openLeaves(t, fs)
	if opens != 1 {
		t.Errorf("opening reads %d files", opens)
	}
	if b, err := l.Read(77, 1, nil); err != nil || !bytes.Equal(b, record(77)) || opens > 12 {
		t.Errorf("a leaf: %v, %d files read", err, opens)
	}
}
