// Package disk is the file system that everything durable goes through.
//
// FS is pebble's vfs.FS plus Truncate. OS is the machine's file system. Mem is
// one in memory that forgets, on CrashClone, what a power cut could take: file
// bytes that no sync covered, and directory entries that no sync of their
// directory covered. Mem can also be told to fail single operations, having
// applied them or not, and to be full.
//
// The functions here are the few sequences that are easy to get wrong:
// WriteFile replaces a file atomically, MkdirAll makes directories that survive
// a crash, SyncDir makes names durable.
//
// It does not retry, and it does not hide a failed sync: after one, the bytes
// that it should have covered may never reach the disk even if a later sync
// reports success, so a caller has to write them again or give up.
package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Category is the label of our writes in pebble's disk statistics.
const Category vfs.DiskWriteCategory = "lattice"

// FS is a file system. Implementations are safe for concurrent use; a single
// File takes concurrent ReadAt, WriteAt and SyncData.
type FS interface {
	vfs.FS
	// Truncate sets the size of the named file, for handles that are open
	// too. A longer size reads as zeros.
	Truncate(name string, size int64) error
}

type osFS struct{ vfs.FS }

// OS returns the machine's file system.
func OS() FS { return osFS{vfs.Default} }

// Truncate is truncate(2).
func (osFS) Truncate(name string, size int64) error { return os.Truncate(name, size) }

// Unwrap returns pebble's own file system for the machine.
func (o osFS) Unwrap() vfs.FS { return o.FS }

// CreatePrivate opens a new, empty file that only its owner has access to,
// in place of what was there.
func (osFS) CreatePrivate(name string) (vfs.File, error) {
	if err := os.Remove(name); err != nil && !IsNotExist(err) {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	return vfs.Default.OpenReadWrite(name, Category)
}

// CreatePrivate creates a file that only its owner has access to, where the file
// system knows of owners.
func CreatePrivate(fs vfs.FS, name string) (vfs.File, error) {
	if p, ok := fs.(interface {
		CreatePrivate(name string) (vfs.File, error)
	}); ok {
		return p.CreatePrivate(name)
	}
	return fs.Create(name, Category)
}

// IsFull reports whether err says that no space (or quota) is left.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsNotExist reports whether err says that a file or directory is missing.
func IsNotExist(err error) bool { return errors.Is(err, os.ErrNotExist) }

// ReadFile returns the whole file.
func ReadFile(fs vfs.FS, name string) ([]byte, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(f)
}

// SyncDir makes the names in dir durable: created, renamed and removed files.
func SyncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open %s to sync it: %w", dir, err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// MkdirAll makes dir and its parents, and makes their names durable.
func MkdirAll(fs vfs.FS, dir string) error {
	var missing []string
	for d := dir; ; {
		if _, err := fs.Stat(d); err == nil {
			break
		} else if !IsNotExist(err) {
			return fmt.Errorf("stat %s: %w", d, err)
		}
		missing = append(missing, d)
		parent := fs.PathDir(d)
		if parent == d {
			break
		}
		d = parent
	}
	if len(missing) == 0 {
		return nil
	}
	if err := fs.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	for _, d := range missing {
		if err := SyncDir(fs, fs.PathDir(d)); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile replaces the named file: after a crash it holds the old bytes or
// the new ones, and once WriteFile returned nil, the new ones. The temporary
// file is name + ".tmp"; a crash can leave one behind, which the next WriteFile
// overwrites.
func WriteFile(fs vfs.FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fs.Create(tmp, Category)
	if err != nil {
		return fmt.Errorf("create %s: %w", tmp, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = fs.Remove(tmp)
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err := fs.Rename(tmp, name); err != nil {
		_ = fs.Remove(tmp)
		return fmt.Errorf("rename %s: %w", tmp, err)
	}
	if err := SyncDir(fs, fs.PathDir(name)); err != nil {
		return fmt.Errorf("sync the directory of %s: %w", name, err)
	}
	return nil
}

// RemoveIfExists removes a file; a missing one is no error.
func RemoveIfExists(fs vfs.FS, name string) error {
	if err := fs.Remove(name); err != nil && !IsNotExist(err) {
		return err
	}
	return nil
}
