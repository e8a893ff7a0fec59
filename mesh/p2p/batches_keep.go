package p2p

import (
	"bytes"
	"context"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/mesh/batches"
)

// spanLanes gives spans to partitions' logs, in order for each.
type spanLanes = lanes[lattice.TopicPartition, batches.Receive]

// spanPile is spans of one partition, which follow each other.
type spanPile = pile[lattice.TopicPartition, batches.Receive]

// keptSpans is what became of them: where the log is now, and what was wrong with each.
type keptSpans struct {
	spanPile
	at   batches.Where
	errs []error
}

func newSpanLanes(workers int) *spanLanes {
	return newLanes(workers, func(x batches.Receive) lattice.TopicPartition { return x.Span.Partition }, consecutive)
}

// What is given to a log at once is no more than a message could have.
const (
	keepSpanSize     = 8 << 20 // bytes of batches, about: with a slow disk a sync is for that much
	maxGrantsAtOnce  = 4096
	maxBatchesAtOnce = 1 << 15
)

// consecutive returns how many spans are one when put together: each begins where the
// one before it ends, they are of one peer, and not too long.
func consecutive(all []batches.Receive) int {
	size, count, grants := 0, 0, 0
	for i, x := range all {
		for _, b := range x.Span.Batches {
			size += len(b)
		}
		count += len(x.Span.Batches)
		grants += len(x.Span.Grants)
		if i == 0 {
			continue
		}
		before := all[i-1]
		if x.Peer != before.Peer || x.Span.From != before.Span.From+uint64(len(before.Span.Batches)) || size > keepSpanSize || count > maxBatchesAtOnce || grants > maxGrantsAtOnce {
			return i
		}
	}
	return len(all)
}

// joinSpans makes one span of consecutive ones: the tree before the first, and the
// proof for the last, are its own. So a log that syncs slowly verifies one checkpoint
// for all that came meanwhile.
func joinSpans(parts []batches.Receive) span.Span {
	out := parts[0].Span
	if len(parts) == 1 {
		return out
	}
	out.Batches, out.Grants, out.Sums = slices.Clone(out.Batches), slices.Clone(out.Grants), slices.Clone(out.Sums)
	for _, x := range parts[1:] {
		out.Batches = append(out.Batches, x.Span.Batches...)
		out.Sums = append(out.Sums, x.Span.Sums...) // of all or, if one has none, of too few, and so of none
		for _, g := range x.Span.Grants {
			if !slices.ContainsFunc(out.Grants, func(o []byte) bool { return bytes.Equal(o, g) }) {
				out.Grants = append(out.Grants, g)
			}
		}
	}
	last := parts[len(parts)-1].Span
	out.Note, out.Proof = last.Note, last.Proof
	return out
}

// keepSpans gives a pile to its log: at once, and one by one if that is refused, since
// what is wrong with a later one says nothing of those before it.
func keepSpans(ctx context.Context, to Partitions, b spanPile) keptSpans {
	out := keptSpans{spanPile: b, errs: make([]error, len(b.parts))}
	var err error
	if out.at, err = to.ReceiveSpan(ctx, joinSpans(b.parts)); err == nil {
		return out
	}
	if k := lattice.KindOf(err); len(b.parts) > 1 && k != lattice.Storage && k != lattice.Unavailable {
		for i, x := range b.parts {
			if x.Span.From+uint64(len(x.Span.Batches)) <= out.at.Size {
				continue // it was good
			}
			out.at, out.errs[i] = to.ReceiveSpan(ctx, x.Span)
		}
		return out
	}
	for i, x := range b.parts {
		if x.Span.From+uint64(len(x.Span.Batches)) > out.at.Size {
			out.errs[i] = err
		}
	}
	return out
}
