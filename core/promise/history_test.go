package promise

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/merkle"
)

// TestHistories draws histories of members that lead, follow, acknowledge, crash, are
// candidates at once and are removed, over a network that loses, repeats and reorders.
// In each: what min members acknowledged is in the log of every later leader, and no
// (term, offset) names two records.
func TestHistories(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 400
	}
	led, committed := 0, 0
	for seed := range n {
		w := newWorld(t, uint64(seed))
		for range 300 {
			w.act()
		}
		w.end()
		led, committed = led+w.led, committed+len(w.committed)
	}
	if led < 2*n || committed < 5*n { // else nothing was tried
		t.Fatalf("%d takeovers and %d committed records in %d histories", led, committed, n)
	}
}

// block is a record in a term.
type block struct {
	term int32
	id   int
}

// member is one node. What is volatile goes with a crash.
type member struct {
	i           int
	key         identity.Key
	log         []block
	held        int32 // term of the newest head that it took
	bound       Bound
	grants      map[lattice.Hash]grant.Signed
	removed     bool
	incarnation uint64

	leads *grant.Signed // volatile, as what follows
	acks  map[int]int   // of the term that it leads: how much each holds
	asks  int32         // the term that it is a candidate for, 0: none
	after lattice.Hash
	got   []Promise
}

// message is on its way: a request for a promise, or one.
type message struct {
	to      int
	promise Promise
	request bool
}

type world struct {
	t         *testing.T
	seed      uint64
	r         *rand.Rand
	all       []*member
	min       int
	bag       []message
	next      int
	written   map[[2]int64]int // (term, offset) -> record
	committed map[int][2]int64 // record -> (term that it was committed in, offset)
	grants    []merge.Term
	led       int
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 1)), written: map[[2]int64]int{}, committed: map[int][2]int64{}}
	n := 1 + w.r.IntN(5)
	w.min = 1 + w.r.IntN(n)
	var set []lattice.AuthorID
	for i := range n {
		w.all = append(w.all, &member{i: i, key: seeded(byte(i + 1)), incarnation: 1, grants: map[lattice.Hash]grant.Signed{}})
		set = append(set, w.all[i].key.Author())
	}
	// The creator's own term, which it sealed for the set.
	first := w.sign(w.all[0], grant.Grant{Leader: set[0], Incarnation: 1, BaseRoot: merkle.EmptyRoot(), AckSet: set[:1], Min: 1, Kind: grant.Self})
	g := w.sign(w.all[0], grant.Grant{
		Term: 1, Leader: set[0], Incarnation: 1, BaseRoot: merkle.EmptyRoot(), Previous: first.ID, AckSet: set, Min: uint16(w.min), Kind: grant.Seal,
	})
	for _, m := range w.all {
		m.grants[first.ID], m.grants[g.ID] = first, g
	}
	w.lead(w.all[0], g)
	return w
}

func (w *world) sign(m *member, g grant.Grant) grant.Signed {
	g.Store, g.Partition = lattice.StoreID{1}, lattice.TopicPartition{Topic: lattice.TopicID{2}}
	s, err := grant.Sign(m.key, g)
	if err != nil {
		w.t.Fatalf("seed %d: %v", w.seed, err)
	}
	w.grants = append(w.grants, merge.TermOf(s))
	return s
}

// ruling is the grant that rules, as far as a member knows.
func (m *member) ruling() grant.Signed {
	var terms []merge.Term
	for _, g := range m.grants {
		terms = append(terms, merge.TermOf(g))
	}
	line := merge.Line(terms)
	return m.grants[line[len(line)-1].ID]
}

// point names a log.
func point(log []block) merge.Point {
	if len(log) == 0 {
		return merge.Empty()
	}
	h := sha256.New()
	for _, b := range log {
		h.Write(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(b.term)), uint64(b.id)))
	}
	return merge.Point{Size: uint64(len(log)), Root: lattice.Hash(h.Sum(nil)), End: int64(len(log))}
}

