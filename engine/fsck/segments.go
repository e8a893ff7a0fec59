package fsck

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
)

// walk reads the segments in order.
func (p *partCheck) walk() error {
	segs := p.files.segs
	from, first := p.head.Start, p.tree.prefix.Size()
	switch {
	case len(segs) == 0, p.signed && segs[0].base >= p.head.Next, !p.signed && first == 0:
		// Nothing signed is here, or nothing is signed: from is where it should be.
	default:
		from = segs[0].base
		if n, ok := p.leavesHeader(from); ok {
			first = n
		}
		if from > p.head.Start {
			p.damage(p.dir, "batches missing", "the log starts at offset %d, the first segment at %d", p.head.Start, from)
		}
	}
	p.next, p.from = from, from
	p.beginTree(first)
	for i := range segs {
		if err := p.segment(i); err != nil {
			return err
		}
	}
	return nil
}

// segWalk is the walk through one segment.
type segWalk struct {
	*partCheck
	segFile
	file      string // path
	following int64  // first offset of the next file; -1: it is the last
	trusted   bool   // it lies before the file that the head names: it ends with its last block
	w         *window
	index     *indexCheck
	leaves    *leafFile // nil: none
	sha       hash.Hash // reused
	at        int64
}

// segment checks one file.
func (p *partCheck) segment(i int) error {
	s := &segWalk{partCheck: p, segFile: p.files.segs[i], following: -1, sha: sha256.New()}
	s.file = p.path(fileName(s.base, ".log"))
	if i+1 < len(p.files.segs) {
		s.following = p.files.segs[i+1].base
	}
	s.trusted = p.signed && s.base < p.head.Pos.Segment
	if p.ended {
		p.note(s.file, "segment behind the end", "the log ends at offset %d; the next start takes the file out", p.next)
		return nil
	}
	if !s.arrive() {
		return nil
	}
	p.r.Segments++
	w, done, err := p.open(s.file, s.size)
	if err != nil {
		p.damage(s.file, "unreadable", "%v", err)
		s.lose()
		return nil
	}
	defer done()
	s.w = w
	if p.next < p.head.Next { // leaves of what is not signed are made anew
		s.leaves = p.openLeaves(s.base, true)
	}
	if s.leaves != nil {
		defer s.leaves.done()
		s.leafIndex()
	}
	if s.base >= p.lastLeaves && p.tree.synced == 0 {
		p.tree.synced = p.tree.index
	}
	begun := p.done
	s.index = p.openIndex(s.base)
	rewritten, err := s.rewritten()
	if err == nil && rewritten {
		err = s.walkRewritten()
	} else if err == nil {
		err = s.walkBlocks()
	}
	s.index.end(s.following >= 0 && !p.ended)
	p.done = begun + s.size
	return err
}

// arrive checks that a file follows the one before.
func (s *segWalk) arrive() bool {
	p := s.partCheck
	switch {
	case s.base == p.next:
	case p.next >= p.head.Next && !p.lost:
		p.ended = true
		p.note(s.file, "segment behind the end", "the log ends at offset %d; the next start takes the file out", p.next)
		return false
	default:
		if !p.lost {
			p.damage(s.file, "batches missing", "offsets %d to %d, between the file before and this one", p.next, s.base-1)
		}
		p.loseTree()
		p.replay = nil
		p.next = s.base
	}
	p.lost = false
	return true
}

// leafIndex compares the number of the first leaf with the count so far.
func (s *segWalk) leafIndex() {
	t := &s.tree
	switch {
	case s.leaves.first == t.index:
	case t.app == nil: // the count was lost with batches
		t.index = s.leaves.first
		s.reach(s.next)
	default:
		s.damage(s.leaves.path, "leaves misnumbered", "they begin with number %d, %d batches come before", s.leaves.first, t.index)
	}
}

// lose gives up the rest of the file.
func (s *segWalk) lose() {
	s.lost = true
	s.loseTree()
	s.replay = nil
}

