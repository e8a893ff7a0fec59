// Package lag keeps account of what other nodes lack of what is here, for people: of
// which logs, how much, and since when. Nothing is decided by it.
//
// It knows what its caller tells it: what a node said that it has, what it was sent, and
// where logs grew here. What was sent counts as had, until the node says otherwise, which
// it does when it is compared with next: so a node whose connection broke may lack a little
// more than is shown. Of a node that has gone it remembers what was known, and adds what has
// come here since. Of a node with which nothing was compared since the start it knows nothing.
//
// It is pure: it has no clock, does no I/O, and its owner calls it from one goroutine.
package lag

import (
	"cmp"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

const (
	// maxNodes bounds the nodes that are remembered: the one that was heard of longest ago goes.
	maxNodes = 1024
	// maxLogs bounds the logs of one node that are remembered. What is beyond is counted by More.
	maxLogs = 65_536
)

// Lack is a log of which a node has less than is here.
type Lack[K comparable] struct {
	Log   K
	Has   uint64 // of it the node has, as far as is known
	Here  uint64 // is here
	Since int64  // ms, when it began to lack something, as far as was seen here
}

// Behind is how much it lacks.
func (l Lack[K]) Behind() uint64 { return l.Here - min(l.Here, l.Has) }

// Sum is what a node lacks of all logs.
type Sum struct {
	Known  bool   // it was compared with since the start
	Logs   int    // of which it lacks something
	Behind uint64 // blocks that it lacks in all
	Since  int64  // ms, the longest; 0: it lacks nothing
	More   bool   // there are more logs than are remembered
}

// Table is what the other nodes lack of the logs that are here, which K names. Here says
// how far one is here. The zero value is not usable: see New.
type Table[K comparable] struct {
	here  func(K) uint64
	nodes map[lattice.NodeID]*node[K]
}

type node[K comparable] struct {
	heard int64
	lacks map[K]lack
	old   map[K]lack   // before it was compared with last: since when
	leads map[K]uint64 // logs of which it has more than is here
	more  bool
}

type lack struct {
	has   uint64
	since int64
}

// New returns a table of nodes of which nothing is known.
func New[K comparable](here func(K) uint64) *Table[K] {
	return &Table[K]{here, map[lattice.NodeID]*node[K]{}}
}

// Met says that a node is about to be compared with: what it lacks is told from here on,
// and what was known before says since when.
func (t *Table[K]) Met(n lattice.NodeID, nowMs int64) {
	if x := t.nodes[n]; x != nil {
		if len(x.lacks) > 0 {
			x.old, x.lacks = x.lacks, map[K]lack{}
		}
		x.heard, x.more = nowMs, false
		clear(x.leads)
		return
	}
	if len(t.nodes) >= maxNodes {
		var oldest lattice.NodeID
		least := nowMs
		for id, x := range t.nodes {
			if x.heard <= least {
				oldest, least = id, x.heard
			}
		}
		delete(t.nodes, oldest)
	}
	t.nodes[n] = &node[K]{heard: nowMs, lacks: map[K]lack{}, leads: map[K]uint64{}}
}

// Equal says that a node has all that is here.
func (t *Table[K]) Equal(n lattice.NodeID, nowMs int64) {
	t.Met(n, nowMs)
	t.nodes[n].old = nil
}

// Has says how much of a log a node has. Of a node that was not met it is passed over.
func (t *Table[K]) Has(n lattice.NodeID, k K, has uint64, nowMs int64) {
	x := t.nodes[n]
	if x == nil {
		return
	}
	delete(x.leads, k)
	if here := t.here(k); has >= here {
		if delete(x.lacks, k); has > here && len(x.leads) < maxLogs {
			x.leads[k] = has
		}
		return
	}
	x.put(k, has, nowMs)
}

func (x *node[K]) put(k K, has uint64, nowMs int64) {
	was, ok := x.lacks[k]
	switch {
	case ok:
		x.lacks[k] = lack{has, was.since}
	case len(x.lacks) >= maxLogs:
		x.more = true
	default:
		if was, ok = x.old[k]; ok {
			nowMs = was.since
		}
		x.lacks[k] = lack{has, nowMs}
	}
}

// Grown says that a log is here further than from. Whoever was known to have it up to there
// lacks the rest from now on; but is the node that it came from, which has it, or none.
func (t *Table[K]) Grown(k K, from uint64, is lattice.NodeID, nowMs int64) {
	for id, x := range t.nodes {
		if id == is {
			continue
		}
		has := max(from, x.leads[k])
		if has > t.here(k) {
			continue
		}
		delete(x.leads, k)
		if _, ok := x.lacks[k]; !ok && has < t.here(k) {
			x.put(k, has, nowMs)
		}
	}
	if is != (lattice.NodeID{}) {
		t.Has(is, k, t.here(k), nowMs)
	}
}

// Gone says that there is no such log any more.
func (t *Table[K]) Gone(k K) {
	for _, x := range t.nodes {
		delete(x.lacks, k)
		delete(x.leads, k)
	}
}

// Sum returns what a node lacks.
func (t *Table[K]) Sum(n lattice.NodeID) Sum {
	x := t.nodes[n]
	if x == nil {
		return Sum{}
	}
	s := Sum{Known: true, More: x.more}
	for k, l := range x.lacks {
		if b := (Lack[K]{Has: l.has, Here: t.here(k)}).Behind(); b > 0 {
			s.Logs++
			s.Behind += b
			if s.Since == 0 || l.since < s.Since {
				s.Since = l.since
			}
		}
	}
	return s
}

// Worst returns the logs of which a node lacks most, at most n, the worst first; of equal
// ones what it lacks longest, and then by order.
func (t *Table[K]) Worst(id lattice.NodeID, n int, order func(a, b K) int) []Lack[K] {
	x := t.nodes[id]
	if x == nil {
		return nil
	}
	var out []Lack[K]
	worse := func(a, b Lack[K]) int {
		return cmp.Or(cmp.Compare(b.Behind(), a.Behind()), cmp.Compare(a.Since, b.Since), order(a.Log, b.Log))
	}
	for k, l := range x.lacks {
		y := Lack[K]{Log: k, Has: l.has, Here: t.here(k), Since: l.since}
		if y.Behind() == 0 {
			continue
		}
		out = append(out, y)
		if len(out) >= 2*n+64 { // so that many cost little memory
			slices.SortFunc(out, worse)
			out = out[:n]
		}
	}
	slices.SortFunc(out, worse)
	return out[:min(len(out), n)]
}

// Alone returns the logs of which no node of those given has all that is here, each with what
// the one has that has most: at most n, and whether there are more. A node that is not known
// is taken for one that has nothing new: with no known one there is nothing to say, and ok is
// false.
func (t *Table[K]) Alone(of []lattice.NodeID, n int) (all []Lack[K], more, ok bool) {
	var least *node[K]
	var known []*node[K]
	for _, id := range of {
		if x := t.nodes[id]; x != nil {
			known = append(known, x)
			if least == nil || len(x.lacks) < len(least.lacks) {
				least = x
			}
		}
	}
	if least == nil {
		return nil, false, false
	}
	for k, l := range least.lacks {
		y := Lack[K]{Log: k, Has: l.has, Here: t.here(k), Since: l.since}
		for _, x := range known {
			o, lacks := x.lacks[k]
			if !lacks {
				y.Has = y.Here
				break
			}
			if o.has > y.Has {
				y.Has, y.Since = o.has, o.since
			}
		}
		if y.Behind() == 0 {
			continue
		}
		if len(all) >= n {
			return all, true, true
		}
		all = append(all, y)
	}
	return all, least.more, true
}
