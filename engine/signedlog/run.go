package signedlog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/segment"
)

// Run is blocks in a row, with what proves them. See core/span.
type Run struct {
	From        uint64 // leaf of the first block
	Blocks      [][]byte
	Note        Certified // the leader's, of this or more
	Left, Proof []lattice.Hash
	Sums        []lattice.Hash // SHA-256 of the blocks, computed here; nil: they are not yet
	Begins      uint64         // the leaf of the first block that is offered here
}

// ErrRewritten: the original block was compacted away, and what replaced it proves
// nothing. Kind Conflict.
var ErrRewritten = lattice.E(lattice.Conflict, errors.New("the original batches were compacted away"))

// ReadRun returns blocks from leaf from on, up to about max bytes and at least one, with
// their proof by the newest checkpoint; with max 0 none, and from is that checkpoint's
// size. If that does not reach beyond from, a log that signs makes one first. Errors
// by Kind: NotYet, OutOfRange (then Begins is set), Conflict (ErrRewritten), Storage,
// Unavailable.
func (l *Log) ReadRun(from uint64, max int) (Run, error) {
	if from >= l.Checkpoint().Size && !l.follows() {
		if err := l.certify(-1); err != nil && (errors.Is(err, ErrClosed) || from >= l.Checkpoint().Size) {
			return Run{}, err
		}
	}
	r := Run{From: from}
	at, err := l.locate(&r, max)
	if err != nil || max <= 0 {
		return r, err
	}
	if err := l.readBlocks(&r, at, max); err != nil {
		return r, err
	}
	r.Left, r.Proof, err = l.Extend(from, from+uint64(len(r.Blocks)), r.Note.Size)
	if errors.Is(err, merkle.ErrDropped) { // since it was located
		return Run{From: from}, lattice.E(lattice.OutOfRange, err)
	}
	return r, err
}

// locate fills in the checkpoint, and where what is offered begins, and returns the
// offset of the block at leaf r.From.
func (l *Log) locate(r *Run, max int) (int64, error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	r.Note = l.Checkpoint()
	if len(r.Note.Note) == 0 {
		return 0, lattice.E(lattice.NotYet, errors.New("nothing is signed here so far"))
	}
	var err error
	if r.Begins, err = l.beginning(r.Note.Checkpoint); err != nil {
		return 0, err
	}
	switch size := r.Note.Size; {
	case r.From < l.tree.prefix.Size():
		return 0, lattice.E(lattice.OutOfRange, fmt.Errorf("block %d was dropped: the log begins with block %d", r.From, r.Begins))
	case max <= 0 && r.From == size:
		edge, err := rangeAt(l.nodes(), size)
		r.Left = edge.Hashes()
		return 0, err
	case max <= 0 || r.From > size:
		return 0, lattice.E(lattice.NotYet, fmt.Errorf("block %d: %d are signed", r.From, size))
	case r.From == size:
		return 0, lattice.E(lattice.NotYet, fmt.Errorf("nothing is signed behind block %d so far", size))
	}
	leaf, err := l.leaf(r.From)
	return leaf.Base, err
}

// leaf returns one leaf. certMu is held.
func (l *Log) leaf(n uint64) (merkle.Leaf, error) {
	rec, err := l.tree.leaves.Read(n, 1, nil)
	if err != nil {
		return merkle.Leaf{}, err
	}
	return merkle.ParseLeaf(rec)
}

// beginning is where the blocks that are offered begin.
type beginning struct {
	start int64
	leaf  uint64
}

