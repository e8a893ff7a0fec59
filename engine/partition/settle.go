package partition

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/branch"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/storage/aside"
)

// Blocks that lie beyond the base of a term that rules are stranded: they are kept aside,
// and the log ends at the base. That is done when the partition is opened, from what its
// grants and its log say, so a stop at any point leaves what the next start does again.
//
// The steps, and what a crash leaves:
//
//  1. The terms that rule are stored (Heed), with those that lost, in one step. A crash
//     before it: the partition as it was.
//  2. The log is looked at. If it has blocks of other terms than those that rule where they
//     stand, they are written aside, with what proves them (storage/aside). This node
//     signs the end of its own last term for that, if no head did. A crash: a branch of
//     blocks that are in the log, too, and are not served: this comes again.
//  3. What was known of producers by those blocks is forgotten: the log says it again. A
//     crash: it is read from the whole log.
//  4. The log is cut (signedlog.Cut). A crash: blocks that this finds again; the branch
//     is there already.

// ruling returns the terms in force, by where they begin: of those that are known, what a
// later one that begins before them left.
func ruling(chain []grantAt) []grantAt {
	var out []grantAt
	for _, g := range chain {
		for len(out) > 0 && out[len(out)-1].size >= g.size {
			out = out[:len(out)-1]
		}
		out = append(out, g)
	}
	return out
}

// bounds returns up to how many blocks a term reaches at most, by those that follow it.
func boundOf(chain []grantAt, n int) uint64 {
	most := ^uint64(0)
	for _, g := range chain[n+1:] {
		most = min(most, g.size)
	}
	return most
}

// cutsBack reports whether a term can begin before the end of what a member has.
func cutsBack(k grant.Kind) bool { return k == grant.Unclean || k == grant.Promises }

// settleTerms keeps aside what does not belong to the log by the terms that rule, and cuts it.
// The log is not open.
func (p *Partition) settleTerms() error {
	if p.o.ReadOnly || p.o.Alone { // the log was settled when it was copied
		return nil
	}
	had, err := signedlog.Peek(p.o.FS, p.o.Dir)
	if err != nil || !p.mayDiffer(had) {
		return err
	}
	leads := p.leads
	p.leads, p.looking = false, true
	err = p.openLog()
	p.leads, p.looking = leads, false
	if err != nil {
		return err
	}
	l := p.log
	cut, err := p.strand(had)
	if cerr := l.Close(); err == nil {
		err = cerr
	}
	p.log = nil
	if err == nil && cut != nil {
		err = cut()
		p.cuts++
	}
	if err != nil {
		return fmt.Errorf("keep aside what other terms left: %w", err)
	}
	return nil
}

// mayDiffer reports whether the log can have blocks of terms that do not rule, by its head.
func (p *Partition) mayDiffer(had signedlog.Beginning) bool {
	c := p.known.chain
	from := -1
	for i := range c {
		if c[i].cuts {
			from = i
		}
	}
	if from < 0 && len(p.lost) == 0 {
		return false
	}
	return !had.OK || !slices.ContainsFunc(c[max(from, 0):], func(g grantAt) bool { return g.id == had.Grant })
}

// strand looks for blocks that do not belong to the open log, keeps them, and returns how
// to cut it when it is closed; nil: there are none.
func (p *Partition) strand(had signedlog.Beginning) (cut func() error, err error) {
	if p.log.Failed() != "" {
		// It takes no writes, and what it serves may be of another history. It stays as it
		// is for whoever repairs it.
		p.o.Logger.Error("a damaged log has blocks beyond the base of a later term, and stays as it is", "partition", p.id)
		return nil, nil
	}
	at, found, err := p.parting(had)
	if err != nil || !found {
		return nil, err
	}
	kept, err := p.keepAside(at)
	if err != nil {
		return nil, err
	}
	start, _, _ := p.log.Bounds()
	p.o.Logger.Warn("blocks lie beyond the base of a later term: kept aside as stranded", "partition", p.id, "branch", kept.ID(),
		"from", kept.First, "to", kept.End-1, "records", kept.Records)
	c, err := p.log.CutAt(at, p.termsBefore(at))
	if lattice.KindOf(err) == lattice.OutOfRange {
		return func() error {
			return errors.Join(p.forgetBeyond(0, 0, 0), signedlog.Forget(p.o.FS, p.o.Dir))
		}, nil
	}
	if err != nil {
		return nil, err
	}
	file := c.File()
	return func() error {
		if err := p.forgetBeyond(c.End, start, file); err != nil {
			return err
		}
		return c.Do(p.o.FS, p.o.Dir)
	}, nil
}

