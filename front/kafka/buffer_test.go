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
		if n > 512 && size > n+n/4 && (n <= 1<<20 || size >= 2*n) {
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

// TestBuffers takes and gives back: nobody gets what another one holds, or much
// more than was asked for, and what is kept stays within its bound.
func TestBuffers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p buffers
		var out []*buffer
		held := map[*buffer]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(out) > 0 && rapid.Bool().Draw(t, "put") {
				i := rapid.IntRange(0, len(out)-1).Draw(t, "which")
				b := out[i]
				out[i] = out[len(out)-1]
				out = out[:len(out)-1]
				delete(held, b)
				b.b = append(b.b, 1)
				p.put(b)
			} else {
				n := rapid.SampledFrom([]int{0, 600, 70_000, 300_000, 1 << 20, 3 << 20, 20 << 20}).Draw(t, "n")
				n += rapid.IntRange(0, 1+n/4).Draw(t, "more")
				b := p.get(n)
				if held[b] {
					t.Fatal("a buffer that somebody holds")
				}
				if len(b.b) != 0 || cap(b.b) < n || n > 512 && cap(b.b) > 4*n {
					t.Fatalf("asked for %d bytes, got %d of %d", n, len(b.b), cap(b.b))
				}
				held[b] = true
				out = append(out, b)
			}
			kept := int64(0)
			for _, class := range p.kept {
				for _, b := range class {
					kept += int64(cap(b.b))
				}
			}
			if kept != p.held || kept > keptBytes {
				t.Fatalf("%d bytes kept, %d counted, %d allowed", kept, p.held, keptBytes)
			}
		}
	})
}

// TestBuffersChange begins with one size of frame and goes on with another: the
// new one is kept in the place of the old one.
func TestBuffersChange(t *testing.T) {
	var p buffers
	for _, n := range []int{1 << 20, 5 << 20, 64 << 10} {
		var out []*buffer
		for range keptBytes/n + 1 {
			out = append(out, p.get(n))
		}
		for range 300 { // as requests come and go
			for i, b := range out {
				p.put(b)
				out[i] = p.get(n)
			}
		}
		for _, b := range out {
			p.put(b)
		}
		class, _ := classOf(n)
		if kept := len(p.kept[class]); kept < keptBytes/n/2 {
			t.Errorf("%d buffers of %d bytes are kept", kept, n)
		}
	}
}