// beginning returns the leaf of the block that covers the start of a checkpoint, or
// its size when it offers none. certMu is held.
func (l *Log) beginning(c merkle.Checkpoint) (uint64, error) {
	switch {
	case c.Start == c.End:
		return c.Size, nil
	case l.begins.start == c.Start:
		return l.begins.leaf, nil
	}
	lo, hi := l.tree.prefix.Size(), c.Size
	for lo < hi {
		mid := lo + (hi-lo)/2
		leaf, err := l.leaf(mid)
		if err != nil {
			return 0, fmt.Errorf("find where the log begins: %w", err)
		}
		if leaf.Last < c.Start {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	l.begins = beginning{c.Start, lo}
	return lo, nil
}

// readBlocks reads the blocks from offset at on, and holds each to its checksum and its
// leaf.
func (l *Log) readBlocks(r *Run, at int64, max int) error {
	if err := l.Readable(at); err != nil {
		return err
	}
	spans, err := l.seg.Spans(at, l.Sound(at, r.Note.End), int64(max))
	if err != nil {
		return err
	}
	defer segment.ReleaseAll(spans)
	for i := range spans {
		b := make([]byte, spans[i].Len)
		_, err := spans[i].ReadAt(b, 0)
		if err == nil || errors.Is(err, io.EOF) {
			err = l.split(r, b, spans[i].Rewritten)
		}
		if err != nil {
			if len(r.Blocks) > 0 {
				return nil // those before it are good
			}
			return err
		}
	}
	if len(r.Blocks) == 0 {
		return fmt.Errorf("block %d at offset %d: %w", r.From, at, ErrRewritten)
	}
	return nil
}

// split appends the blocks in b to the run. What was rewritten is compared with its
// leaf's hash, too; otherwise a block's place and length tell, and its checksum.
func (l *Log) split(r *Run, b []byte, rewritten bool) error {
	var metas []segment.Meta
	var blocks [][]byte
	var bad error
	for len(b) > 0 {
		m, size, err := l.o.Codec.Header(b)
		if err == nil && size > len(b) {
			err = lattice.E(lattice.Corrupt, fmt.Errorf("a block of %d bytes in %d", size, len(b)))
		}
		if err == nil {
			if err = l.o.Codec.Check(b[:size]); err != nil {
				l.Damage(m.Base, m.Last+1, err)
			}
		}
		if err != nil {
			bad = lattice.E(lattice.Storage, fmt.Errorf("block %d: %w", r.From+uint64(len(r.Blocks)+len(blocks)), err))
			break
		}
		metas, blocks, b = append(metas, m), append(blocks, b[:size:size]), b[size:]
	}
	first := r.From + uint64(len(r.Blocks))
	n := min(uint64(len(blocks)), r.Note.Size-first)
	recs, err := l.tree.leaves.Read(first, int(n), nil)
	if err != nil {
		return err
	}
	for i := range n {
		leaf, err := merkle.ParseLeaf(recs[i*merkle.LeafSize : (i+1)*merkle.LeafSize])
		if err != nil {
			return err
		}
		m, block := metas[i], blocks[i]
		if leaf.Base != m.Base || leaf.Last != m.Last || leaf.Length != uint32(len(block)) || rewritten && leaf.Sum != sum(block) {
			return fmt.Errorf("block %d at offset %d: %w", first+i, leaf.Base, ErrRewritten)
		}
		r.Blocks = append(r.Blocks, block)
	}
	return bad
}

// Follow calls grown, with no lock held, whenever there is a newer checkpoint than
// before, until cancel is called. grown must not block. As long as somebody follows,
// what is committed is certified at once.
func (l *Log) Follow(grown func()) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.followers == nil {
		l.followers = map[int]func(){}
	}
	l.following++
	n := l.following
	l.followers[n] = grown
	l.dueLocked()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.followers, n)
	}
}

// tellFollowers tells them if there is a newer checkpoint than they know of. No lock
// is held.
func (l *Log) tellFollowers() {
	l.mu.Lock()
	newer := cmp.Or(cmp.Compare(l.cert.Size, l.told.Size), cmp.Compare(l.cert.Start, l.told.Start)) != 0
	l.told = l.cert.Checkpoint
	var all []func()
	if newer {
		for _, n := range slices.Sorted(maps.Keys(l.followers)) {
			all = append(all, l.followers[n])
		}
	}
	l.mu.Unlock()
	for _, grown := range all {
		grown()
	}
}
