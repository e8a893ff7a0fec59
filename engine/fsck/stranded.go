package fsck

import (
	"errors"
	"fmt"
	"io"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/branch"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/aside"
)

// rule finds the grants that are in force somewhere in the log, and puts their bases on the
// list of roots to recompute.
func (p *partCheck) rule() {
	for _, g := range p.grants {
		for n := len(p.ruling); n > 0 && p.ruling[n-1].BaseSize > g.BaseSize; n = len(p.ruling) {
			p.ruling = p.ruling[:n-1]
		}
		p.ruling = append(p.ruling, g)
	}
	for _, g := range p.ruling {
		p.claim(claim{g.BaseSize, g.BaseRoot, g.BaseOffset, p.cat, fmt.Sprintf("the grant of term %d of %s", g.Term, p.tp)})
	}
}

// checkStranded checks the branches that are kept aside, and finds out whether the log has
// blocks that the next start will keep there: by its head, as partition.Open does.
func (p *partCheck) checkStranded() {
	if p.author != nil {
		return
	}
	from := -1
	for i, g := range p.grants {
		if g.Kind == grant.Unclean || g.Kind == grant.Promises {
			from = i
		}
	}
	if (from >= 0 || len(p.beaten) > 0) && !slices.ContainsFunc(p.grants[max(from, 0):], func(g grant.Signed) bool { return p.signed && g.ID == p.head.cp.Grant }) {
		// What is there may be all that rules, too: that is not looked at here.
		p.unsettled = true
		p.claims = slices.DeleteFunc(p.claims, func(c claim) bool { return c.path == p.cat })
	}
	shelf := aside.Of(p.fs, p.dir)
	all, err := shelf.List()
	if err != nil {
		p.damage(p.path(aside.Dir), "stranded branch wrong", "%v", err)
	}
	for _, k := range all {
		if err := p.checkBranch(shelf, k); err != nil {
			p.damage(p.path(aside.Dir), "stranded branch wrong", "%s: %v", k.ID(), err)
		}
	}
}

// checkBranch checks one branch: its length and sum, and what proves it.
func (p *partCheck) checkBranch(shelf aside.Shelf, k aside.Kept) error {
	if k.Store != p.id || k.Partition != p.tp {
		return fmt.Errorf("it is of %s of store %s", k.Partition, k.Store.Short())
	}
	if err := shelf.Check(k); err != nil || len(k.Note) == 0 || k.Rewritten || len(k.Grants) == 0 {
		return err
	}
	leaves, err := p.branchLeaves(shelf, k)
	if err != nil {
		return err
	}
	last, err := grant.Parse(k.Grants[len(k.Grants)-1])
	if err == nil {
		err = last.Verify()
	}
	if err == nil {
		_, err = k.Prove(leaves, last.Leader)
	}
	if errors.Is(err, branch.ErrUnproven) && len(k.Left) == 0 && k.From > 0 {
		return nil // what came before it was dropped
	}
	return err
}

func (p *partCheck) branchLeaves(shelf aside.Shelf, k aside.Kept) (leaves []lattice.Hash, err error) {
	f, err := shelf.Open(k)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	head, at := make([]byte, record.HeaderSize), int64(0)
	for range k.Blocks {
		if _, err := f.ReadAt(head, at); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		h, err := record.ParseHeader(head)
		if err != nil || at+int64(h.Size()) > int64(k.Bytes) {
			return nil, fmt.Errorf("batch at %d: %w", at, errors.Join(err, branch.ErrMalformed))
		}
		b := make([]byte, h.Size())
		if _, err := f.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		leaf, err := partition.LeafOf(b)
		if err != nil {
			return nil, err
		}
		leaves, at = append(leaves, leaf), at+int64(h.Size())
	}
	return leaves, nil
}
