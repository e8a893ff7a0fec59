package signedlog

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/tree"
)

// treeFiles is what a log keeps of its tree.
type treeFiles struct {
	leaves *tree.Leaves
	levels *tree.Levels
	prefix merkle.Range // of the dropped leaves
}

// openTree opens the tree's files. What is damaged in leaves and levels is made
// again from the blocks; the prefix cannot be.
func (l *Log) openTree() error {
	leaves, damaged, err := tree.OpenLeaves(l.o.FS, l.o.Dir)
	if err != nil {
		return fmt.Errorf("open leaves: %w", err)
	}
	levels, alsoDamaged, err := tree.OpenLevels(l.o.FS, l.o.Dir)
	if err != nil {
		return fmt.Errorf("open tree levels: %w", err)
	}
	if err := errors.Join(damaged, alsoDamaged); err != nil {
		l.o.Logger.Warn("tree files are damaged; making them again from the blocks", "log", l.o.Origin, "err", err)
	}
	l.tree = treeFiles{leaves: leaves, levels: levels}
	p, err := tree.ReadPrefix(l.o.FS, l.o.Dir)
	if err == nil {
		l.tree.prefix, err = merkle.NewRange(p.Leaves, p.Hashes)
	}
	if err != nil {
		l.needRepair(fmt.Errorf("prefix of the tree: %w", err))
	}
	if segs := leaves.Segments(); len(segs) > 0 {
		l.leafSeg = segs[len(segs)-1]
	}
	return nil
}

// needRepair stops writes for a reason that is no range of offsets.
func (l *Log) needRepair(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = lattice.E(lattice.Storage, fmt.Errorf("%w: %w", ErrNeedsRepair, why))
	}
	l.o.Logger.Error("the log takes no writes", "log", l.o.Origin, "err", why)
}

func (t *treeFiles) sync() error { return errors.Join(t.leaves.Sync(), t.levels.Sync()) }

// source gives the tree's nodes for proofs.
func (t *treeFiles) source() merkle.Source {
	return merkle.Source{
		Prefix: t.prefix,
		Upper:  t.upper,
		Leaves: t.hashes,
	}
}

// upper returns a node of a stored level. Of a log that began here with a later block,
// those before are zeros, and are not known.
func (t *treeFiles) upper(level uint, index uint64) (lattice.Hash, error) {
	h, err := t.levels.Hash(level, index)
	if err == nil && h.IsZero() && (index+1)<<level <= t.prefix.Size() {
		err = merkle.ErrDropped
	}
	return h, err
}

// hashes returns the hashes of leaves [from, to).
func (t *treeFiles) hashes(from, to uint64) ([]lattice.Hash, error) {
	recs, err := t.leaves.Read(from, int(to-from), nil)
	if err != nil {
		return nil, err
	}
	out := make([]lattice.Hash, 0, to-from)
	for ; len(recs) > 0; recs = recs[merkle.LeafSize:] {
		out = append(out, merkle.LeafHash((*[merkle.LeafSize]byte)(recs)))
	}
	return out, nil
}

// rangeAt returns the compact range of the first n leaves.
func (t *treeFiles) rangeAt(n uint64) (merkle.Range, error) { return rangeAt(t.source(), n) }

func rangeAt(nodes merkle.Nodes, n uint64) (merkle.Range, error) {
	var peaks []lattice.Hash
	for at, level := uint64(0), 63; level >= 0; level-- {
		if n>>level&1 == 0 {
			continue
		}
		h, err := nodes.Node(uint(level), at>>level)
		if err != nil {
			return merkle.Range{}, fmt.Errorf("compact range of %d leaves: %w", n, err)
		}
		peaks = append(peaks, h)
		at += 1 << level
	}
	return merkle.NewRange(n, peaks)
}

// trim removes what lies beyond the first n leaves.
func (t *treeFiles) trim(n uint64) error {
	err := t.leaves.Truncate(n)
	for _, level := range tree.StoredLevels() {
		err = errors.Join(err, t.levels.Truncate(level, n>>level))
	}
	return err
}

// fill makes the stored nodes of the first n leaves that are missing.
func (t *treeFiles) fill(n uint64) error {
	const step = 8
	for _, level := range tree.StoredLevels() {
		for i := t.levels.Len(level); i < n>>level; i++ {
			if size := t.prefix.Size(); i<<level < size && size < (i+1)<<level {
				h, err := t.source().Join(level, i)
				if err == nil {
					err = t.levels.Append(level, h)
				}
				if err != nil {
					return fmt.Errorf("tree node %d of level %d: %w", i, level, err)
				}
				continue
			}
			a := merkle.NewAppender(merkle.Range{})
			first := i << step
			children, err := t.children(level, first, first+1<<step)
			if err != nil {
				return fmt.Errorf("tree node %d of level %d: %w", i, level, err)
			}
			for _, h := range children {
				a.Append(nil, h)
			}
			if err := t.levels.Append(level, a.Root()); err != nil {
				return err
			}
		}
	}
	return nil
}

