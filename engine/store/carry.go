package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
)

// carry brings the records of one partition of a fork to its origin.
//
// They are appended batch for batch, as long as the origin's log ends where the fork's
// batch begins: then they have the same offsets there. Otherwise they come behind what is
// there, and each record gets a header that says where it was. Batches of aborted
// transactions and markers are passed over; those of committed ones become plain. What
// belongs to a transaction that is under way in the fork, and what is behind it, waits.
//
// They are those of a producer whose number nobody else has, in sequence. So what a crash
// left of them is found by counting, and the log itself tells a batch that is there already.
type carry struct {
	fork, origin *Store
	topic        Topic
	budget       *int64

	from, to *partition.Partition
	records  *local
	at       broughtTo
	seq      int64 // records of the producer in the origin's log
	skip     int64 // of those from at.next on that are there already
	r        record.Reader
	limits   record.Limits
}

const carryBytes = 4 << 20 // that are under way at once

// run brings as much as the budget allows.
func (c *carry) run(ctx context.Context, n int32) (BroughtPartition, error) {
	tp := lattice.TopicPartition{Topic: c.topic.ID, Partition: n}
	out := BroughtPartition{Topic: c.topic.Name, Partition: tp}
	err := c.open(tp, &out)
	if err != nil {
		return out, err
	}
	b := c.from.Bounds()
	if c.at.next < b.Start { // the fork's own were truncated there
		out.Passed += b.Start - c.at.next
		c.at.next = b.Start
	}
	left := func() int64 { return max(0, b.End-c.at.next) }
	if left() == 0 && c.at.producer < 0 {
		return out, nil
	}
	if out.Why == "" && c.at.next < b.Stable {
		err = c.begin(ctx)
		for err == nil && c.at.next < b.Stable && *c.budget > 0 {
			err = c.step(ctx, b.Stable, &out)
		}
		var refused *refusedError
		switch {
		case errors.As(err, &refused):
			out.Why, err = refused.Error(), nil
		case err == nil:
			err = c.records.putBrought(tp, broughtTo{c.at.next, -1, -1})
		}
	}
	if out.Left = left(); out.Left > 0 && out.Why == "" && c.at.next >= b.Stable {
		out.Why = "a transaction is under way in the fork"
	}
	return out, err
}

// refusedError says why the origin does not take a partition's records.
type refusedError struct{ err error }

func (r *refusedError) Error() string { return r.err.Error() }

// open finds the partition on both sides, and how far it is brought back.
func (c *carry) open(tp lattice.TopicPartition, out *BroughtPartition) error {
	var err error
	if c.from, err = c.fork.Partition(tp.Topic, tp.Partition); err != nil {
		return err
	}
	if c.records, err = c.fork.ownRecords(); err != nil {
		return err
	}
	c.limits = record.Limits{MaxDecompressed: c.fork.cfg.MaxDecompressed}
	var ok bool
	if c.at, ok, err = c.records.broughtTo(tp); err != nil {
		return err
	}
	if !ok {
		end, _ := c.fork.fork.End(tp)
		c.at = broughtTo{end, -1, -1}
	}
	if t, ok := c.origin.TopicByID(tp.Topic); ok {
		out.Topic = t.Name
	}
	p, leader, err := c.origin.Route(tp.Topic, tp.Partition)
	switch {
	case errors.Is(err, ErrNoTopic):
		out.Why = "the topic was deleted there"
	case err != nil:
		out.Why = err.Error()
	case p == nil:
		out.Why = fmt.Sprintf("%s leads it there; lattice topic lead gives it to this node", leader.Short())
	}
	c.to = p
	return nil
}

// begin goes on with what a crash left under way, or begins anew.
func (c *carry) begin(ctx context.Context) (err error) {
	if c.at.producer >= 0 {
		c.seq, err = c.to.WrittenBy(c.at.producer, c.at.from)
		c.skip = c.seq
		return err
	}
	if c.at.producer, err = c.origin.NewProducerID(ctx); err != nil {
		return err
	}
	c.at.from = c.to.Bounds().End
	return c.records.putBrought(c.from.ID(), c.at)
}

