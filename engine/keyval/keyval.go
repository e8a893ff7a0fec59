// Package keyval is one store's state on this node: signed entries in author logs,
// folded into keys with heads, written by transactions.
//
//	<store>/authors/<author>/<incarnation>/   what is true (engine/authorlog)
//	<store>/snapshots/base                    what was pruned of it came to
//	<store>/state/                            the fold of both (storage/kv): may be
//	                                          deleted, and is then made again
//
// # Life of a write
//
//  1. Update runs the caller's function, alone. Each operation gets its dot, goes
//     into the group being built, and changes the table in memory, which every
//     later transaction sees. A crash leaves nothing of it.
//  2. The committer (Run, or Decide) takes the group
//     and lets the next one build. It signs
//     the group as one entry, whose parents are the folded tips of the other
//     writers that have moved, and appends it to this incarnation's log, which the
//     first entry makes. A crash may leave all of the entry or nothing.
//  3. At level Fsync it syncs the log; at Interval and OS the log does that later.
//     Then the tickets are decided, and whoever waited answers. A crash from here
//     on leaves the write, at its level.
//  4. What changed gathers in memory. In rounds it is written to the fold
//     database, after the logs that it comes from are synced, each round in one
//     batch with the positions up to which it has folded them. The database has
//     no journal: the logs are its journal. A crash takes back whole rounds, and
//     the next start folds the entries behind its positions again.
//
// If signing or appending fails (a full disk), the group and all that were built
// on it are dropped: their tickets fail, and the table is made again from the fold
// database and the logs. If the sync fails, the entry is lost or kept, nobody
// knows: its writers hear an error, nothing is written before a later sync
// succeeds, and then what was kept is folded. So a write whose ticket failed is
// seen by nobody, or turns out to be there later; it never comes and goes.
//
// A reader may see what is not decided yet. Its ticket is then the one to wait for
// before it shows that to anybody.
//
// # The fold database, version 1
//
// Keys begin with a letter. Numbers are big-endian where they must sort, else
// unsigned varints (uv). An inner key is: map number uv, the key's bytes.
//
//	"v"                                  u8 version, store id 32
//	"n" map name                         map number uv, keys uv
//	"w" writer number u32                author 32, incarnation u64
//	"f" record key                       record of the fold machine (core/fold): how
//	                                     far each writer is folded, members, forks
//	"k" inner                            the key (below)
//	"r" uv length of inner, inner, kind u8, sub     row
//	"s" uv length of inner, inner, score 8, member  empty; a sorted set by score
//	"x" at u64 (sign flipped), inner     empty; keys by when they expire
//	"t" place                            node of the state tree (core/trie)
//	"B"                                  sum of the base that this was made from, 32
//	"T"                                  how far that is: writer number uv, seq uv, each
//
//	key:   flags u8: 1 register here, 2 register apart (as a row), 4 expiry, 8 subs,
//	       16 counted (with 8, and two cites or more)
//	       8:      numbers of fields, members, scored members, elements, uv each
//	       2 or 8: what to cite to end all: uv n, then dots
//	       16:     in how many of those rows each of these writers has a head, uv each
//	       4:      row of the expiry;  1: row of the register
//	row:   uv n, then heads ascending: dot, time u64, payload
//	dot:   writer number uv, seq uv, index uv
//	payload: 0, length uv, bytes; or 1 (no base) or 2, base dot; then from and
//	       count, zigzag
//
// Numbers of maps and writers are this database's own. It is not replicated,
// signed or hashed: another version is another fold, made from the logs.
package keyval

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
	"github.com/lattice-log/lattice/storage/segment"
)

