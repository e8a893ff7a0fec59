package keyval

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/trie"
)

// The state tree is kept beside the rows and brought up to them when somebody
// asks: what has changed since then is found in the logs, so that writes pay
// nothing for it.
//
//	"t" place                      node of the tree (core/trie)
//	"T"                            how far it is: writer number uv and seq uv, each
const (
	tagNode = 't'
	tagTree = 'T'
)

// treeStep is how many rows go into the tree at a time.
const treeStep = 50_000

// Root is the root of the state tree: two states with one root are the same.
type Root struct {
	Hash     lattice.Hash
	Frontier state.Frontier // of the state that it is the root of
}

// Root returns the root of the state as it is now, decided. It costs what has
// changed since it was last asked for.
func (db *DB) Root(ctx context.Context) (Root, error) {
	s, err := db.settledTree(ctx)
	if err != nil {
		return Root{}, err
	}
	defer db.treeMu.Unlock()
	defer s.release()
	h, err := trie.Root(treeStore{db})
	return Root{h, s.frontier}, err
}

// KeyProof ties the rows of a key, or that there are none, to a root.
type KeyProof struct {
	Root  Root
	Map   string
	Key   []byte
	Rows  []ProvenRow // ascending by kind and sub; none: the key is absent
	Proof trie.Proof
}

// ProvenRow is a row with what of its address is not the key's.
type ProvenRow struct {
	Kind state.Kind
	Sub  []byte
	Row  state.Row
}

// maxProven bounds the rows of a key that is proven, in bytes.
const maxProven = 64 << 20

// Prove returns a key with its proof, as of now, decided. Kind TooLarge: its rows
// take more than 64 MiB.
func (db *DB) Prove(ctx context.Context, m string, key []byte) (KeyProof, error) {
	s, err := db.settledTree(ctx)
	if err != nil {
		return KeyProof{}, err
	}
	defer db.treeMu.Unlock()
	defer s.release()
	p := KeyProof{Map: m, Key: slices.Clone(key)}
	if p.Root.Hash, err = trie.Root(treeStore{db}); err != nil {
		return p, err
	}
	p.Root.Frontier = s.frontier
	size := 0
	err = s.rows(m, key, func(a state.Address, r state.Row) error {
		if size += rowSize(a, r); size > maxProven {
			return lattice.E(lattice.TooLarge, fmt.Errorf("the rows of key %.64q take more than %d bytes, which is the most that a proof holds", key, maxProven))
		}
		p.Rows = append(p.Rows, ProvenRow{a.Kind, a.Sub, r})
		return nil
	})
	if err != nil {
		return p, err
	}
	p.Proof, _, err = trie.ProveKey(treeStore{db}, trie.KeyOf(m, key))
	return p, err
}

// settledTree returns the state as it is now, with the tree brought up to it and
// treeMu held.
func (db *DB) settledTree(ctx context.Context) (*settled, error) {
	s, err := db.settledNow(ctx)
	if err != nil {
		return nil, err
	}
	db.treeMu.Lock()
	// Somebody may have had a later state in the meantime: the tree is ahead then.
	// Bringing it to s means reading its rows again; it goes back with them.
	if err := db.bring(ctx, s); err != nil {
		db.treeMu.Unlock()
		s.release()
		return nil, err
	}
	return s, nil
}

// treeStore reads the nodes of the tree.
type treeStore struct{ db *DB }

func (t treeStore) Get(p trie.Place) ([]byte, error) {
	v, ok, err := t.db.kv.Get(p.AppendTo([]byte{tagNode}))
	if err != nil || !ok {
		return nil, err
	}
	return v, nil
}

// bring makes the tree that of s. A crash on the way leaves nodes of rows that
// have changed since the position that is kept: the next time they are found and
// put in again.
func (db *DB) bring(ctx context.Context, s *settled) error {
	from, ok, err := db.treeFrontier()
	if err != nil {
		return err
	}
	e := growth{db: db, s: s, ctx: ctx}
	if !ok || !e.reaches(from) {
		err = e.everything()
	} else {
		err = e.since(from)
	}
	if err == nil {
		err = e.flush()
	}
	if err != nil {
		return err
	}
	var v []byte
	for w, seq := range s.frontier {
		v = binary.AppendUvarint(binary.AppendUvarint(v, uint64(db.writers.number(w))), seq)
	}
	b := db.kv.Batch()
	b.Set([]byte{tagTree}, v)
	return db.commitRows(b)
}

// treeFrontier returns how far the tree is.
func (db *DB) treeFrontier() (state.Frontier, bool, error) {
	v, ok, err := db.kv.Get([]byte{tagTree})
	if err != nil || !ok {
		return nil, false, err
	}
	f := state.Frontier{}
	r := reader{rest: v, w: db.writers}
	for len(r.rest) > 0 && !r.bad {
		w, known := db.writers.writer(r.uvarint())
		f[w] = r.uvarint()
		r.bad = r.bad || !known
	}
	if r.bad {
		return nil, false, corrupt("position of the state tree")
	}
	return f, true, nil
}

// growth collects rows that have changed and puts them into the tree.
type growth struct {
	db   *DB
	s    *settled
	ctx  context.Context
	rows map[rowName]struct{}
	keys map[keyName]struct{} // of which any row may have changed
}

type keyName struct{ m, key string }

type rowName struct {
	keyName
	kind state.Kind
	sub  string
}

