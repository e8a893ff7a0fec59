package keyval

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/invariant"
)

const (
	// groupBytes is the size at which a group takes no further updates.
	groupBytes = 1 << 20
	// groupOps is the number of operations likewise.
	groupOps = 100_000
	// parentRoom is kept for an entry's parents, 80 bytes each.
	parentRoom = 1 << 20
	maxParents = parentRoom / 80
	// heldEvery is how often the clock is looked at while it holds entries.
	heldEvery = time.Second
	// sayEvery is how often a long fold says how far it is.
	sayEvery = 5 * time.Second
	// maxQueue bounds the groups that wait for the one being written.
	maxQueue = 8
	// spareOps is how many operations a group has at most whose memory the next one uses.
	spareOps = 4096
	// retryEvery is how often a sync that failed is tried again.
	retryEvery = 500 * time.Millisecond
)

// group is the updates that become one entry.
type group struct {
	id      uint64 // from 1, in order
	seq     uint64 // of its entry
	time    uint64 // likewise
	parents []sigchain.Ref
	ops     []sigchain.Op
	bytes   int      // of ops in the entry
	told    [][2]int // which of ops listeners hear of: ranges, half open
	foreign bool     // some of ops are not of state

	entry sigchain.Signed // set by the committer

	done chan struct{}
	err  error // set before done closes
}

// View runs f on the state as it is now. The ticket is for what f saw of writes
// that are not decided yet: wait for it before showing that to anybody.
func (db *DB) View(f func(*Tx) error) (Ticket, error) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	if err := db.readable(); err != nil {
		return Ticket{}, err
	}
	tx := Tx{db: db, now: db.o.Clock.Now().UnixMilli(), shared: true}
	defer func() { tx.done = true }()
	err := f(&tx)
	return db.ticket(tx.group), err
}

// Update runs f, alone, on the state as it is now, and puts what it writes into
// the group being built. An error of f undoes all it wrote, and is returned. f
// runs once. Wait for the ticket before answering for what was written; the
// effects are seen by later transactions at once, under a ticket of theirs.
//
// Errors of Kind Storage mean that nothing can be written now.
func (db *DB) Update(f func(*Tx) error) (Ticket, error) { return db.update(f, false, true) }

// UpdateQuietly is Update for a front end that tells its own clients of what it
// wrote: listeners do not hear of it.
func (db *DB) UpdateQuietly(f func(*Tx) error) (Ticket, error) { return db.update(f, true, true) }

func (db *DB) update(f func(*Tx) error, quiet, kick bool) (Ticket, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if err := db.admit(); err != nil {
		return Ticket{}, err
	}
	db.updates++
	tx := Tx{db: db, now: db.o.Clock.Now().UnixMilli()}
	db.t.begin(&db.undo, db.updates)
	err := errFailed // if f panics
	defer func() {
		tx.done = true
		if err != nil {
			db.t.rollback()
			if g := db.building; tx.wrote > 0 {
				clear(g.ops[tx.ops:])
				g.ops, g.bytes = g.ops[:tx.ops], tx.bytes
				if tx.ops == 0 {
					db.dropGroup()
				}
			}
			return
		}
		db.t.undo = nil
	}()
	if err = f(&tx); err != nil {
		return db.ticket(tx.group), err
	}
	if tx.wrote == 0 {
		return db.ticket(tx.group), nil
	}
	if !quiet && len(db.listeners) > 0 {
		db.building.tell(tx.ops)
	}
	db.writes.Add(1)
	if kick {
		db.kick()
	}
	return Ticket{db.building}, nil
}

// admit waits until there is room for an update, or says why there is none.
func (db *DB) admit() error {
	for {
		if err := db.writable(); err != nil {
			return err
		}
		full := db.building != nil && (db.building.bytes >= groupBytes || len(db.building.ops) >= groupOps)
		switch {
		case db.changing:
		case full && len(db.queue) < maxQueue:
			db.queue = append(db.queue, db.building)
			db.building = nil
			continue
		case !full && db.t.bytes < db.o.DirtyBytes:
			return nil
		}
		db.kick()
		db.room.Wait()
	}
}