// Options say how a store's state is opened. The first group is required.
type Options struct {
	FS          disk.FS
	Dir         string          // of the store; authors/ and state/ are made in it
	Genesis     sigchain.Signed // begins the store
	Key         identity.Key    // this node's
	Incarnation uint64          // of this start, greater than any before
	Clock       tick.Clock
	Stamp       func() (uint64, error) // the next hybrid timestamp, greater than any before or observed
	Observe     func(t uint64)         // makes later timestamps greater than t
	Committer   *signedlog.Committer   // which somebody runs
	Handles     *segment.Handles

	Logger     *slog.Logger         // default: none
	Claim      lattice.Hash         // the invitation by which this node joined; nothing is written before it is answered here
	MaxDrift   time.Duration        // an entry further ahead of the wall clock is held; default 1 minute
	MaxWriters int                  // author logs; default 65,536
	MaxWaiting int64                // bytes of entries in memory that wait for others; default 64 MiB
	Durability signedlog.Durability // what a ticket vouches for; default Fsync
	FlushEvery time.Duration        // how late a sync may be at level Interval; default 1 s
	CacheBytes int64                // of keys and rows in memory that could be forgotten, about; default 256 MiB
	BlockCache int64                // of the fold database's blocks in memory; default 32 MiB
	DirtyBytes int64                // of changes in memory that are not in the fold database, about; default half of CacheBytes, from 8 to 128 MiB
	RoundEvery time.Duration        // how old such changes get; default 5 s
}

