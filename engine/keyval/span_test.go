package keyval

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// history is n entries of author 1, who is admitted by grant, each setting a key.
func history(t testing.TB, n int, grant []sigchain.Ref) []sigchain.Signed {
	t.Helper()
	at := uint64(testEpoch.UnixMilli())<<16 + 1
	all := []sigchain.Signed{foreign(t, 1, sigchain.Signed{}, at, grant, putOp(t, 1, "h0", "0"))}
	for i := 1; i < n; i++ {
		all = append(all, foreign(t, 1, all[i-1], at+uint64(i), nil, putOp(t, 1, fmt.Sprintf("h%d", i), fmt.Sprint(i))))
	}
	return all
}

// noteOf is the author's checkpoint of its first entries.
func noteOf(t testing.TB, all []sigchain.Signed) []byte {
	t.Helper()
	a := merkle.NewAppender(merkle.Range{})
	for _, s := range all {
		a.Append(nil, sigchain.Leaf(s).Hash())
	}
	w := state.Writer{Author: all[0].Author, Incarnation: all[0].Incarnation}
	note, err := merkle.SignCheckpoint(keyOf(1), merkle.Checkpoint{
		Origin: merkle.Origin(genesis.Home(), authorlog.Name(w)), Size: a.Size(), Root: a.Root(), End: int64(a.Size()), Incarnation: w.Incarnation, Time: all[len(all)-1].Time,
	})
	if err != nil {
		t.Fatal(err)
	}
	return note
}

// TestStoreSpanRefuses: each thing that may not be here is refused by its name, what
// is good before it is kept, and nothing else is disturbed.
func TestStoreSpanRefuses(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	n := start(t, options(disk.NewMem(), 0, 2, clock))
	n.admit(1)
	all := history(t, 20, n.tipsOf(0))
	n.set("mine", "1")
	other := append([]sigchain.Signed(nil), all[:9]...)
	other = append(other, foreign(t, 1, all[8], all[8].Time+100, nil, putOp(t, 1, "fork", "1")))
	late := foreign(t, 1, all[11], all[11].Time, nil)
	abroad := must(sigchain.Sign(keyOf(1), sigchain.Entry{Store: lattice.StoreID{1}, Incarnation: 77, Seq: 1, Time: 5}))
	own := must(sigchain.Sign(keyOf(0), sigchain.Entry{Store: genesis.Home(), Incarnation: 2, Seq: 3, Time: 1 << 62, Prev: n.tipsOf(0)[1].Link}))
	next := must(sigchain.Sign(keyOf(0), sigchain.Entry{Store: genesis.Home(), Incarnation: 3, Seq: 1, Time: 5}))
	for _, tc := range []struct {
		what string
		all  []sigchain.Signed
		kept int
		want error
	}{
		{"nothing", nil, 0, nil},
		{"a stranger", []sigchain.Signed{foreign(t, 5, sigchain.Signed{}, 9, nil)}, 0, ErrStranger},
		{"another store", []sigchain.Signed{abroad}, 0, fold.ErrForeign},
		{"a later incarnation of this node", []sigchain.Signed{next}, 0, ErrOwn},
		{"this incarnation", []sigchain.Signed{own}, 0, ErrOwn},
		{"a far start", all[3:5], 0, sigchain.ErrGap},
		{"the first ones", all[:5], 5, nil},
		{"the same again", all[:5], 5, nil},
		{"old and new", all[2:10], 8, nil},
		{"a hole behind good ones", append(append([]sigchain.Signed(nil), all[10:12]...), all[13]), 2, sigchain.ErrGap},
		{"one that is not later", []sigchain.Signed{late}, 0, sigchain.ErrClock},
	} {
		kept, err := n.StoreSpan(tc.all, nil)
		if kept != tc.kept || !errors.Is(err, tc.want) {
			t.Errorf("%s: kept %d, %v; want %d, %v", tc.what, kept, err, tc.kept, tc.want)
		}
		if got, want := n.get("h11"), ""; tc.what == "the same again" && got != want {
			t.Errorf("%s: h11=%q", tc.what, got)
		}
	}
	if n.get("h11") != "11" || n.get("mine") != "1" {
		t.Errorf("h11=%q mine=%q", n.get("h11"), n.get("mine"))
	}
	if kept, err := n.StoreSpan(other, nil); kept != 9 || !errors.Is(err, sigchain.ErrForked) {
		t.Errorf("a fork: kept %d, %v", kept, err)
	}
	if forks, err := n.FirstForks(); err != nil || len(forks) != 1 || forks[0].Seq != 10 {
		t.Errorf("forks %v, %v", forks, err)
	}
	if n.get("h9") != "" || n.get("h8") != "8" || n.get("mine") != "1" {
		t.Errorf("h8=%q h9=%q", n.get("h8"), n.get("h9"))
	}
	n.set("mine", "2")
	n.close()
}

