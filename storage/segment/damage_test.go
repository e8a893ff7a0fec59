package segment

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// flip inverts a byte of a file.
func flip(t fataler, fs disk.FS, name string, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(name, disk.Category)
	if err != nil {
		t.Fatalf("open %s: %v", name, err)
	}
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	if err == nil {
		b[0] ^= 0xff
		_, err = f.WriteAt(b[:], at)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatalf("flip byte %d of %s: %v", at, name, err)
	}
}

func size(t fataler, fs disk.FS, name string) int64 {
	t.Helper()
	info, err := fs.Stat(name)
	if err != nil {
		t.Fatalf("stat: %v", err)
	}
	return info.Size()
}

// damaged returns a log of three segments, the last one with blocks behind the
// head, as a killed process leaves it.
func damaged(t fataler) *model {
	t.Helper()
	m := newScripted(t)
	for i := range 10 {
		if err := m.append(2); err != nil {
			t.Fatalf("append: %v", err)
		}
		if i == 8 {
			if err := m.sync(); err != nil {
				t.Fatalf("sync: %v", err)
			}
			m.saveHead()
			if err := m.l.FlushIndex(); err != nil {
				t.Fatalf("flush: %v", err)
			}
		}
	}
	m.opt.Handles = NewHandles(4)
	return m
}

