package store

import (
	"errors"
	"fmt"
	"log/slog"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// The record about a store that another node made:
//
//	version u8 = 1 | inviter 32, zero: none
//	version u8 = 2 | inviter 32, zero: none | id of the invitation 32
const joinedVersion, joinedByClaim = 1, 2

func encodeJoined(r JoinedRecord) []byte {
	if r.Invitation.IsZero() {
		return append([]byte{joinedVersion}, r.Inviter[:]...)
	}
	return append(append([]byte{joinedByClaim}, r.Inviter[:]...), r.Invitation[:]...)
}

func decodeJoined(b []byte) (JoinedRecord, error) {
	switch {
	case len(b) == 1+32 && b[0] == joinedVersion:
		return JoinedRecord{Inviter: lattice.NodeID(b[1:])}, nil
	case len(b) == 1+32+32 && b[0] == joinedByClaim:
		return JoinedRecord{lattice.NodeID(b[1:33]), lattice.Hash(b[33:])}, nil
	}
	return JoinedRecord{}, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: %d bytes say how the store was joined, in no version that is known here", len(b)))
}

// joined reports whether the store was joined, and not made here, and how.
func (l *local) joined() (JoinedRecord, bool, error) {
	b, ok, err := l.db.Get([]byte{keyJoined})
	if err != nil || !ok {
		return JoinedRecord{}, false, err
	}
	r, err := decodeJoined(b)
	return r, true, err
}

// Join makes the store of a genesis entry, which another node signed, in
// dir/<store id>, and returns its id. There is nothing in it but that entry: the rest
// comes by replication, this node's admission as well, and until that is here nothing
// can be written. Nothing is left behind that Open would take for a store if it fails
// half way. Kinds Corrupt (it is no genesis entry), Exists, Storage.
func Join(fs disk.FS, dir string, genesis sigchain.Signed, inviter lattice.NodeID, logger *slog.Logger) (lattice.StoreID, error) {
	return JoinBy(fs, dir, genesis, JoinedRecord{Inviter: inviter}, logger)
}

// JoinBy is Join by a certain invitation. A node that is a member already, and has lost all
// but its key, finds back to what it wrote by it: nothing is written before the entry
// that answers it is here (keyval.Options.Claim).
func JoinBy(fs disk.FS, dir string, genesis sigchain.Signed, how JoinedRecord, logger *slog.Logger) (lattice.StoreID, error) {
	id, _, err := sigchain.StoreID(genesis)
	if err == nil {
		err = genesis.Verify()
	}
	if err != nil {
		return id, fmt.Errorf("join a store: %w", err)
	}
	final := fs.PathJoin(dir, id.String())
	if _, err := fs.Stat(final); err == nil {
		return id, lattice.E(lattice.Exists, fmt.Errorf("store %s is on this node already", id.Short()))
	}
	making := final + ".new"
	if err := fs.RemoveAll(making); err != nil {
		return id, lattice.E(lattice.Storage, err)
	}
	cat, err := openLocal(fs, fs.PathJoin(making, "kv"), kv.Options{Logger: logger})
	if err != nil {
		return id, err
	}
	if err := errors.Join(cat.putJoined(how), cat.putGenesis(genesis), cat.forgetMoved(), cat.Close()); err != nil {
		return id, fmt.Errorf("join store %s: %w", id.Short(), err)
	}
	// A crash before this leaves a directory that the next start removes.
	if err := fs.Rename(making, final); err != nil {
		return id, lattice.E(lattice.Storage, fmt.Errorf("join store %s: %w", id.Short(), err))
	}
	return id, disk.SyncDir(fs, dir)
}

func (l *local) putJoined(how JoinedRecord) error {
	b := l.db.Batch()
	b.Set([]byte{keyJoined}, encodeJoined(how))
	return l.db.Commit(b, true)
}

// Genesis returns the entry that began the store.
func (s *Store) Genesis() sigchain.Signed { return s.genesis }
