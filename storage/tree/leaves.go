package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

const (
	leavesHead = 64
	leavesExt  = ".leaves"
)

// Leaves are the files of leaf records of one log, one for each segment.
type Leaves struct {
	fs  disk.FS
	dir string

	mu    sync.Mutex
	files []leavesFile // ascending by base
	next  uint64       // index of the leaf that Append adds
	dirty map[int64]bool
	names bool // files were created or removed since the last Sync
}

// leavesFile is one file. first is only known once it was read.
type leavesFile struct {
	base  int64
	first uint64
	known bool
}

// OpenLeaves opens the leaves files in dir. It reads only the last one's header,
// so its cost does not depend on how many there are. If that is damaged, damaged
// says so (Kind Corrupt), and the file counts as missing: Begin makes it anew.
func OpenLeaves(fs disk.FS, dir string) (l *Leaves, damaged, err error) {
	l = &Leaves{fs: fs, dir: dir, dirty: map[int64]bool{}}
	names, err := fs.List(dir)
	if err != nil {
		return nil, nil, storage("list %s: %w", dir, err)
	}
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, leavesExt)
		base, err := strconv.ParseInt(digits, 10, 64)
		if ok && err == nil && len(digits) == 20 && base >= 0 {
			l.files = append(l.files, leavesFile{base: base})
		}
	}
	slices.SortFunc(l.files, func(a, b leavesFile) int { return int(min(max(a.base-b.base, -1), 1)) })
	for len(l.files) > 0 {
		last := len(l.files) - 1
		n, err := l.count(last)
		if err == nil {
			l.next = l.files[last].first + n
			l.dirty[l.files[last].base], l.names = true, true // by a process that ended before its sync, perhaps
			break
		}
		if lattice.KindOf(err) != lattice.Corrupt {
			return nil, nil, err
		}
		damaged = errors.Join(damaged, err)
		l.files = l.files[:last]
	}
	return l, lattice.E(lattice.Corrupt, damaged), nil
}

func (l *Leaves) name(base int64) string {
	return l.fs.PathJoin(l.dir, fmt.Sprintf("%020d%s", base, leavesExt))
}

// EncodeLeavesHeader returns the header of the leaves file of the segment that
// begins at offset base, whose first block is leaf number first.
func EncodeLeavesHeader(base int64, first uint64) []byte {
	u := binary.BigEndian
	b := make([]byte, leavesHead)
	b[0], b[1], b[2] = 'L', 'L', version
	u.PutUint64(b[4:], first)
	u.PutUint64(b[12:], uint64(base))
	u.PutUint32(b[leavesHead-crcSize:], checksum(b[:leavesHead-crcSize]))
	return b
}

// DecodeLeavesHeader reads a header. Kind Corrupt.
func DecodeLeavesHeader(b []byte) (base int64, first uint64, err error) {
	u := binary.BigEndian
	if len(b) == leavesHead {
		base, first = int64(u.Uint64(b[12:])), u.Uint64(b[4:])
	}
	if len(b) != leavesHead || base < 0 || string(b) != string(EncodeLeavesHeader(base, first)) {
		return 0, 0, corrupt("leaves: header %x", b)
	}
	return base, first, nil
}

// firstOf returns the index of the first leaf of file i. l.mu is held.
func (l *Leaves) firstOf(i int) (uint64, error) {
	f := &l.files[i]
	if f.known {
		return f.first, nil
	}
	var b [leavesHead]byte
	if err := readAt(l.fs, l.name(f.base), b[:], 0); err != nil {
		return 0, err
	}
	base, first, err := DecodeLeavesHeader(b[:])
	if err != nil {
		return 0, err
	}
	if base != f.base {
		return 0, corrupt("leaves: the file of segment %d is that of segment %d", f.base, base)
	}
	f.first, f.known = first, true
	return first, nil
}

// count returns how many whole records file i has on disk. l.mu is held, or l is
// not shared yet.
func (l *Leaves) count(i int) (uint64, error) {
	if _, err := l.firstOf(i); err != nil {
		return 0, err
	}
	info, err := l.fs.Stat(l.name(l.files[i].base))
	if err != nil {
		return 0, storage("stat leaves of segment %d: %w", l.files[i].base, err)
	}
	return uint64(max(info.Size()-leavesHead, 0)) / RecordSize, nil
}