// parting returns the first block of the open log that is not of the term in force where
// it stands, or behind which the log is not what a term builds on.
func (p *Partition) parting(had signedlog.Beginning) (at uint64, found bool, err error) {
	rules, size, from := ruling(p.known.chain), p.log.Hashed(), p.log.Dropped()
	same := uint64(0) // so many are what the terms build on
	for i, g := range rules {
		if g.size > size {
			break
		}
		root, _, err := p.log.PrefixAt(g.size)
		switch {
		case err == nil && root != g.root:
			return same, true, nil
		case err == nil:
			same = g.size
		case lattice.KindOf(err) != lattice.OutOfRange:
			return 0, false, err
		}
		end := size
		if i+1 < len(rules) {
			end = min(end, rules[i+1].size)
		}
		first := max(g.size, from)
		if first >= end {
			continue
		}
		// Terms rise along a log: those of this term come first, if any.
		n, err := p.firstNot(g.term, first, end)
		switch {
		case err != nil:
			return 0, false, err
		case n == first:
			return g.size, true, nil
		case n < end:
			return n, true, nil
		case i+1 == len(rules) && p.isLost(had.Grant, g):
			return g.size, true, nil
		}
	}
	return 0, false, nil
}

// firstNot returns the first block in [from, end) that is not of a term, end if all are.
func (p *Partition) firstNot(term int32, from, end uint64) (uint64, error) {
	var failed error
	n := sort.Search(int(end-from), func(i int) bool {
		leaf, err := p.log.Leaf(from + uint64(i))
		failed = errors.Join(failed, err)
		return leaf.Epoch != term
	})
	return from + uint64(n), failed
}

// isLost reports whether a grant lost against another of the same number and base.
func (p *Partition) isLost(id lattice.Hash, to grantAt) bool {
	return slices.ContainsFunc(p.lost, func(g grant.Signed) bool { return g.ID == id && g.Term == to.term && g.BaseSize == to.size })
}

// termsBefore is what a head says of the block before number at.
func (p *Partition) termsBefore(at uint64) signedlog.Terms {
	rules := ruling(p.known.chain)
	for i := len(rules) - 1; i >= 0; i-- {
		if g := rules[i]; g.size < at {
			return signedlog.Terms{Term: g.term, Grant: g.id, Incarnation: g.incarnation}
		}
	}
	return signedlog.Terms{}
}

