package disk

import (
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// OpKind names an operation of a file system that can be made to fail.
type OpKind string

// The operations that a fault plan sees.
const (
	OpCreate      OpKind = "create"
	OpOpen        OpKind = "open"
	OpLink        OpKind = "link"
	OpRemove      OpKind = "remove"
	OpRename      OpKind = "rename"
	OpMkdir       OpKind = "mkdir"
	OpTruncate    OpKind = "truncate"
	OpList        OpKind = "list"
	OpRead        OpKind = "read"
	OpWrite       OpKind = "write"
	OpSync        OpKind = "sync"
	OpSyncDir     OpKind = "sync dir"
	OpPreallocate OpKind = "preallocate"
)

// Changes reports whether the operation changes what is stored or durable.
func (k OpKind) Changes() bool {
	switch k {
	case OpOpen, OpList, OpRead:
		return false
	}
	return true
}

// Op is one operation about to run. Rename and link carry the new name.
type Op struct {
	Kind    OpKind
	Path    string
	At, Len int64
}

// Fault makes an operation report Err. Lost (Kept false): it is not applied.
// Kept: it is applied all the same. A write with Short > 0 applies that many
// bytes first.
type Fault struct {
	Err   error
	Kept  bool
	Short int64
}

// ErrInjected is the error of a fault that is no more specific.
var ErrInjected = errors.New("injected fault")

// SetFault installs the plan that every operation is shown to; nil removes it.
// The plan may be called concurrently and must not use the file system.
func (m *Mem) SetFault(plan func(Op) *Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fault = plan
}

func (m *Mem) check(op Op) *Fault {
	m.mu.Lock()
	plan := m.fault
	m.mu.Unlock()
	if plan == nil {
		return nil
	}
	fault := plan(op)
	if fault != nil && fault.Err == nil {
		fault.Err = ErrInjected
	}
	return fault
}

// grow extends data with zeros to size.
func (n *node) grow(size int64) {
	if old := int64(len(n.data)); size > old {
		n.data = append(n.data, make([]byte, size-old)...)
		n.touch(old, size-old)
	}
}

// touch marks the pages of a range as written.
func (n *node) touch(at, length int64) {
	for p := at / page; p*page < at+length; p++ {
		n.dirty[p] = struct{}{}
	}
}

// flush makes the dirty pages and the size durable.
func (n *node) flush() {
	size := len(n.data)
	if len(n.synced) > size {
		clear(n.synced[size:])
		n.synced = n.synced[:size]
	} else if grow := size - len(n.synced); grow > 0 {
		n.synced = append(n.synced, make([]byte, grow)...)
	}
	for p := range n.dirty {
		if at := p * page; at < int64(size) {
			copy(n.synced[at:min(at+page, int64(size))], n.data[at:])
		}
	}
	clear(n.dirty)
}

// memFile is an open file or directory of a Mem.
type memFile struct {
	fs     *Mem
	n      *node
	path   string
	pos    int64 // guarded by fs.mu
	write  bool
	closed bool // guarded by fs.mu
}

func (f *memFile) err(op string, err error) error {
	return &os.PathError{Op: op, Path: f.path, Err: err}
}

// Close implements vfs.File.
func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return f.err("close", os.ErrClosed)
	}
	f.closed = true
	return nil
}

// Read implements vfs.File.
func (f *memFile) Read(p []byte) (int, error) {
	f.fs.mu.Lock()
	at := f.pos
	f.fs.mu.Unlock()
	n, err := f.ReadAt(p, at)
	f.fs.mu.Lock()
	f.pos += int64(n)
	f.fs.mu.Unlock()
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// ReadAt implements vfs.File.
func (f *memFile) ReadAt(p []byte, at int64) (int, error) {
	if fault := f.fs.check(Op{OpRead, f.path, at, int64(len(p))}); fault != nil {
		return 0, f.err("read", fault.Err)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return 0, f.err("read", os.ErrClosed)
	}
	if at >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.data[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Write implements vfs.File.
func (f *memFile) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	at := f.pos
	f.fs.mu.Unlock()
	n, err := f.WriteAt(p, at)
	f.fs.mu.Lock()
	f.pos += int64(n)
	f.fs.mu.Unlock()
	return n, err
}

// WriteAt implements vfs.File.
func (f *memFile) WriteAt(p []byte, at int64) (int, error) {
	fault := f.fs.check(Op{OpWrite, f.path, at, int64(len(p))})
	if fault != nil && !fault.Kept {
		p = p[:min(fault.Short, int64(len(p)))]
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	switch {
	case f.closed:
		return 0, f.err("write", os.ErrClosed)
	case !f.write:
		return 0, f.err("write", os.ErrPermission)
	}
	end := at + int64(len(p))
	full := f.fs.full && end > int64(len(f.n.data))
	if full { // as a disk does: what fits is written
		end = max(at, int64(len(f.n.data)))
		p = p[:end-at]
	}
	if len(p) > 0 {
		f.n.grow(end)
		copy(f.n.data[at:end], p)
		f.n.touch(at, int64(len(p)))
		f.fs.ticks++
		f.n.mod = f.fs.ticks
	}
	switch {
	case fault != nil:
		return len(p), f.err("write", fault.Err)
	case full:
		return len(p), f.err("write", errFull)
	}
	return len(p), nil
}

// Preallocate implements vfs.File: it changes neither size nor bytes.
func (f *memFile) Preallocate(at, length int64) error {
	if fault := f.fs.check(Op{OpPreallocate, f.path, at, length}); fault != nil {
		return f.err("preallocate", fault.Err)
	}
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.fs.full {
		return f.err("preallocate", errFull)
	}
	return nil
}

// Stat implements vfs.File.
func (f *memFile) Stat() (vfs.FileInfo, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.n.info(path.Base(f.path)), nil
}

// Sync implements vfs.File.
func (f *memFile) Sync() error {
	kind := OpSync
	if f.n.dir {
		kind = OpSyncDir
	}
	fault := f.fs.check(Op{Kind: kind, Path: f.path})
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return f.err("sync", os.ErrClosed)
	}
	switch {
	case fault != nil && !fault.Kept:
		if !f.n.dir {
			clear(f.n.dirty) // the bytes are clean now, and not on the disk
		}
	case f.n.dir:
		f.n.durable = maps.Clone(f.n.children)
		f.n.pending = nil
	default:
		f.n.flush()
	}
	if fault != nil {
		return f.err("sync", fault.Err)
	}
	return nil
}

// SyncData implements vfs.File.
func (f *memFile) SyncData() error { return f.Sync() }

// SyncTo implements vfs.File; it promises nothing.
func (f *memFile) SyncTo(int64) (bool, error) { return false, nil }

// Prefetch implements vfs.File.
func (f *memFile) Prefetch(int64, int64) error { return nil }

// Fd implements vfs.File.
func (f *memFile) Fd() uintptr { return vfs.InvalidFd }

type memInfo struct {
	name string
	size int64
	mod  int64
	dir  bool
}

func (n *node) info(name string) vfs.FileInfo {
	return memInfo{name, int64(len(n.data)), n.mod, n.dir}
}

func (i memInfo) Name() string           { return i.name }
func (i memInfo) Size() int64            { return i.size }
func (i memInfo) ModTime() time.Time     { return time.Unix(i.mod, 0) }
func (i memInfo) IsDir() bool            { return i.dir }
func (i memInfo) Sys() any               { return nil }
func (i memInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }
func (i memInfo) Mode() os.FileMode {
	if i.dir {
		return os.ModeDir | 0o700
	}
	return 0o600
}
