package fold

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/watermark"
)

// operations are an entry's, as far as they matter here.
type operations struct {
	state   []state.Op // at their index; others nil
	reports []state.Frontier
	roster  roster.Entry // what it says of members and invitations
	needs   roster.Role  // the greatest that one of them needs
	bad     error        // one is malformed
	unknown bool         // one is of a kind or version that is not known here
}

func parse(s sigchain.Signed) operations {
	o := operations{needs: roster.Reader, state: make([]state.Op, len(s.Ops))}
	ops := state.Parser{Own: state.Writer{Author: s.Author, Incarnation: s.Incarnation}, Puts: len(s.Ops)}
	for i, op := range s.Ops {
		needs, err := roster.Writer, error(nil)
		switch op.Kind {
		case sigchain.KindGenesis:
			_, err = sigchain.ParseGenesis(op)
		case sigchain.KindCreateTopic:
			_, err = sigchain.ParseCreateTopic(op)
		case sigchain.KindPrune:
			_, err = sigchain.ParsePrune(op) // says what its author did; changes nothing
		case watermark.KindReport:
			var f state.Frontier
			f, err = watermark.Parse(op)
			o.reports, needs = append(o.reports, f), roster.Reader
		case roster.KindMember, roster.KindRemove, roster.KindInvite, roster.KindRevoke, roster.KindClaim:
			needs, err = parseAdmission(s, op, &o.roster)
		case roster.KindReturn, roster.KindAdopt, roster.KindPresence, roster.KindRotate:
			needs, err = parseLasting(s, op, &o.roster)
		case state.KindPut, state.KindEnd, state.KindExpire:
			o.state[i], err = ops.Parse(op)
			if err == nil {
				needs = needsOf(o.state[i])
			}
		default:
			o.unknown = true
		}
		switch {
		case errors.Is(err, sigchain.ErrVersion):
			o.unknown = true
		case err != nil && o.bad == nil:
			o.bad = fmt.Errorf("operation %d: %w", i, err)
		}
		o.needs = max(o.needs, needs)
	}
	for _, x := range o.roster.Claims { // claim and admission are one entry
		if o.bad == nil && !slices.ContainsFunc(o.roster.Members, func(m roster.Member) bool { return m.Author == x.Author }) {
			o.bad = fmt.Errorf("%w: it claims an invitation for %s and does not admit it", roster.ErrOp, x.Author.Short())
		}
	}
	return o
}

// UncleanMap is the system map of unclean grants (core/grant): only an admin's entries
// change it. Whoever reads it so finds an admin's word.
const UncleanMap = "$unclean"

// needsOf is the role that a change of a key needs.
func needsOf(op state.Op) roster.Role {
	if m, _ := op.Target(); m == UncleanMap {
		return roster.Admin
	}
	return roster.Writer
}

// enrols reports whether the roster must know of an entry.
func (o *operations) enrols() bool { return o.roster.Len() > 0 }

// entry is what an entry says about the roster.
func (o *operations) entry(at sigchain.Ref) roster.Entry {
	e := o.roster
	e.At, e.Needs = at, o.needs
	return e
}

// parseAdmission reads an operation by which members come and go.
func parseAdmission(s sigchain.Signed, op sigchain.Op, e *roster.Entry) (needs roster.Role, err error) {
	switch op.Kind {
	case roster.KindMember:
		var x roster.Member
		x, err = roster.ParseMember(op)
		e.Members, needs = append(e.Members, x), x.Needs()
	case roster.KindRemove:
		var x roster.Remove
		x, err = roster.ParseRemove(op)
		e.Removes, needs = append(e.Removes, x), x.Needs()
	case roster.KindInvite:
		var x roster.Invite
		x, err = roster.ParseInvite(op)
		e.Invites, needs = append(e.Invites, x), x.Needs()
	case roster.KindRevoke:
		var x roster.Revoke
		x, err = roster.ParseRevoke(op)
		e.Revokes, needs = append(e.Revokes, x), x.Needs()
	default:
		var x roster.Claim
		if x, err = roster.ParseClaim(op); err == nil {
			err = x.Verify(s.Home(), s.Author)
		}
		e.Claims, needs = append(e.Claims, x), x.Needs()
	}
	return needs, err
}

// parseLasting reads an operation about a member that is there already, or was.
func parseLasting(s sigchain.Signed, op sigchain.Op, e *roster.Entry) (needs roster.Role, err error) {
	switch op.Kind {
	case roster.KindReturn:
		var x roster.Return
		x, err = roster.ParseReturn(op)
		e.Returns, needs = append(e.Returns, x), x.Needs()
	case roster.KindAdopt:
		var x roster.Adopt
		x, err = roster.ParseAdopt(op)
		e.Adopts, needs = append(e.Adopts, x), x.Needs()
	case roster.KindPresence:
		var x roster.Presence
		x, err = roster.ParsePresence(op)
		e.Presences, needs = append(e.Presences, x), x.Needs(s.Author)
	default:
		var x roster.Rotate
		if x, err = roster.ParseRotate(op); err == nil {
			err = x.Verify(s.Home(), s.Author)
		}
		e.Rotates, needs = append(e.Rotates, x), x.Needs()
	}
	return needs, err
}

