package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/keyval"
)

// Upkeep is a policy of snapshots: when the node takes one by itself, how many stay, and
// whether the entries below are pruned. The zero Upkeep does nothing.
type Upkeep struct {
	// Every is how often a snapshot is taken, if something was written since the last
	// one; 0: never, and the rest does nothing.
	Every time.Duration
	// Keep is how many snapshots stay, those that were asked for among them.
	Keep int
	// PruneAfter is how old a snapshot has to be, beside having Keep newer ones, for
	// entries to be pruned to it; negative: they never are, and what is more than Keep
	// just goes.
	PruneAfter time.Duration
}

// upkeepLook is how often it is looked whether something is due, at most.
const upkeepLook = time.Minute

// UpkeepStatus is what the policy has come to.
type UpkeepStatus struct {
	Upkeep
	Kept     int       // snapshots, without the one that was pruned to
	Newest   time.Time // when the newest of them was taken; zero: there is none
	Failures uint64    // since the start
	Failed   string    // why the last time failed; empty: it did not
}

// upkeep is the policy's memory.
type upkeep struct {
	mu       sync.Mutex // of what follows
	failures uint64
	failed   string

	acting sync.Mutex // held by who tends
	looked time.Time  // when it was last found whether something had changed; by who tends
}

// Upkeep returns the policy, and what it has come to. Kinds Corrupt, Storage.
func (s *Store) Upkeep() (UpkeepStatus, error) {
	st := UpkeepStatus{Upkeep: s.cfg.State.Upkeep}
	kept, _, err := s.keptByAge()
	if st.Kept = len(kept); st.Kept > 0 {
		st.Newest = kept[st.Kept-1].Taken
	}
	s.upkeep.mu.Lock()
	defer s.upkeep.mu.Unlock()
	st.Failures, st.Failed = s.upkeep.failures, s.upkeep.failed
	return st, err
}

// keptByAge returns the snapshots that are kept, the oldest first, and apart from them
// the base; that is zero when there is none.
func (s *Store) keptByAge() (kept []keyval.Kept, base keyval.Kept, err error) {
	all, err := s.state.Snapshots()
	for _, k := range all {
		if k.Base {
			base = k
		} else {
			kept = append(kept, k)
		}
	}
	return kept, base, err
}

// tend does what the policy says is due, now and then, until ctx ends. What fails is
// logged, counted, and tried again.
func (s *Store) tend(ctx context.Context) error {
	u := s.cfg.State.Upkeep
	if u.Every <= 0 {
		<-ctx.Done()
		return nil
	}
	due := make(chan struct{}, 1)
	for {
		stop := s.cfg.Clock.AfterFunc(min(u.Every, upkeepLook), func() {
			select {
			case due <- struct{}{}:
			default:
			}
		})
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-due:
		}
		if err := s.Tend(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Logger.Error("keep snapshots", "store", s.info.ID.Short(), "err", err)
		}
	}
}

// Tend does now what the policy of snapshots says is due.
func (s *Store) Tend(ctx context.Context) error {
	s.upkeep.acting.Lock()
	defer s.upkeep.acting.Unlock()
	err := s.tendOnce(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.upkeep.mu.Lock()
	defer s.upkeep.mu.Unlock()
	s.upkeep.failed = ""
	if err != nil {
		s.upkeep.failed = err.Error()
		s.upkeep.failures++
	}
	return err
}

func (s *Store) tendOnce(ctx context.Context) error {
	u := s.cfg.State.Upkeep
	if u.Every <= 0 {
		return nil
	}
	kept, base, err := s.keptByAge()
	if err != nil {
		return err
	}
	now := s.cfg.Clock.Now()
	if s.snapshotDue(kept, now) {
		newest := base
		if n := len(kept); n > 0 {
			newest = kept[n-1]
		}
		if err := s.takeDue(ctx, newest, now); err != nil {
			return fmt.Errorf("take a snapshot: %w", err)
		}
		if kept, _, err = s.keptByAge(); err != nil {
			return err
		}
	}
	return s.prune(ctx, kept[:max(len(kept)-u.Keep, 0)], now)
}

// snapshotDue reports whether the last one is old enough. A clock that was put back
// makes it due as well.
func (s *Store) snapshotDue(kept []keyval.Kept, now time.Time) bool {
	last := s.upkeep.looked
	if n := len(kept); n > 0 && kept[n-1].Taken.After(last) {
		last = kept[n-1].Taken
	}
	return last.IsZero() || now.Before(last) || now.Sub(last) >= s.cfg.State.Upkeep.Every
}

// takeDue takes a snapshot, unless the state is what the newest one holds: its root says
// so. Entries that change no key, such as those that say what was pruned, are no reason
// for one, or nodes would answer each other's for ever.
func (s *Store) takeDue(ctx context.Context, newest keyval.Kept, now time.Time) error {
	root, err := s.state.Root(ctx)
	if err != nil {
		return err
	}
	if root.Hash != newest.Root {
		if _, err = s.state.Snapshot(ctx); errors.Is(err, keyval.ErrNotBegun) {
			return nil
		}
	}
	if err == nil { // otherwise it is due again at the next look
		s.upkeep.looked = now
	}
	return err
}

// prune prunes to the newest of those that are more than are to stay, the oldest first,
// if that is old enough and all active members have what is below it; or lets them go. While
// a member is behind, the oldest of them waits for it, and those between go: a member that is
// away for a month must not fill the disk.
func (s *Store) prune(ctx context.Context, surplus []keyval.Kept, now time.Time) error {
	u := s.cfg.State.Upkeep
	for i := len(surplus) - 1; i >= 0; i-- {
		k := surplus[i]
		switch {
		case u.PruneAfter < 0:
			if err := s.state.DropSnapshot(k.ID); err != nil && lattice.KindOf(err) != lattice.NotFound {
				return fmt.Errorf("let go of a snapshot: %w", err)
			}
			continue
		case now.Sub(k.Taken) < u.PruneAfter:
			continue
		}
		p, err := s.state.Prune(ctx, k.ID)
		if lattice.KindOf(err) == lattice.NotYet {
			s.cfg.Logger.Debug("pruning waits", "store", s.info.ID.Short(), "snapshot", k.ID.Short(), "err", err)
			if i > 0 {
				if err := s.state.DropSnapshot(k.ID); err != nil {
					return fmt.Errorf("let go of a snapshot: %w", err)
				}
			}
			continue
		}
		if lattice.KindOf(err) == lattice.Conflict {
			// A fork or a removal below it came to light: it is of no use any more. The next one is.
			return errors.Join(fmt.Errorf("prune: %w", err), s.state.DropSnapshot(k.ID))
		}
		if err != nil {
			return fmt.Errorf("prune: %w", err)
		}
		s.cfg.Logger.Info("pruned", "store", s.info.ID.Short(), "snapshot", k.ID.Short(), "entries", p.Entries, "logs", p.Logs, "bytes", p.Bytes)
		return nil // those before it went with that
	}
	return nil
}