// step brings some batches below limit, and waits until they are committed.
func (c *carry) step(ctx context.Context, limit int64, out *BroughtPartition) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s, err := c.from.ReadStable(c.at.next, carryBytes)
	if err != nil {
		return err
	}
	defer s.Release()
	if s.Len() == 0 {
		return lattice.E(lattice.Storage, fmt.Errorf("nothing is at offset %d", c.at.next))
	}
	aborted := partition.InAborted(s.Aborted())
	data := make([]byte, s.Len())
	for n := 0; n < len(data); {
		m, err := s.NextChunk(data[n:])
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		n += m
	}
	*c.budget -= int64(len(data))
	w := appended{c: c, out: out}
	next := c.at.next
	for rest := data; len(rest) > 0; {
		batch, tail, h, err := record.Next(rest)
		if err != nil {
			return errors.Join(err, w.wait())
		}
		if rest = tail; h.BaseOffset >= limit {
			break
		}
		if h.Control() || aborted(h) {
			out.Passed += h.NextOffset() - max(next, h.BaseOffset)
		} else if err := w.batch(batch, h, next); err != nil {
			return errors.Join(err, w.wait())
		}
		next = h.NextOffset()
	}
	if err := w.wait(); err != nil {
		return err
	}
	c.at.next = next
	return nil
}

// appended are appends to the origin that are under way.
type appended struct {
	c     *carry
	out   *BroughtPartition
	under []chan error
}

// wait waits until all are answered, and returns the first error.
func (w *appended) wait() error {
	var first error
	for _, answer := range w.under {
		if err := <-answer; err != nil && first == nil {
			first = &refusedError{err}
		}
	}
	w.under = nil
	return first
}

// batch appends one batch, of which records below offset next were brought before.
func (w *appended) batch(batch []byte, h record.Header, next int64) error {
	c := w.c
	plain := h.BaseOffset >= next && c.skip == 0 && !h.Transactional() && !h.LogAppendTime() && h.CheckProduced() == nil
	if plain {
		record.SetProducer(batch, c.at.producer, 0, sequence(c.seq))
		at := h.BaseOffset
		done, err := w.try(batch, &at)
		if done {
			c.seq += int64(h.Count)
			w.out.Same += int64(h.Count)
			return err
		}
	}
	all, err := c.read(batch, next)
	if err != nil {
		return err
	}
	for len(all) > 0 {
		n := min(len(all), maxCarriedRecords)
		if err := w.records(h.Compression(), all[:n]); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// maxCarriedRecords bounds what is made of a batch whose records get a header.
const maxCarriedRecords = 10_000

// records appends some records of one batch as one: where they were, or with a header.
func (w *appended) records(codec record.Codec, all []record.Record) error {
	c := w.c
	together := all[len(all)-1].Offset-all[0].Offset == int64(len(all)-1)
	build := func(headed bool) []byte {
		b := record.NewBuilder(codec, 0)
		for _, r := range all {
			headers := r.Headers
			if headed {
				headers = append(headers[:len(headers):len(headers)], record.RecordHeader{Key: forkHeader, Value: c.fork.forkHeaderValue(r.Offset)})
			}
			b.Add(r.Timestamp, r.Key, r.Value, headers)
		}
		out := b.Build(nil)
		record.SetProducer(out, c.at.producer, 0, sequence(c.seq))
		return out
	}
	n := int64(len(all))
	if together && c.to.Bounds().End == all[0].Offset {
		at := all[0].Offset
		if done, err := w.try(build(false), &at); done {
			c.seq += n
			w.out.Same += n
			return err
		}
	}
	_, err := w.try(build(true), nil)
	c.seq += n
	w.out.Moved += n
	return err
}

// try appends one batch; false: the origin's log does not end at offset at.
func (w *appended) try(batch []byte, at *int64) (done bool, err error) {
	answer := make(chan error, 1)
	w.c.to.Append(partition.Append{Batches: batch, Carried: true, All: true, At: at, Done: func(_ partition.Result, err error) { answer <- err }})
	select {
	case err := <-answer: // at once: it was refused, or is there
		switch {
		case at != nil && errors.Is(err, partition.ErrMoved):
			return false, nil
		case err != nil:
			return true, &refusedError{err}
		}
		return true, nil
	default:
		w.under = append(w.under, answer)
		return true, nil
	}
}

// read returns the records of a batch from offset next on, without those that the origin
// has already.
func (c *carry) read(batch []byte, next int64) ([]record.Record, error) {
	if err := c.r.Open(batch, c.limits); err != nil {
		return nil, err
	}
	var all []record.Record
	for {
		var r record.Record
		more, err := c.r.Next(&r)
		if err != nil {
			return nil, err
		}
		if !more {
			return all, nil
		}
		switch {
		case r.Offset < next:
		case c.skip > 0:
			c.skip--
		default:
			all = append(all, r)
		}
	}
}

// sequence is a producer's sequence number for its nth record: 31 bits.
func sequence(n int64) int32 { return int32(n % (math.MaxInt32 + 1)) }
