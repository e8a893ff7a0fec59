package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
)

// Errors of membership.
var (
	// ErrRole: this node's role is not enough. Kind Denied.
	ErrRole = lattice.E(lattice.Denied, errors.New("this node has no right to do that in the store"))
	// ErrNoMember: nobody of that name is a member. Kind NotFound.
	ErrNoMember = lattice.E(lattice.NotFound, errors.New("no such member"))
)

// MaxInvitation is how long an invitation may be good.
const MaxInvitation = 366 * 24 * time.Hour

// Member is one member of the store, or one that was.
type Member struct {
	Node    lattice.NodeID
	Role    roster.Role // None: it was removed
	Creator bool
	Self    bool
	// Since is when it was made what it is, and By who did; zero for the creator, and
	// where that was pruned.
	Since time.Time
	By    lattice.NodeID
	// RemovedBy removed it, if it was. Unseen is how many of its entries are here that
	// do not count, since whoever removed it had not seen them.
	RemovedBy lattice.NodeID
	Unseen    uint64
	// Forked: it signed two entries for one place. Nothing from there on counts.
	Forked bool
	// Dormant: nobody waits for it. It keeps its role.
	Dormant bool
	// Entries is how many of its entries are here, and Last is the time of the newest.
	Entries uint64
	Last    time.Time
}

// Invitation is what has become of an invitation.
type Invitation struct {
	ID        lattice.Hash
	Inviter   lattice.NodeID
	Role      roster.Role
	Expires   time.Time
	ClaimedBy lattice.NodeID // zero: nobody
	Revoked   bool
}

// State says in a word what has become of it by a time.
func (i Invitation) State(now time.Time) string {
	switch {
	case i.ClaimedBy != lattice.NodeID{}:
		return "used"
	case i.Revoked:
		return "revoked"
	case now.After(i.Expires):
		return "expired"
	}
	return "open"
}

func timeOf(t uint64) time.Time {
	if t == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(t >> 16)).UTC()
}

// Role returns what this node may do in the store, as far as is known here.
func (s *Store) Role() roster.Role { return s.state.Role() }

// mayGrant checks that this node has the right to something that needs a role.
func (s *Store) mayGrant(needs roster.Role, what string) error {
	if have := s.state.Role(); have < needs {
		return fmt.Errorf("%s: %w: it is %s, and that needs %s", what, ErrRole, roleName(have), roleName(needs))
	}
	return nil
}

func roleName(r roster.Role) string {
	switch r {
	case roster.None:
		return "no member, as far as is known here"
	case roster.Admin, roster.Owner:
		return "an " + r.String()
	}
	return "a " + r.String()
}

// Invite makes an invitation, good for one node until it expires, and returns the
// token for it, which is nowhere else. addresses is where this node can be reached,
// which alone redeems it. It is durable when the call returns. Kinds Invalid, Denied
// (ErrRole), TooLarge.
func (s *Store) Invite(ctx context.Context, role roster.Role, good time.Duration, addresses ...string) (invite.Token, Invitation, error) {
	s.memberMu.Lock()
	defer s.memberMu.Unlock()
	if good <= 0 || good > MaxInvitation {
		return invite.Token{}, Invitation{}, lattice.E(lattice.Invalid, fmt.Errorf("an invitation that is good for %s: want more than 0 and at most %s", good, MaxInvitation))
	}
	if err := s.mayGrant(roster.Member{Role: role}.Needs(), "invite "+roleName(role)); err != nil {
		return invite.Token{}, Invitation{}, err
	}
	token, err := invite.New(s.cfg.Rand, s.info.ID, s.info.Node, addresses...)
	if err != nil {
		return invite.Token{}, Invitation{}, err
	}
	expires := s.cfg.Clock.Now().Add(good)
	i := token.Invite(role, expires.UnixMilli())
	op, err := i.Op()
	if err != nil {
		return invite.Token{}, Invitation{}, err
	}
	// A crash after the entry leaves an invitation whose token nobody has.
	if err := s.enter(ctx, op); err != nil {
		return invite.Token{}, Invitation{}, fmt.Errorf("invite: %w", err)
	}
	return token, Invitation{ID: i.ID, Inviter: s.info.Node, Role: role, Expires: time.UnixMilli(i.Expires).UTC()}, nil
}

// enter writes an entry of these operations, durably whatever level clients write at.
func (s *Store) enter(ctx context.Context, ops ...sigchain.Op) error {
	if err := s.forked("change who is a member"); err != nil {
		return err
	}
	if _, err := s.state.Enter(ctx, ops...); err != nil {
		return err
	}
	return s.state.Sync()
}

// Redeem makes a member of whoever claims an invitation of this node, in one entry
// that is durable when the call returns. A claim by whom the invitation admitted
// before is answered as the first time: the answer may have been lost. Claims are
// redeemed one after the other, so one invitation admits one node.
//
// The error says why not: roster.ErrClaim (the holder did not sign it: tell it
// nothing), ErrInviteUnknown, ErrInviteUsed, ErrInviteRevoked, ErrInviteExpired, ErrInviter.
func (s *Store) Redeem(ctx context.Context, c roster.Claim) error {
	s.memberMu.Lock()
	defer s.memberMu.Unlock()
	var ops []sigchain.Op
	var err error
	admitted := false
	s.state.ReadRoster(func(r *roster.Roster) {
		if _, admitted = invite.Admitted(r, s.info.ID, s.info.Node, c); !admitted {
			ops, err = invite.Redeem(r, s.info.ID, s.info.Node, c, s.cfg.Clock.Now().UnixMilli())
		}
	})
	if admitted || err != nil {
		return err
	}
	// A crash before the entry leaves the invitation open, after it one that was
	// redeemed by this claim, which is answered when it comes again.
	if err := s.enter(ctx, ops...); err != nil {
		return fmt.Errorf("admit %s: %w", c.Author.Short(), err)
	}
	s.cfg.Logger.Info("admitted a node", "store", s.info.ID.Short(), "node", c.Author, "invitation", c.ID.Short())
	return nil
}

