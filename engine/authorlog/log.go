// Package authorlog keeps one writer's signed entries: a signed log whose blocks
// are entries, in the order of their sequence numbers. A writer is one start of
// one author's node, so an author has one such log for each start that wrote
// something:
//
//	<dir>/<author, 64 hex>/<incarnation, 20 decimals>/
//
// A block is an entry in its frame, which core/sigchain draws: the log finds its way
// by it, and tells a torn tail, without knowing any version of the entry.
//
// # What is checked
//
// Append takes only the entry that comes next in the chain. Its signature, and the
// author's right to write, are the caller's to check. Every read checks the
// frame; what is damaged makes the log need repair.
package authorlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
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
	Key       identity.Key // signs this node's checkpoints of the log
	Clock     tick.Clock
	Stamp     func() (uint64, error) // next hybrid timestamp
	Committer *signedlog.Committer
	Handles   *segment.Handles
	Logger    *slog.Logger
}

// Settings are the signed log's: durability, interval, segment size.
type Settings = signedlog.Settings

// Dir returns the directory of a writer's log below dir.
func Dir(fs disk.FS, dir string, w state.Writer) string {
	return fs.PathJoin(dir, w.Author.String(), fmt.Sprintf("%020d", w.Incarnation))
}

// Name returns a writer's log's name in the origin of its checkpoints.
func Name(w state.Writer) string {
	return w.Author.String() + "/" + strconv.FormatUint(w.Incarnation, 10)
}

// List returns the writers that have a log below dir, ascending. Names that are no
// writer's are passed over.
func List(fs disk.FS, dir string) ([]state.Writer, error) {
	authors, err := fs.List(dir)
	if disk.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("list author logs: %w", err))
	}
	var out []state.Writer
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
			if n, err := strconv.ParseUint(start, 10, 64); err == nil && len(start) == 20 {
				out = append(out, state.Writer{Author: author, Incarnation: n})
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

	mu    sync.Mutex
	chain sigchain.Chain
}

// Open recovers a writer's log, or makes it. Damage before the last checkpoint
// does not fail the open: Failed says so, and the log takes no entries.
func Open(o Options, s Settings) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	log, err := signedlog.Open(signedlog.Options{
		FS: o.FS, Dir: Dir(o.FS, o.Dir, o.Writer), Origin: merkle.Origin(o.Store, Name(o.Writer)), Codec: Codec{},
		Key: o.Key, Clock: o.Clock, Stamp: o.Stamp, Committer: o.Committer, Handles: o.Handles, Logger: o.Logger,
		Terms: func() signedlog.Terms { return signedlog.Terms{Incarnation: o.Writer.Incarnation} },
	}, s)
	if err != nil {
		return nil, fmt.Errorf("open author log %s: %w", Name(o.Writer), err)
	}
	l := &Log{o: o, log: log, chain: sigchain.Chain{Store: o.Store, Author: o.Writer.Author, Incarnation: o.Writer.Incarnation}}
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
	tip, err := l.Read(uint64(end))
	if err != nil {
		l.damage(uint64(end), err)
		return nil
	}
	l.chain.Tip, l.chain.Time = tip.Link(), tip.Time
	return nil
}

func (l *Log) damage(seq uint64, why error) {
	l.log.Damage(int64(seq-1), int64(seq), why)
}

// Writer returns whose log it is.
func (l *Log) Writer() state.Writer { return l.o.Writer }

// Tip returns the last entry's link and time; zero when there is none.
func (l *Log) Tip() (sigchain.Link, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.chain.Tip, l.chain.Time
}

// Bounds returns the first sequence number that is still here, and the last one.
// An empty log has first 1 and last 0.
func (l *Log) Bounds() (first, last uint64) {
	start, _, end := l.log.Bounds()
	return uint64(start) + 1, uint64(end)
}

// Durable returns the last sequence number that is acknowledged at the log's level.
func (l *Log) Durable() uint64 {
	_, committed, _ := l.log.Bounds()
	return uint64(committed)
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
		metas, sizes = append(metas, metaOf(s.Seq, s.Time)), append(sizes, sigchain.FrameSize(s))
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
func (l *Log) Notify(seq uint64, fn func(error)) { l.log.Notify(int64(seq), fn) }

// Flush makes everything appended before the call durable, at every level.
func (l *Log) Flush() error { return l.log.Flush() }

// Read returns the entry with a sequence number. Errors by Kind: OutOfRange
// (pruned), NotYet, Corrupt (which makes the log need repair), Storage.
func (l *Log) Read(seq uint64) (sigchain.Signed, error) {
	if seq == 0 {
		return sigchain.Signed{}, lattice.E(lattice.OutOfRange, errors.New("entries are numbered from 1"))
	}
	_, b, err := l.log.Read(int64(seq-1), nil)
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
	if from == 0 {
		from = 1
	}
	return l.log.Scan(int64(from-1), int64(limit), func(b signedlog.Block) error {
		s, err := l.parse(uint64(b.Base)+1, bytes.Clone(b.Data))
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
	return uint64(m.Base) + 1, ok, err
}

// Prune drops entries below sequence number before, but never the last one, from
// which the chain goes on. What they commit to stays.
func (l *Log) Prune(before uint64) error {
	_, last := l.Bounds()
	if before = min(before, last); before <= 1 {
		return nil
	}
	if err := l.log.Truncate(int64(before - 1)); err != nil {
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

// Close makes everything durable, and closes the files.
func (l *Log) Close() error { return l.log.Close() }

// DefaultSettings are durable at every acknowledgement.
func DefaultSettings() Settings {
	return Settings{Durability: signedlog.Fsync, FlushEvery: time.Second}
}
