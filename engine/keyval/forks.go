package keyval

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
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
		s, err := db.readFork(name)
		if lattice.KindOf(err) == lattice.Corrupt {
			db.o.Logger.Error("the proof of a fork is damaged", "store", db.store.Short(), "err", err)
			continue
		}
		if err == nil {
			err = yield(s)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// StoreFork makes the proof durable that an author signed two entries for one place,
// and has the fold learn of it: nothing that the author wrote from there on counts
// any more. Whoever hands it in has checked both signatures. One at or beyond a fork
// that is known here changes nothing, and is not kept. The steps, and what a crash
// leaves:
//
//  1. Both entries are written and synced. A crash may leave one of them, which finds
//     the other in the log, or is no proof.
//  2. The fold learns of it. A crash before that: the next start offers what is kept.
//
// Kinds Invalid (it is none, or of another store), Denied (ErrStranger), Storage.
func (db *DB) StoreFork(a, b sigchain.Signed) error {
	defer db.tellFollowers()
	db.receiving.Lock()
	defer db.receiving.Unlock()
	switch {
	case !sigchain.Equivocation(a, b):
		return lattice.E(lattice.Invalid, errors.New("two entries that are no fork"))
	case a.Home() != db.store:
		return fold.ErrForeign
	}
	if err := db.Admits(a.Author); err != nil {
		return err
	}
	first, err := db.firstForks()
	if err != nil {
		return err
	}
	at := a.Ref().Place()
	if have, ok := first[a.Author]; ok && have.at.Compare(at) <= 0 {
		return nil
	}
	if err := db.keepFork(a, b); err != nil {
		return err
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.pause(); err != nil {
		return err
	}
	eff, err := db.machine.Forked(a, b)
	if err == nil {
		err = db.applyAll(eff, lattice.Hash{})
	}
	if err == nil {
		err = db.foldLogs() // who waited for what does not count goes on
	}
	if err != nil {
		return db.breaks(err)
	}
	db.met = true
	return db.folded()
}

// twoOf is the first place for which both entries of a fork are kept.
type twoOf struct {
	at  sigchain.Place
	ids [2]string
}

// firstForks reads from the names of what is kept the first fork of each author.
func (db *DB) firstForks() (map[lattice.AuthorID]twoOf, error) {
	names, err := db.o.FS.List(db.forksDir())
	if disk.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("list forks: %w", err))
	}
	alone := map[sigchain.Place]string{}
	out := map[lattice.AuthorID]twoOf{}
	for _, name := range names {
		at, id, ok := parseForkName(name)
		if !ok {
			continue
		}
		if _, ok := alone[at]; !ok {
			alone[at] = id
			continue
		}
		if have, ok := out[at.Author]; !ok || at.Compare(have.at) < 0 {
			out[at.Author] = twoOf{at, [2]string{alone[at], id}}
		}
	}
	return out, nil
}

func parseForkName(name string) (at sigchain.Place, id string, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 4 {
		return at, "", false
	}
	var errs [4]error
	at.Author, errs[0] = lattice.ParseAuthorID(parts[0])
	at.Incarnation, errs[1] = strconv.ParseUint(parts[1], 10, 64)
	at.Seq, errs[2] = strconv.ParseUint(parts[2], 10, 64)
	_, errs[3] = lattice.ParseHash(parts[3])
	return at, parts[3], errors.Join(errs[:]...) == nil
}

// FirstForks returns, of each author that signed two entries for one place, the
// first such place of which the proof is here durably, ascending.
func (db *DB) FirstForks() ([]sigchain.Place, error) {
	all, err := db.firstForks()
	var out []sigchain.Place
	for _, f := range all {
		out = append(out, f.at)
	}
	slices.SortFunc(out, sigchain.Place.Compare)
	return out, err
}

// ReadFork returns the proof of an author's first fork. Kinds NotFound, Corrupt, Storage.
func (db *DB) ReadFork(author lattice.AuthorID) (a, b sigchain.Signed, err error) {
	all, err := db.firstForks()
	f, ok := all[author]
	if err == nil && !ok {
		err = lattice.E(lattice.NotFound, fmt.Errorf("no fork of %s is known", author.Short()))
	}
	var two [2]sigchain.Signed
	for i := range two {
		if err == nil {
			two[i], err = db.readFork(fmt.Sprintf("%s-%d-%d-%s", f.at.Author, f.at.Incarnation, f.at.Seq, f.ids[i]))
		}
	}
	if err == nil && !sigchain.Equivocation(two[0], two[1]) {
		err = lattice.E(lattice.Corrupt, fmt.Errorf("what is kept of the fork at %s is no proof", f.at))
	}
	return two[0], two[1], err
}

// readFork reads an entry that proves a fork. Kind Corrupt, Storage.
func (db *DB) readFork(name string) (sigchain.Signed, error) {
	b, err := disk.ReadFile(db.o.FS, db.o.FS.PathJoin(db.forksDir(), name))
	if err != nil {
		return sigchain.Signed{}, lattice.E(lattice.Storage, fmt.Errorf("read %s: %w", name, err))
	}
	s, err := sigchain.Parse(b)
	if err == nil {
		err = s.Verify()
	}
	if err != nil {
		return s, lattice.E(lattice.Corrupt, fmt.Errorf("the proof of a fork, %s: %w", name, err))
	}
	return s, nil
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
		if err == nil {
			err = db.complete(s)
		}
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

// complete keeps the entry that the log has in the place of one that is alone among
// the proofs, so that both can be shown to others.
func (db *DB) complete(s sigchain.Signed) error {
	l := db.logs.get(state.Writer{Author: s.Author, Incarnation: s.Incarnation})
	if l == nil {
		return nil
	}
	have, err := l.Read(s.Seq)
	if err != nil || !sigchain.Equivocation(have, s) {
		return nil // it is not there any more, or not yet
	}
	return db.keepFork(have, s)
}
