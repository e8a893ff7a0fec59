package store

import (
	"context"
	"time"

	lattice "github.com/lattice-log/lattice"
)

const (
	// reportLook is how often it is looked whether something has come that the other
	// members are to be told is durable here, unless StateConfig says otherwise.
	reportLook = 5 * time.Second
	// reportLate is in how many looks it is told of at the latest: what comes in a burst is
	// told of when the burst is over.
	reportLate = 12
)

// reporting decides when a node reports how far it is: when nothing has come for one
// look, or when something has come for so long that it cannot wait. Pure.
type reporting struct {
	seen    uint64 // entries folded at the last look
	waiting int    // looks since something came that was not reported; 0: nothing
}

// look reports whether it is time, with this many entries folded.
func (r *reporting) look(entries uint64) bool {
	moved := entries != r.seen
	r.seen = entries
	switch {
	case r.waiting == 0 && !moved:
		return false
	case moved && r.waiting < reportLate:
		r.waiting++
		return false
	}
	r.waiting = 0
	return true
}

// again has the next look try once more.
func (r *reporting) again() { r.waiting = reportLate }

// report tells the other members now and then how far entries are durable here, until
// ctx ends. What fails is tried again at the next look.
func (s *Store) report(ctx context.Context) error {
	every := s.cfg.State.ReportEvery
	if every <= 0 {
		every = reportLook
	}
	r := reporting{}
	r.again() // what came before the start may not have been reported
	look := make(chan struct{}, 1)
	failed := false
	for {
		stop := s.cfg.Clock.AfterFunc(every, func() {
			select {
			case look <- struct{}{}:
			default:
			}
		})
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-look:
		}
		if !r.look(s.state.Frontier().Entries()) {
			continue
		}
		_, err := s.state.Report(ctx)
		if err == nil || ctx.Err() != nil {
			failed = false
			continue
		}
		r.again()
		if k := lattice.KindOf(err); k == lattice.Denied || k == lattice.Diverged || failed {
			continue // it is no member, as far as is known here, or it was said
		}
		failed = true
		s.cfg.Logger.Warn("the other members are not told how far this node is", "store", s.info.ID.Short(), "err", err)
	}
}
