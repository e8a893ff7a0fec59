package segment

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/cockroachdb/pebble/v2/vfs"

	lattice "github.com/lattice-log/lattice"
)

// ErrGap is in the chain of errors of Kind Corrupt about offsets between Start
// and Next that no file has.
var ErrGap = errors.New("blocks are missing")

// errBadIndex says that an index entry does not point at the block it names.
var errBadIndex = errors.New("segment: index entry is wrong")

// view is a segment as it was at one moment.
type view struct {
	s         *segment
	base      int64
	end, next int64
	compacted bool
	inMemory  bool // the index is
}

// place is a block and where it is.
type place struct {
	m        Meta
	at, size int64
}

// viewOf returns the view of s. l.mu is held.
func viewOf(s *segment) view {
	return view{s, s.base, s.end, s.next, s.compacted, s.state != sealed || s.index.offsets != nil}
}

// viewAt returns the segment whose range has offset.
func (l *Log) viewAt(offset int64) (view, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].base > offset }) - 1
	switch {
	case l.closed:
		return view{}, ErrClosed
	case offset >= l.next:
		return view{}, lattice.E(lattice.NotYet, fmt.Errorf("offset %d: the log ends at %d", offset, l.next))
	case i < 0:
		return view{}, lattice.E(lattice.OutOfRange, fmt.Errorf("offset %d: the log starts later", offset))
	}
	v := viewOf(l.segs[i])
	if offset >= v.next {
		return v, l.gap(v.next, i)
	}
	return v, nil
}

// gap is the error for offsets from an offset to the segment after i. l.mu is held.
func (l *Log) gap(from int64, i int) error {
	to := l.next
	if i+1 < len(l.segs) {
		to = l.segs[i+1].base
	}
	return lattice.E(lattice.Corrupt, fmt.Errorf("offsets %d to %d: %w", from, to-1, ErrGap))
}

// acquire opens the segment's file for reading.
func (l *Log) acquire(s *segment) (*handle, error) {
	h, err := l.opt.Handles.acquire(s, func() (vfs.File, error) { return l.fs.Open(l.name(s.base, logExt)) })
	if err != nil && !errors.Is(err, errGone) {
		return nil, storage("open segment %d: %w", s.base, err)
	}
	return h, err
}

// with calls f with the segment that has offset and its open file; again if the
// segment is replaced or dropped in between.
func (l *Log) with(offset int64, f func(view, *handle) error) error {
	for {
		v, err := l.viewAt(offset)
		if err != nil {
			return err
		}
		h, err := l.acquire(v.s)
		if errors.Is(err, errGone) {
			continue // the list of segments changed before the file went
		}
		if err != nil {
			return err
		}
		defer h.release()
		return f(v, h)
	}
}

// floor returns the last index entry that less holds for; less holds for a
// prefix of the entries. ok is false when it holds for none.
func (l *Log) floor(v view, h *handle, less func(offsetEntry) bool) (e offsetEntry, ok bool, err error) {
	l.mu.RLock()
	now, x, gone := viewOf(v.s), v.s.index.offsets, v.s.index.offsetsGone
	l.mu.RUnlock()
	if !now.inMemory {
		return l.floorOnDisk(h, v.base, -1, less)
	}
	if e, ok = floorIn(x, less); ok || gone == 0 {
		return e, ok, nil
	}
	return l.floorOnDisk(h, v.base, gone, less)
}

func floorIn(x []offsetEntry, less func(offsetEntry) bool) (offsetEntry, bool) {
	i := sort.Search(len(x), func(i int) bool { return !less(x[i]) })
	if i == 0 {
		return offsetEntry{}, false
	}
	return x[i-1], true
}

// find returns the first block of a segment that ends at or after offset. ok is
// false when a compacted segment has none.
func (l *Log) find(v view, h *handle, offset int64) (p place, ok bool, err error) {
	return l.search(v, h, func(e offsetEntry) bool { return v.base+int64(e.last) <= offset },
		func(p place) bool { return p.m.Last >= offset })
}