func (o *Options) fill() error {
	if o.FS == nil || o.Dir == "" || o.Genesis.Seq == 0 || o.Key.IsZero() || o.Incarnation == 0 || o.Clock == nil || o.Stamp == nil || o.Observe == nil || o.Committer == nil || o.Handles == nil {
		return lattice.E(lattice.Invalid, errors.New("keyval: file system, directory, genesis, key, incarnation, clock, timestamps, committer and handles are required"))
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.MaxWriters <= 0 {
		o.MaxWriters = 1 << 16
	}
	for _, x := range []struct {
		v *time.Duration
		d time.Duration
	}{{&o.FlushEvery, time.Second}, {&o.RoundEvery, 5 * time.Second}, {&o.MaxDrift, time.Minute}} {
		if *x.v <= 0 {
			*x.v = x.d
		}
	}
	for _, x := range []struct {
		v *int64
		d int64
	}{{&o.CacheBytes, 256 << 20}, {&o.BlockCache, 32 << 20}, {&o.MaxWaiting, 64 << 20}} {
		if *x.v <= 0 {
			*x.v = x.d
		}
	}
	if o.DirtyBytes <= 0 {
		o.DirtyBytes = min(max(o.CacheBytes/2, 8<<20), 128<<20)
	}
	return nil
}

// DB is one store's open state. Safe for concurrent use.
type DB struct {
	o       Options
	store   lattice.StoreID
	own     state.Writer // this incarnation
	kv      *kv.DB
	loading bool // kv is open for loading
	logs    *logs
	writers *writers
	work    chan struct{} // something for the committer, capacity 1
	rounds  chan *round   // capacity 1

	// committing is held by who takes a group and commits it; taken before mu.
	committing sync.Mutex

	// mu is held shared by views, alone by updates and by whoever changes what is
	// below. What the table says of itself is guarded by it too.
	mu     sync.RWMutex
	room   sync.Cond // mu: a group was taken, decided or dropped, a round written
	t      *table
	closed bool
	// running says that Run has begun, stopped that it has ended.
	running, stopped bool
	// stalled is why nothing is written until a sync succeeds; broken, until the
	// store is opened again.
	stalled, broken error

	undo    undo
	updates uint64
	writes  atomic.Uint64 // updates that wrote
	// unprepared is bytes appended since room was made ahead in the log.
	unprepared atomic.Int64
	lastGroup  uint64 // number of the newest group
	decided    uint64 // all groups up to it are decided. Invariant: decided <= lastGroup
	nextSeq    uint64 // sequence number of the newest group's entry
	lastTime   uint64 // greatest time of an entry folded or begun
	building   *group // takes updates
	queue      []*group
	bodies     []byte        // memory for the bodies of the operations to come
	spare      []sigchain.Op // likewise for the operations of a group
	writing    *group        // the committer has it

	base     *base                   // what the state begins from; nil: nothing
	incoming *incoming               // what is to take its place
	machine  *fold.Machine           // decides what is folded
	offered  map[state.Writer]uint64 // up to where each log was offered to it
	before   sigchain.Link           // what this incarnation's first entry follows
	unnamed  bool                    // others have moved since the newest group was begun
	changing bool                    // the state is about to be made again: updates wait
	backlog  bool                    // logs hold entries that had no turn in the fold,
	crowded  bool                    // or for which it had no room: more when something enters
	met      bool                    // what was folded says something of who may be here
	held     bool                    // a timer runs for entries that the clock holds
	release  bool                    // it has run
	// replaying says that nothing is undecided and no round under way, so that
	// rounds are written where the folding goes on.
	replaying bool
	replayed  round // its slices are used again by the next round
	foldMs    int64 // the wall clock while logs are folded, now and then

	wanted    []*request // who waits for the state as it is
	watchers  map[*Watcher]struct{}
	listeners []Listener
	refused   atomic.Uint64 // entries of others that were not taken
	void      atomic.Uint64 // entries that have no effect
	// What was pruned since the start.
	freedEntries, freedBytes atomic.Uint64
	// receiving is held by who drops logs or puts entries of any of them into logs; shared,
	// with its lane, by who puts entries into one. Taken before mu.
	receiving sync.RWMutex
	lanes     [16]sync.Mutex
	forks     sync.Map // state.Writer -> true: incarnations of this node in forks of the store
	followers followers
	people    atomic.Pointer[people]
	notice    *fold.Notice // that this node was removed, as another has shown; guarded by mu
	snapshots sync.Mutex   // held by who takes, drops, prunes to or imports a snapshot; taken first

	jobMu     sync.Mutex
	job       *rootJob      // jobMu: under way, or waiting in jobs
	jobsEnded bool          // jobMu: there will be none
	jobs      chan *rootJob // capacity 1

	begunMu sync.Mutex
	begun   map[state.Writer]sigchain.Link // what first entries follow, as far as it was asked for

	// using is held shared by who reads the fold database without holding mu, alone
	// by who replaces or closes it; taken after mu, or without it.
	using  sync.RWMutex
	treeMu sync.Mutex // held while the state tree is read or changed; taken after using

	flying *round // being written, or waiting for its group
	due    bool   // RoundEvery has passed
	timer  bool
}

// ErrClosed means that the state was closed, or that its Run has ended.
var ErrClosed = lattice.E(lattice.Unavailable, errors.New("keyval: closed"))

// Close writes what changed to the fold database, syncs and closes everything.
// Call it after Run returned; tickets that are not decided fail.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil
	}
	db.closed = true
	for _, g := range append(db.queue, db.writing, db.building) {
		if g != nil {
			g.err = ErrClosed
			close(g.done)
		}
	}
	undecided := db.building != nil || db.writing != nil || len(db.queue) > 0
	db.queue, db.writing, db.building = nil, nil, nil
	var err error
	if !undecided && db.broken == nil && db.stalled == nil {
		err = db.writeRest()
	}
	db.mu.Unlock()
	db.using.Lock()
	defer db.using.Unlock()
	return errors.Join(err, db.kv.Close(), db.logs.close())
}

// writeRest writes what the fold database does not hold: first the round that
// nobody wrote, because Run never ran, without which the next one is a hole.
func (db *DB) writeRest() error {
	if r := db.flying; r != nil {
		if err := db.writeRound(r); err != nil {
			return err
		}
		select {
		case <-db.rounds: // nobody shall write it again
		default:
		}
		db.t.written(r, func() {})
		db.flying = nil
	}
	if len(db.t.dirty) == 0 {
		return nil
	}
	r := db.takeRound(nil)
	if err := db.writeRound(r); err != nil {
		return err
	}
	db.t.written(r, func() {})
	return nil
}

// Writer returns this node's writer in this incarnation.
func (db *DB) Writer() state.Writer { return db.own }

// Frontier returns how far the state has folded each writer.
func (db *DB) Frontier() state.Frontier {
	db.mu.RLock()
	defer db.mu.RUnlock()
	return db.machine.Frontier()
}
