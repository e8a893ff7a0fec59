package reconcile

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/sigchain"
)

// storing is what Stored needs to know of a Store.
type storing struct {
	peer  *peer
	log   *log // nil: a fork or statements
	epoch uint32
	cost  int // of credit
	all   []sigchain.Signed
	fork  *ForkProof
	told  *peer // knows the fork
	parts *Statements
}

// checked is the checkpoint of a log's author that was verified last.
type checked struct {
	note string
	size uint64
	root lattice.Hash
}

// blocks takes entries of a log that was wanted.
func (r *Replica) blocks(p *peer, m Blocks, ready Ready) error {
	size := ready.size
	if p.granted <= 0 {
		return fault(TooMuch, "blocks without credit")
	}
	p.granted -= size
	l := r.logs[LogKey(m.Log)]
	switch {
	case l == nil || m.Ask != l.ask || l.search == nil && l.source != p || l.search != nil && l.search.peer != p:
		p.owed += size // it was wanted before, or never
		if m.Ask == 0 || m.Ask > r.asks {
			r.refuse(p, m.Log, m.After+1, NotAsked, nil)
			p.strikes++
		}
		return r.charge(p, size)
	case l.search != nil:
		p.owed += size
		r.shown(l, m)
		return nil
	}
	good, sealed, err := r.verify(l, m, ready)
	if len(good) > 0 {
		l.chain, l.moved, p.heard = behind(l.chain, good), r.now, r.now
		id := r.nextID()
		r.stores[id] = storing{peer: p, log: l, epoch: l.epoch, cost: size, all: good}
		s := Store{ID: id, Peer: p.id, Log: l.writer, Entries: good}
		if err == nil && sealed && l.kept != l.signed.note {
			s.Note, l.kept = m.Note, l.signed.note
		}
		r.eff.Store = append(r.eff.Store, s)
	} else {
		p.owed += size
	}
	if err == nil {
		return nil
	}
	reason, seq := reasonOf(err), l.chain.Tip.Seq+1
	if reason == Rewritten && seq > 1 {
		r.unsource(l)
		r.doubt(l, p, seq-1)
		return nil
	}
	r.refuse(p, l.writer, seq, reason, err)
	r.giveUp(l, p, reason)
	return nil
}

// giveUp stops wanting a log from a peer, which is told why.
func (r *Replica) giveUp(l *log, p *peer, reason Reason) {
	if l.source == p {
		r.unsource(l)
	}
	r.keepOff(p, l.key)
	if reason.Wrong() {
		p.strikes++
	}
	if !p.gone {
		r.send(p, Refuse{l.writer, l.chain.Tip.Seq, reason})
	}
}

// behind is a chain after the last of some entries, of which each comes next.
func behind(c sigchain.Chain, all []sigchain.Signed) sigchain.Chain {
	last := &all[len(all)-1]
	c.Tip, c.Time = last.Link(), last.Time
	return c
}

// verify returns the entries of a message that come next in a log and are
// authentic, and what is wrong with the one after them. sealed says that it was the
// author's checkpoint that verified them.
func (r *Replica) verify(l *log, m Blocks, ready Ready) (good []sigchain.Signed, sealed bool, wrong error) {
	chain, end := l.chain, r.end(l.writer)
	all, known := ready.entries, 0
	wrong = ready.wrong
	for i := range all {
		s := all[i]
		if s.Home() != r.c.Store {
			all, wrong = all[:i], fmt.Errorf("entry %d of %s: %w", s.Seq, s.Author.Short(), sigchain.ErrForeign)
			break
		}
		if s.Seq > end { // beyond a fork that has come to light since it was wanted
			all, wrong = all[:i], nil
			break
		}
		err := chain.Check(s)
		if errors.Is(err, sigchain.ErrKnown) || errors.Is(err, sigchain.ErrOld) {
			known++ // it came twice; such stand before all others
			continue
		}
		if err != nil {
			all, wrong = all[:i], err
			break
		}
		chain = behind(chain, all[:i+1])
	}
	good = all[known:]
	if len(good) == 0 {
		return nil, false, wrong
	}
	if len(all) == len(m.Entries) && r.certified(l, m, ready.leaves) {
		return good, true, nil
	}
	for i := range good {
		if err := good[i].Verify(); err != nil {
			return good[:i], false, err
		}
	}
	return good, false, wrong
}

