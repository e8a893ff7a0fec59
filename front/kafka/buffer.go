package kafka

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// buffer is a recycled byte slice. What its length means is its user's affair.
type buffer struct{ b []byte }

// Sizes of pooled buffers, from 512 bytes to 128 MiB: four steps to each power of
// two, so that at most a fifth of a buffer is never used; from a megabyte on powers of
// two alone, so that one producer's frames, no two of one length, fit into each
// other's buffers. What a frame never used of those was never touched either.
const (
	minClassBits = 9
	wholeBits    = 20
	maxClassBits = 27
	classSteps   = 4
	classes      = (maxClassBits - minClassBits) * classSteps
)

// classOf returns the smallest class that holds n bytes, and its size. A class
// of -1 means that the size is not pooled.
func classOf(n int) (class, size int) {
	if n <= 1<<minClassBits {
		return 0, 1 << minClassBits
	}
	top := bits.Len(uint(n-1)) - 1 // 2^top < n <= 2^(top+1)
	if top >= maxClassBits {
		return -1, n
	}
	if top >= wholeBits {
		return (top-minClassBits)*classSteps + classSteps, 2 << top
	}
	quarter := 1 << (top - 2)
	step := (n - 1<<top + quarter - 1) / quarter // 1 to 4
	return (top-minClassBits)*classSteps + step, 1<<top + step*quarter
}

// buffers recycles frames, answers and chunks: on many machines to touch fresh
// memory costs more than all else that is done to it. The zero value is ready.
// Safe for concurrent use.
//
// Small ones lie in pools that the garbage collector empties. Large ones are kept,
// up to keptBytes: what a pool drops at a collection is taken fresh, and with frames
// of megabytes the heap doubles before the next one.
type buffers struct {
	pools [largeClass]sync.Pool

	mu   sync.Mutex
	kept [classes + 1][]*buffer // by class, from largeClass on
	held int64                  // bytes of those
	uses int64                  // calls so far
	used [classes + 1]int64     // by class, the last call that asked for it
}

const (
	largeClass = (16 - minClassBits) * classSteps // 64 KiB
	keptBytes  = 32 << 20
)

// get returns a buffer of length 0 that holds at least n bytes.
func (p *buffers) get(n int) *buffer {
	class, size := classOf(n)
	var b *buffer
	switch {
	case class >= largeClass:
		b = p.take(class)
	case class >= 0:
		b, _ = p.pools[class].Get().(*buffer)
	}
	if b == nil {
		b = &buffer{make([]byte, 0, size)}
	}
	return b
}

// take returns a kept buffer of a class or, of those up to twice as large, the
// smallest; nil when there is none.
func (p *buffers) take(class int) *buffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.uses++
	p.used[class] = p.uses
	for c := class; c <= min(class+classSteps, classes); c++ {
		if b := p.pop(c); b != nil {
			return b
		}
	}
	return nil
}

func (p *buffers) pop(class int) *buffer {
	n := len(p.kept[class])
	if n == 0 {
		return nil
	}
	b := p.kept[class][n-1]
	p.kept[class][n-1] = nil
	p.kept[class] = p.kept[class][:n-1]
	p.held -= int64(cap(b.b))
	return b
}

// put takes a buffer back; nil is allowed. Nobody may use its bytes afterwards.
func (p *buffers) put(b *buffer) {
	if b == nil || cap(b.b) < 1<<minClassBits {
		return
	}
	class, size := classOf(cap(b.b))
	if class < 0 || size != cap(b.b) || size > keptBytes {
		return // it grew by append to a size of no class, or is too large to keep
	}
	b.b = b.b[:0]
	if class < largeClass {
		p.pools[class].Put(b)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept[class] = append(p.kept[class], b)
	p.held += int64(size)
	for p.held > keptBytes {
		p.pop(p.idlest())
	}
}

// idlest returns the class that nobody has asked for the longest, of those that
// hold something.
func (p *buffers) idlest() int {
	idlest := -1
	for c := largeClass; c <= classes; c++ {
		if len(p.kept[c]) > 0 && (idlest < 0 || p.used[c] < p.used[idlest]) {
			idlest = c
		}
	}
	return idlest
}

// budget bounds the bytes of all frames held at once. Safe for concurrent use.
//
// A frame takes its share step by step, as it arrives. Frames that hold a part
// and wait for more could wait for each other for ever, so that one of them at a
// time, whoever is in the lane, may go beyond the limit until it is whole.
type budget struct {
	max     int64
	used    atomic.Int64
	waiters atomic.Int32  // who gives looks here first; raised before the waiter's last try
	lane    chan struct{} // holds one token while the lane is taken

	mu    sync.Mutex
	woken chan struct{} // closed and replaced when bytes are given back
}

func newBudget(max int64) *budget { return &budget{max: max, lane: make(chan struct{}, 1)} }

// allowance is what one frame holds of a budget.
type allowance struct {
	of     *budget
	held   int64
	inLane bool
}

// take adds n bytes to the allowance, and waits for room up to timeout or until stop
// closes.
func (s *allowance) take(n int64, timeout time.Duration, stop <-chan struct{}) bool {
	g := s.of
	if s.inLane {
		g.used.Add(n)
		s.held += n
		return true
	}
	if !g.try(n) && !s.wait(n, timeout, stop) {
		return false
	}
	s.held += n
	return true
}

// wait takes n bytes as soon as there is room or, for a frame of which a part is
// here, the lane is free.
func (s *allowance) wait(n int64, timeout time.Duration, stop <-chan struct{}) bool {
	g := s.of
	g.waiters.Add(1)
	defer g.waiters.Add(-1)
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	var lane chan<- struct{}
	if s.held > 0 {
		lane = g.lane
	}
	for {
		g.mu.Lock()
		if g.woken == nil {
			g.woken = make(chan struct{})
		}
		woken := g.woken
		g.mu.Unlock()
		if g.try(n) { // room came before we began to listen
			return true
		}
		select {
		case <-woken:
		case lane <- struct{}{}:
			s.inLane = true
			g.used.Add(n)
			return true
		case <-deadline.C:
			return false
		case <-stop:
			return false
		}
	}
}

// whole says that the frame needs no more: it leaves the lane.
func (s *allowance) whole() {
	if s.inLane {
		s.inLane = false
		<-s.of.lane
	}
}

// drop returns all of the allowance.
func (s *allowance) drop() {
	s.whole()
	s.of.give(s.held)
	s.held = 0
}

func (g *budget) try(n int64) bool {
	for {
		used := g.used.Load()
		if used > 0 && used+n > g.max {
			return false
		}
		if g.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// give returns n bytes and lets everyone who waits try again.
func (g *budget) give(n int64) {
	g.used.Add(-n)
	if g.waiters.Load() == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.woken != nil {
		close(g.woken)
		g.woken = nil
	}
}
