package partition

import (
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/storage/segment"
)

// What a span is refused for.
var (
	// ErrLeads: this node leads the partition, and takes no batches from others.
	ErrLeads = lattice.E(lattice.Conflict, errors.New("this node leads the partition"))
	// ErrForeign: the span is of another partition.
	ErrForeign = lattice.E(lattice.Invalid, errors.New("the span belongs to another partition"))
	// ErrOversize: it has more of something than a span can have.
	ErrOversize = lattice.E(lattice.TooLarge, errors.New("the span is too large"))
	// ErrGrant: its grants are not those of the topic's leader, or do not follow those
	// that are here.
	ErrGrant = lattice.E(lattice.Denied, errors.New("the span's grants do not hold"))
	// ErrUnheard: the partition has another leader than is known here, or may have: the
	// store has not heard of it so far. It is tried again.
	ErrUnheard = lattice.E(lattice.Unavailable, errors.New("this node has not heard of that leader"))
	// ErrNote: its checkpoint is not the leader's, or is of another log or term.
	ErrNote = lattice.E(lattice.Denied, errors.New("the span's checkpoint does not hold"))
	// ErrOldTerm: its checkpoint claims more in a term than the term had when the next
	// one began.
	ErrOldTerm = lattice.E(lattice.Fenced, errors.New("the span is of a term that is over"))
	// ErrBatch: a batch is damaged, out of order, or of another term than it should be.
	ErrBatch = lattice.E(lattice.Corrupt, errors.New("a batch of the span does not hold"))
	// ErrProof: the checkpoint does not prove the batches.
	ErrProof = signedlog.ErrProof
	// ErrHole: batches are missing before those of the span.
	ErrHole = signedlog.ErrHole
	// ErrDiverged: the leader signed another history than the one that is here. It is
	// evidence against the leader, not against who sent the span.
	ErrDiverged = signedlog.ErrDiverged
)

// Bounds of a span, see ErrOversize. Whoever sends spans stays far below.
const (
	maxSpanBytes   = 64 << 20
	maxSpanBatches = 1 << 16
	maxSpanGrants  = 1 << 14
	maxSpanHashes  = 128
)

// Receive verifies a span of whoever has it, and stores what is new of it. Only a
// follower takes spans. kept says how many of the span's batches are here durably when
// it returns, those that were here before among them: all without an error, and with
// one of Kind Storage or Unavailable those that surely are. Nothing of a span that is
// refused is stored, and nothing else is disturbed. It keeps nothing of s; calls wait
// for each other.
//
// A span may begin before the end of what is here. If it begins behind that, it is
// taken only if the leader signed that nothing before it is offered any more: then what
// is here goes, and what it said of producers, and the log begins with the span.
//
// The steps, and what a crash leaves:
//
//  1. All of it is verified. Nothing happened yet.
//  2. Grants that are not known are stored, oldest first. A crash leaves terms without
//     batches. (They come first, so that there is never a batch of an unknown term.)
//  3. The batches are written and synced, and the head with the checkpoint is written:
//     see signedlog.Log.Take. Producers' state is folded before readers see a batch.
//  4. Before the head says that the log begins later, the producers' state is saved, as
//     before any truncation.
//
// Errors: ErrLeads, ErrForeign, ErrOversize, ErrGrant, ErrNote, ErrOldTerm, ErrBatch,
// ErrProof, ErrHole, ErrDiverged; Kind Storage and Unavailable: not now.
func (p *Partition) Receive(s span.Span) (kept int, err error) {
	p.receiving.Lock()
	defer p.receiving.Unlock()
	kept, err = p.receive(s)
	if p.came.Store(err == nil); err == nil {
		p.received()
	}
	if err == nil && p.o.Named != nil && p.ToLead() {
		p.o.Named()
	}
	if err != nil {
		err = fmt.Errorf("receive %d batches of %s from number %d on: %w", len(s.Batches), p.id, s.From, err)
	}
	return kept, err
}

