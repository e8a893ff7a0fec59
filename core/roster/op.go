// Package roster is who belongs to a store and who may do what there: members
// with roles, as operations in entries, and the rules by which everyone comes to
// the same judgement of every entry.
//
// # Operations
//
// Bodies, version 1, big-endian:
//
//	3 member  u8 1 | author 32 | role u8
//	4 remove  u8 1 | author 32 | u32 n, then n x: incarnation u64,
//	         sequence u64, id 32; strictly ascending by incarnation
//	6 invite  u8 1 | id 32 | role u8 | expires u64, ms since 1970
//	7 revoke  u8 1 | inviter 32 | id 32
//	8 claim   u8 1 | id 32 | author 32 | signature 64
//	9 return  u8 1 | author 32 | role u8 | removals
//	10 adopt  u8 1 | author 32 | removals | cuts, as of remove
//	11 presence  u8 1 | author 32 | turn u32 | u8: 1 dormant, 0 active
//	12 rotate u8 1 | to 32 | signature 64 | cuts, as of remove
//
//	removals: u32 n > 0, then n x: author 32, incarnation u64, sequence u64, id 32;
//	         strictly ascending
//
// Roles: 1 reader, 2 writer, 3 admin, 4 owner. Each may do all that those before
// it may.
//
// The author of the genesis entry is an owner, for ever: the creator. A member operation
// grants a role: owners grant any, admins reader and writer. A remove operation
// takes away what is not senior to its author's own role: an owner removes anyone but the
// creator, an admin readers, writers and admins. It cuts: of each chain of the removed
// author the entries up to the one named still count, of a chain that it does not
// name, none. Two removals of one author both stand: what counts is what both let count.
//
// # Removals against each other
//
// A removal stands if its author had the right to it, where only removals by those
// senior to that author's role are asked: a senior's voids a junior's, and of equals that
// remove each other both stand, whatever their cuts say. Everything else that an
// author does counts as far as all removals that stand let it, those by equals as well.
// So an admin that was removed by another can still remove, as if at the same time, until
// a senior removes it, too.
//
// # Back again
//
// A grant to a removed author has no effect, whoever made it and whenever: removing
// beats what did not know of it. A return operation names the removals that it knows, and
// grants in spite of them: of those that its author's role is at least equal to. Its
// right begins where it is named, as with every grant. An adopt operation lets entries
// count that such removals cut off, up to those that it names.
//
// Presence says that a member is dormant, which an admin may say, or active, which
// the member may say itself. It takes away no right: nobody waits for who is dormant.
//
// A rotate operation hands on what its author is to a key that has signed for it: the new
// one has the role that the old one has there, from where it names the entry. What the
// old key writes beyond the cut does not count. Of two rotations the first in the order of
// places counts.
//
// An invite says that its author will make a member of whoever holds a secret. Its id
// is the public key that belongs to the secret. A claim stands in an entry of the
// inviter, with the member operation for the author that it names, and is signed with
// that key; otherwise the entry is void. Revoke takes an invite back.
//
// # One judgement everywhere
//
// Whether an entry counts must not depend on what else had arrived where it was
// judged. So a role is judged at a place in a chain, from what is the same
// everywhere:
//
//   - A grant counts from the entry on that names the entry of the grant as a
//     parent, in its own chain and in those that follow it. Not before, however
//     long the grant has been there.
//   - A removal counts by its cut, whenever it comes, also for entries that were
//     here long before.
//   - The entries of grants must themselves count, and those of removals must stand.
//     Whether a removal stands depends on those by seniors only, and a grant is named
//     after it was made, so the question ends.
//
// An entry without the right to one of its operations has no effect at all.
//
// Who may be in the store at all, so that its entries are kept (Introduced), does not
// depend on removals: whom an entry names whose author once had the right to. What a
// writer says of strangers brings nobody in.
//
// # Rules for changing it
//
//   - A body that was ever signed keeps its meaning, and its bytes. If a case in
//     TestGoldenBytes changes, the design is wrong, not the test.
//   - What these operations mean is part of their version: all nodes must agree.
package roster

