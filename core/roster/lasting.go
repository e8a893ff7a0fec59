package roster

import (
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
)

// Kinds of operations about members that are there already, or were.
const (
	KindReturn   uint16 = 9
	KindAdopt    uint16 = 10
	KindPresence uint16 = 11
	KindRotate   uint16 = 12
)

// ErrRotation means a key that the node which should take over did not sign. Kind Denied.
var ErrRotation = lattice.E(lattice.Denied, errors.New("the new key has not signed that it takes over"))

const linkAndAuthor = 32 + linkSize

// Return grants a role to an author that was removed, in spite of the removals that it names.
type Return struct {
	Member
	Lifts []sigchain.Ref // entries that removed it, ascending; at least one
}

// Op encodes r. Wraps ErrOp.
func (r Return) Op() (sigchain.Op, error) {
	b := append(append([]byte{opVersion}, r.Author[:]...), byte(r.Role))
	return sigchain.Op{Kind: KindReturn, Body: appendRefs(b, r.Lifts)}, r.check()
}

func (r Return) check() error {
	return errors.Join(r.Member.check(), checkRefs(r.Lifts))
}

// ParseReturn reads a return operation. Wraps ErrOp or sigchain.ErrVersion.
func ParseReturn(op sigchain.Op) (Return, error) {
	rest, err := open(op, KindReturn)
	if err != nil {
		return Return{}, err
	}
	if len(rest) < 32+1 {
		return Return{}, fmt.Errorf("%w: return: %d bytes", ErrOp, len(op.Body))
	}
	r := Return{Member: Member{lattice.AuthorID(rest[:32]), Role(rest[32])}}
	if r.Lifts, rest, err = takeRefs(rest[33:]); err != nil || len(rest) > 0 {
		return r, fmt.Errorf("%w: return: %d bytes", ErrOp, len(op.Body))
	}
	return r, r.check()
}

// Adopt lets entries count that removals cut off: of each chain of the removed author
// those up to the one named, as far as the removals that it names are concerned.
type Adopt struct {
	Author lattice.AuthorID
	Lifts  []sigchain.Ref  // entries that removed it, ascending; at least one
	Upto   []sigchain.Link // ascending
}

// Needs returns the role that its author must have at least.
func (Adopt) Needs() Role { return Admin }

// Op encodes a. Wraps ErrOp.
func (a Adopt) Op() (sigchain.Op, error) {
	b := appendRefs(append([]byte{opVersion}, a.Author[:]...), a.Lifts)
	return sigchain.Op{Kind: KindAdopt, Body: appendLinks(b, a.Upto)}, a.check()
}

func (a Adopt) check() error {
	return errors.Join(checkRefs(a.Lifts), Remove{Cut: a.Upto}.check())
}

// ParseAdopt reads an adopt operation. Wraps ErrOp or sigchain.ErrVersion.
func ParseAdopt(op sigchain.Op) (Adopt, error) {
	rest, err := open(op, KindAdopt)
	if err != nil {
		return Adopt{}, err
	}
	if len(rest) < 32 {
		return Adopt{}, fmt.Errorf("%w: adopt: %d bytes", ErrOp, len(op.Body))
	}
	a := Adopt{Author: lattice.AuthorID(rest[:32])}
	if a.Lifts, rest, err = takeRefs(rest[32:]); err == nil {
		a.Upto, rest, err = takeLinks(rest)
	}
	if err != nil || len(rest) > 0 {
		return a, fmt.Errorf("%w: adopt: %d bytes", ErrOp, len(op.Body))
	}
	return a, a.check()
}

// Presence says that a member is dormant, so that nobody waits for it, or active again.
// Of what is said of one author the highest turn counts, and of one turn active.
type Presence struct {
	Author  lattice.AuthorID
	Turn    uint32 // from 1
	Dormant bool
}

// Needs returns the role that the author of its entry must have at least: a member
// says of itself that it is active.
func (p Presence) Needs(by lattice.AuthorID) Role {
	if p.Author == by && !p.Dormant {
		return Reader
	}
	return Admin
}

// Op encodes p.
func (p Presence) Op() sigchain.Op {
	b := binary.BigEndian.AppendUint32(append([]byte{opVersion}, p.Author[:]...), p.Turn)
	if p.Dormant {
		return sigchain.Op{Kind: KindPresence, Body: append(b, 1)}
	}
	return sigchain.Op{Kind: KindPresence, Body: append(b, 0)}
}

// ParsePresence reads a presence operation. Wraps ErrOp or sigchain.ErrVersion.
func ParsePresence(op sigchain.Op) (Presence, error) {
	rest, err := open(op, KindPresence)
	if err != nil {
		return Presence{}, err
	}
	if len(rest) != 32+4+1 || rest[36] > 1 || binary.BigEndian.Uint32(rest[32:]) == 0 {
		return Presence{}, fmt.Errorf("%w: presence: %d bytes", ErrOp, len(op.Body))
	}
	return Presence{lattice.AuthorID(rest[:32]), binary.BigEndian.Uint32(rest[32:]), rest[36] == 1}, nil
}

