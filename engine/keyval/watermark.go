package keyval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/watermark"
	"github.com/lattice-log/lattice/engine/authorlog"
)

// ErrBehind means that entries which are to be pruned are not with all active members
// yet, as far as those have said. Kind NotYet.
var ErrBehind = lattice.E(lattice.NotYet, errors.New("not all active members have these entries"))

// MemberMark is what an active member other than this node has reported last.
type MemberMark struct {
	Author   lattice.AuthorID
	Frontier state.Frontier // empty: nothing yet
}

// Watermark is up to where all active members have a store's entries: what they have
// reported of themselves, and what is durable here. A member counts when it has a role, is
// not dormant, and has not signed two entries for one place, since what it reports then
// counts no more.
type Watermark struct {
	Frontier state.Frontier
	Own      state.Frontier // what is durable here
	Others   []MemberMark   // ascending by author; none: this node has the store alone
}

// Behind returns how many of the entries that are durable here a member has not reported.
// One that reports what it has to is behind by the reports of the others.
func (w Watermark) Behind(m MemberMark) (n uint64) {
	for at, seq := range w.Own {
		n += seq - min(seq, m.Frontier[at])
	}
	return n
}

// Watermark returns it. It waits for nobody but those who fold.
func (db *DB) Watermark() Watermark {
	db.mu.Lock() // the roster remembers what it concludes
	defer db.mu.Unlock()
	return db.watermark()
}

// watermark is Watermark; db.mu is held alone, or nobody else is there yet.
func (db *DB) watermark() Watermark {
	own := db.durable()
	all := []state.Frontier{own}
	w := Watermark{Own: own}
	for _, s := range db.machine.Roster().Standings() {
		if s.Author == db.own.Author || !active(s) || db.machine.ForkOf(s.Author).Seq > 0 {
			continue
		}
		f := db.machine.Said(s.Author).Frontier
		w.Others = append(w.Others, MemberMark{s.Author, f})
		all = append(all, f)
	}
	w.Frontier = watermark.Least(all...)
	return w
}

// active reports whether a member's word is waited for. A key that another took the place
// of says nothing more.
func active(s roster.Standing) bool {
	return s.Role > roster.None && !s.Dormant && s.Next == (lattice.AuthorID{})
}

// durable returns up to where each writer is folded and durable here, at the store's
// level. db.mu is held.
func (db *DB) durable() state.Frontier {
	f := db.machine.Frontier()
	below := db.machine.Base()
	for w, seq := range f {
		if seq <= below[w] {
			continue
		}
		n := below[w]
		if l := db.logs.get(w); l != nil {
			n = max(n, min(seq, l.Durable()))
		}
		if f[w] = n; n == 0 {
			delete(f, w)
		}
	}
	return f
}

// Report writes an entry that says how far this node is, if others can learn from it
// that something can be pruned: if an entry that does more than report or prune is
// durable here since it said so last. So what members report is no reason for others to
// report, and a store in which nobody writes comes to rest. It returns whether it wrote.
//
// What is reported is synced before, at whatever level the store writes: a power cut
// must not take back what others prune then.
func (db *DB) Report(ctx context.Context) (bool, error) {
	db.mu.Lock()
	w := db.watermark()
	f, said := db.durable(), db.machine.Said(db.own.Author)
	db.mu.Unlock()
	if len(w.Others) == 0 {
		return false, nil
	}
	news, err := db.news(said.Frontier, f)
	if err != nil || !news {
		return false, err
	}
	if err := db.Sync(); err != nil {
		return false, err
	}
	op, err := watermark.Op(said.Since(db.own, f))
	if err != nil {
		return false, err
	}
	if _, err := db.enterAs(ctx, roster.Reader, op); err != nil {
		return false, fmt.Errorf("report how far this node is: %w", err)
	}
	return true, nil
}

// news reports whether an entry beyond from, up to f, does more than report or prune.
// One that is not in its log any more is taken for one that does.
func (db *DB) news(from, f state.Frontier) (bool, error) {
	for _, w := range f.Writers() {
		if seq, err := db.firstNews(w, from[w], f[w]); err != nil || seq > 0 {
			return true, err
		}
	}
	return false, nil
}

// firstNews returns the first entry of a log behind after, up to upto, that does more
// than report or prune, 0 when there is none. One that was pruned is taken for one.
func (db *DB) firstNews(w state.Writer, after, upto uint64) (uint64, error) {
	if after >= upto {
		return 0, nil
	}
	l := db.logs.get(w)
	if l == nil {
		return after + 1, nil
	}
	if first, _ := l.Bounds(); first > after+1 {
		return after + 1, nil
	}
	found := uint64(0)
	err := l.Scan(after+1, upto, func(e sigchain.Signed) error {
		if !slices.ContainsFunc(e.Ops, func(op sigchain.Op) bool { return op.Kind != watermark.KindReport && op.Kind != sigchain.KindPrune }) {
			return nil
		}
		found = e.Seq
		return errFound
	})
	if err != nil && !errors.Is(err, errFound) {
		return 0, fmt.Errorf("look for what was not reported of %s: %w", authorlog.Name(w), err)
	}
	return found, nil
}

var errFound = errors.New("found")

// mayPrune reports whether all active members have the entries up to f, those aside that
// only report or prune: nil, or an error that wraps ErrBehind.
func (db *DB) mayPrune(f state.Frontier) error {
	mark := db.Watermark()
	below := state.Frontier{}
	db.mu.RLock()
	if db.base != nil {
		below = db.base.m.Base()
	}
	db.mu.RUnlock()
	entries := uint64(0)
	var who []string
	for _, o := range append(mark.Others, MemberMark{db.own.Author, mark.Own}) {
		lacks := uint64(0)
		for _, w := range f.Writers() {
			seq, err := db.firstNews(w, max(o.Frontier[w], below[w]), f[w])
			if err != nil {
				return err
			}
			if seq > 0 {
				lacks += f[w] + 1 - seq
			}
		}
		if lacks > 0 {
			who = append(who, o.Author.Short())
			entries = max(entries, lacks)
		}
	}
	if entries == 0 {
		return nil
	}
	return fmt.Errorf("%w: up to %d are not known to be durable with %s", ErrBehind, entries, strings.Join(who, ", "))
}
