package partition_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/cosign"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestCosignCrash cuts the power before each step that a follower's file system is asked
// for while it receives and cosigns, in several terms, and behind a truncation: whatever it
// had cosigned by then it still holds, acknowledges again, and never goes back behind.
func TestCosignCrash(t *testing.T) {
	type moment struct {
		fs   *disk.Mem
		last cosign.Last
	}
	clock := newClock()
	fs := disk.NewMem()
	a := newReplica(t, disk.NewMem(), ann, clock)
	a.replicas(2, ann, bob)
	b := newReplica(t, fs, bob, clock)
	cuts := rand.New(rand.NewPCG(5, 5))
	var mu sync.Mutex
	var moments []moment
	var last cosign.Last // what has left the node
	step, every := 0, 2
	if testing.Short() {
		every = 7
	}
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpRead || op.Kind == disk.OpOpen || op.Kind == disk.OpList {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if step++; step%every == 0 {
			moments = append(moments, moment{fs.CrashClone([]int{0, 50, 100}[cuts.IntN(3)], cuts), last})
		}
		return nil
	})
	given := func(r *replica) cosign.Last {
		for _, x := range r.Acks() {
			if c, by, err := cosign.Peek(x.Note); err == nil && by == bob.Author() {
				return cosign.LastOf(c)
			}
		}
		return cosign.Last{}
	}
	size := uint64(0)
	follow := func(n int) {
		for i := range n {
			a.produce(strings.Repeat("x", 60), fmt.Sprint(i))
			size++
			if i%5 == 4 {
				a.signed(size)
				b.pull(a, 1500)
				mu.Lock()
				last = last.Join(given(b))
				mu.Unlock()
			}
		}
		a.tell(b)
	}
	follow(20)
	a.restart()
	takeOver(t, a, b)
	b.hear(a)
	b.reopen()
	follow(15)
	if _, err := a.Truncate(t.Context(), a.Bounds().Committed-3); err != nil {
		t.Fatal(err)
	}
	follow(10)
	fs.SetFault(nil)
	if (last == cosign.Last{}) || len(moments) < 10 {
		t.Fatalf("%d moments, and %+v was cosigned", len(moments), last)
	}
	for i, m := range moments {
		r := &replica{t: t, fs: m.fs, clock: clock, key: bob, cfg: b.cfg, time: new(uint64)}
		r.open()
		now := given(r)
		if m.last.Size > r.Position().Size {
			t.Fatalf("moment %d: it cosigned %+v and has %d batches", i, m.last, r.Position().Size)
		}
		if now != (cosign.Last{}) && m.last.Join(now) != now && now != m.last {
			t.Fatalf("moment %d: it had cosigned %+v, and now %+v", i, m.last, now)
		}
		r.hear(a)
		r.reopen()
		for from := r.Next(); from < size; from = r.Position().Size {
			s, err := a.ReadSpan(from, 1<<20)
			if lattice.KindOf(err) == lattice.OutOfRange {
				s, err = a.ReadSpan(s.From, 1<<20)
			}
			if err == nil {
				_, err = r.Receive(s)
			}
			if err != nil {
				t.Fatalf("moment %d: %v", i, err)
			}
		}
		if now := given(r); now != last {
			t.Fatalf("moment %d: it comes to cosign %+v, want %+v", i, now, last)
		}
		r.close()
	}
}