// openGroup begins a group if none is being built. needs is the role that what goes into
// it needs.
func (db *DB) openGroup(needs roster.Role) error {
	if db.building != nil {
		return nil
	}
	if err := db.mayWrite(needs); err != nil {
		return err
	}
	t, err := db.o.Stamp()
	if err != nil {
		return fmt.Errorf("time of an entry: %w", err)
	}
	switch {
	case clock.Held(clock.Timestamp(t), db.nowMs(), db.o.MaxDrift.Milliseconds()):
		return fmt.Errorf("time of an entry: %w", clock.ErrDrift)
	case t <= db.lastTime:
		return lattice.E(lattice.Internal, fmt.Errorf("time of an entry: %d is not after %d", t, db.lastTime))
	}
	var parents []sigchain.Ref
	if db.nextSeq == 0 {
		db.findBefore() // it may have come since the start
	}
	if db.unnamed {
		if parents = db.machine.Parents(db.own, db.before); len(parents) > maxParents {
			return lattice.E(lattice.TooLarge, fmt.Errorf("%d writers have to be named as parents, which do not fit an entry", len(parents)))
		}
		db.unnamed = false
	}
	db.lastTime = t
	db.lastGroup++
	db.nextSeq++
	db.building = &group{id: db.lastGroup, seq: db.nextSeq, time: t, parents: parents, ops: db.spare, done: make(chan struct{})}
	db.spare = nil
	return nil
}

// dropGroup takes back the group being built, which is empty: nobody would ever
// decide it.
func (db *DB) dropGroup() {
	db.unnamed = true
	db.lastGroup--
	db.nextSeq--
	db.building = nil
}

func (db *DB) kick() {
	select {
	case db.work <- struct{}{}:
	default:
	}
}

// Run commits groups, one at a time, until ctx ends; then it commits what is left
// and returns nil. Without it no ticket is ever decided. See the package comment
// for the steps.
func (db *DB) Run(ctx context.Context) error {
	db.mu.Lock()
	db.running = true
	db.mu.Unlock()
	rounds := make(chan struct{})
	go func() {
		defer close(rounds)
		db.writeRounds()
	}()
	roots := make(chan struct{})
	go func() {
		defer close(roots)
		db.makeRoots(ctx)
	}()
	for stopping := false; ; {
		db.company()
		committed := db.commitNext(stopping)
		db.prepare() // whoever waited has been answered
		if committed {
			continue
		}
		db.tellFollowers() // of what was made again, or released
		if stopping {
			break
		}
		select {
		case <-db.work:
		case <-ctx.Done():
			stopping = true
		}
	}
	db.mu.Lock()
	db.stopped = true
	db.answer(db.wanted, nil, nil, ErrClosed)
	db.wanted = nil
	for w := range db.watchers {
		w.end()
	}
	db.turnAway(ErrClosed)
	db.room.Broadcast()
	db.mu.Unlock()
	close(db.rounds)
	<-rounds
	<-roots
	return nil
}

// companyTries bounds how often the committer lets others go first.
const companyTries = 8

// company lets those write who are about to: what they add shares the entry's
// signature and its sync. It takes no longer than they do, and at once returns
// when there is nobody.
func (db *DB) company() {
	before := db.writes.Load()
	for range companyTries {
		runtime.Gosched()
		now := db.writes.Load()
		if now == before {
			return
		}
		before = now
	}
}

// commitNext commits the next group, and reports whether there was one.
func (db *DB) commitNext(stopping bool) bool {
	db.committing.Lock()
	g := db.take(stopping)
	if g != nil {
		db.commit(g)
	}
	db.committing.Unlock()
	if g != nil {
		db.tellFollowers()
	}
	return g != nil
}

