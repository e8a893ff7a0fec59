package disk

import (
	"errors"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// page is the unit in which Mem remembers what a sync covered, as disks do.
const page = 4096

// Mem is a file system in memory for tests and simulation. See the package
// comment for what it forgets in a crash.
//
// A directory entry becomes durable when its directory is synced; a rename
// within one directory is atomic. A file's bytes and size become durable when
// the file is synced. A sync that was made to fail without being applied leaves
// the bytes readable but clean: a later sync does not write them either, unless
// they are written again. Linux does the same.
type Mem struct {
	mu    sync.Mutex
	root  *node
	locks map[string]bool
	full  bool
	ticks int64 // stands in for modification times
	fault func(Op) *Fault
	usage vfs.DiskUsage
}

var _ FS = (*Mem)(nil)

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: newDir(), locks: map[string]bool{}} }

// node is a file or a directory. Everything is guarded by Mem.mu.
type node struct {
	dir bool
	mod int64

	data   []byte             // what readers see
	synced []byte             // what a crash leaves
	dirty  map[int64]struct{} // pages written since the last sync

	children map[string]*node
	durable  map[string]*node
	pending  []nameOp // changes to children since the last sync
}

// nameOp is one change of a directory: unlink the names in gone, then link name.
type nameOp struct {
	gone []string
	name string
	node *node
}

func newDir() *node {
	return &node{dir: true, children: map[string]*node{}, durable: map[string]*node{}}
}

func newFile() *node { return &node{dirty: map[int64]struct{}{}} }

func (d *node) change(op nameOp) {
	apply(d.children, op)
	d.pending = append(d.pending, op)
}

func apply(m map[string]*node, op nameOp) {
	for _, g := range op.gone {
		delete(m, g)
	}
	if op.node != nil {
		m[op.name] = op.node
	}
}

// CrashClone returns the file system as a power cut at this moment could leave
// it. Each page and each name change that no sync covered survives with the
// given probability in percent; rng may be nil when percent is 0 or 100. What
// survives of a file or directory follows from one number of rng and its path, so
// that it does not depend on what other files hold.
func (m *Mem) CrashClone(percent int, rng *rand.Rand) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := cut{percent: percent}
	if percent > 0 && percent < 100 {
		c.seed = rng.Uint64()
	}
	clone := NewMem()
	clone.root = m.root.crash("/", c)
	clone.ticks = m.ticks
	return clone
}

// cut is a power cut: how much survives it, and what chance depends on.
type cut struct {
	percent int
	seed    uint64
}

// of returns what decides of each part of a file or directory whether it survives.
func (c cut) of(path string) (keep func() bool) {
	switch c.percent {
	case 0, 100:
		return func() bool { return c.percent == 100 }
	}
	h := fnv.New64a()
	_, _ = io.WriteString(h, path)
	rng := rand.New(rand.NewPCG(c.seed, h.Sum64()))
	return func() bool { return rng.IntN(100) < c.percent }
}

func (d *node) crash(name string, cut cut) *node {
	keep := cut.of(name)
	if !d.dir {
		return d.crashFile(keep)
	}
	left := maps.Clone(d.durable)
	for _, op := range d.pending {
		if keep() {
			apply(left, op)
		}
	}
	c := newDir()
	for child, n := range left {
		c.children[child] = n.crash(path.Join(name, child), cut)
	}
	c.durable = maps.Clone(c.children)
	return c
}

func (d *node) crashFile(keep func() bool) *node {
	out := slices.Clone(d.synced)
	if len(d.data) < len(out) && keep() {
		out = out[:len(d.data)]
	}
	for at := 0; at < len(d.data); at += page {
		now := d.data[at:min(at+page, len(d.data))]
		if at < len(out) && string(out[at:min(at+len(now), len(out))]) == string(now) {
			continue
		}
		if !keep() {
			continue
		}
		if grow := at + len(now) - len(out); grow > 0 {
			out = append(out, make([]byte, grow)...)
		}
		copy(out[at:], now)
	}
	c := newFile()
	c.mod, c.data, c.synced = d.mod, out, slices.Clone(out)
	return c
}

// SetFull makes the disk full or not: when it is, creating files and writing
// beyond a file's end fail with ENOSPC. Writes into existing bytes work.
func (m *Mem) SetFull(full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = full
}

