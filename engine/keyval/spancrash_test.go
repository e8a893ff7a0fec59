package keyval

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestStoreSpanFaults fails each step of taking a span once: lost, and kept but
// reported as failed. What was reported as kept is there after a power cut; the span
// is taken when it is offered again, and the state is the fold of the logs.
func TestStoreSpanFaults(t *testing.T) {
	for _, kept := range []bool{false, true} {
		t.Run(fmt.Sprintf("kept=%v", kept), func(t *testing.T) {
			for at := 1; ; at++ {
				if !faultAt(t, at, kept) {
					if at < 5 {
						t.Fatalf("only %d steps", at)
					}
					return
				}
			}
		})
	}
}

// faultAt runs one span into a fault at a step, and reports whether there was one.
func faultAt(t *testing.T, at int, kept bool) bool {
	clock := tick.NewManual(testEpoch)
	fs := disk.NewMem()
	n := start(t, options(fs, 0, 2, clock))
	n.admit(1)
	all := history(t, 12, n.tipsOf(0))
	note := noteOf(t, all)
	if k, err := n.StoreSpan(all[:4], nil); k != 4 || err != nil {
		t.Fatal(k, err)
	}
	var mu sync.Mutex
	step, hit := 0, false
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpRead || op.Kind == disk.OpOpen || op.Kind == disk.OpList || !strings.Contains(op.Path, "/authors/"+keyOf(1).Author().String()) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if step++; step == at {
			hit = true
			return &disk.Fault{Err: errors.New("broken disk"), Kept: kept}
		}
		return nil
	})
	done, err := n.StoreSpan(all[4:8], noteOf(t, all[:8]))
	fs.SetFault(nil)
	if err == nil && done != 4 {
		t.Errorf("step %d: kept %d and no error", at, done)
	}
	if k := lattice.KindOf(err); err != nil && k != lattice.Storage {
		t.Errorf("step %d: %v", at, err)
	}
	after := fs.CrashClone(0, nil)
	m := start(t, options(after, 0, 9, clock))
	if have := tipIn(m, 1); have < uint64(4+done) {
		t.Errorf("step %d: %d were reported as kept, %d are there", at, 4+done, have)
	}
	m.close()
	n.wait(func() bool { // it is offered again, with more behind it, until it is taken
		done, err = n.StoreSpan(all[4:], note)
		return err == nil
	})
	if done != 8 || n.get("h11") != "11" || tipIn(n, 1) != 12 {
		t.Errorf("step %d: in the end %d are kept, h11=%q", at, done, n.get("h11"))
	}
	n.set("goes", "on")
	for i := range all {
		if n.get(fmt.Sprintf("h%d", i)) != fmt.Sprint(i) {
			t.Errorf("step %d: h%d=%q", at, i, n.get(fmt.Sprintf("h%d", i)))
		}
	}
	n.close()
	return hit
}

func tipIn(n *node, author byte) uint64 {
	for _, s := range n.LogStates() {
		if s.Writer.Author == keyOf(author).Author() {
			return s.Tip.Seq
		}
	}
	return 0
}

// TestStoreSpanCrash cuts the power before each step that the file system is asked
// for while spans of two authors and own writes go on at once, and opens what that
// leaves. What was reported as kept is there, in order, and all of it is folded; what
// is kept of checkpoints proves or is passed over.
func TestStoreSpanCrash(t *testing.T) {
	type moment struct {
		fs   *disk.Mem
		kept uint64
		own  int
	}
	clock := tick.NewManual(testEpoch)
	fs := disk.NewMem()
	n := start(t, options(fs, 0, 2, clock))
	n.admit(1)
	all := history(t, 120, n.tipsOf(0))
	cuts := rand.New(rand.NewPCG(6, 6))
	var mu sync.Mutex
	var moments []moment
	var kept uint64
	own, step, every := 0, 0, 7
	if testing.Short() {
		every = 29
	}
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpRead || op.Kind == disk.OpOpen || op.Kind == disk.OpList {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if step++; step%every == 0 {
			moments = append(moments, moment{fs.CrashClone([]int{0, 50, 100}[cuts.IntN(3)], cuts), kept, own})
		}
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		for at := 0; at < len(all); {
			k := min(1+at%9, len(all)-at)
			var note []byte
			if at%2 == 0 {
				note = noteOf(t, all[:at+k])
			}
			done, err := n.StoreSpan(all[at:at+k], note)
			if done != k || err != nil {
				t.Errorf("%d of %d: %v", done, k, err)
				return
			}
			at += k
			mu.Lock()
			kept = uint64(at)
			mu.Unlock()
			clock.Advance(20 * time.Millisecond)
		}
	})
	for i := range 40 {
		n.set("own", fmt.Sprint(i+1))
		mu.Lock()
		own = i + 1
		mu.Unlock()
	}
	wg.Wait()
	fs.SetFault(nil)
	n.close()
	w := state.Writer{Author: keyOf(1).Author(), Incarnation: 77}
	for i, m := range moments {
		x := start(t, options(m.fs, 0, 9, clock))
		have := tipIn(x, 1)
		if have < m.kept {
			t.Fatalf("moment %d: %d were kept, %d are there", i, m.kept, have)
		}
		for k := range all {
			want := ""
			if uint64(k) < have {
				want = fmt.Sprint(k)
			}
			if got := x.get(fmt.Sprintf("h%d", k)); got != want {
				t.Fatalf("moment %d: %d entries, h%d=%q", i, have, k, got)
			}
		}
		var o int
		_, _ = fmt.Sscan(x.get("own"), &o)
		if o < m.own {
			t.Fatalf("moment %d: own=%d, %d was acknowledged", i, o, m.own)
		}
		if have > 0 {
			s, err := x.ReadSpan(w, 0, have, 1<<20)
			if err != nil || uint64(len(s.Entries)) != have && s.Note == nil {
				t.Fatalf("moment %d: %d of %d entries, %v", i, len(s.Entries), have, err)
			}
		}
		if done, err := x.StoreSpan(all, noteOf(t, all)); done != len(all) || err != nil {
			t.Fatalf("moment %d: then %d, %v", i, done, err)
		}
		x.close()
	}
	if len(moments) < 5 {
		t.Fatalf("%d moments", len(moments))
	}
}
