// Package authorlog keeps one writer's signed entries: a signed log whose blocks
// are entries, in the order of their sequence numbers. A writer is one start of
// one author's node, so an author has one such log for each start that wrote
// something:
//
//	<dir>/<author, 64 hex>/<incarnation, 20 decimals>/
//	<dir>/<author, 64 hex>/<incarnation, 20 decimals>-<sequence, 20 decimals>/
//
// The second form begins behind the entry with that sequence number: what came
// before was never here, but is in a snapshot.
//
// A block is an entry in its frame, which core/sigchain draws: the log finds its way
// by it, and tells a torn tail, without knowing any version of the entry. The entry
// with sequence number n is the block at offset n-1, in a log that begins behind
// entry s, at n-1-s.
//
// # What is checked
//
// Append takes only the entry that comes next in the chain. Its signature, and the
// author's right to write, are the caller's to check. Every read checks the
// frame; what is damaged makes the log need repair.
package authorlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/segment"
)

// Options are what a log is opened with. All but Logger are required.
type Options struct {
	FS        disk.FS
	Dir       string // of all author logs of the store
	Store     lattice.StoreID
	Writer    state.Writer
	After     sigchain.Link // the log begins behind this entry of the writer; zero: at the first
	AfterTime uint64        // hybrid time of that entry
	Key       identity.Key  // signs this node's checkpoints of the log
	Clock     tick.Clock
	Stamp     func() (uint64, error) // next hybrid timestamp
	Committer *signedlog.Committer
	Handles   *segment.Handles
	Logger    *slog.Logger
}

// Settings are the signed log's: durability, interval, segment size.
type Settings = signedlog.Settings

// Start is where a log begins.
type Start struct {
	state.Writer
	After uint64 // it begins behind this entry; 0: at the first
}

// Dir returns the directory of a log below dir.
func (s Start) Dir(fs disk.FS, dir string) string {
	name := fmt.Sprintf("%020d", s.Incarnation)
	if s.After > 0 {
		name += fmt.Sprintf("-%020d", s.After)
	}
	return fs.PathJoin(dir, s.Author.String(), name)
}

// Origin returns the log's name in the origin of its checkpoints.
func (s Start) Origin() string {
	if s.After > 0 {
		return Name(s.Writer) + "/" + strconv.FormatUint(s.After, 10)
	}
	return Name(s.Writer)
}

// Name returns a writer's name, for people.
func Name(w state.Writer) string {
	return w.Author.String() + "/" + strconv.FormatUint(w.Incarnation, 10)
}

// parseStart reads the name of a log's directory.
func parseStart(author lattice.AuthorID, name string) (Start, bool) {
	inc, after, behind := strings.Cut(name, "-")
	s := Start{Writer: state.Writer{Author: author}}
	var err error
	if s.Incarnation, err = strconv.ParseUint(inc, 10, 64); err != nil || len(inc) != 20 {
		return s, false
	}
	if behind {
		s.After, err = strconv.ParseUint(after, 10, 64)
		return s, err == nil && len(after) == 20 && s.After > 0
	}
	return s, true
}

// List returns the logs below dir, ascending. Names that are no log's are passed over.
func List(fs disk.FS, dir string) ([]Start, error) {
	authors, err := fs.List(dir)
	if disk.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("list author logs: %w", err))
	}
	var out []Start
	for _, name := range authors {
		author, err := lattice.ParseAuthorID(name)
		if err != nil {
			continue
		}
		starts, err := fs.List(fs.PathJoin(dir, name))
		if err != nil {
			return nil, lattice.E(lattice.Storage, fmt.Errorf("list author logs: %w", err))
		}
		for _, start := range starts {
			if s, ok := parseStart(author, start); ok {
				out = append(out, s)
			}
		}
	}
	return out, nil
}

// Log is one writer's open log. Append: one goroutine at a time. Everything else
// from anywhere.
type Log struct {
	o   Options
	log *signedlog.Log
	buf []byte // reused by Append

	notes notes

	mu    sync.Mutex
	chain sigchain.Chain
}

