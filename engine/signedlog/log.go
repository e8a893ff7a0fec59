// Package signedlog is the one log that everything replicated is made of: blocks
// in segment files, a Merkle tree over them, signed checkpoints, proofs, and a
// start that only moves forward. Partitions put record batches into it, author
// logs entries; what a block means is the codec's business.
//
// # Life of a block
//
//  1. Append writes it behind the others. A crash here may leave all of it, a
//     part, or nothing: recovery keeps whole blocks and cuts the rest. Nobody was
//     told anything yet.
//  2. The Committer syncs the file (level Fsync), then calls those who wait. A
//     crash before that leaves a block that is kept though its writer heard
//     nothing; after it, the block is there. At the levels Interval and OS the
//     writer was told at step 1, and a power cut can take what was not synced.
//  3. At least every CertifyEvery, after CertifyBytes, or when someone asks, the
//     log is certified, always in this order:
//     a. the blocks are durable (synced, at every level);
//     b. they are read back, checked and hashed into the tree: leaf records and
//     upper nodes are written, not synced; a crash loses nothing that the blocks
//     cannot give again;
//     c. the head (tree size, root, right edge, position) is written and synced:
//     from here on a restart resumes behind these blocks, and a shorter file is
//     damage, not a torn tail;
//     d. the head is signed and published. Ed25519 is deterministic, so a crash
//     between c and d is mended by signing the same bytes again.
//
// So a signed head never names bytes that a power cut can take.
//
// # What it does not do
//
// It knows no terms, producers or groups, does not decide what to drop, and does
// not talk to peers.
//
// # Followers
//
// A log that another node leads (Options.Leader) takes what that node signed, in runs
// of blocks with their proofs (Take), and signs nothing. Its checkpoint is the newest
// of the leader's of which it has all blocks. While it catches up its head is ahead of
// that: a checkpoint without a signature, of blocks that were proven when they came.
//
// # Concurrency
//
// Append and Notify: one goroutine at a time (the partition's lock). Everything
// else from anywhere. The log starts no goroutine: its Committer's Run does the
// work.
package signedlog

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/internal/invariant"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/head"
	"github.com/lattice-log/lattice/storage/segment"
)

// Durability says what an acknowledged append survives.
type Durability uint8

const (
	// Fsync: acknowledged after fdatasync; survives a power cut.
	Fsync Durability = iota
	// Interval: acknowledged when written, synced at least every FlushEvery;
	// survives the process, not the machine, for that long.
	Interval
	// OS: acknowledged when written, synced by the operating system and at
	// checkpoints; survives the process. Kafka's default.
	OS
)

var durabilities = [...]string{"fsync", "interval", "os"}

// String returns the name used in configs.
func (d Durability) String() string {
	if int(d) < len(durabilities) {
		return durabilities[d]
	}
	return fmt.Sprintf("durability %d", d)
}

// ParseDurability reads a config value.
func ParseDurability(s string) (Durability, error) {
	for i, name := range durabilities {
		if s == name {
			return Durability(i), nil
		}
	}
	return 0, lattice.E(lattice.Invalid, fmt.Errorf("durability %q: want fsync, interval or os", s))
}

const (
	// CertifyEvery bounds the age of blocks that no checkpoint covers.
	CertifyEvery = 100 * time.Millisecond
	// CertifyBytes bounds their size.
	CertifyBytes = 8 << 20
)