// TestReadSpan: whatever part of a log is asked for, entries come as they were
// written, at least one and about as many bytes as asked; what comes with them proves
// them against the author's checkpoint, here and at whoever has them from here.
func TestReadSpan(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	fs := disk.NewMem()
	n := start(t, options(fs, 0, 2, clock))
	n.admit(1)
	all := history(t, 600, n.tipsOf(0))
	w := state.Writer{Author: keyOf(1).Author(), Incarnation: 77}
	if _, err := n.ReadSpan(w, 0, 10, 100); lattice.KindOf(err) != lattice.NotFound {
		t.Fatalf("a log that is not here: %v", err)
	}
	note := noteOf(t, all[:500])
	for at := 0; at < len(all); {
		k := min(1+at%70, len(all)-at)
		if kept, err := n.StoreSpan(all[at:at+k], note); kept != k || err != nil {
			t.Fatalf("%d of %d, %v", kept, k, err)
		}
		at += k
	}
	rng := rand.New(rand.NewPCG(4, 4))
	check := func(sealed bool) {
		t.Helper()
		proven := 0
		for range 200 {
			after := uint64(rng.IntN(len(all)))
			upto, limit := after+1+uint64(rng.IntN(200)), 1+rng.IntN(8000)
			s, err := n.ReadSpan(w, after, upto, limit)
			n.must(err)
			size := 0
			for i, b := range s.Entries {
				if string(b) != string(all[after+uint64(i)].Bytes()) {
					t.Fatalf("entry %d is another one", after+1+uint64(i))
				}
				size += len(b)
			}
			if len(s.Entries) == 0 || after+uint64(len(s.Entries)) > upto || size > limit && len(s.Entries) > 1 {
				t.Fatalf("behind %d up to %d, %d bytes: %d entries of %d bytes", after, upto, limit, len(s.Entries), size)
			}
			if (s.Note != nil) != (sealed && after < 500) {
				t.Fatalf("behind %d: a checkpoint %v", after, s.Note != nil)
			}
			if s.Note == nil {
				continue
			}
			proven++
			c, err := merkle.OpenCheckpoint(s.Note, w.Author)
			n.must(err)
			left, err := merkle.NewRange(after, s.Left)
			n.must(err)
			a := merkle.NewAppender(left)
			for i := range s.Entries {
				a.Append(nil, sigchain.Leaf(all[after+uint64(i)]).Hash())
			}
			n.must(merkle.VerifyConsistency(a.Size(), c.Size, s.Proof, a.Root(), c.Root))
		}
		if sealed && proven < 100 {
			t.Fatalf("%d were proven", proven)
		}
	}
	clock.Advance(time.Second) // this node's own checkpoint, up to where the tree is known
	n.wait(func() bool { return n.logs.get(w).Checkpoint().Size == uint64(len(all)) })
	check(true)
	n.close()
	n = start(t, options(fs, 0, 3, clock))
	check(true)
	if _, err := n.ReadSpan(w, 600, 700, 100); lattice.KindOf(err) != lattice.NotYet {
		t.Errorf("beyond the end: %v", err)
	}
	_, err := n.Snapshot(context.Background())
	n.must(err)
	_, err = n.PruneAnyway(context.Background(), lattice.Hash{})
	n.must(err)
	if s, err := n.ReadSpan(w, 3, 9, 100); lattice.KindOf(err) != lattice.OutOfRange || s.First != 601 {
		t.Errorf("pruned: %v, first %d", err, s.First)
	}
	found := false
	for _, s := range n.LogStates() {
		found = found || s == LogState{w, all[599].Link(), all[599].Time, 601}
	}
	if !found {
		t.Errorf("what is in the base is not among %+v", n.LogStates())
	}
	n.close()
}

// TestNoteGoesByAnother: a checkpoint of another tree than that of the entries is not
// handed on; nor is one of another log kept.
func TestNoteGoesByAnother(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	n := start(t, options(disk.NewMem(), 0, 2, clock))
	n.admit(1)
	all := history(t, 30, n.tipsOf(0))
	w := state.Writer{Author: keyOf(1).Author(), Incarnation: 77}
	swapped := append([]sigchain.Signed{all[1], all[0]}, all[2:]...)
	if kept, err := n.StoreSpan(all, noteOf(t, swapped)); kept != 30 || err != nil {
		t.Fatal(kept, err)
	}
	clock.Advance(time.Second)
	n.wait(func() bool { return n.logs.get(w).Checkpoint().Size == 30 })
	if s, err := n.ReadSpan(w, 0, 30, 1<<20); err != nil || s.Note != nil || len(s.Entries) != 30 {
		t.Fatalf("%d entries, a checkpoint %v, %v", len(s.Entries), s.Note != nil, err)
	}
	if err := n.logs.get(w).KeepNote([]byte("nothing")); lattice.KindOf(err) != lattice.Invalid {
		t.Errorf("no checkpoint: %v", err)
	}
	n.close()
}

