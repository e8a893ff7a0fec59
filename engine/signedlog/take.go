package signedlog

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/segment"
)

var (
	// ErrProof: what is said to prove the blocks does not. Kind Corrupt.
	ErrProof = lattice.E(lattice.Corrupt, errors.New("the checkpoint does not prove the batches"))
	// ErrHole: the blocks begin behind those that are here, and some that come between
	// are still offered. Kind NotYet.
	ErrHole = lattice.E(lattice.NotYet, errors.New("batches are missing before these"))
	// ErrDiverged: the leader signed other blocks than it had signed before. Kind Diverged.
	ErrDiverged = lattice.E(lattice.Diverged, errors.New("the leader signed another history than the one that is here"))
)

// Checked is a run that was verified against what is here.
type Checked struct {
	run   Run
	metas []segment.Meta
	recs  []byte // leaf records
	size  uint64 // of the tree that it was checked against
	skip  int    // blocks that are here already
	jump  bool   // nothing that is here is offered any more: begin anew with the run
	base  int64  // offset of the first block, or of the end
	left  merkle.Range
}

// Known is how many of the run's blocks are here already.
func (c *Checked) Known() int { return c.skip }

// Fresh returns the metas of the blocks that are not, and the blocks.
func (c *Checked) Fresh() ([]segment.Meta, [][]byte) { return c.metas[c.skip:], c.run.Blocks[c.skip:] }

// Start is where the log will begin.
func (c *Checked) Start() int64 {
	if c.jump && len(c.metas) == 0 {
		return c.base
	}
	return min(c.run.Note.Start, c.end())
}

// Jumps reports whether what is here goes.
func (c *Checked) Jumps() bool { return c.jump }

func (c *Checked) end() int64 {
	if n := len(c.metas); n > 0 {
		return c.metas[n-1].Last + 1
	}
	return c.base
}

// Mark is a place in the tree of which somebody says what it is: a term's base.
type Mark struct {
	Size uint64
	Root lattice.Hash
}

// Check verifies a run of a follower's log: that the blocks, whose metas are in a row,
// follow what is here or are it, that its tree passes the marks, which rise, and that
// the note, whose signature the caller checked, is of a tree that they begin. Nothing
// is stored. Errors: ErrProof, ErrHole, ErrDiverged; Kind Storage, Unavailable: not now.
func (l *Log) Check(r Run, metas []segment.Meta, marks []Mark) (*Checked, error) {
	left, err := merkle.NewRange(r.From, r.Left)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProof, err)
	}
	c := &Checked{run: r, metas: metas, left: left, base: r.Note.End, recs: make([]byte, 0, len(metas)*merkle.LeafSize)}
	for i, m := range metas {
		leaf := merkle.Leaf{Base: m.Base, Last: m.Last, MaxTime: m.MaxTime, Epoch: m.Term, Length: uint32(len(r.Blocks[i]))}
		if len(r.Sums) == len(r.Blocks) {
			leaf.Sum = r.Sums[i]
		} else {
			leaf.Sum = sum(r.Blocks[i])
		}
		c.recs = leaf.AppendTo(c.recs)
	}
	l.certMu.Lock()
	defer l.certMu.Unlock()
	if err := l.ready(); err != nil {
		return nil, err
	}
	c.size = l.edge.Size()
	to := r.From + uint64(len(metas))
	c.skip = int(min(max(c.size, r.From)-r.From, uint64(len(metas))))
	same, err := c.walk(marks)
	if err == nil {
		err = merkle.VerifyConsistency(to, r.Note.Size, r.Proof, same.root, r.Note.Root)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProof, err)
	}
	if len(metas) > 0 {
		c.base = metas[0].Base
	}
	if err := c.checkEnd(to, l.hashed); err != nil {
		return nil, err
	}
	return c, l.compare(c, to, same)
}

