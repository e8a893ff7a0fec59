// Package aside keeps blocks that were cut off a partition's log because they lie beyond
// the base of the term that rules: stranded branches (core/branch). They lie in the
// directory "stranded" of the partition, three files each, named by first offset and sum:
//
//	<offset, 20 digits>-<sum, 16 hex digits>.log      the blocks, as in a segment
//	                                        .branch   what they are, and what proves them
//	                                        .done     how far they were re-produced
//
// # Keeping a branch, and what a crash leaves
//
//  1. The blocks are written to "new.log", and synced. A crash: a file that nobody
//     speaks of, which the next branch is written over.
//  2. It gets its name, durably. A crash: a file without a branch beside it: Sweep
//     removes it, for the log still has its blocks.
//  3. The branch is written beside it, durably and at once. From here on it is there.
//
// Only then does the log lose the blocks. Who asks again for a branch that is there gets
// the one that is there.
package aside

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/branch"
	"github.com/lattice-log/lattice/storage/disk"
)

// Dir is the directory's name, in that of a partition.
const Dir = "stranded"

const (
	logExt    = ".log"
	branchExt = ".branch"
	doneExt   = ".done"
	newLog    = "new.log"
)

// ErrNone means that there is no such branch. Kind NotFound.
var ErrNone = lattice.E(lattice.NotFound, errors.New("no such stranded branch"))

// Shelf is the branches of one partition. Safe for concurrent readers; one goroutine at a
// time writes.
type Shelf struct {
	fs  disk.FS
	dir string
}

// Of returns the shelf of the partition in dir. Nothing is made before a branch is kept.
func Of(fs disk.FS, dir string) Shelf { return Shelf{fs, fs.PathJoin(dir, Dir)} }

func storageErr(format string, args ...any) error {
	return lattice.E(lattice.Storage, fmt.Errorf(format, args...))
}

func (s Shelf) path(name string) string { return s.fs.PathJoin(s.dir, name) }

func nameOf(b branch.Branch) string { return fmt.Sprintf("%020d-%x", b.First, b.Sum[:8]) }

// Kept is a branch on the shelf.
type Kept struct {
	branch.Branch
	Progress branch.Progress
	name     string
}

// Writer takes the blocks of a branch.
type Writer struct {
	s   Shelf
	f   vfs.File
	sum hash.Hash
	n   uint64
}

// Begin is step 1.
func (s Shelf) Begin() (*Writer, error) {
	if err := disk.MkdirAll(s.fs, s.dir); err != nil {
		return nil, err
	}
	f, err := s.fs.Create(s.path(newLog), disk.Category)
	if err != nil {
		return nil, storageErr("keep a stranded branch: %w", err)
	}
	return &Writer{s, f, sha256.New(), 0}, nil
}

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	w.sum.Write(p[:n])
	w.n += uint64(n)
	return n, err
}

// Abort lets go of what was written.
func (w *Writer) Abort() { _ = w.f.Close() }

// Keep is steps 2 and 3. Bytes and Sum of b are set from what was written.
func (w *Writer) Keep(b branch.Branch) (branch.Branch, error) {
	b.Bytes, b.Sum = w.n, lattice.Hash(w.sum.Sum(nil))
	if err := errors.Join(w.f.Sync(), w.f.Close()); err != nil {
		return b, storageErr("keep a stranded branch: %w", err)
	}
	raw, err := b.AppendTo(nil)
	if err != nil {
		return b, err
	}
	if there, ok, err := w.s.holds(b.First, w.n); ok || err != nil {
		return there, errors.Join(err, disk.RemoveIfExists(w.s.fs, w.s.path(newLog)))
	}
	name := nameOf(b)
	if err := w.s.fs.Rename(w.s.path(newLog), w.s.path(name+logExt)); err != nil {
		return b, storageErr("keep a stranded branch: %w", err)
	}
	if err := disk.SyncDir(w.s.fs, w.s.dir); err != nil {
		return b, err
	}
	return b, disk.WriteFile(w.s.fs, w.s.path(name+branchExt), raw)
}

// holds looks for a branch that begins with the n bytes of new.log, which begin at offset
// first: a cut that a crash ended halfway leaves a part of what is kept already.
func (s Shelf) holds(first int64, n uint64) (branch.Branch, bool, error) {
	all, err := s.List()
	if err != nil {
		return branch.Branch{}, false, err
	}
	for _, k := range all {
		if k.First != first || k.Bytes < n {
			continue
		}
		same, err := s.begins(k, int64(n))
		if same || err != nil {
			return k.Branch, same, err
		}
	}
	return branch.Branch{}, false, nil
}

