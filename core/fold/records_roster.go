package fold

import (
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
)

// entryRecord returns what the roster holds of an entry.
func (m *Machine) entryRecord(at sigchain.Ref) Record {
	k := appendRef([]byte{tagEntry}, at)
	e, _ := m.roster.Entry(at)
	v := append(newRecord(64), byte(e.Needs))
	v = binary.BigEndian.AppendUint32(v, uint32(e.Len()))
	add := func(op sigchain.Op, err error) {
		if err != nil {
			panic(lattice.E(lattice.Internal, err)) // what was parsed encodes
		}
		v = binary.BigEndian.AppendUint16(v, op.Kind)
		v = append(binary.BigEndian.AppendUint32(v, uint32(len(op.Body))), op.Body...)
	}
	for _, x := range e.Members {
		add(x.Op())
	}
	for _, x := range e.Removes {
		add(x.Op())
	}
	for _, x := range e.Invites {
		add(x.Op())
	}
	for _, x := range e.Revokes {
		add(x.Op(), nil)
	}
	for _, x := range e.Claims {
		add(x.Op(), nil)
	}
	for _, x := range e.Returns {
		add(x.Op())
	}
	for _, x := range e.Adopts {
		add(x.Op())
	}
	for _, x := range e.Presences {
		add(x.Op(), nil)
	}
	for _, x := range e.Rotates {
		add(x.Op())
	}
	return Record{k, v}
}

func (m *Machine) restoreEntry(at sigchain.Ref, v *fields) error {
	e := roster.Entry{At: at, Needs: roster.Role(v.u8())}
	for n := v.u32(); n > 0 && !v.bad; n-- {
		op := sigchain.Op{Kind: v.u16()}
		op.Body = v.take(int(v.u32()))
		if v.bad {
			break
		}
		var err error
		switch op.Kind {
		case roster.KindMember:
			err = restored(&e.Members, op, roster.ParseMember)
		case roster.KindInvite:
			err = restored(&e.Invites, op, roster.ParseInvite)
		case roster.KindRevoke:
			err = restored(&e.Revokes, op, roster.ParseRevoke)
		case roster.KindClaim:
			err = restored(&e.Claims, op, roster.ParseClaim)
		case roster.KindReturn:
			err = restored(&e.Returns, op, roster.ParseReturn)
		case roster.KindAdopt:
			err = restored(&e.Adopts, op, roster.ParseAdopt)
		case roster.KindPresence:
			err = restored(&e.Presences, op, roster.ParsePresence)
		case roster.KindRotate:
			err = restored(&e.Rotates, op, roster.ParseRotate)
		default:
			err = restored(&e.Removes, op, roster.ParseRemove)
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrRecord, err)
		}
	}
	m.roster.Add(e)
	return nil
}

func restored[T any](all *[]T, op sigchain.Op, parse func(sigchain.Op) (T, error)) error {
	x, err := parse(op)
	if err == nil {
		*all = append(*all, x)
	}
	return err
}