// keepAside writes the blocks from number at on aside: of a log that dropped that one,
// all that it has.
func (p *Partition) keepAside(at uint64) (branch.Branch, error) {
	b := branch.Branch{
		Store: p.o.Store, Partition: p.id, From: max(at, p.log.Dropped()),
		Since: uint64(p.o.Clock.Now().UnixMilli()), By: p.grantSum,
	}
	if left, err := p.log.LeftOf(b.From); err == nil {
		b.Left = left.Hashes()
	}
	leaf, err := p.log.Leaf(b.From)
	if err != nil {
		return b, err
	}
	start, _, end := p.log.Bounds()
	b.FirstTerm = leaf.Epoch
	size := p.log.Hashed()
	last, err := p.log.Leaf(size - 1)
	if err != nil {
		return b, err
	}
	b.LastTerm, b.Blocks, b.First, b.End = last.Epoch, size-b.From, leaf.Base, last.Last+1
	p.proveBranch(&b, start, size)
	shelf := aside.Of(p.o.FS, p.o.Dir)
	w, err := shelf.Begin()
	if err != nil {
		return b, err
	}
	next := leaf.Base
	err = p.log.Scan(leaf.Base, end, func(x signedlog.Block) error {
		h, err := record.ParseHeader(x.Data)
		if err != nil {
			return lattice.E(lattice.Storage, err)
		}
		if !h.Control() {
			b.Records += uint64(h.Count)
		}
		b.Rewritten = b.Rewritten || x.Base != next
		next = x.Last + 1
		_, err = w.Write(x.Data)
		return err
	})
	if err != nil {
		w.Abort()
		return b, lattice.E(lattice.Storage, err)
	}
	if b, err = w.Keep(b); err == nil {
		err = shelf.Sweep()
	}
	return b, err
}

// proveBranch adds the newest checkpoint of the branch, and the terms up to it. Where this
// node led the last of them it signs the end, which it may not have done before.
func (p *Partition) proveBranch(b *branch.Branch, start int64, size uint64) {
	c := p.log.Checkpoint()
	note, of := c.Note, c.Grant
	root, end, err := p.log.PrefixAt(size)
	if g := p.led(b.LastTerm); g != nil && err == nil && (c.Size < size || len(note) == 0) {
		signed, err := merkle.SignCheckpoint(p.o.Key, merkle.Checkpoint{
			Origin: merkle.Origin(p.o.Store, p.id.String()), Size: size, Root: root, Start: min(start, end), End: end,
			Term: g.Term, Grant: g.ID, Incarnation: g.Incarnation, Time: max(c.Time, p.log.Here().Time),
		})
		if err == nil {
			note, of = signed, g.ID
		}
	} else if c.Size <= b.From {
		return // it proves nothing of the branch
	}
	b.Note = note
	b.Grants = p.grantsUpTo(of)
}

// led returns the grant of a term that this node led, of those that lost or rule.
func (p *Partition) led(term int32) *grant.Signed {
	for _, g := range slices.Concat(p.lost, p.stored) {
		if g.Term == term && g.Leader == p.o.Key.Author() {
			return &g
		}
	}
	return nil
}

// grantsUpTo returns a grant and all those before it, oldest first.
func (p *Partition) grantsUpTo(id lattice.Hash) [][]byte {
	byID := map[lattice.Hash]grant.Signed{}
	for _, g := range slices.Concat(p.lost, p.stored) {
		byID[g.ID] = g
	}
	var out [][]byte
	for g, ok := byID[id]; ok && len(out) < branch.MaxGrants; g, ok = byID[g.Previous] {
		out = append(out, g.Bytes())
	}
	slices.Reverse(out)
	return out
}

// forgetBeyond takes back what was kept beside the log about blocks from an offset on, of a
// log that begins at start; file is the first file that changes.
func (p *Partition) forgetBeyond(end, start, file int64) error {
	b, err := p.o.Meta.Snapshot()
	if err != nil {
		return err
	}
	if b != nil {
		if _, next, err := parseProducers(b); err != nil || next > end {
			// What it says of batches that stay, those say again.
			if err := p.o.Meta.PutSnapshot(newProducers().snapshot(min(start, end))); err != nil {
				return err
			}
		}
	}
	clean, err := p.o.Meta.CleanedTo()
	if err == nil && clean > end {
		err = p.o.Meta.PutCleanedTo(end)
	}
	if err == nil {
		err = p.o.Meta.DropStatementsFrom(file)
	}
	return err
}

// Cuts is how often the log's tail was cut since Options.Cuts was 0: with another number it
// can be shorter than it was.
func (p *Partition) Cuts() uint64 { return p.o.Cuts + p.cuts }
