package segment

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2/vfs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// steps are the sizes by which the active file grows ahead of its blocks. Most
// logs are small, and thousands of them share a disk: a step is taken only by a
// log that has as many bytes of blocks, so that room at most doubles it, but for
// the first. One that grows is soon worth few, large steps.
var steps = [...]int64{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}

// zeroed is the largest step that is written with zeros, rather than only
// allocated. Overwriting written blocks needs no metadata, so a sync is about a
// third faster; but it writes the bytes twice, which is not worth it for a log
// that fills more than this between two syncs.
const zeroed = 1 << 20

// Append writes blocks behind the last one, in one write, in a new file if they
// would not fit: m and sizes describe the blocks in data, back to back. It
// returns the position of the first. Offsets must continue at Next, terms must
// not decrease. After an error nothing was appended and Append can be called
// again: Kind Invalid (the blocks), Storage (the disk), Unavailable (closed). The
// blocks are not durable until Sync. The log keeps nothing of the arguments.
func (l *Log) Append(m []Meta, sizes []int, data []byte) (Pos, error) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err := l.admit(m, sizes, data); err != nil {
		return Pos{}, err
	}
	l.mu.RLock()
	s := l.act
	l.mu.RUnlock()
	n := int64(len(data))
	last := m[len(m)-1].Last
	if s != nil && s.end > 0 && (s.end+n > l.opt.SegmentBytes || last-s.base > math.MaxInt32) {
		l.roll(s)
		s = nil
	}
	if last-m[0].Base > math.MaxInt32 || n > maxSegmentBytes {
		return Pos{}, lattice.E(lattice.TooLarge, fmt.Errorf("append at %d: %d bytes to offset %d do not fit a segment", m[0].Base, n, last))
	}
	if s == nil {
		var err error
		if s, err = l.create(m[0].Base); err != nil {
			return Pos{}, fmt.Errorf("append at %d: %w", m[0].Base, err)
		}
	}
	if err := l.write(s, data); err != nil {
		return Pos{}, fmt.Errorf("append at %d: %w", m[0].Base, err)
	}
	return l.publish(s, m, sizes), nil
}

// admit checks that blocks may follow what is here. appendMu is held.
func (l *Log) admit(m []Meta, sizes []int, data []byte) error {
	l.mu.RLock()
	next, term, closed := l.next, l.term, l.closed
	l.mu.RUnlock()
	if closed {
		return ErrClosed
	}
	bad := func(format string, args ...any) error {
		return lattice.E(lattice.Invalid, fmt.Errorf("append at %d: "+format, append([]any{next}, args...)...))
	}
	if len(m) == 0 || len(m) != len(sizes) {
		return bad("%d blocks, %d sizes", len(m), len(sizes))
	}
	left := len(data)
	for i, b := range m {
		if b.Base != next || b.Last < b.Base || b.Last == math.MaxInt64 {
			return bad("block %d covers offsets %d to %d, want %d on", i, b.Base, b.Last, next)
		}
		if b.Term < term {
			return bad("block %d has term %d after %d", i, b.Term, term)
		}
		if sizes[i] < l.opt.Codec.HeaderLen() || sizes[i] > left {
			return bad("block %d of %d bytes, %d left", i, sizes[i], left)
		}
		next, term, left = b.Last+1, b.Term, left-sizes[i]
	}
	if left != 0 {
		return bad("%d bytes after the last block", left)
	}
	return nil
}

// publish makes written blocks visible. appendMu is held.
func (l *Log) publish(s *segment, m []Meta, sizes []int) Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	pos := Pos{s.base, s.end}
	for i, b := range m {
		s.index.add(s.base, b, s.end, int64(sizes[i]), l.opt.IndexBytes, &s.times)
		s.end += int64(sizes[i])
	}
	s.next = m[len(m)-1].Last + 1
	l.next, l.term = s.next, m[len(m)-1].Term
	return pos
}

// write puts data behind the blocks of the active file. appendMu is held, so
// that end stands still.
func (l *Log) write(s *segment, data []byte) error {
	f, err := l.writer(s)
	if err != nil {
		return err
	}
	if l.stale > s.end {
		if err := l.wipe(s, f); err != nil {
			return err
		}
	}
	end := s.end + int64(len(data))
	beyond := end > s.alloc.Load()
	if beyond {
		l.growMu.Lock()
		defer l.growMu.Unlock()
		if beyond = end > s.alloc.Load(); beyond {
			beyond = !l.extend(s, f, end)
		}
	}
	if _, err := f.WriteAt(data, s.end); err != nil {
		l.stale = end // how much of it arrived is not known for sure
		return storage("write %d bytes to segment %d at %d: %w", len(data), s.base, s.end, err)
	}
	if beyond {
		s.alloc.Store(end)
	}
	return nil
}

// wipe overwrites with zeros what a failed append may have left behind the
// blocks, so that its blocks do not come back to life behind shorter ones.
func (l *Log) wipe(s *segment, f vfs.File) error {
	info, err := f.Stat()
	if err != nil {
		return storage("stat segment %d: %w", s.base, err)
	}
	if err := writeZeros(f, s.end, min(l.stale, info.Size())); err != nil {
		return storage("clear segment %d behind %d: %w", s.base, s.end, err)
	}
	l.stale = 0
	return nil
}