// reaches reports whether the logs hold all that lies between two positions.
func (g *growth) reaches(from state.Frontier) bool {
	for w, seq := range from {
		if seq > g.s.frontier[w] {
			// Beyond s: a fork was found below, or the tree is of a later state.
			l := g.db.logs.get(w)
			if l == nil || l.Durable() < seq {
				return false
			}
		}
	}
	for w, to := range g.s.frontier {
		l := g.db.logs.get(w)
		if from[w] >= to {
			continue
		}
		if l == nil {
			return false
		}
		if first, _ := l.Bounds(); first > from[w]+1 {
			return false
		}
	}
	return true
}

// everything makes the tree anew.
func (g *growth) everything() error {
	b := g.db.kv.Batch()
	b.Delete([]byte{tagTree})
	b.DeletePrefix([]byte{tagNode})
	if err := g.db.kv.Commit(b, false); err != nil {
		return err
	}
	var leaves []trie.Leaf
	err := g.s.all(func(a state.Address, r state.Row) error {
		leaves = append(leaves, trie.LeafOf(a, r))
		if len(leaves) < treeStep {
			return nil
		}
		err := g.put(leaves)
		leaves = leaves[:0]
		return err
	})
	if err != nil {
		return err
	}
	return g.put(leaves)
}

// since finds in the logs what has changed between a position and that of s,
// whichever comes first.
func (g *growth) since(from state.Frontier) error {
	for _, l := range g.db.logs.all() {
		w := l.Writer()
		lo, hi := from[w], g.s.frontier[w]
		if lo > hi {
			lo, hi = hi, lo
		}
		if lo == hi {
			continue
		}
		err := l.Scan(lo+1, hi, func(e sigchain.Signed) error { return g.touch(w, e) })
		if err != nil {
			return err
		}
	}
	return nil
}

// touch notes what an entry may have changed.
func (g *growth) touch(w state.Writer, e sigchain.Signed) error {
	if err := g.ctx.Err(); err != nil {
		return err
	}
	if g.rows == nil {
		g.rows, g.keys = map[rowName]struct{}{}, map[keyName]struct{}{}
	}
	for _, op := range e.Ops {
		if !state.IsOp(op.Kind) {
			continue
		}
		x, err := state.ParseOp(op, w)
		if err != nil {
			break // malformed: without effect
		}
		m, key := x.Target()
		k := keyName{m, string(key)}
		switch x := x.(type) {
		case *state.Put:
			g.rows[rowName{k, x.Address.Kind, string(x.Address.Sub)}] = struct{}{}
			if !x.Under.IsZero() {
				g.rows[rowName{k, state.Expiry, ""}] = struct{}{}
			}
		case *state.Expire:
			g.rows[rowName{k, state.Expiry, ""}] = struct{}{}
		case *state.End:
			if x.Scope == state.ScopeRow {
				g.rows[rowName{k, x.Address.Kind, string(x.Address.Sub)}] = struct{}{}
			} else {
				g.keys[k] = struct{}{}
			}
		}
	}
	if len(g.rows)+len(g.keys) >= treeStep {
		return g.flush()
	}
	return nil
}

// flush puts what was noted into the tree.
func (g *growth) flush() error {
	var leaves []trie.Leaf
	for r := range g.rows {
		if _, whole := g.keys[r.keyName]; whole {
			continue
		}
		a := state.Address{Map: r.m, Key: []byte(r.key), Kind: r.kind, Sub: []byte(r.sub)}
		row, err := g.s.row(a)
		if err != nil {
			return err
		}
		if leaves = append(leaves, trie.LeafOf(a, row)); len(leaves) >= treeStep {
			if err := g.put(leaves); err != nil {
				return err
			}
			leaves = leaves[:0]
		}
	}
	if err := g.put(leaves); err != nil {
		return err
	}
	for k := range g.keys {
		if err := g.whole(k); err != nil {
			return err
		}
	}
	clear(g.rows)
	clear(g.keys)
	return nil
}

// whole puts all rows of a key into the tree, and takes out those that are gone.
func (g *growth) whole(k keyName) error {
	is := map[trie.Path]lattice.Hash{}
	err := g.s.rows(k.m, []byte(k.key), func(a state.Address, r state.Row) error {
		l := trie.LeafOf(a, r)
		is[l.Path] = l.Value
		return nil
	})
	if err != nil {
		return err
	}
	err = trie.Leaves(treeStore{g.db}, trie.KeyOf(k.m, []byte(k.key)), func(l trie.Leaf) error {
		if v, ok := is[l.Path]; !ok {
			is[l.Path] = lattice.Hash{}
		} else if v == l.Value {
			delete(is, l.Path)
		}
		return nil
	})
	if err != nil {
		return err
	}
	leaves := make([]trie.Leaf, 0, len(is))
	for p, v := range is {
		leaves = append(leaves, trie.Leaf{Path: p, Value: v})
	}
	return g.put(leaves)
}

// put brings leaves into the tree.
func (g *growth) put(leaves []trie.Leaf) error {
	if err := g.ctx.Err(); err != nil || len(leaves) == 0 {
		return err
	}
	_, puts, err := trie.Update(treeStore{g.db}, leaves)
	if err != nil {
		return err
	}
	b := g.db.kv.Batch()
	for _, p := range puts {
		k := p.Place.AppendTo([]byte{tagNode})
		if p.Data == nil {
			b.Delete(k)
		} else {
			b.Set(k, p.Data)
		}
	}
	return g.db.kv.Commit(b, false)
}
