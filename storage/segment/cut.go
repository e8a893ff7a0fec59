package segment

import (
	"errors"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lattice-log/lattice/storage/disk"
)

// CutTail removes the blocks behind pos, where a block begins, of the log in dir, which
// nobody has open. Whoever opens it next resumes at pos: of what a crash leaves behind
// that, all or some may be there again, in order. Later files go first, so that the log
// never has a hole. Kind Storage.
func CutTail(fs disk.FS, dir string, pos Pos) error {
	l := &Log{fs: fs, dir: dir}
	names, err := fs.List(dir)
	if err != nil {
		return storage("cut the log behind %s: %w", pos, err)
	}
	slices.Sort(names)
	slices.Reverse(names)
	var errs error
	for _, name := range names {
		base, ext, ok := parseName(name)
		switch {
		case !ok || base < pos.Segment:
		case base == pos.Segment && pos.At > 0 && ext == logExt:
			errs = errors.Join(errs, cutFile(fs, l.name(base, ext), pos.At))
		case base == pos.Segment && pos.At > 0 && ext == compactedExt:
		case ext == logExt || ext == indexExt || ext == timeExt || ext == hintExt || ext == newExt || ext == compactedExt:
			errs = errors.Join(errs, disk.RemoveIfExists(fs, fs.PathJoin(dir, name)))
		}
	}
	if errs = errors.Join(errs, disk.SyncDir(fs, dir)); errs != nil {
		return storage("cut the log behind %s: %w", pos, errs)
	}
	return nil
}

func cutFile(fs disk.FS, name string, size int64) error {
	if err := fs.Truncate(name, size); err != nil {
		return err
	}
	f, err := fs.OpenReadWrite(name, disk.Category)
	if err != nil {
		return err
	}
	return errors.Join(vfs.File.Sync(f), f.Close())
}
