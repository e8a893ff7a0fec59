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
// another ("self", "seal"), and a member of the set before it one for itself, with the
// promises that make it behind it. What is not is passed over, for it takes nothing away. Kind
// Conflict: the terms that rule are not those that are known here, continued; nothing
// is stored then. Kind Storage.
//
// also are grants that are told by somebody else than told is, whom Behind is not about.
func (p *Partition) Heed(told [][]byte, also ...[]byte) (Heeded, error) {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	stored, err := p.Grants()
	if err != nil {
		return Heeded{}, fmt.Errorf("load grants of %s: %w", p.id, err)
	}
	line := p.line(slices.Concat(stored, told[:min(len(told), maxTold)], also[:min(len(also), maxTold)]))
	h := Heeded{Behind: behind(line, told)}
	for i, b := range stored {
		if i >= len(line) || !bytes.HasPrefix(b, line[i].Bytes()) {
			return h, lattice.E(lattice.Conflict, fmt.Errorf("%s: its terms go on otherwise than is known here from number %d on", p.id, i))
		}
	}
	fresh := line[len(stored):]
	h.Changed = slices.ContainsFunc(fresh, func(g shown) bool { return passes(&g.Signed) })
	if h.Changed {
		p.stop()
	}
	if err := p.storeGrants(fresh); err != nil {
		return h, fmt.Errorf("%s: %w", p.id, err)
	}
	return h, nil
}

// behind reports whether who tells these grants lacks one of the line by which another
// came to lead, or what makes it right.
func behind(line []shown, by [][]byte) bool {
	for i, g := range line {
		if passes(&g.Signed) && !slices.ContainsFunc(by, func(t []byte) bool {
			x, err := parseShown(t)
			return err == nil && x.ID == g.ID &&
				(bytes.Equal(x.evidence, g.evidence) || i > 0 && promise.Judge(&line[i-1].Signed, &g.Signed, x.evidence) == nil)
		}) {
			return true
		}
	}
	return false
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
	}
	return false // an admin's word is not taken here
}
