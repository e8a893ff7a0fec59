package batches

import (
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// serving is a partition that a peer follows.
type serving struct {
	part    *part
	ask     uint32
	after   uint64 // the leaf that it gets next
	live    bool   // it had all that is here once
	bare    bool   // it follows from where this log ends: it gets the checkpoint alone
	queued  bool
	reading bool
	over    bool // replaced or ended: what is read for it is not sent
}

// reading is what Loaded needs to know of a Read.
type reading struct {
	peer   *peer
	serves *serving
	held   int
}

// followed hears what a peer follows.
func (r *Replica) followed(p *peer, m Follows) error {
	for _, f := range m.All {
		if old := p.serving[f.Partition]; old != nil {
			r.stop(p, old)
		}
		t := r.parts[f.Partition]
		switch {
		case f.Ask == 0:
			if t != nil {
				p.news[t.id] = true // it hears of it all the same, for when it needs another source
			}
		case t == nil:
			r.send(p, Ended{Partition: f.Partition, Ask: f.Ask, Reason: reconcile.NotShown})
		case len(p.serving) >= r.c.MaxPartitions:
			return fault(reconcile.TooMuch, "it follows more than %d partitions", r.c.MaxPartitions)
		default:
			// Who was told that the log begins at its end has nothing to take there, and only
			// the checkpoint says that nothing before it is offered. To version 1 a span
			// without batches is a fault: such a peer hears of it with the next batch.
			x := &serving{part: t, ask: f.Ask, after: f.From, bare: p.version >= VersionAcks && f.From > 0 && f.From == t.here.Proven}
			p.serving[f.Partition] = x
			r.lags.Has(p.id, f.Partition, f.From, r.now)
			p.tellAcks(t)
			r.ready(p, x)
		}
	}
	over := func(x *serving) bool { return x.over }
	if len(p.live)+len(p.bulk)+len(p.waiting) > 2*len(p.serving)+64 { // of what it followed again and again
		p.live, p.bulk, p.waiting = slices.DeleteFunc(p.live, over), slices.DeleteFunc(p.bulk, over), slices.DeleteFunc(p.waiting, over)
	}
	return nil
}

// ready puts a partition into the circle if there is something to send.
func (r *Replica) ready(p *peer, x *serving) {
	switch {
	case x.queued || x.reading || x.over:
	case x.after >= x.part.here.Proven && !x.bare:
		x.live = true
	default:
		x.queued = true
		if x.live {
			p.live = append(p.live, x)
		} else {
			p.bulk = append(p.bulk, x)
		}
	}
}

// stop ends serving a partition.
func (r *Replica) stop(p *peer, x *serving) {
	x.over = true
	if p.serving[x.part.id] == x {
		delete(p.serving, x.part.id)
	}
}

// end is stop, and tells the peer.
func (r *Replica) end(p *peer, x *serving, first uint64, reason Reason) {
	r.stop(p, x)
	r.send(p, Ended{x.part.id, x.ask, first, reason})
}

// next takes the partition whose turn it is: of four turns three are for new batches,
// if there are any.
func (p *peer) next() *serving {
	for len(p.live)+len(p.bulk) > 0 {
		queue := &p.live
		if p.turns++; len(p.live) == 0 || len(p.bulk) > 0 && p.turns%4 == 0 {
			queue = &p.bulk
		}
		x := (*queue)[0]
		if *queue = (*queue)[1:]; len(*queue) == 0 {
			*queue = nil
		}
		x.queued = false
		if !x.over {
			return x
		}
	}
	return nil
}

// serve asks for reads as far as the peer's credit goes.
func (r *Replica) serve(p *peer) {
	for len(p.loaded) > 0 && p.credit > 0 {
		r.transmit(p, p.loaded[0])
		p.loaded = p.loaded[1:]
	}
	for p.reading < r.c.Reads && len(p.loaded) == 0 && p.credit > p.held && (r.c.Unsent == 0 || p.unsent < r.c.Unsent) {
		x := p.next()
		if x == nil {
			return
		}
		turn := r.c.Turn
		if len(p.live)+len(p.bulk) == 0 && p.reading == 0 {
			turn *= 4 // nobody waits for it
		}
		turn = min(turn, p.credit-p.held)
		if x.bare && x.after == x.part.here.Proven {
			turn = 0
		}
		x.reading, x.bare = true, false
		p.reading++
		p.held += turn
		id := r.nextID()
		r.reads[id] = reading{p, x, turn}
		r.eff.Read = append(r.eff.Read, Read{id, p.id, x.part.id, x.after, turn})
	}
}

func (r *Replica) transmit(p *peer, m Spans) {
	p.credit -= Size(m)
	p.unsent += Size(m)
	r.send(p, m)
}

// Loaded takes what was read.
func (r *Replica) Loaded(got Loaded, nowMs int64) Effects {
	r.now = nowMs
	x, ok := r.reads[got.ID]
	if !ok {
		return r.done()
	}
	delete(r.reads, got.ID)
	p, s := x.peer, x.serves
	p.reading--
	p.held -= x.held
	s.reading = false
	m := Spans{s.ask, max(s.part.here.Proven, s.after+uint64(len(got.Span.Batches))), got.Span}
	switch {
	case p.gone || s.over:
	case got.Err != nil && lattice.KindOf(got.Err) == lattice.OutOfRange && got.First > s.after:
		r.end(p, s, got.First, 0)
	case got.Err != nil: // what cannot be read is not served; the peer finds another source
		r.end(p, s, 0, reconcile.NotShown)
	case len(got.Span.Batches) == 0 && len(got.Span.Note) == 0:
		p.waiting = append(p.waiting, s)
	case got.Span.From != s.after || got.Span.Partition != s.part.id:
		r.end(p, s, 0, reconcile.NotShown)
	case !fits(m):
		r.end(p, s, 0, reconcile.Oversize)
	default:
		s.after += uint64(len(got.Span.Batches))
		r.lags.Has(p.id, s.part.id, s.after, r.now)
		if p.credit > 0 && len(p.loaded) == 0 {
			r.transmit(p, m)
		} else {
			p.loaded = append(p.loaded, m)
		}
		r.ready(p, s)
	}
	return r.done()
}
