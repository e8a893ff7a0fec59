package partition

import (
	"errors"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
)

// This file is what replicas of the partition on other nodes need of it: how far it is,
// runs of its batches with what proves them, and runs of others into it. Who is asked
// and who is told is decided elsewhere (mesh).

// errNoSpans is what ReadSpan and Receive answer until a partition can be followed.
var errNoSpans = lattice.E(lattice.Unsupported, errors.New("partitions are not replicated yet"))

// Position returns how far the partition is here: durably, and signed by its leader.
// Cheap; from anywhere.
func (p *Partition) Position() span.Position { return span.Position{} }

// ReadSpan returns whole batches from the one that is number from of the log on, about
// max bytes and at least one, with the newest checkpoint that is here and what proves
// them by it. With max 0 there are none: the span is the checkpoint alone, from is
// Position().Size, and a replica that has as much takes over where the log begins now.
//
// On the leader it makes a checkpoint first if something committed has none yet, so it
// may take as long as a sync; appends do not wait for that. On a follower it gives what
// is here of the newest checkpoint of its leader's that is here as a whole.
//
// Errors by Kind: NotYet (nothing is signed behind from so far: Follow tells when),
// OutOfRange (dropped: Span.From of the result says with which batch the log begins
// here, and a span from there on can be received by who has less), Conflict (ErrCompacted),
// Corrupt, Storage, Unavailable (closed).
func (p *Partition) ReadSpan(from uint64, max int) (span.Span, error) {
	return span.Span{}, errNoSpans
}

// Receive verifies a span of whoever has it, and stores what is new of it. Only a
// follower takes spans. kept says how many of the span's batches are here durably when
// it returns, those that were here before among them: all, or after an error of Kind
// Storage or Unavailable those that were. Nothing of a span that is refused is stored.
// It keeps nothing of s; calls wait for each other.
func (p *Partition) Receive(s span.Span) (kept int, err error) { return 0, errNoSpans }

// Follow calls grown, in some goroutine and with no lock held, whenever ReadSpan can
// give more than before, until cancel is called. grown must not block. As long as
// somebody follows, what is committed is signed at once, and not within a tenth of a
// second.
func (p *Partition) Follow(grown func()) (cancel func()) { return func() {} }
