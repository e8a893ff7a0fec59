package keyval

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// Follower hears of what replicas elsewhere need to know at once. Its functions are
// called with no lock of the DB held, one at a time, from goroutines that commit and
// receive: they must not block. Each may be nil.
type Follower struct {
	// Appended says that this node's log of this start has come on, durably at the
	// store's level, to tip. Several commits may be told of as one.
	Appended func(w state.Writer, tip sigchain.Link, time uint64)
	// Roster says that members or roles, as far as they are folded here, may have changed.
	Roster func()
	// Rebased says that what LogStates or NewestSnapshot returns has changed otherwise
	// than by new entries: entries were pruned, a snapshot was taken over, or dropped.
	Rebased func()
}

// followers are those who listen, and what they were not told yet.
type followers struct {
	mu      sync.Mutex // held while they are told, so that each hears things in order
	next    int
	list    map[int]Follower
	told    sigchain.Link // of this start's log
	roster  atomic.Bool
	rebased atomic.Bool
}

// Follow adds a follower until stop is called, after which none of its functions
// runs. Call it before LogStates, so that nothing falls in between; stop must not be
// called from a follower's function.
func (db *DB) Follow(f Follower) (stop func()) {
	fs := &db.followers
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.list == nil {
		fs.list = map[int]Follower{}
	}
	id := fs.next
	fs.next++
	fs.list[id] = f
	return func() {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		delete(fs.list, id)
	}
}

// tellFollowers tells of what has happened. No lock is held.
func (db *DB) tellFollowers() {
	fs := &db.followers
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if len(fs.list) == 0 {
		return
	}
	changed, rebased := fs.roster.Swap(false), fs.rebased.Swap(false)
	tip, time := fs.told, uint64(0)
	if l := db.logs.get(db.own); l != nil {
		var err error
		if tip, time, err = l.DurableTip(); err != nil {
			tip = fs.told // it is told of with the next
		}
	}
	for _, id := range slices.Sorted(maps.Keys(fs.list)) {
		f := fs.list[id]
		if changed && f.Roster != nil {
			f.Roster()
		}
		if rebased && f.Rebased != nil {
			f.Rebased()
		}
		if tip.Seq > fs.told.Seq && f.Appended != nil {
			f.Appended(db.own, tip, time)
		}
	}
	fs.told = tip
}

// tellRebased tells of a new base.
func (db *DB) tellRebased() {
	db.followers.rebased.Store(true)
	db.tellFollowers()
}

// Member is an author with a right in the store, or one that had it.
type Member struct {
	Author lattice.AuthorID
	Role   roster.Role // what its next entry may do; None: it was removed
	Forked bool        // it signed two entries for one place, so nothing that it writes counts any more
}

// people are who may be here, as the fold has it. It is replaced, never changed, and
// read without a lock: also while the state is made again.
type people struct {
	all  map[lattice.AuthorID]Member // the creator, and all whom somebody named who had the right to
	gone error                       // this node was removed
}

// Admits reports whether entries of an author may be here: nil, or an error that
// wraps ErrStranger. It never waits. Those of a removed author may: which of them
// count, the fold decides.
func (db *DB) Admits(a lattice.AuthorID) error {
	if _, ok := db.Member(a); !ok {
		return fmt.Errorf("%s: %w", a.Short(), ErrStranger)
	}
	return nil
}

// Member returns what is known here of an author's membership; false: nothing. It
// never waits.
func (db *DB) Member(a lattice.AuthorID) (Member, bool) {
	m, ok := db.people.Load().all[a]
	return m, ok
}

// Members returns all who have a role in the store or had one, ascending by author.
// It never waits.
func (db *DB) Members() []Member {
	var out []Member
	for _, m := range db.people.Load().all {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Member) int { return bytes.Compare(a.Author[:], b.Author[:]) })
	return out
}

// meet finds again who may be here. db.mu is held, or nobody else is there yet.
func (db *DB) meet() {
	r := db.machine.Roster()
	p := &people{all: map[lattice.AuthorID]Member{}}
	add := func(a lattice.AuthorID) {
		if _, ok := p.all[a]; !ok {
			p.all[a] = Member{a, r.Member(a), db.machine.ForkOf(a).Seq > 0}
		}
	}
	add(db.o.Genesis.Author)
	for a := range r.Named {
		if r.Introduced(a) {
			add(a)
		}
	}
	if p.all[db.own.Author].Role == roster.None {
		for at := range r.Removals(db.own.Author) {
			if r.Removed(at) {
				p.gone = ErrRemovedBy(at.Author)
				break
			}
		}
	}
	if n := db.notice; n != nil && p.gone == nil && db.machine.Tip(writerOf(n.At)).Seq < n.At.Seq {
		p.gone = ErrRemovedBy(n.At.Author) // until the entry itself is here
	}
	db.people.Store(p)
	db.met = false
	db.followers.roster.Store(true)
}

// greet is meet, if something was folded that says who may be here. db.mu is held.
func (db *DB) greet() {
	if db.met {
		db.meet()
	}
}

// enrols reports whether entries say something of who may be here.
func enrols(all []fold.Folded) bool {
	for _, f := range all {
		for _, op := range f.Entry.Ops { // also of void ones: a removal that makes them so takes away nobody's place here
			if roster.IsOp(op.Kind) {
				return true
			}
		}
	}
	return false
}

// inOrderOf returns the states of writers, ascending.
func inOrderOf(ws []state.Writer, of map[state.Writer]LogState) []LogState {
	slices.SortFunc(ws, state.Writer.Compare)
	out := make([]LogState, 0, len(ws))
	for _, w := range ws {
		out = append(out, of[w])
	}
	return out
}
