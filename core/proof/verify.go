package proof

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/sigchain"
)

var (
	// ErrRefused means that a well-formed file does not prove what it says; the
	// text says at which step. Kind Corrupt.
	ErrRefused = lattice.E(lattice.Corrupt, errors.New("proof refused"))
	// ErrUnsupported means that the proof rests on rights that version 1 cannot
	// check. Kind Unsupported.
	ErrUnsupported = lattice.E(lattice.Unsupported, errors.New("proof rests on evidence that version 1 does not carry"))
)

// Result is what a verified proof shows.
type Result struct {
	Kind      Kind
	What      string // one sentence for people
	Store     lattice.StoreID
	StoreName string
	Creator   lattice.AuthorID // of the store: everything rests on this key
	Topic     lattice.TopicID
	TopicName string
	Partition int32

	Checkpoint merkle.Checkpoint
	Author     lattice.AuthorID // signed the checkpoint
	Cosigners  []merkle.Cosignature

	// For a record.
	Record record.Record // its own memory
	Index  uint64        // of its batch in the log
	Leaf   merkle.Leaf
}

// Verify checks a proof file from its bytes alone. Errors wrap ErrFormat,
// ErrRefused or ErrUnsupported, and give the reason. The caller compares
// Result.Store with the store that is meant: a proof of another store is valid
// too.
func Verify(b []byte) (Result, error) {
	f, err := Parse(b)
	if err != nil {
		return Result{}, err
	}
	return f.Verify()
}

