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

// grantsOf returns the signed grant with an id, none for the zero id, and those before it
// up to the last that the topic's creator signed: what proves whose term it is.
func (p *Partition) grantsOf(id lattice.Hash) ([][]byte, error) {
	if id.IsZero() {
		return nil, nil
	}
	all, err := p.o.Meta.Grants()
	if err != nil {
		return nil, err
	}
	first := 0
	for i, b := range all {
		g, err := grant.Parse(b)
		if err != nil {
			return nil, err
		}
		if g.Signer == p.o.Leader {
			first = i
		}
		if g.ID == id {
			return all[first : i+1], nil
		}
	}
	return nil, lattice.E(lattice.Storage, fmt.Errorf("grant %s of %s is missing", id.Short(), p.id))
}
