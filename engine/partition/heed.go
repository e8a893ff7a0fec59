package partition

import (
	"bytes"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/promise"
)

// maxTold bounds the grants of one partition that are looked at.
const maxTold = 4096

// Heeded is what became of grants that were told.
type Heeded struct {
	// Changed: the partition must be closed and opened again, to be what it is now.
	Changed bool
	// Behind: who told them lacks one by which another came to lead.
	Behind bool
}

// Heed takes grants that somebody tells, in any order, whoever that is: what of them is
// right makes, with those that are known here, the terms that rule (merge.Line). New
// ones are stored, oldest first. A crash leaves some of them, in order, and the rest is
// told again.
//
// A grant is right if its signature holds, it follows the one that it names, and who
// signed it could: the topic's creator the first, the leader before it one for itself or
// another ("self", "seal"), a member of the set before it one for itself, with the promises
// that make it behind it, and an admin any ("unclean", Options.Admitted). What is not is
// passed over, for it takes nothing away. Where the terms that rule are not those that are
// known here, continued, they take their place, in one step, and those that lost are kept
// beside them: what is here of theirs is stranded when the partition is opened again
// (settleTerms). Kind Storage.
//
// also are grants that are told by somebody else than told is, whom Behind is not about.
func (p *Partition) Heed(told [][]byte, also ...[]byte) (Heeded, error) {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	told, also = told[:min(len(told), maxTold)], also[:min(len(also), maxTold)]
	stored, line, err := p.rules(told, also)
	if err != nil {
		return Heeded{}, err
	}
	kept := common(line, stored)
	switches := kept < len(stored)
	h := Heeded{Behind: p.behind(line, told)}
	h.Changed = switches || slices.ContainsFunc(line[kept:], func(g shown) bool { return passes(&g.Signed) })
	if !h.Changed {
		if err := p.storeGrants(line[kept:]); err != nil {
			return h, fmt.Errorf("%s: %w", p.id, err)
		}
		return h, nil
	}
	p.stop()
	// Between the two this node may have begun a term of its own.
	if stored, line, err = p.rules(told, also); err != nil {
		return h, err
	}
	switch kept = common(line, stored); {
	case kept == len(stored) && p.Leads():
		err = p.leave(line[kept:])
	case kept == len(stored):
		err = p.storeGrants(line[kept:])
	default:
		err = p.switchTo(line, stored[kept:])
	}
	if err != nil {
		return h, fmt.Errorf("%s: %w", p.id, err)
	}
	h.Behind = p.behind(line, told)
	return h, nil
}

// rules returns the grants that are stored, and those that rule by them and by others.
func (p *Partition) rules(told, also [][]byte) (stored [][]byte, line []shown, err error) {
	if stored, err = p.Grants(); err != nil {
		return nil, nil, fmt.Errorf("load grants of %s: %w", p.id, err)
	}
	lost, err := p.o.Meta.Lost()
	if err != nil {
		return nil, nil, fmt.Errorf("load grants of %s that lost: %w", p.id, err)
	}
	return stored, p.line(slices.Concat(stored, lost, told, also)), nil
}

// common is how many grants of a line are stored, from the first on.
func common(line []shown, stored [][]byte) int {
	n := 0
	for n < len(line) && n < len(stored) && bytes.HasPrefix(stored[n], line[n].Bytes()) {
		n++
	}
	return n
}

// leave stores the terms by which this node does not lead any more. What it has written is of
// its own last term, and is signed as such when the partition is closed.
func (p *Partition) leave(fresh []shown) error {
	p.mu.Lock()
	p.stale = true
	p.mu.Unlock()
	for _, g := range fresh {
		if err := p.putGrant(g); err != nil {
			return err
		}
	}
	return nil
}

// switchTo stores other terms than those that ruled. The partition takes nothing any more
// until it is opened again.
func (p *Partition) switchTo(line []shown, lost [][]byte) error {
	p.mu.Lock()
	p.stale = true
	p.mu.Unlock()
	raw := make([][]byte, len(line))
	for i, g := range line {
		raw[i] = g.bytes()
	}
	if err := p.o.Meta.Switch(raw, lost); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("save the terms that rule: %w", err))
	}
	return nil
}

// behind reports whether who tells these grants lacks one of the line by which another
// came to lead, or what makes it right, or comes to another line by what it has.
func (p *Partition) behind(line []shown, told [][]byte) bool {
	theirs := p.line(told)
	for i, g := range theirs {
		if i >= len(line) || line[i].ID != g.ID {
			return true
		}
	}
	return slices.ContainsFunc(line, func(g shown) bool {
		return passes(&g.Signed) && !slices.ContainsFunc(theirs, func(t shown) bool { return t.ID == g.ID })
	})
}

// stop ends appends here: another leads, or will.
func (p *Partition) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sealed = true
}

// line returns the grants that rule, of those that are right.
func (p *Partition) line(all [][]byte) []shown {
	right, terms := map[lattice.Hash]shown{}, []merge.Term(nil)
	var waiting []shown
	for _, b := range all {
		g, err := parseShown(b)
		if err == nil && g.Store == p.o.Store && g.Partition == p.id && g.Verify() == nil {
			waiting = append(waiting, g)
		}
	}
	for found := true; found; {
		found = false
		waiting = slices.DeleteFunc(waiting, func(g shown) bool {
			var prev *grant.Signed
			if before, ok := right[g.Previous]; ok {
				prev = &before.Signed
			}
			if _, twice := right[g.ID]; !twice && !p.isRight(&g, prev) {
				return false
			}
			if _, twice := right[g.ID]; !twice {
				right[g.ID], found = g, true
				terms = append(terms, merge.TermOf(g.Signed))
			}
			return true
		})
	}
	var line []shown
	for _, t := range merge.Line(terms) {
		line = append(line, right[t.ID])
	}
	return line
}

// isRight holds a grant whose signature was checked to the one before it (nil: it is not
// known, or this is the first).
func (p *Partition) isRight(g *shown, prev *grant.Signed) bool {
	if g.Follows(prev) != nil {
		return false
	}
	switch g.Kind {
	case grant.Promises:
		return prev != nil && promise.Judge(prev, &g.Signed, g.evidence) == nil
	case grant.Self, grant.Seal:
		return prev != nil || g.Kind == grant.Self && g.Signer == p.o.Leader
	case grant.Unclean:
		return prev != nil && p.o.Admitted != nil && p.o.Admitted(g.ID)
	}
	return false
}
