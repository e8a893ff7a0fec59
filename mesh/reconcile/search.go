package reconcile

import (
	"fmt"

	"github.com/lattice-log/lattice/core/sigchain"
)

// search looks for the first place where a peer's log and the one here differ.
// Below lo they are the same, at hi they are not, as far as the peer says the truth.
type search struct {
	peer        *peer
	lo, hi, at  uint64
	here, there *sigchain.Signed // at at
	found       *ForkProof       // at hi
	since       int64
	steps       int
}

// doubt begins to look for where a peer's log leaves the one here, at or before hi.
func (r *Replica) doubt(l *log, p *peer, hi uint64) {
	if l.search != nil || r.barred(p, l.key) || hi > l.durable.Tip.Seq || hi == 0 {
		if hi > l.durable.Tip.Seq { // what is here is not durable yet: later
			r.todo = append(r.todo, l.key)
		}
		return
	}
	if l.source != nil {
		r.unsource(l)
	}
	l.search = &search{peer: p, lo: l.first - 1, hi: hi, at: hi}
	r.probe(l)
}

// probe asks both sides for the entry at one place.
func (r *Replica) probe(l *log) {
	s := l.search
	s.here, s.there, s.since = nil, nil, r.now
	if s.steps++; s.at <= s.lo || s.steps > 70 {
		r.unshown(l, Rewritten)
		return
	}
	r.ask(l, s.peer, Span{Log: l.writer, After: s.at - 1, Upto: s.at})
	r.read(reading{search: s, log: l}, Read{Log: l.writer, After: s.at - 1, Upto: s.at, Max: 1})
}

// unshown ends a search without a proof.
func (r *Replica) unshown(l *log, reason Reason) {
	s := l.search
	r.endSearch(l)
	r.refuse(s.peer, l.writer, s.at, reason, nil)
	r.giveUp(l, s.peer, reason)
}

// endSearch lets the log be wanted again.
func (r *Replica) endSearch(l *log) {
	l.search = nil
	r.todo = append(r.todo, l.key)
}

// shown takes the peer's entry.
func (r *Replica) shown(l *log, m Blocks) {
	s := l.search
	if m.After != s.at-1 || len(m.Entries) == 0 {
		return // it was on its way when the search began
	}
	e, err := sigchain.Parse(m.Entries[0])
	if err == nil && (e.Home() != r.c.Store || e.Author != l.writer.Author || e.Incarnation != l.writer.Incarnation || e.Seq != s.at) {
		err = fmt.Errorf("entry %d of %s: %w", e.Seq, e.Author.Short(), sigchain.ErrForeign)
	}
	if err == nil {
		err = e.Verify()
	}
	if err != nil {
		r.unshown(l, reasonOf(err))
		return
	}
	s.there = &e
	r.narrow(l)
}

// mine takes the entry of this replica.
func (r *Replica) mine(l *log, s *search, got Loaded) {
	if l.search != s {
		return
	}
	if got.Err != nil || len(got.Entries) == 0 {
		r.unshown(l, Rewritten) // pruned, or damaged
		return
	}
	e, err := sigchain.Parse(got.Entries[0])
	if err != nil || e.Seq != s.at {
		r.unshown(l, Rewritten)
		return
	}
	s.here = &e
	r.narrow(l)
}

func (r *Replica) narrow(l *log) {
	s := l.search
	if s.here == nil || s.there == nil {
		return
	}
	if s.here.ID == s.there.ID {
		s.lo = s.at
	} else {
		s.hi, s.found = s.at, &ForkProof{*s.here, *s.there}
	}
	switch {
	case s.found == nil: // at hi they are the same: the peer said what is not so, or has come on
		r.endSearch(l)
		r.refuse(s.peer, l.writer, s.at, NotShown, nil)
		r.giveUp(l, s.peer, NotShown)
		return
	case s.hi == s.lo+1:
		p := s.peer
		delete(p.has, l.key) // up to there all is here
		r.endSearch(l)
		r.keepFork(p, nil, *s.found)
		return
	}
	s.at = s.lo + (s.hi-s.lo)/2
	r.probe(l)
}

// keepFork has the proof of a fork stored. told, if not nil, knows it already.
func (r *Replica) keepFork(p, told *peer, f ForkProof) {
	at := f.A.Ref().Place()
	if have, ok := r.forks[at.Author]; ok && !before(at, have) {
		return
	}
	for _, s := range r.stores {
		// A store keeps one proof for an author, the last that it is handed: a later
		// place must not follow an earlier one that is on its way.
		if s.fork != nil && s.fork.A.Author == at.Author && !before(at, s.fork.A.Ref().Place()) {
			return
		}
	}
	id := r.nextID()
	r.stores[id] = storing{peer: p, told: told, fork: &f}
	r.eff.Store = append(r.eff.Store, Store{ID: id, Peer: p.id, Log: logOf(at), Fork: &f})
}

// forked takes the proof of a fork from a peer.
func (r *Replica) forked(p *peer, m Fork) {
	var all [2]sigchain.Signed
	for i, b := range [][]byte{m.A, m.B} {
		e, err := sigchain.Parse(b)
		if err == nil && i == 0 {
			if have, ok := r.forks[e.Author]; ok && !before(e.Ref().Place(), have) {
				return // known: nothing more is looked at
			}
		}
		if err == nil && e.Home() != r.c.Store {
			err = fmt.Errorf("entry %d of %s: %w", e.Seq, e.Author.Short(), sigchain.ErrForeign)
		}
		if err == nil {
			err = e.Verify()
		}
		if err != nil {
			r.refuse(p, logOf(e.Ref().Place()), e.Seq, reasonOf(err), err)
			return
		}
		all[i] = e
	}
	at := all[0].Ref().Place()
	switch {
	case !sigchain.Equivocation(all[0], all[1]):
		r.refuse(p, logOf(at), at.Seq, NotShown, nil)
	case !r.admits(at.Author):
		r.refuse(p, logOf(at), at.Seq, Stranger, nil)
	default:
		r.keepFork(p, p, ForkProof{all[0], all[1]})
	}
}

// cut ends an author's logs before a fork, which is durable, and tells everyone.
func (r *Replica) cut(at sigchain.Place, from *peer) {
	if have, ok := r.forks[at.Author]; ok && !before(at, have) {
		return
	}
	r.forks[at.Author] = at
	r.front.set(forkItem(at))
	for _, p := range r.peers {
		for k := range p.has {
			if k[0] == keyLog && k.author() == at.Author {
				r.todo = append(r.todo, k)
			}
		}
		if p != from && p.greeted {
			p.news = append(p.news, ForkKey(at.Author))
		}
	}
	for _, k := range r.keys() {
		l := r.logs[k]
		if l == nil || l.writer.Author != at.Author {
			continue
		}
		r.front.set(r.item(l))
		r.cuts = append(r.cuts, l)
		if l.search != nil && l.search.hi > r.end(l.writer) {
			r.endSearch(l)
		}
		if l.source != nil { // it is wanted again, up to the end
			r.unsource(l)
		}
		r.todo = append(r.todo, l.key)
		for _, p := range r.peers {
			if i, ok := p.has[l.key]; ok && min(i.N, r.end(l.writer)) <= l.durable.Tip.Seq {
				delete(p.has, l.key)
			}
		}
	}
}