// SetUsage sets what GetDiskUsage answers.
func (m *Mem) SetUsage(u vfs.DiskUsage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage = u
}

var errFull = syscall.ENOSPC

// walk returns the directory that holds the last element of name, and that
// element ("" for the root itself). m.mu is held.
func (m *Mem) walk(op, name string) (*node, string, error) {
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	d := m.root
	for {
		first, rest, more := strings.Cut(clean, "/")
		if !more {
			return d, first, nil
		}
		next := d.children[first]
		if next == nil {
			return nil, "", &os.PathError{Op: op, Path: name, Err: os.ErrNotExist}
		}
		if !next.dir {
			return nil, "", &os.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
		}
		d, clean = next, rest
	}
}

// find returns the node called name. m.mu is held.
func (m *Mem) find(op, name string) (*node, error) {
	d, last, err := m.walk(op, name)
	if err != nil {
		return nil, err
	}
	if last == "" {
		return d, nil
	}
	if n := d.children[last]; n != nil {
		return n, nil
	}
	return nil, &os.PathError{Op: op, Path: name, Err: os.ErrNotExist}
}

// do runs f, which changes something, under the lock and the fault plan.
func (m *Mem) do(op Op, f func() error) error {
	fault := m.check(op)
	if fault != nil && !fault.Kept {
		return &os.PathError{Op: string(op.Kind), Path: op.Path, Err: fault.Err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ticks++
	if err := f(); err != nil {
		return err
	}
	if fault != nil {
		return &os.PathError{Op: string(op.Kind), Path: op.Path, Err: fault.Err}
	}
	return nil
}

// Create implements vfs.FS: a new file takes the place of an old one.
func (m *Mem) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	var f *memFile
	err := m.do(Op{Kind: OpCreate, Path: name}, func() error {
		d, last, err := m.walk("create", name)
		if err != nil {
			return err
		}
		if m.full {
			return &os.PathError{Op: "create", Path: name, Err: errFull}
		}
		if old := d.children[last]; last == "" || old != nil && old.dir {
			return &os.PathError{Op: "create", Path: name, Err: syscall.EISDIR}
		}
		n := newFile()
		n.mod = m.ticks
		d.change(nameOp{name: last, node: n})
		f = &memFile{fs: m, n: n, path: name, write: true}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Link implements vfs.FS.
func (m *Mem) Link(oldname, newname string) error {
	return m.do(Op{Kind: OpLink, Path: newname}, func() error {
		n, err := m.find("link", oldname)
		if err != nil {
			return err
		}
		d, last, err := m.walk("link", newname)
		if err != nil {
			return err
		}
		if d.children[last] != nil {
			return &os.LinkError{Op: "link", Old: oldname, New: newname, Err: os.ErrExist}
		}
		d.change(nameOp{name: last, node: n})
		return nil
	})
}

func (m *Mem) open(name string, write bool) (vfs.File, error) {
	if fault := m.check(Op{Kind: OpOpen, Path: name}); fault != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: fault.Err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	return &memFile{fs: m, n: n, path: name, write: write && !n.dir}, nil
}

// Open implements vfs.FS.
func (m *Mem) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) { return m.open(name, false) }

// OpenDir implements vfs.FS.
func (m *Mem) OpenDir(name string) (vfs.File, error) { return m.open(name, false) }

// OpenReadWrite implements vfs.FS: a missing file is created.
func (m *Mem) OpenReadWrite(name string, c vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	f, err := m.open(name, true)
	if errors.Is(err, os.ErrNotExist) {
		return m.Create(name, c)
	}
	return f, err
}

// Remove implements vfs.FS.
func (m *Mem) Remove(name string) error {
	return m.do(Op{Kind: OpRemove, Path: name}, func() error {
		d, last, err := m.walk("remove", name)
		if err != nil {
			return err
		}
		n := d.children[last]
		switch {
		case n == nil:
			return &os.PathError{Op: "remove", Path: name, Err: os.ErrNotExist}
		case len(n.children) > 0:
			return &os.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
		}
		d.change(nameOp{gone: []string{last}})
		return nil
	})
}

// RemoveAll implements vfs.FS.
func (m *Mem) RemoveAll(name string) error {
	return m.do(Op{Kind: OpRemove, Path: name}, func() error {
		d, last, err := m.walk("remove", name)
		if err != nil || d.children[last] == nil {
			return nil // as os.RemoveAll: what is not there is gone
		}
		d.change(nameOp{gone: []string{last}})
		return nil
	})
}

// Rename implements vfs.FS.
func (m *Mem) Rename(oldname, newname string) error {
	return m.do(Op{Kind: OpRename, Path: newname}, func() error {
		from, old, err := m.walk("rename", oldname)
		if err != nil {
			return err
		}
		to, last, err := m.walk("rename", newname)
		if err != nil {
			return err
		}
		n := from.children[old]
		if n == nil {
			return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: os.ErrNotExist}
		}
		if to.children[last] == n {
			return nil // two names of one file: rename(2) leaves both
		}
		if from == to {
			to.change(nameOp{gone: []string{old}, name: last, node: n})
			return nil
		}
		from.change(nameOp{gone: []string{old}})
		to.change(nameOp{name: last, node: n})
		return nil
	})
}

// ReuseForWrite implements vfs.FS.
func (m *Mem) ReuseForWrite(oldname, newname string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	if err := m.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return m.open(newname, true)
}

// MkdirAll implements vfs.FS. The new names are not durable until their
// parents are synced.
func (m *Mem) MkdirAll(name string, _ os.FileMode) error {
	return m.do(Op{Kind: OpMkdir, Path: name}, func() error {
		d := m.root
		for _, part := range strings.Split(strings.TrimPrefix(path.Clean("/"+name), "/"), "/") {
			if part == "" {
				continue
			}
			next := d.children[part]
			if next == nil {
				next = newDir()
				next.mod = m.ticks
				d.change(nameOp{name: part, node: next})
			}
			if !next.dir {
				return &os.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
			}
			d = next
		}
		return nil
	})
}

// Truncate implements FS.
func (m *Mem) Truncate(name string, size int64) error {
	return m.do(Op{Kind: OpTruncate, Path: name, Len: size}, func() error {
		n, err := m.find("truncate", name)
		if err != nil {
			return err
		}
		if n.dir {
			return &os.PathError{Op: "truncate", Path: name, Err: syscall.EISDIR}
		}
		if size < int64(len(n.data)) {
			clear(n.data[size:]) // or a later growth within the capacity would show the old bytes
			n.data = n.data[:size]
			n.touch(size, 1)
		} else {
			n.grow(size)
		}
		n.mod = m.ticks
		return nil
	})
}

// Lock implements vfs.FS.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	held := m.locks[name]
	m.locks[name] = true
	m.mu.Unlock()
	if held {
		return nil, &os.PathError{Op: "lock", Path: name, Err: syscall.EAGAIN}
	}
	f, err := m.Create(name, Category)
	if err != nil {
		m.unlock(name)
		return nil, err
	}
	return &memLock{m, name}, f.Close()
}

func (m *Mem) unlock(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.locks, name)
}