func refuse(step string, err error) error {
	if errors.Is(err, ErrUnsupported) {
		return fmt.Errorf("%s: %w", step, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrRefused, step, err)
}

// Verify checks what the file claims, as the function Verify does.
func (f File) Verify() (Result, error) {
	r := Result{Kind: f.Kind}
	if err := r.store(f); err != nil {
		return Result{}, refuse("genesis entry", err)
	}
	if err := r.topic(f); err != nil {
		return Result{}, refuse("topic entry", err)
	}
	term, err := r.grants(f)
	if err != nil {
		return Result{}, refuse("grants", err)
	}
	if err := r.checkpoint(f, term); err != nil {
		return Result{}, refuse("checkpoint", err)
	}
	switch f.Kind {
	case Checkpoint:
		r.What = fmt.Sprintf("the log of %s/%d had %d blocks up to offset %d", r.TopicName, r.Partition, r.Checkpoint.Size, r.Checkpoint.End)
	case Record:
		if err := r.block(f); err != nil {
			return Result{}, refuse("block", err)
		}
		if err := r.record(f); err != nil {
			return Result{}, refuse("record", err)
		}
		r.What = fmt.Sprintf("the record at offset %d is in the log of %s/%d", f.Offset, r.TopicName, r.Partition)
	default:
		return Result{}, fmt.Errorf("%w: kind %.20q", ErrFormat, f.Kind)
	}
	return r, nil
}

// store is step 1.
func (r *Result) store(f File) error {
	e, err := entry(f.Genesis)
	if err != nil {
		return err
	}
	id, g, err := sigchain.StoreID(e)
	if err != nil {
		return err
	}
	r.Store, r.StoreName, r.Creator = id, g.Name, e.Author
	return nil
}

// topic is step 2.
func (r *Result) topic(f File) error {
	e, err := entry(f.Topic)
	if err != nil {
		return err
	}
	if e.Store != r.Store {
		return fmt.Errorf("it belongs to store %s, not %s", e.Store.Short(), r.Store.Short())
	}
	if e.Author != r.Creator {
		return fmt.Errorf("%w: the topic was created by %s, the store by %s", ErrUnsupported, e.Author.Short(), r.Creator.Short())
	}
	id, c, err := sigchain.TopicID(e)
	if err != nil {
		return err
	}
	r.Topic, r.TopicName = id, c.Name
	return nil
}

func entry(b []byte) (sigchain.Signed, error) {
	e, err := sigchain.Parse(b)
	if err == nil {
		err = e.Verify()
	}
	return e, err
}

// grants is step 3. It returns the last grant, nil when there is none.
func (r *Result) grants(f File) (last *grant.Signed, err error) {
	for i, b := range f.Grants {
		g, err := grant.Parse(b)
		if err == nil {
			err = g.Verify()
		}
		if err != nil {
			return nil, err
		}
		if g.Store != r.Store || g.Partition.Topic != r.Topic {
			return nil, fmt.Errorf("the grant of term %d is for another topic", g.Term)
		}
		if i > 0 {
			if err := g.Follows(last); err != nil {
				return nil, err
			}
		}
		// Follows has shown that these are the word of who led before.
		if byLeader := i > 0 && (g.Kind == grant.Seal || g.Kind == grant.Self); g.Signer != r.Creator && !byLeader {
			return nil, fmt.Errorf("%w: term %d was granted by %s, not by the store's creator %s",
				ErrUnsupported, g.Term, g.Signer.Short(), r.Creator.Short())
		}
		last = &g
	}
	return last, nil
}

// checkpoint is step 4.
func (r *Result) checkpoint(f File, term *grant.Signed) (err error) {
	r.Author = r.Creator
	if term != nil {
		r.Author = term.Leader
	}
	r.Checkpoint, r.Cosigners, err = merkle.OpenCosigned(f.Checkpoint, r.Author)
	if err != nil {
		return err
	}
	c := r.Checkpoint
	store, log, err := merkle.ParseOrigin(c.Origin)
	if err != nil {
		return err
	}
	tp := lattice.TopicPartition{Topic: r.Topic}
	n, err := strconv.ParseUint(strings.TrimPrefix(log, r.Topic.String()+"/"), 10, 31)
	tp.Partition = int32(n)
	if err != nil || store != r.Store || log != tp.String() {
		return fmt.Errorf("its origin %q is no partition of topic %s in store %s", c.Origin, r.Topic, r.Store.Short())
	}
	r.Partition = tp.Partition
	switch {
	case term == nil && !c.Grant.IsZero():
		return fmt.Errorf("it names grant %s, which is not in the file", c.Grant.Short())
	case term == nil:
		return nil
	case c.Grant != term.ID:
		return fmt.Errorf("it names grant %s, the last in the file is %s", c.Grant.Short(), term.ID.Short())
	case term.Partition != tp:
		return fmt.Errorf("its grant is for partition %d, not %d", term.Partition.Partition, tp.Partition)
	case c.Term != term.Term || c.Incarnation != term.Incarnation:
		return fmt.Errorf("its term %d and incarnation %d are not the grant's, %d and %d", c.Term, c.Incarnation, term.Term, term.Incarnation)
	case c.Size < term.BaseSize || c.End < term.BaseOffset:
		return fmt.Errorf("its %d blocks are fewer than the %d its term began with", c.Size, term.BaseSize)
	case c.Size == term.BaseSize && (c.Root != term.BaseRoot || c.End != term.BaseOffset):
		return errors.New("it contradicts the base of its own term")
	}
	return nil
}

// block is steps 5 and 6.
func (r *Result) block(f File) (err error) {
	if r.Leaf, err = merkle.ParseLeaf(f.Leaf); err != nil {
		return err
	}
	r.Index = f.Index
	if err := merkle.VerifyInclusion(f.Index, r.Checkpoint.Size, r.Leaf.Hash(), f.Path, r.Checkpoint.Root); err != nil {
		return err
	}
	if sha256.Sum256(f.Batch) != r.Leaf.Sum {
		return errors.New("the batch is not the one in the tree: its hash differs from the leaf's")
	}
	h, err := record.ParseHeader(f.Batch)
	if err != nil {
		return err
	}
	if h.Size() != len(f.Batch) || int64(h.Size()) != int64(r.Leaf.Length) {
		return fmt.Errorf("the batch has %d bytes, says %d, and the leaf %d", len(f.Batch), h.Size(), r.Leaf.Length)
	}
	if h.BaseOffset != r.Leaf.Base || h.LastOffset() != r.Leaf.Last || h.LeaderEpoch != r.Leaf.Epoch || h.MaxTimestamp != r.Leaf.MaxTime {
		return errors.New("the batch and its leaf disagree on offsets, term or time")
	}
	if r.Leaf.Last >= r.Checkpoint.End || r.Leaf.Epoch > r.Checkpoint.Term {
		return errors.New("the block lies beyond what the checkpoint covers")
	}
	return record.CheckCRC(f.Batch)
}

// record is step 7.
func (r *Result) record(f File) error {
	rec, ok, err := record.FindOffset(f.Batch, record.Limits{MaxDecompressed: MaxSize}, f.Offset)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("offset %d is not in the batch, which holds %d to %d", f.Offset, r.Leaf.Base, r.Leaf.Last)
	}
	if h, err := record.ParseHeader(f.Batch); err != nil || h.Control() {
		return fmt.Errorf("offset %d is the end of a transaction, no record", f.Offset)
	}
	rec.Key, rec.Value = bytes.Clone(rec.Key), bytes.Clone(rec.Value)
	headers := make([]record.RecordHeader, len(rec.Headers))
	for i, h := range rec.Headers {
		headers[i] = record.RecordHeader{Key: strings.Clone(h.Key), Value: bytes.Clone(h.Value)}
	}
	rec.Headers = headers
	r.Record = rec
	return nil
}
