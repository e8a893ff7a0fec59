package partition

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// This file is what replicas of the partition on other nodes need of it: how far it is,
// and runs of its batches with what proves them. Who is asked and who is told is decided
// elsewhere (mesh).

// ErrCompacted: the batches that a span should begin with were compacted away here, and
// what replaced them cannot be proven to others. Kind Conflict. Another replica may have
// them: only the leader compacts.
var ErrCompacted = signedlog.ErrRewritten

// Position returns how far the partition is here: durably, and signed by its leader.
// Cheap; from anywhere.
func (p *Partition) Position() span.Position {
	c := p.log.Here()
	start, _, _ := p.log.Bounds()
	p.mu.Lock()
	term := p.grantTerm
	p.mu.Unlock()
	return span.Position{Size: c.Size, Root: c.Root, Start: start, End: c.End, Term: term}
}

// Next is the batch from which on a follower asks for more. After a crash it may have
// batches without the checkpoint that proves them all, which comes with a batch only: then
// it is the last of those, so that it can acknowledge what it has.
func (p *Partition) Next() uint64 {
	here := p.log.Here().Size
	if !p.Leads() && !p.came.Load() && here > p.log.Checkpoint().Size {
		return here - 1
	}
	return here
}

// ReadSpan returns whole batches from the one that is number from of the log on, about
// max bytes and at least one, with the newest checkpoint that is here and what proves
// them by it. With max 0 there are none: the span is the checkpoint alone, from is the
// number of batches that it is of, and a replica that has as many learns by it where
// the log begins now.
//
// On the leader it makes a checkpoint first if something committed has none yet, so it
// may take as long as a sync; appends do not wait for that. On a follower it gives what
// is here of the newest checkpoint of its leader's that is here as a whole.
//
// Errors by Kind: NotYet (nothing is signed behind from so far: Follow tells when),
// OutOfRange (dropped: Span.From of the result says with which batch the log begins
// here, and a span from there on can be received by who has less), Conflict (ErrCompacted),
// Storage, Unavailable (closed).
func (p *Partition) ReadSpan(from uint64, max int) (span.Span, error) {
	s := span.Span{Partition: p.id, From: from}
	r, err := p.log.ReadRun(from, max)
	if err == nil {
		s.Batches, s.Note, s.Left, s.Proof = r.Blocks, r.Note.Note, r.Left, r.Proof
		s.Grants, err = p.grantsFrom(from, r.Begins, r.Note.Grant)
	}
	if err != nil {
		if lattice.KindOf(err) == lattice.OutOfRange {
			from = r.Begins
		}
		return span.Span{Partition: p.id, From: from}, fmt.Errorf("read a span of %s from batch %d on: %w", p.id, s.From, err)
	}
	return s, nil
}

// Follow calls grown, in some goroutine and with no lock held, whenever ReadSpan can
// give more than before, or Acks can, until cancel is called. grown must not block. As long as
// somebody follows, what is committed is signed at once, and not within a tenth of a
// second.
func (p *Partition) Follow(grown func()) (cancel func()) {
	logs, acks := p.log.Follow(grown), p.acks.follow(grown)
	return func() { logs(); acks() }
}

// newestGrant is a grant in memory: of spans at the log's end it is all that is needed.
type newestGrant struct {
	id   lattice.Hash
	size uint64 // its base
	raw  []byte
}

// grantsFrom returns the grants that a span from a batch on needs, up to that of its
// checkpoint. Who has the log up to there has the grants of what it has; who begins
// where the log begins needs all of them.
func (p *Partition) grantsFrom(from, begins uint64, of lattice.Hash) ([][]byte, error) {
	p.mu.Lock()
	newest := p.newest
	p.mu.Unlock()
	if newest.id == of && from > newest.size && from > begins {
		return [][]byte{newest.raw}, nil
	}
	all, err := p.o.Meta.Grants()
	if err != nil {
		return nil, fmt.Errorf("load grants: %w", err)
	}
	first := 0
	for i, b := range all {
		g, err := grant.Parse(b)
		if err != nil {
			return nil, err
		}
		if from > begins && g.BaseSize < from {
			first = i // in force at from, as far as is known yet
		}
		if g.ID == of {
			p.mu.Lock()
			p.newest = newestGrant{g.ID, g.BaseSize, b}
			p.mu.Unlock()
			return all[first : i+1], nil
		}
	}
	return nil, lattice.E(lattice.Storage, fmt.Errorf("grant %s of %s is missing", of.Short(), p.id))
}