func (p *Partition) receive(s span.Span) (int, error) {
	if err := p.admit(s); err != nil {
		return 0, err
	}
	v := verifier{p: p, s: s}
	if err := errors.Join(v.checkGrants(), p.openOrNot()); err != nil {
		return 0, err
	}
	if err := v.checkNote(); err != nil {
		return 0, err
	}
	if err := v.checkBatches(); err != nil {
		return 0, err
	}
	run := signedlog.Run{From: s.From, Blocks: s.Batches, Note: v.note, Left: s.Left, Proof: s.Proof, Sums: s.Sums}
	c, err := p.log.Check(run, v.metas, v.marks)
	if err != nil {
		return 0, err
	}
	if err := p.storeGrants(v.fresh); err != nil {
		return c.Known(), err
	}
	if c.Jumps() {
		if err := p.beforeJump(); err != nil {
			return c.Known(), err
		}
	}
	before, _, _ := p.log.Bounds()
	fresh := v.producers[c.Known():]
	kept, err := p.log.Take(c, signedlog.Hooks{
		Wrote:  func(n int) { p.wrote(fresh[:n], s.Batches[c.Known():c.Known()+n]) },
		Starts: func(int64) error { return p.saveProducers() },
		Jumped: p.jumped,
	})
	if start, _, _ := p.log.Bounds(); start > before || c.Jumps() {
		err = errors.Join(err, p.begins(start, c.Jumps()))
	}
	return kept, err
}

// begins is what follows when the log begins later.
func (p *Partition) begins(start int64, jumped bool) error {
	p.forgetAborted(start)
	p.waiters.all(false)
	err := p.dropStatements()
	if jumped {
		err = errors.Join(err, p.saveProducers())
	}
	return err
}

func (p *Partition) openOrNot() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.stale:
		return ErrUnheard
	}
	return nil
}

// admit holds a span to what needs no look at what is in it.
func (p *Partition) admit(s span.Span) error {
	switch {
	case p.Leads():
		return ErrLeads
	case s.Partition != p.id:
		return fmt.Errorf("it is of %s: %w", s.Partition, ErrForeign)
	case len(s.Batches) > maxSpanBatches || len(s.Grants) > maxSpanGrants || len(s.Left) > maxSpanHashes || len(s.Proof) > maxSpanHashes:
		return fmt.Errorf("%d batches, %d grants, %d and %d hashes: %w", len(s.Batches), len(s.Grants), len(s.Left), len(s.Proof), ErrOversize)
	case len(s.Note) > signedlog.MaxNote:
		return fmt.Errorf("a checkpoint of %d bytes: %w", len(s.Note), ErrOversize)
	case s.From > 1<<62:
		return fmt.Errorf("batch number %d: %w", s.From, ErrBatch)
	}
	size := 0
	for _, b := range s.Batches {
		if size += len(b); size > maxSpanBytes {
			return fmt.Errorf("more than %d bytes: %w", maxSpanBytes, ErrOversize)
		}
	}
	return nil
}

// verifier checks a span; each step uses what those before found.
type verifier struct {
	p     *Partition
	s     span.Span
	chain []grantAt // all terms: those that are known, and fresh
	fresh []shown   // those that are not
	note  signedlog.Certified
	metas []segment.Meta
	marks []signedlog.Mark
	// producers are the batches' producer ids.
	producers []int64
}

// checkGrants holds the grants to the rule that the topic's creator leads: it grants
// each term to itself, after the one before.
func (v *verifier) checkGrants() error {
	p := v.p
	p.mu.Lock()
	known, last := p.known.chain, p.known.last
	p.mu.Unlock()
	v.chain = known[:len(known):len(known)]
	ids := make(map[lattice.Hash]bool, len(known))
	for _, g := range known {
		ids[g.id] = true
	}
	for i, b := range v.s.Grants {
		g, err := grant.Parse(append([]byte(nil), b...))
		switch {
		case err != nil:
		case ids[g.ID]:
			continue
		default:
			if err = v.mayLead(&g, last, ids); err == nil {
				err = g.Follows(last)
			}
			if err == nil {
				err = g.Verify()
			}
		}
		if err != nil {
			if errors.Is(err, ErrUnheard) {
				return fmt.Errorf("grant number %d: %w", i, err)
			}
			return fmt.Errorf("%w: number %d: %w", ErrGrant, i, err)
		}
		last = &g
		ids[g.ID] = true
		v.fresh, v.chain = append(v.fresh, shown{g, nil}), append(v.chain, at(&g))
	}
	return nil
}

// mayLead holds a grant that is not known here to the rule that a span brings a leader's
// own terms only. Who else leads now is told by the store (see Grants).
func (v *verifier) mayLead(g, last *grant.Signed, ids map[lattice.Hash]bool) error {
	o := &v.p.o
	leader := o.Leader
	if last != nil {
		leader = last.Leader
	}
	switch {
	case g.Store != o.Store || g.Partition != o.ID:
		return fmt.Errorf("it is for %s of store %s", g.Partition, g.Store.Short())
	case last != nil && g.Previous != last.ID && ids[g.Previous]:
		return fmt.Errorf("after one term two were granted: %w", ErrUnheard)
	case g.Kind != grant.Self && (g.Kind != grant.Seal || passes(g)):
		return fmt.Errorf("by %s (%s) the term is %s's: %w", g.Signer.Short(), g.Kind, g.Leader.Short(), ErrUnheard)
	case g.Leader != leader || g.Signer != leader:
		return fmt.Errorf("%s gives the term to %s, the partition is led by %s", g.Signer.Short(), g.Leader.Short(), leader.Short())
	}
	return nil
}

