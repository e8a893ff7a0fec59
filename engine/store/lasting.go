package store

import (
	"context"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
)

// standing returns how a member stands. Wraps ErrNoMember.
func (s *Store) standing(node lattice.NodeID) (roster.Standing, error) {
	var out roster.Standing
	found := false
	s.state.ReadRoster(func(r *roster.Roster) {
		for _, st := range r.Standings() {
			if st.Author == node {
				out, found = st, true
			}
		}
	})
	if !found {
		return out, fmt.Errorf("%s: %w", node.Short(), ErrNoMember)
	}
	return out, nil
}

// SetRole gives a member another role, or one that was removed a role again, if this
// node may do so in spite of all that removed it. A lesser role takes two entries: what
// the member wrote that is not here counts no more, as by Remove. A crash between them
// leaves it removed, and asking again goes on from there. Kinds NotFound (ErrNoMember),
// Denied (ErrRole).
func (s *Store) SetRole(ctx context.Context, node lattice.NodeID, role roster.Role) error {
	s.memberMu.Lock()
	defer s.memberMu.Unlock()
	what := fmt.Sprintf("make %s %s", node.Short(), roleName(role))
	st, err := s.standing(node)
	switch {
	case err != nil:
		return err
	case st.Creator:
		return fmt.Errorf("%s: %w: it made the store, and is its owner for ever", what, ErrRole)
	case st.Role == role:
		return nil
	}
	m := roster.Member{Author: node, Role: role}
	if err := s.mayGrant(max(m.Needs(), st.Role), what); err != nil {
		return err
	}
	if st.Role < role && st.Role > roster.None {
		op, err := m.Op()
		if err != nil {
			return err
		}
		return s.enter(ctx, op)
	}
	if st.Role > role {
		if err := s.remove(ctx, node); err != nil {
			return err
		}
		if st, err = s.standing(node); err != nil {
			return err
		}
	}
	if err := s.mayLift(st, what); err != nil {
		return err
	}
	op, err := roster.Return{Member: m, Lifts: st.Removed}.Op()
	if err != nil {
		return err
	}
	return s.enter(ctx, op)
}

// mayLift checks that what this node says counts in spite of all that removed a member.
func (s *Store) mayLift(st roster.Standing, what string) error {
	own := s.state.Role()
	for _, at := range st.Removed {
		by, err := s.standing(at.Author)
		if err == nil && (by.Creator && at.Author != s.info.Node || by.Role > own) {
			return fmt.Errorf("%s: %w: %s removed it, whose role is %s", what, ErrRole, at.Author.Short(), by.Role)
		}
	}
	return nil
}

// remove cuts a member off behind what is here of it.
func (s *Store) remove(ctx context.Context, node lattice.NodeID) error {
	rm := roster.Remove{Author: node}
	for _, c := range s.state.AuthorChains(node) {
		rm.Cut = append(rm.Cut, c.Tip)
	}
	op, err := rm.Op()
	if err != nil {
		return err
	}
	return s.enter(ctx, op)
}

// Adopted says what an adoption did.
type Adopted struct {
	Node    lattice.NodeID
	Entries uint64 // that did not count, and do now
}

// Adopt lets what a removed member wrote beyond the cut count after all, as far as it is
// here. The member stays removed. Kinds NotFound (ErrNoMember), Denied (ErrRole), Conflict
// (it was not removed, or nothing of it is here that does not count).
func (s *Store) Adopt(ctx context.Context, node lattice.NodeID) (Adopted, error) {
	s.memberMu.Lock()
	defer s.memberMu.Unlock()
	out := Adopted{Node: node}
	st, err := s.standing(node)
	if err != nil {
		return out, err
	}
	what := "adopt what " + node.Short() + " wrote"
	if len(st.Removed) == 0 {
		return out, lattice.E(lattice.Conflict, fmt.Errorf("%s: it was not removed", what))
	}
	if err := s.mayGrant(roster.Admin, what); err != nil {
		return out, err
	}
	if err := s.mayLift(st, what); err != nil {
		return out, err
	}
	a := roster.Adopt{Author: node, Lifts: st.Removed}
	for _, c := range s.state.AuthorChains(node) {
		a.Upto = append(a.Upto, c.Tip)
	}
	for _, m := range s.Members() {
		if m.Node == node {
			out.Entries = m.Unseen
		}
	}
	if out.Entries == 0 {
		return out, lattice.E(lattice.Conflict, fmt.Errorf("%s: nothing of it is here that does not count", what))
	}
	op, err := a.Op()
	if err != nil {
		return out, err
	}
	return out, s.enter(ctx, op)
}

