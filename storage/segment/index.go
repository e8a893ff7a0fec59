package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sort"

	"github.com/lattice-log/lattice/storage/disk"
)

const (
	offsetEntrySize = 8
	timeEntrySize   = 12
	hintSize        = 24
	hintVersion     = 1
)

// offsetEntry points at the block that ends at offset last.
type offsetEntry struct{ last, at uint32 }

// timeEntry says that no block up to last is later than time.
type timeEntry struct {
	time int64
	last uint32
}

// memIndex is the index of a segment that is not sealed: the last entries, those
// before them being in the files alone. Readers are mostly at the tail, and a
// thousand large segments that are written to must not fill the memory.
type memIndex struct {
	offsets                []offsetEntry
	times                  []timeEntry
	offsetsGone, timesGone int   // entries that come before, in the files
	since                  int64 // bytes since the block of the last entry

	// What the files on disk have: entries, and the checksums of their bytes.
	// Invariant: those that are gone, and none that is not added yet.
	offsetsWritten, timesWritten int
	offsetsSum, timesSum         uint32
}

// indexKept is how many of the last entries stay in memory: with one for 4 KiB, those
// of 2 MiB.
const indexKept = 512

// forget forgets entries that the files have, when there are twice as many as are to
// be kept.
func (x *memIndex) forget(keep int) {
	if n := min(len(x.offsets)-keep, x.offsetsWritten-x.offsetsGone); len(x.offsets) > 2*keep && n > 0 {
		x.offsets, x.offsetsGone = slices.Clone(x.offsets[n:]), x.offsetsGone+n
	}
	if n := min(len(x.times)-keep, x.timesWritten-x.timesGone); len(x.times) > 2*keep && n > 0 {
		x.times, x.timesGone = slices.Clone(x.times[n:]), x.timesGone+n
	}
}

// isIn notes that the files have just these first entries, which speaksOf has
// compared.
func (x *memIndex) isIn(r rawIndex) {
	x.offsetsWritten, x.offsetsSum = len(r.offsets)/offsetEntrySize, checksum(0, r.offsets)
	x.timesWritten = min(len(r.times)/timeEntrySize, len(x.times)) // without that of a seal
	x.timesSum = checksum(0, r.times[:x.timesWritten*timeEntrySize])
}

// add takes note of the block at a position, which is behind all others.
// step is the distance between entries.
func (x *memIndex) add(base int64, m Meta, at, size, step int64, t *times) {
	if !t.known || m.MaxTime > t.max {
		t.max, t.maxLast = m.MaxTime, m.Last
	}
	if at == 0 {
		t.first, t.firstOK = m.MaxTime, true
	}
	t.known = true
	if x.since > step {
		x.offsets = append(x.offsets, offsetEntry{uint32(m.Last - base), uint32(at)})
		x.addTime(base, t)
		x.since = 0
	}
	x.since += size
}

// addTime adds an entry for the greatest time so far, if it is news.
func (x *memIndex) addTime(base int64, t *times) {
	if !t.known || t.max < 0 {
		return
	}
	if n := len(x.times); n > 0 && x.times[n-1].time >= t.max {
		return
	}
	x.times = append(x.times, timeEntry{t.max, uint32(t.maxLast - base)})
}

// before returns the entry with the greatest time before ms; ok is false when
// there is none.
func (x *memIndex) before(ms int64) (e timeEntry, ok bool) {
	i := sort.Search(len(x.times), func(i int) bool { return x.times[i].time >= ms })
	if i == 0 {
		return e, false
	}
	return x.times[i-1], true
}

func encodeOffsets(entries []offsetEntry) []byte {
	b := make([]byte, 0, len(entries)*offsetEntrySize)
	for _, e := range entries {
		b = binary.BigEndian.AppendUint32(b, e.last)
		b = binary.BigEndian.AppendUint32(b, e.at)
	}
	return b
}

func encodeTimes(entries []timeEntry) []byte {
	b := make([]byte, 0, len(entries)*timeEntrySize)
	for _, e := range entries {
		b = binary.BigEndian.AppendUint64(b, uint64(e.time))
		b = binary.BigEndian.AppendUint32(b, e.last)
	}
	return b
}

