package fsck

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// uncounted is how many bytes of a batch its length field does not count.
const uncounted = 12

// authorCheck is what a check of an author log has beside that of a partition.
type authorCheck struct {
	start authorlog.Start
	chain sigchain.Chain
	begun bool   // the chain is that of an entry
	buf   []byte // of a frame that is longer than a window
}

// checkAuthors checks every author log, earlier incarnations first, and folds
// what they say of topics and offsets.
func (s *storeCheck) checkAuthors() error {
	dir := s.fs.PathJoin(s.dir, "authors")
	for _, name := range s.list(dir) {
		if _, err := lattice.ParseAuthorID(name); err != nil {
			s.note(s.fs.PathJoin(dir, name), "belongs to nothing", "")
		}
	}
	writers, err := authorlog.List(s.fs, dir)
	if err != nil {
		s.damage(dir, "unreadable", "%v", err)
		return nil
	}
	slices.SortFunc(writers, func(a, b authorlog.Start) int {
		return cmp.Or(cmp.Compare(a.Incarnation, b.Incarnation), a.Writer.Compare(b.Writer))
	})
	for _, w := range writers {
		s.r.Authors++
		p := &partCheck{
			storeCheck: s, dir: w.Dir(s.fs, dir), origin: merkle.Origin(s.id, w.Origin()),
			author: &authorCheck{start: w, chain: sigchain.Chain{Store: s.id, Author: w.Author, Incarnation: w.Incarnation}},
		}
		if err := p.check(); err != nil {
			return err
		}
		s.tips[w.Writer] = p.author.chain.Tip
	}
	return nil
}

// entryBlock is block for an author log: the frame at s.at, whose entry must be
// signed, and the next of its chain.
func (s *segWalk) entryBlock() (record.Header, lattice.Hash, error) {
	var h record.Header
	var sum lattice.Hash
	codec := authorlog.Codec{After: s.author.start.After}
	if s.size-s.at < int64(codec.HeaderLen()) {
		return h, sum, errShort
	}
	b, err := s.w.at(s.at, codec.HeaderLen())
	if err != nil {
		return h, sum, err
	}
	m, size, err := codec.Header(b)
	if err != nil {
		return h, sum, err
	}
	if int64(size) > s.size-s.at {
		return h, sum, errShort
	}
	if b, err = s.frame(size); err != nil {
		return h, sum, err
	}
	e, err := authorlog.Unframe(b)
	if err != nil {
		return h, sum, err
	}
	s.sha.Reset()
	s.sha.Write(b)
	h.BaseOffset, h.MaxTimestamp, h.Length, h.Count = m.Base, m.MaxTime, int32(size-uncounted), 1
	if err := s.entryIn(e); err != nil {
		s.damage(s.file, "entry does not belong", "entry %d at byte %d: %v", e.Seq, s.at, err)
	}
	return h, lattice.Hash(s.sha.Sum(sum[:0])), nil
}

// frame returns the size bytes at s.at.
func (s *segWalk) frame(size int) ([]byte, error) {
	if size <= windowSize {
		return s.w.at(s.at, size)
	}
	buf := s.author.buf[:0]
	for len(buf) < size {
		b, err := s.w.at(s.at+int64(len(buf)), min(windowSize, size-len(buf)))
		if err != nil {
			return nil, err
		}
		buf = append(buf, b...)
	}
	s.author.buf = buf
	return buf, nil
}

// entryIn checks an entry against its chain, and folds what it says of the catalogue.
func (s *segWalk) entryIn(e sigchain.Signed) error {
	a := s.author
	if err := e.Verify(); err != nil {
		return err
	}
	if !a.begun {
		a.begun = true
		if e.Seq > 1 { // what came before was pruned
			a.chain.Tip = e.Prev
		} else if err := s.follows1(e); err != nil {
			return err
		}
	}
	next, err := a.chain.Next(e)
	if err != nil {
		return err
	}
	a.chain = next
	if a.start.Author == s.node() {
		s.stamped(e.Time)
	}
	return s.foldEntry(e)
}