// TestDamagedTail: whichever byte behind the place to resume from is damaged, or
// wherever the file ends, the log ends with the block before, keeps the cut bytes,
// and says so.
func TestDamagedTail(t *testing.T) {
	base := damaged(t)
	tail := base.head.Pos
	name := base.l.name(tail.Segment, logExt)
	end, _ := base.l.End()
	if end.Segment != tail.Segment {
		t.Fatalf("the tail %s to %s is not in one file", tail, end)
	}
	for at := tail.At; at < end.At; at++ {
		for _, cut := range []bool{false, true} {
			fs := base.fs.CrashClone(100, nil)
			if cut {
				if err := fs.Truncate(name, at); err != nil {
					t.Fatal(err)
				}
			} else {
				flip(t, fs, name, at)
			}
			n := 0
			l, rec, err := Open(fs, "/log", base.opt, base.head, func(m Meta, b []byte) error {
				n++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			want := base.head.Next
			for _, it := range base.items {
				if _, pos, err := base.l.Find(it.m.Base); err == nil && it.m.Base >= want && pos.At+int64(len(it.b)) <= at {
					want = it.m.Last + 1
				}
			}
			if l.Next() != want || int64(n) != rec.Blocks || len(rec.Damaged) != 0 {
				t.Fatalf("byte %d, cut %v: the log ends at %d, want %d; %+v", at, cut, l.Next(), want, rec)
			}
			checkCut(t, fs, rec, cut, at)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if l, rec, err = Open(fs, "/log", base.opt, base.head, nil); err != nil || l.Next() != want || rec.Cut != nil {
				t.Fatalf("byte %d: open again: %d, %+v, %v", at, l.Next(), rec, err)
			}
		}
	}
}

func checkCut(t *testing.T, fs disk.FS, rec Recovery, truncated bool, at int64) {
	t.Helper()
	if rec.Cut == nil {
		if !truncated {
			t.Fatalf("byte %d: nothing is said to be cut", at)
		}
		return // the file ended between two blocks, or in zeros
	}
	var saved int64
	for _, s := range rec.Cut.Saved {
		saved += size(t, fs, "/log/"+s)
	}
	if rec.Cut.Bytes == 0 || saved != rec.Cut.Bytes || rec.Cut.Reason == "" {
		t.Fatalf("byte %d: %+v, %d bytes saved", at, rec.Cut, saved)
	}
}

// TestDamageBeforeTheHead: damage before the place to resume from cuts nothing.
// The log opens at once, the blocks behind are there, and reading the damaged one
// is an error of Kind Corrupt; all others are read.
func TestDamageBeforeTheHead(t *testing.T) {
	base := damaged(t)
	for _, it := range base.items {
		if it.m.Last >= base.head.Next {
			continue
		}
		_, pos, err := base.l.Find(it.m.Base)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{0, 1, 5, 6, 7, 8, 9, 16, 17, 25, 28, 29, testHeader, int64(len(it.b)) - 1} {
			if at >= int64(len(it.b)) {
				continue
			}
			t.Run(fmt.Sprintf("%d+%d", it.m.Base, at), func(t *testing.T) {
				fs := base.fs.CrashClone(100, nil)
				flip(t, fs, base.l.name(pos.Segment, logExt), pos.At+at)
				opt := base.opt
				opt.Handles = NewHandles(4)
				l, rec, err := Open(fs, "/log", opt, base.head, nil)
				if err != nil {
					t.Fatal(err)
				}
				if rec.Cut != nil || l.Next() != base.next {
					t.Fatalf("the log ends at %d, want %d; cut %+v", l.Next(), base.next, rec.Cut)
				}
				readAround(t, l, base, it, pos)
			})
		}
	}
}

// readAround reads every block of a log with one damaged block. Blocks behind it
// in the same file may be out of reach up to the next index entry.
func readAround(t *testing.T, l *Log, base *model, bad item, pos Pos) {
	t.Helper()
	lost := 0
	for _, it := range base.items {
		m, b, err := l.Read(it.m.Base, nil)
		if err == nil {
			if m != it.m || !bytes.Equal(b, it.b) {
				t.Fatalf("read %d: wrong block", it.m.Base)
			}
			if it.m == bad.m {
				t.Fatalf("the damaged block at %d was read", bad.m.Base)
			}
			continue
		}
		if lattice.KindOf(err) != lattice.Corrupt {
			t.Fatalf("read %d: %v", it.m.Base, err)
		}
		lost++
	}
	if lost == 0 || lost > 4 {
		t.Fatalf("%d blocks are lost to one damaged byte", lost)
	}
}

// TestMissingBeforeTheHead: a file that is gone, empty or cut short before the
// place to resume from is reported, and neither hides nor cuts what is behind.
func TestMissingBeforeTheHead(t *testing.T) {
	base := damaged(t)
	infos, err := base.l.Segments()
	if err != nil || len(infos) < 3 {
		t.Fatalf("segments: %+v, %v", infos, err)
	}
	for i, in := range infos {
		for _, how := range []string{"gone", "empty", "short"} {
			t.Run(fmt.Sprintf("%s %d", how, i), func(t *testing.T) {
				fs := base.fs.CrashClone(100, nil)
				name := base.l.name(in.Base, logExt)
				var err error
				switch how {
				case "gone":
					err = fs.Remove(name)
				case "empty":
					err = fs.Truncate(name, 0)
				default:
					err = fs.Truncate(name, 100)
				}
				if err != nil {
					t.Fatal(err)
				}
				opt := base.opt
				opt.Handles = NewHandles(4)
				l, rec, err := Open(fs, "/log", opt, base.head, nil)
				if err != nil {
					t.Fatal(err)
				}
				last := i == len(infos)-1
				if last && l.Next() != base.head.Next || !last && l.Next() != base.next {
					t.Fatalf("the log ends at %d", l.Next())
				}
				// In the middle, only reading finds what is missing.
				if (how == "empty" || i == 0 && how == "gone" || last) && (len(rec.Damaged) != 1 || rec.Damaged[0].To != min(in.Next, base.head.Next)) {
					t.Fatalf("damage: %+v, want one range up to %d", rec.Damaged, in.Next)
				}
				for _, it := range base.items {
					m, b, err := l.Read(it.m.Base, nil)
					inside := it.m.Base >= in.Base && it.m.Base < in.Next
					switch {
					case err == nil && m == it.m && bytes.Equal(b, it.b):
					case inside && lattice.KindOf(err) == lattice.Corrupt, i == 0 && how == "gone" && lattice.KindOf(err) == lattice.OutOfRange:
					case last && it.m.Base >= base.head.Next && lattice.KindOf(err) == lattice.NotYet:
					default:
						t.Fatalf("read %d: %+v, %v", it.m.Base, m, err)
					}
				}
				m := Meta{Base: l.Next(), Last: l.Next(), Term: 9}
				b := block(m, 100, 1)
				if _, err := l.Append([]Meta{m}, []int{len(b)}, b); err != nil {
					t.Fatalf("append: %v", err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestDamagedIndexes: whichever byte of an index is damaged, and wherever it ends,
// all lookups give the same answers as before, of a running log and of one that is
// opened.
func TestDamagedIndexes(t *testing.T) {
	base := damaged(t)
	names, err := base.fs.List("/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if !strings.HasSuffix(name, indexExt) && !strings.HasSuffix(name, timeExt) && !strings.HasSuffix(name, hintExt) {
			continue
		}
		name = "/log/" + name
		n := size(t, base.fs, name)
		if n == 0 {
			t.Fatalf("%s is empty", name)
		}
		for at := int64(0); at < n; at++ {
			for _, how := range []string{"flip", "cut", "gone"} {
				if how == "gone" && at > 0 {
					continue
				}
				m := *base
				m.t = t
				m.fs = base.fs.CrashClone(100, nil)
				switch how {
				case "flip":
					flip(t, m.fs, name, at)
				case "cut":
					err = m.fs.Truncate(name, at)
				default:
					err = m.fs.Remove(name)
				}
				if err != nil {
					t.Fatal(err)
				}
				m.items = append([]item{}, base.items...)
				m.reopen(false)
				for _, it := range m.items { // through the index first, before anything looks at it as a whole
					if mt, _, err := m.l.Find(it.m.Last); err != nil || mt != it.m {
						t.Fatalf("%s of byte %d of %s: find %d: %+v, %v", how, at, name, it.m.Last, mt, err)
					}
				}
				for _, it := range m.items {
					want := it.m
					for _, e := range m.items {
						if e.m.MaxTime >= it.m.MaxTime {
							want = e.m
							break
						}
					}
					if mt, ok, err := m.l.FindTime(it.m.MaxTime); err != nil || !ok || mt != want {
						t.Fatalf("%s of byte %d of %s: find time %d: %+v, %v, %v", how, at, name, it.m.MaxTime, mt, ok, err)
					}
				}
				m.check()
			}
		}
	}
}
