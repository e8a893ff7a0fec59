// Package segment keeps one log's blocks in files, verbatim and in order.
//
// A block is bytes plus the range of offsets it covers; what the bytes mean is
// the caller's Codec. A partition's blocks are Kafka record batches, so Kafka's
// own tools read the files:
//
//	00000000000000000000.log        blocks, back to back, nothing between
//	00000000000000000000.index      sparse: where the block that ends at an offset begins
//	00000000000000000000.timeindex  sparse: the greatest timestamp up to an offset
//	00000000000000000000.hint       vouches for the indexes of the file that is written to
//	00000000000000000000.compacted  empty; the blocks may have gaps between them
//	recycle-0                       a dropped file, to be written over
//	cut-00000000000000000512        bytes that recovery cut off the log's end
//	shared                          empty; files may be another log's as well (share.go)
//
// The name is the first offset, 20 decimal digits. An .index entry is
//
//	 0      4      8        big-endian, as Kafka writes them
//	+------+------+
//	| last | at   |         last offset of the block, minus the file's first offset
//	+------+------+         its byte position
//
// with an entry for the first block that begins more than IndexBytes after the
// block of the entry before (never for the first block of a file). A .timeindex
// entry is
//
//	 0          8      12
//	+----------+------+
//	| time     | last |     ms since 1970; last offset of the block that has it, minus
//	+----------+------+     the file's first offset: all later times come later
//
// with strictly rising times, written with the .index entries and once more when
// the file is sealed. These files carry no checksum and no version, because Kafka's
// do not: every lookup checks that an entry points at the block it names, and
// what is missing or wrong is rebuilt from the blocks. But Open must not read all
// of the last file to know its times. So whenever that file's indexes are written,
// so is a hint, without which they are not believed:
//
//	0      2     3      4          8        12        16       20    24
//	+------+-----+------+----------+--------+---------+--------+-----+
//	| "LX" | ver | zero | entries of .index | crc32c of those  | crc |
//	|      | 1   |      | and of .timeindex | entries' bytes   |     |
//	+------+-----+------+----------+--------+---------+--------+-----+
//
// Behind the blocks the file that is written to has room: zeros, or the old bytes
// of a recycled file. They are never taken for data, because a block counts only
// with the next offset, a term that is not older, and its checksum. A sealed file
// and a cleanly closed one end with their last block.
//
// # What is durable
//
// Append returns with the bytes in the page cache. Sync makes everything
// appended before it durable: a sealed file's blocks, length and indexes, then
// the names, then the active file's blocks. So whatever position Sync reported
// can be given to Open as the place to resume from, and all files before that one
// are complete. If a sync fails, the blocks it should have covered are written
// again before the next one, because the kernel forgets that they are dirty.
//
// # What it does not do
//
// It does not check blocks when they are read (Span.ReadAt): the caller does,
// with the codec. It does not decide what to keep, when to sync, or what the
// terms mean.
//
// # Concurrency
//
// One goroutine appends (Append, Roll), one syncs (Sync, Prepare, FlushIndex),
// one keeps house (Drop, Replace), any number read. More of each are safe, but
// wait for each other. Readers never wait for a write or a sync.
package segment

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// Meta is what the log needs to know about a block.
type Meta struct {
	Base, Last int64 // offsets covered, both inclusive
	MaxTime    int64 // greatest timestamp, ms since 1970; -1 for none
	Term       int32 // never decreases along the log
}

// Codec reads blocks. Implementations are safe for concurrent use and keep
// nothing of what they are given.
type Codec interface {
	// HeaderLen is how many bytes Header needs. A block is not shorter.
	HeaderLen() int
	// Header returns a block's meta and its whole size in bytes. It looks
	// only at the shape: the bytes may be damaged or no block at all.
	Header(b []byte) (m Meta, size int, err error)
	// Check verifies one whole block.
	Check(b []byte) error
}

// Pos is a place between two blocks.
type Pos struct {
	Segment int64 // first offset of the file, which is its name
	At      int64 // byte position in it
}

// Compare orders positions of one log.
func (p Pos) Compare(q Pos) int {
	if c := cmp.Compare(p.Segment, q.Segment); c != 0 {
		return c
	}
	return cmp.Compare(p.At, q.At)
}

// String returns "segment+position".
func (p Pos) String() string { return fmt.Sprintf("%d+%d", p.Segment, p.At) }

// Options say how a log is kept. Zero values mean the defaults.
type Options struct {
	Codec        Codec        // required
	Handles      *Handles     // shared by all logs of a process; default: one of its own, 16 files
	Logger       *slog.Logger // default: none
	SegmentBytes int64        // a file is sealed before it would grow beyond; default 128 MiB
	IndexBytes   int64        // distance between index entries; default 4 KiB
	Recycle      int          // dropped files kept to be written over; default 1, negative: none, at most 2

	keep int // index entries of the active file kept in memory; default indexKept
}

