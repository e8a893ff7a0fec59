package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// Offline is the data directory of a stopped node, opened to read. It recovers
// as a start does, takes no records and serves nobody. Close gives the directory
// back.
type Offline struct {
	lock  *lock
	store *store.Store
}

// OpenOffline opens one store, by name or id, in the data directory of a node
// that does not run; an empty name means the default store. Kinds NotFound (nothing is there),
// Conflict with a *HeldError (a node runs), Corrupt.
func OpenOffline(dir, name string, log *slog.Logger) (*Offline, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ids, err := findStores(dir)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("%s holds no store", dir))
	}
	key, err := readKey(dir)
	if err != nil {
		return nil, err
	}
	l, err := takeLock(dir)
	if err != nil {
		return nil, err
	}
	s, err := openOffline(dir, ids, name, key, log)
	if err != nil {
		return nil, errors.Join(err, l.release())
	}
	return &Offline{l, s}, nil
}

func openOffline(dir string, ids []lattice.StoreID, name string, key identity.Key, log *slog.Logger) (*store.Store, error) {
	first, err := defaultStore(dir, ids)
	if err != nil {
		return nil, err
	}
	id, notID := lattice.ParseStoreID(name)
	switch {
	case name == "":
		ids = []lattice.StoreID{first}
	case notID == nil && id.String() == name: // an id tells the directory; a name is known when the store is open
		ids = slices.DeleteFunc(ids, func(other lattice.StoreID) bool { return other != id })
	}
	var found *store.Store
	for _, id := range ids {
		s, err := store.Open(store.Config{
			FS: disk.OS(), Dir: filepath.Join(storesPath(dir), id.String()), Key: key,
			Clock: tick.Real{}, Rand: rand.Reader, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		if found == nil && (name == "" || name == id.String() || name == s.Info().Name) {
			found = s
			continue
		}
		twice := found != nil && name == s.Info().Name
		if err := s.Close(); err != nil {
			return nil, err
		}
		if twice {
			return nil, errors.Join(fmt.Errorf("store %q: %w: name it by its id", name, store.ErrAmbiguous), found.Close())
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, lattice.E(lattice.NotFound, fmt.Errorf("there is no store %q in %s", name, dir))
}

// Check re-derives everything in the data directory of a stopped node from the
// bytes, and changes nothing. Kinds NotFound (there is no store), Conflict with
// a *HeldError (a node runs); what is wrong with the data is in the report.
func Check(dir string, o fsck.Options) (fsck.Report, error) {
	release, err := holdLock(dir)
	if err != nil {
		return fsck.Report{}, err
	}
	report, err := fsck.Check(disk.OS(), dir, o)
	return report, errors.Join(err, release())
}

// ProveRecord returns a proof file for one record. Kinds NotFound, OutOfRange,
// NotYet, Conflict (compacted away).
func (o *Offline) ProveRecord(ctx context.Context, topic string, number int32, offset int64) ([]byte, error) {
	p, err := o.partition(topic, number)
	if err != nil {
		return nil, err
	}
	return p.Prove(ctx, offset)
}

// ProveCheckpoint returns a proof file for all that a partition holds.
func (o *Offline) ProveCheckpoint(ctx context.Context, topic string, number int32) ([]byte, error) {
	p, err := o.partition(topic, number)
	if err != nil {
		return nil, err
	}
	return p.ProveCheckpoint(ctx)
}

// ProveKey returns a proof file for what a key of a map holds, or that there is no
// such key. Kind TooLarge.
func (o *Offline) ProveKey(ctx context.Context, m string, key []byte) ([]byte, error) {
	if err := o.unforked(); err != nil {
		return nil, err
	}
	if m == "" {
		m = "0"
	}
	return o.store.State().ProveFile(ctx, m, key)
}

// unforked refuses proofs of a fork: what it signed is nobody else's to see.
func (o *Offline) unforked() error {
	if _, fork := o.store.Fork(); fork {
		return fmt.Errorf("prove something of %q: %w: bring it back with lattice store sync, and prove it in the store that it is of", o.store.Info().Name, store.ErrFork)
	}
	return nil
}

func (o *Offline) partition(topic string, number int32) (*partition.Partition, error) {
	if err := o.unforked(); err != nil {
		return nil, err
	}
	t, ok := o.store.Topic(topic)
	if !ok {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("topic %q does not exist", topic))
	}
	return o.store.Partition(t.ID, number)
}

// Serve serves the API to this process alone: dial makes a connection to it, stop
// ends it. What is asked for must be there to be read; writes are refused.
func (o *Offline) Serve(ctx context.Context) (dial func(context.Context) (net.Conn, error), stop func() error, err error) {
	h, err := api.Handler(api.Config{
		Stores: api.Fixed{o.store}, Logger: slog.New(slog.DiscardHandler), Node: func() api.Node { return api.Node{} },
	})
	if err != nil {
		return nil, nil, err
	}
	ln := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- serveHTTP(ctx, api.Server(h, slog.New(slog.DiscardHandler)), ln, false) }()
	return ln.dial, func() error { cancel(); return <-done }, nil
}

// pipes is a listener for connections within the process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Accept waits for dial.
func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and dial.
func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr is no address that anybody could dial.
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "offline", Net: "unix"} }

// Close gives the directory back.
func (o *Offline) Close() error { return errors.Join(o.store.Close(), o.lock.release()) }
