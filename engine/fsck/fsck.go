// Package fsck derives the truth of a data directory from its bytes, and reports
// what does not match. It changes nothing, opens nothing to write, and trusts
// nothing that it can recompute:
//
//   - the catalogue's records decode; entries are signed and chained from the
//     genesis, whose hash is the store's name; topics are what the fold of the entries
//     says, and what their creating entries say; grants are signed and follow each other;
//   - every batch has the next offset, the term whose grant is in force there, and
//     its checksum; or its file is, byte for byte, what a signed compaction
//     statement says, and holds only batches of the original ones;
//   - leaf records, stored tree nodes and the compact range of the dropped prefix
//     are those of the blocks, and lead to the root of every checkpoint, grant and
//     statement that lies in what is still here;
//   - nothing below the newest checkpoint is missing; what follows it is whole
//     batches, and then at most an unfinished one, which the next start cuts;
//   - indexes point at the blocks they name; the producer snapshot agrees with the
//     batches; committed offsets belong to topics that exist.
//
// # What it does not do
//
// It does not compare the fold database (state/) with the logs that it is made
// from, beyond reading it. It does not repair, and it does not decompress batches: a batch that matches
// its checksum is what was stored. Damage behind the last checkpoint cannot be
// told from a torn write, and is a note. What the ordered store under the
// catalogue drops silently because its journal ends early cannot be seen, unless
// something else needs it.
//
// Nobody may write to the directory meanwhile: keep the node from starting.
//
// Memory does not depend on the size of the logs: a block of leaf records, a
// buffer of batches, and what the catalogue holds of topics and, one partition at
// a time, of grants, statements and producers.
package fsck

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/keyfile"
)

// Options say how a check runs. The zero value is fine.
type Options struct {
	// Progress is called now and then, and once at the end. An error from it
	// ends the check and is returned.
	Progress func(Progress) error
	// MaxFindings bounds Report.Findings; default 1,000.
	MaxFindings int
	Logger      *slog.Logger // gets what the ordered store says; default: none
}

// Progress says how far a check is.
type Progress struct {
	Path        string // what is being read
	Done, Total int64  // bytes of segment files
}

const (
	defaultMaxFindings = 1000
	progressEvery      = 8 << 20
)

// checker is one run.
type checker struct {
	fs    disk.FS
	root  string
	o     Options
	r     Report
	store string // id of the store at hand

	buf []byte // of the window that is open

	done, total, told int64
}