// Next returns the index of the leaf that Append adds next: what is in the last
// file, and 0 without files. More leaves than the log has blocks can be there
// after a crash, and fewer; Truncate and Append repair that.
func (l *Leaves) Next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// First returns the index of the first leaf here; Next without files.
func (l *Leaves) First() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.files) == 0 {
		return l.next, nil
	}
	return l.firstOf(0)
}

// Segments returns the first offsets of the segments that have a file here.
func (l *Leaves) Segments() []int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]int64, len(l.files))
	for i, f := range l.files {
		out[i] = f.base
	}
	return out
}

// Begin starts the file of the segment at offset base, whose first block is leaf
// number first. Append continues there. A file of that segment is replaced, and
// files of later ones are removed.
func (l *Leaves) Begin(base int64, first uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, _ := slices.BinarySearchFunc(l.files, base, func(f leavesFile, b int64) int { return int(min(max(f.base-b, -1), 1)) })
	if err := l.removeFrom(n); err != nil {
		return fmt.Errorf("begin the leaves of segment %d: %w", base, err)
	}
	if err := l.syncFiles(); err != nil { // so that only the last file can have unsynced records
		return fmt.Errorf("begin the leaves of segment %d: %w", base, err)
	}
	l.names = true
	if err := create(l.fs, l.name(base), EncodeLeavesHeader(base, first)); err != nil {
		return storage("begin the leaves of segment %d: %w", base, err)
	}
	l.files = append(l.files, leavesFile{base, first, true})
	l.dirty[base] = true
	l.next = first
	return nil
}

// removeFrom removes the files from number n on. l.mu is held.
func (l *Leaves) removeFrom(n int) error {
	for i := len(l.files) - 1; i >= n; i-- {
		if err := l.remove(l.files[i].base); err != nil {
			return err
		}
		l.files = l.files[:i]
	}
	return nil
}

func (l *Leaves) remove(base int64) error {
	if err := disk.RemoveIfExists(l.fs, l.name(base)); err != nil {
		return storage("remove the leaves of segment %d: %w", base, err)
	}
	delete(l.dirty, base)
	l.names = true
	return nil
}

// Append adds records, back to back, to the last file, unsynced. After an error
// none was added.
func (l *Leaves) Append(records []byte) error {
	if len(records)%RecordSize != 0 {
		return lattice.E(lattice.Invalid, fmt.Errorf("append leaves: %d bytes", len(records)))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.files) == 0 {
		return lattice.E(lattice.Invalid, errors.New("append leaves: no file was begun"))
	}
	f := l.files[len(l.files)-1]
	at := leavesHead + int64(l.next-f.first)*RecordSize
	l.dirty[f.base] = true
	err := update(l.fs, l.name(f.base), func(f vfs.File) error {
		_, err := f.WriteAt(records, at)
		return err
	})
	if err != nil {
		return storage("append leaves at %d: %w", l.next, err)
	}
	l.next += uint64(len(records) / RecordSize)
	return nil
}

// Truncate keeps the leaves before index n: files that begin later are removed,
// and the last one left is cut. What is not there stays missing: Next may be
// below n afterwards. A file whose header is damaged is removed when it is the last.
func (l *Leaves) Truncate(n uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.files) > 0 {
		last := len(l.files) - 1
		first, err := l.firstOf(last)
		if err != nil && lattice.KindOf(err) != lattice.Corrupt {
			return err
		}
		if err == nil && first <= n {
			return l.cut(last, n)
		}
		if err := l.removeFrom(last); err != nil {
			return fmt.Errorf("truncate leaves to %d: %w", n, err)
		}
	}
	l.next = 0
	return nil
}

