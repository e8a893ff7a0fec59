package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// imported reports whether the store began here from a snapshot.
func (s *Store) imported() bool {
	_, err := s.cfg.FS.Stat(keyval.BasePath(s.cfg.FS, s.cfg.Dir))
	return err == nil
}

// Found makes a store from a snapshot, in dir/<store id>, and returns its id. The
// file stays. Nothing is left behind that Open would take for a store if it fails
// half way. Kinds Corrupt, NotYet (it is cut), Denied (nobody signed it who may write
// in the store), Exists.
func Found(ctx context.Context, fs disk.FS, dir, path string, logger *slog.Logger) (lattice.StoreID, keyval.Verified, error) {
	v, err := keyval.Verify(ctx, fs, path, path+".scratch")
	if err != nil {
		return lattice.StoreID{}, v, err
	}
	id := v.Head.Store()
	if v.Member < roster.Writer {
		return id, v, fmt.Errorf("%w: %s", keyval.ErrSigner, v.Seal.Signer.Short())
	}
	final := fs.PathJoin(dir, id.String())
	if _, err := fs.Stat(final); err == nil {
		return id, v, lattice.E(lattice.Exists, fmt.Errorf("store %s is on this node already", id.Short()))
	}
	making := final + ".new"
	if err := fs.RemoveAll(making); err != nil {
		return id, v, lattice.E(lattice.Storage, err)
	}
	cat, err := openLocal(fs, fs.PathJoin(making, "kv"), kv.Options{Logger: logger})
	if err != nil {
		return id, v, err
	}
	if err := errors.Join(cat.putGenesis(v.Head.Genesis), cat.forgetMoved(), cat.Close()); err != nil {
		return id, v, fmt.Errorf("make store %s: %w", id.Short(), err)
	}
	base := keyval.BasePath(fs, making)
	err = disk.MkdirAll(fs, fs.PathDir(base))
	if err == nil {
		err = fs.Link(path, base)
	}
	if err == nil {
		err = disk.SyncDir(fs, fs.PathDir(base))
	}
	if err == nil {
		err = fs.Rename(making, final)
	}
	if err == nil {
		err = disk.SyncDir(fs, dir)
	}
	if err != nil {
		return id, v, lattice.E(lattice.Storage, fmt.Errorf("make store %s: %w", id.Short(), err))
	}
	return id, v, nil
}
