package txn

import "sync"

// round counts the answers to one attempt at taking a decision everywhere.
type round struct {
	end func(error) // called once, after the last

	mu   sync.Mutex
	left int
	err  error // the first
}

func (r *round) done(err error) {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.left--
	last, first := r.left == 0, r.err
	r.mu.Unlock()
	if last {
		r.end(first)
	}
}