// Options are what a log is opened with and never changes.
type Options struct {
	FS        disk.FS
	Dir       string
	Origin    string // of its checkpoints (merkle.Origin)
	Codec     segment.Codec
	Key       identity.Key
	Clock     tick.Clock
	Stamp     func() (uint64, error) // next hybrid timestamp
	Committer *Committer
	Handles   *segment.Handles
	Logger    *slog.Logger
	// Terms returns the term, grant and incarnation that checkpoints name.
	Terms func() Terms
	// Leader is whose log it is, if that is another than Key's: then it is a follower,
	// which takes runs (Take), and no Append, and keeps the leader's checkpoints.
	Leader lattice.AuthorID
	// Signer returns who signs checkpoints of a term, by its grant; zero: nobody that is
	// known. Nil: Leader does, or Key if there is none.
	Signer func(grant lattice.Hash) lattice.AuthorID
	// TermsAt returns, of a follower, the terms of the block that ends before an offset.
	TermsAt func(end int64) Terms
	// Look opens the log to be looked at: all that is there is hashed, and no head is
	// written or signed, whatever is found. It takes nothing.
	Look bool
	// Committed is called with the bytes that readers can newly see, with no
	// lock held. It must not block.
	Committed func(bytes int64)
}

// Terms are the fields of a checkpoint that the log's owner decides.
type Terms struct {
	Term        int32
	Grant       lattice.Hash
	Incarnation uint64
}

// Settings may change while the log is open.
type Settings struct {
	Durability   Durability
	FlushEvery   time.Duration
	SegmentBytes int64
}

// Certified is a checkpoint with its signed note.
type Certified struct {
	merkle.Checkpoint
	Note []byte
}

// Range is a half-open range of offsets.
type Range struct{ From, To int64 }

// Log is one open log.
type Log struct {
	o     Options
	seg   *segment.Log
	tree  treeFiles // prefix: owned by certMu
	head  *head.File
	found Recovery

	mu           sync.Mutex
	set          Settings
	start        int64 // first offset still offered; signed
	written      int64 // next offset
	writtenBytes int64 // since open
	synced       int64 // every block below is durable. Invariant: synced <= written
	shown        int64 // readers saw everything below at a weaker level
	seenBytes    int64 // of writtenBytes, what readers can see
	waiting      []waiter
	failed       error // why it takes no writes; cleared by a good sync
	broken       error // needs repair: takes no writes until reopened
	closed       bool
	damaged      []Range
	cert         Certified
	told         merkle.Checkpoint // when followers were told
	followers    map[int]func()    // by number
	following    int               // of the last follower
	here         merkle.Checkpoint // of a follower: what is here durably; the leader's, or unsigned
	certBytes    int64             // writtenBytes when the last certification began
	certTimer    func() bool
	flushTimer   func() bool

	// certMu is held by whoever certifies, truncates or replaces files.
	certMu sync.Mutex
	// The rest is owned by certMu.
	edge     *merkle.Appender        // the tree so far
	hashed   int64                   // next offset to hash
	hashedAt segment.Pos             // where its block begins
	term     int32                   // of the last block hashed
	leafSeg  int64                   // file of the last leaf written
	recs     []byte                  // leaf records, reused
	done     []merkle.Node           // reused
	known    map[nodeAt]lattice.Hash // complete nodes of the tree that proofs needed
	saved    merkle.Checkpoint       // of a follower: what the head says
	begins   beginning               // the last answer of beginning
}

type waiter struct {
	end int64
	fn  func(error)
}

var (
	// ErrClosed means that the log was closed.
	ErrClosed = lattice.E(lattice.Unavailable, errors.New("log is closed"))
	// ErrNeedsRepair means that bytes below the last checkpoint are damaged or
	// missing: the log neither leads nor acknowledges.
	ErrNeedsRepair = lattice.E(lattice.Storage, errors.New("log needs repair"))
)

// Append writes blocks, back to back in data, behind the others. metas and sizes
// are of each block. It returns when the bytes are written, not durable: see
// Notify. After an error nothing of data counts, and the caller may try again.
func (l *Log) Append(metas []segment.Meta, sizes []int, data []byte) error {
	if l.follows() {
		return errFollows
	}
	_, err := l.append(metas, sizes, data)
	return err
}