// SetDormant says that a member is dormant, so that nobody waits for it, or that it is
// active again. It keeps its role. Kinds NotFound (ErrNoMember), Denied (ErrRole).
func (s *Store) SetDormant(ctx context.Context, node lattice.NodeID, dormant bool) error {
	s.memberMu.Lock()
	defer s.memberMu.Unlock()
	st, err := s.standing(node)
	if err != nil {
		return err
	}
	if st.Dormant == dormant {
		return nil
	}
	var turn uint32
	s.state.ReadRoster(func(r *roster.Roster) { turn, _ = r.Turn(node) })
	p := roster.Presence{Author: node, Turn: turn + 1, Dormant: dormant}
	if p.Turn == 0 {
		return lattice.E(lattice.Conflict, fmt.Errorf("nothing more can be said of whether %s is there", node.Short()))
	}
	if err := s.mayGrant(p.Needs(s.info.Node), "say whether "+node.Short()+" is there"); err != nil {
		return err
	}
	return s.enter(ctx, p.Op())
}

// presenceEvery is how often a node looks who has not been seen for long, and whether it
// is taken for dormant itself.
const presenceEvery = time.Minute

// UseSeen says by what else than their entries members are known to be there: when each
// was connected last; the zero time if that is not known.
func (s *Store) UseSeen(seen func(lattice.NodeID) time.Time) { s.seen.Store(&seen) }

// attend says of members what their absence or return calls for, until ctx ends.
func (s *Store) attend(ctx context.Context) error {
	for {
		due := make(chan struct{}, 1)
		stop := s.cfg.Clock.AfterFunc(presenceEvery, func() { due <- struct{}{} })
		select {
		case <-ctx.Done():
			stop()
			return nil
		case <-due:
		}
		for _, p := range s.absent(s.cfg.Clock.Now()) {
			if err := s.SetDormant(ctx, p.node, p.dormant); err != nil && ctx.Err() == nil {
				s.cfg.Logger.Warn("whether a member is there could not be said", "store", s.info.ID.Short(), "node", p.node.Short(), "err", err)
			}
		}
	}
}

type presence struct {
	node    lattice.NodeID
	dormant bool
}

// absent lists of whom this node has to say that it is dormant, by the policy, or active:
// itself. Of a member that was never seen nothing is said: when it was admitted is older
// than what a clock here knows of it.
func (s *Store) absent(now time.Time) []presence {
	var out []presence
	own := s.state.Role()
	if s.Gone() != nil || own < roster.Reader {
		return nil
	}
	var seen func(lattice.NodeID) time.Time
	if f := s.seen.Load(); f != nil {
		seen = *f
	}
	for _, m := range s.Members() {
		last := m.Last
		if seen != nil {
			if t := seen(m.Node); t.After(last) {
				last = t
			}
		}
		switch {
		case m.Self && m.Dormant:
			out = append(out, presence{m.Node, false})
		case m.Self || m.Dormant || m.Role == roster.None || own < roster.Admin || s.cfg.State.DormantAfter <= 0 || last.IsZero():
		case now.Sub(last) > s.cfg.State.DormantAfter:
			out = append(out, presence{m.Node, true})
		}
	}
	return out
}
