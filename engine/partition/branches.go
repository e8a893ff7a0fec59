package partition

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/branch"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/storage/aside"
)

// ErrNoBranch means that there is no such stranded branch. Kind NotFound.
var ErrNoBranch = aside.ErrNone

// Stranded is a branch that is kept aside.
type Stranded struct {
	branch.Branch
	Progress branch.Progress
	// Leader led the last term of it, as far as is known; zero: it is not.
	Leader lattice.NodeID
	kept   aside.Kept
}

// shelf is where this partition's branches are.
func (p *Partition) shelf() aside.Shelf { return aside.Of(p.o.FS, p.o.Dir) }

// Strandeds lists the branches that are kept here, by where they begin. What cannot be
// read is an error beside the others.
func (p *Partition) Strandeds() ([]Stranded, error) {
	all, err := p.shelf().List()
	out := make([]Stranded, len(all))
	for i, k := range all {
		out[i] = strandedOf(k)
	}
	return out, err
}

func strandedOf(k aside.Kept) Stranded {
	s := Stranded{Branch: k.Branch, Progress: k.Progress, kept: k}
	for _, b := range k.Grants {
		if g, err := grant.Parse(b); err == nil && g.Term == k.LastTerm {
			s.Leader = g.Leader
		}
	}
	return s
}

// FindStranded returns the branch with an ID. Wraps ErrNoBranch.
func (p *Partition) FindStranded(id string) (Stranded, error) {
	k, err := p.shelf().Find(id)
	if err != nil {
		return Stranded{}, fmt.Errorf("%s: %w", p.id, err)
	}
	return strandedOf(k), nil
}

// WalkStranded calls f for each batch of a branch from number from on, in order, with its
// bytes, which f may keep. Each is held to its checksum. Kind Corrupt, Storage, and f's errors.
func (p *Partition) WalkStranded(s Stranded, from uint64, f func(n uint64, batch []byte) error) error {
	in, err := p.shelf().Open(s.kept)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	at, head := int64(0), make([]byte, record.HeaderSize)
	for n := range s.Blocks {
		if _, err := in.ReadAt(head, at); err != nil && !errors.Is(err, io.EOF) {
			return lattice.E(lattice.Storage, fmt.Errorf("branch %s: %w", s.ID(), err))
		}
		h, err := record.ParseHeader(head)
		if err != nil || at+int64(h.Size()) > int64(s.Bytes) {
			return lattice.E(lattice.Corrupt, fmt.Errorf("batch %d of branch %s: %w", n, s.ID(), errors.Join(err, branch.ErrMalformed)))
		}
		if n >= from {
			b := make([]byte, h.Size())
			if _, err := in.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
				return lattice.E(lattice.Storage, fmt.Errorf("branch %s: %w", s.ID(), err))
			}
			if err := record.CheckCRC(b); err != nil {
				return fmt.Errorf("batch %d of branch %s: %w", n, s.ID(), err)
			}
			if err := f(n, b); err != nil {
				return err
			}
		}
		at += int64(h.Size())
	}
	return nil
}

// ProveStranded returns how many blocks of a branch its leader is proven to have signed, in
// order. Wraps branch.ErrUnproven; Kind Storage.
func (p *Partition) ProveStranded(s Stranded) (uint64, error) {
	var leaves []lattice.Hash
	err := p.WalkStranded(s, 0, func(_ uint64, b []byte) error {
		h, err := LeafOf(b)
		leaves = append(leaves, h)
		return err
	})
	if err != nil {
		return 0, err
	}
	return s.Prove(leaves, s.Leader)
}

// LeafOf returns the leaf hash of a batch that was not rewritten.
func LeafOf(b []byte) (lattice.Hash, error) {
	h, err := record.ParseHeader(b)
	if err != nil {
		return lattice.Hash{}, err
	}
	return merkle.Leaf{
		Base: h.BaseOffset, Last: h.LastOffset(), MaxTime: h.MaxTimestamp, Epoch: h.LeaderEpoch, Length: uint32(len(b)), Sum: sha256.Sum256(b),
	}.Hash(), nil
}

// StrandedBlocks is how many blocks are kept aside and were not re-produced. Cheap.
func (p *Partition) StrandedBlocks() int64 { return p.aside.Load() }

// countStranded looks how many those are.
func (p *Partition) countStranded() {
	if _, err := p.o.FS.Stat(p.o.FS.PathJoin(p.o.Dir, aside.Dir)); err != nil {
		p.aside.Store(0)
		return
	}
	all, err := p.Strandeds()
	if err != nil {
		p.o.Logger.Error("a stranded branch cannot be read", "partition", p.id, "err", err)
	}
	n := int64(0)
	for _, s := range all {
		if s.Progress.State != branch.Reproduced {
			n += int64(s.Blocks - min(s.Blocks, s.Progress.Blocks))
		}
	}
	p.aside.Store(n)
}

// MarkStranded makes durable how far a branch was re-produced.
func (p *Partition) MarkStranded(s Stranded, to branch.Progress) error {
	if err := p.shelf().Mark(s.kept, to); err != nil {
		return lattice.E(lattice.Storage, err)
	}
	p.countStranded()
	return nil
}

// DiscardStranded removes a branch for good.
func (p *Partition) DiscardStranded(s Stranded) error {
	err := p.shelf().Discard(s.kept)
	p.countStranded()
	return err
}
