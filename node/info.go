package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	lattice "github.com/lattice-log/lattice"
)

// infoFile is the name of the file in the data directory that tells where a
// running node listens. Scripts rely on it.
const infoFile = "node.json"

// Info is what node.json holds while the node runs. An empty string: that
// listener is off.
type Info struct {
	Node   string   `json:"node"`  // public key in hex
	Store  string   `json:"store"` // id of the default store in hex
	Kafka  string   `json:"kafka"` // host:port
	Redis  string   `json:"redis"`
	HTTP   string   `json:"http"`
	P2P    []string `json:"p2p"`
	Socket string   `json:"socket"` // absolute path
	PID    int      `json:"pid"`

	// StoreName is the default store's name. It is not in the file.
	StoreName string `json:"-"`
}

// write puts the file into dir in one step: readers see all of it or none.
func (i Info) write(dir string) error {
	b, err := json.Marshal(i)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, infoFile)
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("write %s: %w", infoFile, err))
	}
	if err := os.Rename(tmp, path); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("write %s: %w", infoFile, err))
	}
	return nil
}

// removeInfo removes the file; one that is not there is as good.
func removeInfo(dir string) error {
	if err := os.Remove(filepath.Join(dir, infoFile)); err != nil && !os.IsNotExist(err) {
		return lattice.E(lattice.Storage, fmt.Errorf("remove %s: %w", infoFile, err))
	}
	return nil
}
