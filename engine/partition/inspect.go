package partition

import (
	"fmt"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// Snapshot is a saved producer state, for those who check it.
type Snapshot struct {
	Next int64 // the first offset that is not in it
	ps   *producers
}

// ParseSnapshot reads a producer snapshot. Kind Corrupt.
func ParseSnapshot(b []byte) (Snapshot, error) {
	ps, next, err := parseProducers(b)
	return Snapshot{next, ps}, err
}

// Producers is how many producers the snapshot knows.
func (s Snapshot) Producers() int { return len(s.ps.byID) }

// Replay is the producer state that a run of batches leads to.
type Replay struct{ ps *producers }

// NewReplay returns the state before any batch.
func NewReplay() *Replay { return &Replay{newProducers()} }

// Wrote adds the next stored batch; its header is enough unless that says that it
// is a control batch.
func (r *Replay) Wrote(batch []byte) error { return r.ps.fold(batch) }

// Compare checks the snapshot against a replay of every batch in [from, s.Next):
// what the snapshot says of batches there must be what the batches say. Batches
// before from, and producers that the snapshot forgot because they were idle, are
// beyond what can be compared. Kind Corrupt.
func (s Snapshot) Compare(r *Replay, from int64) error {
	for _, id := range slices.Sorted(maps.Keys(s.ps.byID)) {
		if err := s.ps.byID[id].compare(r.ps.byID[id], from); err != nil {
			return lattice.E(lattice.Corrupt, fmt.Errorf("producer %d: %w", id, err))
		}
	}
	if err := s.ps.txns.compare(r.ps.txns, from); err != nil {
		return lattice.E(lattice.Corrupt, err)
	}
	return nil
}

// compare checks what was saved of transactions against the replay. Of those that
// begin before from the replay knows a part at best.
func (t transactions) compare(replayed transactions, from int64) error {
	for id, first := range t.open {
		if again, open := replayed.open[id]; first >= from && (!open || again != first) {
			return fmt.Errorf("producer %d has no transaction from offset %d on that is open", id, first)
		}
	}
	for id, first := range replayed.open {
		if _, open := t.open[id]; !open {
			return fmt.Errorf("producer %d has an open transaction with a batch at offset %d", id, first)
		}
	}
	for _, a := range t.aborted {
		same := func(b Aborted) bool {
			return a.ProducerID == b.ProducerID && a.First == b.First && a.Marker == b.Marker
		}
		if a.First >= from && !slices.ContainsFunc(replayed.aborted, same) {
			return fmt.Errorf("producer %d aborted no transaction of offsets %d to %d", a.ProducerID, a.First, a.Marker)
		}
	}
	return nil
}

// compare checks what was saved of a producer against the replay, nil when that
// knows nothing of it.
func (p *producer) compare(replayed *producer, from int64) error {
	seen := p.batches
	for len(seen) > 0 && seen[0].base < from {
		seen = seen[1:]
	}
	switch {
	case replayed == nil && len(seen) > 0:
		return fmt.Errorf("the batch at offset %d is not in the log", seen[0].base)
	case replayed == nil:
		return nil
	case replayed.epoch != p.epoch:
		return fmt.Errorf("epoch %d, the log says %d", p.epoch, replayed.epoch)
	case len(seen) > len(replayed.batches):
		return fmt.Errorf("the batch at offset %d is not in the log", seen[0].base)
	}
	more := len(replayed.batches) - len(seen)
	for i, b := range seen {
		if b != replayed.batches[more+i] {
			return fmt.Errorf("sequences %d to %d at offset %d, the log has %d to %d at %d", b.first, b.last, b.base,
				replayed.batches[more+i].first, replayed.batches[more+i].last, replayed.batches[more+i].base)
		}
	}
	// Fewer than the log has: only one that was forgotten, and began again with 0.
	// Or one that was forgotten, and of which a marker came since.
	if more > 0 && 0 < len(p.batches) && len(p.batches) < keptBatches && (len(seen) == 0 || seen[0].first != 0) {
		return fmt.Errorf("the batch at offset %d is missing", replayed.batches[more-1].base)
	}
	return nil
}
