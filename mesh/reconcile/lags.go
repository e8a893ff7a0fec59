package reconcile

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/lag"
)

// Lag is a log of which a peer has less than is here.
type Lag struct {
	Log       state.Writer
	Has, Here uint64 // entries
	Since     int64  // ms, when that began, as far as was seen here
}

// Lacks returns what a node lacks of what is here, as far as is known, whether it is connected or was.
func (r *Replica) Lacks(n lattice.NodeID) lag.Sum { return r.lags.Sum(n) }

// Lags returns the logs of which a node lacks most, at most n.
func (r *Replica) Lags(node lattice.NodeID, n int) []Lag {
	return lagsOf(r.lags.Worst(node, n, Key.compare))
}

// Alone returns logs of which none of these nodes has all that is here, at most n: see lag.Table.
func (r *Replica) Alone(of []lattice.NodeID, n int) (all []Lag, more, ok bool) {
	found, more, ok := r.lags.Alone(of, n)
	return lagsOf(found), more, ok
}

func lagsOf(all []lag.Lack[Key]) []Lag {
	out := make([]Lag, len(all))
	for i, l := range all {
		out[i] = Lag{l.Log.writer(), l.Has, l.Here, l.Since}
	}
	return out
}

// Lacking returns of how many logs peers have more than this replica, how many entries those are, and how
// many came from peers since it began.
func (r *Replica) Lacking() (logs int, entries, taken uint64) {
	most := map[Key]uint64{}
	for _, p := range r.peers {
		for k, i := range p.has {
			most[k] = max(most[k], i.N)
		}
	}
	for k, n := range most {
		here := uint64(0)
		if l := r.logs[k]; l != nil {
			here = l.durable.Tip.Seq
		}
		if n > here {
			logs, entries = logs+1, entries+n-here
		}
	}
	return logs, entries, r.taken
}

// sees takes the root that a peer begins with.
func (r *Replica) sees(p *peer, theirs Root) {
	if theirs == r.front.Root() {
		r.lags.Equal(p.id, r.now)
	} else {
		r.lags.Met(p.id, r.now)
	}
}

// lacking notes which logs a peer's range of its frontier does not have.
func (r *Replica) lacking(p *peer, from Bound, x Range) {
	switch {
	case x.Mode == ModeDigest && x.Count == 0, x.Mode == ModeItems:
	default:
		return
	}
	told := make(map[Key]bool, len(x.Items))
	for _, i := range x.Items {
		told[i.Key] = true
	}
	for _, i := range r.front.between(from, x.To) {
		if i.Key[0] == keyLog && !told[i.Key] {
			r.lags.Has(p.id, i.Key, 0, r.now)
		}
	}
}
