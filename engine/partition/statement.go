package partition

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/segment"
)

// statement signs what became of a file: by it followers heal, and auditors see
// what was compacted away.
func (p *Partition) statement(s segment.Info, sum [32]byte, size int64) ([]byte, error) {
	c := p.log.Checkpoint()
	first, err := p.log.LeafOf(s.Base)
	if err != nil {
		return nil, err
	}
	end, err := p.log.LeafOf(s.Next)
	if err != nil {
		return nil, err
	}
	return merkle.SignCompaction(p.o.Key, merkle.Compaction{
		Store: p.o.Store, Log: p.id.String(), FirstLeaf: first, EndLeaf: end, Base: s.Base, End: s.Next,
		Size: c.Size, Root: c.Root, Length: uint64(size), Sum: sum,
	})
}

// grantOf returns the signed grant with an id, nil for the zero id.
func (p *Partition) grantOf(id lattice.Hash) ([]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	all, err := p.o.Meta.Grants()
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		if g, err := grant.Parse(b); err == nil && g.ID == id {
			return b, nil
		}
	}
	return nil, lattice.E(lattice.Storage, fmt.Errorf("grant %s of %s is missing", id.Short(), p.id))
}