// rewritten reports whether the file is a compacted one: by a signed statement
// about its bytes, or because it is neither that nor as long as the original.
func (s *segWalk) rewritten() (bool, error) {
	if len(s.statements[s.base]) == 0 {
		return false, nil
	}
	s.sha.Reset()
	for at := int64(0); at < s.size; {
		n := int(min(windowSize, s.size-at))
		b, err := s.w.at(at, n)
		if err != nil {
			s.damage(s.file, "unreadable", "%v", err)
			return true, nil
		}
		s.sha.Write(b)
		at += int64(n)
	}
	sum := lattice.Hash(s.sha.Sum(nil))
	for _, st := range s.statements[s.base] {
		if st.Sum == sum && st.Length == uint64(s.size) {
			if !s.marked {
				s.damage(s.file, "compacted without its mark", "the file %s is missing", fileName(s.base, ".compacted"))
			}
			s.checkStatement(st)
			return true, nil
		}
	}
	if !s.marked || s.size == s.originalSize() {
		return false, nil // a crash came before the new bytes took the name
	}
	s.damage(s.file, "compacted file damaged", "no signed statement is about these %d bytes", s.size)
	return true, nil
}

// originalSize is the length of the segment's original blocks, by its leaves.
func (s *segWalk) originalSize() (n int64) {
	l := s.openLeaves(s.base, false)
	if l == nil {
		return -1
	}
	defer l.done()
	var rec [merkle.LeafSize]byte
	for i := uint64(0); i < l.count && l.next(&rec); i++ {
		if leaf, err := merkle.ParseLeaf(rec[:]); err == nil {
			n += int64(leaf.Length)
		}
	}
	return n
}

func (s *segWalk) checkStatement(st statement) {
	end := s.following
	if end < 0 {
		end = s.head.Next
	}
	if s.leaves == nil {
		return
	}
	if st.FirstLeaf != s.leaves.first || st.EndLeaf != s.leaves.first+s.leafCount() || st.End != end {
		s.damage(s.cat, "compaction statement wrong", "segment %d of %s: it is about leaves %d to %d up to offset %d, the segment has %d to %d up to %d",
			s.base, s.tp, st.FirstLeaf, st.EndLeaf, st.End, s.leaves.first, s.leaves.first+s.leafCount(), end)
	}
}

// leafCount is how many of the segment's leaves are signed.
func (s *segWalk) leafCount() uint64 {
	return min(s.leaves.count, max(s.head.cp.Size, s.leaves.first)-s.leaves.first)
}

// walkRewritten checks the blocks of a compacted file: what is left of original
// ones, whose leaves are all that is left of the others.
func (s *segWalk) walkRewritten() error {
	p := s.partCheck
	prev := s.base - 1
	leaves := s.leafWalk()
	for s.at < s.size {
		h, _, err := s.block()
		if err != nil {
			s.damage(s.file, "batch damaged", "at byte %d: %v", s.at, err)
			break
		}
		leaf, ok := leaves(h.BaseOffset)
		switch {
		case h.BaseOffset <= prev:
			s.damage(s.file, "batch out of order", "at byte %d: offset %d after %d", s.at, h.BaseOffset, prev)
		case !ok || leaf.Base != h.BaseOffset || leaf.Last != h.LastOffset() || leaf.Epoch != h.LeaderEpoch:
			s.damage(s.file, "batch of no original", "at byte %d: offsets %d to %d in term %d", s.at, h.BaseOffset, h.LastOffset(), h.LeaderEpoch)
		}
		prev = h.LastOffset()
		if err := s.passed(h); err != nil {
			return err
		}
	}
	leaves(-1)
	if s.following >= 0 && p.next != s.following && s.leaves != nil {
		s.damage(s.leaves.path, "leaves missing", "they end before offset %d, the next segment begins at %d", p.next, s.following)
		s.lose()
	}
	if s.leaves == nil {
		p.next = max(s.following, p.next)
		s.lose()
	}
	if p.snapshot != nil && p.replay != nil { // what compaction dropped cannot be replayed
		p.replay = partition.NewReplay()
		p.from = p.next
	}
	return nil
}