func newChecker(fs disk.FS, root string, o Options) *checker {
	if o.MaxFindings <= 0 {
		o.MaxFindings = defaultMaxFindings
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &checker{fs: disk.ReadOnly(fs), root: root, o: o}
}

// Check checks a node's data directory. The error says why the check could not
// be made (Kind NotFound: there is no store; what Progress returned); what is
// wrong with the data is in the report.
func Check(fs disk.FS, dataDir string, o Options) (Report, error) {
	c := newChecker(fs, dataDir, o)
	names, err := c.fs.List(dataDir)
	if err != nil {
		return c.r, lattice.E(lattice.NotFound, fmt.Errorf("check %s: %w", dataDir, err))
	}
	stores, err := c.listStores(names)
	if err != nil {
		return c.r, fmt.Errorf("check %s: %w", dataDir, err)
	}
	key := c.loadKey()
	for _, dir := range stores {
		c.total += c.logBytes(dir)
	}
	for _, dir := range stores {
		if err := c.checkStore(dir, key); err != nil {
			return c.r, fmt.Errorf("check %s: %w", dataDir, err)
		}
	}
	return c.r, c.finish()
}

// CheckStore checks one store's directory, DATA/stores/<id>, without the node's
// key. Otherwise as Check.
func CheckStore(fs disk.FS, dir string, o Options) (Report, error) {
	c := newChecker(fs, dir, o)
	if _, err := c.fs.List(dir); err != nil {
		return c.r, lattice.E(lattice.NotFound, fmt.Errorf("check store %s: %w", dir, err))
	}
	c.total = c.logBytes(dir)
	if err := c.checkStore(dir, nil); err != nil {
		return c.r, fmt.Errorf("check store %s: %w", dir, err)
	}
	return c.r, c.finish()
}

// listStores returns the directories of stores, and notes what belongs to nothing.
func (c *checker) listStores(names []string) ([]string, error) {
	for _, name := range names {
		switch name {
		case "identity.key", "lock", "node.json", "api.sock", "stores", "shell_history", "peers.json", "mesh.port":
		default:
			c.note(c.fs.PathJoin(c.root, name), "belongs to nothing", "")
		}
	}
	dir := c.fs.PathJoin(c.root, "stores")
	ids, err := c.fs.List(dir)
	if err != nil && !disk.IsNotExist(err) {
		return nil, lattice.E(lattice.Storage, err)
	}
	var stores []string
	for _, id := range ids {
		path := c.fs.PathJoin(dir, id)
		if _, err := lattice.ParseStoreID(id); err == nil {
			stores = append(stores, path)
			continue
		}
		if strings.HasSuffix(id, ".new") {
			c.note(path, "unfinished store", "its creation was interrupted")
			continue
		}
		if id == "incoming" {
			received := append(c.list(path), c.list(c.fs.PathJoin(path, "peers"))...)
			if !slices.ContainsFunc(received, func(name string) bool { return strings.HasSuffix(name, ".part") }) {
				continue
			}
			c.note(path, "unfinished import", "what was received of snapshots: whoever sent it goes on, or remove it")
			continue
		}
		if id != "default" {
			c.note(path, "belongs to nothing", "")
		}
	}
	if len(stores) == 0 {
		return nil, lattice.E(lattice.NotFound, errors.New("it holds no store"))
	}
	return stores, nil
}

// loadKey returns the node's public key, nil when it cannot be had.
func (c *checker) loadKey() *lattice.AuthorID {
	path := c.fs.PathJoin(c.root, "identity.key")
	key, err := keyfile.Load(c.fs, path)
	switch lattice.KindOf(err) {
	case lattice.NotFound:
		c.damage(path, "identity missing", "without the key that made the store no node can open it")
	case lattice.Denied:
		c.warn(path, "identity readable by others", "%v", err)
		key, err = c.parseKey(path)
	default:
		if err != nil {
			c.damage(path, "identity damaged", "%v", err)
		}
	}
	if err != nil {
		return nil
	}
	author := key.Author()
	return &author
}

func (c *checker) parseKey(path string) (identity.Key, error) {
	b, err := disk.ReadFile(c.fs, path)
	if err != nil {
		return identity.Key{}, err
	}
	defer clear(b)
	return identity.ParseKeyFile(b)
}

// logBytes returns the size of all segment files of a store.
func (c *checker) logBytes(store string) (n int64) {
	for _, kind := range []string{"topics", "authors"} {
		top := c.fs.PathJoin(store, kind)
		for _, outer := range c.list(top) {
			for _, inner := range c.list(c.fs.PathJoin(top, outer)) {
				n += c.segmentBytes(c.fs.PathJoin(top, outer, inner))
			}
		}
	}
	return n
}

func (c *checker) segmentBytes(dir string) (n int64) {
	for _, name := range c.list(dir) {
		if !strings.HasSuffix(name, ".log") {
			continue
		}
		if info, err := c.fs.Stat(c.fs.PathJoin(dir, name)); err == nil {
			n += info.Size()
		}
	}
	return n
}

// list returns the names in a directory; none when it cannot be read, or is none.
func (c *checker) list(dir string) []string {
	if info, err := c.fs.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	names, err := c.fs.List(dir)
	if err != nil {
		c.damage(dir, "unreadable", "%v", err)
	}
	return names
}

// tell calls Progress when enough was read since the last time.
func (c *checker) tell(path string) error {
	if c.o.Progress == nil || c.done-c.told < progressEvery {
		return nil
	}
	c.told = c.done
	return c.o.Progress(Progress{c.rel(path), min(c.done, c.total), c.total})
}

// finish calls Progress for the last time. What was passed over counts as done.
func (c *checker) finish() error {
	if c.o.Progress == nil {
		return nil
	}
	return c.o.Progress(Progress{c.root, c.total, c.total})
}

// rel returns a path below what is checked.
func (c *checker) rel(path string) string {
	if rest, ok := strings.CutPrefix(path, c.root); ok && rest != "" {
		return strings.TrimLeft(rest, `/\`)
	}
	return path
}

func (c *checker) find(s Severity, path, what, format string, args []any) {
	c.r.counts[s]++
	if len(c.r.Findings) >= c.o.MaxFindings {
		c.r.Omitted++
		return
	}
	c.r.Findings = append(c.r.Findings, Finding{c.store, c.rel(path), what, fmt.Sprintf(format, args...), s})
}

func (c *checker) note(path, what, format string, args ...any) {
	c.find(Note, path, what, format, args)
}

func (c *checker) warn(path, what, format string, args ...any) {
	c.find(Warning, path, what, format, args)
}

func (c *checker) damage(path, what, format string, args ...any) {
	c.find(Damage, path, what, format, args)
}