// Open recovers a writer's log, or makes it. Damage before the last checkpoint
// does not fail the open: Failed says so, and the log takes no entries.
func Open(o Options, s Settings) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	start := Start{o.Writer, o.After.Seq}
	log, err := signedlog.Open(signedlog.Options{
		FS: o.FS, Dir: start.Dir(o.FS, o.Dir), Origin: merkle.Origin(o.Store, start.Origin()), Codec: Codec{After: start.After},
		Key: o.Key, Clock: o.Clock, Stamp: o.Stamp, Committer: o.Committer, Handles: o.Handles, Logger: o.Logger,
		Terms: func() signedlog.Terms { return signedlog.Terms{Incarnation: o.Writer.Incarnation} },
	}, s)
	if err != nil {
		return nil, fmt.Errorf("open author log %s: %w", Name(o.Writer), err)
	}
	l := &Log{o: o, log: log, chain: sigchain.Chain{
		Store: o.Store, Author: o.Writer.Author, Incarnation: o.Writer.Incarnation, Tip: o.After, Time: o.AfterTime,
	}}
	if err := l.findTip(); err != nil {
		return nil, errors.Join(fmt.Errorf("open author log %s: %w", Name(o.Writer), err), log.Close())
	}
	return l, nil
}

// findTip reads the last entry. One that cannot be read makes the log need repair.
func (l *Log) findTip() error {
	_, _, end := l.log.Bounds()
	if end == 0 {
		return nil
	}
	seq := uint64(end) + l.o.After.Seq
	tip, err := l.Read(seq)
	if err != nil {
		l.damage(seq, err)
		return nil
	}
	l.chain.Tip, l.chain.Time = tip.Link(), tip.Time
	return nil
}

func (l *Log) damage(seq uint64, why error) {
	l.log.Damage(l.offset(seq), l.offset(seq)+1, why)
}

// offset is where an entry is.
func (l *Log) offset(seq uint64) int64 { return int64(seq - 1 - l.o.After.Seq) }

// Start returns whose log it is, and where it begins.
func (l *Log) Start() Start { return Start{l.o.Writer, l.o.After.Seq} }

// Writer returns whose log it is.
func (l *Log) Writer() state.Writer { return l.o.Writer }

// Tip returns the last entry's link and time; zero when there is none.
func (l *Log) Tip() (sigchain.Link, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.chain.Tip, l.chain.Time
}

// Bounds returns the first sequence number that is still here, and the last one.
// An empty log's first is one more than its last.
func (l *Log) Bounds() (first, last uint64) {
	start, _, end := l.log.Bounds()
	return uint64(start) + 1 + l.o.After.Seq, uint64(end) + l.o.After.Seq
}

// Durable returns the last sequence number that is acknowledged at the log's level.
func (l *Log) Durable() uint64 {
	_, committed, _ := l.log.Bounds()
	return uint64(committed) + l.o.After.Seq
}