// hear learns what another knows of grants, and steps back if another leads.
func (m *member) hear(o *member) {
	for id, g := range o.grants {
		m.grants[id] = g
	}
	if rules := m.ruling(); m.leads != nil && rules.ID != m.leads.ID {
		m.leads = nil
	}
}

func (w *world) any() *member { return w.all[w.r.IntN(len(w.all))] }

func (w *world) act() {
	m, o := w.any(), w.any()
	switch w.r.IntN(20) {
	case 0, 1, 2, 3:
		w.write(m)
	case 4, 5, 6, 7, 8:
		w.follow(m, o)
	case 9:
		m.hear(o)
	case 10:
		m.leads, m.asks, m.got = nil, 0, nil
		m.incarnation++
	case 11, 12:
		w.ask(m)
	case 13:
		if w.r.IntN(30) == 0 {
			m.removed = true
		}
	default:
		w.deliver()
	}
}

func (w *world) write(m *member) {
	if m.leads == nil || m.removed {
		return
	}
	w.next++
	at := [2]int64{int64(m.leads.Term), int64(len(m.log))}
	if old, twice := w.written[at]; twice {
		w.t.Fatalf("seed %d: term %d, offset %d names records %d and %d", w.seed, at[0], at[1], old, w.next)
	}
	w.written[at] = w.next
	m.log = append(m.log, block{m.leads.Term, w.next})
	w.commit(m)
}

// follow has a member take something of a leader's log, and acknowledge it.
func (w *world) follow(m, of *member) {
	g := of.leads
	if g == nil || m == of {
		return
	}
	m.hear(of)
	if m.ruling().ID != g.ID || m.bound.Term > g.Term {
		return // fenced
	}
	m.bound.Term = max(m.bound.Term, g.Term)
	if m.bound.Term == g.Term {
		m.bound = Bound{g.Term, g.Leader, g.Incarnation}
	}
	common := 0
	for common < len(m.log) && common < len(of.log) && m.log[common] == of.log[common] {
		common++
	}
	// What lies beyond is of an older term, and stranded.
	upTo := min(len(of.log), max(common, len(m.log))+w.r.IntN(4))
	m.log = slices.Clone(of.log[:max(common, upTo)])
	if uint64(len(m.log)) < g.BaseSize {
		return // not a head of this term yet
	}
	m.held = g.Term
	if !m.removed && w.r.IntN(4) > 0 { // else the acknowledgement is lost
		of.acks[m.i] = max(of.acks[m.i], len(m.log))
		w.commit(of)
	}
}

// commit notes what min of the set hold.
func (w *world) commit(m *member) {
	m.acks[m.i] = len(m.log)
	var sizes []int
	for _, n := range m.acks {
		sizes = append(sizes, n)
	}
	if len(sizes) < w.min {
		return
	}
	slices.Sort(sizes)
	for at, b := range m.log[:sizes[len(sizes)-w.min]] {
		if _, known := w.committed[b.id]; !known {
			w.committed[b.id] = [2]int64{int64(m.leads.Term), int64(at)}
		}
	}
}

