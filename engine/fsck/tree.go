package fsck

import (
	"fmt"
	"io"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/tree"
)

// claim is a root that somebody signed for a size of the tree.
type claim struct {
	size uint64
	root lattice.Hash
	end  int64 // offset there; -1: not said
	path string
	what string
}

func (p *partCheck) claim(c claim) { p.claims = append(p.claims, c) }

// treeCheck recomputes the tree as far as it is signed.
type treeCheck struct {
	app   *merkle.Appender // nil: what came before is not known
	index uint64           // of the next leaf
	done  []merkle.Node    // reused

	prefix   merkle.Range
	prefixOK bool
	levels   *tree.Levels
	// synced is the first leaf that a power cut can have taken: everything before
	// it was durable before anything lay beyond.
	synced uint64
}

// readPrefix reads the compact range of what was dropped.
func (p *partCheck) readPrefix() {
	t := &p.tree
	pre, err := tree.ReadPrefix(p.fs, p.dir)
	if err == nil {
		t.prefix, err = merkle.NewRange(pre.Leaves, pre.Hashes)
	}
	if err != nil {
		p.damage(p.path("prefix"), "prefix damaged", "%v; what it says of the dropped batches cannot be made again", err)
	}
	t.prefixOK = err == nil
}

// openTree opens the stored levels, and checks the prefix against them.
func (p *partCheck) openTree() {
	t := &p.tree
	levels, damaged, err := tree.OpenLevels(p.fs, p.dir)
	if err != nil {
		p.damage(p.dir, "unreadable", "%v", err)
		return
	}
	t.levels = levels
	if damaged != nil {
		s := Warning
		if t.prefix.Size() > 0 {
			s = Damage // the leaves that it came from are gone
		}
		p.find(s, p.dir, "tree level damaged", "%v", []any{damaged})
	}
	if p.signed && t.prefix.Size() > p.head.cp.Size {
		p.damage(p.path("prefix"), "prefix beyond the head", "%d leaves are dropped, %d are signed", t.prefix.Size(), p.head.cp.Size)
	}
	for _, level := range tree.StoredLevels() {
		name := levelName(level)
		if info, err := p.fs.Stat(p.path(name)); err == nil && (info.Size()-32)%32 != 0 {
			p.warn(p.path(name), "tree level cut short", "%d bytes end inside a hash", info.Size())
		}
	}
	p.checkPrefix()
}

func levelName(level uint) string { return fmt.Sprintf("tree.%02d", level) }

// checkPrefix recomputes the dropped prefix from the lowest stored level, as far
// as that determines it, and the levels above on the way.
func (p *partCheck) checkPrefix() {
	t := &p.tree
	low := tree.StoredLevels()[0]
	n := t.prefix.Size() >> low
	if n == 0 || t.levels == nil || t.levels.Len(low) == 0 {
		return
	}
	app := merkle.NewAppender(merkle.Range{})
	for i := range n {
		h, err := t.levels.Hash(low, i)
		if p.follower && err == nil && h.IsZero() {
			return // the log began here with a later block: what was before is not known
		}
		if err != nil {
			p.damage(p.path(levelName(low)), "tree node missing", "node %d of %d that the dropped batches left: %v", i, n, err)
			return
		}
		t.done = app.Append(t.done[:0], h)
		for _, node := range t.done {
			node.Level += low
			p.checkNode(node, Damage)
		}
	}
	want := t.prefix.Hashes()
	if got := app.Range().Hashes(); !slices.Equal(got, want[:len(got)]) {
		p.damage(p.path("prefix"), "prefix does not match", "the stored nodes give other hashes for the first %d leaves", n<<low)
	}
}

// checkNode compares a recomputed node with the stored one.
func (p *partCheck) checkNode(n merkle.Node, wrong Severity) {
	t := &p.tree
	if !slices.Contains(tree.StoredLevels(), n.Level) || t.levels == nil {
		return
	}
	if n.Index >= t.levels.Len(n.Level) {
		t.missing(p, n)
		return
	}
	path := p.path(levelName(n.Level))
	h, err := t.levels.Hash(n.Level, n.Index)
	switch {
	case err != nil:
		p.damage(path, "unreadable", "node %d: %v", n.Index, err)
	case h != n.Hash:
		p.find(wrong, path, "tree node wrong", "node %d is %s, the leaves give %s", []any{n.Index, h.Short(), n.Hash.Short()})
	}
}

// missing reports a node that is not stored. Nodes at the end of a level are
// written without a sync, and made again from the leaves.
func (t *treeCheck) missing(p *partCheck, n merkle.Node) {
	s := Note
	if (n.Index+1)<<n.Level <= t.prefix.Size() {
		s = Damage
	}
	p.find(s, p.path(levelName(n.Level)), "tree node missing", "node %d: %d are there", []any{n.Index, t.levels.Len(n.Level)})
}

// beginTree starts at the first leaf that is here.
func (p *partCheck) beginTree(first uint64) {
	t := &p.tree
	t.index = first
	switch {
	case first == 0:
		t.app = merkle.NewAppender(merkle.Range{})
	case t.prefixOK && first > t.prefix.Size():
		p.damage(p.dir, "leaves missing", "the first here is number %d, %d were dropped", first, t.prefix.Size())
	}
	p.reach(p.next)
}

