package reconcile

import (
	"maps"
	"slices"
	"strconv"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

func uitoa(n uint64) string { return strconv.FormatUint(n, 10) }

// logOf is the log of a place.
func logOf(at sigchain.Place) state.Writer {
	return state.Writer{Author: at.Author, Incarnation: at.Incarnation}
}

// Tick is called a few times a second. It offers what was held back, wants from
// others what a peer does not send, and compares frontiers now and then.
func (r *Replica) Tick(nowMs int64) Effects {
	r.now = nowMs
	for _, p := range r.peers {
		for _, k := range p.later {
			if p.serving[k] == nil {
				p.news = append(p.news, k)
			}
		}
		p.later = p.later[:0]
		clear(p.offered)
		if p.greeted && r.now-p.compared >= r.c.CompareMs {
			p.compared = r.now
			r.send(p, Frontier{r.front.Root()})
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
			for k := range p.has {
				r.todo = append(r.todo, k)
			}
		}
	}
	if r.now-r.proved >= r.c.CompareMs {
		r.proved = r.now
		tps := slices.SortedFunc(maps.Keys(r.parts), func(a, b lattice.TopicPartition) int { return PartitionKey(a).compare(PartitionKey(b)) })
		for _, tp := range tps {
			clear(r.parts[tp].asked)
			r.prove(tp, r.parts[tp])
		}
	}
	r.stalled()
	return r.done()
}

// stalled wants from others what does not come.
func (r *Replica) stalled() {
	if r.now < r.swept+r.c.StallMs/4 {
		return
	}
	r.swept = r.now
	for _, k := range r.keys() {
		l := r.logs[k]
		if s := l.search; s != nil && r.now-s.since >= r.c.StallMs {
			r.unshown(l, NotShown)
		}
		p := l.source
		if p == nil {
			continue
		}
		i, more := p.has[k]
		more = more && min(i.N, r.end(l.writer)) > l.chain.Tip.Seq
		switch still := r.now - l.moved; {
		case still < r.c.StallMs:
		case more && p.granted > 0 && (r.now-p.heard >= r.c.StallMs || r.elsewhere(l)):
			r.refuse(p, l.writer, l.chain.Tip.Seq+1, NotShown, nil)
			r.giveUp(l, p, NotShown)
		case !more && r.elsewhere(l):
			r.send(p, Want{Spans: []Span{{Log: l.writer, After: 1, Upto: 1}}}) // nothing any more
			r.unsource(l)
		}
	}
}

// elsewhere reports whether a peer other than a log's source has more of it.
func (r *Replica) elsewhere(l *log) bool {
	for _, p := range r.peers {
		if _, ok := p.has[l.key]; ok && p != l.source {
			return true
		}
	}
	return false
}

// keys returns the keys of all logs, ascending.
func (r *Replica) keys() []Key {
	keys := make([]Key, 0, len(r.logs))
	for k := range r.logs {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, Key.compare)
	return keys
}

// PeerStatus is what people are shown of a peer.
type PeerStatus struct {
	Node    lattice.NodeID
	Session uint64 // of its start; another number: it began anew
	Greeted bool
	Equal   bool   // its frontier, as last told, is the one here
	Logs    int    // that it has more of
	Behind  uint64 // entries that it has and this replica lacks
	Ahead   uint64 // entries that it wants and was not sent yet
	In, Out uint64 // bytes
}

// Peers returns the status of each peer, ascending by id.
func (r *Replica) Peers() []PeerStatus {
	out := make([]PeerStatus, 0, len(r.peers))
	for _, p := range r.peers {
		s := PeerStatus{Node: p.id, Session: p.session, Greeted: p.greeted, Equal: p.greeted && p.theirs == r.front.Root(), Logs: len(p.has), In: p.in, Out: p.out}
		for k, i := range p.has {
			n := uint64(0)
			if l := r.logs[k]; l != nil {
				n = l.durable.Tip.Seq
			}
			if i.N > n {
				s.Behind += i.N - n
			}
		}
		for _, x := range p.serving {
			if n := x.limit(); n > x.after {
				s.Ahead += n - x.after
			}
		}
		out = append(out, s)
	}
	return out
}

// Refusals returns how often something was refused, by reason.
func (r *Replica) Refusals() map[Reason]uint64 {
	out := make(map[Reason]uint64, len(r.counts))
	for k, n := range r.counts {
		out[k] = n
	}
	return out
}
