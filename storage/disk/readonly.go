package disk

import (
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ReadOnly returns fs without its writes: every operation that would change
// something fails with os.ErrPermission. Lock succeeds and locks nothing, since
// it would have to create a file: who reads a directory that others may write to
// has to keep them out by other means.
func ReadOnly(fs FS) FS { return readOnly{fs} }

type readOnly struct{ FS }

func refused(op, name string) error {
	return &os.PathError{Op: op, Path: name, Err: fmt.Errorf("opened to read only: %w", os.ErrPermission)}
}

func (r readOnly) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refused("create", name)
}

// CreatePrivate hides that of the file system below.
func (r readOnly) CreatePrivate(name string) (vfs.File, error) { return nil, refused("create", name) }

func (r readOnly) Link(_, name string) error { return refused("link", name) }

func (r readOnly) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, refused("open to write", name)
}

func (r readOnly) OpenDir(name string) (vfs.File, error) {
	d, err := r.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return unsynced{d}, nil
}

func (r readOnly) Remove(name string) error    { return refused("remove", name) }
func (r readOnly) RemoveAll(name string) error { return refused("remove", name) }
func (r readOnly) Rename(_, name string) error { return refused("rename", name) }

func (r readOnly) ReuseForWrite(_, name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refused("reuse", name)
}

func (r readOnly) MkdirAll(name string, _ os.FileMode) error {
	if info, err := r.FS.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	return refused("mkdir", name)
}

func (r readOnly) Truncate(name string, _ int64) error { return refused("truncate", name) }

func (r readOnly) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Unwrap says that there is nothing below that one might write to.
func (r readOnly) Unwrap() vfs.FS { return nil }

// unsynced is a directory whose Sync changes nothing.
type unsynced struct{ vfs.File }

func (unsynced) Sync() error { return nil }
