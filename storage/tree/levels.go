package tree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

const levelHead = 32

// StoredLevels returns the tree levels whose hashes are kept, lowest first.
func StoredLevels() []uint { return []uint{8, 16, 24, 32} }

// Levels are the files of hashes of the upper levels of one tree.
type Levels struct {
	fs  disk.FS
	dir string

	mu    sync.Mutex
	n     map[uint]uint64 // hashes in each file
	dirty map[uint]bool   // written since the last Sync
	names bool            // a file was created since the last Sync
}

// OpenLevels opens the level files in dir. A file with a damaged header counts as
// empty, and damaged says so (Kind Corrupt); Append makes it anew.
func OpenLevels(fs disk.FS, dir string) (l *Levels, damaged, err error) {
	l = &Levels{fs: fs, dir: dir, n: map[uint]uint64{}, dirty: map[uint]bool{}}
	for _, level := range StoredLevels() {
		info, err := fs.Stat(l.name(level))
		if disk.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, nil, storage("stat %s: %w", l.name(level), err)
		}
		var b [levelHead]byte
		err = readAt(fs, l.name(level), b[:], 0)
		if err == nil {
			err = decodeLevel(b[:], level)
		}
		if err != nil && lattice.KindOf(err) != lattice.Corrupt {
			return nil, nil, err
		}
		if err != nil {
			damaged = errors.Join(damaged, err)
			continue
		}
		l.n[level] = uint64(info.Size()-levelHead) / uint64(hashSize)
		l.dirty[level], l.names = true, true // by a process that ended before its sync, perhaps
	}
	return l, lattice.E(lattice.Corrupt, damaged), nil
}

func (l *Levels) name(level uint) string {
	return l.fs.PathJoin(l.dir, fmt.Sprintf("tree.%02d", level))
}

func encodeLevel(level uint) []byte {
	b := make([]byte, levelHead)
	b[0], b[1], b[2], b[3] = 'L', 'T', version, byte(level)
	binary.BigEndian.PutUint32(b[levelHead-crcSize:], checksum(b[:levelHead-crcSize]))
	return b
}

func decodeLevel(b []byte, level uint) error {
	if len(b) != levelHead || string(b) != string(encodeLevel(level)) {
		return corrupt("tree level %d: header %x", level, b)
	}
	return nil
}

// Len returns how many hashes of a level are here.
func (l *Levels) Len(level uint) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n[level]
}

func (l *Levels) check(level uint) error {
	if !slices.Contains(StoredLevels(), level) {
		return lattice.E(lattice.Invalid, fmt.Errorf("tree level %d is not kept", level))
	}
	return nil
}

// Append adds the next hashes of a level, unsynced.
func (l *Levels) Append(level uint, hashes ...lattice.Hash) error {
	if err := l.check(level); err != nil || len(hashes) == 0 {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.n[level]
	var b []byte
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	var err error
	if n == 0 { // a new file, whatever was under the name
		l.names = true
		err = create(l.fs, l.name(level), append(encodeLevel(level), b...))
	} else {
		err = update(l.fs, l.name(level), func(f vfs.File) error {
			_, err := f.WriteAt(b, levelHead+int64(n)*int64(hashSize))
			return err
		})
	}
	if err != nil {
		return storage("append %d hashes to tree level %d: %w", len(hashes), level, err)
	}
	l.n[level] = n + uint64(len(hashes))
	l.dirty[level] = true
	return nil
}

// Skip makes a level anew that goes on with hash number n: those before are not here,
// and never will be. They are a hole in the file: Hash returns zeros for them.
func (l *Levels) Skip(level uint, n uint64) error {
	if err := l.check(level); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n == 0 && l.n[level] == 0 {
		return nil
	}
	l.names, l.dirty[level], l.n[level] = true, true, 0
	err := create(l.fs, l.name(level), encodeLevel(level))
	if err == nil {
		err = l.fs.Truncate(l.name(level), levelHead+int64(n)*int64(hashSize))
	}
	if err != nil {
		return storage("begin tree level %d with hash %d: %w", level, n, err)
	}
	l.n[level] = n
	return nil
}

// Hash returns one hash of a level. Kind NotFound: it is not here.
func (l *Levels) Hash(level uint, index uint64) (lattice.Hash, error) {
	var h lattice.Hash
	if err := l.check(level); err != nil {
		return h, err
	}
	if n := l.Len(level); index >= n {
		return h, lattice.E(lattice.NotFound, fmt.Errorf("hash %d of tree level %d: there are %d", index, level, n))
	}
	return h, readAt(l.fs, l.name(level), h[:], levelHead+int64(index)*int64(hashSize))
}

// Truncate keeps the first n hashes of a level. More than there are: no change.
func (l *Levels) Truncate(level uint, n uint64) error {
	if err := l.check(level); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n >= l.n[level] {
		return nil
	}
	l.dirty[level] = true
	if err := l.fs.Truncate(l.name(level), levelHead+int64(n)*int64(hashSize)); err != nil {
		return storage("truncate tree level %d to %d hashes: %w", level, n, err)
	}
	l.n[level] = n
	return nil
}

// Sync makes everything written durable. After an error the next Sync tries all
// of it again, but what it covers may be lost in a crash: it is not written again.
func (l *Levels) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, level := range slices.Sorted(maps.Keys(l.dirty)) {
		if err := update(l.fs, l.name(level), vfs.File.Sync); err != nil {
			return storage("sync tree level %d: %w", level, err)
		}
		delete(l.dirty, level)
	}
	if l.names {
		if err := disk.SyncDir(l.fs, l.dir); err != nil {
			return storage("sync %s: %w", l.dir, err)
		}
		l.names = false
	}
	return nil
}
