package keyval

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/storage/disk"
)

// A member that was removed gets nothing more from others, so the entry that removed it
// does not come to it as others do. It is shown that entry with those that give its author
// the right to it (fold.ParseNotice), believes what it can check, and keeps it:
//
//	<store>/removed
//
// From then on it writes nothing more here, and reads what it has. A crash before the
// file is whole leaves it as it was, and it is shown again. Once the entry itself is folded,
// as on a node that is admitted again, the fold alone decides and the file goes.

func (db *DB) noticePath() string { return db.o.FS.PathJoin(db.o.Dir, "removed") }

// Notice returns the proof that an author was removed. Kinds NotFound (it was not, as far
// as is known here, or was no member), OutOfRange (what proves it was pruned), TooLarge.
func (db *DB) Notice(of lattice.AuthorID) ([]byte, error) {
	var refs []sigchain.Ref
	db.ReadRoster(func(r *roster.Roster) { refs = r.Grounds(of) })
	if len(refs) == 0 {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("that %s was removed from the store is not known here", of.Short()))
	}
	var all []sigchain.Signed
	for _, ref := range refs {
		l := db.logs.get(writerOf(ref))
		if l == nil {
			return nil, lattice.E(lattice.OutOfRange, fmt.Errorf("entry %s, which proves it, is not here any more", ref.Place()))
		}
		s, err := l.Read(ref.Seq)
		if err == nil && s.ID != ref.ID {
			err = lattice.E(lattice.NotFound, errors.New("another entry is in its place"))
		}
		if err != nil {
			return nil, fmt.Errorf("entry %s, which proves it: %w", ref.Place(), err)
		}
		all = append(all, s)
	}
	return fold.EncodeNotice(all)
}

// Dismiss takes a notice from another node: this one was removed. It is durable when the
// call returns, and followers hear of it. One that is known changes nothing. Errors wrap
// fold.ErrNotice, or are of Kind Storage.
func (db *DB) Dismiss(b []byte) error {
	if db.gone() != nil {
		return nil
	}
	defer db.tellFollowers()
	db.receiving.Lock() // one at a time, as all that others bring
	defer db.receiving.Unlock()
	role := db.Role()
	n, err := fold.ParseNotice(b, db.o.Genesis, db.own.Author, role)
	if err != nil {
		return err
	}
	db.mu.Lock()
	refuted := db.machine.Roster().Refuted(n.At.Place())
	known := db.machine.Tip(writerOf(n.At)).Seq >= n.At.Seq
	db.mu.Unlock()
	if refuted || known {
		return fmt.Errorf("%w: by what is known here the removal %s does not count", fold.ErrNotice, n.At.Place())
	}
	if err := disk.WriteFile(db.o.FS, db.noticePath(), b); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("keep the notice of a removal: %w", err))
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.notice = &n
	db.meet()
	db.o.Logger.Warn("this node was removed from the store", "store", db.store.Short(), "by", n.At.Author.Short())
	return nil
}

// openNotice finds again what was shown. Nobody else is there yet.
func (db *DB) openNotice() error {
	b, err := disk.ReadFile(db.o.FS, db.noticePath())
	if disk.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("read the notice of a removal: %w", err))
	}
	n, err := fold.ParseNotice(b, db.o.Genesis, db.own.Author, roster.None)
	if err != nil { // it is shown again
		db.o.Logger.Error("the notice of a removal is damaged", "store", db.store.Short(), "err", err)
		return disk.RemoveIfExists(db.o.FS, db.noticePath())
	}
	if db.machine.Tip(writerOf(n.At)).Seq >= n.At.Seq {
		return disk.RemoveIfExists(db.o.FS, db.noticePath())
	}
	db.notice = &n
	return nil
}

func writerOf(r sigchain.Ref) state.Writer {
	return state.Writer{Author: r.Author, Incarnation: r.Incarnation}
}

// Gone says that this node was removed from the store, as far as is known here: nil, or
// an error of Kind Denied. It never waits.
func (db *DB) Gone() error { return db.gone() }