// leafWalk returns a function that adds the segment's leaves to the tree, up to
// the one at offset base (all for -1), and returns that one.
func (s *segWalk) leafWalk() func(base int64) (merkle.Leaf, bool) {
	if s.leaves == nil {
		return func(int64) (merkle.Leaf, bool) { return merkle.Leaf{}, false }
	}
	left := s.leafCount()
	var rec [merkle.LeafSize]byte
	var leaf merkle.Leaf
	return func(base int64) (merkle.Leaf, bool) {
		for base < 0 || s.next <= base {
			if left == 0 || !s.leaves.next(&rec) {
				return merkle.Leaf{}, false
			}
			left--
			var err error
			if leaf, err = merkle.ParseLeaf(rec[:]); err == nil && leaf.Base != s.next {
				err = fmt.Errorf("it begins at offset %d, want %d", leaf.Base, s.next)
			}
			if err != nil {
				s.damage(s.leaves.path, "leaf wrong", "number %d: %v", s.tree.index, err)
				s.lose()
				return merkle.Leaf{}, false
			}
			s.next, s.term = leaf.Last+1, leaf.Epoch
			s.addLeaf(&rec, s.next)
		}
		return leaf, true
	}
}

// walkBlocks checks the blocks of a file that was not rewritten.
func (s *segWalk) walkBlocks() error {
	p := s.partCheck
	for s.at < s.size {
		if !s.trusted && p.next == s.following {
			break // full; its end is not trimmed yet
		}
		signed := p.next < p.head.Next
		h, sum, err := s.block()
		if err == nil {
			err = s.follows(h)
		}
		if err != nil && !signed && !s.trusted {
			return s.endsHere(err)
		}
		var rec [merkle.LeafSize]byte
		have := signed && s.leaves != nil && s.leaves.next(&rec)
		if err != nil {
			s.damage(s.file, "batch damaged", "offset %d, at byte %d: %v", p.next, s.at, err)
			if !s.skip(&rec, have) {
				return nil
			}
			continue
		}
		s.checkTerm(h)
		p.next, p.term = h.NextOffset(), h.LeaderEpoch
		if signed {
			s.compareLeaf(h, sum, &rec, have)
		}
		if err := s.passed(h); err != nil {
			return err
		}
	}
	if p.next == p.head.Next && s.base == p.head.Pos.Segment && s.at != p.head.Pos.At && p.signed && !p.lost && len(s.statements[s.base]) == 0 {
		s.damage(p.path("head"), "position wrong", "offset %d is at byte %d of segment %d, the head says %d", p.next, s.at, s.base, p.head.Pos.At)
	}
	return s.checkRest()
}

// checkRest looks at what is behind the last block of a file.
func (s *segWalk) checkRest() error {
	if s.following >= 0 && s.next != s.following && !s.lost && s.trusted {
		return nil // the next file says what is missing
	}
	last, err := s.w.lastByte(s.at)
	if err != nil {
		s.damage(s.file, "unreadable", "%v", err)
	} else if last > s.at {
		s.note(s.file, "bytes behind the end", "%d behind the last batch, at byte %d; they count for nothing", last-s.at, s.at)
	}
	return nil
}

// endsHere ends the log before a block that is not whole.
func (s *segWalk) endsHere(why error) error {
	s.ended = s.next != s.following
	last, err := s.w.lastByte(s.at)
	switch {
	case err != nil:
		s.damage(s.file, "unreadable", "%v", err)
	case last > s.at:
		s.note(s.file, "unfinished end", "%d bytes from byte %d, offset %d, are no whole batch (%v); the next start cuts them", last-s.at, s.at, s.next, why)
	}
	return nil
}

// follows checks that a block comes next.
func (s *segWalk) follows(h record.Header) error {
	switch {
	case h.BaseOffset != s.next:
		return fmt.Errorf("it begins at offset %d, want %d", h.BaseOffset, s.next)
	case h.LeaderEpoch < s.term:
		return fmt.Errorf("term %d after %d", h.LeaderEpoch, s.term)
	case s.following >= 0 && h.LastOffset() >= s.following:
		return fmt.Errorf("it ends at offset %d, inside the next segment", h.LastOffset())
	}
	return nil
}

// checkTerm compares a block's term with the grant in force.
func (s *segWalk) checkTerm(h record.Header) {
	if s.author != nil {
		return // an author log has one writer, for ever
	}
	if term, ok := s.granted(h.BaseOffset); !s.unsettled && (!ok || term != h.LeaderEpoch) {
		s.damage(s.file, "term without a grant", "offset %d was written in term %d, the grants say %d", h.BaseOffset, h.LeaderEpoch, term)
	}
}