// Rotate hands what the author of its entry is in the store to another key, its own.
// Of each chain of the old key the entries up to the one named count, of that in which
// this stands those up to this, and no others.
type Rotate struct {
	To    lattice.AuthorID
	Proof identity.Signature // with To's key, of RotateMessage
	Cut   []sigchain.Link    // of other chains of the author; ascending
}

// Needs returns the role that its author must have at least.
func (Rotate) Needs() Role { return Reader }

// RotateMessage is what the new key signs: the store, and the key that it follows.
func RotateMessage(store lattice.StoreID, from lattice.AuthorID) []byte {
	return append(append([]byte(nil), store[:]...), from[:]...)
}

// Op encodes r. Wraps ErrOp.
func (r Rotate) Op() (sigchain.Op, error) {
	b := append(append([]byte{opVersion}, r.To[:]...), r.Proof[:]...)
	return sigchain.Op{Kind: KindRotate, Body: appendLinks(b, r.Cut)}, Remove{Cut: r.Cut}.check()
}

// ParseRotate reads a rotate operation. Wraps ErrOp or sigchain.ErrVersion. Whether it
// holds is for Verify.
func ParseRotate(op sigchain.Op) (Rotate, error) {
	rest, err := open(op, KindRotate)
	if err != nil {
		return Rotate{}, err
	}
	const head = 32 + identity.SignatureSize
	if len(rest) < head {
		return Rotate{}, fmt.Errorf("%w: rotate: %d bytes", ErrOp, len(op.Body))
	}
	r := Rotate{To: lattice.AuthorID(rest[:32]), Proof: identity.Signature(rest[32:head])}
	if r.Cut, rest, err = takeLinks(rest[head:]); err != nil || len(rest) > 0 {
		return r, fmt.Errorf("%w: rotate: %d bytes", ErrOp, len(op.Body))
	}
	return r, Remove{Cut: r.Cut}.check()
}

// Verify checks that To has signed that it follows from. Wraps ErrRotation.
func (r Rotate) Verify(store lattice.StoreID, from lattice.AuthorID) error {
	if r.To == from || !identity.Verify(r.To, identity.DomainRotate, RotateMessage(store, from), r.Proof) {
		return fmt.Errorf("%w: for %s", ErrRotation, from.Short())
	}
	return nil
}

func appendRefs(b []byte, refs []sigchain.Ref) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(refs)))
	for _, r := range refs {
		b = appendLink(append(b, r.Author[:]...), r.Link)
	}
	return b
}

func appendLinks(b []byte, links []sigchain.Link) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(links)))
	for _, l := range links {
		b = appendLink(b, l)
	}
	return b
}

func appendLink(b []byte, l sigchain.Link) []byte {
	b = binary.BigEndian.AppendUint64(b, l.Incarnation)
	return append(binary.BigEndian.AppendUint64(b, l.Seq), l.ID[:]...)
}

func linkOf(b []byte) sigchain.Link {
	return sigchain.Link{Incarnation: binary.BigEndian.Uint64(b), Seq: binary.BigEndian.Uint64(b[8:]), ID: lattice.Hash(b[16:linkSize])}
}

// takeCounted takes a number of fields of one size off b.
func takeCounted(b []byte, size int) (fields, rest []byte, err error) {
	if len(b) < 4 || uint64(len(b)-4) < uint64(binary.BigEndian.Uint32(b))*uint64(size) {
		return nil, nil, ErrOp
	}
	n := 4 + int(binary.BigEndian.Uint32(b))*size
	return b[4:n], b[n:], nil
}

func takeRefs(b []byte) (refs []sigchain.Ref, rest []byte, err error) {
	all, rest, err := takeCounted(b, linkAndAuthor)
	for ; len(all) > 0; all = all[linkAndAuthor:] {
		refs = append(refs, sigchain.Ref{Author: lattice.AuthorID(all[:32]), Link: linkOf(all[32:])})
	}
	return refs, rest, err
}

func takeLinks(b []byte) (links []sigchain.Link, rest []byte, err error) {
	all, rest, err := takeCounted(b, linkSize)
	for ; len(all) > 0; all = all[linkSize:] {
		links = append(links, linkOf(all))
	}
	return links, rest, err
}

func checkRefs(refs []sigchain.Ref) error {
	if len(refs) == 0 {
		return fmt.Errorf("%w: it names no removal", ErrOp)
	}
	for i, r := range refs {
		switch {
		case r.Seq == 0 || r.ID.IsZero():
			return fmt.Errorf("%w: removal %d names no entry", ErrOp, i)
		case i > 0 && refs[i-1].Compare(r) >= 0:
			return fmt.Errorf("%w: removal %d is out of order", ErrOp, i)
		}
	}
	return nil
}