// Members returns the members of the store, and those that were, as far as is known
// here: this node first, then by name.
func (s *Store) Members() []Member {
	var all []Member
	s.state.ReadRoster(func(r *roster.Roster) {
		for _, st := range r.Standings() {
			m := Member{Node: st.Author, Role: st.Role, Creator: st.Creator, Self: st.Author == s.info.Node, By: st.Granted.Author, Dormant: st.Dormant}
			if n := len(st.Removed); n > 0 && st.Role == roster.None {
				m.RemovedBy = st.Removed[n-1].Author
			}
			all = append(all, m)
		}
	})
	for i := range all {
		m := &all[i]
		m.Forked = s.state.Forked(m.Node).Seq > 0
		for _, c := range s.state.AuthorChains(m.Node) {
			m.Entries += c.Tip.Seq
			if t := timeOf(c.Time); t.After(m.Last) {
				m.Last = t
			}
		}
	}
	s.countUnseen(all)
	slices.SortStableFunc(all, func(a, b Member) int {
		switch {
		case a.Self != b.Self && a.Self, a.Self == b.Self && bytes.Compare(a.Node[:], b.Node[:]) < 0:
			return -1
		}
		return 1
	})
	return all
}

// countUnseen counts what removed members wrote beyond the cut.
func (s *Store) countUnseen(all []Member) {
	for i := range all {
		m := &all[i]
		if m.Role != roster.None {
			continue
		}
		chains := s.state.AuthorChains(m.Node)
		s.state.ReadRoster(func(r *roster.Roster) {
			for _, c := range chains {
				upto := c.Tip.Seq
				for _, rm := range r.Removals(m.Node) {
					at := uint64(0)
					for _, l := range rm.Cut {
						if l.Incarnation == c.Tip.Incarnation {
							at = l.Seq
						}
					}
					upto = min(upto, at)
				}
				m.Unseen += c.Tip.Seq - upto
			}
		})
	}
}

// Invitations returns all that are known here, those that were used last.
func (s *Store) Invitations() []Invitation {
	var out []Invitation
	s.state.ReadRoster(func(r *roster.Roster) {
		for _, i := range r.Invitations() {
			out = append(out, Invitation{i.ID, i.At.Author, i.Role, time.UnixMilli(i.Expires).UTC(), i.Claimed, i.Revoked})
		}
	})
	slices.SortStableFunc(out, func(a, b Invitation) int { return a.Expires.Compare(b.Expires) })
	return out
}

// Revoke takes an invitation back. What it admitted stays admitted. Kinds NotFound
// (roster.ErrInviteUnknown), Exists (roster.ErrInviteUsed), Denied (ErrRole).
func (s *Store) Revoke(ctx context.Context, inviter lattice.NodeID, id lattice.Hash) error {
	s.memberMu.Lock()
	defer s.memberMu.Unlock()
	if err := s.mayGrant(roster.Revoke{}.Needs(), "revoke an invitation"); err != nil {
		return err
	}
	var i roster.Invitation
	var err error
	s.state.ReadRoster(func(r *roster.Roster) { i, err = r.Invitation(inviter, id) })
	switch {
	case err != nil:
		return err
	case i.Claimed != lattice.AuthorID{}:
		return fmt.Errorf("%w, by %s: remove that member", roster.ErrInviteUsed, i.Claimed.Short())
	case i.Revoked:
		return nil
	}
	return s.enter(ctx, roster.Revoke{Inviter: inviter, ID: id}.Op())
}

// Removed says what a removal did.
type Removed struct {
	Node    lattice.NodeID
	Was     roster.Role
	Entries uint64 // of its entries still count: those that are here
}

// Remove takes a member's rights away. What of its entries is here counts on; what
// comes later, written before it heard of its removal or after, has no effect
// anywhere. Removing is for good: the node joins again with another identity. Kinds
// NotFound (ErrNoMember), Denied (ErrRole), Conflict (it is removed already).
func (s *Store) Remove(ctx context.Context, node lattice.NodeID) (Removed, error) {
	s.memberMu.Lock()
	defer s.memberMu.Unlock()
	out := Removed{Node: node}
	var standing *roster.Standing
	s.state.ReadRoster(func(r *roster.Roster) {
		for _, st := range r.Standings() {
			if st.Author == node {
				standing = &st
			}
		}
	})
	switch {
	case standing == nil:
		return out, fmt.Errorf("remove %s: %w", node.Short(), ErrNoMember)
	case standing.Creator:
		return out, fmt.Errorf("remove %s: %w: it made the store, and is its owner for ever", node.Short(), ErrRole)
	case standing.Role == roster.None:
		return out, lattice.E(lattice.Conflict, fmt.Errorf("remove %s: it was removed before", node.Short()))
	}
	out.Was = standing.Role
	needs := max(roster.Admin, standing.Role) // an equal's
	if err := s.mayGrant(needs, "remove "+roleName(standing.Role)); err != nil {
		return out, err
	}
	rm := roster.Remove{Author: node}
	for _, c := range s.state.AuthorChains(node) {
		rm.Cut = append(rm.Cut, c.Tip)
		out.Entries += c.Tip.Seq
	}
	op, err := rm.Op()
	if err != nil {
		return out, err
	}
	return out, s.enter(ctx, op)
}
