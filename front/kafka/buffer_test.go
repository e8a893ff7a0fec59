package kafka

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestClassOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 1<<28).Draw(t, "n")
		class, size := classOf(n)
		if size < n {
			t.Fatalf("%d bytes: class of %d", n, size)
		}
		if class < 0 {
			if n <= 1<<27 {
				t.Fatalf("%d bytes have no class", n)
			}
			return
		}
		if n > 512 && size > n+n/4 {
			t.Fatalf("%d bytes in %d", n, size)
		}
		if c, s := classOf(size); c != class || s != size {
			t.Fatalf("a buffer of class %d, %d bytes, goes back to class %d, %d bytes", class, size, c, s)
		}
	})
}

// TestBudget takes more than there is, from many sides. Each frame comes in two
// parts, so that all can be stuck half way: one at a time goes beyond the limit.
func TestBudget(t *testing.T) {
	g := newBudget(100)
	var mu sync.Mutex
	var wg sync.WaitGroup
	held := int64(0)
	count := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		if held += n; held > 100+60 {
			t.Errorf("%d held of 100 and one frame", held)
		}
	}
	for range 50 {
		wg.Go(func() {
			for range 20 {
				s := allowance{of: g}
				for range 2 {
					if !s.take(30, time.Minute, nil) {
						t.Error("no room")
						return
					}
					count(30)
					runtime.Gosched()
				}
				s.whole()
				count(-60)
				s.drop()
			}
		})
	}
	wg.Wait()
	all := allowance{of: g}
	if !all.take(1000, 0, nil) {
		t.Error("nothing is held, and a large frame is refused")
	}
	if (&allowance{of: g}).take(1, time.Millisecond, nil) {
		t.Error("more than the limit")
	}
	stop := make(chan struct{})
	close(stop)
	if (&allowance{of: g}).take(1, time.Hour, stop) {
		t.Error("stopped, and taken all the same")
	}
	all.drop()
	if used := g.used.Load(); used != 0 || len(g.lane) != 0 {
		t.Errorf("%d left, %d in the lane", used, len(g.lane))
	}
}