// begins reports whether the first n bytes of a branch are those of new.log.
func (s Shelf) begins(k Kept, n int64) (bool, error) {
	var sums [2]lattice.Hash
	for i, name := range []string{newLog, k.name + logExt} {
		f, err := s.fs.Open(s.path(name))
		if err != nil {
			return false, storageErr("compare branches: %w", err)
		}
		h := sha256.New()
		_, err = io.Copy(h, io.NewSectionReader(f, 0, n))
		if err = errors.Join(err, f.Close()); err != nil {
			return false, storageErr("compare branches: %w", err)
		}
		sums[i] = lattice.Hash(h.Sum(nil))
	}
	return sums[0] == sums[1], nil
}

// List returns the branches, in the order of their first offsets. One that cannot be read
// is an error beside the others.
func (s Shelf) List() (all []Kept, errs error) {
	names, err := s.fs.List(s.dir)
	if disk.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, storageErr("list stranded branches: %w", err)
	}
	slices.Sort(names)
	for _, file := range names {
		if name, ok := strings.CutSuffix(file, branchExt); ok {
			k, err := s.read(name)
			if err != nil {
				errs = errors.Join(errs, fmt.Errorf("%s: %w", s.path(file), err))
				continue
			}
			all = append(all, k)
		}
	}
	return all, errs
}

func (s Shelf) read(name string) (Kept, error) {
	k := Kept{name: name}
	raw, err := disk.ReadFile(s.fs, s.path(name+branchExt))
	if err == nil {
		k.Branch, err = branch.Parse(raw)
	}
	if err == nil && nameOf(k.Branch) != name {
		err = lattice.E(lattice.Corrupt, fmt.Errorf("it is of branch %s", k.ID()))
	}
	if err != nil {
		return k, err
	}
	raw, err = disk.ReadFile(s.fs, s.path(name+doneExt))
	if disk.IsNotExist(err) {
		return k, nil
	}
	if err == nil {
		k.Progress, err = branch.ParseProgress(raw)
	}
	return k, err
}

// Find returns the branch with an ID. Wraps ErrNone.
func (s Shelf) Find(id string) (Kept, error) {
	all, err := s.List()
	if i := slices.IndexFunc(all, func(k Kept) bool { return k.ID() == id }); i >= 0 {
		return all[i], nil
	}
	return Kept{}, errors.Join(fmt.Errorf("%q: %w", id, ErrNone), err)
}

// Open opens the blocks of a branch.
func (s Shelf) Open(k Kept) (vfs.File, error) {
	f, err := s.fs.Open(s.path(k.name + logExt))
	if err != nil {
		return nil, storageErr("open the blocks of branch %s: %w", k.ID(), err)
	}
	return f, nil
}

// Check holds the blocks of a branch to its length and sum. Kind Corrupt, Storage.
func (s Shelf) Check(k Kept) error {
	f, err := s.Open(k)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<62))
	switch {
	case err != nil:
		return storageErr("read branch %s: %w", k.ID(), err)
	case uint64(n) != k.Bytes || lattice.Hash(h.Sum(nil)) != k.Sum:
		return lattice.E(lattice.Corrupt, fmt.Errorf("branch %s: its blocks are not those that were kept", k.ID()))
	}
	return nil
}

// Mark makes durable how far a branch was re-produced.
func (s Shelf) Mark(k Kept, p branch.Progress) error {
	raw, err := p.AppendTo(nil)
	if err == nil {
		err = disk.WriteFile(s.fs, s.path(k.name+doneExt), raw)
	}
	return err
}

// Discard removes a branch for good. A crash leaves it as it was, or blocks that nobody
// speaks of, which Sweep removes.
func (s Shelf) Discard(k Kept) error {
	if err := disk.RemoveIfExists(s.fs, s.path(k.name+branchExt)); err != nil {
		return storageErr("discard branch %s: %w", k.ID(), err)
	}
	if err := disk.SyncDir(s.fs, s.dir); err != nil {
		return err
	}
	return s.Sweep()
}

// Sweep removes blocks, and progress, that belong to no branch.
func (s Shelf) Sweep() error {
	names, err := s.fs.List(s.dir)
	if disk.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return storageErr("list stranded branches: %w", err)
	}
	for _, file := range names {
		name, _, _ := strings.Cut(file, ".")
		if strings.HasSuffix(file, branchExt) || slices.Contains(names, name+branchExt) {
			continue
		}
		err = errors.Join(err, disk.RemoveIfExists(s.fs, s.path(file)))
	}
	return err
}
