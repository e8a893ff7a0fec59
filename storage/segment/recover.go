package segment

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

const (
	// maxSaved is how much of a cut file is kept in a side file.
	maxSaved = 16 << 20
	// maxCuts is how many side files are kept.
	maxCuts = 8
	// maxMend is the size of a tail that is written again after an unclean
	// stop, in case that its bytes are only in the page cache, and clean there.
	maxMend = 64 << 20
)

// recovery is the state of one Open.
type recovery struct {
	Recovery
	l      *Log
	resume Resume
	onTail func(Meta, []byte) error

	next int64 // offset that the next block must begin with
	term int32
}

func (r *recovery) damaged(from, to int64, format string, args ...any) {
	if from = max(from, r.resume.Start); from < to {
		r.Damaged = append(r.Damaged, Damage{from, to, fmt.Sprintf(format, args...)})
	}
}

// trust takes the files before the one to resume in as they are, and returns the
// others.
func (r *recovery) trust(files []file) []file {
	n := 0
	for n < len(files) && files[n].base < r.resume.Segment {
		n++
	}
	from := r.resume.Start
	for i, f := range files[:n] {
		next := r.resume.Segment
		if i+1 < n {
			next = files[i+1].base
		}
		if i == 0 {
			r.damaged(from, f.base, "no file")
		}
		if f.size == 0 && !f.compacted {
			r.damaged(f.base, next, "the file is empty")
		}
		r.add(f, sealed, next)
	}
	if n == 0 {
		r.damaged(from, r.resume.Segment, "no file")
	}
	return files[n:]
}

// add puts a segment into the list.
func (r *recovery) add(f file, st state, next int64) *segment {
	s := &segment{base: f.base, state: st, next: next, end: f.size, syncedAt: f.size, syncedOff: next, compacted: f.compacted}
	s.alloc.Store(f.size)
	r.l.segs = append(r.l.segs, s)
	return s
}

// readTail reads the files from the one to resume in, and cuts what is not good.
func (r *recovery) readTail(files []file) error {
	at := r.resume.At
	if at > 0 && (len(files) == 0 || files[0].base != r.resume.Segment) {
		r.damaged(r.resume.Segment, r.resume.Next, "no file")
		at = 0
	}
	if len(files) > 0 && files[0].base == r.resume.Segment && files[0].compacted {
		// Rewritten since, so it was full, and ends at the place to resume from.
		r.add(files[0], sealed, r.resume.Next)
		files, at = files[1:], 0
	}
	for i, f := range files {
		if f.base != r.next && (i > 0 || at == 0) {
			reason := fmt.Sprintf("segment %d follows offset %d", f.base, r.next)
			return r.cut(nil, files[i:], reason)
		}
		following := int64(-1)
		if i+1 < len(files) {
			following = files[i+1].base
		}
		done, err := r.readFile(f, at, following, files[i+1:])
		if done || err != nil {
			return err
		}
		at = 0
	}
	return nil
}

// readFile reads one file from byte position at. done means that the log ends in
// it; else it ends with the file, and following is the next offset.
func (r *recovery) readFile(f file, at, following int64, later []file) (done bool, err error) {
	name := r.l.name(f.base, logExt)
	h, err := r.l.fs.Open(name)
	if err != nil {
		return true, storage("open %s: %w", name, err)
	}
	defer func() { _ = h.Close() }()
	s := r.add(f, closing, r.next)
	s.end, s.syncedAt, s.syncedOff = at, at, r.next
	r.l.newNames = true
	raw := r.l.readIndex(f.base)
	if at > 0 {
		lost, err := r.prefix(s, h, f.size, raw)
		if err != nil {
			return true, err
		}
		if lost {
			s.state = sealed // nothing is written to it, and nothing cut
			s.index.offsets = slices.Concat([]offsetEntry{}, s.index.offsets)
			return false, nil
		}
	}
	reason, err := r.blocks(s, h, f.size, following)
	if err != nil {
		return true, err
	}
	s.suspect = s.end > s.syncedAt && s.end-s.syncedAt <= maxMend
	if r.next == following {
		return false, r.trim(s, f.size)
	}
	s.state = active
	r.l.act = s
	if !raw.speaksOf(s.index, s.base, s.times) { // of blocks that a crash took, which others may replace
		if err := r.l.removeIndex(s.base); err != nil {
			return true, err
		}
	} else {
		s.index.isIn(raw)
		s.index.forget(r.l.opt.keep)
	}
	if reason != "" || len(later) > 0 {
		return true, r.cut(s, later, reason)
	}
	return true, nil
}