// checkNote checks the checkpoint against the grant that it names.
func (v *verifier) checkNote() error {
	o := &v.p.o
	claim, err := merkle.PeekCheckpoint(v.s.Note)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNote, err)
	}
	if want := merkle.Origin(o.Store, o.ID.String()); claim.Origin != want {
		return fmt.Errorf("%w: it is of %q", ErrNote, claim.Origin)
	}
	n := len(v.chain) - 1
	for n >= 0 && v.chain[n].id != claim.Grant {
		n--
	}
	if n < 0 {
		return fmt.Errorf("%w: the grant of its term, %s, is not known", ErrNote, claim.Grant.Short())
	}
	g := v.chain[n]
	c, err := merkle.OpenCheckpoint(v.s.Note, g.leader)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrNote, err)
	case c.Term != g.term || c.Incarnation != g.incarnation || c.Size < g.size || c.End < g.offset:
		return fmt.Errorf("%w: term %d of incarnation %d, %d batches; its grant says term %d of %d, from %d batches",
			ErrNote, c.Term, c.Incarnation, c.Size, g.term, g.incarnation, g.size)
	case boundOf(v.chain, n) < c.Size:
		return fmt.Errorf("%d batches in term %d, a later one begins after %d: %w", c.Size, c.Term, boundOf(v.chain, n), ErrOldTerm)
	}
	v.note = signedlog.Certified{Checkpoint: c, Note: append([]byte(nil), v.s.Note...)}
	v.chain = ruling(v.chain[:n+1])
	return nil
}

// checkBatches checks each batch on its own, that they are in a row, and that each is of
// the term that is in force where it stands. It collects the terms that begin among
// them.
func (v *verifier) checkBatches() error {
	n := len(v.s.Batches)
	v.metas, v.producers = make([]segment.Meta, 0, n), make([]int64, 0, n)
	g := 0 // the first grant that begins behind the batch
	for g < len(v.chain) && v.chain[g].size < v.s.From {
		g++
	}
	next := int64(-1)
	for i, b := range v.s.Batches {
		h, err := record.ParseHeader(b)
		switch {
		case err != nil:
		case h.Size() != len(b):
			err = fmt.Errorf("%d bytes, its header says %d", len(b), h.Size())
		case next >= 0 && h.BaseOffset != next || h.BaseOffset < 0 || h.LastOffset() < h.BaseOffset:
			err = fmt.Errorf("offsets %d to %d, want %d on", h.BaseOffset, h.LastOffset(), next)
		default:
			err = record.CheckCRC(b)
		}
		if err == nil {
			g, err = v.enter(g, v.s.From+uint64(i), h.BaseOffset)
		}
		if err == nil && (g == 0 || v.chain[g-1].term != h.LeaderEpoch) {
			err = fmt.Errorf("term %d is not in force at offset %d", h.LeaderEpoch, h.BaseOffset)
		}
		if err != nil {
			return fmt.Errorf("%w: number %d: %w", ErrBatch, v.s.From+uint64(i), err)
		}
		next = h.NextOffset()
		v.metas = append(v.metas, segment.Meta{Base: h.BaseOffset, Last: h.LastOffset(), MaxTime: h.MaxTimestamp, Term: h.LeaderEpoch})
		v.producers = append(v.producers, h.ProducerID)
	}
	_, err := v.enter(g, v.s.From+uint64(n), next)
	if err != nil {
		return fmt.Errorf("%w: number %d: %w", ErrBatch, v.s.From+uint64(n), err)
	}
	return nil
}

// enter passes the grants that begin with the batch number at, at an offset (-1: not
// known), and returns the first that begins behind.
func (v *verifier) enter(g int, at uint64, offset int64) (int, error) {
	for ; g < len(v.chain) && v.chain[g].size <= at; g++ {
		if offset >= 0 && v.chain[g].offset != offset {
			return g, fmt.Errorf("term %d begins at offset %d, the batch has %d", v.chain[g].term, v.chain[g].offset, offset)
		}
		v.marks = append(v.marks, signedlog.Mark{Size: v.chain[g].size, Root: v.chain[g].root})
	}
	return g, nil
}
