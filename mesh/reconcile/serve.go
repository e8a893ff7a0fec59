package reconcile

import (
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// serving is a log that a peer wants.
type serving struct {
	log     *log
	ask     uint32
	after   uint64 // what the peer has, or was read for it
	upto    uint64
	live    bool // it had all that is here once
	queued  bool
	reading bool
	over    bool // replaced or ended: what is read for it is not sent
}

// reading is what Loaded needs to know of a Read.
type reading struct {
	peer   *peer
	serves *serving
	log    *log
	search *search
	fork   bool
	cut    uint64
	held   int
}

// logName is the log's name in the origin of its checkpoints.
func logName(w state.Writer) string {
	return w.Author.String() + "/" + uitoa(w.Incarnation)
}

// want hears what a peer wants.
func (r *Replica) want(p *peer, m Want) error {
	for _, s := range m.Spans {
		k := LogKey(s.Log)
		if old := p.serving[k]; old != nil {
			r.stop(p, old)
		}
		l := r.logs[k]
		switch {
		case s.Upto != 0 && s.Upto <= s.After, l == nil || l.durable.Tip.Seq == 0:
		case s.After+1 < l.first:
			r.send(p, Pruned{s.Log, l.first, r.snapshot})
		case len(p.serving) >= r.c.MaxLogs:
			return fault(TooMuch, "it wants more than %d logs", r.c.MaxLogs)
		default:
			x := &serving{log: l, ask: s.Ask, after: s.After, upto: s.Upto}
			if x.upto == 0 {
				x.upto = 1<<64 - 1
			}
			p.serving[k] = x
			r.lags.Has(p.id, k, s.After, r.now)
			r.ready(p, x)
		}
	}
	over := func(x *serving) bool { return x.over }
	if len(p.live)+len(p.bulk) > 2*len(p.serving)+64 { // of logs that it wanted again and again
		p.live, p.bulk = slices.DeleteFunc(p.live, over), slices.DeleteFunc(p.bulk, over)
	}
	for _, a := range m.Forks {
		if at, ok := r.forks[a]; ok {
			if err := r.charge(p, 4096); err != nil {
				return err
			}
			r.read(reading{peer: p, fork: true}, Read{Peer: p.id, Log: state.Writer{Author: a, Incarnation: at.Incarnation}, After: at.Seq - 1, Upto: at.Seq, Fork: true})
		}
	}
	for _, tp := range m.Partitions {
		h := r.parts[tp]
		if h == nil {
			continue
		}
		for _, part := range h.statements() {
			m := Statements{tp, part}
			if err := r.charge(p, len(m.appendTo(nil))); err != nil {
				return err
			}
			r.send(p, m)
		}
	}
	return nil
}

func (r *Replica) read(x reading, ask Read) {
	ask.ID = r.nextID()
	r.reads[ask.ID] = x
	r.eff.Read = append(r.eff.Read, ask)
}

// limit returns the last entry that can be served to the peer now.
func (x *serving) limit() uint64 { return min(x.log.durable.Tip.Seq, x.upto) }

// ready puts a log into the circle if there is something to send.
func (r *Replica) ready(p *peer, x *serving) {
	switch {
	case x.queued || x.reading || x.over:
	case x.after >= x.limit():
		x.live = true
		if x.after >= x.upto {
			r.stop(p, x)
		}
	default:
		x.queued = true
		if x.live {
			p.live = append(p.live, x)
		} else {
			p.bulk = append(p.bulk, x)
		}
	}
}

// stop ends serving a log.
func (r *Replica) stop(p *peer, x *serving) {
	x.over = true
	delete(p.serving, x.log.key)
}

// next takes the log whose turn it is: of four turns three are for new writes, if
// there are any.
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
	for len(p.ready) > 0 && p.credit > 0 {
		r.transmit(p, p.ready[0])
		p.ready = p.ready[1:]
	}
	for p.reading < r.c.Reads && len(p.ready) == 0 && p.credit > p.held {
		x := p.next()
		if x == nil {
			return
		}
		turn := min(r.c.Turn, p.credit-p.held)
		x.reading = true
		p.reading++
		p.held += turn
		r.read(reading{peer: p, serves: x, log: x.log, held: turn}, Read{Peer: p.id, Log: x.log.writer, After: x.after, Upto: x.limit(), Max: turn})
	}
}