// append is Append, also of a follower; it returns where the first block is.
func (l *Log) append(metas []segment.Meta, sizes []int, data []byte) (segment.Pos, error) {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return segment.Pos{}, ErrClosed
	case l.broken != nil:
		defer l.mu.Unlock()
		return segment.Pos{}, l.broken
	case l.failed != nil:
		// A sync failed: what became of the bytes is unknown, so nothing more
		// is acknowledged before they are written and synced again.
		err := l.failed
		l.mu.Unlock()
		l.o.Committer.syncs.push(l)
		return segment.Pos{}, err
	}
	l.mu.Unlock()
	pos, err := l.seg.Append(metas, sizes, data)
	if err != nil {
		return pos, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	invariant.Check(metas[0].Base == l.written, "%s: append at %d, the log ends at %d", l.o.Origin, metas[0].Base, l.written)
	l.written = metas[len(metas)-1].Last + 1
	l.writtenBytes += int64(len(data))
	return pos, nil
}

// Notify calls fn once, in some goroutine and with no lock held, when all blocks
// below end are acknowledged at the log's level, or with the reason why they
// never will be. For Interval and OS that is at once, before Notify returns.
func (l *Log) Notify(end int64, fn func(error)) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		fn(ErrClosed)
		return
	}
	level := l.set.Durability
	if level == Fsync && end > l.synced {
		l.waiting = append(l.waiting, waiter{end, fn})
		l.mu.Unlock()
		l.o.Committer.syncs.push(l)
		return
	}
	seen := l.see(l.writtenBytes)
	if level == Interval && l.flushTimer == nil && l.synced < l.written {
		l.flushTimer = l.o.Clock.AfterFunc(l.set.FlushEvery, func() { l.o.Committer.syncs.push(l) })
	}
	l.dueLocked()
	l.mu.Unlock()
	l.tell(seen)
	fn(nil)
}

// see moves what readers can see up to bytes (of writtenBytes) and returns the
// difference. l.mu is held.
func (l *Log) see(bytes int64) int64 {
	d := bytes - l.seenBytes
	if d <= 0 {
		return 0
	}
	l.seenBytes = bytes
	return d
}

func (l *Log) tell(bytes int64) {
	if bytes > 0 && l.o.Committed != nil {
		l.o.Committed(bytes)
	}
}

// syncOnce makes what is written durable, answers who waited for it, and makes
// room for what comes.
func (l *Log) syncOnce() {
	if l.sync() {
		l.Prepare()
	}
}

// sync makes what is written durable and answers who waited for it. It reports
// whether it could, and nobody waits for more.
func (l *Log) sync() bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	target, bytes := l.written, l.writtenBytes
	if l.flushTimer != nil {
		l.flushTimer()
		l.flushTimer = nil
	}
	l.mu.Unlock()

	end, _ := l.seg.End()
	err := l.seg.Sync(end)

	l.mu.Lock()
	var due []waiter
	var seen int64
	if err != nil {
		// Lost or kept, nobody knows: tell everyone "failed", take no writes until
		// a later sync, which writes the bytes again, succeeds.
		l.failed = lattice.E(lattice.Storage, fmt.Errorf("sync up to %d: %w", target, err))
		err = l.failed
		due, l.waiting = l.waiting, nil
	} else {
		l.failed = nil
		l.synced = max(l.synced, target)
		invariant.Check(l.synced <= l.written, "%s: synced to %d, written to %d", l.o.Origin, l.synced, l.written)
		due = l.takeDue()
		seen = l.see(bytes)
		l.dueLocked()
	}
	again := len(l.waiting) > 0
	l.mu.Unlock()

	if err != nil {
		l.o.Logger.Error("sync failed; the log takes no writes until one succeeds", "log", l.o.Origin, "err", err)
	}
	l.tell(seen)
	for _, w := range due {
		w.fn(err)
	}
	if again {
		l.o.Committer.syncs.push(l)
		return false
	}
	return err == nil
}

