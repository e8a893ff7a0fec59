package batches

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/lag"
)

// PeerLag is a partition of which a peer has less than is here.
type PeerLag struct {
	Partition lattice.TopicPartition
	Has, Here uint64 // batches that can be proven
	Since     int64  // ms, when that began, as far as was seen here
}

// Lacks returns what a node lacks of what is here, as far as is known, whether it is connected or was.
func (r *Replica) Lacks(n lattice.NodeID) lag.Sum { return r.lags.Sum(n) }

// PeerLags returns the partitions of which a node lacks most, at most n.
func (r *Replica) PeerLags(node lattice.NodeID, n int) []PeerLag {
	return lagsOf(r.lags.Worst(node, n, comparePartitions))
}

// Alone returns partitions of which none of these nodes has all that is here, at most n: see lag.Table.
func (r *Replica) Alone(of []lattice.NodeID, n int) (all []PeerLag, more, ok bool) {
	found, more, ok := r.lags.Alone(of, n)
	return lagsOf(found), more, ok
}

func lagsOf(all []lag.Lack[lattice.TopicPartition]) []PeerLag {
	out := make([]PeerLag, len(all))
	for i, l := range all {
		out[i] = PeerLag{l.Log, l.Has, l.Here, l.Since}
	}
	return out
}

// Lacking returns of how many partitions peers have more than this replica, how many batches those are, and
// how many came from peers since it began.
func (r *Replica) Lacking() (partitions int, batches, taken uint64) {
	for _, l := range r.Lags(r.c.MaxPartitions) {
		partitions, batches = partitions+1, batches+l.Behind
	}
	return partitions, batches, r.taken
}

// sees takes the root that a peer begins with.
func (r *Replica) sees(p *peer, theirs Root) {
	if theirs == r.index.Root() {
		r.lags.Equal(p.id, r.now)
	} else {
		r.lags.Met(p.id, r.now)
	}
}

// lacking notes which partitions a peer's range does not have.
func (r *Replica) lacking(p *peer, from Bound, x Range) {
	switch {
	case x.Mode == ModeDigest && x.Count == 0, x.Mode == ModeItems:
	default:
		return
	}
	told := make(map[lattice.TopicPartition]bool, len(x.Items))
	for _, i := range x.Items {
		told[i.Partition] = true
	}
	for _, i := range r.index.between(from, x.To) {
		if !told[i.Partition] {
			r.lags.Has(p.id, i.Partition, 0, r.now)
		}
	}
}
