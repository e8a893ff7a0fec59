package kv

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

func openWith(t testing.TB, fs disk.FS, opt Options) *DB {
	t.Helper()
	opt.ReserveBytes = -1
	d, err := Open(fs, "/kv", opt)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestNoJournal cuts the power at random moments while a store without a journal
// is written to: what is there afterwards is all of the first batches, and at
// least those before the last Flush.
func TestNoJournal(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 30 {
		fs := disk.NewMem()
		opt := Options{NoJournal: true, MemoryBytes: 256 << 10}
		d := openWith(t, fs, opt)
		if err := d.Commit(d.Batch(), true); lattice.KindOf(err) != lattice.Invalid {
			t.Fatalf("a batch is synced without a journal: %v", err)
		}
		flushed, written := 0, 50+rng.IntN(100)
		for n := 1; n <= written; n++ {
			b := d.Batch()
			for i := range 20 {
				b.Set(fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "%d %s", n, strings.Repeat("x", rng.IntN(1000))))
			}
			if err := d.Commit(b, false); err != nil {
				t.Fatal(err)
			}
			if rng.IntN(20) == 0 {
				if err := d.Flush(); err != nil {
					t.Fatal(err)
				}
				flushed = n
			}
		}
		after := fs.CrashClone(rng.IntN(101), rng)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = openWith(t, after, opt)
		first := ""
		for i := range 20 {
			v, _, err := d.Get(fmt.Appendf(nil, "key %d", i))
			if err != nil {
				t.Fatal(err)
			}
			n, _, _ := strings.Cut(string(v), " ")
			if i == 0 {
				first = n
			}
			if n != first {
				t.Fatalf("half a batch: key 0 is of batch %s, key %d of %s", first, i, n)
			}
		}
		var got int
		_, _ = fmt.Sscan(first, &got) // nothing: 0
		if got < flushed || got > written {
			t.Fatalf("batch %d is the last one there, %d was flushed, %d written", got, flushed, written)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFilters finds what is there, and not what is not, in tables with filters, and
// reads tables written without them.
func TestFilters(t *testing.T) {
	fs := disk.NewMem()
	for _, filters := range []bool{false, true, false} {
		d := openWith(t, fs, Options{Filters: filters, MemoryBytes: 64 << 10})
		for i := range 2000 {
			set(t, d, false, fmt.Sprintf("%v %d", filters, i), "x")
		}
		if err := d.Flush(); err != nil {
			t.Fatal(err)
		}
		for i := range 4000 {
			if _, ok, err := d.Get(fmt.Appendf(nil, "%v %d", filters, i)); err != nil || ok != (i < 2000) {
				t.Fatalf("%v %d: %v, %v", filters, i, ok, err)
			}
		}
		if _, ok, err := d.Get([]byte("false 7")); err != nil || !ok {
			t.Fatalf("what was there before: %v, %v", ok, err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLoading fills a store that is open for loading, with batches that are larger
// than its memory too, and reads all of it then and once it is opened for use. What
// FlushSoon began with is there after a power cut.
func TestLoading(t *testing.T) {
	fs := disk.NewMem()
	opt := Options{NoJournal: true, MemoryBytes: 256 << 10, Loading: true}
	d := openWith(t, fs, opt)
	const batches, each = 40, 2000
	name := func(n, i int) []byte { return fmt.Appendf(nil, "key %d %d", i, n) } // every table spans all
	for n := range batches {
		b := d.Batch()
		for i := range each {
			b.Set(name(n, i), fmt.Appendf(nil, "%d %d", n, i))
		}
		if err := d.Commit(b, false); err != nil {
			t.Fatal(err)
		}
	}
	check := func(d *DB) {
		t.Helper()
		seen := 0
		if err := d.Iterate([]byte("key"), func(_, _ []byte) error { seen++; return nil }); err != nil || seen != batches*each {
			t.Fatalf("%d keys, %v; want %d", seen, err, batches*each)
		}
		if v, ok, err := d.Get(name(7, 8)); err != nil || !ok || string(v) != "7 8" {
			t.Fatalf("%q, %v, %v", v, ok, err)
		}
	}
	check(d)
	if err := d.FlushSoon(); err != nil {
		t.Fatal(err)
	}
	if err := d.Flush(); err != nil { // what was begun before is done then
		t.Fatal(err)
	}
	after := fs.CrashClone(0, rand.New(rand.NewPCG(1, 1)))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.FlushSoon(); lattice.KindOf(err) != lattice.Unavailable {
		t.Errorf("flush of a closed store: %v", err)
	}
	opt.Loading = false
	for _, fs := range []disk.FS{fs, after} {
		d := openWith(t, fs, opt)
		check(d)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
