package node

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/mesh/p2p"
	"github.com/lattice-log/lattice/storage/disk"
)

// newMesh binds the mesh's addresses, of which there is one. Where the setting leaves
// the choice of the port, it gets the one that it had last.
func newMesh(key identity.Key, cfg Mesh, data string, limits p2p.Limits, log *slog.Logger) (*p2p.Mesh, error) {
	listen, err := meshAddresses(cfg.Listen)
	if err != nil {
		return nil, err
	}
	announce, err := meshAddresses(cfg.Announce)
	if err != nil {
		return nil, err
	}
	kept, err := keptPort(data)
	if err != nil {
		return nil, err
	}
	c := p2p.Config{
		Key: key, Listen: withPort(listen, kept), Announce: announce, MDNS: cfg.MDNS, SendRate: cfg.SendRate,
		Book: book{filepath.Join(data, peersFile)}, Limits: limits, Logger: log,
	}
	m, err := p2p.New(c)
	if kept > 0 && lattice.KindOf(err) == lattice.Unavailable {
		log.Warn("the mesh's last port is taken, so it gets another: peers that this node cannot call do not find it", "port", kept)
		c.Listen = listen
		m, err = p2p.New(c)
	}
	if err != nil {
		return nil, fmt.Errorf("mesh.listen: %w", err)
	}
	if len(announce) == 0 {
		if err := keepPort(data, kept, m.Addresses()); err != nil {
			return nil, errors.Join(err, m.Close())
		}
	}
	return m, nil
}

// portFile says which port the mesh got where its setting leaves the choice, so that
// it is there again after a restart: others have that address only.
const portFile = "mesh.port"

const anyPort = "/tcp/0"

// withPort puts the kept port where TCP addresses leave the choice.
func withPort(listen []string, kept int) []string {
	if kept == 0 {
		return listen
	}
	out := slices.Clone(listen)
	for i, s := range out {
		if host, ok := strings.CutSuffix(s, anyPort); ok {
			out[i] = host + "/tcp/" + strconv.Itoa(kept)
			break // one address has it
		}
	}
	return out
}

// keptPort returns the port that the mesh had last, 0: none.
func keptPort(data string) (int, error) {
	b, err := os.ReadFile(filepath.Join(data, portFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, lattice.E(lattice.Storage, fmt.Errorf("read %s: %w", portFile, err))
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 16)
	if err != nil {
		return 0, nil // another one is chosen and kept
	}
	return int(n), nil
}

// keepPort keeps the port of the first TCP address, unless it was kept before.
func keepPort(data string, kept int, addresses []string) error {
	for _, a := range addresses {
		_, port, ok := strings.Cut(a, "/tcp/")
		if !ok || port == strconv.Itoa(kept) {
			continue
		}
		if err := disk.WriteFile(disk.OS(), filepath.Join(data, portFile), []byte(port+"\n")); err != nil {
			return lattice.E(lattice.Storage, err)
		}
		return nil
	}
	return nil
}