// reach compares what is signed for the tree as it is now, whose next offset is
// next (-1: unknown).
func (p *partCheck) reach(next int64) {
	t := &p.tree
	if t.prefixOK && t.index == t.prefix.Size() && t.index > 0 {
		if t.app == nil {
			t.app = merkle.NewAppender(t.prefix)
		} else if !t.app.Range().Equal(t.prefix) {
			p.damage(p.path("prefix"), "prefix does not match", "the batches give another range of the first %d leaves", t.index)
		}
	}
	for len(p.claims) > 0 && p.claims[0].size <= t.index {
		c := p.claims[0]
		p.claims = p.claims[1:]
		if c.size < t.index || t.app == nil {
			continue // of batches that are dropped, or lost and reported as such
		}
		p.r.Checkpoints++
		if root := t.app.Root(); root != c.root {
			p.damage(c.path, "root does not match", "%s has %s for %d batches, they give %s", c.what, c.root.Short(), c.size, root.Short())
		}
		if c.end >= 0 && next >= 0 && c.end != next {
			p.damage(c.path, "offset does not match", "%s has %d batches end at offset %d, they end at %d", c.what, c.size, c.end, next)
		}
	}
}

// addLeaf adds the hash of the next leaf; next is the offset after its batch.
func (p *partCheck) addLeaf(rec *[merkle.LeafSize]byte, next int64) {
	t := &p.tree
	t.index++
	if t.app != nil {
		p.r.Leaves++
		t.done = t.app.Append(t.done[:0], merkle.LeafHash(rec))
		for _, n := range t.done {
			wrong := Damage
			if (n.Index+1)<<n.Level > t.synced {
				wrong = Warning // the next start finds it out
			}
			p.checkNode(n, wrong)
		}
	}
	p.reach(next)
}

// loseTree gives the tree up: from here on leaves are not known.
func (p *partCheck) loseTree() { p.tree.app = nil }

// endTree reports what is signed and was never reached.
func (p *partCheck) endTree() {
	for _, c := range p.claims {
		if p.tree.app == nil {
			break // what kept it from being reached is reported
		}
		p.damage(c.path, "batches missing", "%s is about %d batches, %d are here", c.what, c.size, p.tree.index)
	}
	if p.signed || p.tree.levels == nil {
		return
	}
	for _, level := range tree.StoredLevels() {
		if p.tree.levels.Len(level) > 0 {
			p.note(p.path(levelName(level)), "belongs to nothing", "no head says which tree it is of")
		}
	}
}

// leafFile reads the leaf records of one segment in order.
type leafFile struct {
	path  string
	first uint64 // index of the first record
	count uint64 // whole records
	next  func(rec *[merkle.LeafSize]byte) bool
	done  func()
}

// openLeaves opens the leaves file of a segment; nil when it is missing or
// damaged, which is reported unless nothing of the segment is signed.
func (p *partCheck) openLeaves(base int64, signed bool) *leafFile {
	path := p.path(fileName(base, ".leaves"))
	r, size, done, err := p.stream(path)
	if err != nil {
		p.damage(path, "unreadable", "%v", err)
		return nil
	}
	severity := Damage
	if base >= p.lastLeaves {
		severity = Warning
	}
	if r == nil {
		if severity == Warning {
			severity = Note // the name of the last file is not durable before the next begins
		}
		if signed {
			p.find(severity, path, "leaves missing", "there is no file for the segment", nil)
		}
		return nil
	}
	head := make([]byte, merkle.LeafSize)
	if _, err = io.ReadFull(r, head); err == nil {
		var was int64
		l := &leafFile{path: path, count: uint64(max(size-merkle.LeafSize, 0) / merkle.LeafSize), done: done}
		if was, l.first, err = tree.DecodeLeavesHeader(head); err == nil && was != base {
			err = fmt.Errorf("it is that of segment %d", was)
		}
		if err == nil {
			l.next = func(rec *[merkle.LeafSize]byte) bool {
				_, err := io.ReadFull(r, rec[:])
				return err == nil
			}
			return l
		}
	}
	done()
	if signed {
		if severity == Warning && isZero(head) {
			severity = Note
		}
		p.find(severity, path, "leaves damaged", "%v", []any{err})
	}
	return nil
}

// leavesHeader returns the index of the first leaf of a segment's file.
func (p *partCheck) leavesHeader(base int64) (first uint64, ok bool) {
	f, err := p.fs.Open(p.path(fileName(base, ".leaves")))
	if err != nil {
		return 0, false
	}
	defer func() { _ = f.Close() }()
	var b [merkle.LeafSize]byte
	if n, _ := f.ReadAt(b[:], 0); n != len(b) {
		return 0, false
	}
	was, first, err := tree.DecodeLeavesHeader(b[:])
	return first, err == nil && was == base
}

// strayLeaves notes leaves files without a segment.
func (p *partCheck) strayLeaves() {
	for _, base := range p.files.leaves {
		if !p.files.beside[fileName(base, ".log")] {
			p.note(p.path(fileName(base, ".leaves")), "belongs to no segment", "the segment was dropped")
		}
	}
}
