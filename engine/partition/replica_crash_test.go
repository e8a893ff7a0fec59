package partition_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestReceiveCrash cuts the power before each step that the file system is asked for
// while a follower receives spans, begins later as its leader does, and begins anew
// behind all it has; and opens what that leaves. What was reported as kept is there,
// what is there is the leader's, and it goes on from there.
func TestReceiveCrash(t *testing.T) {
	type moment struct {
		fs   *disk.Mem
		kept uint64
	}
	clock := newClock()
	fs := disk.NewMem()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, fs, bob, clock)
	cuts := rand.New(rand.NewPCG(4, 4))
	var mu sync.Mutex
	var moments []moment
	kept, step, every := uint64(0), 0, 3
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
			moments = append(moments, moment{fs.CrashClone([]int{0, 50, 100}[cuts.IntN(3)], cuts), kept})
		}
		return nil
	})
	receive := func() {
		for {
			at := b.Position().Size
			s, err := a.ReadSpan(at, 1500)
			if lattice.KindOf(err) == lattice.OutOfRange {
				s, err = a.ReadSpan(s.From, 1500)
			}
			if lattice.KindOf(err) == lattice.NotYet {
				return
			}
			if err == nil {
				_, err = b.Receive(s)
			}
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			kept = b.Position().Size
			mu.Unlock()
		}
	}
	write := func(n int) {
		for i := range n {
			a.produce(strings.Repeat("x", 60), fmt.Sprint(i))
		}
	}
	truncate := func(to int64) {
		if _, err := a.Truncate(t.Context(), to); err != nil {
			t.Fatal(err)
		}
	}
	write(60)
	receive()
	a.restart()
	write(60)
	receive()
	truncate(130)
	b.adopt(a)
	write(80)
	truncate(370)
	write(10)
	receive() // b had 120 batches, and the log begins with the 186th now
	fs.SetFault(nil)
	same(t, a, b)
	b.close()
	if len(moments) < 20 { // it is tried in a good many places
		t.Fatalf("%d moments", len(moments))
	}
	whole := a.all()
	for i, m := range moments {
		x := newReplica(t, m.fs, bob, clock)
		if st := x.Status(); st.Failed != "" {
			t.Fatalf("moment %d: %s", i, st.Failed)
		}
		at := x.Position()
		if at.Size < m.kept {
			t.Fatalf("moment %d: %d were kept, %d are there", i, m.kept, at.Size)
		}
		if at.Start >= 370 && !bytes.HasPrefix(whole, x.all()) {
			t.Fatalf("moment %d: other batches", i)
		}
		x.pull(a, 4000)
		same(t, a, x)
		x.restart()
		same(t, a, x)
		x.close()
	}
	a.close()
}

// TestReceiveFaults fails each step of taking a span once: lost, and kept but reported
// as failed. The span is taken when it is offered again, and then all is there.
func TestReceiveFaults(t *testing.T) {
	for _, done := range []bool{false, true} {
		for at := 1; receiveFault(t, at, done); at++ {
		}
	}
}

// receiveFault runs a span into a fault at a step, and reports whether there was one.
func receiveFault(t *testing.T, at int, done bool) bool {
	clock := newClock()
	fs := disk.NewMem()
	a, b := newReplica(t, disk.NewMem(), ann, clock), newReplica(t, fs, bob, clock)
	for i := range 20 {
		a.produce(fmt.Sprint(i))
	}
	b.pull(a, 1000)
	a.restart()
	for i := range 20 {
		a.produce(fmt.Sprint(i))
	}
	var mu sync.Mutex
	step, hit := 0, false
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpRead || op.Kind == disk.OpOpen || op.Kind == disk.OpList {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if step++; step == at {
			hit = true
			return &disk.Fault{Err: errors.New("broken disk"), Kept: done}
		}
		return nil
	})
	s, err := a.ReadSpan(b.Position().Size, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := b.Receive(s)
	fs.SetFault(nil)
	if k := lattice.KindOf(err); err != nil && k != lattice.Storage {
		t.Fatalf("step %d: %v", at, err)
	}
	x := newReplica(t, fs.CrashClone(0, nil), bob, clock)
	if have := x.Position().Size; have < s.From+uint64(kept) {
		t.Fatalf("step %d: %d kept, %d are there", at, s.From+uint64(kept), have)
	}
	x.pull(a, 1000)
	same(t, a, x)
	x.close()
	if err != nil {
		if kept, err := b.Receive(s); err != nil || kept != len(s.Batches) {
			t.Fatalf("step %d: again: %d, %v", at, kept, err)
		}
	}
	same(t, a, b)
	sameProducers(t, a, b)
	a.close()
	b.close()
	return hit
}
