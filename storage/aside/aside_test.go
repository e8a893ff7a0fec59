package aside_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/branch"
	"github.com/lattice-log/lattice/storage/aside"
	"github.com/lattice-log/lattice/storage/disk"
)

func newShelf(t *testing.T) (*disk.Mem, aside.Shelf) {
	t.Helper()
	fs := disk.NewMem()
	if err := fs.MkdirAll("/p", 0o700); err != nil {
		t.Fatal(err)
	}
	return fs, aside.Of(fs, "/p")
}

// put keeps bytes as a branch that begins at an offset.
func put(t *testing.T, s aside.Shelf, first int64, data string) branch.Branch {
	t.Helper()
	w, err := s.Begin()
	if err == nil {
		_, err = w.Write([]byte(data))
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.Keep(branch.Branch{First: first, End: first + int64(len(data)), Blocks: 1})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestShelf: a branch is kept once, also if only its beginning comes again; what belongs to
// none is swept away, and what is discarded is gone.
func TestShelf(t *testing.T) {
	fs, s := newShelf(t)
	if all, err := s.List(); err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
	whole := put(t, s, 7, "abcdef")
	for _, again := range []string{"abcdef", "abc"} {
		if b := put(t, s, 7, again); b.ID() != whole.ID() {
			t.Fatalf("%q is kept as %s beside %s", again, b.ID(), whole.ID())
		}
	}
	put(t, s, 7, "abX")
	other := put(t, s, 3, "abc")
	for _, name := range []string{"new.log", "00000000000000000009-0000000000000000.log"} {
		if err := disk.WriteFile(fs, "/p/stranded/"+name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(); err != nil {
		t.Fatal(err)
	}
	if names, err := fs.List("/p/stranded"); err != nil || len(names) != 6 {
		t.Fatal(names, err)
	}
	all, err := s.List()
	if err != nil || len(all) != 3 || all[0].ID() != other.ID() {
		t.Fatal(len(all), err)
	}
	k, err := s.Find(whole.ID())
	if err != nil || s.Check(k) != nil {
		t.Fatal(err, s.Check(k))
	}
	f, err := s.Open(k)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(f, 0, int64(k.Bytes)))
	if err = errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, []byte("abcdef")) {
		t.Fatalf("%q, %v", got, err)
	}
	if err := s.Discard(k); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(whole.ID()); !errors.Is(err, aside.ErrNone) {
		t.Fatal(err)
	}
	if names, err := fs.List("/p/stranded"); err != nil || len(names) != 4 {
		t.Fatal(names, err)
	}
}

// TestDamage: changed blocks, and a branch that cannot be read, are noticed, and nothing else is
// disturbed.
func TestDamage(t *testing.T) {
	fs, s := newShelf(t)
	b := put(t, s, 1, "abc")
	put(t, s, 2, "def")
	k, err := s.Find(b.ID())
	if err != nil {
		t.Fatal(err)
	}
	name := "/p/stranded/00000000000000000001-" + b.ID()[2:]
	if err := disk.WriteFile(fs, name+".log", []byte("abd")); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(k); lattice.KindOf(err) != lattice.Corrupt {
		t.Fatal(err)
	}
	if err := disk.WriteFile(fs, name+".branch", []byte("LY")); err != nil {
		t.Fatal(err)
	}
	if all, err := s.List(); len(all) != 1 || !errors.Is(err, branch.ErrMalformed) {
		t.Fatal(len(all), err)
	}
}