// Prepare makes room ahead of the blocks: a sync of room that was written before
// takes half as long. Who calls Flush calls it when nobody waits any more; it
// often does nothing.
func (l *Log) Prepare() {
	if err := l.seg.Prepare(); err != nil && !errors.Is(err, segment.ErrClosed) {
		l.o.Logger.Debug("no room made ahead", "log", l.o.Origin, "err", err) // the append that needs it will say
	}
}

// takeDue removes the waiters that are satisfied. l.mu is held.
func (l *Log) takeDue() []waiter {
	n := 0
	for n < len(l.waiting) && l.waiting[n].end <= l.synced {
		n++
	}
	due := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	if len(l.waiting) == 0 {
		l.waiting = nil
	}
	return due
}

// dueLocked schedules a certification of blocks that no checkpoint covers.
// l.mu is held.
func (l *Log) dueLocked() {
	if l.written <= l.cert.End || l.broken != nil || l.follows() {
		return
	}
	if len(l.followers) > 0 && l.committedLocked() > l.cert.End {
		l.o.Committer.certs.push(l) // others wait for it
		return
	}
	if l.writtenBytes-l.certBytes >= CertifyBytes {
		l.o.Committer.certs.push(l)
		return
	}
	if l.certTimer == nil {
		l.certTimer = l.o.Clock.AfterFunc(CertifyEvery, func() { l.o.Committer.certs.push(l) })
	}
}

// Bounds returns the first offset offered, the end of what readers see, and the
// next offset.
func (l *Log) Bounds() (start, committed, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start, l.committedLocked(), l.written
}

func (l *Log) committedLocked() int64 {
	if l.set.Durability == Fsync {
		return max(l.synced, l.shown)
	}
	return l.written
}

// SetSettings changes what may change. Waiters of a level that got weaker are
// answered by the sync that is under way.
func (l *Log) SetSettings(s Settings) {
	l.mu.Lock()
	if s.Durability == Fsync && l.set.Durability != Fsync {
		l.shown = l.written // what readers saw stays visible while it is being synced
	}
	l.set = s
	l.mu.Unlock()
	if err := l.seg.SetSegmentBytes(s.SegmentBytes); err != nil {
		l.o.Logger.Error("segment size not changed", "log", l.o.Origin, "err", err)
	}
	l.o.Committer.syncs.push(l)
}

// Size returns the bytes of all blocks.
func (l *Log) Size() int64 { return l.seg.Bytes() }

// Written returns the bytes appended since Open.
func (l *Log) Written() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writtenBytes
}

// Flush makes everything appended before the call durable, at every level.
func (l *Log) Flush() error {
	l.sync()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// Damage records that stored bytes of [from, to) do not match their checksum or
// the tree. Below the last checkpoint that makes the log need repair: it goes on
// serving what is whole, and takes no writes.
func (l *Log) Damage(from, to int64, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.damaged {
		if r.From <= from && to <= r.To {
			return
		}
	}
	l.damaged = append(l.damaged, Range{from, to})
	l.broken = lattice.E(lattice.Storage, fmt.Errorf("%w: offsets %d to %d are damaged (%v)", ErrNeedsRepair, from, to-1, why))
	l.o.Logger.Error("stored blocks are damaged; the log takes no writes", "log", l.o.Origin, "from", from, "to", to, "err", why)
}

// Close syncs, certifies and closes the files. Waiters are answered.
func (l *Log) Close() error {
	l.syncOnce()
	err := l.certify(-1)
	if errors.Is(err, ErrNeedsRepair) {
		err = nil // it was said when it was found; there is nothing to certify
	}
	l.certMu.Lock()
	defer l.certMu.Unlock()
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	due := l.waiting
	l.waiting = nil
	for _, stop := range []func() bool{l.certTimer, l.flushTimer} {
		if stop != nil {
			stop()
		}
	}
	l.mu.Unlock()
	for _, w := range due {
		w.fn(ErrClosed)
	}
	return errors.Join(err, l.closeFiles())
}