// certified reports whether the author's checkpoint in a message commits to all of
// its entries, of which these are the leaves.
func (r *Replica) certified(l *log, m Blocks, leaves []lattice.Hash) bool {
	if len(m.Note) == 0 || len(leaves) != len(m.Entries) {
		return false
	}
	if l.signed.note != string(m.Note) {
		c, err := merkle.OpenCheckpoint(m.Note, l.writer.Author)
		if err != nil || c.Origin != merkle.Origin(r.c.Store, logName(l.writer)) {
			return false
		}
		l.signed = checked{string(m.Note), c.Size, c.Root}
	}
	left, err := merkle.NewRange(m.After, m.Left)
	if err != nil {
		return false
	}
	tree := merkle.NewAppender(left)
	for _, leaf := range leaves {
		tree.Append(nil, leaf)
	}
	return tree.Size() <= l.signed.size &&
		merkle.VerifyConsistency(tree.Size(), l.signed.size, m.Proof, tree.Root(), l.signed.root) == nil
}

// Stored says what became of a Store: kept entries of it are durable, and the next
// was refused with err, or err is nil. Of a fork or statements kept does not matter.
// An err of Kind Denied waits for Reconsider, one of Kind Storage or Unavailable is
// tried again after a while; with any other the log is not wanted from the peer
// again. Entries of the same log in later Stores must be refused, too.
func (r *Replica) Stored(id uint64, kept int, err error, nowMs int64) Effects {
	r.now = nowMs
	s, ok := r.stores[id]
	if !ok {
		return r.done() // before a Rebase
	}
	delete(r.stores, id)
	s.peer.owed += s.cost
	switch {
	case s.fork != nil && err == nil:
		r.cut(s.fork.A.Ref().Place(), s.told)
	case s.parts != nil && err == nil:
		_ = r.known(*s.parts) // it was verified before
		r.spread(s.parts.Partition, s.peer)
	case s.log != nil && s.epoch == s.log.epoch:
		r.storedEntries(s, kept, err)
	}
	return r.done()
}

func (r *Replica) storedEntries(s storing, kept int, err error) {
	l := s.log
	if err == nil {
		kept = len(s.all)
	}
	if kept = min(kept, len(s.all)); kept > 0 {
		l.durable = behind(l.durable, s.all[:kept])
		r.taken += uint64(kept)
		r.grown(l, s.peer)
	}
	if err == nil {
		return
	}
	l.chain = l.durable
	l.epoch++
	reason := reasonOf(err)
	r.refuse(s.peer, l.writer, l.durable.Tip.Seq+1, reason, err)
	switch reason {
	case Stranger:
		r.denied[l.writer.Author] = true
		r.unsource(l)
		s.peer.strange = append(s.peer.strange, Item{Key: l.key, N: s.all[len(s.all)-1].Seq})
		delete(s.peer.has, l.key)
		if !s.peer.gone {
			r.send(s.peer, Refuse{l.writer, l.durable.Tip.Seq, reason})
		}
	case NotStored:
		r.paused = r.now + r.c.RetryMs
		p := l.source
		r.unsource(l)
		if p != nil && !p.gone {
			p.has[l.key] = Item{Key: l.key, N: s.all[len(s.all)-1].Seq}
			r.send(p, Refuse{l.writer, l.durable.Tip.Seq, reason})
		}
	default:
		r.giveUp(l, s.peer, reason)
	}
}

// grown spreads that a log has come on durably, by entries from a peer or by its own.
func (r *Replica) grown(l *log, from *peer) {
	l.moved = r.now
	r.cuts = append(r.cuts, l)
	was, _ := r.front.get(l.key)
	if !r.front.set(r.item(l)) {
		return
	}
	source := lattice.NodeID{}
	if from != nil {
		source = from.id
	}
	r.lags.Grown(l.key, was.N, source, r.now)
	tip, end := l.durable.Tip.Seq, r.end(l.writer)
	for _, p := range r.peers {
		if i, ok := p.has[l.key]; ok && min(i.N, end) <= tip {
			delete(p.has, l.key)
		}
		switch {
		case p == from || !p.greeted:
		case p.serving[l.key] != nil:
			r.ready(p, p.serving[l.key])
		case !p.offered[l.key]:
			p.offered[l.key] = true
			p.news = append(p.news, l.key)
		default:
			p.offered[l.key] = true
			p.later = append(p.later, l.key)
		}
	}
}
