package segment

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// Info describes one segment.
type Info struct {
	Base, Next int64 // offsets [Base, Next)
	Bytes      int64
	FirstTime  int64 // greatest timestamp of the first block, ms since 1970; -1 for none
	MaxTime    int64 // greatest timestamp of all its blocks; -1 for none
	Sealed     bool  // full: not appended to any more
	Compacted  bool  // rewritten: offsets may be missing
}

// Segments describes the segments in order. The first call reads a few bytes of
// each file; a file that cannot be read is an error beside the other segments'
// descriptions, and has its times at the far future, so that nobody takes it for
// expired.
func (l *Log) Segments() ([]Info, error) {
	l.mu.RLock()
	segs := l.segs
	l.mu.RUnlock()
	out := make([]Info, 0, len(segs))
	var errs error
	for _, s := range segs {
		t, err := l.timesOf(s.base)
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			errs = errors.Join(errs, err)
			t = times{max: 1<<63 - 1, first: 1<<63 - 1}
		}
		l.mu.RLock()
		out = append(out, Info{s.base, s.next, s.end, t.first, t.max, s.state != active, s.compacted})
		l.mu.RUnlock()
	}
	return out, errs
}

// timesOf returns the timestamps of the segment at base, errGone when there is
// none any more.
func (l *Log) timesOf(base int64) (times, error) {
	v, ok := l.segmentAt(base)
	if !ok {
		return times{}, errGone
	}
	l.mu.RLock()
	t := v.s.times
	l.mu.RUnlock()
	if t.known && t.firstOK || v.end == 0 {
		if !t.known {
			t.max, t.first = -1, -1
		}
		return t, nil
	}
	h, err := l.acquire(v.s)
	if err != nil {
		return t, err
	}
	defer h.release()
	first, _, err := l.walk(v, h, offsetEntry{}, false, func(place) bool { return true })
	if err != nil {
		return t, err
	}
	t.first, t.firstOK = first.m.MaxTime, true
	if !t.known && !v.inMemory {
		if t, err = l.timesFromDisk(v, h, t); err != nil {
			return t, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if v.s.times.known && !t.known {
		t.max, t.maxLast, t.known = v.s.times.max, v.s.times.maxLast, true
	}
	v.s.times = t
	return t, nil
}

// timesFromDisk fills in the greatest time from a sealed segment's time index,
// whose last entry has it, and makes the index anew if that does not hold.
func (l *Log) timesFromDisk(v view, h *handle, t times) (times, error) {
	entries := l.timesOnDisk(v, 0)
	if n := len(entries); n > 0 {
		e := entries[n-1]
		last := v.base + int64(e.last)
		if l.timeEntryHolds(v, h, e) {
			t.max, t.maxLast, t.known = e.time, last, true
			return t, nil
		}
	}
	v.s.indexMu.Lock()
	v.s.checked = false
	v.s.indexMu.Unlock()
	l.rebuild(v, h)
	l.mu.RLock()
	defer l.mu.RUnlock()
	if !v.s.times.known {
		return t, corrupt("segment %d: no readable block", v.base)
	}
	first := t
	t = v.s.times
	t.first, t.firstOK = first.first, true
	return t, nil
}

// timeEntryHolds reports whether the last entry of a sealed segment's time index
// is right, and the last: no block from there on is later. Mostly there are few.
func (l *Log) timeEntryHolds(v view, h *handle, e timeEntry) bool {
	last := v.base + int64(e.last)
	p, ok, err := l.find(v, h, last)
	if err != nil || !ok || p.m.Last != last || p.m.MaxTime != e.time {
		return false
	}
	errLater := errors.New("later")
	_, _, err = l.walkBlocks(v, h, p, p.m.Base-1, func(p place) error {
		if p.m.MaxTime > e.time {
			return errLater
		}
		return nil
	})
	return !errors.Is(err, errLater)
}

// timesOnDisk returns the time index of a segment, nil when it is missing or
// damaged: all of a sealed one's, or its first entries, if first is not 0.
func (l *Log) timesOnDisk(v view, first int) []timeEntry {
	b, err := disk.ReadFile(l.fs, l.name(v.base, timeExt))
	last := uint32(v.next - 1 - v.base)
	if n := first * timeEntrySize; first > 0 && n <= len(b) {
		b, last = b[:n], math.MaxUint32 // v may be older than some of them
	}
	if err != nil || len(b)%timeEntrySize != 0 {
		return nil
	}
	entries := decodeTimes(b, last)
	if len(entries)*timeEntrySize != len(b) {
		return nil
	}
	return entries
}

// Drop removes the segments whose blocks all end before offset before; call Roll
// first to let it remove the active one. Readers keep what they hold. A file or
// two are kept to be written over as long as the log has blocks. An error of
// Kind Storage leaves the segments gone from the log, and perhaps a file behind
// that the next Open removes or shows again.
func (l *Log) Drop(before int64) error {
	l.houseMu.Lock()
	defer l.houseMu.Unlock()
	l.mu.RLock()
	n, unsealed := l.dropable(before)
	closed := l.closed
	l.mu.RUnlock()
	if closed {
		return ErrClosed
	}
	if n == 0 {
		return nil
	}
	if unsealed { // so that Sync never meets a file that is going
		end, _ := l.End()
		if err := l.Sync(end); err != nil {
			return fmt.Errorf("drop before %d: %w", before, err)
		}
	}
	l.mu.Lock()
	n, unsealed = l.dropable(before)
	for unsealed && n > 0 { // closed since; the next Drop finds it sealed
		n--
		unsealed = n > 0 && l.segs[n-1].state != sealed
	}
	victims := slices.Clone(l.segs[:n])
	l.segs = slices.Clone(l.segs[n:])
	empty := len(l.segs) == 0 || len(l.segs) == 1 && l.segs[0].end == 0
	l.mu.Unlock()

	var errs error
	var spare []spareFile
	for _, s := range victims {
		name := ""
		if !empty {
			name = l.spareName(spare)
		}
		kept, err := l.unlink(s, name)
		if kept {
			spare = append(spare, spareFile{name, s.end})
		}
		errs = errors.Join(errs, err)
	}
	if empty {
		errs = errors.Join(errs, l.dropSpares())
	}
	errs = errors.Join(errs, disk.SyncDir(l.fs, l.dir))
	if errs != nil { // what is beside a file that may still be there has to stay
		return storage("drop before %d: %w", before, errs)
	}
	// Only now that its old name is gone for good may a file be written over.
	l.mu.Lock()
	l.spare = append(l.spare, spare...)
	l.mu.Unlock()
	for _, s := range victims {
		for _, ext := range []string{indexExt, timeExt, hintExt, compactedExt} {
			_ = disk.RemoveIfExists(l.fs, l.name(s.base, ext)) // the next Open removes it otherwise
		}
	}
	return nil
}

// dropable returns how many segments end before an offset, and whether one of
// them is not sealed. l.mu is held.
func (l *Log) dropable(before int64) (n int, unsealed bool) {
	for n < len(l.segs) && l.segs[n].state != active && l.segs[n].next <= before {
		unsealed = unsealed || l.segs[n].state == closing
		n++
	}
	return n, unsealed
}

// unlink removes the file of a segment that is not in the list any more, or
// renames it to spare if that is not empty and nobody reads it.
func (l *Log) unlink(s *segment, spare string) (kept bool, err error) {
	busy := l.opt.Handles.drop(s)
	name := l.name(s.base, logExt)
	if spare == "" || busy || s.end == 0 {
		return false, disk.RemoveIfExists(l.fs, name)
	}
	if err := l.fs.Rename(name, l.fs.PathJoin(l.dir, spare)); err != nil {
		return false, err
	}
	return true, l.markSpare(spare, s.end)
}

// spareMark is written over a dropped file's last bytes. It is there until the
// file is full again, and tells recovery that what follows the new blocks is old.
const spareMark = "lattice-recycled"

func (l *Log) markSpare(name string, size int64) error {
	f, err := l.fs.OpenReadWrite(l.fs.PathJoin(l.dir, name), disk.Category)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(spareMark), max(size-int64(len(spareMark)), 0))
	return errors.Join(err, f.Close())
}

// recycled reports whether a file, of which last is the end of what is not zeros, was
// written before and is not full again.
func recycled(f io.ReaderAt, last int64) bool {
	var b [len(spareMark)]byte
	n, _ := f.ReadAt(b[:], max(last-int64(len(b)), 0))
	return string(b[:n]) == spareMark
}

// spareName returns a free name for a file to be written over, besides those in
// more; "" when there are enough.
func (l *Log) spareName(more []spareFile) string {
	l.mu.RLock()
	taken := slices.Concat(l.spare, more)
	l.mu.RUnlock()
	if len(taken) >= l.opt.Recycle {
		return ""
	}
	for i := 0; ; i++ {
		name := fmt.Sprint(recyclePre, i)
		if !slices.ContainsFunc(taken, func(s spareFile) bool { return s.name == name }) {
			return name
		}
	}
}

func (l *Log) dropSpares() error {
	l.mu.Lock()
	spare := l.spare
	l.spare = nil
	l.mu.Unlock()
	var err error
	for _, s := range spare {
		err = errors.Join(err, disk.RemoveIfExists(l.fs, l.fs.PathJoin(l.dir, s.name)))
	}
	return err
}

// Replace puts other blocks, which write produces, in the place of a full
// segment's: a subset of its offsets, rising. All of them must lie before the place
// that Open will resume from. After a crash the old file is there or the new one,
// after an error of Kind Storage, too, and the call can be repeated. Spans taken
// before read the old one. Kind Conflict: the segment is still appended to.
func (l *Log) Replace(base int64, write func(io.Writer) error) error {
	l.houseMu.Lock()
	defer l.houseMu.Unlock()
	v, ok := l.segmentAt(base)
	l.mu.RLock()
	isClosing, isSealed, closed := ok && v.s.state == closing, ok && v.s.state == sealed, l.closed
	l.mu.RUnlock()
	if isClosing && !closed {
		end, _ := l.End()
		if err := l.Sync(end); err != nil {
			return fmt.Errorf("replace segment %d: %w", base, err)
		}
		isSealed = true
	}
	switch {
	case closed:
		return ErrClosed
	case !ok:
		return lattice.E(lattice.NotFound, fmt.Errorf("replace segment %d: there is none", base))
	case !isSealed:
		return lattice.E(lattice.Conflict, fmt.Errorf("replace segment %d: it is still appended to", base))
	}
	s, x, err := l.writeNew(v, write)
	if err == nil {
		err = l.swap(v.s, s, &x)
	}
	if err != nil {
		_ = disk.RemoveIfExists(l.fs, l.name(base, newExt))
		return fmt.Errorf("replace segment %d: %w", base, err)
	}
	return nil
}

// writeNew writes and checks the new file beside the old one.
func (l *Log) writeNew(v view, write func(io.Writer) error) (*segment, memIndex, error) {
	name := l.name(v.base, newExt)
	f, err := l.fs.Create(name, disk.Category)
	if err != nil {
		return nil, memIndex{}, storage("create %s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // synced before it counts
	w := bufio.NewWriterSize(f, 256<<10)
	if err := write(w); err != nil {
		return nil, memIndex{}, err
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return nil, memIndex{}, storage("write %s: %w", name, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, memIndex{}, storage("stat %s: %w", name, err)
	}
	s := &segment{base: v.base, next: v.next, end: info.Size(), state: sealed, compacted: true, syncedAt: info.Size(), syncedOff: v.next}
	x := memIndex{offsets: []offsetEntry{}}
	sc := l.opt.Handles.scan(f, l.opt.Codec, s.end, 256<<10)
	defer l.opt.Handles.done(sc)
	prev := v.base - 1
	for at := int64(0); at < s.end; {
		m, size, err := sc.next(at, prev, v.next)
		if err == nil {
			var b []byte
			if b, err = sc.fill(at, size); err == nil {
				err = l.opt.Codec.Check(b)
			}
		}
		if err != nil {
			return nil, x, lattice.E(lattice.Corrupt, fmt.Errorf("new block at %d: %w", at, err))
		}
		x.add(v.base, m, at, size, l.opt.IndexBytes, &s.times)
		at, prev = at+size, m.Last
	}
	x.addTime(v.base, &s.times)
	return s, x, nil
}

// swap makes the new file the segment. A crash in between leaves a segment that
// is marked as compacted and is not, or has no index: both are harmless.
func (l *Log) swap(old, s *segment, x *memIndex) error {
	mark, err := l.fs.Create(l.name(s.base, compactedExt), disk.Category)
	if err != nil {
		return storage("mark as compacted: %w", err)
	}
	if err := errors.Join(mark.Sync(), mark.Close(), l.removeIndex(s.base)); err != nil {
		return storage("mark as compacted: %w", err)
	}
	old.indexMu.Lock()
	old.checked = false // should the old file stay, its indexes have to be made again
	old.indexMu.Unlock()
	l.opt.Handles.forgetIndex(old)
	s.index = *x
	l.mu.Lock()
	// The name goes to the new file while nobody can look it up.
	err = l.fs.Rename(l.name(s.base, newExt), l.name(s.base, logExt))
	if err != nil {
		if _, statErr := l.fs.Stat(l.name(s.base, newExt)); disk.IsNotExist(statErr) {
			err = nil // reported as failed, but done
		}
	}
	if err == nil {
		l.opt.Handles.drop(old)
		l.segs = slices.Clone(l.segs)
		l.segs[slices.Index(l.segs, old)] = s
	}
	l.mu.Unlock()
	if err != nil {
		return storage("rename: %w", err)
	}
	if err := disk.SyncDir(l.fs, l.dir); err != nil {
		return storage("sync %s: %w", l.dir, err)
	}
	if err := l.writeIndex(s.base, x); err != nil {
		l.opt.Logger.Warn("segment index not written", "dir", l.dir, "segment", s.base, "error", err)
		return nil
	}
	l.mu.Lock()
	s.index = memIndex{}
	l.mu.Unlock()
	return nil
}
