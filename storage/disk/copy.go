package disk

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CopyFile writes the first n bytes of a file, or all of it if n is negative, to a new
// one, and makes them durable; its name is durable when its directory is synced. A file
// that has fewer is an error. Nothing else may write to those bytes meanwhile.
func CopyFile(fs vfs.FS, from, to string, n int64) (err error) {
	src, err := fs.Open(from)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if n < 0 {
		info, err := src.Stat()
		if err != nil {
			return fmt.Errorf("copy %s: %w", from, err)
		}
		n = info.Size()
	}
	dst, err := fs.Create(to, Category)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	_, err = io.CopyN(dst, io.NewSectionReader(src, 0, n), n)
	if err == nil {
		err = dst.Sync()
	}
	if err = errors.Join(err, dst.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return nil
}
