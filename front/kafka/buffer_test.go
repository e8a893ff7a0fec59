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

// TestBudget takes more than there is, from many sides, and never holds more.
func TestBudget(t *testing.T) {
	g := &budget{max: 100}
	var mu sync.Mutex
	var wg sync.WaitGroup
	held := int64(0)
	for range 50 {
		wg.Go(func() {
			for range 20 {
				if !g.take(30, time.Minute) {
					t.Error("no room")
					return
				}
				mu.Lock()
				if held += 30; held > 100 {
					t.Errorf("%d held of 100", held)
				}
				mu.Unlock()
				runtime.Gosched()
				mu.Lock()
				held -= 30
				mu.Unlock()
				g.give(30)
			}
		})
	}
	wg.Wait()
	if !g.take(1000, 0) {
		t.Error("nothing is held, and a large request is refused")
	}
	if g.take(1, time.Millisecond) {
		t.Error("more than the limit")
	}
	g.give(1000)
	if used := g.used.Load(); used != 0 {
		t.Errorf("%d left", used)
	}
}