const (
	// DefaultSegmentBytes is the default size of a segment file.
	DefaultSegmentBytes = 128 << 20
	// DefaultIndexBytes is the default distance between index entries.
	DefaultIndexBytes = 4 << 10
	// maxSegmentBytes keeps byte positions within the index's 32 bits.
	maxSegmentBytes = 1<<31 - 1
)

func (o *Options) fill() error {
	if o.Codec == nil || o.Codec.HeaderLen() <= 0 {
		return lattice.E(lattice.Invalid, errors.New("segment: no codec"))
	}
	if o.SegmentBytes < 0 || o.SegmentBytes > maxSegmentBytes || o.IndexBytes < 0 {
		return lattice.E(lattice.Invalid, fmt.Errorf("segment: size %d, index distance %d", o.SegmentBytes, o.IndexBytes))
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.IndexBytes == 0 {
		o.IndexBytes = DefaultIndexBytes
	}
	if o.Recycle == 0 {
		o.Recycle = 1
	}
	o.Recycle = min(max(o.Recycle, 0), 2)
	if o.keep == 0 {
		o.keep = indexKept
	}
	if o.Handles == nil {
		o.Handles = NewHandles(16)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// ErrClosed is returned after Close.
var ErrClosed = lattice.E(lattice.Unavailable, errors.New("segment: log is closed"))

// state of a segment file. It only grows.
type state uint8

const (
	active  state = iota // appended to
	closing              // full; its seal waits for the next Sync
	sealed               // trimmed, durable, with its indexes on disk
)

// segment is one file. Fields are guarded by Log.mu unless said otherwise.
type segment struct {
	base int64 // constant

	state     state
	compacted bool
	end       int64 // bytes of blocks
	next      int64 // offset after the last block; of a sealed file: first offset of the file after it
	syncedAt  int64 // bytes known to be durable
	syncedOff int64 // offset at syncedAt
	suspect   bool  // a sync failed: [syncedAt, end) must be written again

	// index is in memory until the file is sealed, but for its first entries when
	// there are many; afterwards only if it could not be written.
	index memIndex
	times times

	alloc atomic.Int64 // the file reads as written up to here; grows under Log.growMu

	indexMu sync.Mutex // held while the indexes on disk are rebuilt
	checked bool       // guarded by indexMu: rebuilding again would bring nothing new

	h    *handle // guarded by Handles.mu
	gone bool    // guarded by Handles.mu: the name is not ours any more
}

// times are the timestamps of a segment.
type times struct {
	known   bool // max and maxLast are filled in
	max     int64
	maxLast int64 // last offset of the first block that has max
	first   int64 // greatest timestamp of the first block
	firstOK bool
}

// Log is an open log.
type Log struct {
	fs  disk.FS
	dir string
	opt Options

	appendMu sync.Mutex // held by Append, Roll and Close
	w        *handle    // owned by appendMu: of the active file, nil before the first append
	stale    int64      // owned by appendMu: a failed append may have left bytes up to here
	step     int        // guarded by growMu: index into steps

	growMu  sync.Mutex // held while bytes beyond alloc are written or a file is trimmed
	syncMu  sync.Mutex // held by Sync, FlushIndex and Close
	houseMu sync.Mutex // held by Drop, Replace and Close

	mu        sync.RWMutex
	segs      []*segment // ascending; replaced, never changed in place
	act       *segment   // the last of segs if it is appended to
	next      int64
	term      int32
	synced    Pos
	syncedOff int64
	newNames  bool // names in dir that are not durable
	spare     []spareFile
	stopping  bool // the next seal is of a file that may be opened again
	closed    bool
}

// Next returns the offset that the next block must begin with.
func (l *Log) Next() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.next
}

// Start returns the first offset that is here; Next when there is none.
func (l *Log) Start() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if len(l.segs) == 0 {
		return l.next
	}
	return l.segs[0].base
}

// End returns the position behind the last block and its offset (Next).
func (l *Log) End() (Pos, int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.endPos(), l.next
}

// endPos returns the position behind the last block. l.mu is held.
func (l *Log) endPos() Pos {
	if l.act == nil {
		return Pos{Segment: l.next}
	}
	return Pos{l.act.base, l.act.end}
}

// Synced returns the position up to which everything is durable, and its offset.
func (l *Log) Synced() (Pos, int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.synced, l.syncedOff
}

// Bytes returns the size of all blocks.
func (l *Log) Bytes() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var n int64
	for _, s := range l.segs {
		n += s.end
	}
	return n
}

const (
	logExt       = ".log"
	indexExt     = ".index"
	timeExt      = ".timeindex"
	hintExt      = ".hint"
	compactedExt = ".compacted"
	newExt       = ".log.new"
	recyclePre   = "recycle-"
	cutPre       = "cut-"
)

// name returns the path of the file of the segment at base with an extension.
func (l *Log) name(base int64, ext string) string {
	return l.fs.PathJoin(l.dir, fmt.Sprintf("%020d%s", base, ext))
}

func corrupt(format string, args ...any) error {
	return lattice.E(lattice.Corrupt, fmt.Errorf(format, args...))
}

func storage(format string, args ...any) error {
	return lattice.E(lattice.Storage, fmt.Errorf(format, args...))
}
