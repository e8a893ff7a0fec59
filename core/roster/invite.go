package roster

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
)

// Kinds of operations about invitations.
const (
	KindInvite uint16 = 6
	KindRevoke uint16 = 7
	KindClaim  uint16 = 8
)

var (
	// ErrInviteUnknown refuses an invitation that is not here: mistyped, of another
	// store, or its entry has not come yet. Kind NotFound.
	ErrInviteUnknown = lattice.E(lattice.NotFound, errors.New("no such invitation is known here"))
	// ErrInviteUsed refuses one that was redeemed. Kind Exists.
	ErrInviteUsed = lattice.E(lattice.Exists, errors.New("the invitation was used already"))
	// ErrInviteRevoked refuses one that was taken back. Kind Denied.
	ErrInviteRevoked = lattice.E(lattice.Denied, errors.New("the invitation was revoked"))
	// ErrInviteExpired refuses one whose time is over. Kind Denied.
	ErrInviteExpired = lattice.E(lattice.Denied, errors.New("the invitation has expired"))
	// ErrInviter refuses to redeem an invitation at a node other than that of its
	// author. Kind NotLeader.
	ErrInviter = lattice.E(lattice.NotLeader, errors.New("only the node that made the invitation redeems it"))
	// ErrClaim means a claim that its token's holder did not sign. Kind Denied.
	ErrClaim = lattice.E(lattice.Denied, errors.New("the claim is not signed with the invitation's secret"))
)

// Invite says that whoever holds a secret may be made a member by its author.
type Invite struct {
	// ID is the public key that belongs to the secret (core/invite): a one-way
	// function of it, and anybody can check a claim by it.
	ID      lattice.Hash
	Role    Role
	Expires int64 // ms since 1970
}

// Needs returns the role that its author must have: that which making such a member needs.
func (i Invite) Needs() Role { return Member{Role: i.Role}.Needs() }

// Op encodes i. Wraps ErrOp.
func (i Invite) Op() (sigchain.Op, error) {
	b := append(append([]byte{opVersion}, i.ID[:]...), byte(i.Role))
	return sigchain.Op{Kind: KindInvite, Body: binary.BigEndian.AppendUint64(b, uint64(i.Expires))}, i.check()
}

func (i Invite) check() error {
	switch {
	case i.ID.IsZero():
		return fmt.Errorf("%w: invite: it names nothing", ErrOp)
	case i.Expires < 0:
		return fmt.Errorf("%w: invite: it expires at %d", ErrOp, i.Expires)
	}
	return Member{Role: i.Role}.check()
}

// ParseInvite reads an invite operation. Wraps ErrOp or sigchain.ErrVersion.
func ParseInvite(op sigchain.Op) (Invite, error) {
	rest, err := open(op, KindInvite)
	if err != nil {
		return Invite{}, err
	}
	if len(rest) != 32+1+8 {
		return Invite{}, fmt.Errorf("%w: invite: %d bytes", ErrOp, len(op.Body))
	}
	i := Invite{lattice.Hash(rest[:32]), Role(rest[32]), int64(binary.BigEndian.Uint64(rest[33:]))}
	return i, i.check()
}

// Revoke takes an invitation back.
type Revoke struct {
	Inviter lattice.AuthorID
	ID      lattice.Hash
}

// Needs returns the role that its author must have at least.
func (Revoke) Needs() Role { return Admin }

// Op encodes r.
func (r Revoke) Op() sigchain.Op {
	return sigchain.Op{Kind: KindRevoke, Body: append(append([]byte{opVersion}, r.Inviter[:]...), r.ID[:]...)}
}

// ParseRevoke reads a revoke operation. Wraps ErrOp or sigchain.ErrVersion.
func ParseRevoke(op sigchain.Op) (Revoke, error) {
	rest, err := open(op, KindRevoke)
	if err != nil {
		return Revoke{}, err
	}
	if len(rest) != 32+32 {
		return Revoke{}, fmt.Errorf("%w: revoke: %d bytes", ErrOp, len(op.Body))
	}
	return Revoke{lattice.AuthorID(rest[:32]), lattice.Hash(rest[32:])}, nil
}

// Claim says that an invitation of the entry's author was redeemed by Author, whom a
// member operation in the same entry admits.
type Claim struct {
	ID     lattice.Hash
	Author lattice.AuthorID
	Proof  identity.Signature // with the invitation's key, of ClaimMessage
}

// Needs returns the role that its author must have at least.
func (Claim) Needs() Role { return Admin }

// ClaimMessage is what the holder of a token signs: the store, the inviter and itself.
func ClaimMessage(store lattice.StoreID, inviter, author lattice.AuthorID) []byte {
	return slices.Concat(store[:], inviter[:], author[:])
}

// Op encodes c.
func (c Claim) Op() sigchain.Op {
	b := append(append([]byte{opVersion}, c.ID[:]...), c.Author[:]...)
	return sigchain.Op{Kind: KindClaim, Body: append(b, c.Proof[:]...)}
}

