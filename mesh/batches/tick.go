package batches

import (
	"cmp"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// Tick is called a few times a second. It offers what was held back, follows
// elsewhere what a peer does not send, and compares now and then.
func (r *Replica) Tick(nowMs int64) Effects {
	r.now = nowMs
	for _, p := range r.peers {
		clear(p.offered)
		p.room = r.c.Offers
		waiting := p.waiting
		p.waiting = nil
		for _, x := range waiting {
			r.ready(p, x)
		}
		if p.greeted && r.now-p.told >= r.c.CompareMs {
			p.told = r.now
			r.send(p, Frontier{r.index.Root()})
		}
	}
	for id, until := range r.banned {
		if r.now >= until {
			delete(r.banned, id)
		}
	}
	for b, until := range r.bars {
		if r.now >= until {
			delete(r.bars, b)
			if r.barCount[b.peer]--; r.barCount[b.peer] == 0 {
				delete(r.barCount, b.peer)
			}
		}
	}
	if r.paused != 0 && r.now >= r.paused {
		r.paused = 0
		for _, p := range r.peers {
			for id := range p.has {
				r.todo[id] = true
			}
		}
	}
	r.stalled()
	return r.done()
}

// stalled follows elsewhere what does not come: its peer sends nothing, or sends
// others and passes it over, though it says that it has more.
func (r *Replica) stalled() {
	if r.now < r.swept+r.c.StallMs/4 {
		return
	}
	r.swept = r.now
	for _, id := range slices.SortedFunc(maps.Keys(r.parts), comparePartitions) {
		t := r.parts[id]
		p := t.source
		if p == nil || r.now-t.moved < r.c.StallMs {
			continue
		}
		i, more := p.has[id]
		more = more && i.Size > t.next
		// A circle through all that is followed there takes at most four turns for each.
		passed := p.count-t.count > uint64(8*p.sources+64)
		switch {
		case more && p.granted > 0 && (r.now-p.heard >= r.c.StallMs || passed):
			r.refuse(p, id, t.at(), reconcile.NotShown, nil)
			r.giveUp(t, p, t.ask, reconcile.NotShown)
		case !more && r.elsewhere(t):
			r.unfollow(t)
		}
	}
}

// elsewhere reports whether a peer other than a partition's source has more of it.
func (r *Replica) elsewhere(t *part) bool {
	for _, p := range r.peers {
		if i, ok := p.has[t.id]; ok && p != t.source && i.Size > t.next {
			return true
		}
	}
	return false
}

// PeerStatus is what people are shown of a peer.
type PeerStatus struct {
	Node       lattice.NodeID
	Session    uint64 // of its start; another number: it began anew
	Greeted    bool
	Equal      bool   // its partitions, as last told, are where they are here
	Partitions int    // that it has more of, of those that are known here
	Behind     uint64 // batches of them that it has and this replica lacks
	Ahead      uint64 // batches that it follows and was not sent yet
}

// Peers returns the status of each peer, ascending by id.
func (r *Replica) Peers() []PeerStatus {
	out := make([]PeerStatus, 0, len(r.peers))
	for _, p := range r.peers {
		s := PeerStatus{Node: p.id, Session: p.session, Greeted: p.greeted, Equal: p.greeted && p.theirs == r.index.Root()}
		for id, i := range p.has {
			if t := r.parts[id]; t != nil && i.Size > t.here.Size {
				s.Partitions++
				s.Behind += i.Size - t.here.Size
			}
		}
		for _, x := range p.serving {
			if n := x.part.here.Proven; n > x.after {
				s.Ahead += n - x.after
			}
		}
		out = append(out, s)
	}
	return out
}

// Lag is a partition of which others have more.
type Lag struct {
	Partition lattice.TopicPartition
	Size      uint64         // batches here
	Behind    uint64         // that the peer which says it has most has beyond
	Source    lattice.NodeID // where it is followed; zero: nowhere
}

// Lags returns the partitions that are furthest behind, at most n.
func (r *Replica) Lags(n int) []Lag {
	most := map[lattice.TopicPartition]uint64{}
	for _, p := range r.peers {
		for id, i := range p.has {
			most[id] = max(most[id], i.Size)
		}
	}
	out := make([]Lag, 0, len(most))
	for id, size := range most {
		t := r.parts[id]
		if t == nil || size <= t.here.Size {
			continue
		}
		l := Lag{Partition: id, Size: t.here.Size, Behind: size - t.here.Size}
		if t.source != nil {
			l.Source = t.source.id
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Lag) int {
		return cmp.Or(cmp.Compare(b.Behind, a.Behind), comparePartitions(a.Partition, b.Partition))
	})
	return out[:min(len(out), n)]
}

// Refusals returns how often something was refused, by reason.
func (r *Replica) Refusals() map[Reason]uint64 { return maps.Clone(r.counts) }