func writeZeros(f vfs.File, at, end int64) error {
	var zeros [64 << 10]byte
	for at < end {
		n, err := f.WriteAt(zeros[:min(end-at, int64(len(zeros)))], at)
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// writer returns the active file, open for writing. appendMu is held.
func (l *Log) writer(s *segment) (vfs.File, error) {
	if l.w != nil {
		return l.w.f, nil
	}
	f, err := l.fs.OpenReadWrite(l.name(s.base, logExt), disk.Category)
	if err != nil {
		return nil, storage("open segment %d to append: %w", s.base, err)
	}
	w := l.opt.Handles.adopt(s, f)
	l.mu.Lock()
	l.w = w
	l.mu.Unlock()
	return f, nil
}

// extend grows the file by a step, or as far as end needs, before blocks are
// written there. It is an optimization: false means that the write has to extend
// the file itself. growMu is held.
func (l *Log) extend(s *segment, f vfs.File, end int64) bool {
	alloc := s.alloc.Load()
	step := l.nextStep(end)
	to := alloc + step
	if to < end {
		to = end + step
	}
	to = max(min(to, l.opt.SegmentBytes), end)
	if to-alloc <= steps[0] {
		if writeZeros(f, alloc, to) != nil {
			return false
		}
	} else {
		if err := f.Preallocate(alloc, to-alloc); err != nil && disk.IsFull(err) {
			return false // perhaps there is still room for the blocks alone
		}
		if l.fs.Truncate(l.name(s.base, logExt), to) != nil {
			return false
		}
	}
	s.alloc.Store(to)
	return true
}

// nextStep returns the size of the next step for a file whose blocks end, or are
// about to end, at a position. growMu is held.
func (l *Log) nextStep(end int64) int64 {
	for l.step+1 < len(steps) && steps[l.step+1] <= end {
		l.step++
	}
	return steps[l.step]
}

// Prepare readies room for coming appends, so that they and their syncs find
// blocks that were written before. Call it when a Sync has been answered: it
// does at most one step, often none, and works while others append and read. An
// error costs speed only.
func (l *Log) Prepare() error {
	l.growMu.Lock()
	defer l.growMu.Unlock()
	l.mu.RLock()
	s := l.act
	var end int64
	var w *handle
	if s != nil {
		end, w = s.end, l.refWriter(s)
	}
	l.mu.RUnlock()
	if w == nil {
		return nil
	}
	defer w.release()
	alloc := s.alloc.Load()
	step := min(l.nextStep(end), zeroed)
	if alloc >= l.opt.SegmentBytes || alloc-end > step/2 {
		return nil
	}
	to := min(alloc+step, l.opt.SegmentBytes)
	if err := writeZeros(w.f, alloc, to); err != nil {
		return storage("prepare segment %d: %w", s.base, err)
	}
	s.alloc.Store(to)
	// Not beside another sync: an error is reported once, to one of them.
	if !l.syncMu.TryLock() {
		return nil
	}
	defer l.syncMu.Unlock()
	if err := w.f.SyncData(); err != nil {
		return fmt.Errorf("prepare segment %d: %w", s.base, l.suspect(s, err))
	}
	return nil
}

// create starts the file of a new segment. appendMu is held and there is no
// active file.
func (l *Log) create(base int64) (*segment, error) {
	s := &segment{base: base, next: base, syncedOff: base}
	f, size, err := l.fromSpare(base)
	if f == nil && err == nil {
		f, err = l.fs.Create(l.name(base, logExt), disk.Category)
	}
	if err != nil {
		return nil, storage("create segment %d: %w", base, err)
	}
	s.alloc.Store(size)
	w := l.opt.Handles.adopt(s, f)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.w = w
	l.act = s
	l.segs = append(l.segs[:len(l.segs):len(l.segs)], s)
	l.newNames = true
	l.stale = 0
	return s, nil
}

// spareFile is a dropped segment file to be written over.
type spareFile struct {
	name string
	size int64
}

// fromSpare turns a recycled file into the file of a new segment; nil when there
// is none.
func (l *Log) fromSpare(base int64) (vfs.File, int64, error) {
	l.mu.Lock()
	var sp spareFile
	if n := len(l.spare); n > 0 {
		sp = l.spare[n-1]
		l.spare = l.spare[:n-1]
	}
	l.mu.Unlock()
	if sp.name == "" {
		return nil, 0, nil
	}
	name := l.name(base, logExt)
	if err := l.fs.Rename(l.fs.PathJoin(l.dir, sp.name), name); err != nil {
		if disk.IsNotExist(err) {
			return nil, 0, nil
		}
		return nil, 0, err
	}
	f, err := l.fs.OpenReadWrite(name, disk.Category)
	return f, sp.size, err
}

// Roll closes the active file; the next Append begins a new one. Nothing happens
// when no block was written to it.
func (l *Log) Roll() error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	l.mu.RLock()
	s, closed := l.act, l.closed
	l.mu.RUnlock()
	if closed {
		return ErrClosed
	}
	if s != nil && s.end > 0 {
		l.roll(s)
	}
	return nil
}

// roll makes the active segment wait for its seal. appendMu is held.
func (l *Log) roll(s *segment) {
	l.mu.Lock()
	s.state = closing
	l.act = nil
	w := l.w
	l.w = nil
	l.mu.Unlock()
	l.stale = 0 // the seal trims the file
	if w != nil {
		w.release()
	}
}
