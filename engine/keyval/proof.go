package keyval

import (
	"context"

	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/trie"
)

// ProveFile returns the proof file (core/proof) of what a key holds now, or that
// there is no such key: Prove, under this node's signature. It costs what has
// changed since a root was last asked for. Kind TooLarge as in Prove.
func (db *DB) ProveFile(ctx context.Context, m string, key []byte) ([]byte, error) {
	p, err := db.Prove(ctx, m, key)
	if err != nil {
		return nil, err
	}
	f := proof.KeyFile{Genesis: db.o.Genesis.Bytes(), Map: m, Key: key, Tree: p.Proof.AppendTo(nil)}
	if f.State, err = db.sign(p.Root); err != nil {
		return nil, err
	}
	for _, r := range p.Rows {
		f.Rows = append(f.Rows, proof.AppendRow(nil, r.Kind, r.Sub, r.Row))
	}
	return f.Encode(), nil
}

// sign returns this node's statement that the state has a root.
func (db *DB) sign(r Root) ([]byte, error) {
	now, err := db.o.Stamp()
	if err != nil {
		return nil, err
	}
	return trie.SignStatement(db.o.Key, trie.Statement{
		Store: db.store, Entries: r.Frontier.Entries(), Root: r.Hash, Frontier: r.Frontier.Hash(), Incarnation: db.own.Incarnation, Time: now,
	})
}

// rowSize is about what a row takes in a proof, in bytes.
func rowSize(a state.Address, r state.Row) int {
	n := 16 + len(a.Sub)
	for _, h := range r {
		n += 64 + len(h.Payload.Bytes)
	}
	return n
}
