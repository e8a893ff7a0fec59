package keyval

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/storage/disk"
)

// When the base became the base, for people who miss what was pruned, lies beside it:
//
//	<store>/snapshots/base.since
//
//	0  "LD"
//	2  version  u8 = 1
//	3  sum      of the base's content, 32
//	35 time     u64, ms since 1970
//	43 CRC-32C  of all before, u32
//
// It decides nothing. Of another base than the one that is there, or damaged, it says
// nothing, and nothing is known of the time.
const (
	sinceVersion = 1
	sinceSize    = 2 + 1 + 32 + 8 + 4
)

// Floor is up to where a store's entries were pruned on this node.
type Floor struct {
	Snapshot lattice.Hash // the base: what stands for them
	Frontier state.Frontier
	Through  time.Time // of the newest of them, by its author's clock
	Pruned   time.Time // when that was done here; zero: not known
}

// Floor returns up to where entries were pruned; false: nowhere.
func (db *DB) Floor() (Floor, bool) {
	db.mu.RLock()
	b := db.base
	db.mu.RUnlock()
	if b == nil {
		return Floor{}, false
	}
	f := Floor{Snapshot: b.sum, Frontier: b.m.Base()}
	last := uint64(0)
	for c := range b.m.Chains {
		last = max(last, c.Time)
	}
	f.Through = time.UnixMilli(clock.Timestamp(last).Milli()).UTC()
	if data, err := disk.ReadFile(db.o.FS, db.sincePath()); err == nil {
		if sum, at, ok := parseSince(data); ok && sum == b.sum {
			f.Pruned = at
		}
	}
	return f, true
}

func (db *DB) sincePath() string { return db.basePath() + ".since" }

// noteSince notes that a base became the base now. A crash before leaves the time unknown.
func (db *DB) noteSince(sum lattice.Hash) error {
	if err := disk.WriteFile(db.o.FS, db.sincePath(), appendSince(nil, sum, db.o.Clock.Now())); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("note when entries were pruned: %w", err))
	}
	return nil
}

func appendSince(b []byte, sum lattice.Hash, at time.Time) []byte {
	b = append(append(b, 'L', 'D', sinceVersion), sum[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(at.UnixMilli()))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}

func parseSince(b []byte) (sum lattice.Hash, at time.Time, ok bool) {
	if len(b) != sinceSize || b[0] != 'L' || b[1] != 'D' || b[2] != sinceVersion {
		return sum, at, false
	}
	if binary.BigEndian.Uint32(b[sinceSize-4:]) != crc32.Checksum(b[:sinceSize-4], crc32.MakeTable(crc32.Castagnoli)) {
		return sum, at, false
	}
	copy(sum[:], b[3:])
	return sum, time.UnixMilli(int64(binary.BigEndian.Uint64(b[3+32:]))).UTC(), true
}

// KeptBelow returns the newest kept snapshot that has folded nothing beyond f. Kind
// NotFound.
func (db *DB) KeptBelow(f state.Frontier) (Kept, error) {
	all, err := db.Snapshots()
	if err != nil {
		return Kept{}, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].Base {
			continue
		}
		at, err := db.frontierOf(all[i])
		if err != nil {
			return Kept{}, err
		}
		if at.Within(f) {
			return all[i], nil
		}
	}
	return Kept{}, lattice.E(lattice.NotFound, fmt.Errorf("no snapshot is kept at or below that frontier"))
}

// frontierOf reads how far a kept snapshot is.
func (db *DB) frontierOf(k Kept) (state.Frontier, error) {
	s, err := openSource(db.o.FS, db.keptPath(k), db.foldConfig())
	if err != nil {
		return nil, err
	}
	return s.m.Base(), s.close()
}
