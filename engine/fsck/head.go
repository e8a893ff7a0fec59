package fsck

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/head"
)

// noteHalf is where the note's half of a slot begins.
const noteHalf = head.SlotSize / 2

// headState is one valid slot of the head file.
type headState struct {
	head.Slot
	cp merkle.Checkpoint
}

// readHead reads both slots. What the partition is checked against is the newest
// valid one; the older one must be true as well.
func (p *partCheck) readHead() {
	path := p.path("head")
	b, err := disk.ReadFile(p.fs, path)
	switch {
	case disk.IsNotExist(err):
		b = make([]byte, head.FileSize) // the first checkpoint makes the file
	case err != nil:
		p.damage(path, "unreadable", "%v", err)
		return
	}
	if len(b) != head.FileSize {
		p.warn(path, "head has the wrong size", "%d bytes, want %d", len(b), head.FileSize)
		b = append(b, make([]byte, max(head.FileSize-len(b), 0))...)[:head.FileSize]
	}
	var found []headState
	empty := 0
	for i := range 2 {
		raw := b[i*head.SlotSize:][:head.SlotSize]
		if isZero(raw) {
			empty++
			continue
		}
		s, err := p.readSlot(raw)
		if err != nil {
			p.warn(path, "head slot damaged", "slot %d: %v; a write was torn, or it changed since", i, err)
			continue
		}
		found = append(found, s)
	}
	switch {
	case len(found) == 2 && found[0].Seq == found[1].Seq:
		p.damage(path, "head contradicts itself", "both slots have number %d", found[0].Seq)
	case len(found) == 2 && found[0].Seq < found[1].Seq:
		found[0], found[1] = found[1], found[0]
	case len(found) == 0 && (empty < 2 || p.tree.prefix.Size() > 0):
		p.damage(path, "head missing", "nothing says how far the log is signed")
	case len(found) == 0 && len(p.files.segs) > 0:
		p.note(path, "not signed yet", "a stop came before the first checkpoint")
	}
	for i, s := range found {
		p.checkHead(path, s, i == 0)
	}
	if len(found) == 2 {
		new, old := found[0].cp, found[1].cp
		if old.Size > new.Size || old.Start > new.Start || old.End > new.End || old.Time >= new.Time && !p.follower {
			p.damage(path, "head went back", "slot %d has size %d, start %d, end %d; the one before had %d, %d, %d",
				found[0].Seq, new.Size, new.Start, new.End, old.Size, old.Start, old.End)
		}
	}
	if len(found) > 0 {
		p.head, p.signed = found[0], true
	}
}

// readSlot decodes a slot, which must have the one form that there is.
func (p *partCheck) readSlot(raw []byte) (headState, error) {
	s, err := head.Decode(raw)
	if err != nil {
		return headState{}, err
	}
	if len(s.Note) == 0 && !isZero(raw[noteHalf:]) {
		p.warn(p.path("head"), "signature damaged", "that of slot %d; the same can be made again", s.Seq)
	} else if again, err := head.Encode(s); err != nil || !bytes.Equal(again, raw) {
		p.warn(p.path("head"), "bytes beside the head", "slot %d has bytes that are no part of it", s.Seq)
	}
	cp, err := merkle.ParseBody(s.Body)
	return headState{s, cp}, err
}

// checkHead checks what a slot says on its own, and puts its root on the list of
// those to recompute.
func (p *partCheck) checkHead(path string, s headState, newest bool) {
	bad := func(format string, args ...any) {
		p.damage(path, "head contradicts itself", "slot %d: %s", s.Seq, fmt.Sprintf(format, args...))
	}
	edge, err := merkle.NewRange(s.cp.Size, s.Edge)
	switch {
	case s.cp.Origin != p.origin:
		bad("its checkpoint is of %q", s.cp.Origin)
	case err != nil:
		bad("%v", err)
	case edge.Root() != s.cp.Root:
		bad("the right edge does not give the root")
	case s.cp.End != s.Next || s.cp.Start != s.Start:
		bad("offsets %d to %d, its checkpoint says %d to %d", s.Start, s.Next, s.cp.Start, s.cp.End)
	}
	if err := p.checkTerms(s.cp); err != nil {
		p.damage(path, "head without its grant", "slot %d: %v", s.Seq, err)
	}
	own := p.signer(s.cp.Grant) == p.node() || p.author != nil
	if own && !p.follower {
		p.stamped(s.cp.Time)
	}
	p.claim(claim{s.cp.Size, s.cp.Root, s.cp.End, path, fmt.Sprintf("the checkpoint in slot %d", s.Seq)})
	switch {
	case len(s.Note) > 0 && (p.follower || !own):
		p.checkLeaders(path, s)
	case len(s.Note) > 0:
		c, err := merkle.OpenCheckpoint(s.Note, p.signer(s.cp.Grant))
		if err == nil && c != s.cp {
			err = errors.New("it signs another checkpoint")
		}
		if err != nil {
			p.damage(path, "signature wrong", "slot %d: %v", s.Seq, err)
		}
	case newest && own && !p.follower:
		p.note(path, "not signed yet", "a stop came between writing the newest checkpoint and signing it")
	}
}

// checkLeaders checks the leader's checkpoint in a follower's slot: of all that is here,
// or of less while more was coming.
func (p *partCheck) checkLeaders(path string, s headState) {
	c, err := merkle.PeekCheckpoint(s.Note)
	if err == nil {
		c, err = merkle.OpenCheckpoint(s.Note, p.signer(c.Grant))
	}
	switch {
	case err != nil:
	case c.Origin != p.origin:
		err = fmt.Errorf("it is of %q", c.Origin)
	case c.Size > s.cp.Size || c.Size == s.cp.Size && c != s.cp:
		err = fmt.Errorf("it is of %d batches, %d are here", c.Size, s.cp.Size)
	}
	if err != nil {
		p.damage(path, "signature wrong", "slot %d: %v", s.Seq, err)
		return
	}
	p.claim(claim{c.Size, c.Root, c.End, path, fmt.Sprintf("the leader's checkpoint in slot %d", s.Seq)})
}

// checkTerms compares what a checkpoint says of its term with the grants.
func (p *partCheck) checkTerms(c merkle.Checkpoint) error {
	if p.author != nil {
		if !c.Grant.IsZero() || c.Term != 0 || c.Incarnation != p.author.start.Incarnation {
			return fmt.Errorf("an author log of incarnation %d says term %d of incarnation %d", p.author.start.Incarnation, c.Term, c.Incarnation)
		}
		return nil
	}
	if c.Grant.IsZero() {
		if c.Term != 0 || c.Size != 0 {
			return fmt.Errorf("%d blocks in term %d, no grant", c.Size, c.Term)
		}
		return nil
	}
	for _, g := range slices.Concat(p.grants, p.beaten) {
		if g.ID != c.Grant {
			continue
		}
		if g.Term != c.Term || g.Incarnation != c.Incarnation || g.BaseSize > c.Size {
			return fmt.Errorf("term %d of incarnation %d, %d blocks; the grant is for term %d of %d, from %d blocks",
				c.Term, c.Incarnation, c.Size, g.Term, g.Incarnation, g.BaseSize)
		}
		return nil
	}
	return lattice.E(lattice.NotFound, fmt.Errorf("grant %s is not in the catalogue", c.Grant.Short()))
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
