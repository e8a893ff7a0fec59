// Package span is what one replica gives another of a partition's log: record batches
// in a row, and what proves that the leader signed them.
//
// A span is self-contained for whoever has the log up to its first batch: the compact
// range of the tree before it (Left) and the leaves of the batches give the tree
// behind it, and Proof shows that this tree is a prefix of the checkpoint in Note,
// which the leader of the term signed. Grants say who that is.
//
// Who carries spans checks only their size. Whoever stores them verifies them.
package span

import (
	"crypto/sha256"

	lattice "github.com/lattice-log/lattice"
)

// Span is a run of record batches of one partition, as the leader stored them.
type Span struct {
	Partition lattice.TopicPartition
	From      uint64         // leaf of the first batch: how many batches the log has before it
	Batches   [][]byte       // whole record batches (magic 2), in the order of the log
	Grants    [][]byte       // signed grants (core/grant), oldest first: of the terms that the batches and the checkpoint are of
	Note      []byte         // signed checkpoint of the leader's (core/merkle) that covers the batches
	Left      []lattice.Hash // compact range of the tree over the batches before From
	Proof     []lattice.Hash // that the tree up to the last batch is a prefix of the checkpoint's

	// Sums are SHA-256 of the batches, if Sum was called here: they do not travel. It takes
	// most of what verifying takes, and needs neither the log nor its locks.
	Sums []lattice.Hash
}

// Sum hashes the batches, for whoever stores them after.
func (s *Span) Sum() {
	s.Sums = make([]lattice.Hash, len(s.Batches))
	for i, b := range s.Batches {
		s.Sums[i] = sha256.Sum256(b)
	}
}

// Position is how far a replica is.
type Position struct {
	Size  uint64       // batches in the tree: the leaf at which the next span begins
	Root  lattice.Hash // of the tree over them
	Start int64        // first offset that is here
	End   int64        // next offset
	Term  int32        // of the newest grant that is known here; 0: none
}