// search starts at the last index entry that less holds for and returns the
// first block from there that stop holds for.
func (l *Log) search(v view, h *handle, less func(offsetEntry) bool, stop func(place) bool) (place, bool, error) {
	e, ok, err := l.floor(v, h, less)
	if err == nil {
		p, found, err := l.walk(v, h, e, ok, stop)
		if !errors.Is(err, errBadIndex) {
			return p, found, err
		}
	}
	if x := l.rebuild(v, h); x != nil {
		e, ok = floorIn(x.offsets, less)
	} else { // the index is as good as it gets: the block under the entry is damaged
		bad := e
		e, ok, err = l.floor(v, h, func(e offsetEntry) bool { return e.at < bad.at && less(e) })
		if err != nil {
			e, ok = offsetEntry{}, false
		}
	}
	p, found, err := l.walk(v, h, e, ok, stop)
	if errors.Is(err, errBadIndex) {
		err = corrupt("segment %d: no block at %d, where the index has one", v.base, e.at)
	}
	return p, found, err
}

// walk reads headers from an index entry (ok) or the file's start until stop.
func (l *Log) walk(v view, h *handle, e offsetEntry, ok bool, stop func(place) bool) (place, bool, error) {
	hs := l.opt.Handles
	sc := hs.scan(h.f, l.opt.Codec, v.end, l.opt.IndexBytes+int64(l.opt.Codec.HeaderLen()))
	defer hs.done(sc)
	at, prev := int64(0), v.base-1
	if ok {
		at = int64(e.at)
		m, _, err := sc.header(at)
		if err != nil && lattice.KindOf(err) != lattice.Corrupt {
			return place{}, false, fmt.Errorf("segment %d: %w", v.base, err)
		}
		if err != nil || m.Last != v.base+int64(e.last) || m.Base < v.base {
			return place{}, false, errBadIndex
		}
		prev = m.Base - 1
	}
	for at < v.end {
		m, size, err := sc.next(at, prev, v.next)
		if err == nil && !v.compacted && m.Base != prev+1 {
			err = corrupt("offsets %d to %d before the block at %d: %w", prev+1, m.Base-1, at, ErrGap)
		}
		if err != nil {
			return place{}, false, fmt.Errorf("segment %d: %w", v.base, err)
		}
		if p := (place{m, at, size}); stop(p) {
			return p, true, nil
		}
		at, prev = at+size, m.Last
	}
	return place{}, false, nil
}

// rebuild makes a sealed segment's indexes anew from its blocks. It returns the
// offset index, or nil when that is no better than what there was.
func (l *Log) rebuild(v view, h *handle) *memIndex {
	s := v.s
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	if s.checked || v.inMemory {
		return nil
	}
	s.checked = true
	x, t, err := l.scanIndex(v, h)
	missing := false
	if err == nil {
		x.addTime(v.base, &t)
		err = l.writeIndex(v.base, &x)
	} else {
		_, statErr := l.fs.Stat(l.name(v.base, indexExt))
		missing = statErr != nil
	}
	damaged := lattice.KindOf(err) == lattice.Corrupt
	l.mu.Lock()
	if t.known && (!s.times.known || !damaged) {
		s.times = t
	}
	if err != nil && (!damaged || missing) {
		s.index = x // the disk has none: serve from memory
	}
	l.mu.Unlock()
	l.opt.Handles.forgetIndex(s)
	l.opt.Logger.Warn("segment index rebuilt", "dir", l.dir, "segment", v.base, "entries", len(x.offsets), "error", err)
	if damaged && !missing {
		return nil
	}
	return &x
}

// scanIndex builds the index of a segment's blocks, up to the first that is no block.
func (l *Log) scanIndex(v view, h *handle) (memIndex, times, error) {
	x := memIndex{offsets: []offsetEntry{}}
	var t times
	_, _, err := l.walkBlocks(v, h, place{}, v.base-1, func(p place) error {
		x.add(v.base, p.m, p.at, p.size, l.opt.IndexBytes, &t)
		return nil
	})
	return x, t, err
}

// walkBlocks calls f for each block of a segment's headers from a position that
// follows offset prev. It returns where it stopped.
func (l *Log) walkBlocks(v view, h *handle, from place, prev int64, f func(place) error) (at, last int64, err error) {
	hs := l.opt.Handles
	sc := hs.scan(h.f, l.opt.Codec, v.end, 256<<10)
	defer hs.done(sc)
	for at = from.at; at < v.end; {
		m, size, err := sc.next(at, prev, v.next)
		if err != nil {
			return at, prev, err
		}
		if err := f(place{m, at, size}); err != nil {
			return at, prev, err
		}
		at, prev = at+size, m.Last
	}
	return at, prev, nil
}

