package kv

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// OpenReadOnly opens the store in dir to read, and changes nothing in it: what is
// only in the journal is replayed in memory. Nobody may have it open to write.
// Commit fails. Kind NotFound: there is no store. Otherwise as Open.
func OpenReadOnly(fs disk.FS, dir string, opt Options) (*DB, error) {
	if opt.CacheBytes <= 0 {
		opt.CacheBytes = defaultCache
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if _, err := fs.Stat(dir); disk.IsNotExist(err) {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("open kv %s to read: %w", dir, err))
	}
	ro := disk.ReadOnly(fs)
	var db *pebble.DB
	err := guard(func() (err error) {
		cache := pebble.NewCache(opt.CacheBytes)
		defer cache.Unref()
		db, err = pebble.Open(dir, &pebble.Options{
			FS: ro, Cache: cache, Logger: logger{opt.Logger}, ReadOnly: true, MaxOpenFiles: 128,
			FormatMajorVersion: format,
			EventListener: &pebble.EventListener{DataCorruption: func(info pebble.DataCorruptionInfo) {
				opt.Logger.Error("kv: damaged", "dir", dir, "info", info.String())
			}},
		})
		return err
	})
	if errors.Is(err, pebble.ErrDBDoesNotExist) {
		return nil, lattice.E(lattice.NotFound, fmt.Errorf("open kv %s to read: %w", dir, err))
	}
	if err != nil {
		return nil, lattice.E(kindOf(err), fmt.Errorf("open kv %s to read: %w", dir, err))
	}
	d := &DB{fs: ro, dir: dir, db: db, reading: true}
	v, ok, err := d.get(versionKey())
	switch {
	case err != nil:
	case !ok:
		err = lattice.E(lattice.Corrupt, errors.New("it has no layout version"))
	case len(v) != 1 || v[0] != Version:
		err = lattice.E(lattice.Unsupported, fmt.Errorf("layout version %x, this program reads %d", v, Version))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open kv %s to read: %w", dir, err), db.Close())
	}
	return d, nil
}
