package signedlog

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/head"
	"github.com/lattice-log/lattice/storage/segment"
)

// A log's tail is cut off when another history rules from some block on: see
// engine/partition, which keeps it aside first. It is done with the log closed.
//
// # The cut, and what a crash leaves
//
//  1. The head says that the log ends at the cut, in both slots: no older slot that names
//     more may be taken for the log's. A crash before it: the log as it was. After it the
//     blocks behind are still there, which the next open takes for a tail that was not
//     signed yet; whoever cut them finds out again that they do not belong there.
//  2. The files behind go, the last one first, and the one that the cut is in ends there.
//     A crash: some of them are there, as above.
//  3. The next open makes the tree end there, too.
//
// Where the tree of what stays cannot be told (it was dropped), all goes:
//
//  1. A mark is durable. A crash from here on: the next Forget, which the mark asks for,
//     does the rest.
//  2. All files but the mark, and what is in directories, go.
//  3. The mark goes: a log that nobody wrote to.

// forgetMark is the name of that mark.
const forgetMark = "forget"

// Beginning is what the head file of a log says, of a log that is not open.
type Beginning struct {
	merkle.Checkpoint
	OK bool // there is one
}

// Peek reads a log's head, and finishes a Forget that a crash cut short. Kind Storage.
func Peek(fs disk.FS, dir string) (Beginning, error) {
	if _, err := fs.Stat(fs.PathJoin(dir, forgetMark)); err == nil {
		if err := Forget(fs, dir); err != nil {
			return Beginning{}, err
		}
	}
	name := fs.PathJoin(dir, "head")
	if _, err := fs.Stat(name); disk.IsNotExist(err) {
		return Beginning{}, nil
	}
	_, st, err := head.Open(fs, name)
	if err != nil || !st.OK {
		return Beginning{}, err
	}
	c, err := merkle.ParseBody(st.Slot.Body)
	if err != nil {
		return Beginning{}, fmt.Errorf("head: %w", err)
	}
	return Beginning{c, true}, nil
}

// Forget removes a log, which nobody has open. Kind Storage.
func Forget(fs disk.FS, dir string) error {
	mark := fs.PathJoin(dir, forgetMark)
	err := disk.WriteFile(fs, mark, nil)
	if err == nil {
		err = removeFiles(fs, dir)
	}
	if err == nil {
		err = disk.RemoveIfExists(fs, mark)
	}
	if err == nil {
		err = disk.SyncDir(fs, dir)
	}
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("forget the log in %s: %w", dir, err))
	}
	return nil
}

// removeFiles removes all files but the mark.
func removeFiles(fs disk.FS, dir string) error {
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	var errs error
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		if info, err := fs.Stat(path); name == forgetMark || err == nil && info.IsDir() {
			continue
		}
		errs = errors.Join(errs, disk.RemoveIfExists(fs, path))
	}
	return errors.Join(errs, disk.SyncDir(fs, dir))
}

// Cut is where a log can be cut.
type Cut struct {
	Size  uint64 // blocks that stay
	End   int64  // the offset at which they end
	slot  head.Slot
	start int64
}

// CutAt says what a cut behind the first size blocks leaves; terms are those of the last
// of them. Errors by Kind: OutOfRange (what the log would be is not known here any more, or a
// compaction rewrote the file: Forget it), NotYet (it has fewer), Storage.
func (l *Log) CutAt(size uint64, t Terms) (Cut, error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	if err := l.hashedTo(size); err != nil {
		return Cut{}, err
	}
	l.mu.Lock()
	start, cert, time := l.start, l.cert, max(l.here.Time, l.cert.Time)
	l.mu.Unlock()
	c := Cut{Size: size, start: start}
	dropped := func(format string, args ...any) (Cut, error) {
		return Cut{}, lattice.E(lattice.OutOfRange, fmt.Errorf(format, args...))
	}
	r, err := rangeAt(l.nodes(), size)
	var last merkle.Leaf
	if err == nil && size > l.tree.prefix.Size() {
		last, err = l.leaf(size - 1)
	}
	switch {
	case errors.Is(err, merkle.ErrDropped) || size == 0 || size <= l.tree.prefix.Size() || err == nil && last.Last+1 <= start:
		return dropped("what came before block %d was dropped", size)
	case err != nil:
		return Cut{}, err
	}
	c.End = last.Last + 1
	_, pos, err := l.seg.Find(c.End)
	if err != nil {
		return Cut{}, err
	}
	segs, err := l.seg.Segments()
	if err != nil {
		return Cut{}, err
	}
	for _, s := range segs {
		if s.Base == pos.Segment && s.Compacted && pos.At > 0 {
			return dropped("the file at %d was rewritten", s.Base)
		}
	}
	cp := merkle.Checkpoint{
		Origin: l.o.Origin, Size: size, Root: r.Root(), Start: start, End: c.End,
		Term: t.Term, Grant: t.Grant, Incarnation: t.Incarnation, Time: time,
	}
	c.slot = head.Slot{Pos: pos, Next: c.End, Start: start, Term: last.Epoch, Body: cp.Body(), Edge: r.Hashes()}
	if cert.Size <= size {
		c.slot.Note = cert.Note
		if cert.Size == size {
			c.slot.Body = cert.Body()
		}
	}
	return c, nil
}

// File is the first offset of the file that the cut is in.
func (c Cut) File() int64 { return c.slot.Pos.Segment }

// Do cuts the log in dir, which nobody has open. Kind Storage.
func (c Cut) Do(fs disk.FS, dir string) error {
	h, _, err := head.Open(fs, fs.PathJoin(dir, "head"))
	for range 2 {
		if err == nil {
			_, err = h.WriteSigned(c.slot)
		}
	}
	if err == nil {
		err = segment.CutTail(fs, dir, c.slot.Pos)
	}
	if err != nil {
		return fmt.Errorf("cut the log behind block %d: %w", c.Size, err)
	}
	return nil
}

// Leaf returns what the tree has of a block. Errors are those of the tree's files.
func (l *Log) Leaf(n uint64) (merkle.Leaf, error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	return l.leaf(n)
}

// Dropped is how many blocks the log dropped for good: leaves are known from there on.
func (l *Log) Dropped() uint64 {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	return l.tree.prefix.Size()
}

// LeftOf returns the compact range of the first n blocks. Wraps merkle.ErrDropped.
func (l *Log) LeftOf(n uint64) (merkle.Range, error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	return rangeAt(l.nodes(), n)
}
