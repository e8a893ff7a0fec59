package main

import (
	"context"
	"net/http"
	"sync"
)

// A door lets requests in to a handler that comes and goes while its listener stays. It is
// safe for concurrent use.
type door struct {
	mu     sync.Mutex
	h      http.Handler // nil: closed
	why    string       // it is closed
	inside int
	left   chan struct{} // closed when nobody is inside of a closed door
}

func newDoor(why string) *door { return &door{why: why, left: make(chan struct{})} }

// open lets requests in.
func (d *door) open(h http.Handler) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.h = h
}

// close lets no more in. The channel is closed when the last one has left.
func (d *door) close(why string) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.h, d.why = nil, why
	if d.inside == 0 {
		d.empty()
	}
	return d.left
}

// empty is called when nobody is inside and nobody will be.
func (d *door) empty() {
	select {
	case <-d.left:
	default:
		close(d.left)
	}
}

// reasons says why it is closed.
func (d *door) reasons() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.h == nil {
		return []string{d.why}
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	h, why := d.h, d.why
	if h != nil {
		d.inside++
	}
	d.mu.Unlock()
	if h == nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, why, http.StatusServiceUnavailable)
		return
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.inside--; d.inside == 0 && d.h == nil {
			d.empty()
		}
	}()
	h.ServeHTTP(w, r)
}

// waitFor waits for a channel or the end of a context.
func waitFor(ctx context.Context, done <-chan struct{}) {
	select {
	case <-done:
	case <-ctx.Done():
	}
}
