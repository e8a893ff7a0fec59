package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/branch"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
)

// Stranded branches are re-produced as a producer would produce them: with the records'
// keys, headers and timestamps, and StrandedHeader. The producer id is made of what the branch is,
// and sequence numbers count its records, so who sends a batch again, after a crash or from another
// node that has the same branch, is told of the one that is there.
//
// A batch, and what a crash leaves:
//
//  1. It is made of the next batches of the branch, by rules that give the same again.
//  2. It is appended at the leader, wherever that is, with all acknowledgements. A crash: it is there
//     or not; the next Reproduce sends the same again.
//  3. How far the branch is done is made durable (storage/aside). A crash: it goes on from here.

// StrandedHeader is the header that is added to a record that is re-produced. Its value
// is topic/partition/term/offset of where it was.
const StrandedHeader = "lattice-stranded-from"

// ErrReproduced: other records than the next of the branch are in the log in their place: another
// node re-produced it further, or longer ago than the leader remembers. Kind Conflict.
var ErrReproduced = lattice.E(lattice.Conflict, errors.New("the branch was re-produced already, or is by another node that has it"))

const (
	// packBytes is about how much of a branch is re-produced at once.
	packBytes = 256 << 10
	// packBlocks is how many of its batches are, at most.
	packBlocks = 256
	// reproduceWait is how long the leader's answer may take.
	reproduceWait = 30 * time.Second
)

// Stranded returns the branches of a partition that are kept on this node. What cannot be
// read is an error beside the others.
func (s *Store) Stranded(tp lattice.TopicPartition) ([]partition.Stranded, error) {
	p, err := s.Partition(tp.Topic, tp.Partition)
	if err != nil {
		return nil, err
	}
	return p.Strandeds()
}

// StrandedBlocks is how many blocks are stranded on this node, and not re-produced.
func (s *Store) StrandedBlocks() (n int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, t := range s.byID {
		for _, p := range t.parts {
			n += p.StrandedBlocks()
		}
	}
	return n
}

// reproducing is one Reproduce.
type reproducing struct {
	s      *Store
	p      *partition.Partition
	branch partition.Stranded
	to     branch.Progress
	topic  string
	skip   map[uint64]bool // batches of transactions that did not commit
}

// Reproduce writes the records of a branch to the log again, those that were not written
// yet, and returns how far it came. What belongs to transactions that did not commit, as
// far as the branch says, is left out. Errors: partition.ErrNoBranch, ErrReproduced, ErrNoTopic,
// and those of Append; Kind Corrupt, Storage; ctx's. Called again, it goes on.
func (s *Store) Reproduce(ctx context.Context, tp lattice.TopicPartition, id string) (branch.Progress, error) {
	s.reproduceMu.Lock()
	defer s.reproduceMu.Unlock()
	p, err := s.Partition(tp.Topic, tp.Partition)
	if err != nil {
		return branch.Progress{}, err
	}
	b, err := p.FindStranded(id)
	if err != nil {
		return branch.Progress{}, err
	}
	t, ok := s.TopicByID(tp.Topic)
	if !ok {
		return branch.Progress{}, ErrNoTopic
	}
	r := &reproducing{s: s, p: p, branch: b, to: b.Progress, topic: t.Name}
	if r.to.State == branch.Reproduced {
		return r.to, nil
	}
	if r.to.State == 0 {
		r.to = branch.Progress{State: branch.Underway, Producer: producerOf(b)}
	}
	if err := r.unfinished(); err != nil {
		return r.to, err
	}
	for r.to.Blocks < b.Blocks {
		if err := ctx.Err(); err != nil {
			return r.to, err
		}
		if err := r.next(ctx); err != nil {
			return r.to, fmt.Errorf("re-produce branch %s of %s from batch %d on: %w", id, tp, r.to.Blocks, err)
		}
	}
	r.to.State = branch.Reproduced
	return r.to, p.MarkStranded(b, r.to)
}

// producerOf is the producer id of a branch's records. Every node that has it, or the
// beginning of it, finds the same.
func producerOf(b partition.Stranded) int64 {
	raw := append([]byte("lattice/stranded/v1\x00"), termsKey(b.Partition)...)
	raw = binary.BigEndian.AppendUint32(raw, uint32(b.FirstTerm))
	raw = binary.BigEndian.AppendUint64(raw, uint64(b.First))
	sum := sha256.Sum256(raw)
	return int64(binary.BigEndian.Uint64(sum[:]) >> 1)
}