// take returns the next group to commit, nil when there is none. What a failed
// sync left behind is tried first.
func (db *DB) take(stopping bool) *group {
	if !stopping {
		db.unstall()
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.stopped {
		return nil
	}
	db.releaseHeld()
	switch {
	case len(db.queue) > 0:
		db.writing = db.queue[0]
		db.queue = append(db.queue[:0], db.queue[1:]...)
	case db.building != nil:
		db.writing, db.building = db.building, nil
	case db.changing:
		db.remake()
		return nil
	default:
		db.gather(nil)
		return nil
	}
	if db.building == nil && len(db.queue) == 0 {
		// What the table holds now is the effects of this group and those before.
		db.gather(db.writing)
	}
	db.room.Broadcast()
	return db.writing
}

// commit makes a group's entry durable and decides it.
func (db *DB) commit(g *group) {
	written, err := db.write(g)
	db.mu.Lock()
	defer db.mu.Unlock()
	defer db.greet()
	if err != nil {
		db.fail(g, written, err)
		return
	}
	if err := db.enter(g); err != nil {
		db.fail(g, false, err)
		return
	}
	db.writing = nil
	if clear(g.ops); cap(g.ops) <= spareOps { // the entry has them
		db.spare = g.ops[:0]
	}
	g.ops = nil
	db.decided = g.id
	db.changing = db.changing || db.machine.Stale()
	db.greet() // first: who made a member and was answered lets it in
	close(g.done)
	db.room.Broadcast()
}

// enter lets the fold machine know of an entry of ours, whose effects the table
// has. An error means that it has none, after all.
func (db *DB) enter(g *group) error {
	offer := db.machine.OfferOwn
	if g.foreign || len(g.told) > 0 || len(db.watchers) > 0 || invariant.Enabled {
		offer = db.machine.Offer // somebody wants the operations, or they are more than state's
	}
	eff, err := offer(g.entry, db.nowMs())
	if err != nil {
		return err
	}
	db.offered[db.own] = g.seq
	if eff.Status != fold.Entered {
		return lattice.E(lattice.Conflict, fmt.Errorf("entry %d of this node is %s: its effects have to wait", g.seq, eff.Status))
	}
	for _, f := range eff.Fold {
		if f.Entry.ID == g.entry.ID && f.Void != nil {
			return f.Void
		}
	}
	if err := db.applyAll(eff, g.entry.ID); err != nil {
		return err
	}
	db.o.Observe(db.lastTime) // entries of others may have waited for this one
	db.tellOwn(eff.Fold, g)
	return nil
}

// write signs, appends and syncs. written says that the entry may be in the log
// in spite of the error.
func (db *DB) write(g *group) (written bool, err error) {
	l, err := db.ownLog()
	if err != nil {
		return false, err
	}
	prev, _ := l.Tip()
	if prev.IsZero() {
		prev = db.before
	}
	e, err := sigchain.Sign(db.o.Key, sigchain.Entry{
		Store: db.store, Incarnation: db.own.Incarnation, Seq: g.seq, Time: g.time, Prev: prev, Parents: g.parents, Ops: g.ops,
	})
	if err != nil {
		return false, err
	}
	if err := l.Append(e); err != nil {
		return false, err
	}
	g.entry = e
	if db.o.Durability == signedlog.Fsync {
		db.unprepared.Add(int64(len(e.Bytes())))
		return true, l.Flush()
	}
	l.Notify(g.seq, func(e error) { err = e }) // before it returns, at these levels
	return true, err
}

// ownLog returns this incarnation's log. It is made by the first group, so that a
// start that writes nothing leaves nothing behind. Only the committer calls it.
func (db *DB) ownLog() (*authorlog.Log, error) {
	if l := db.logs.get(db.own); l != nil {
		return l, nil
	}
	return db.logs.open(db.own)
}

// fail drops g, everything that was built on it, and what the table holds beyond
// the fold database, which it then reads from the logs again. db.mu is held.
func (db *DB) fail(g *group, written bool, err error) {
	err = fmt.Errorf("commit: %w", err)
	db.o.Logger.Error("writes were dropped", "store", db.store.Short(), "entry", g.seq, "err", err)
	for db.flying != nil && db.flying.before(g) {
		db.room.Wait() // it is being written, and what it holds counts
	}
	db.flying = nil // what it holds does not; whoever has it sees that its group failed
	if written {
		// Lost or kept, nobody knows: nothing more is written before a sync says.
		db.stalled = err
		db.o.Clock.AfterFunc(retryEvery, db.kick)
	}
	dead := append([]*group{g}, db.queue...)
	if db.building != nil {
		dead = append(dead, db.building)
	}
	db.writing, db.queue, db.building = nil, nil, nil
	for _, x := range dead {
		x.err = err
		close(x.done)
	}
	db.decided = db.lastGroup
	if rerr := db.reset(); rerr != nil {
		db.broken = lattice.E(lattice.Storage, fmt.Errorf("the state could not be read again after a failed write: %w", rerr))
		db.o.Logger.Error("the store needs to be opened again", "store", db.store.Short(), "err", db.broken)
	}
	db.room.Broadcast()
}

// unstall tries the sync that failed again. If it succeeds, what was written and
// reported as failed turns out to be there.
func (db *DB) unstall() {
	db.mu.RLock()
	stalled := db.stalled != nil && db.broken == nil
	db.mu.RUnlock()
	if !stalled {
		return
	}
	l := db.logs.get(db.own)
	err := l.Flush()
	db.mu.Lock()
	defer db.mu.Unlock()
	switch {
	case errors.Is(err, signedlog.ErrNeedsRepair):
		db.broken = err
	case err != nil:
		db.o.Clock.AfterFunc(retryEvery, db.kick)
		return
	default:
		db.stalled = nil
		if err := db.catchUp(); err != nil {
			db.broken = lattice.E(lattice.Storage, fmt.Errorf("read the log again: %w", err))
		}
		db.lag() // what was kept is there now, and was not published
	}
	db.room.Broadcast()
}

// readable and writable say why the state cannot be read or written. db.mu is held.
func (db *DB) readable() error {
	if db.closed {
		return ErrClosed
	}
	return nil
}

func (db *DB) writable() error {
	switch {
	case db.closed || db.stopped:
		return ErrClosed
	case db.broken != nil:
		return db.broken
	case db.stalled != nil:
		return db.stalled
	}
	return nil
}