func decodeOffset(b []byte) offsetEntry {
	return offsetEntry{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

func decodeTime(b []byte) timeEntry {
	return timeEntry{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint32(b[8:])}
}

// decodeOffsets returns the entries up to the first that does not rise, or
// points at or beyond a byte position.
func decodeOffsets(b []byte, end int64) []offsetEntry {
	var out []offsetEntry
	for ; len(b) >= offsetEntrySize; b = b[offsetEntrySize:] {
		e := decodeOffset(b)
		prev := offsetEntry{}
		if len(out) > 0 {
			prev = out[len(out)-1]
		}
		if e.at <= prev.at || e.last <= prev.last || int64(e.at) >= end || e.last > math.MaxInt32 {
			break
		}
		out = append(out, e)
	}
	return out
}

// decodeTimes returns the entries up to the first that does not rise or speaks
// of offsets beyond last.
func decodeTimes(b []byte, last uint32) []timeEntry {
	var out []timeEntry
	for ; len(b) >= timeEntrySize; b = b[timeEntrySize:] {
		e := decodeTime(b)
		if e.time < 0 || e.last > last {
			break
		}
		if n := len(out); n > 0 && (e.time <= out[n-1].time || e.last <= out[n-1].last) {
			break
		}
		out = append(out, e)
	}
	return out
}

// rawIndex is what the files of an index have.
type rawIndex struct{ offsets, times, hint []byte }

// readIndex reads the files. A missing one, or one that cannot be read, is empty.
func (l *Log) readIndex(base int64) (r rawIndex) {
	r.offsets, _ = disk.ReadFile(l.fs, l.name(base, indexExt))
	r.times, _ = disk.ReadFile(l.fs, l.name(base, timeExt))
	r.hint, _ = disk.ReadFile(l.fs, l.name(base, hintExt))
	return r
}

// before returns what the files say about the blocks before a byte position, as
// far as the hint vouches for them; nothing if it does not.
func (r rawIndex) before(end int64) memIndex {
	offsets, times, ok := r.vouched()
	if !ok {
		return memIndex{}
	}
	x := memIndex{offsets: decodeOffsets(offsets, end)}
	if n := len(x.offsets); n > 0 {
		x.times = decodeTimes(times, x.offsets[n-1].last)
	}
	return x
}

// vouched returns the bytes that the hint has the checksums of.
func (r rawIndex) vouched() (offsets, times []byte, ok bool) {
	u := binary.BigEndian
	h := r.hint
	if len(h) != hintSize || h[0] != 'L' || h[1] != 'X' || h[2] != hintVersion || h[3] != 0 || u.Uint32(h[20:]) != checksum(0, h[:20]) {
		return nil, nil, false
	}
	n, m := int64(u.Uint32(h[4:]))*offsetEntrySize, int64(u.Uint32(h[8:]))*timeEntrySize
	if n > int64(len(r.offsets)) || m > int64(len(r.times)) {
		return nil, nil, false
	}
	offsets, times = r.offsets[:n], r.times[:m]
	return offsets, times, u.Uint32(h[12:]) == checksum(0, offsets) && u.Uint32(h[16:]) == checksum(0, times)
}

// encodeHint returns the hint for what is written of x.
func encodeHint(x *memIndex) []byte {
	u := binary.BigEndian
	b := []byte{'L', 'X', hintVersion, 0}
	b = u.AppendUint32(b, uint32(x.offsetsWritten))
	b = u.AppendUint32(b, uint32(x.timesWritten))
	b = u.AppendUint32(b, x.offsetsSum)
	b = u.AppendUint32(b, x.timesSum)
	return u.AppendUint32(b, checksum(0, b))
}

func checksum(sum uint32, b []byte) uint32 {
	return crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), b)
}

// speaksOf reports whether the files say nothing but what x says: its first
// entries, and perhaps the time entry of a seal.
func (r rawIndex) speaksOf(x memIndex, base int64, t times) bool {
	x.times = slices.Clone(x.times)
	x.addTime(base, &t)
	return bytes.HasPrefix(encodeOffsets(x.offsets), r.offsets) && bytes.HasPrefix(encodeTimes(x.times), r.times)
}

// writeIndex replaces both files by all of x, durably. A crash or an error leaves
// the segment without an index, not with a wrong one. For sealed segments only.
func (l *Log) writeIndex(base int64, x *memIndex) error {
	if err := l.removeIndex(base); err != nil {
		return err
	}
	if err := l.appendFile(base, timeExt, 0, encodeTimes(x.times), true); err != nil {
		return err
	}
	return l.appendFile(base, indexExt, 0, encodeOffsets(x.offsets), true)
}

// removeIndex removes the index of a segment, durably.
func (l *Log) removeIndex(base int64) error {
	for _, ext := range []string{hintExt, indexExt, timeExt} {
		if err := disk.RemoveIfExists(l.fs, l.name(base, ext)); err != nil {
			return storage("remove the index of segment %d: %w", base, err)
		}
	}
	if err := disk.SyncDir(l.fs, l.dir); err != nil {
		return storage("remove the index of segment %d: %w", base, err)
	}
	return nil
}

