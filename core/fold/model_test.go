package fold

import (
	"bytes"
	"errors"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/watermark"
)

// model says what a set of entries comes to, the slow way: from the whole set at
// once, by the sentences of the package comment, with nothing remembered.
type model struct {
	creator lattice.AuthorID
	forks   map[lattice.AuthorID]sigchain.Place
	live    map[sigchain.Place]sigchain.Signed // before any fork
	order   []sigchain.Signed                  // what has entered, causes first
	in      map[sigchain.Place]bool
	form    map[sigchain.Place]error // nil: in form
	has     map[held]bool
}

func newModel(creator lattice.AuthorID, all []sigchain.Signed, nowMs int64) *model {
	m := &model{creator: creator, forks: map[lattice.AuthorID]sigchain.Place{}, live: map[sigchain.Place]sigchain.Signed{}, in: map[sigchain.Place]bool{}}
	for _, s := range all {
		for _, o := range all {
			p := s.Ref().Place()
			if at, ok := m.forks[s.Author]; sigchain.Equivocation(s, o) && (!ok || p.Compare(at) < 0) {
				m.forks[s.Author] = p
			}
		}
	}
	for _, s := range all {
		if p := s.Ref().Place(); !m.frozen(p) {
			m.live[p] = s
		}
	}
	for again := true; again; {
		again = false
		for _, p := range slices.SortedFunc(maps.Keys(m.live), sigchain.Place.Compare) {
			if !m.in[p] && m.mayEnter(m.live[p], nowMs) {
				m.in[p], again = true, true
				m.order = append(m.order, m.live[p])
			}
		}
	}
	m.form = map[sigchain.Place]error{}
	for _, s := range m.order {
		m.form[s.Ref().Place()] = m.inForm(s)
	}
	m.has = map[held]bool{}
	for above := creatorRank + 1; above > 0; above-- { // by those senior to above-1
		for _, s := range m.order {
			for r := creatorRank; r >= roster.Reader; r-- {
				at := held{s.Ref().Place(), r, above - 1}
				m.has[at] = m.valid(s) && (s.Author == m.creator || m.granted(s, r, above-1))
			}
		}
	}
	return m
}

// creatorRank is above what can be granted.
const creatorRank = roster.Owner + 1

// held is a role at a place, where only removals by those senior to above are asked.
type held struct {
	at          sigchain.Place
	role, above roster.Role
}

func (m *model) frozen(p sigchain.Place) bool {
	at, ok := m.forks[p.Author]
	return ok && p.Compare(at) >= 0
}

func before(s sigchain.Signed) (sigchain.Place, bool) {
	return sigchain.Ref{Author: s.Author, Link: s.Prev}.Place(), !s.Prev.IsZero()
}

func (m *model) mayEnter(s sigchain.Signed, nowMs int64) bool {
	known := func(p sigchain.Place) bool {
		if at := m.forks[p.Author]; m.frozen(p) {
			last := sigchain.Place{Author: p.Author, Incarnation: at.Incarnation, Seq: at.Seq - 1}
			return p.Incarnation > at.Incarnation || at.Seq == 1 || m.in[last]
		}
		return m.in[p]
	}
	if p, ok := before(s); ok && !known(p) {
		return false
	}
	for _, p := range s.Parents {
		if !known(p.Place()) {
			return false
		}
	}
	for _, op := range s.Ops {
		if op.Kind > watermark.KindReport || len(op.Body) > 0 && op.Body[0] == 2 {
			return false
		}
	}
	return !clock.Held(clock.Timestamp(s.Time), nowMs, driftMs)
}

// valid: the chain holds up to s.
func (m *model) valid(s sigchain.Signed) bool {
	p, follows := before(s)
	if !follows {
		for _, o := range m.order {
			if o.Author == s.Author && o.Prev.IsZero() && o.Incarnation < s.Incarnation {
				return false
			}
		}
		return true
	}
	prev, ok := m.live[p]
	return ok && m.in[p] && prev.ID == s.Prev.ID && (s.Seq == 1 || s.Time > prev.Time) && m.valid(prev)
}

// line is s and all that stands before it in its author's chains.
func (m *model) line(s sigchain.Signed) []sigchain.Signed {
	all := []sigchain.Signed{s}
	for {
		p, follows := before(s)
		if !follows || !m.in[p] {
			return all
		}
		s = m.live[p]
		all = append(all, s)
	}
}

