package trie

import (
	"bytes"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// Store holds a tree's nodes.
type Store interface {
	// Get returns the bytes put at a place, nil when there are none. They are
	// read before the next call only.
	Get(Place) ([]byte, error)
}

// Put is a change to a Store: Data is to be put at Place, or what is there
// removed when Data is nil. Each place comes once.
type Put struct {
	Place Place
	Data  []byte
}

// Root returns the root of the tree that a store holds. Wraps ErrNode, or what
// the store returns.
func Root(s Store) (lattice.Hash, error) {
	var top branch
	if err := top.load(s, Place{}); err != nil {
		return lattice.Hash{}, err
	}
	return top.sum(), nil
}

func (b *branch) load(s Store, at Place) error {
	data, err := s.Get(at)
	switch {
	case err != nil:
		return fmt.Errorf("read node %q of the state tree: %w", at, err)
	case data == nil && at.Depth == 0:
		*b = branch{place: at}
		return nil
	case data == nil:
		return fmt.Errorf("%w: node %q is missing", ErrNode, at)
	}
	return b.parse(at, data)
}

// Update returns the root after some rows changed, and what to put into the
// store for it; nothing is written. It reads the nodes on the way to the changed
// leaves, each once. The caller must
//
//  1. give each path once; the slice is sorted,
//  2. apply all puts in one step, together with the rows that they stand for.
//
// A crash in between would leave a tree of other rows; Check finds that, and a
// new tree made of all rows mends it. Errors: Invalid, ErrNode, the store's.
func Update(s Store, changes []Leaf) (lattice.Hash, []Put, error) {
	slices.SortFunc(changes, func(a, b Leaf) int { return bytes.Compare(a.Path[:], b.Path[:]) })
	for i := 1; i < len(changes); i++ {
		if changes[i-1].Path == changes[i].Path {
			return lattice.Hash{}, nil, lattice.E(lattice.Invalid, fmt.Errorf("update the state tree: path %x… is given twice", changes[i].Path[:4]))
		}
	}
	e := editor{store: s}
	var top branch
	if err := top.load(s, Place{}); err != nil {
		return lattice.Hash{}, nil, err
	}
	changed, err := e.edit(&top, changes)
	if err != nil {
		return lattice.Hash{}, nil, err
	}
	if n, _ := top.count(); changed && n == 0 {
		e.puts = append(e.puts, Put{top.place, nil})
	} else if changed {
		e.put(&top)
	}
	return top.sum(), e.puts, nil
}

// editor collects the puts of an update.
type editor struct {
	store Store
	puts  []Put
	arena []byte  // where the puts' data lies
	items []child // a stack, for subtrees that are built anew
}

func (e *editor) put(b *branch) {
	const most = nodeHeaderSize + 16*(32+1+PathSize)
	if cap(e.arena)-len(e.arena) < most {
		e.arena = make([]byte, 0, max(most, min(2*cap(e.arena), 1<<20)))
	}
	from := len(e.arena)
	e.arena = b.appendTo(e.arena)
	e.puts = append(e.puts, Put{b.place, e.arena[from:len(e.arena):len(e.arena)]})
}

// edit applies changes, all of which are below b, to its children, and reports
// whether that changed any.
func (e *editor) edit(b *branch, changes []Leaf) (changed bool, err error) {
	depth := int(b.place.Depth)
	for len(changes) > 0 {
		g := changes[0].Path.group(depth)
		n := 1
		for n < len(changes) && changes[n].Path.group(depth) == g {
			n++
		}
		before := b.children[g]
		if b.children[g], err = e.replace(before, changes[:n]); err != nil {
			return false, err
		}
		changed = changed || b.children[g] != before
		changes = changes[n:]
	}
	return changed, nil
}

// replace returns what stands in the place of a child after changes, all of which
// belong in its slot.
func (e *editor) replace(c child, changes []Leaf) (child, error) {
	base := len(e.items)
	defer func() { e.items = e.items[:base] }()
	switch {
	case c.empty():
		e.live(changes)
	case c.isLeaf():
		i, found := slices.BinarySearchFunc(changes, c.path, func(l Leaf, p Path) int { return bytes.Compare(l.Path[:], p[:]) })
		e.live(changes[:i])
		if !found {
			e.items = append(e.items, c)
		}
		e.live(changes[i:])
	default:
		from := 0
		for from < len(changes) && changes[from].Path.cut(int(c.depth)) != c.path {
			from++
		}
		to := from
		for to < len(changes) && changes[to].Path.cut(int(c.depth)) == c.path {
			to++
		}
		e.live(changes[:from])
		inner, err := e.descend(c, changes[from:to])
		if err != nil {
			return child{}, err
		}
		if !inner.empty() {
			// Where nothing is within, from is at the end: sort it in.
			at := base
			for at < len(e.items) && bytes.Compare(e.items[at].path[:], inner.path[:]) < 0 {
				at++
			}
			e.items = slices.Insert(e.items, at, inner)
		}
		e.live(changes[to:])
	}
	return e.build(e.items[base:]), nil
}

// live pushes the leaves of changes that do not remove anything.
func (e *editor) live(changes []Leaf) {
	for i := range changes {
		if !changes[i].Value.IsZero() {
			e.items = append(e.items, child{leafDepth, changes[i].Path, changes[i].Value})
		}
	}
}

// descend applies changes within a stored branch and returns what is left there:
// a branch, the only child that it has left, or nothing.
func (e *editor) descend(c child, changes []Leaf) (child, error) {
	if len(changes) == 0 {
		return c, nil
	}
	var b branch
	if err := b.load(e.store, Place{c.depth, c.path}); err != nil {
		return child{}, err
	}
	changed, err := e.edit(&b, changes)
	if err != nil || !changed {
		return c, err
	}
	switch n, last := b.count(); n {
	case 0:
		e.puts = append(e.puts, Put{b.place, nil})
		return child{}, nil
	case 1:
		e.puts = append(e.puts, Put{b.place, nil})
		return *last, nil
	}
	e.put(&b)
	return child{b.place.Depth, b.place.Path, b.sum()}, nil
}

// build makes the branches over leaves and at most one branch, ascending, none of
// which is below another.
func (e *editor) build(items []child) child {
	switch len(items) {
	case 0:
		return child{}
	case 1:
		return items[0]
	}
	var b branch
	depth := items[0].path.common(&items[len(items)-1].path) / 4
	b.place = Place{uint8(depth), items[0].path.cut(depth)}
	for len(items) > 0 {
		g, n := items[0].path.group(depth), 1
		for n < len(items) && items[n].path.group(depth) == g {
			n++
		}
		b.children[g] = e.build(items[:n])
		items = items[n:]
	}
	e.put(&b)
	return child{b.place.Depth, b.place.Path, b.sum()}
}