// ready brings the tree to what is durable. certMu is held.
func (l *Log) ready() error {
	l.mu.Lock()
	behind := l.synced < l.written
	err := l.broken
	if l.closed {
		err = ErrClosed
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	if behind {
		l.sync()
	}
	l.mu.Lock()
	err, target := l.failed, l.synced
	l.mu.Unlock()
	if err != nil || target == l.hashed {
		return err
	}
	return l.catchUp(target)
}

// walked is what the blocks' tree was at two sizes.
type walked struct {
	root lattice.Hash // at the end
	ours lattice.Hash // at the size that is here, or at the end if that comes first
}

// walk makes the tree of the run.
func (c *Checked) walk(marks []Mark) (walked, error) {
	var w walked
	app := merkle.NewAppender(c.left)
	for i := 0; ; i++ {
		at := c.run.From + uint64(i)
		for len(marks) > 0 && marks[0].Size <= at {
			if marks[0].Size == at && marks[0].Root != app.Root() {
				return w, fmt.Errorf("the term that begins with block %d has another log before it", at)
			}
			marks = marks[1:]
		}
		if at == c.size {
			w.ours = app.Root()
		}
		if i == len(c.metas) {
			break
		}
		app.Append(nil, merkle.LeafHash((*[merkle.LeafSize]byte)(c.recs[i*merkle.LeafSize:])))
	}
	w.root = app.Root()
	if app.Size() < c.size {
		w.ours = w.root
	}
	return w, nil
}

// checkEnd holds the checkpoint's offsets to the blocks'. hashed is where the log ends.
func (c *Checked) checkEnd(to uint64, hashed int64) error {
	end := c.end()
	if len(c.metas) == 0 && to == c.size {
		end = hashed
	}
	note := &c.run.Note
	switch {
	case len(c.metas) == 0 && to != note.Size:
		return fmt.Errorf("%w: no batches, and the checkpoint is of more", ErrProof)
	case to == note.Size && end != note.End, to < note.Size && end >= note.End:
		return fmt.Errorf("%w: they end at offset %d, the checkpoint of %d batches at %d", ErrProof, end, note.Size, note.End)
	case c.left.Size() > uint64(c.base):
		return fmt.Errorf("%w: %d batches before offset %d", ErrProof, c.left.Size(), c.base)
	}
	return nil
}

// compare holds a run that is proven to what is here. certMu is held.
func (l *Log) compare(c *Checked, to uint64, w walked) error {
	diverged := func(at uint64) error { return fmt.Errorf("of %d batches: %w", at, ErrDiverged) }
	if c.run.From > c.size {
		if c.base > c.run.Note.Start {
			return fmt.Errorf("%d batches are here, these begin with number %d: %w", c.size, c.run.From, ErrHole)
		}
		if c.base < l.hashed {
			return diverged(c.size)
		}
		c.jump = true
		return nil
	}
	at, ours := c.size, l.edge.Root()
	if to < c.size {
		r, err := rangeAt(l.nodes(), to)
		if err != nil {
			if lattice.KindOf(err) == lattice.Storage {
				return err
			}
			return nil // it was dropped here: there is nothing to compare, and nothing new
		}
		at, ours = to, r.Root()
	}
	if w.ours != ours {
		return diverged(at)
	}
	if c.skip < len(c.metas) && c.metas[c.skip].Base != l.hashed {
		return diverged(c.size)
	}
	return nil
}

// Hooks are called by Take, with the log's certificate lock held.
type Hooks struct {
	// Wrote is called when the first n of the fresh blocks are written, before readers
	// can see them.
	Wrote func(n int)
	// Starts is called before a head is written with a later start: what the blocks
	// below it say must be kept elsewhere by then.
	Starts func(start int64) error
	// Jumped is called when the log has begun anew.
	Jumped func()
}

const (
	// pieceBytes is about how much is written at once.
	pieceBytes = 1 << 20
	// headBytes bounds what may lie behind a follower's head, and is read again by a
	// restart.
	headBytes = CertifyBytes
	// fewBlocks is what a run has of which more are not to be expected at once.
	fewBlocks = 4
)

// Take stores a run that was checked, and returns how many of its blocks are here
// durably. Nothing may be taken between Check and Take. The steps, and what a crash
// leaves:
//
//  1. If the log begins anew: see rebase.
//  2. The fresh blocks are written, some at once. A crash leaves some of them, whole and
//     in order, behind the head: recovery keeps those and hashes them. They were proven.
//  3. They are synced: readers see them from here on, and a crash leaves them.
//  4. Their leaves go into the tree, unsynced: the blocks give them again.
//  5. The head, with the leader's checkpoint, is written and synced, unless more is to
//     come before all of that checkpoint is here and little lies behind the last head.
//  6. If the log begins later now, files below are dropped. A crash before that: the next
//     open drops them.
//
// Errors are of Kind Storage and Unavailable, and leave the log where one of these
// steps does; the next Check goes on from there.
func (l *Log) Take(c *Checked, h Hooks) (int, error) {
	kept, err := l.take(c, h)
	l.tellFollowers()
	if err == nil && len(c.metas)-c.skip <= fewBlocks {
		l.Prepare() // blocks come as they are appended: the next sync is quicker
	}
	return kept, err
}

func (l *Log) take(c *Checked, h Hooks) (int, error) {
	l.certMu.Lock()
	defer l.certMu.Unlock()
	if c.size != l.edge.Size() {
		return c.skip, lattice.E(lattice.Unavailable, errors.New("take a run: the log changed since it was checked"))
	}
	if c.jump {
		if err := l.rebase(c.base, c.left, c.run.Note); err != nil {
			return 0, err
		}
		h.Jumped()
	}
	if err := l.store(c, h); err != nil {
		return c.skip, err
	}
	l.mu.Lock()
	start, here := l.start, l.here
	l.mu.Unlock()
	to := c.Start()
	moves := to > start
	if moves {
		if err := h.Starts(to); err != nil {
			return c.skip, err
		}
	}
	whole := l.edge.Size() == c.run.Note.Size
	switch {
	case whole && newer(c.run.Note, l.Checkpoint()), moves, l.behindHead() >= headBytes:
		if err := l.publishRun(c.run.Note); err != nil {
			return c.skip, err
		}
	case l.edge.Size() != here.Size:
		here.Size, here.Root, here.End = l.edge.Size(), l.edge.Root(), l.hashed
		l.mu.Lock()
		l.here = here
		l.mu.Unlock()
	}
	if moves {
		l.mu.Lock()
		start = l.start
		l.mu.Unlock()
		return len(c.metas), l.dropped(start)
	}
	return len(c.metas), nil
}

// behindHead is about how many bytes of blocks lie behind the head. certMu is held.
func (l *Log) behindHead() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writtenBytes - l.certBytes
}

