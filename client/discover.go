package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	lattice "github.com/lattice-log/lattice"
)

// NodeInfo is what a running node writes to node.json in its data directory.
// An empty address: that listener is off.
type NodeInfo struct {
	Node   string   `json:"node"`
	Store  string   `json:"store"`
	Kafka  string   `json:"kafka"`
	Redis  string   `json:"redis"`
	HTTP   string   `json:"http"`
	P2P    []string `json:"p2p"`
	Socket string   `json:"socket"`
	PID    int      `json:"pid"`
}

// ReadNodeInfo reads dir/node.json. Kind Unavailable: no node runs there.
func ReadNodeInfo(dir string) (NodeInfo, error) {
	var info NodeInfo
	path := filepath.Join(dir, "node.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return info, noNode(dir, nil)
	}
	if err != nil {
		return info, lattice.E(lattice.Unavailable, fmt.Errorf("find the node: %w", err))
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return info, lattice.E(lattice.Corrupt, fmt.Errorf("find the node: read %s: %w", path, err))
	}
	if info.Socket == "" && info.HTTP == "" {
		return info, lattice.E(lattice.Unavailable, &Error{
			Message: fmt.Sprintf("the node on %s (pid %d) serves no API", dir, info.PID),
			Hint:    "start it with an address in --http",
		})
	}
	if info.Socket != "" && !filepath.IsAbs(info.Socket) {
		info.Socket = filepath.Join(dir, info.Socket)
	}
	return info, nil
}

// noNode is the error for a directory without a running node.
func noNode(dir string, cause error) error {
	return lattice.E(lattice.Unavailable, &Error{
		Message: "no node runs on " + dir,
		Hint:    "start one: lattice up --data " + dir,
		cause:   cause,
	})
}