import (
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// Kinds of operations.
const (
	KindMember uint16 = 3
	KindRemove uint16 = 4

	opVersion = 1
	linkSize  = 8 + 8 + 32
)

// IsOp reports whether operations of a kind are of this package.
func IsOp(kind uint16) bool {
	switch kind {
	case KindMember, KindRemove, KindInvite, KindRevoke, KindClaim, KindReturn, KindAdopt, KindPresence, KindRotate:
		return true
	}
	return false
}

// ErrOp means that an operation's body breaks its kind's format. Kind Corrupt.
var ErrOp = lattice.E(lattice.Corrupt, errors.New("malformed roster operation"))

// Role is what a member may do. Greater ones may do more; the numbers are in formats.
type Role uint8

const (
	None   Role = 0 // no member
	Reader Role = 1
	Writer Role = 2 // changes keys, topics and offsets
	Admin  Role = 3 // grants reader and writer; removes those, and admins
	Owner  Role = 4 // grants every role, removes all but the creator

	// creator is the rank of who began the store, above all that can be granted.
	creator Role = 5
	// always is above every rank: no removal is asked.
	always Role = 255
)

var roleNames = [...]string{"none", "reader", "writer", "admin", "owner"}

// String returns the role's name.
func (r Role) String() string {
	if int(r) < len(roleNames) {
		return roleNames[r]
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// ParseRole reads a role's name. Kind Invalid.
func ParseRole(s string) (Role, error) {
	for i, name := range roleNames {
		if i > 0 && s == name {
			return Role(i), nil
		}
	}
	return None, lattice.E(lattice.Invalid, fmt.Errorf("role %q: want reader, writer, admin or owner", s))
}

// Member grants a role to an author.
type Member struct {
	Author lattice.AuthorID
	Role   Role
}

// Needs returns the role that its author must have.
func (m Member) Needs() Role {
	if m.Role >= Admin {
		return Owner
	}
	return Admin
}

// Op encodes m. Wraps ErrOp.
func (m Member) Op() (sigchain.Op, error) {
	if err := m.check(); err != nil {
		return sigchain.Op{}, err
	}
	return sigchain.Op{Kind: KindMember, Body: append(append([]byte{opVersion}, m.Author[:]...), byte(m.Role))}, nil
}

func (m Member) check() error {
	if m.Role < Reader || m.Role > Owner {
		return fmt.Errorf("%w: %s", ErrOp, m.Role)
	}
	return nil
}

// ParseMember reads a member operation. Wraps ErrOp or sigchain.ErrVersion.
func ParseMember(op sigchain.Op) (Member, error) {
	rest, err := open(op, KindMember)
	if err != nil {
		return Member{}, err
	}
	if len(rest) != 32+1 {
		return Member{}, fmt.Errorf("%w: member: %d bytes", ErrOp, len(op.Body))
	}
	m := Member{lattice.AuthorID(rest[:32]), Role(rest[32])}
	return m, m.check()
}

// Remove takes an author's rights away.
type Remove struct {
	Author lattice.AuthorID
	Cut    []sigchain.Link // the last entry of each chain that still counts; ascending
}

// Needs returns the role that its author must have at least.
func (r Remove) Needs() Role { return Admin }

// Op encodes r. Wraps ErrOp.
func (r Remove) Op() (sigchain.Op, error) {
	if err := r.check(); err != nil {
		return sigchain.Op{}, err
	}
	b := append(make([]byte, 0, 1+32+4+len(r.Cut)*linkSize), opVersion)
	b = append(b, r.Author[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Cut)))
	for _, l := range r.Cut {
		b = binary.BigEndian.AppendUint64(b, l.Incarnation)
		b = binary.BigEndian.AppendUint64(b, l.Seq)
		b = append(b, l.ID[:]...)
	}
	return sigchain.Op{Kind: KindRemove, Body: b}, nil
}

func (r Remove) check() error {
	for i, l := range r.Cut {
		switch {
		case l.Seq == 0 || l.ID.IsZero():
			return fmt.Errorf("%w: remove: cut %d names no entry", ErrOp, i)
		case i > 0 && r.Cut[i-1].Incarnation >= l.Incarnation:
			return fmt.Errorf("%w: remove: cut %d is out of order", ErrOp, i)
		}
	}
	return nil
}

// ParseRemove reads a remove operation. Wraps ErrOp or sigchain.ErrVersion.
func ParseRemove(op sigchain.Op) (Remove, error) {
	rest, err := open(op, KindRemove)
	if err != nil {
		return Remove{}, err
	}
	if len(rest) < 32+4 {
		return Remove{}, fmt.Errorf("%w: remove: %d bytes", ErrOp, len(op.Body))
	}
	r := Remove{Author: lattice.AuthorID(rest[:32])}
	n := uint64(binary.BigEndian.Uint32(rest[32:]))
	rest = rest[36:]
	if uint64(len(rest)) != n*linkSize {
		return Remove{}, fmt.Errorf("%w: remove: %d cuts in %d bytes", ErrOp, n, len(rest))
	}
	for ; len(rest) > 0; rest = rest[linkSize:] {
		r.Cut = append(r.Cut, sigchain.Link{
			Incarnation: binary.BigEndian.Uint64(rest), Seq: binary.BigEndian.Uint64(rest[8:]), ID: lattice.Hash(rest[16:linkSize]),
		})
	}
	return r, r.check()
}

// beyond reports whether what stands at a place of the removed author is cut off.
func (r Remove) beyond(at sigchain.Place) bool {
	for _, l := range r.Cut {
		if l.Incarnation == at.Incarnation {
			return at.Seq > l.Seq
		}
	}
	return true
}

// open checks kind and version of an operation and returns the rest of its body.
func open(op sigchain.Op, kind uint16) ([]byte, error) {
	switch {
	case op.Kind != kind:
		return nil, fmt.Errorf("%w: kind %d, want %d", ErrOp, op.Kind, kind)
	case len(op.Body) == 0:
		return nil, fmt.Errorf("%w: kind %d: empty", ErrOp, kind)
	case op.Body[0] != opVersion:
		return nil, fmt.Errorf("%w: operation of kind %d, version %d", sigchain.ErrVersion, kind, op.Body[0])
	}
	return op.Body[1:], nil
}
