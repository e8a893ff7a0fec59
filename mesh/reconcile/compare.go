package reconcile

import (
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// compare asks a peer about all of the frontier.
func (r *Replica) compare(p *peer) {
	p.settled, p.asked = false, r.now
	r.question(p, false, Bound{}, ask(r.front.items, Bound{}))
}

// question sends ranges, in as many messages as they need. Those that ask count
// until their last answer has come.
func (r *Replica) question(p *peer, answers bool, from Bound, all []Range) {
	for {
		n, size := 0, 0
		for n < len(all) && n < maxRanges && size < maxControl/4 {
			size += 64 + len(all[n].Items)*itemSize
			n++
		}
		part := all[:n]
		all = all[n:]
		if slices.ContainsFunc(part, func(x Range) bool { return x.Mode == ModeDigest || x.Mode == ModeItems }) {
			p.questions++
		}
		r.send(p, Ranges{Last: answers && len(all) == 0, From: from, Ranges: merged(part)})
		if len(all) == 0 {
			return
		}
		from = part[n-1].To
	}
}

// merged joins neighbours that are equal.
func merged(all []Range) []Range {
	var out []Range
	for _, x := range all {
		if n := len(out); n > 0 && x.Mode == ModeEqual && out[n-1].Mode == ModeEqual {
			out[n-1].To = x.To
			continue
		}
		out = append(out, x)
	}
	return out
}

func (r *Replica) ranges(p *peer, m Ranges) error {
	if m.Last {
		if p.questions == 0 {
			return fault(BadMessage, "an answer to nothing")
		}
		p.questions--
	}
	var out []Range
	asked, from := false, m.From
	for _, x := range m.Ranges {
		if x.Mode == ModeDigest || x.Mode == ModeItems {
			asked = true
			if err := r.charge(p, len(r.front.between(from, x.To))*4); err != nil {
				return err
			}
		}
		out = append(out, r.front.answer(from, x)...)
		r.lacking(p, from, x)
		from = x.To
	}
	for _, x := range m.Ranges {
		if err := r.learnAll(p, x.Items); err != nil {
			return err
		}
	}
	if asked {
		p.settled = false
		r.question(p, true, m.From, out)
	}
	return nil
}

func (r *Replica) learnAll(p *peer, items []Item) error {
	for _, i := range items {
		if err := r.learn(p, i); err != nil {
			return err
		}
	}
	return nil
}

// learn hears what a peer has of one thing, and wants what is not here.
func (r *Replica) learn(p *peer, i Item) error {
	switch i.Key[0] {
	case keyFork:
		at, theirs := r.forks[i.Key.author()], i.place()
		if at.Seq == 0 || before(theirs, at) {
			p.wants.Forks = append(p.wants.Forks, theirs.Author)
		}
	case keyPartition:
		if mine, ok := r.front.get(i.Key); (!ok || mine != i) && !r.barred(p, i.Key) {
			p.wants.Partitions = append(p.wants.Partitions, i.Key.partition())
		}
	case keyLog:
		r.lags.Has(p.id, i.Key, i.N, r.now)
		return r.learnLog(p, i)
	}
	return nil
}

// before reports whether a fork is earlier than another of its author.
func before(a, b sigchain.Place) bool {
	return a.Incarnation < b.Incarnation || a.Incarnation == b.Incarnation && a.Seq < b.Seq
}

func (r *Replica) learnLog(p *peer, i Item) error {
	if r.barred(p, i.Key) {
		return nil
	}
	l, w := r.logs[i.Key], i.Key.writer()
	n, end := uint64(0), r.end(w)
	if l != nil {
		n = l.chain.Tip.Seq
	}
	switch {
	case n >= end:
		if mine, ok := r.front.get(i.Key); ok && i.N == end && mine.N == end && mine.ID != i.ID && !mine.ID.IsZero() && !i.ID.IsZero() {
			r.doubt(l, p, end)
		}
	case i.N > n:
		if !r.admits(w.Author) {
			if p.strange = append(p.strange, i); len(p.strange) > maxStrange {
				p.strange = p.strange[1:]
			}
			return nil
		}
		if _, ok := p.has[i.Key]; !ok && len(p.has) >= r.c.MaxLogs {
			return fault(TooMuch, "it has more of over %d logs", r.c.MaxLogs)
		}
		p.has[i.Key] = i
		r.todo = append(r.todo, i.Key)
	case i.N == n && l.chain == l.durable && i.ID != l.chain.Tip.ID && !i.ID.IsZero():
		r.doubt(l, p, n)
	}
	return nil
}

// admits reports whether entries of an author may be here.
func (r *Replica) admits(a lattice.AuthorID) bool { return !r.denied[a] && r.c.Admit(a) == nil }

// choose finds a source for each log that somebody has more of.
func (r *Replica) choose() {
	if r.now < r.paused || len(r.todo) == 0 {
		return
	}
	slices.SortFunc(r.todo, Key.compare)
	for _, k := range slices.Compact(r.todo) {
		l := r.logs[k]
		if l != nil && (l.source != nil || l.search != nil) {
			continue
		}
		if p := r.best(k); p != nil {
			r.wantLog(r.open(k.writer()), p)
		}
	}
	r.todo = r.todo[:0]
}

// best returns the peer to want a log from: one that has most of it, and of those
// the one that is the source of fewest.
func (r *Replica) best(k Key) *peer {
	var best *peer
	for _, p := range r.peers {
		i, ok := p.has[k]
		switch {
		case !ok:
		case r.barred(p, k), !r.admits(k.author()):
			delete(p.has, k)
		case best == nil || i.N > best.has[k].N || i.N == best.has[k].N && p.sources < best.sources:
			best = p
		}
	}
	return best
}

// wantLog wants what is behind the tip of a log, and all that will follow.
func (r *Replica) wantLog(l *log, p *peer) {
	span := Span{Log: l.writer, After: l.chain.Tip.Seq}
	if end := r.end(l.writer); end != 1<<64-1 {
		span.Upto = end
	}
	l.source, l.moved = p, r.now
	p.sources++
	r.ask(l, p, span)
}

// ask wants a part of a log. Answers to what was asked before are not looked at.
func (r *Replica) ask(l *log, p *peer, s Span) {
	r.asks++
	l.ask, s.Ask = r.asks, r.asks
	p.wants.Spans = append(p.wants.Spans, s)
}

// unsource ends wanting a log from its source. Others are asked. A log of which
// nothing came is forgotten.
func (r *Replica) unsource(l *log) {
	if l.source != nil {
		l.source.sources--
		l.source = nil
	}
	if l.chain.Tip.Seq == 0 && l.search == nil {
		delete(r.logs, l.key)
	}
	r.todo = append(r.todo, l.key)
}

// idle reports whether nothing is outstanding from a peer.
func (r *Replica) idle(p *peer) bool {
	return !p.asking() && len(p.has) == 0 && len(p.wants.Spans)+len(p.wants.Forks)+len(p.wants.Partitions) == 0
}

// flush sends what has gathered for a peer.
func (r *Replica) flush(p *peer) {
	if !p.greeted {
		return
	}
	r.serve(p)
	for len(p.news) > 0 {
		n := min(len(p.news), maxItems)
		slices.SortFunc(p.news, Key.compare)
		var o Offer
		for _, k := range slices.Compact(p.news[:n]) {
			if i, ok := r.front.get(k); ok {
				o.Items = append(o.Items, i)
			}
		}
		if p.news = p.news[n:]; len(o.Items) > 0 {
			r.send(p, o)
		}
	}
	w := &p.wants
	for len(w.Spans)+len(w.Forks)+len(w.Partitions) > 0 {
		s, f, x := min(len(w.Spans), maxSpans), min(len(w.Forks), maxSpans), min(len(w.Partitions), maxSpans)
		r.send(p, Want{w.Spans[:s:s], w.Forks[:f:f], w.Partitions[:x:x]})
		w.Spans, w.Forks, w.Partitions = w.Spans[s:], w.Forks[f:], w.Partitions[x:]
	}
	*w, p.news = Want{}, nil
	if p.owed > 0 && (p.owed >= r.c.Window/4 || p.granted <= 0) {
		r.send(p, Credit{uint32(p.owed)})
		p.granted += p.owed
		p.owed = 0
	}
	if !p.settled && r.idle(p) {
		p.settled = true
		r.send(p, Frontier{r.front.Root()})
	}
}