// Append writes the entries that come next. It returns when they are written, not
// durable: see Notify and Flush. After an error none of them counts. Errors: those
// of sigchain.Chain.Check; Kind Storage; signedlog.ErrNeedsRepair.
func (l *Log) Append(entries ...sigchain.Signed) error {
	chain := l.snapshot()
	metas := make([]segment.Meta, 0, len(entries))
	sizes := make([]int, 0, len(entries))
	data := l.buf[:0]
	for _, s := range entries {
		var err error
		if chain, err = chain.Next(s); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		metas, sizes = append(metas, metaOf(s.Seq-l.o.After.Seq, s.Time)), append(sizes, sigchain.FrameSize(s))
		data = sigchain.AppendFrame(data, s)
	}
	if cap(data) <= 1<<20 {
		l.buf = data
	}
	if len(entries) == 0 {
		return nil
	}
	if err := l.log.Append(metas, sizes, data); err != nil {
		return fmt.Errorf("append entry %d of %s: %w", entries[0].Seq, Name(l.o.Writer), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.chain = chain
	return nil
}

func (l *Log) snapshot() sigchain.Chain {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.chain
}

// Check reports whether s is the next entry: see sigchain.Chain.Check.
func (l *Log) Check(s sigchain.Signed) error { return l.snapshot().Check(s) }

// Notify calls fn once when the entries up to seq are acknowledged at the log's
// level, or with the reason why they never will be; see signedlog.Log.Notify.
func (l *Log) Notify(seq uint64, fn func(error)) { l.log.Notify(l.offset(seq)+1, fn) }

// Flush makes everything appended before the call durable, at every level.
func (l *Log) Flush() error { return l.log.Flush() }

// Prepare makes room for coming entries, so that their syncs are fast; see
// signedlog.Log.Prepare.
func (l *Log) Prepare() { l.log.Prepare() }

// Read returns the entry with a sequence number. Errors by Kind: OutOfRange
// (pruned), NotYet, Corrupt (which makes the log need repair), Storage.
func (l *Log) Read(seq uint64) (sigchain.Signed, error) {
	if seq <= l.o.After.Seq {
		return sigchain.Signed{}, lattice.E(lattice.OutOfRange, fmt.Errorf("entry %d of %s: the log begins with %d", seq, Name(l.o.Writer), l.o.After.Seq+1))
	}
	_, b, err := l.log.Read(l.offset(seq), nil)
	if lattice.KindOf(err) == lattice.Corrupt {
		l.damage(seq, err)
	}
	if err != nil {
		return sigchain.Signed{}, fmt.Errorf("entry %d of %s: %w", seq, Name(l.o.Writer), err)
	}
	return l.parse(seq, b)
}

func (l *Log) parse(seq uint64, frame []byte) (sigchain.Signed, error) {
	s, err := Unframe(frame)
	if err == nil && (s.Seq != seq || s.Author != l.o.Writer.Author || s.Incarnation != l.o.Writer.Incarnation || s.Home() != l.o.Store) {
		err = fmt.Errorf("%w: it holds entry %d of %s", ErrFrame, s.Seq, Name(state.Writer{Author: s.Author, Incarnation: s.Incarnation}))
	}
	if err != nil {
		l.damage(seq, err)
		return s, fmt.Errorf("entry %d of %s: %w", seq, Name(l.o.Writer), err)
	}
	return s, nil
}

// Scan calls f with the entries from sequence number from up to limit, both
// included, in order. They are f's to keep. Errors are those of Read, and f's.
func (l *Log) Scan(from, limit uint64, f func(sigchain.Signed) error) error {
	from = max(from, l.o.After.Seq+1)
	return l.log.Scan(l.offset(from), l.offset(limit)+1, func(b signedlog.Block) error {
		s, err := l.parse(uint64(b.Base)+1+l.o.After.Seq, bytes.Clone(b.Data))
		if err != nil {
			return err
		}
		return f(s)
	})
}

// FindTime returns the first sequence number whose entry is at ms or later, ms
// since 1970.
func (l *Log) FindTime(ms int64) (seq uint64, ok bool, err error) {
	m, ok, err := l.log.FindTime(ms)
	return uint64(m.Base) + 1 + l.o.After.Seq, ok, err
}

// Roll closes the file that is being written to, so that it can be freed as a whole:
// the next entry begins another.
func (l *Log) Roll() error {
	if err := l.log.Roll(); err != nil {
		return fmt.Errorf("begin another file of %s: %w", Name(l.o.Writer), err)
	}
	return nil
}

// Prune drops entries below sequence number before, but never the last one, from
// which the chain goes on. What they commit to stays.
func (l *Log) Prune(before uint64) error {
	_, last := l.Bounds()
	if before = min(before, last); before <= l.o.After.Seq+1 {
		return nil
	}
	if err := l.log.Truncate(l.offset(before)); err != nil {
		return fmt.Errorf("prune %s below %d: %w", Name(l.o.Writer), before, err)
	}
	return nil
}

// Size returns the bytes of all entries that are here.
func (l *Log) Size() int64 { return l.log.Size() }

// SetSettings changes what may change.
func (l *Log) SetSettings(s Settings) { l.log.SetSettings(s) }

// Failed returns why the log takes no entries, empty when it does.
func (l *Log) Failed() string { return l.log.Failed() }

// State returns what people are shown.
func (l *Log) State() signedlog.State { return l.log.State() }

// Checkpoint returns this node's newest checkpoint of the log.
func (l *Log) Checkpoint() signedlog.Certified { return l.log.Checkpoint() }

// Certify returns this node's checkpoint over all that is acknowledged now; see
// signedlog.Log.Certify.
func (l *Log) Certify(ctx context.Context) (signedlog.Certified, error) { return l.log.Certify(ctx) }

// Close makes everything durable, and closes the files.
func (l *Log) Close() error { return l.log.Close() }

// DefaultSettings are durable at every acknowledgement.
func DefaultSettings() Settings {
	return Settings{Durability: signedlog.Fsync, FlushEvery: time.Second}
}
