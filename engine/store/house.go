package store

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lattice-log/lattice/engine/partition"
)

// tidyEvery is how often partitions are asked whether their producer state is due
// to be saved.
const tidyEvery = time.Second

// keepHouse applies retention and compaction, and saves producer states, until
// ctx ends. What fails is logged and tried again next time.
func (s *Store) keepHouse(ctx context.Context) error {
	due := make(chan struct{}, 1)
	tick := func() {
		select {
		case due <- struct{}{}:
		default:
		}
	}
	retain := s.cfg.Clock.Now().Add(s.cfg.RetentionCheck)
	compact := s.cfg.Clock.Now().Add(s.cfg.CompactionCheck)
	if s.fork != nil { // what is to be brought back stays as it was written
		never := s.cfg.Clock.Now().AddDate(1000, 0, 0)
		retain, compact = never, never
	}
	for {
		stop := s.cfg.Clock.AfterFunc(tidyEvery, tick)
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-due:
		}
		s.eachPartition(ctx, "save producers", (*partition.Partition).Tidy)
		s.eachPartition(ctx, "change who acknowledges", func(p *partition.Partition) error { return p.Reseat(ctx) })
		switch now := s.cfg.Clock.Now(); {
		case !now.Before(retain):
			s.Retain(ctx)
			retain, compact = now.Add(s.cfg.RetentionCheck), now.Add(s.cfg.CompactionCheck)
		case !now.Before(compact):
			s.eachPartition(ctx, "compact", func(p *partition.Partition) error { return p.Compact(ctx) })
			compact = now.Add(s.cfg.CompactionCheck)
		}
	}
}

// Retain applies retention and compaction to every partition now.
func (s *Store) Retain(ctx context.Context) {
	if s.fork != nil {
		return
	}
	s.eachPartition(ctx, "apply retention", func(p *partition.Partition) error { return p.Retain(ctx) })
}

// eachPartition calls f for every partition, in one order; what fails is logged.
func (s *Store) eachPartition(ctx context.Context, what string, f func(*partition.Partition) error) {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.byID))
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b *topic) int { return bytes.Compare(a.rec.ID[:], b.rec.ID[:]) })
	var parts []*partition.Partition
	for _, t := range all {
		parts = append(parts, t.parts...)
	}
	for _, p := range parts {
		if ctx.Err() != nil {
			return
		}
		if err := f(p); err != nil {
			s.cfg.Logger.Error(what, "partition", p.ID(), "err", err)
		}
	}
}
