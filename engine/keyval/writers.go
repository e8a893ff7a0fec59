package keyval

import (
	"sync"
	"sync/atomic"

	"github.com/lattice-log/lattice/core/state"
)

// writers gives writers the small numbers that stand for them in this fold
// database. A number once given stays. Safe for concurrent use; reading takes no
// lock.
type writers struct {
	list atomic.Pointer[[]state.Writer] // by number
	last atomic.Pointer[numbered]       // that was asked for: mostly the same

	mu    sync.Mutex
	num   map[state.Writer]uint32
	saved atomic.Int64 // how many of the list the fold database knows
}

type numbered struct {
	w state.Writer
	n uint32
}

func newWriters() *writers {
	w := &writers{num: map[state.Writer]uint32{}}
	w.last.Store(&numbered{}) // nobody's
	w.list.Store(&[]state.Writer{})
	return w
}

// number returns a writer's number, and gives it one if it has none.
func (w *writers) number(x state.Writer) uint32 {
	if l := w.last.Load(); l.w == x && l.w != (state.Writer{}) {
		return l.n
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n, ok := w.num[x]
	if !ok {
		list := append(*w.list.Load(), x) // readers see the old length
		n = uint32(len(list) - 1)
		w.num[x] = n
		w.list.Store(&list)
	}
	w.last.Store(&numbered{x, n})
	return n
}

// writer returns whose number n is.
func (w *writers) writer(n uint64) (state.Writer, bool) {
	list := *w.list.Load()
	if n >= uint64(len(list)) {
		return state.Writer{}, false
	}
	return list[n], true
}

// know notes that the fold database holds the first n numbers.
func (w *writers) know(n int) {
	for old := w.saved.Load(); int(old) < n && !w.saved.CompareAndSwap(old, int64(n)); old = w.saved.Load() {
	}
}