// ParseClaim reads a claim operation. Wraps ErrOp or sigchain.ErrVersion. Whether it
// holds is for Verify.
func ParseClaim(op sigchain.Op) (Claim, error) {
	rest, err := open(op, KindClaim)
	if err != nil {
		return Claim{}, err
	}
	if len(rest) != 32+32+identity.SignatureSize {
		return Claim{}, fmt.Errorf("%w: claim: %d bytes", ErrOp, len(op.Body))
	}
	return Claim{lattice.Hash(rest[:32]), lattice.AuthorID(rest[32:64]), identity.Signature(rest[64:])}, nil
}

// Verify checks that whoever held the secret of the inviter's token claimed it for
// Author. Wraps ErrClaim.
func (c Claim) Verify(store lattice.StoreID, inviter lattice.AuthorID) error {
	if !identity.Verify(lattice.AuthorID(c.ID), identity.DomainInvite, ClaimMessage(store, inviter, c.Author), c.Proof) {
		return fmt.Errorf("%w: for %s", ErrClaim, c.Author.Short())
	}
	return nil
}

// Invitation is what has become of an invite, as far as is known.
type Invitation struct {
	Invite
	At        sigchain.Ref     // its entry; the author is the inviter
	Claimed   lattice.AuthorID // by whom it was redeemed first; zero: nobody
	ClaimedAt sigchain.Ref
	Revoked   bool
}

// Check reports whether the node self may redeem it now: nil, or one of the errors
// of this file. Used comes before revoked, and revoked before expired.
func (i Invitation) Check(self lattice.AuthorID, nowMs int64) error {
	switch {
	case i.Claimed != lattice.AuthorID{}:
		return fmt.Errorf("%w, by %s", ErrInviteUsed, i.Claimed.Short())
	case i.Revoked:
		return ErrInviteRevoked
	case nowMs > i.Expires:
		return fmt.Errorf("%w: %d ms ago", ErrInviteExpired, nowMs-i.Expires)
	case self != i.At.Author:
		return fmt.Errorf("%w: %s", ErrInviter, i.At.Author.Short())
	}
	return nil
}

// invitations are what entries say about invitations, whether it counts or not.
type invitations map[invited]*[3][]sigchain.Ref

type invited struct {
	inviter lattice.AuthorID
	id      lattice.Hash
}

const (
	saidInvite = iota
	saidRevoke
	saidClaim
)

func (v invitations) add(k invited, what int, at sigchain.Ref) {
	if v[k] == nil {
		v[k] = &[3][]sigchain.Ref{}
	}
	refs := &v[k][what]
	if i, ok := slices.BinarySearchFunc(*refs, at, sigchain.Ref.Compare); !ok {
		*refs = slices.Insert(*refs, i, at)
	}
}

func (v invitations) addEntry(e Entry) {
	for _, x := range e.Invites {
		v.add(invited{e.At.Author, x.ID}, saidInvite, e.At)
	}
	for _, x := range e.Revokes {
		v.add(invited{x.Inviter, x.ID}, saidRevoke, e.At)
	}
	for _, x := range e.Claims {
		v.add(invited{e.At.Author, x.ID}, saidClaim, e.At)
	}
}

// Invitation returns what is known of an invitation. Only entries that count are
// looked at; of several invites or claims the first in the inviter's chain is taken,
// so the order in which entries came does not matter. Wraps ErrInviteUnknown.
//
// Claims stand in the chain of the inviter, whose node redeems one after the other,
// so that one is used once rests on it: it may admit whom it likes anyhow.
func (r *Roster) Invitation(inviter lattice.AuthorID, id lattice.Hash) (Invitation, error) {
	said := r.invites[invited{inviter, id}]
	if said == nil {
		return Invitation{}, fmt.Errorf("%w: %s of %s", ErrInviteUnknown, id.Short(), inviter.Short())
	}
	first := func(what int) (Entry, bool) {
		for _, at := range said[what] {
			if e := r.entries[at]; e != nil && r.counts(at.Place(), e.Needs) {
				return *e, true
			}
		}
		return Entry{}, false
	}
	e, ok := first(saidInvite)
	if !ok {
		return Invitation{}, fmt.Errorf("%w: %s of %s", ErrInviteUnknown, id.Short(), inviter.Short())
	}
	out := Invitation{At: e.At}
	out.Invite = e.Invites[slices.IndexFunc(e.Invites, func(x Invite) bool { return x.ID == id })]
	if e, ok := first(saidClaim); ok {
		out.ClaimedAt = e.At
		out.Claimed = e.Claims[slices.IndexFunc(e.Claims, func(x Claim) bool { return x.ID == id })].Author
	}
	_, out.Revoked = first(saidRevoke)
	return out, nil
}

// Invitations returns all that count, by inviter and id, ascending.
func (r *Roster) Invitations() []Invitation {
	var out []Invitation
	for k := range r.invites {
		if i, err := r.Invitation(k.inviter, k.id); err == nil {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b Invitation) int {
		return cmp.Or(bytes.Compare(a.At.Author[:], b.At.Author[:]), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return out
}
