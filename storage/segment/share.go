package segment

import (
	"fmt"

	"github.com/lattice-log/lattice/storage/disk"
)

// A copy of a log shares its full files with it, by hard links: what is in them does not
// change any more. Three things could change it: to keep a dropped file and write over
// it, to append to the last file again after a restart, and to rewrite it. The last
// file is therefore copied, a rewrite makes another file (Replace), and a log that shares
// files keeps none that it drops:
//
//	shared    empty; dropped files are removed, and none is written over
const sharedName = "shared"

// share makes the log keep no dropped file, durably. l.houseMu is held.
func (l *Log) share() error {
	if err := disk.WriteFile(l.fs, l.fs.PathJoin(l.dir, sharedName), nil); err != nil {
		return err
	}
	l.opt.Recycle = 0
	return nil
}

// shares reports whether the log in dir may share files with another.
func shares(fs disk.FS, dir string) bool {
	_, err := fs.Stat(fs.PathJoin(dir, sharedName))
	return !disk.IsNotExist(err)
}

// CopyTo makes a log of all blocks that are durable in dir, which must not be there, and
// returns the offset at which it ends. Full files are shared, the last one is copied.
// Appends go on meanwhile, Drop and Replace wait. When it returns the copy is durable,
// but for the name of dir. The steps, and what a crash leaves:
//
//  1. Both logs are marked as sharing files, durably. A crash: dropped files are not
//     written over any more, which costs a little.
//  2. Files are linked and copied. A crash leaves a part, which is no log: whoever
//     wanted the copy removes it.
func (l *Log) CopyTo(dir string) (int64, error) {
	l.houseMu.Lock()
	defer l.houseMu.Unlock()
	l.mu.RLock()
	segs, pos, next, closed := l.segs, l.synced, l.syncedOff, l.closed
	l.mu.RUnlock()
	if closed {
		return 0, ErrClosed
	}
	err := disk.MkdirAll(l.fs, dir)
	if err == nil {
		err = disk.WriteFile(l.fs, l.fs.PathJoin(dir, sharedName), nil)
	}
	if err == nil {
		err = l.share()
	}
	for i, s := range segs {
		if err != nil || s.base > pos.Segment || s.base == pos.Segment && pos.At == 0 {
			break
		}
		l.mu.RLock()
		full, end, compacted := s.state == sealed && i+1 < len(segs), s.end, s.compacted
		l.mu.RUnlock()
		if s.base == pos.Segment {
			full, end = full && end == pos.At, pos.At
		}
		err = l.copyFile(dir, s.base, end, full, compacted)
	}
	if err == nil {
		err = disk.SyncDir(l.fs, dir)
	}
	if err != nil {
		return 0, storage("copy to %s: %w", dir, err)
	}
	return next, nil
}

// copyFile puts one file into dir: its first end bytes, or the file itself if it is full.
func (l *Log) copyFile(dir string, base, end int64, full, compacted bool) error {
	to := func(ext string) string { return l.fs.PathJoin(dir, fmt.Sprintf("%020d%s", base, ext)) }
	if !full { // its indexes are made again from the blocks
		return disk.CopyFile(l.fs, l.name(base, logExt), to(logExt), end)
	}
	if err := l.fs.Link(l.name(base, logExt), to(logExt)); err != nil {
		return err
	}
	for _, ext := range []string{indexExt, timeExt} {
		if err := disk.CopyFile(l.fs, l.name(base, ext), to(ext), -1); err != nil && !disk.IsNotExist(err) {
			return err
		}
	}
	if !compacted {
		return nil
	}
	return disk.WriteFile(l.fs, to(compactedExt), nil)
}
