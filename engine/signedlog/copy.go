package signedlog

import (
	"fmt"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// CopyTo makes a log of all that is durable here in dir, which must not be there, and
// returns the offset at which it ends: not below what was acknowledged at level Fsync
// before the call. The copy opens as this log would after a crash. Appends go on
// meanwhile; what drops, rewrites or certifies waits. Kinds Storage (the log needs repair),
// Unavailable. A crash leaves a part of a copy, which is no log.
func (l *Log) CopyTo(dir string) (int64, error) {
	defer l.tellFollowers() // when certMu is free again
	l.certMu.Lock()
	defer l.certMu.Unlock()
	if err := l.certifyLocked(-1); err != nil {
		return 0, fmt.Errorf("copy %s: %w", l.o.Origin, err)
	}
	end, err := l.seg.CopyTo(dir)
	if err != nil {
		return 0, fmt.Errorf("copy %s: %w", l.o.Origin, err)
	}
	names, err := l.o.FS.List(l.o.Dir)
	for _, name := range names {
		if err == nil && (name == "head" || name == "prefix" || strings.HasPrefix(name, "tree.") && !strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".leaves")) {
			err = disk.CopyFile(l.o.FS, l.o.FS.PathJoin(l.o.Dir, name), l.o.FS.PathJoin(dir, name), -1)
		}
	}
	if err == nil {
		err = disk.SyncDir(l.o.FS, dir)
	}
	if err != nil {
		return 0, lattice.E(lattice.Storage, fmt.Errorf("copy %s: %w", l.o.Origin, err))
	}
	return end, nil
}