// compareLeaf adds a block's leaf to the tree, and compares the stored record.
func (s *segWalk) compareLeaf(h record.Header, sum lattice.Hash, rec *[merkle.LeafSize]byte, have bool) {
	leaf := merkle.Leaf{Base: h.BaseOffset, Last: h.LastOffset(), MaxTime: h.MaxTimestamp, Epoch: h.LeaderEpoch, Length: uint32(h.Size()), Sum: sum}
	var own [merkle.LeafSize]byte
	leaf.AppendTo(own[:0])
	if s.leaves != nil && (!have || own != *rec) {
		severity := Damage
		switch {
		case s.base < s.lastLeaves:
		case !have || isZero(rec[:]):
			severity = Note // a power cut takes what was not synced; it is made again
		default:
			severity = Warning
		}
		what := "leaf wrong"
		if !have {
			what = "leaf missing"
		}
		s.find(severity, s.leaves.path, what, "number %d, of the batch at offset %d", []any{s.tree.index, h.BaseOffset})
	}
	s.addLeaf(&own, h.NextOffset())
}

// skip goes over a damaged block by its leaf record. It reports false when that
// is not possible, and the rest of the file is lost.
func (s *segWalk) skip(rec *[merkle.LeafSize]byte, have bool) bool {
	leaf, err := merkle.ParseLeaf(rec[:])
	s.replay = nil
	if !have || err != nil || leaf.Base != s.next || s.at+int64(leaf.Length) > s.size {
		s.lose()
		return false
	}
	s.next, s.term = leaf.Last+1, leaf.Epoch
	s.at += int64(leaf.Length)
	s.addLeaf(rec, s.next)
	return true
}

// passed counts a whole block at s.at, and moves behind it.
func (s *segWalk) passed(h record.Header) error {
	s.index.block(s.at, h)
	if s.replay != nil && h.LastOffset() < s.snapshot.Next {
		if err := s.replayed(h); err != nil {
			s.damage(s.file, "marker wrong", "at byte %d: %v", s.at, err)
		}
	}
	s.at += int64(h.Size())
	if s.author != nil {
		s.r.Entries++
	} else {
		s.r.Batches++
		if !h.Control() {
			s.r.Records += int64(h.Count)
		}
		s.r.Bytes += int64(h.Size())
	}
	s.done += int64(h.Size())
	return s.tell(s.file)
}

// replayed adds the block at s.at to the replay of producers: of a control batch
// the record counts, too.
func (s *segWalk) replayed(h record.Header) error {
	n := record.HeaderSize
	if h.Control() {
		n = min(h.Size(), windowSize)
	}
	b, err := s.w.at(s.at, n)
	if err != nil {
		return err
	}
	return s.replay.Wrote(b)
}

var errShort = errors.New("the file ends inside it")

// block reads the block at s.at: its header, the SHA-256 of its bytes, and
// whether it has the checksum that the header says.
func (s *segWalk) block() (record.Header, lattice.Hash, error) {
	if s.author != nil {
		return s.entryBlock()
	}
	var sum lattice.Hash
	if s.size-s.at < record.HeaderSize {
		return record.Header{}, sum, errShort
	}
	b, err := s.w.at(s.at, record.HeaderSize)
	if err != nil {
		return record.Header{}, sum, err
	}
	h, err := record.ParseHeader(b)
	if err != nil {
		return h, sum, err
	}
	size := int64(h.Size())
	if size > s.size-s.at {
		return h, sum, errShort
	}
	const covered = 21 // the CRC covers the batch from its attributes on
	table, crc := crc32.MakeTable(crc32.Castagnoli), uint32(0)
	s.sha.Reset()
	for done := int64(0); done < size; {
		n := int(min(windowSize, size-done))
		if b, err = s.w.at(s.at+done, n); err != nil {
			return h, sum, err
		}
		s.sha.Write(b)
		if done == 0 {
			b = b[covered:]
		}
		crc = crc32.Update(crc, table, b)
		done += int64(n)
	}
	if crc != h.CRC {
		return h, sum, fmt.Errorf("%w: have %08x, the header says %08x", record.ErrCRC, crc, h.CRC)
	}
	return h, lattice.Hash(s.sha.Sum(sum[:0])), nil
}
