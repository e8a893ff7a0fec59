package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
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
	for _, id := range ids {
		if name == "" && id != first || strings.Trim(name, "0123456789abcdef") == "" && len(name) == 64 && id.String() != name {
			continue
		}
		s, err := store.Open(store.Config{
			FS: disk.OS(), Dir: filepath.Join(storesPath(dir), id.String()), Key: key,
			Clock: tick.Real{}, Rand: rand.Reader, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		if name == "" || name == id.String() || name == s.Info().Name {
			return s, nil
		}
		if err := s.Close(); err != nil {
			return nil, err
		}
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

func (o *Offline) partition(topic string, number int32) (*partition.Partition, error) {
	t, ok := o.store.Topic(topic)
	if !ok {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("topic %q does not exist", topic))
	}
	return o.store.Partition(t.ID, number)
}

// Close gives the directory back.
func (o *Offline) Close() error { return errors.Join(o.store.Close(), o.lock.release()) }
