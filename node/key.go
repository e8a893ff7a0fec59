package node

import (
	"crypto/rand"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/keyfile"
)

// readKey returns the node's identity. Kinds NotFound, Denied, Corrupt, Storage.
func readKey(data string) (identity.Key, error) { return keyfile.Load(disk.OS(), keyPath(data)) }

// loadKey returns the node's identity and makes one where there is none. A
// store without the key that signs for it is not given another one.
func loadKey(data string) (key identity.Key, created bool, err error) {
	key, err = readKey(data)
	if lattice.KindOf(err) != lattice.NotFound || err == nil {
		return key, false, err
	}
	if ids, findErr := findStores(data); findErr != nil {
		return key, false, findErr
	} else if len(ids) > 0 {
		return key, false, lattice.E(lattice.Corrupt,
			fmt.Errorf("store %s is there but the key that signs for it is not: put %s back", ids[0].Short(), keyPath(data)))
	}
	if key, err = identity.Generate(rand.Reader); err != nil {
		return key, false, fmt.Errorf("make an identity: %w", err)
	}
	return key, true, keyfile.Create(disk.OS(), keyPath(data), key)
}