// follows1 checks what the first entry of an incarnation names as its predecessor.
func (s *segWalk) follows1(e sigchain.Signed) error {
	if e.Prev.IsZero() {
		return nil
	}
	tip, here := s.tips[state.Writer{Author: e.Author, Incarnation: e.Prev.Incarnation}]
	switch {
	case !here:
		return nil // pruned with its whole incarnation
	case e.Prev.Seq > tip.Seq:
		return fmt.Errorf("it follows entry %d of incarnation %d, which ends at %d: entries are missing", e.Prev.Seq, e.Prev.Incarnation, tip.Seq)
	case e.Prev.Seq == tip.Seq && e.Prev.ID != tip.ID:
		return fmt.Errorf("it follows %s, the last of incarnation %d is %s", e.Prev.ID.Short(), e.Prev.Incarnation, tip.ID.Short())
	}
	return nil
}

// foldEntry folds the operations of an entry on topics and offsets.
func (s *storeCheck) foldEntry(e sigchain.Signed) error {
	w := state.Writer{Author: e.Author, Incarnation: e.Incarnation}
	for i, op := range e.Ops {
		switch {
		case op.Kind == sigchain.KindCreateTopic:
			id, ct, err := sigchain.TopicID(e)
			if err != nil {
				return err
			}
			s.created[id] = ct
		case state.IsOp(op.Kind):
			o, err := state.ParseOp(op, w)
			if err != nil {
				return err
			}
			if store.OfCatalogue(o) && !s.below(e) {
				s.state.Apply(cloned(o), state.Dot{Writer: w, Seq: e.Seq, Index: uint32(i)}, e.Time)
			}
		}
	}
	return nil
}

// cloned returns an operation that shares no memory with the buffer that it was
// read into.
func cloned(op state.Op) state.Op {
	switch o := op.(type) {
	case *state.Put:
		c := *o
		c.Address.Key, c.Address.Sub = slices.Clone(o.Address.Key), slices.Clone(o.Address.Sub)
		c.Payload.Bytes = slices.Clone(o.Payload.Bytes)
		return &c
	case *state.Expire:
		c := *o
		c.Key = slices.Clone(o.Key)
		return &c
	}
	return op
}

// readNote reads the checkpoint of an author that is kept beside a log of another
// node, and puts its root on the list of those to recompute, if all that it covers
// is here. Nothing rests on it, and it is not synced: that it cannot be used is no damage.
func (p *partCheck) readNote() {
	path := p.path(authorlog.NoteFile)
	if p.author == nil || p.author.start.After > 0 || !p.files.beside[authorlog.NoteFile] {
		return
	}
	b, err := disk.ReadFile(p.fs, path)
	var note []byte
	if err == nil {
		note, err = authorlog.DecodeNote(b)
	}
	var c merkle.Checkpoint
	if err == nil {
		c, err = merkle.OpenCheckpoint(note, p.author.start.Author)
	}
	if err == nil && c.Origin != p.origin {
		err = fmt.Errorf("it is of %q", c.Origin)
	}
	switch {
	case err != nil:
		p.note(path, "author's checkpoint unusable", "%v; the next one takes its place", err)
	case p.signed && c.Size <= p.head.cp.Size:
		p.claim(claim{c.Size, c.Root, c.End, path, "the author's checkpoint"})
	}
}

// readState takes topics and offsets from the fold, once they are state.
func (s *storeCheck) readState() {
	dir := s.fs.PathJoin(s.dir, "authors")
	if !s.moved {
		return // an older version's records count; the next start makes state of them
	}
	if len(s.topics) > 0 {
		s.damage(s.cat, "catalogue contradicts itself", "topics are state, and there are records of %d", len(s.topics))
	}
	topics, err := store.FoldedTopics(&s.state)
	if err == nil {
		err = store.FoldedOffsets(&s.state, func(r store.OffsetRecord) { s.record(r) })
	}
	if err != nil {
		s.damage(dir, "state damaged", "%v", err)
	}
	for _, t := range topics {
		s.topics[t.ID] = t
	}
}

// checkFold reads the fold database from end to end. What it says is not compared:
// it may lag behind the logs, and whoever opens it compares its positions with them.
func (s *storeCheck) checkFold() {
	dir := s.fs.PathJoin(s.dir, "state")
	if len(s.list(dir)) == 0 {
		return
	}
	db, err := kv.OpenReadOnly(s.fs, dir, kv.Options{Logger: s.o.Logger})
	if err == nil {
		err = errors.Join(db.Iterate(nil, func(_, _ []byte) error { return nil }), db.Close())
	}
	if err != nil {
		s.warn(dir, "fold database unreadable", "%v; remove the directory, and the next start makes it again from the logs", err)
	}
}
