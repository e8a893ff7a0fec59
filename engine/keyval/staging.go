package keyval

import (
	"bufio"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/snapshot"
	"github.com/lattice-log/lattice/storage/disk"
)

// Staging gathers snapshots that come in pieces, each in a file of a directory,
// until they are imported. What was received stays after a restart: whoever sends goes
// on from there. Not safe for concurrent use.
type Staging struct {
	FS  disk.FS
	Dir string
}

// Path returns where a snapshot is gathered.
func (s Staging) Path(id lattice.Hash) string { return s.FS.PathJoin(s.Dir, id.String()+".part") }

// Received returns how many bytes are here of a snapshot, in whole, undamaged chunks;
// what is behind those is cut off.
func (s Staging) Received(id lattice.Hash) (int64, error) {
	f, err := s.FS.Open(s.Path(id))
	if disk.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, lattice.E(lattice.Storage, fmt.Errorf("open what was received: %w", err))
	}
	info, err := f.Stat()
	var good int64
	if err == nil {
		good, _, err = snapshot.Whole(bufio.NewReaderSize(f, 1<<20))
	}
	_ = f.Close()
	if k := lattice.KindOf(err); err != nil && k != lattice.Corrupt && k != lattice.Unsupported {
		return 0, err
	}
	if err == nil && good == info.Size() {
		return good, nil
	}
	if err := s.FS.Truncate(s.Path(id), good); err != nil {
		return 0, lattice.E(lattice.Storage, fmt.Errorf("cut what was received: %w", err))
	}
	return good, nil
}

// Append writes bytes behind the first at of a snapshot; sync makes all durable.
func (s Staging) Append(id lattice.Hash, at int64, b []byte, sync bool) error {
	if err := disk.MkdirAll(s.FS, s.Dir); err != nil {
		return lattice.E(lattice.Storage, err)
	}
	path := s.Path(id)
	f, err := s.FS.OpenReadWrite(path, disk.Category)
	if disk.IsNotExist(err) {
		f, err = disk.CreatePrivate(s.FS, path)
	}
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("open what was received: %w", err))
	}
	_, err = f.WriteAt(b, at)
	if err == nil && sync {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("keep what was received: %w", err))
	}
	return nil
}

// Drop forgets what was received of a snapshot.
func (s Staging) Drop(id lattice.Hash) error {
	if err := disk.RemoveIfExists(s.FS, s.Path(id)); err != nil {
		return lattice.E(lattice.Storage, err)
	}
	return nil
}