// piece is blocks that were written to one file.
type piece struct {
	end int // of the run's blocks
	pos segment.Pos
	at  int64 // where the last of them ends
}

// store writes the fresh blocks, syncs them, and adds their leaves.
func (l *Log) store(c *Checked, h Hooks) error {
	pieces, err := l.writePieces(c)
	n := c.skip
	if len(pieces) > 0 {
		n = pieces[len(pieces)-1].end
	}
	if n > c.skip {
		h.Wrote(n - c.skip)
		l.sync()
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	err = l.failed
	l.mu.Unlock()
	if err != nil {
		return err
	}
	done := c.skip
	for _, p := range pieces {
		recs := c.recs[done*merkle.LeafSize : p.end*merkle.LeafSize]
		if p.pos.Segment != l.leafSeg {
			if err := l.tree.sync(); err != nil { // as in hash
				return err
			}
			l.leafSeg = p.pos.Segment
		}
		if err := l.addLeaves(l.edge.Size(), recs); err != nil {
			l.leafSeg = -1
			return err
		}
		last := c.metas[p.end-1]
		l.hashed, l.term, l.hashedAt = last.Last+1, last.Term, segment.Pos{Segment: p.pos.Segment, At: p.at}
		done = p.end
	}
	return nil
}

// writePieces writes the fresh blocks; what it returns with an error was written.
func (l *Log) writePieces(c *Checked) ([]piece, error) {
	if c.skip == len(c.metas) {
		return nil, nil
	}
	b, _ := l.o.Committer.pieces.Get().(*[]byte)
	if b == nil {
		b = new([]byte)
	}
	defer l.o.Committer.pieces.Put(b)
	var out []piece
	var sizes []int
	for at := c.skip; at < len(c.metas); {
		buf := (*b)[:0]
		sizes = sizes[:0]
		end := at
		for end < len(c.metas) && (end == at || len(buf)+len(c.run.Blocks[end]) <= pieceBytes) {
			buf, sizes = append(buf, c.run.Blocks[end]...), append(sizes, len(c.run.Blocks[end]))
			end++
		}
		*b = buf
		pos, err := l.append(c.metas[at:end], sizes, buf)
		if err != nil {
			return out, fmt.Errorf("take blocks from offset %d: %w", c.metas[at].Base, err)
		}
		out = append(out, piece{end, pos, pos.At + int64(len(buf))})
		at = end
	}
	return out, nil
}