// cut keeps the records before index n of the last file. l.mu is held.
func (l *Leaves) cut(last int, n uint64) error {
	f := l.files[last]
	have, err := l.count(last)
	if err != nil {
		return err
	}
	l.next = min(n, f.first+have)
	l.dirty[f.base] = true
	if err := l.fs.Truncate(l.name(f.base), leavesHead+int64(l.next-f.first)*RecordSize); err != nil {
		return storage("truncate leaves to %d: %w", n, err)
	}
	return nil
}

// Read appends the records of n leaves from index on to buf, over several files
// if need be. Kind NotFound: they are not all here. Kind Corrupt: a file is
// damaged or shorter than it should be.
func (l *Leaves) Read(index uint64, n int, buf []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || index+uint64(n) < index || index+uint64(n) > l.next {
		return buf, lattice.E(lattice.NotFound, fmt.Errorf("leaves %d to %d: there are %d", index, index+uint64(n)-1, l.next))
	}
	for n > 0 {
		i, first, end, err := l.fileOf(index)
		if err != nil {
			return buf, fmt.Errorf("leaf %d: %w", index, err)
		}
		k := int(min(uint64(n), end-index))
		at := len(buf)
		buf = slices.Grow(buf, k*RecordSize)[:at+k*RecordSize]
		if err := readAt(l.fs, l.name(l.files[i].base), buf[at:], leavesHead+int64(index-first)*RecordSize); err != nil {
			return buf[:at], fmt.Errorf("leaf %d: %w", index, err)
		}
		index, n = index+uint64(k), n-k
	}
	return buf, nil
}

// fileOf returns the file that has a leaf, and its range. l.mu is held.
func (l *Leaves) fileOf(index uint64) (i int, first, end uint64, err error) {
	lo, hi := 0, len(l.files) // files before lo begin at or before index, from hi on after it
	for lo < hi {
		mid := (lo + hi) / 2
		first, err := l.firstOf(mid)
		if err != nil {
			return 0, 0, 0, err
		}
		if first <= index {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0, 0, 0, lattice.E(lattice.NotFound, errors.New("its segment was dropped"))
	}
	i, end = lo-1, l.next
	if lo < len(l.files) {
		if end, err = l.firstOf(lo); err != nil {
			return 0, 0, 0, err
		}
	}
	return i, l.files[i].first, end, nil
}

// SegmentOf returns the first offset of the segment that a leaf's block is in,
// and the index of that segment's first leaf.
func (l *Leaves) SegmentOf(index uint64) (base int64, first uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if index >= l.next {
		return 0, 0, lattice.E(lattice.NotFound, fmt.Errorf("leaf %d: there are %d", index, l.next))
	}
	i, first, _, err := l.fileOf(index)
	if err != nil {
		return 0, 0, fmt.Errorf("leaf %d: %w", index, err)
	}
	return l.files[i].base, first, nil
}

// FirstOf returns the index of the first leaf of the segment at offset base.
func (l *Leaves) FirstOf(base int64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.files {
		if l.files[i].base == base {
			return l.firstOf(i)
		}
	}
	return 0, lattice.E(lattice.NotFound, fmt.Errorf("leaves of segment %d: no file", base))
}

// Drop removes the files of segments that begin before offset base.
func (l *Leaves) Drop(base int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.files) > 0 && l.files[0].base < base {
		if err := l.remove(l.files[0].base); err != nil {
			return fmt.Errorf("drop leaves before offset %d: %w", base, err)
		}
		l.files = slices.Clone(l.files[1:])
	}
	return nil
}

// Sync makes everything written durable. After an error the next Sync tries all
// of it again, but what it covers may be lost in a crash: it is not written again.
func (l *Leaves) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.syncFiles(); err != nil {
		return err
	}
	if l.names {
		if err := disk.SyncDir(l.fs, l.dir); err != nil {
			return storage("sync %s: %w", l.dir, err)
		}
		l.names = false
	}
	return nil
}

func (l *Leaves) syncFiles() error {
	for _, base := range slices.Sorted(maps.Keys(l.dirty)) {
		if err := update(l.fs, l.name(base), vfs.File.Sync); err != nil {
			return storage("sync the leaves of segment %d: %w", base, err)
		}
		delete(l.dirty, base)
	}
	return nil
}
