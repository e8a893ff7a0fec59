package store

import "sync"

// topicWatch is who is told that topics came, went or were given partitions.
type topicWatch struct {
	mu   sync.Mutex
	next int
	all  map[int]func()
}

// WatchTopics calls changed after topics came, went or were given partitions, until
// stop is called. changed must not block; it may ask the store what there is now.
func (s *Store) WatchTopics(changed func()) (stop func()) {
	w := &s.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[int]func(){}
	}
	n := w.next
	w.next++
	w.all[n] = changed
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, n)
	}
}

func (w *topicWatch) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, changed := range w.all {
		changed()
	}
}
