package store

import (
	"context"
	"slices"
	"time"

	"github.com/lattice-log/lattice/core/roster"
)

const (
	// expireEvery is how often keys that have expired are looked for.
	expireEvery = 100 * time.Millisecond
	// expireAgain is when it is tried again after a failure.
	expireAgain = 10 * time.Second
	// expireKeys is how many are ended in one transaction.
	expireKeys = 500
)

// OnExpired makes f hear of each key that was removed since it had expired, once
// that is durable, until it is told to stop. f must not block.
func (s *Store) OnExpired(f func(m string, key []byte)) (stop func()) {
	s.expiredMu.Lock()
	defer s.expiredMu.Unlock()
	s.onExpired = append(s.onExpired, &f)
	return func() {
		s.expiredMu.Lock()
		defer s.expiredMu.Unlock()
		s.onExpired = slices.DeleteFunc(slices.Clone(s.onExpired), func(g *func(string, []byte)) bool { return g == &f })
	}
}

// tellExpired tells who wants to hear of it.
func (s *Store) tellExpired(m string, key []byte) {
	s.expiredMu.Lock()
	all := s.onExpired
	s.expiredMu.Unlock()
	for _, f := range all {
		(*f)(m, key)
	}
}

// expire removes keys that have expired, until ctx ends. What fails is logged
// and tried again.
func (s *Store) expire(ctx context.Context) error {
	due := make(chan struct{}, 1)
	tick := func() {
		select {
		case due <- struct{}{}:
		default:
		}
	}
	r := s.state.Reaper()
	wait := expireEvery
	for {
		stop := s.cfg.Clock.AfterFunc(wait, tick)
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-due:
		}
		wait = expireEvery
		if s.state.Role() < roster.Writer { // a writer does it
			continue
		}
		for more := true; more && ctx.Err() == nil; {
			gone, again, err := r.Pass(ctx, expireKeys)
			if err != nil && ctx.Err() == nil {
				s.cfg.Logger.Error("remove expired keys", "err", err)
				wait = expireAgain
			}
			for _, name := range gone {
				s.tellExpired(name.Map, name.Key)
			}
			more = again && err == nil
		}
	}
}
