package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// stores are the stores that a node carries, each in a directory of its own. One
// of them is the default: requests that name none get it. All methods may be
// called from anywhere.
type stores struct {
	cfg Config
	key identity.Key
	log *slog.Logger

	mu     sync.Mutex
	all    []*store.Store // by creation
	first  lattice.StoreID
	engine *tasks // set while the node runs: what runs the stores
	closed bool

	forking sync.Mutex // held by whoever makes a fork; taken before mu
	useMu   sync.Mutex // held by whoever changes the default
	// changed is told of a new default, added of a store that has come. Set before the
	// node runs; nil: nobody is told.
	changed func(*store.Store) error
	added   func(*store.Store) error

	imports  sync.Mutex
	received map[lattice.Hash]int64 // of snapshots that come in pieces, bytes here; guarded by imports
}

// openStores opens every store of the directory, and makes "main" when there is
// none.
func openStores(ctx context.Context, cfg Config, log *slog.Logger) (*stores, error) {
	key, first, _, err := prepare(ctx, cfg.Data, log)
	if err != nil {
		return nil, err
	}
	ids, err := findStores(cfg.Data)
	if err != nil {
		return nil, err
	}
	s := &stores{cfg: cfg, key: key, log: log, first: first, received: map[lattice.Hash]int64{}}
	for _, id := range ids {
		st, err := store.Open(storeConfig(cfg, key, id, log))
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.all = append(s.all, st)
	}
	slices.SortFunc(s.all, func(a, b *store.Store) int {
		x, y := a.Info(), b.Info()
		return cmp.Or(x.Created.Compare(y.Created), strings.Compare(x.ID.String(), y.ID.String()))
	})
	return s, nil
}

// All returns the stores, the default one first. There is at least one.
func (s *stores) All() []*store.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.Clone(s.all)
	if i := slices.IndexFunc(all, func(st *store.Store) bool { return st.Info().ID == s.first }); i > 0 {
		st := all[i]
		all = slices.Insert(slices.Delete(all, i, i+1), 0, st)
	}
	return all
}

// find returns a store by name or id; empty means the default. Kinds NotFound, Conflict.
func (s *stores) find(name string) (*store.Store, error) {
	all := s.All()
	if name == "" {
		return all[0], nil
	}
	st, err := store.Find(all, name)
	if lattice.KindOf(err) == lattice.NotFound {
		err = lattice.E(lattice.NotFound, fmt.Errorf("there is no store %q in %s", name, s.cfg.Data))
	}
	return st, err
}

// Create makes a store of that name and serves it from now on. Kinds Exists
// (the name is taken on this node), Invalid, Storage.
func (s *stores) Create(ctx context.Context, name string) (*store.Store, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, lattice.E(lattice.Unavailable, errors.New("the node is stopping"))
	}
	for _, st := range s.all {
		if st.Info().Name == name {
			return nil, lattice.E(lattice.Exists, fmt.Errorf("there is a store %q on this node already", name))
		}
	}
	id, err := store.Create(disk.OS(), storesPath(s.cfg.Data), s.key, name, tick.Real{}, rand.Reader, s.log)
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "made store", slog.String("name", name), slog.String("id", id.String()))
	return s.open(id)
}

// Fork makes a fork of a store and serves it from now on. Kinds Exists (the name is taken
// on this node), Invalid, NotYet (store.ErrNothingOwn), Storage.
func (s *stores) Fork(ctx context.Context, of *store.Store, name string) (*store.Store, error) {
	s.forking.Lock() // and not mu: it may take a while
	defer s.forking.Unlock()
	taken := func() error {
		for _, st := range s.All() {
			if st.Info().Name == name {
				return lattice.E(lattice.Exists, fmt.Errorf("there is a store %q on this node already", name))
			}
		}
		return nil
	}
	if err := taken(); err != nil {
		return nil, err
	}
	id, err := of.MakeFork(ctx, name, func(done, parts int) {
		s.log.DebugContext(ctx, "forking", slog.String("name", name), slog.Int("partitions", done), slog.Int("of", parts))
	})
	if err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "made fork", slog.String("name", name), slog.String("id", id.String()), slog.String("of", of.Info().ID.String()))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, lattice.E(lattice.Unavailable, fmt.Errorf("the node is stopping; fork %q is there when it starts again", name))
	}
	return s.open(id)
}