// judge says whether an entry, which is the tip of c now, has an effect, and adds
// what it says to the roster.
func (m *Machine) judge(c *chain, s sigchain.Signed, o *operations) Folded {
	at := s.Ref()
	role := m.roster.Role(at.Place())
	m.applied(c, segment{s.Seq, role})
	err := o.bad
	if err == nil {
		err = m.unseen(c, s, o.state)
	}
	if err == nil && o.enrols() {
		m.enrol(o.entry(at))
	}
	switch {
	case s.Seq >= c.limit:
		err = c.why(s.Seq)
	case role < o.needs:
		err = fmt.Errorf("%w: %s, needs %s", ErrRights, role, o.needs)
	}
	if err != nil {
		return Folded{Entry: s, Void: fmt.Errorf("entry %s: %w", at.Place(), err)}
	}
	m.report(at.Place(), o.reports)
	return Folded{Entry: s, Ops: o.state}
}

// enrol adds an entry to the roster, whether it counts or not: that is asked when
// something depends on it.
func (m *Machine) enrol(e roster.Entry) {
	if !m.roster.Add(e) {
		return
	}
	m.changes.entry(e.At)
	if len(e.Removes)+len(e.Adopts)+len(e.Rotates) > 0 { // a return counts from where it is named
		m.recheck()
	}
}

// unseen reports the first operation that names what its author had not seen.
func (m *Machine) unseen(c *chain, s sigchain.Signed, ops []state.Op) error {
	for i, op := range ops {
		var err error
		switch op := op.(type) {
		case nil:
		case *state.Put: // nearly always; as Names, at no cost
			for j := range op.Supersedes {
				if err == nil {
					err = m.knows(c, s.Seq, i, &op.Supersedes[j])
				}
			}
			if err == nil && !op.Under.IsZero() {
				err = m.knows(c, s.Seq, i, &op.Under)
			}
			if sum := op.Payload.Sum; err == nil && sum != nil && !sum.Base.IsZero() {
				err = m.knows(c, s.Seq, i, &sum.Base)
			}
		default:
			for d := range op.Names {
				if err = m.knows(c, s.Seq, i, &d); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// knows reports what keeps operation i of entry seq of c from naming d.
func (m *Machine) knows(c *chain, seq uint64, i int, d *state.Dot) error {
	seen := false
	if d.Writer == c.writer {
		seen = d.Seq < seq || d.Seq == seq && d.Index < uint32(i)
	} else {
		seen = m.sees(c, d.Writer, d.Seq)
	}
	if !seen {
		return fmt.Errorf("operation %d: %w: %s", i, ErrUnseen, *d)
	}
	return nil
}

// segment says with which role a chain was folded from an entry on, up to the
// next segment.
type segment struct {
	from uint64
	role roster.Role
}

func (s segment) compare(o segment) int { return cmp.Compare(s.from, o.from) }

// applied notes the role with which an entry is folded.
func (m *Machine) applied(c *chain, s segment) {
	if n := len(c.applied); n == 0 || c.applied[n-1].role != s.role {
		c.applied = append(c.applied, s)
		m.changes.segment(c, s)
	}
}

// appliedAt returns the role with which an entry was folded.
func (c *chain) appliedAt(seq uint64) roster.Role {
	i, ok := slices.BinarySearchFunc(c.applied, seq, func(s segment, n uint64) int { return cmp.Compare(s.from, n) })
	if !ok {
		i--
	}
	if i < 0 {
		return roster.None
	}
	return c.applied[i].role
}

// recheck finds out whether everything was folded with the role that it has by
// what is known now. A role changes along a chain only where a grant is named, a
// segment was begun, a cut lies, or the chain's limit.
func (m *Machine) recheck() {
	for _, c := range m.chains {
		if m.stale {
			return
		}
		var turns []uint64
		turn := func(seq uint64) {
			if seq > c.base.Seq && seq <= c.tip.Seq {
				turns = append(turns, seq)
			}
		}
		turn(c.base.Seq + 1)
		turn(c.limit)
		for _, n := range c.grants {
			turn(n.seq)
		}
		for _, s := range c.applied {
			turn(s.from)
		}
		for l := range m.roster.Cuts(c.writer.Author) {
			if l.Incarnation == c.writer.Incarnation {
				turn(l.Seq + 1)
			}
		}
		m.stale = slices.ContainsFunc(turns, func(seq uint64) bool {
			return m.roster.Role(c.place(seq)) != c.appliedAt(seq)
		})
	}
}