// FlushIndex writes the index entries of the active file that are only in
// memory, without a sync, so that the next Open reads less. Nothing is lost if it
// is never called or fails.
func (l *Log) FlushIndex() error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.RLock()
	s := l.act
	var x memIndex
	if s != nil {
		x = s.index
	}
	l.mu.RUnlock()
	if s == nil || x.offsetsWritten == x.offsetsGone+len(x.offsets) {
		return nil
	}
	err := l.flushIndex(s.base, &x, false)
	if err == nil {
		err = l.writeHint(s.base, &x)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.index.offsetsWritten, s.index.offsetsSum = x.offsetsWritten, x.offsetsSum
	s.index.timesWritten, s.index.timesSum = x.timesWritten, x.timesSum
	s.index.forget(l.opt.keep)
	return nil
}

// flushIndex adds to the files what they do not have of x.
func (l *Log) flushIndex(base int64, x *memIndex, sync bool) error {
	times := encodeTimes(x.times[x.timesWritten-x.timesGone:])
	if err := l.appendFile(base, timeExt, int64(x.timesWritten)*timeEntrySize, times, sync); err != nil {
		return err
	}
	offsets := encodeOffsets(x.offsets[x.offsetsWritten-x.offsetsGone:])
	if err := l.appendFile(base, indexExt, int64(x.offsetsWritten)*offsetEntrySize, offsets, sync); err != nil {
		return err
	}
	x.timesWritten, x.timesSum = x.timesGone+len(x.times), checksum(x.timesSum, times)
	x.offsetsWritten, x.offsetsSum = x.offsetsGone+len(x.offsets), checksum(x.offsetsSum, offsets)
	return nil
}

// writeHint vouches for what was flushed.
func (l *Log) writeHint(base int64, x *memIndex) error {
	return l.appendFile(base, hintExt, 0, encodeHint(x), false)
}

// appendFile writes b at a position of an index file and cuts what was behind.
func (l *Log) appendFile(base int64, ext string, at int64, b []byte, sync bool) error {
	name := l.name(base, ext)
	f, err := l.fs.OpenReadWrite(name, disk.Category)
	if err != nil {
		return storage("open %s: %w", name, err)
	}
	_, err = f.WriteAt(b, at)
	if err == nil {
		err = l.fs.Truncate(name, at+int64(len(b)))
	}
	if err == nil && sync {
		err = f.SyncData()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return storage("write %s: %w", name, err)
	}
	return nil
}

// floorOnDisk is floorIn on a segment's file: a sealed one's, all of it, or the first
// entries, as many as most says, if that is not negative.
func (l *Log) floorOnDisk(h *handle, base int64, most int, less func(offsetEntry) bool) (offsetEntry, bool, error) {
	f, size, err := l.indexFile(h, base)
	if err != nil || f == nil {
		return offsetEntry{}, false, err
	}
	n := int(size / offsetEntrySize)
	switch {
	case most > n, most < 0 && size%offsetEntrySize != 0:
		return offsetEntry{}, false, errNoIndex
	case most >= 0:
		n = most
	}
	var b [offsetEntrySize]byte
	var readErr error
	read := func(i int) offsetEntry {
		if _, err := f.ReadAt(b[:], int64(i)*offsetEntrySize); err != nil && readErr == nil {
			readErr = err
		}
		return decodeOffset(b[:])
	}
	i := sort.Search(n, func(i int) bool { return !less(read(i)) }) - 1
	if i < 0 || readErr != nil {
		return offsetEntry{}, false, readErr
	}
	e := read(i)
	return e, readErr == nil, readErr
}

// indexFile returns the open .index of a segment, kept with its handle,
// and its size; nil when there is none.
func (l *Log) indexFile(h *handle, base int64) (io.ReaderAt, int64, error) {
	h.set.mu.Lock()
	f := h.index
	h.set.mu.Unlock()
	if f == nil {
		opened, err := l.fs.Open(l.name(base, indexExt))
		if disk.IsNotExist(err) {
			return nil, 0, errNoIndex
		}
		if err != nil {
			return nil, 0, err
		}
		h.set.mu.Lock()
		if h.index == nil && !h.dead {
			h.index = opened
			opened = nil
		}
		f = h.index
		h.set.mu.Unlock()
		if opened != nil {
			_ = opened.Close()
		}
		if f == nil {
			return nil, 0, errNoIndex
		}
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

var errNoIndex = errors.New("segment: no usable index")