// open opens a store that was made just now, and serves it. s.mu is held.
func (s *stores) open(id lattice.StoreID) (*store.Store, error) {
	st, err := store.Open(storeConfig(s.cfg, s.key, id, s.log))
	if err != nil {
		return nil, err
	}
	s.all = append(s.all, st)
	if s.engine != nil {
		s.engine.run("store "+st.Info().Name, st.Run)
	}
	if s.added != nil {
		err = s.added(st)
	}
	return st, err
}

// join makes the store of a genesis entry, to which an inviter has admitted this node,
// and serves it; again: it was here. The rest of it comes from other nodes.
func (s *stores) join(ctx context.Context, genesis sigchain.Signed, how store.JoinedRecord) (_ *store.Store, again bool, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, lattice.E(lattice.Unavailable, errors.New("the node is stopping"))
	}
	for _, st := range s.all {
		if st.Info().ID == genesis.Home() {
			return st, true, nil
		}
	}
	id, err := store.JoinBy(disk.OS(), storesPath(s.cfg.Data), genesis, how, s.log)
	if err != nil {
		return nil, false, err
	}
	s.log.InfoContext(ctx, "joined store", slog.String("id", id.String()), slog.String("inviter", how.Inviter.String()))
	st, err := s.open(id)
	return st, false, err
}

// Use makes a store the default, from now on and after a restart.
func (s *stores) Use(st *store.Store) error {
	s.useMu.Lock()
	defer s.useMu.Unlock()
	id := st.Info().ID
	if err := writeDefault(s.cfg.Data, id); err != nil {
		return err
	}
	s.mu.Lock()
	s.first = id
	s.mu.Unlock()
	if s.changed != nil {
		return s.changed(st)
	}
	return nil
}

// run runs every store, those made later as well.
func (s *stores) run(engine *tasks) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = engine
	for _, st := range s.all {
		engine.run("store "+st.Info().Name, st.Run)
	}
}

// stopping refuses new stores, before those there are stopped.
func (s *stores) stopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *stores) close() error {
	s.stopping()
	var errs []error
	for _, st := range s.All() {
		errs = append(errs, st.Close())
	}
	return errors.Join(errs...)
}

// findStores returns the directory's stores. Half-made ones are removed.
func findStores(data string) ([]lattice.StoreID, error) {
	var found []lattice.StoreID
	entries, err := os.ReadDir(storesPath(data))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("find the stores: %w", err))
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".new") {
			if err := os.RemoveAll(filepath.Join(storesPath(data), e.Name())); err != nil {
				return nil, lattice.E(lattice.Storage, fmt.Errorf("remove a half-made store: %w", err))
			}
			continue
		}
		if id, err := lattice.ParseStoreID(e.Name()); err == nil && e.IsDir() {
			found = append(found, id)
		}
	}
	return found, nil
}

// defaultPath is the file that names the default store: its id and a line feed.
func defaultPath(data string) string { return filepath.Join(storesPath(data), "default") }

// defaultStore returns the default of the directory's stores: the one that the
// file names, or else, of ids, the first.
func defaultStore(data string, ids []lattice.StoreID) (lattice.StoreID, error) {
	b, err := os.ReadFile(defaultPath(data))
	if errors.Is(err, fs.ErrNotExist) {
		return ids[0], nil
	}
	if err != nil {
		return lattice.StoreID{}, lattice.E(lattice.Storage, fmt.Errorf("find the default store: %w", err))
	}
	id, err := lattice.ParseStoreID(strings.TrimSpace(string(b)))
	if err == nil && !slices.Contains(ids, id) {
		err = errors.New("it is not here")
	}
	if err != nil {
		return id, lattice.E(lattice.Corrupt, fmt.Errorf("%s names the default store %.64q: %w", defaultPath(data), b, err))
	}
	return id, nil
}

// writeDefault names the default store in one step: a crash leaves the old one
// or the new one.
func writeDefault(data string, id lattice.StoreID) error {
	tmp := defaultPath(data) + ".tmp"
	if err := writeSynced(tmp, id.String()+"\n"); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("remember the default store: %w", err))
	}
	if err := os.Rename(tmp, defaultPath(data)); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("remember the default store: %w", err))
	}
	return disk.SyncDir(disk.OS(), storesPath(data))
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}