// Find returns the block that covers offset, or after a compaction the next one,
// and its position. Errors by Kind: OutOfRange below Start, NotYet from Next,
// Corrupt, Storage.
func (l *Log) Find(offset int64) (Meta, Pos, error) {
	for {
		var got place
		var ok bool
		var base, next int64
		err := l.with(offset, func(v view, h *handle) (err error) {
			base, next = v.base, v.next
			got, ok, err = l.find(v, h, offset)
			if err == nil && !ok && !v.compacted {
				err = corrupt("offset %d: segment %d ends before: %w", offset, v.base, ErrGap)
			}
			return err
		})
		if err != nil {
			return Meta{}, Pos{}, fmt.Errorf("find offset %d: %w", offset, err)
		}
		if ok {
			return got.m, Pos{base, got.at}, nil
		}
		offset = next
	}
}

// FindTime returns the first block whose greatest timestamp is ms or later; ok
// is false when there is none.
func (l *Log) FindTime(ms int64) (m Meta, ok bool, err error) {
	for _, base := range l.bases() {
		t, err := l.timesOf(base)
		if errors.Is(err, errGone) || err == nil && t.max < ms {
			continue
		}
		if err != nil {
			return m, false, fmt.Errorf("find time %d: %w", ms, err)
		}
		err = l.with(base, func(v view, h *handle) error {
			var p place
			p, ok, err = l.findTime(v, h, ms)
			m = p.m
			return err
		})
		if ok || err != nil && lattice.KindOf(err) != lattice.OutOfRange {
			return m, ok, err
		}
	}
	return Meta{}, false, nil
}

func (l *Log) findTime(v view, h *handle, ms int64) (place, bool, error) {
	before := l.before(v, h, ms)
	return l.search(v, h, func(e offsetEntry) bool { return v.base+int64(e.last) <= before },
		func(p place) bool { return p.m.Last > before && p.m.MaxTime >= ms })
}

// before returns the offset up to which no block is of time ms or later, as far
// as the time index knows: one before the first offset when it knows nothing. An
// entry counts if the block it names is as late as it says.
func (l *Log) before(v view, h *handle, ms int64) int64 {
	l.mu.RLock()
	now, x := viewOf(v.s), v.s.index
	l.mu.RUnlock()
	e, ok := x.before(ms)
	onDisk := !ok && (!now.inMemory || x.timesGone > 0)
	if onDisk {
		x = memIndex{times: l.timesOnDisk(v, x.timesGone)}
		e, ok = x.before(ms)
	}
	if !ok {
		return v.base - 1
	}
	last := v.base + int64(e.last)
	if onDisk {
		p, ok, err := l.find(v, h, last)
		if err != nil || !ok || p.m.Last != last || p.m.MaxTime != e.time {
			return v.base - 1
		}
	}
	return last
}

// FindMaxTime returns the first block that has the greatest timestamp of all;
// ok is false when no block has one.
func (l *Log) FindMaxTime() (m Meta, ok bool, err error) {
	best := times{max: -1}
	for _, base := range l.bases() {
		t, err := l.timesOf(base)
		if errors.Is(err, errGone) {
			continue
		}
		if err != nil {
			return m, false, fmt.Errorf("find the greatest time: %w", err)
		}
		if t.max > best.max {
			best = t
		}
	}
	if best.max < 0 {
		return Meta{}, false, nil
	}
	m, _, err = l.Find(best.maxLast)
	return m, err == nil, err
}

// bases returns the first offsets of the segments.
func (l *Log) bases() []int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := make([]int64, len(l.segs))
	for i, s := range l.segs {
		out[i] = s.base
	}
	return out
}

// segmentAt returns the view of the segment that begins at base.
func (l *Log) segmentAt(base int64) (view, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	i, ok := slices.BinarySearchFunc(l.segs, base, func(s *segment, b int64) int {
		return int(min(max(s.base-b, -1), 1))
	})
	if !ok {
		return view{}, false
	}
	return viewOf(l.segs[i]), true
}
