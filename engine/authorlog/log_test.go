package authorlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/segment"
)

var (
	testKey   = identity.FromSeed([32]byte{1, 2, 3})
	testStore = lattice.StoreID{9, 9, 31: 1}
)

func options(fs disk.FS, incarnation uint64) Options {
	var stamp uint64
	return Options{
		FS: fs, Dir: "/authors", Store: testStore, Writer: state.Writer{Author: testKey.Author(), Incarnation: incarnation},
		Key: testKey, Clock: tick.NewManual(time.UnixMilli(1_767_225_600_000)),
		Stamp:     func() (uint64, error) { stamp++; return stamp, nil },
		Committer: signedlog.NewCommitter(), Handles: segment.NewHandles(16),
	}
}

func open(t *testing.T, fs disk.FS) *Log {
	t.Helper()
	l, err := Open(options(fs, 7), DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// chainOf makes n entries that follow tip.
func chainOf(t testing.TB, tip sigchain.Link, n int, size int) []sigchain.Signed {
	t.Helper()
	var out []sigchain.Signed
	for range n {
		e := sigchain.Entry{Store: testStore, Incarnation: 7, Seq: tip.Seq + 1, Time: (tip.Seq + 1) << 16, Prev: tip}
		if size > 0 {
			e.Ops = []sigchain.Op{{Kind: 99, Body: bytes.Repeat([]byte{byte(tip.Seq)}, size)}}
		}
		s, err := sigchain.Sign(testKey, e)
		if err != nil {
			t.Fatal(err)
		}
		out, tip = append(out, s), s.Link()
	}
	return out
}

func holds(t *testing.T, l *Log, want []sigchain.Signed) {
	t.Helper()
	at := 0
	err := l.Scan(1, uint64(len(want))+10, func(s sigchain.Signed) error {
		if at >= len(want) || s.ID != want[at].ID || !bytes.Equal(s.Bytes(), want[at].Bytes()) {
			return fmt.Errorf("entry %d is another one", s.Seq)
		}
		at++
		return s.Verify()
	})
	if err != nil || at != len(want) {
		t.Fatalf("scanned %d of %d entries: %v", at, len(want), err)
	}
	for _, e := range want {
		if s, err := l.Read(e.Seq); err != nil || s.ID != e.ID {
			t.Fatalf("read entry %d: %v", e.Seq, err)
		}
	}
	tip, tm := l.Tip()
	if len(want) > 0 && (tip != want[len(want)-1].Link() || tm != want[len(want)-1].Time) {
		t.Fatalf("tip %v at %d", tip, tm)
	}
}

func TestAppendReopen(t *testing.T) {
	fs := disk.NewMem()
	l := open(t, fs)
	if first, last := l.Bounds(); first != 1 || last != 0 {
		t.Fatalf("an empty log holds %d to %d", first, last)
	}
	var all []sigchain.Signed
	tip, _ := l.Tip()
	for round := range 3 {
		next := chainOf(t, tip, 1+3*round, 1000*round)
		if err := l.Append(next...); err != nil {
			t.Fatal(err)
		}
		all = append(all, next...)
		tip = next[len(next)-1].Link()
		holds(t, l, all)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		l = open(t, fs)
		holds(t, l, all)
	}
	if got, err := List(fs, "/authors"); err != nil || len(got) != 1 || got[0] != l.Start() {
		t.Fatalf("list: %v, %v", got, err)
	}
	if _, err := l.Read(uint64(len(all)) + 1); lattice.KindOf(err) != lattice.NotYet {
		t.Fatalf("an entry that is not there: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAppendTakesOnlyTheNext(t *testing.T) {
	l := open(t, disk.NewMem())
	es := chainOf(t, sigchain.Link{}, 4, 10)
	if err := l.Append(es[0], es[1]); err != nil {
		t.Fatal(err)
	}
	other := chainOf(t, es[0].Link(), 1, 11)
	for _, tc := range []struct {
		what string
		es   []sigchain.Signed
		want error
	}{
		{"the tip again", es[1:2], sigchain.ErrKnown},
		{"below the tip", es[:1], sigchain.ErrOld},
		{"a gap", es[3:], sigchain.ErrGap},
		{"another in its place", other, sigchain.ErrForked},
		{"a good one and a gap", []sigchain.Signed{es[2], es[2]}, sigchain.ErrKnown},
	} {
		if err := l.Append(tc.es...); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.what, err, tc.want)
		}
		holds(t, l, es[:2])
	}
	if err := l.Append(es[2:]...); err != nil {
		t.Fatal(err)
	}
	holds(t, l, es)
}

// TestCrash: what was flushed is there after a power cut, and what is there is a
// beginning of what was appended.
func TestCrash(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 60 {
		fs := disk.NewMem()
		l := open(t, fs)
		es := chainOf(t, sigchain.Link{}, 12, rng.IntN(3000))
		flushed := rng.IntN(len(es) + 1)
		for i, e := range es {
			if err := l.Append(e); err != nil {
				t.Fatal(err)
			}
			if i < flushed {
				if err := l.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		l = open(t, fs.CrashClone(rng.IntN(101), rng))
		_, last := l.Bounds()
		if last < uint64(flushed) || last > uint64(len(es)) {
			t.Fatalf("round %d: %d entries flushed, %d there", round, flushed, last)
		}
		holds(t, l, es[:last])
		if err := l.Append(chainOf(t, linkOf(es, last), 1, 10)...); err != nil {
			t.Fatalf("round %d: the log does not go on: %v", round, err)
		}
	}
}

func linkOf(es []sigchain.Signed, n uint64) sigchain.Link {
	if n == 0 {
		return sigchain.Link{}
	}
	return es[n-1].Link()
}

// TestDamage: a flipped bit below the checkpoint is found by whoever reads it, and
// the log takes no entries any more.
func TestDamage(t *testing.T) {
	fs := disk.NewMem()
	l := open(t, fs)
	es := chainOf(t, sigchain.Link{}, 5, 100)
	if err := errors.Join(l.Append(es...), l.Close()); err != nil {
		t.Fatal(err)
	}
	name := fs.PathJoin(l.Start().Dir(fs, "/authors"), fmt.Sprintf("%020d.log", 0))
	b, err := disk.ReadFile(fs, name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, es[2].Bytes())
	b[at+200] ^= 1
	if err := disk.WriteFile(fs, name, b); err != nil {
		t.Fatal(err)
	}
	l = open(t, fs)
	if err := l.Scan(1, 5, func(sigchain.Signed) error { return nil }); lattice.KindOf(err) != lattice.Corrupt || !strings.Contains(err.Error(), "entry 3") {
		t.Fatalf("scan: %v", err)
	}
	if !strings.Contains(l.Failed(), "needs repair") {
		t.Fatalf("the log says %q", l.Failed())
	}
	if err := l.Append(chainOf(t, es[4].Link(), 1, 1)...); !errors.Is(err, signedlog.ErrNeedsRepair) {
		t.Fatalf("append: %v", err)
	}
	if s, err := l.Read(2); err != nil || s.ID != es[1].ID {
		t.Fatalf("what is whole is not read: %v", err)
	}
}

// TestPrune: entries go, the last one stays, and the chain goes on.
func TestPrune(t *testing.T) {
	fs := disk.NewMem()
	o := options(fs, 7)
	l, err := Open(o, Settings{SegmentBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	es := chainOf(t, sigchain.Link{}, 40, 500)
	for _, e := range es {
		if err := errors.Join(l.Append(e), l.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Prune(30); err != nil {
		t.Fatal(err)
	}
	if first, last := l.Bounds(); first != 30 || last != 40 {
		t.Fatalf("%d to %d are left", first, last)
	}
	if _, err := l.Read(3); lattice.KindOf(err) != lattice.OutOfRange {
		t.Fatalf("a pruned entry: %v", err)
	}
	if err := errors.Join(l.Prune(1000), l.Close()); err != nil {
		t.Fatal(err)
	}
	l = open(t, fs)
	if first, last := l.Bounds(); first != 40 || last != 40 {
		t.Fatalf("%d to %d are left", first, last)
	}
	if err := l.Append(chainOf(t, es[39].Link(), 1, 1)...); err != nil {
		t.Fatal(err)
	}
}
