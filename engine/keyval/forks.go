package keyval

import (
	"errors"
	"fmt"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/storage/disk"
)

// Proofs that an author signed two entries for one place are kept for ever, beside
// the logs, as the entries' bytes:
//
//	<store>/forks/<author>-<incarnation>-<sequence>-<id of the entry>
//
// Both entries are there, also the one that the log has, because a log is pruned.

func (db *DB) forksDir() string { return db.o.FS.PathJoin(db.o.Dir, "forks") }

func forkName(s sigchain.Signed) string {
	return fmt.Sprintf("%s-%d-%d-%s", s.Author, s.Incarnation, s.Seq, s.ID)
}

// keepFork makes the proof durable that a and b are two entries for one place.
func (db *DB) keepFork(a, b sigchain.Signed) error {
	if !sigchain.Equivocation(a, b) {
		return lattice.E(lattice.Internal, errors.New("two entries that are no fork"))
	}
	if err := disk.MkdirAll(db.o.FS, db.forksDir()); err != nil {
		return err
	}
	for _, s := range []sigchain.Signed{a, b} {
		name := db.o.FS.PathJoin(db.forksDir(), forkName(s))
		if _, err := db.o.FS.Stat(name); err == nil {
			continue
		}
		if err := disk.WriteFile(db.o.FS, name, s.Bytes()); err != nil {
			return lattice.E(lattice.Storage, fmt.Errorf("keep the proof of a fork: %w", err))
		}
	}
	return nil
}

// Forks yields the entries that prove forks: at least two for each place.
func (db *DB) Forks(yield func(sigchain.Signed) error) error {
	names, err := db.o.FS.List(db.forksDir())
	if disk.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("list forks: %w", err))
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".tmp") {
			continue
		}
		b, err := disk.ReadFile(db.o.FS, db.o.FS.PathJoin(db.forksDir(), name))
		if err != nil {
			return lattice.E(lattice.Storage, fmt.Errorf("read %s: %w", name, err))
		}
		s, err := sigchain.Parse(b)
		if err == nil {
			err = s.Verify()
		}
		if err != nil {
			db.o.Logger.Error("the proof of a fork is damaged", "store", db.store.Short(), "file", name, "err", err)
			continue
		}
		if err := yield(s); err != nil {
			return err
		}
	}
	return nil
}

// offerForks gives the machine what is kept of forks. An entry that is alone, by a
// crash between the two, finds the other one of its place in the log.
func (db *DB) offerForks() error {
	alone := map[sigchain.Place]sigchain.Signed{}
	err := db.Forks(func(s sigchain.Signed) error {
		at := s.Ref().Place()
		one, ok := alone[at]
		if !ok {
			alone[at] = s
			return nil
		}
		delete(alone, at)
		eff, err := db.machine.Forked(one, s)
		if err != nil {
			return err
		}
		return db.applyAll(eff, lattice.Hash{})
	})
	for _, s := range alone {
		if err != nil {
			break
		}
		var eff fold.Effects
		if eff, err = db.machine.Offer(s, db.nowMs()); errors.Is(err, fold.ErrFull) {
			err = nil // found again when the log's entry is offered
		} else if err == nil {
			err = db.applyAll(eff, lattice.Hash{})
		}
	}
	return err
}
