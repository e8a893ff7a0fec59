// Package keyfile keeps a node's identity in a file that only its owner may read.
// What the bytes mean is core/identity's.
package keyfile

import (
	"errors"
	"fmt"
	"io/fs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/storage/disk"
)

// forbidden are the permissions that a key file must not have.
const forbidden fs.FileMode = 0o077

// Load reads the key. Errors by Kind: NotFound (no file), Denied (group or others
// have access to it), Corrupt (no key in it), Storage.
func Load(fsys disk.FS, name string) (identity.Key, error) {
	info, err := fsys.Stat(name)
	if disk.IsNotExist(err) {
		return identity.Key{}, lattice.E(lattice.NotFound, fmt.Errorf("key file %s: %w", name, err))
	}
	if err != nil {
		return identity.Key{}, lattice.E(lattice.Storage, fmt.Errorf("key file %s: %w", name, err))
	}
	if mode := info.Mode(); !mode.IsRegular() || mode.Perm()&forbidden != 0 {
		return identity.Key{}, lattice.E(lattice.Denied, fmt.Errorf("key file %s has mode %s: others must have no access, so make it 0600", name, mode))
	}
	b, err := disk.ReadFile(fsys, name)
	if err != nil {
		return identity.Key{}, lattice.E(lattice.Storage, fmt.Errorf("key file %s: %w", name, err))
	}
	defer clear(b)
	key, err := identity.ParseKeyFile(b)
	if err != nil {
		return identity.Key{}, lattice.E(lattice.Corrupt, fmt.Errorf("key file %s: %w", name, err))
	}
	return key, nil
}

// Create writes the key into a new file with mode 0600, durably: after a crash
// the file has the whole key or is not there. It never replaces a file: Kind
// Exists, and the file stays as it is.
func Create(fsys disk.FS, name string, key identity.Key) error {
	b := key.KeyFile()
	defer clear(b)
	tmp := name + ".tmp" // one that a crash left is not ours to trust: it is replaced
	if err := write(fsys, tmp, b); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("write key file %s: %w", tmp, err))
	}
	err := fsys.Link(tmp, name) // unlike a rename, it fails if name is there
	if rmErr := fsys.Remove(tmp); err == nil {
		err = rmErr
	}
	if errors.Is(err, fs.ErrExist) {
		return lattice.E(lattice.Exists, fmt.Errorf("key file %s: %w", name, err))
	}
	if err == nil {
		err = disk.SyncDir(fsys, fsys.PathDir(name))
	}
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("create key file %s: %w", name, err))
	}
	return nil
}

func write(fsys disk.FS, name string, b []byte) error {
	f, err := disk.CreatePrivate(fsys, name)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