// Size returns the length of a message of blocks, with its header.
func Size(m Blocks) int {
	n := HeaderSize + writerSize + 4 + 8 + 4 + 2 + len(m.Note) + 2 + 32*(len(m.Left)+len(m.Proof))
	for _, e := range m.Entries {
		n += 4 + len(e)
	}
	return n
}

func (r *Replica) transmit(p *peer, m Blocks) {
	size := Size(m)
	p.credit -= size
	p.out += uint64(size)
	r.eff.Send = append(r.eff.Send, Send{p.id, m})
}

// Loaded takes what was read.
func (r *Replica) Loaded(got Loaded, nowMs int64) Effects {
	r.now = nowMs
	x, ok := r.reads[got.ID]
	if !ok {
		return r.done()
	}
	delete(r.reads, got.ID)
	switch {
	case x.search != nil:
		r.mine(x.log, x.search, got)
	case x.cut != 0:
		r.lookedUp(x, got)
	case x.peer.gone:
	case x.fork:
		if got.Err == nil && len(got.Entries) == 2 {
			r.send(x.peer, Fork{got.Entries[0], got.Entries[1]})
		}
	default:
		r.loadedFor(x, got)
	}
	return r.done()
}

// lookedUp takes the entry before a fork.
func (r *Replica) lookedUp(x reading, got Loaded) {
	l := x.log
	if got.Err != nil || len(got.Entries) == 0 || r.logs[l.key] != l || l.cutAt != x.cut {
		return
	}
	if e, err := sigchain.Parse(got.Entries[0]); err == nil && e.Seq == x.cut {
		l.cutID = e.ID
		r.grown(l, nil)
	}
}

func (r *Replica) loadedFor(x reading, got Loaded) {
	p, s := x.peer, x.serves
	p.reading--
	p.held -= x.held
	s.reading = false
	switch {
	case s.over:
		return
	case lattice.KindOf(got.Err) == lattice.OutOfRange && got.Err != nil:
		r.stop(p, s)
		r.send(p, Pruned{s.log.writer, got.First, got.Snapshot})
		return
	case got.Err != nil || len(got.Entries) == 0:
		// What cannot be read is not served; the peer finds another source.
		r.stop(p, s)
		return
	}
	m := Blocks{Log: s.log.writer, Ask: s.ask, After: s.after, Entries: got.Entries, Note: got.Note, Left: got.Left, Proof: got.Proof}
	s.after += uint64(len(got.Entries))
	r.lags.Has(p.id, s.log.key, s.after, r.now)
	if p.credit > 0 && len(p.ready) == 0 {
		r.transmit(p, m)
	} else {
		p.ready = append(p.ready, m)
	}
	r.ready(p, s)
}

// pruned hears that what was wanted is not there any more.
func (r *Replica) pruned(p *peer, m Pruned) {
	l := r.logs[LogKey(m.Log)]
	if l == nil {
		return
	}
	if l.search != nil && l.search.peer == p {
		r.unshown(l, NotShown)
		return
	}
	if l.source != p {
		return
	}
	after := l.chain.Tip.Seq
	r.unsource(l)
	if m.First <= after+1 {
		r.refuse(p, l.writer, after+1, NotShown, nil)
	} else {
		r.eff.Snapshots = append(r.eff.Snapshots, SnapshotOffer{p.id, l.writer, m.First, m.Snapshot})
	}
	r.keepOff(p, l.key)
}