type memLock struct {
	m    *Mem
	name string
}

func (l *memLock) Close() error {
	l.m.unlock(l.name)
	return nil
}

// List implements vfs.FS; the names are sorted.
func (m *Mem) List(dir string) ([]string, error) {
	if fault := m.check(Op{Kind: OpList, Path: dir}); fault != nil {
		return nil, &os.PathError{Op: "list", Path: dir, Err: fault.Err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("list", dir)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(n.children)), nil
}

// Stat implements vfs.FS.
func (m *Mem) Stat(name string) (vfs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n.info(path.Base(name)), nil
}

// PathBase implements vfs.FS.
func (*Mem) PathBase(p string) string { return path.Base(p) }

// PathJoin implements vfs.FS.
func (*Mem) PathJoin(elem ...string) string { return path.Join(elem...) }

// PathDir implements vfs.FS.
func (*Mem) PathDir(p string) string { return path.Dir(p) }

// GetDiskUsage implements vfs.FS.
func (m *Mem) GetDiskUsage(string) (vfs.DiskUsage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.usage == (vfs.DiskUsage{}) {
		return m.usage, vfs.ErrUnsupported
	}
	return m.usage, nil
}

// Unwrap implements vfs.FS.
func (*Mem) Unwrap() vfs.FS { return nil }