// seen is how far s's author had seen each writer.
func (m *model) seen(s sigchain.Signed) state.Frontier {
	f := state.Frontier{}
	raise := func(p sigchain.Place) { f[writerOf(p)] = max(f[writerOf(p)], p.Seq) }
	for _, x := range m.line(s) {
		raise(x.Ref().Place())
		for _, p := range x.Parents {
			raise(p.Place())
		}
	}
	return f
}

func (m *model) inForm(s sigchain.Signed) error {
	own := state.Writer{Author: s.Author, Incarnation: s.Incarnation}
	f := m.seen(s)
	for i, op := range s.Ops {
		switch op.Kind {
		case roster.KindMember:
			if _, err := roster.ParseMember(op); err != nil {
				return err
			}
		case roster.KindRemove:
			if _, err := roster.ParseRemove(op); err != nil {
				return err
			}
		}
		if !state.IsOp(op.Kind) {
			continue
		}
		parsed, err := state.ParseOp(op, own)
		if err != nil {
			return err
		}
		if !seen(parsed, own, s.Seq, uint32(i), f) {
			return ErrUnseen
		}
	}
	return nil
}

func needs(s sigchain.Signed) roster.Role {
	n := roster.Reader
	for _, op := range s.Ops {
		switch op.Kind {
		case roster.KindMember:
			if m, _ := roster.ParseMember(op); m.Role >= roster.Admin {
				n = roster.Owner
			}
			n = max(n, roster.Admin)
		case roster.KindRemove:
			n = max(n, roster.Admin)
		case watermark.KindReport:
		default:
			n = max(n, roster.Writer)
		}
	}
	return n
}

// granted: s, or what stands before it, names a grant of at least role r which
// counts, and no removal that stands, by one not junior to it and senior to above, cuts s off.
func (m *model) granted(s sigchain.Signed, r, above roster.Role) bool {
	for _, x := range m.line(s) {
		for _, p := range x.Parents {
			g, ok := m.live[p.Place()]
			if !ok || g.ID != p.ID || !m.in[p.Place()] || m.form[p.Place()] != nil || !m.has[held{p.Place(), needs(g), above}] {
				continue
			}
			for _, op := range g.Ops {
				member, err := roster.ParseMember(op)
				if err == nil && member.Author == s.Author && member.Role >= r && !m.removed(s, member.Role, above) {
					return true
				}
			}
		}
	}
	return false
}

func (m *model) removed(s sigchain.Signed, role, above roster.Role) bool {
	for _, x := range m.order {
		at := x.Ref().Place()
		stands := false
		for t := max(needs(x), role, above+1, roster.Admin); t <= creatorRank; t++ {
			stands = stands || m.has[held{at, t, t}]
		}
		if !stands || m.form[at] != nil {
			continue
		}
		for _, op := range x.Ops {
			rm, err := roster.ParseRemove(op)
			if err != nil || rm.Author != s.Author {
				continue
			}
			cut := uint64(0)
			for _, l := range rm.Cut {
				if l.Incarnation == s.Incarnation {
					cut = l.Seq
				}
			}
			if s.Seq > cut {
				return true
			}
		}
	}
	return false
}

// effective lists what has an effect, ascending by place.
func (m *model) effective() []sigchain.Place {
	var all []sigchain.Place
	for _, s := range m.order {
		if p := s.Ref().Place(); m.valid(s) && m.form[p] == nil && m.has[held{p, needs(s), roster.None}] {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, sigchain.Place.Compare)
	return all
}

// space folds what has an effect.
func (m *model) space() (*state.Space, error) {
	good := map[sigchain.Place]bool{}
	for _, p := range m.effective() {
		good[p] = true
	}
	s := &state.Space{}
	for _, e := range m.order {
		p := e.Ref().Place()
		if !good[p] {
			s.Pass(writerOf(p), p.Seq)
		} else if err := s.Fold(e); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// waits lists what has not entered and stands before any fork.
func (m *model) waits() []sigchain.Place {
	var all []sigchain.Place
	for p := range m.live {
		if !m.in[p] {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, sigchain.Place.Compare)
	return all
}

var (
	_ = bytes.Equal
	_ = errors.Is
)

// seen reports whether op, as operation number index of entry seq of own, names
// only what its author had seen: named is, for each other writer, the greatest
// sequence number that the chain has named as a parent so far, this entry's
// parents included. Operations before it in the same entry have been seen.
func seen(op state.Op, own state.Writer, seq uint64, index uint32, named state.Frontier) bool {
	for d := range op.Names {
		switch {
		case d.Writer != own && !named.Covers(d),
			d.Writer == own && (d.Seq > seq || d.Seq == seq && d.Index >= index):
			return false
		}
	}
	return true
}