// ask makes a member a candidate, who promises to itself first.
func (w *world) ask(m *member) {
	g := m.ruling()
	if m.leads != nil || m.removed {
		return
	}
	term, err := Term(&g, m.key.Author(), m.bound.Term, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	m.asks, m.after, m.got = term, g.ID, nil
	p := Promise{Store: g.Store, Partition: g.Partition, Previous: g.ID, Term: term, Candidate: m.key.Author(), Incarnation: m.incarnation}
	for _, o := range w.all {
		w.bag = append(w.bag, message{o.i, p, true})
	}
	w.promise(m, p)
}

// promise has a member answer a candidate.
func (w *world) promise(m *member, p Promise) {
	g := m.ruling()
	p.Member, p.HeldTerm, p.Held = m.key.Author(), m.held, point(m.log)
	bound, err := m.bound.May(&g, &p)
	if err != nil || m.removed {
		return
	}
	m.bound = bound // durable
	if p.Term > 0 && m.leads != nil && p.Candidate != m.key.Author() {
		m.leads = nil // it promised to follow another
	}
	if p.check() != nil {
		w.t.Fatalf("seed %d: a promise that cannot be signed: %+v", w.seed, p)
	}
	for _, o := range w.all {
		if o.key.Author() == p.Candidate {
			w.bag = append(w.bag, message{o.i, p, false})
		}
	}
}

// deliver takes a message out of the bag, or leaves it there to come again, or loses it.
func (w *world) deliver() {
	if len(w.bag) == 0 {
		return
	}
	i := w.r.IntN(len(w.bag))
	x := w.bag[i]
	if w.r.IntN(4) > 0 {
		w.bag = slices.Delete(w.bag, i, i+1)
	}
	m := w.all[x.to]
	switch {
	case w.r.IntN(8) == 0:
	case x.request:
		w.promise(m, x.promise)
	case m.asks == x.promise.Term && m.incarnation == x.promise.Incarnation && m.after == x.promise.Previous:
		m.got = append(m.got, x.promise)
		w.count(m)
	}
}

// count has a candidate lead, if it can, and has the base.
func (w *world) count(m *member) {
	g := m.ruling()
	if g.ID != m.after {
		m.asks = 0
		return
	}
	votes := func(a lattice.AuthorID) bool {
		return !slices.ContainsFunc(w.all, func(o *member) bool { return o.removed && o.key.Author() == a })
	}
	base, err := Count(&g, m.asks, m.key.Author(), m.incarnation, m.got, votes)
	if err != nil || m.removed || m.bound != (Bound{m.asks, m.key.Author(), m.incarnation}) {
		return
	}
	for _, o := range w.all {
		if n := int(base.Size); n <= len(o.log) && point(o.log[:n]) == base {
			next := w.sign(m, grant.Grant{
				Term: m.asks, Leader: m.key.Author(), Incarnation: m.incarnation, BaseSize: base.Size, BaseRoot: base.Root, BaseOffset: base.End,
				Previous: g.ID, AckSet: g.AckSet, Min: g.Min, Kind: grant.Promises,
			})
			if err := next.Follows(&g); err != nil {
				w.t.Fatalf("seed %d: %v", w.seed, err)
			}
			m.log = slices.Clone(o.log[:n])
			m.grants[next.ID] = next
			w.led++
			w.lead(m, next)
			return
		}
	}
}

func (w *world) lead(m *member, g grant.Signed) {
	m.leads, m.acks, m.held, m.asks, m.got = &g, map[int]int{}, g.Term, 0, nil
	m.bound = Bound{g.Term, g.Leader, g.Incarnation}
	for id, at := range w.committed {
		if at[0] < int64(g.Term) && (int(at[1]) >= len(m.log) || m.log[at[1]].id != id) {
			w.t.Fatalf("seed %d: record %d, committed in term %d at offset %d, is lost in term %d", w.seed, id, at[0], at[1], g.Term)
		}
	}
	w.inForce(m)
	w.commit(m)
}

// inForce fails unless each block of a leader's log is of the term that was in force where
// it stands.
func (w *world) inForce(m *member) {
	var terms []merge.Term
	for _, g := range m.grants {
		terms = append(terms, merge.TermOf(g))
	}
	line := merge.Line(terms)
	for at, b := range m.log {
		i := len(line) - 1
		for line[i].Base.Size > uint64(at) {
			i--
		}
		if line[i].Number != b.term {
			w.t.Fatalf("seed %d: block %d is of term %d, term %d was in force", w.seed, at, b.term, line[i].Number)
		}
	}
}

// end holds what was committed to the terms that rule in the end.
func (w *world) end() {
	line := merge.Line(w.grants)
	rules := map[int64]bool{}
	for _, t := range line {
		rules[int64(t.Number)] = true
	}
	byOffset := map[int64]int{}
	for id, at := range w.committed {
		if !rules[at[0]] {
			w.t.Fatalf("seed %d: record %d was committed in term %d, which lost", w.seed, id, at[0])
		}
		if old, twice := byOffset[at[1]]; twice {
			w.t.Fatalf("seed %d: records %d and %d were committed at offset %d", w.seed, old, id, at[1])
		}
		byOffset[at[1]] = id
	}
}
