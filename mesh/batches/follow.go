package batches

import (
	"fmt"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

func (r *Replica) learnAll(p *peer, items []Item) error {
	for _, i := range items {
		if err := r.learn(p, i); err != nil {
			return err
		}
	}
	return nil
}

// learn hears how far a peer is with one partition.
func (r *Replica) learn(p *peer, i Item) error {
	r.lags.Has(p.id, i.Partition, i.Size, r.now)
	if t := r.parts[i.Partition]; t != nil {
		switch {
		case t.leader == r.c.Node || r.barred(p, t.id):
			return nil // its own, of which another can have no more that counts; or it failed with it
		case i.Size == t.here.Proven && i.Root != t.here.Root:
			r.refuse(p, t.id, i.Size, reconcile.Rewritten, fmt.Errorf("it has other batches up to leaf %d", i.Size))
			r.keepOff(p, t.id)
			return nil
		case i.Size <= t.here.Size:
			return nil
		}
	}
	if _, ok := p.has[i.Partition]; !ok && len(p.has) >= r.c.MaxPartitions {
		return fault(reconcile.TooMuch, "it has more of over %d partitions", r.c.MaxPartitions)
	}
	p.has[i.Partition], p.settled = i, false
	r.todo[i.Partition] = true
	return nil
}

// choose finds a source for each partition that somebody has more of.
func (r *Replica) choose() {
	if r.now < r.paused || len(r.todo) == 0 {
		return
	}
	for _, id := range slices.SortedFunc(maps.Keys(r.todo), comparePartitions) {
		t := r.parts[id]
		if t == nil || t.leader == r.c.Node {
			continue
		}
		p := r.best(t)
		switch {
		case p == nil:
		case t.source == nil:
			r.follow(t, p)
		case p.id == t.leader && t.source != p: // it is there now, and is ahead
			r.unfollow(t)
			r.follow(t, p)
		}
	}
	clear(r.todo)
}

// best returns the peer at which to follow a partition: its leader, or one that has
// most of it, and of those the one at which fewest are followed.
func (r *Replica) best(t *part) *peer {
	var best *peer
	for _, p := range r.peers {
		i, ok := p.has[t.id]
		switch {
		case !ok:
		case i.Size <= t.next, r.barred(p, t.id):
			if i.Size <= t.here.Size || r.barred(p, t.id) {
				delete(p.has, t.id)
			}
		case p.id == t.leader:
			return p
		case best == nil || i.Size > best.has[t.id].Size || i.Size == best.has[t.id].Size && p.sources < best.sources:
			best = p
		}
	}
	return best
}

// follow wants what is behind the end of a partition, and all that will follow.
func (r *Replica) follow(t *part, p *peer) {
	r.asks++
	t.source, t.ask, t.moved, t.count = p, r.asks, r.now, p.count
	p.sources++
	p.tellAcks(t)
	p.follows = append(p.follows, Follow{t.id, t.ask, t.at()})
}

// unfollow ends following a partition, and tells its source.
func (r *Replica) unfollow(t *part) {
	p := t.source
	r.unsource(t)
	p.follows = append(p.follows, Follow{Partition: t.id})
}

// unsource ends following a partition. Others are asked.
func (r *Replica) unsource(t *part) {
	if t.source != nil {
		t.source.sources--
		t.source.stale = max(t.source.granted, 0) // so much may be on its way
		t.source = nil
	}
	t.jump = 0
	r.todo[t.id] = true
}

// giveUp ends following a partition at a peer, which is told why, for a while.
func (r *Replica) giveUp(t *part, p *peer, ask uint32, reason Reason) {
	if t.source == p {
		r.unsource(t)
	}
	r.keepOff(p, t.id)
	if reason.Wrong() {
		p.strikes++
	}
	if !p.gone {
		r.send(p, Refuse{t.id, ask, reason})
	}
}

// span takes a span of a partition that is followed.
func (r *Replica) span(p *peer, m Spans, size int) error {
	if p.granted <= 0 {
		return fault(reconcile.TooMuch, "spans without credit")
	}
	p.granted -= size
	s := m.Span
	t := r.parts[s.Partition]
	if t == nil || t.source != p || t.ask != m.Ask {
		p.owed += size // it was followed before, or never
		if m.Ask == 0 || m.Ask > r.asks {
			r.refuse(p, s.Partition, s.From, reconcile.NotAsked, nil)
			p.strikes++
		} else if p.stale > 0 { // it was on its way
			p.stale -= size
			return nil
		}
		return r.charge(p, size)
	}
	end := s.From + uint64(len(s.Batches))
	if s.From != t.at() {
		p.owed += size
		r.refuse(p, t.id, t.at(), reconcile.Hole, fmt.Errorf("it begins at leaf %d", s.From))
		r.giveUp(t, p, m.Ask, reconcile.Hole)
		return nil
	}
	p.count++
	t.next, t.jump, t.moved, t.count, p.heard = end, 0, r.now, p.count, r.now
	if m.Size > end && p.has[t.id].Size < m.Size {
		if _, ok := p.has[t.id]; ok || len(p.has) < r.c.MaxPartitions {
			p.has[t.id], p.settled = Item{Partition: t.id, Size: m.Size}, false
		}
	}
	id := r.nextID()
	r.stores[id] = storing{peer: p, part: t, epoch: t.epoch, cuts: t.cuts, ask: m.Ask, cost: size, end: end}
	r.eff.Receive = append(r.eff.Receive, Receive{id, p.id, s})
	return nil
}

// ended hears that no more comes of a partition.
func (r *Replica) ended(p *peer, m Ended) {
	t := r.parts[m.Partition]
	if t == nil || t.source != p || t.ask != m.Ask {
		return
	}
	if m.First > t.at() && t.jump == 0 {
		// Whether that much was truncated, its signed checkpoint must say, and the log checks.
		r.unsource(t)
		t.jump = m.First
		r.follow(t, p)
		return
	}
	r.refuse(p, t.id, t.at(), reconcile.NotShown, nil)
	r.giveUp(t, p, m.Ask, reconcile.NotShown)
}

// Received says where a partition's log is, durably, after a Receive: behind the span,
// or before it or within it, with what was wrong with the next batch. An err of Kind
// Storage or Unavailable is tried again after a while; with any other the partition
// is not followed at that peer for longer. The log must refuse spans that come behind
// a refused one.
func (r *Replica) Received(id uint64, at Where, err error, nowMs int64) Effects {
	r.now = nowMs
	s, ok := r.stores[id]
	if !ok {
		return r.done()
	}
	delete(r.stores, id)
	s.peer.owed += s.cost
	t := s.part
	if t.gone || s.cuts != t.cuts {
		return r.done()
	}
	before := t.here.Size
	r.comes(t, at, s.peer)
	r.taken += t.here.Size - before
	if err == nil && t.here.Size < s.end {
		err = lattice.E(lattice.Internal, fmt.Errorf("the log is at leaf %d after a span up to %d", t.here.Size, s.end))
	}
	if err != nil && s.epoch == t.epoch {
		r.failed(t, s, err)
	}
	return r.done()
}

func (r *Replica) failed(t *part, s storing, err error) {
	t.next, t.epoch, r.todo[t.id] = t.here.Size, t.epoch+1, true
	reason := reasonOf(err)
	r.refuse(s.peer, t.id, t.here.Size, reason, err)
	if reason != reconcile.NotStored {
		r.giveUp(t, s.peer, s.ask, reason)
		return
	}
	r.paused = r.now + r.c.RetryMs
	if p := t.source; p != nil {
		r.unfollow(t)
		if i, ok := p.has[t.id]; !ok || i.Size < s.end {
			p.has[t.id] = Item{Partition: t.id, Size: s.end}
		}
	}
}

// reasonOf names why a log did not take a span.
func reasonOf(err error) Reason {
	switch lattice.KindOf(err) {
	case lattice.Storage, lattice.Unavailable:
		return reconcile.NotStored
	case lattice.Corrupt, lattice.Invalid:
		return reconcile.Unproven
	case lattice.Denied:
		return reconcile.NotEntitled
	case lattice.Diverged, lattice.Fenced:
		return reconcile.Rewritten
	case lattice.NotYet, lattice.OutOfRange:
		return reconcile.Hole
	case lattice.TooLarge:
		return reconcile.Oversize
	}
	return reconcile.NotTaken
}