// unfinished finds the batches of transactions that did not commit.
func (r *reproducing) unfinished() error {
	r.skip = map[uint64]bool{}
	open := map[int64][]uint64{}
	return r.p.WalkStranded(r.branch, 0, func(n uint64, b []byte) error {
		h, err := record.ParseHeader(b)
		switch {
		case err != nil:
			return err
		case h.Control():
			r.skip[n] = true
			if m, ok, err := record.ParseMarker(b); err == nil && ok {
				if m.Commit {
					for _, x := range open[m.ProducerID] {
						delete(r.skip, x)
					}
				}
				delete(open, m.ProducerID)
			}
		case h.Transactional():
			r.skip[n] = true
			open[h.ProducerID] = append(open[h.ProducerID], n)
		}
		return nil
	})
}

var errPacked = errors.New("enough for one batch")

// next re-produces some batches of the branch.
func (r *reproducing) next(ctx context.Context) error {
	var build *record.Builder
	size, at := 0, r.to.Blocks
	err := r.p.WalkStranded(r.branch, at, func(n uint64, b []byte) error {
		if size > 0 && size+len(b) > packBytes || n-r.to.Blocks >= packBlocks {
			return errPacked
		}
		at = n + 1
		if r.skip[n] {
			return nil
		}
		if build == nil {
			h, err := record.ParseHeader(b)
			if err != nil {
				return err
			}
			build = record.NewBuilder(h.Compression(), 0)
		}
		size += len(b)
		return r.add(build, b)
	})
	if err != nil && !errors.Is(err, errPacked) {
		return err
	}
	if build != nil && build.Len() > 0 {
		if err := r.append(ctx, build); err != nil {
			return err
		}
	}
	r.to.Blocks = at
	return r.p.MarkStranded(r.branch, r.to)
}

// add adds the records of a batch.
func (r *reproducing) add(build *record.Builder, batch []byte) error {
	var in record.Reader
	if err := in.Open(batch, record.Limits{MaxDecompressed: r.s.cfg.MaxDecompressed}); err != nil {
		return err
	}
	h := in.Header()
	var x record.Record
	for {
		ok, err := in.Next(&x)
		if err != nil || !ok {
			return err
		}
		from := fmt.Sprintf("%s/%d/%d/%d", r.topic, r.branch.Partition.Partition, h.LeaderEpoch, x.Offset)
		headers := append(slices.Clone(x.Headers), record.RecordHeader{Key: StrandedHeader, Value: []byte(from)})
		build.Add(x.Timestamp, x.Key, x.Value, headers)
	}
}

// append appends a batch where the partition is led, and waits.
func (r *reproducing) append(ctx context.Context, build *record.Builder) error {
	n := build.Len()
	b := build.Build(nil)
	record.SetProducer(b, r.to.Producer, r.to.Epoch, int32(r.to.Records&(1<<31-1)))
	type answer struct {
		partition.Result
		err error
	}
	done := make(chan answer, 1)
	tp := r.branch.Partition
	r.s.Append(tp.Topic, tp.Partition, -1, reproduceWait, partition.Append{Batches: b, Done: func(res partition.Result, err error) { done <- answer{res, err} }})
	var a answer
	select {
	case a = <-done:
	case <-ctx.Done():
		return ctx.Err() // it may be there: the next time finds it
	}
	if errors.Is(a.err, partition.ErrOutOfOrder) || errors.Is(a.err, partition.ErrUnknownProducer) {
		return fmt.Errorf("%w: %w", ErrReproduced, a.err)
	}
	if a.err != nil {
		return a.err
	}
	if r.to.Records == 0 {
		r.to.First = a.Base
	}
	r.to.End = a.Base + int64(n)
	r.to.Records += uint64(n)
	return nil
}

// Discard removes a branch from this node for good.
func (s *Store) Discard(tp lattice.TopicPartition, id string) error {
	s.reproduceMu.Lock()
	defer s.reproduceMu.Unlock()
	p, err := s.Partition(tp.Topic, tp.Partition)
	if err != nil {
		return err
	}
	b, err := p.FindStranded(id)
	if err != nil {
		return err
	}
	return p.DiscardStranded(b)
}