// trim cuts what is behind the blocks of a file that is not the last: room, or
// blocks whose append failed. They must not become the log's end if the crash of
// another day takes the file after this one.
func (r *recovery) trim(s *segment, size int64) error {
	if size == s.end {
		return nil
	}
	name := r.l.name(s.base, logExt)
	f, err := r.l.fs.OpenReadWrite(name, disk.Category)
	if err != nil {
		return storage("open %s: %w", name, err)
	}
	err = r.l.fs.Truncate(name, s.end)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return storage("trim %s to %d: %w", name, s.end, err)
	}
	return nil
}

// prefix loads the index of the blocks before the place to resume from, whose
// end is s.end. lost reports that the file ends before; what it has stays. If a
// block in it has lost its shape, that is damage, and does not keep us from
// reading on at the place to resume from.
func (r *recovery) prefix(s *segment, h vfs.File, size int64, raw rawIndex) (lost bool, err error) {
	l, end := r.l, s.end
	x := raw.before(end)
	v := view{s: s, base: s.base, end: min(end, size), next: r.resume.Next, compacted: s.compacted}
	from, prev, t := place{}, s.base-1, times{}
	hs := l.opt.Handles
	if n := len(x.offsets); n > 0 {
		e := x.offsets[n-1]
		sc := hs.scan(h, l.opt.Codec, v.end, int64(l.opt.Codec.HeaderLen()))
		m, blockSize, headErr := sc.header(int64(e.at))
		hs.done(sc)
		if headErr != nil || m.Last != s.base+int64(e.last) {
			x = memIndex{}
		} else {
			from.at, prev = int64(e.at)+blockSize, m.Last
			x.since = blockSize
			t.known, t.max = true, -1
			if n := len(x.times); n > 0 {
				t.max, t.maxLast = x.times[n-1].time, s.base+int64(x.times[n-1].last)
			}
		}
	}
	at, last, err := l.walkBlocks(v, &handle{f: h}, from, prev, func(p place) error {
		x.add(s.base, p.m, p.at, p.size, l.opt.IndexBytes, &t)
		return nil
	})
	if err != nil && lattice.KindOf(err) != lattice.Corrupt {
		return false, err
	}
	s.index, s.times = x, t
	if err == nil && at == end && last == r.resume.Next-1 {
		return false, nil
	}
	if err == nil {
		err = fmt.Errorf("the file has %d bytes up to offset %d, want %d bytes up to %d", at, last+1, end, r.resume.Next)
	}
	r.damaged(last+1, r.resume.Next, "segment %d: %v", s.base, err)
	if size >= end {
		s.index.since = l.opt.IndexBytes + 1 // the next block gets an entry: no walk leads there
		return false, nil
	}
	s.end, s.next = at, last+1
	s.syncedAt, s.syncedOff = at, last+1
	return true, nil
}

// blocks reads and checks the blocks from s.end on. It returns why it stopped:
// empty when the file ends there or only zeros follow.
func (r *recovery) blocks(s *segment, h io.ReaderAt, size, following int64) (reason string, err error) {
	l := r.l
	sc := l.opt.Handles.scan(h, l.opt.Codec, size, 1<<20)
	defer l.opt.Handles.done(sc)
	for s.end < size && r.next != following {
		m, b, err := sc.block(s.end)
		switch {
		case err != nil:
		case m.Base != r.next:
			err = corrupt("the block begins at offset %d, want %d", m.Base, r.next)
		case m.Term < r.term:
			err = corrupt("the block has term %d after %d", m.Term, r.term)
		case following >= 0 && m.Last >= following:
			err = corrupt("the block ends at offset %d, inside segment %d", m.Last, following)
		default:
			err = l.opt.Codec.Check(b)
		}
		if err != nil && lattice.KindOf(err) == lattice.Storage {
			return "", err
		}
		if err != nil {
			return fmt.Sprintf("segment %d at %d: %v", s.base, s.end, err), nil
		}
		if r.onTail != nil {
			if err := r.onTail(m, b); err != nil {
				return "", err
			}
		}
		n := int64(len(b))
		s.index.add(s.base, m, s.end, n, l.opt.IndexBytes, &s.times)
		s.end += n
		r.next, r.term, s.next = m.Last+1, m.Term, m.Last+1
		r.Blocks++
		r.Bytes += n
	}
	return "", nil
}

