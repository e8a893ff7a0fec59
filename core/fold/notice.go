package fold

import (
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
)

// A notice tells a member that it was removed, and proves it to whoever knows the
// store's genesis entry. Big-endian:
//
//	0 "LO" | version u8 = 1 | 0 u8 | u16 n, 1 to 32, then n x: length u32, entry
//
// The first entry removes it; the others give its author the right to, up to who began
// the store. It is at most MaxNotice long, and is kept as it came.
const (
	noticeVersion = 1
	noticeHead    = 4 + 2
	noticeEntries = 32

	// MaxNotice bounds a notice in bytes.
	MaxNotice = 1 << 20
)

// ErrNotice means bytes that are no proof of this node's removal. Kind Invalid.
var ErrNotice = lattice.E(lattice.Invalid, errors.New("no proof that this member was removed"))

// EncodeNotice encodes what Grounds of the roster names. Kind TooLarge.
func EncodeNotice(entries []sigchain.Signed) ([]byte, error) {
	b := binary.BigEndian.AppendUint16([]byte{'L', 'O', noticeVersion, 0}, uint16(len(entries)))
	for _, s := range entries {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(s.Bytes()))), s.Bytes()...)
	}
	if len(entries) == 0 || len(entries) > noticeEntries || len(b) > MaxNotice {
		return nil, lattice.E(lattice.TooLarge, fmt.Errorf("a notice of %d entries has %d bytes", len(entries), len(b)))
	}
	return b, nil
}

// Notice is a removal that was proven.
type Notice struct {
	At sigchain.Ref // the entry that removes; its author is who did
}

// ParseNotice checks a notice for a member of the store that genesis begins, whose role,
// as far as it knows, is role: all of it, signatures, too. Wraps ErrNotice, or
// sigchain.ErrVersion.
func ParseNotice(b []byte, genesis sigchain.Signed, of lattice.AuthorID, role roster.Role) (Notice, error) {
	bad := func(format string, args ...any) (Notice, error) {
		return Notice{}, fmt.Errorf("%w: %w", ErrNotice, fmt.Errorf(format, args...))
	}
	switch {
	case len(b) < noticeHead || len(b) > MaxNotice || b[0] != 'L' || b[1] != 'O' || b[3] != 0:
		return bad("%d bytes that are no notice", len(b))
	case b[2] != noticeVersion:
		return Notice{}, fmt.Errorf("notice: %w: %d", sigchain.ErrVersion, b[2])
	}
	n, rest := int(binary.BigEndian.Uint16(b[4:])), b[noticeHead:]
	if n == 0 || n > noticeEntries {
		return bad("it has %d entries", n)
	}
	var all []roster.Entry
	for i := range n {
		if len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
			return bad("it ends in entry %d", i)
		}
		size := 4 + int(binary.BigEndian.Uint32(rest))
		s, err := sigchain.Parse(rest[4:size])
		if err == nil {
			err = s.Verify()
		}
		if err != nil {
			return bad("entry %d: %w", i, err)
		}
		if s.Home() != genesis.Home() {
			return bad("entry %d: %w", i, ErrForeign)
		}
		o := parse(s)
		if o.bad != nil || o.unknown {
			return bad("entry %d: it is malformed, or of a newer program: %w", i, o.bad)
		}
		all = append(all, o.entry(s.Ref()))
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return bad("%d bytes follow", len(rest))
	}
	if !roster.Proves(genesis.Author, of, role, all) {
		return bad("its first entry does not remove %s, or its author is not shown to have the right", of.Short())
	}
	return Notice{all[0].At}, nil
}