// TestStoreSpanWeak: at the levels that acknowledge before they sync, what was kept
// survives the process, and is offered only once the log says so.
func TestStoreSpanWeak(t *testing.T) {
	for _, level := range []signedlog.Durability{signedlog.Interval, signedlog.OS} {
		clock := tick.NewManual(testEpoch)
		fs := disk.NewMem()
		o := options(fs, 0, 2, clock)
		o.Durability = level
		n := start(t, o)
		n.admit(1)
		all := history(t, 10, n.tipsOf(0))
		if kept, err := n.StoreSpan(all, nil); kept != 10 || err != nil || n.get("h9") != "9" || tipIn(n, 1) != 10 {
			t.Errorf("%s: %d, %v", level, kept, err)
		}
		n.close()
		o.Incarnation, o.Committer = 3, signedlog.NewCommitter()
		n = start(t, o)
		if n.get("h9") != "9" {
			t.Errorf("%s: h9=%q", level, n.get("h9"))
		}
		n.close()
	}
}

// TestDamagedLogHoldsUpNobody: a log whose end cannot be read is not offered, takes
// nothing, by a name of its own, and others go on.
func TestDamagedLogHoldsUpNobody(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	fs := disk.NewMem()
	n := start(t, options(fs, 0, 2, clock))
	n.admit(1, 2)
	all := history(t, 10, n.tipsOf(0))
	two := foreign(t, 2, sigchain.Signed{}, all[0].Time, n.tipsOf(0), putOp(t, 2, "two", "2"))
	if kept, err := n.StoreSpan(all[:8], nil); kept != 8 || err != nil {
		t.Fatal(kept, err)
	}
	n.close()
	dir := authorlog.Start{Writer: state.Writer{Author: keyOf(1).Author(), Incarnation: 77}}.Dir(fs, "/store/authors")
	name := fs.PathJoin(dir, "00000000000000000000.log")
	b, err := disk.ReadFile(fs, name)
	n.must(err)
	end := 0
	for _, s := range all[:8] {
		end += sigchain.FrameSize(s)
	}
	b[end-5] ^= 1
	n.must(disk.WriteFile(fs, name, b))
	n = start(t, options(fs, 0, 3, clock))
	if tip := tipIn(n, 1); tip != 0 {
		t.Errorf("it is offered up to %d", tip)
	}
	if _, err := n.StoreSpan(all[8:], nil); !errors.Is(err, ErrDamaged) && !errors.Is(err, sigchain.ErrGap) {
		t.Errorf("it takes more: %v", err)
	}
	if _, err := n.StoreSpan(all, nil); lattice.KindOf(err) == lattice.Storage || err == nil {
		t.Errorf("all of it again: %v", err)
	}
	if kept, err := n.StoreSpan([]sigchain.Signed{two}, nil); kept != 1 || err != nil || n.get("two") != "2" {
		t.Errorf("another's: %d, %v", kept, err)
	}
	n.set("own", "1")
	n.close()
}

// TestFollow: who follows hears of own entries once they are durable, of members,
// and of a new base, in order, until it stops.
func TestFollow(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	n := start(t, options(disk.NewMem(), 0, 2, clock))
	var mu sync.Mutex
	var tips []uint64
	members, rebased := 0, 0
	stop := n.Follow(Follower{
		Appended: func(w state.Writer, tip sigchain.Link, _ uint64) {
			mu.Lock()
			defer mu.Unlock()
			if l := n.logs.get(w); w != n.own || l.Durable() < tip.Seq {
				t.Errorf("told of %d of %v, durable are %d", tip.Seq, w, l.Durable())
			}
			tips = append(tips, tip.Seq)
		},
		Roster:  func() { mu.Lock(); members++; mu.Unlock() },
		Rebased: func() { mu.Lock(); rebased++; mu.Unlock() },
	})
	heard := func(f func() bool) {
		t.Helper()
		n.wait(func() bool { mu.Lock(); defer mu.Unlock(); return f() })
	}
	heard(func() bool { return members == 1 || len(tips) == 0 })
	n.set("a", "1")
	heard(func() bool { return len(tips) == 1 && tips[0] == 1 })
	mu.Lock()
	before := members
	mu.Unlock()
	n.admit(1)
	heard(func() bool { return members > before && tips[len(tips)-1] == 2 })
	if err := n.Admits(keyOf(1).Author()); err != nil {
		t.Error(err)
	}
	if err := n.Admits(keyOf(2).Author()); !errors.Is(err, ErrStranger) {
		t.Error(err)
	}
	if all := n.Members(); len(all) != 2 {
		t.Errorf("members %+v", all)
	}
	_, err := n.Snapshot(context.Background())
	n.must(err)
	_, err = n.PruneAnyway(context.Background(), lattice.Hash{})
	n.must(err)
	heard(func() bool { return rebased > 0 })
	stop()
	mu.Lock()
	count := len(tips)
	mu.Unlock()
	n.set("a", "2")
	if mu.Lock(); len(tips) != count {
		t.Errorf("told after it stopped: %v", tips)
	}
	mu.Unlock()
	n.close()
}