// cut ends the log behind s (nil: before the first later file): bytes that look
// like data are saved, then removed. Room of zeros stays.
func (r *recovery) cut(s *segment, later []file, reason string) error {
	l := r.l
	pos := Pos{Segment: r.next}
	if s != nil {
		pos = Pos{s.base, s.end}
	}
	c := Cut{Pos: pos, Offset: r.next, Reason: reason}
	if reason == "" {
		c.Reason = fmt.Sprintf("segment %d follows offset %d", later[0].base, r.next)
	}
	changed := false
	if s != nil {
		n, err := r.cutRest(s, &c)
		if err != nil {
			return err
		}
		changed = n > 0
	}
	for _, f := range later {
		if err := r.cutFile(f, &c); err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil // only zeros were behind the last block
	}
	r.dropOldCuts()
	if err := disk.SyncDir(l.fs, l.dir); err != nil {
		return storage("sync %s: %w", l.dir, err)
	}
	r.Cut = &c
	l.opt.Logger.Warn("log cut at its first bad block", "dir", l.dir, "offset", c.Offset, "bytes", c.Bytes, "reason", c.Reason, "saved", c.Saved)
	return nil
}

// cutRest saves and removes what is behind the blocks of s, if it is not zeros.
func (r *recovery) cutRest(s *segment, c *Cut) (int64, error) {
	l := r.l
	name := l.name(s.base, logExt)
	f, err := l.fs.OpenReadWrite(name, disk.Category)
	if err != nil {
		return 0, storage("open %s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // synced below
	size := s.alloc.Load()
	buf := l.opt.Handles.bufs.Get().(*[]byte)
	last, err := rest(f, s.end, size, *buf)
	l.opt.Handles.bufs.Put(buf)
	if err != nil || last == s.end {
		return 0, err
	}
	saved := last
	if recycled(f, last) {
		// Old blocks of this log, and perhaps room of zeros that was made behind them.
		// Only a new block that is torn is worth keeping.
		saved = r.torn(f, s.end, size)
	}
	if saved > s.end {
		if err := r.save(f, s.end, saved, c); err != nil {
			return 0, err
		}
	}
	if err := l.fs.Truncate(name, s.end); err != nil {
		return 0, storage("cut %s at %d: %w", name, s.end, err)
	}
	if err := f.Sync(); err != nil {
		return 0, storage("sync %s: %w", name, err)
	}
	s.alloc.Store(s.end)
	c.Bytes += saved - s.end
	return saved - s.end, nil
}

// torn returns the end of the block at a position if it is one that was being
// appended; else the position.
func (r *recovery) torn(f io.ReaderAt, at, size int64) int64 {
	sc := r.l.opt.Handles.scan(f, r.l.opt.Codec, size, int64(r.l.opt.Codec.HeaderLen()))
	defer r.l.opt.Handles.done(sc)
	if m, n, err := sc.header(at); err == nil && m.Base == r.next {
		return at + n
	}
	return at
}

// save copies a byte range into a side file, durably.
func (r *recovery) save(f io.ReaderAt, from, to int64, c *Cut) error {
	b := make([]byte, min(to-from, maxSaved))
	if _, err := f.ReadAt(b, from); err != nil && !errors.Is(err, io.EOF) {
		return storage("read what is cut at %d: %w", from, err)
	}
	name := fmt.Sprintf("%s%020d", cutPre, r.next)
	if err := disk.WriteFile(r.l.fs, r.l.fs.PathJoin(r.l.dir, name), b); err != nil {
		if disk.IsFull(err) { // rather a log that opens
			r.l.opt.Logger.Error("no room to save what is cut", "dir", r.l.dir, "offset", r.next, "bytes", to-from)
			return nil
		}
		return storage("save what is cut: %w", err)
	}
	c.Saved = append(c.Saved, name)
	return nil
}

// cutFile takes a whole file out of the log.
func (r *recovery) cutFile(f file, c *Cut) error {
	l := r.l
	name := l.name(f.base, logExt)
	h, err := l.fs.Open(name)
	if err != nil {
		return storage("open %s: %w", name, err)
	}
	last, err := rest(h, 0, f.size, make([]byte, 64<<10))
	_ = h.Close()
	if err != nil {
		return err
	}
	c.Bytes += last
	if last == 0 {
		err = l.fs.Remove(name)
	} else {
		side := fmt.Sprintf("%s%020d", cutPre, f.base)
		err = l.fs.Rename(name, l.fs.PathJoin(l.dir, side))
		c.Saved = append(c.Saved, side)
	}
	for _, ext := range []string{indexExt, timeExt, hintExt, compactedExt} {
		err = errors.Join(err, disk.RemoveIfExists(l.fs, l.name(f.base, ext)))
	}
	if err != nil {
		return storage("cut %s: %w", name, err)
	}
	return nil
}

// dropOldCuts removes all but the newest side files.
func (r *recovery) dropOldCuts() {
	names, err := r.l.fs.List(r.l.dir)
	if err != nil {
		return
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, cutPre) })
	slices.Sort(names)
	for i := 0; i < len(names)-maxCuts; i++ {
		_ = r.l.fs.Remove(r.l.fs.PathJoin(r.l.dir, names[i]))
	}
}
