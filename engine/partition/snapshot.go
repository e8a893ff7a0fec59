package partition

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// snapshotBytes is how much may be appended before the producer state is saved
// again: it bounds what a restart reads back.
const snapshotBytes = 16 << 20

// loadProducers restores the producers and the list of terms: the saved snapshot,
// then what came after it: headers of batches, and markers.
func (p *Partition) loadProducers() error {
	start, _, end := p.log.Bounds()
	from := start
	b, err := p.o.Meta.Snapshot()
	if err != nil {
		return fmt.Errorf("load producer snapshot: %w", err)
	}
	p.snapEnd = -1
	if b == nil && end == 0 {
		p.snapEnd = 0 // none is as good as one of an empty log
	}
	if b != nil {
		ps, next, err := parseProducers(b)
		switch {
		case err != nil:
			p.o.Logger.Warn("producer snapshot is damaged; reading the whole log instead", "partition", p.id, "err", err)
		case next > end:
			// The tail that the snapshot saw is gone. What it says of batches that are
			// not there would answer a retry with an offset that names nothing.
			p.o.Logger.Warn("producer snapshot is ahead of the log; reading the whole log instead", "partition", p.id, "snapshot", next, "end", end)
		case next < start && !p.Leads():
			// The log began anew further on, and a stop came before that was saved: what
			// the batches between said of producers is not known.
			p.o.Logger.Warn("producer snapshot is behind the log's start; passed over", "partition", p.id, "snapshot", next, "start", start)
		default:
			p.producers, from = ps, max(next, start)
			p.snapEnd = next
		}
	}
	err = p.log.Scan(from, end, func(b signedlog.Block) error {
		if err := p.producers.fold(b.Data); err != nil {
			p.log.Damage(b.Base, b.Last+1, err) // its shape was right when it was written
		}
		return nil
	})
	p.producers.txns.drop(start)
	p.settle(end) // what was recovered is durable
	if lattice.KindOf(err) == lattice.Corrupt {
		p.log.Damage(from, end, err) // serve what is whole, take no writes
		return nil
	}
	return err
}

// saveProducers saves the producer state up to the log's end, unless that is
// saved: what else forgets producers and transactions is done again by a restart.
func (p *Partition) saveProducers() error {
	if p.o.ReadOnly {
		return nil // there are none
	}
	p.snapMu.Lock()
	defer p.snapMu.Unlock()
	p.mu.Lock()
	_, _, end := p.log.Bounds()
	if p.snapEnd == end {
		p.mu.Unlock()
		return nil // nothing came since
	}
	b, written := p.producers.snapshot(end), p.log.Written()
	p.mu.Unlock()
	// What the snapshot speaks of must be durable before it is: else a power cut
	// could leave it answering retries with offsets that name nothing.
	if err := p.log.Flush(); err != nil {
		return fmt.Errorf("save producers of %s: %w", p.id, err)
	}
	if err := p.o.Meta.PutSnapshot(b); err != nil {
		return fmt.Errorf("save producers of %s: %w", p.id, err)
	}
	p.snapSize.Store(written)
	p.snapEnd = end
	return nil
}
