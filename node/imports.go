package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/snapshot"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/storage/disk"
)

// staging is where snapshots are gathered that come in pieces. Its name is no
// store's.
func (s *stores) staging() keyval.Staging {
	return keyval.Staging{FS: disk.OS(), Dir: filepath.Join(storesPath(s.cfg.Data), "incoming")}
}

// Import implements api.Stores.
func (s *stores) Import(ctx context.Context, id lattice.Hash, size, offset int64, b []byte) (int64, *api.Imported, error) {
	s.imports.Lock()
	defer s.imports.Unlock()
	in := s.staging()
	have, known := s.received[id]
	if !known {
		var err error
		if have, err = in.Received(id); err != nil {
			return 0, nil, err
		}
		s.received[id] = have
	}
	if len(b) > 0 && offset == have {
		if err := in.Append(id, have, b, have+int64(len(b)) == size); err != nil {
			return have, nil, err
		}
		have += int64(len(b))
		s.received[id] = have
	}
	if have < size {
		return have, nil, nil
	}
	done, err := s.importFile(ctx, in.Path(id))
	if k := lattice.KindOf(err); err == nil || k == lattice.Corrupt || k == lattice.NotYet || k == lattice.Unsupported {
		delete(s.received, id) // what was sent is of no use any more
		err = errors.Join(err, in.Drop(id))
	}
	return have, done, err
}

// importFile joins a snapshot with its store, or makes that.
func (s *stores) importFile(ctx context.Context, path string) (*api.Imported, error) {
	head, err := readHead(path)
	if err != nil {
		return nil, err
	}
	for _, st := range s.All() {
		if st.Info().ID == head.Store() {
			got, err := st.State().Import(ctx, path)
			return &api.Imported{Imported: got, Store: st}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, lattice.E(lattice.Unavailable, errors.New("the node is stopping"))
	}
	id, v, err := store.Found(ctx, disk.OS(), storesPath(s.cfg.Data), path, s.log)
	if err != nil {
		return nil, err
	}
	st, err := s.open(id)
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "made store from a snapshot", slog.String("name", st.Info().Name), slog.String("id", id.String()))
	got := keyval.Imported{Head: v.Head, Seal: v.Seal, New: true}
	for _, n := range st.State().Frontier() {
		got.Entries += n
	}
	return &api.Imported{Imported: got, Store: st, Made: true}, nil
}

func readHead(path string) (snapshot.Head, error) {
	f, err := disk.OS().Open(path)
	if err != nil {
		return snapshot.Head{}, lattice.E(lattice.Storage, fmt.Errorf("open the snapshot: %w", err))
	}
	defer func() { _ = f.Close() }()
	r, err := snapshot.NewReader(f)
	if err != nil {
		return snapshot.Head{}, err
	}
	return r.Head(), nil
}