// children returns nodes [from, to) of the stored level below, or leaves.
func (t *treeFiles) children(level uint, from, to uint64) ([]lattice.Hash, error) {
	below := tree.StoredLevels()[0]
	if level == below {
		return t.hashes(from, to)
	}
	out := make([]lattice.Hash, 0, to-from)
	for i := from; i < to; i++ {
		h, err := t.levels.Hash(level-below, i)
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// writeLeaves appends leaf records of blocks in file seg, the first being leaf
// number first.
func (t *treeFiles) writeLeaves(seg int64, first uint64, recs []byte) error {
	segs := t.leaves.Segments()
	if len(segs) == 0 || segs[len(segs)-1] != seg {
		if err := t.leaves.Begin(seg, first); err != nil {
			return err
		}
	}
	if next := t.leaves.Next(); next != first {
		return lattice.E(lattice.Corrupt, fmt.Errorf("leaf %d does not follow leaf %d", first, next))
	}
	return t.leaves.Append(recs)
}

// writeNode stores a completed node; one that is there already stays.
func (t *treeFiles) writeNode(n merkle.Node) error {
	switch have := t.levels.Len(n.Level); {
	case n.Index < have:
		return nil
	case n.Index > have:
		return lattice.E(lattice.Corrupt, fmt.Errorf("tree node %d of level %d: %d are there", n.Index, n.Level, have))
	}
	return t.levels.Append(n.Level, n.Hash)
}

// mendLeaves brings the tree's files to the checkpoint c: removes what is beyond,
// and makes again from the blocks what a power cut took. Only the last file can
// have lost leaves, or the one that should follow it be missing: those before were
// synced before a head lay beyond them. A rewritten file's leaves were synced
// before it was rewritten, because its blocks do not give them any more.
func (l *Log) mendLeaves(c merkle.Checkpoint) error {
	t := &l.tree
	if err := t.trim(c.Size); err != nil {
		return fmt.Errorf("trim the tree to %d blocks: %w", c.Size, err)
	}
	if c.Size == t.prefix.Size() {
		return nil // no block of the tree is here
	}
	base, first := l.seg.Start(), t.prefix.Size()
	if segs := t.leaves.Segments(); len(segs) > 0 {
		base = segs[len(segs)-1]
		var err error
		if first, err = t.leaves.FirstOf(base); err != nil {
			return err
		}
	}
	err := t.fill(first)
	if err == nil && !t.reaches(first, c) {
		err = l.remake(base, first, c)
	}
	if err == nil {
		err = t.fill(c.Size)
	}
	if err != nil {
		l.needRepair(fmt.Errorf("bring the tree to %d blocks: %w", c.Size, err))
	}
	return nil
}

// remake makes leaves again: of the file behind the last one that has leaves, if
// that leads to the signed root, else from that one on, whose first leaf is number
// first.
func (l *Log) remake(base int64, first uint64, c merkle.Checkpoint) error {
	if from, at, ok := l.behindLeaves(first); ok {
		l.o.Logger.Info("making tree leaves again from the blocks", "log", l.o.Origin, "from", from, "to", c.End)
		if good, err := l.rehash(from, at, c); good || err != nil && lattice.KindOf(err) != lattice.Corrupt {
			return err
		}
	}
	l.o.Logger.Info("making tree leaves again from the blocks", "log", l.o.Origin, "from", base, "to", c.End)
	good, err := l.rehash(base, first, c)
	if err == nil && !good {
		l.Damage(base, c.End, errors.New("the blocks do not lead to the signed root"))
	}
	return err
}

// behindLeaves returns the first offset of the file behind the last leaf, and the
// number of that file's first leaf, if the last leaf is the last of a file.
func (l *Log) behindLeaves(first uint64) (base int64, at uint64, ok bool) {
	at = l.tree.leaves.Next()
	if at <= first {
		return 0, 0, false
	}
	rec, err := l.tree.leaves.Read(at-1, 1, nil)
	if err != nil {
		return 0, 0, false
	}
	leaf, err := merkle.ParseLeaf(rec)
	if err != nil {
		return 0, 0, false
	}
	base = leaf.Last + 1
	_, pos, err := l.seg.Find(base)
	return base, at, err == nil && pos.Segment == base
}

// reaches reports whether the leaves from first on lead to the checkpoint's root,
// by way of the stored nodes that are there.
func (t *treeFiles) reaches(first uint64, c merkle.Checkpoint) bool {
	r, err := t.rangeAt(first)
	if err != nil || t.leaves.Next() != c.Size {
		return false
	}
	a := merkle.NewAppender(r)
	var done []merkle.Node
	for at := first; at < c.Size; {
		to := min(c.Size, at+batchLeaves)
		hashes, err := t.hashes(at, to)
		if err != nil {
			return false
		}
		for _, h := range hashes {
			done = a.Append(done[:0], h)
			for _, n := range done {
				have, err := t.levels.Hash(n.Level, n.Index)
				if err == nil && have != n.Hash {
					return false // a power cut took it, but not one that was written later
				}
			}
		}
		at = to
	}
	return a.Root() == c.Root
}

// rehash makes the leaves from the block at offset base, leaf number first, up to
// the checkpoint again, and reports whether they lead to its root.
func (l *Log) rehash(base int64, first uint64, c merkle.Checkpoint) (bool, error) {
	r, err := l.tree.rangeAt(first)
	if err != nil {
		return false, err
	}
	if err := l.tree.trim(first); err != nil {
		return false, err
	}
	l.edge, l.hashed, l.leafSeg = merkle.NewAppender(r), base, -1
	if err := l.hash(c.End); err != nil {
		return false, err
	}
	return l.edge.Root() == c.Root && l.edge.Size() == c.Size, nil
}
