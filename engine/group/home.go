package group

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Home says which node coordinates a group, as it is stored and as replicas merge it.
//
// # Bytes, version 1 (integers are big-endian)
//
//	 0  version  u8 = 1
//	 1  moves    u64  how often the group was given to another node
//	 9  since    i64  ms since 1970, by the clock of who wrote it
//	17  node     32
//
// One value has one encoding, of 49 bytes. A new field needs a new version; bytes once
// written are read forever.
type Home struct {
	// Moves is 0 where the group was first used, and more by one with each move.
	Moves uint64
	Since time.Time // in whole milliseconds
	Node  lattice.NodeID
}

const (
	homeVersion = 1
	homeSize    = 1 + 8 + 8 + 32
)

// AppendTo appends the home's bytes.
func (h Home) AppendTo(dst []byte) []byte {
	dst = append(dst, homeVersion)
	dst = binary.BigEndian.AppendUint64(dst, h.Moves)
	dst = binary.BigEndian.AppendUint64(dst, uint64(h.Since.UnixMilli()))
	return append(dst, h.Node[:]...)
}

// ParseHome reads what AppendTo wrote. Kind Corrupt, or Unsupported when a later version
// wrote it.
func ParseHome(b []byte) (Home, error) {
	if len(b) > 0 && b[0] > homeVersion {
		return Home{}, lattice.E(lattice.Unsupported, fmt.Errorf("home of a group: version %d, this program reads up to %d", b[0], homeVersion))
	}
	if len(b) != homeSize || b[0] != homeVersion {
		return Home{}, lattice.E(lattice.Corrupt, fmt.Errorf("home of a group: %d bytes that are no version %d value", len(b), homeVersion))
	}
	h := Home{
		Moves: binary.BigEndian.Uint64(b[1:]), Since: time.UnixMilli(int64(binary.BigEndian.Uint64(b[9:]))).UTC(),
		Node: lattice.NodeID(b[17:]),
	}
	if h.Moves > math.MaxInt64 || h.Node == (lattice.NodeID{}) {
		return Home{}, lattice.E(lattice.Corrupt, errors.New("home of a group: no such node, or too many moves"))
	}
	return h, nil
}

// JoinHomes returns which of two homes stands, on every node alike: the one that was
// moved more often; of two of first use, or of two moves by nodes that had not heard of
// each other, the earlier, and of two at one time that with the lower node id. The order
// is total, so it is commutative, associative and idempotent.
func JoinHomes(a, b Home) Home {
	order := cmp.Or(
		cmp.Compare(b.Moves, a.Moves),
		a.Since.Compare(b.Since),
		bytes.Compare(a.Node[:], b.Node[:]),
	)
	if order <= 0 {
		return a
	}
	return b
}

// Moved returns the home that a move to a node makes of the one there is.
func (h Home) Moved(to lattice.NodeID, now time.Time) Home {
	return Home{Moves: min(h.Moves+1, math.MaxInt64), Since: now.UTC().Truncate(time.Millisecond), Node: to}
}

// ErrMoving: another node coordinates the group from now on. Clients look for the
// coordinator again, and join again. Kind NotLeader.
var ErrMoving = lattice.E(lattice.NotLeader, errors.New("group: another node coordinates the group now: join again"))

// ErrPending: a transaction that has not ended holds offsets of the group. Kind Conflict.
var ErrPending = lattice.E(lattice.Conflict, errors.New("group: a transaction that has not ended holds offsets of it"))

// Evict ends the membership of all members of a group, which another node coordinates
// from now on: who waits is told ErrMoving, everybody else when they ask that node, which
// does not know them. Offsets stay, and so do commits that were taken: they are stored.
func (m *Manager) Evict(group string) {
	// A group that is not here has nobody to evict, and neither has a closed manager.
	_ = m.with(group, false, func(e *entry, now time.Time, fx *effects) { m.evict(e, now, fx) })
}

func (m *Manager) evict(e *entry, now time.Time, fx *effects) {
	switch {
	case e.consumer != nil && len(e.consumer.members) > 0:
		e.classic, e.consumer = newClassic(&m.cfg, now, e.consumer.epoch), nil
	case e.classic != nil && (len(e.classic.members) > 0 || len(e.classic.pending) > 0):
		e.classic.close(ErrMoving, fx)
		e.classic = newClassic(&m.cfg, now, e.classic.generation)
	}
}

// HandOver evicts a group's members and returns when every commit that was
// taken is durable, so that whoever then says that another node coordinates it says so
// behind them. ErrPending: nobody was evicted.
func (m *Manager) HandOver(group string) error {
	var refused error
	err := m.with(group, false, func(e *entry, now time.Time, fx *effects) {
		if len(e.pending) > 0 {
			refused = ErrPending
			return
		}
		m.evict(e, now, fx)
	})
	switch {
	case errors.Is(err, ErrGroupNotFound):
		return nil
	case err != nil:
		return err
	case refused != nil:
		return refused
	}
	return m.await(func() error { return nil })
}

// Known reports whether anything is left of a group here: members or offsets.
func (m *Manager) Known(group string) bool {
	found := false
	_ = m.with(group, false, func(e *entry, _ time.Time, _ *effects) { found = !e.vacant() }) // not here: not known
	return found
}
