package node

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// peersFile is the address book of the mesh, in the data directory.
const peersFile = "peers.json"

// book keeps the mesh's address book in a file.
type book struct{ path string }

// Load implements p2p.Book.
func (b book) Load() ([]byte, error) {
	all, err := disk.ReadFile(disk.OS(), b.path)
	if disk.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("read %s: %w", peersFile, err))
	}
	return all, nil
}

// Save implements p2p.Book.
func (b book) Save(all []byte) error {
	if err := disk.WriteFile(disk.OS(), b.path, all); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("write %s: %w", peersFile, err))
	}
	return nil
}
