package partition

import (
	"fmt"

	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// CopyTo makes a copy of the partition's log in dir, which must not be there, and of what
// belongs to it in another Meta, and returns the offset at which it ends. Appends go on
// meanwhile, retention, compaction and truncation wait. What is durable here is in it, of
// a follower what it has. Opened with Options.Alone it is led by this node. Kinds Storage,
// Unavailable. A crash leaves a part of a copy.
func (p *Partition) CopyTo(dir string, into Meta) (int64, error) {
	p.houseMu.Lock()
	defer p.houseMu.Unlock()
	if p.Leads() {
		// What the copy says of producers must not be ahead of its log.
		if err := p.saveProducers(); err != nil {
			return 0, err
		}
		b, err := p.o.Meta.Snapshot()
		if err == nil && b != nil {
			err = into.PutSnapshot(b)
		}
		if err != nil {
			return 0, fmt.Errorf("copy %s: %w", p.id, err)
		}
	}
	end, err := p.log.CopyTo(dir)
	if err != nil {
		return 0, err
	}
	if err := p.copyMeta(into); err != nil {
		return 0, fmt.Errorf("copy %s: %w", p.id, err)
	}
	return end, nil
}

// copyMeta copies grants and what compaction has come to. It comes after the log: a term
// without batches does no harm, batches without their term would.
func (p *Partition) copyMeta(into Meta) error {
	all, err := p.o.Meta.Grants()
	if err != nil {
		return err
	}
	for _, b := range all {
		g, err := grant.Parse(b)
		var promises []byte
		if err == nil {
			promises, err = p.o.Meta.Evidence(g.Term)
		}
		if err == nil && promises != nil {
			err = into.PutEvidence(g.Term, promises)
		}
		if err == nil {
			err = into.PutGrant(g.Term, b)
		}
		if err != nil {
			return err
		}
	}
	for _, s := range p.log.State().Segments {
		told, err := p.o.Meta.Statements(s.Base)
		for _, b := range told {
			if err == nil {
				err = into.PutStatement(s.Base, b)
			}
		}
		if err != nil {
			return err
		}
	}
	to, err := p.o.Meta.CleanedTo()
	if err == nil && to > 0 {
		err = into.PutCleanedTo(to)
	}
	return err
}

// alone makes the term that opens one in which this node leads alone, whoever had to
// acknowledge before, and reports whether that takes a grant of its own kind: the word of
// whoever made the copy, which counts nowhere else.
func (p *Partition) alone() bool {
	p.acks.mu.Lock()
	t := p.acks.newest()
	p.acks.mu.Unlock()
	me := p.o.Key.Author()
	if t == nil || t.Alone() && t.leader == me {
		return false
	}
	p.pending.AckSet, p.pending.Min, p.pending.Kind = append(p.pending.AckSet[:0:0], me), 1, grant.Unclean
	return true
}

// WrittenBy returns how many records a producer, whose sequence began with 0, has in the
// log from an offset on, committed or not: one more than its last sequence number. Kind
// Storage.
func (p *Partition) WrittenBy(producer, from int64) (int64, error) {
	if err := p.log.Flush(); err != nil {
		return 0, err
	}
	start, _, end := p.log.Bounds()
	n := int64(0)
	err := p.log.Scan(max(from, start), end, func(b signedlog.Block) error {
		h, err := record.ParseHeader(b.Data)
		if err == nil && h.ProducerID == producer && !h.Control() {
			n = max(n, int64(h.BaseSequence)+int64(h.LastOffsetDelta)+1)
		}
		return err
	})
	return n, err
}
