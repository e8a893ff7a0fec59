package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"time"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// maxDecompressed bounds what one batch may unpack to, in bytes.
const maxDecompressed = 256 << 20

// giveUp is how long a consumer that does not follow waits for a node that went away.
const giveUp = 30 * time.Second

// ConsumerOptions says what a Consumer reads. Only Topic is required.
type ConsumerOptions struct {
	Topic      string  // name or id
	Partitions []int32 // none: all
	From       Position
	// Starts are exceptions from From, by partition.
	Starts map[int32]int64
	// Follow waits for what is appended later, until the context ends. Without
	// it the consumer ends at what was committed when it began.
	Follow bool
	// MaxRecords ends the consumer after so many records. 0: no limit.
	MaxRecords int64
	// ChunkBytes is the size of one message from the node, about. 0: the node's choice.
	ChunkBytes int
	// SkipExpired goes on at the start of a partition when records expired
	// before they could be read, and tells Skipped. Without it that is an error
	// of kind OutOfRange.
	SkipExpired bool
	Skipped     func(partition int32, from, to int64)
	// CaughtUp is called when everything that is committed was received, each
	// time that happens. It and the other callbacks run inside Next.
	CaughtUp func()
	// Retrying is called before the node is asked again after it went away.
	Retrying func(error)
}

// Consumer reads the records of one topic: in order within a partition, the
// partitions taking turns. When the node goes away it asks again, and goes on
// where it was: for ever if it follows, otherwise for half a minute. Not safe
// for concurrent use.
type Consumer struct {
	c      *Client
	o      ConsumerOptions
	ctx    context.Context
	cancel context.CancelFunc

	stream   *connect.ServerStreamForClient[pb.ConsumeResponse]
	topic    string
	begins   []PartitionOffsets
	position map[int32]int64
	next     int64 // position[partition], while a chunk is being read
	left     int64 // records until MaxRecords, -1: no limit

	partition int32
	chunk     []byte // batches not opened yet
	reader    record.Reader
	inBatch   bool
	unread    int32 // records of the batch
	rec       record.Record
	err       error
}

// Consumer starts to read. It lives until ctx ends, Close is called, or Next
// returns an error. Kinds NotFound, OutOfRange, NotYet, Invalid.
func (c *Client) Consumer(ctx context.Context, o ConsumerOptions) (*Consumer, error) {
	r := &Consumer{c: c, o: o, topic: o.Topic, position: maps.Clone(o.Starts), left: -1}
	if r.position == nil {
		r.position = map[int32]int64{}
	}
	if o.MaxRecords > 0 {
		r.left = o.MaxRecords
	}
	r.ctx, r.cancel = context.WithCancel(ctx)
	if err := r.connect(); err != nil {
		r.cancel()
		return nil, fmt.Errorf("consume %s: %w", o.Topic, err)
	}
	return r, nil
}

// connect opens the stream and reads its first message.
func (r *Consumer) connect() error {
	req := &pb.ConsumeRequest{
		Store: r.c.store, Topic: r.o.Topic, Partitions: r.o.Partitions, From: r.o.From.message(), Follow: r.o.Follow,
		ChunkBytes: int32(r.o.ChunkBytes), SkipExpired: r.o.SkipExpired,
	}
	if r.left > 0 {
		req.MaxRecords = r.left
	}
	for p, offset := range r.position {
		req.Starts = append(req.Starts, &pb.PartitionOffset{Partition: p, Offset: offset})
	}
	stream, err := r.c.logs.Consume(r.ctx, req)
	if err != nil {
		return r.c.failure(err)
	}
	if !stream.Receive() {
		err := r.c.failure(stream.Err())
		stream.Close()
		if err == nil {
			err = lattice.E(lattice.Unavailable, errors.New("the node ended the stream at once"))
		}
		return err
	}
	started := stream.Msg().GetStarted()
	if started == nil {
		stream.Close()
		return lattice.E(lattice.Internal, errors.New("the node did not tell where the stream starts"))
	}
	r.stream = stream
	first := r.begins == nil
	for _, at := range started.Partitions {
		if first {
			r.begins = append(r.begins, PartitionOffsets{Partition: at.Partition, Offset: at.Offset, Start: at.Start, Committed: at.Committed})
		}
		r.position[at.Partition] = at.Offset
	}
	if started.TopicId != "" {
		r.o.Topic = started.TopicId // the same incarnation when we come back
	}
	return nil
}

// Begins tells where the consumer began, and what was committed then, by partition.
func (r *Consumer) Begins() []PartitionOffsets { return r.begins }

// Positions returns the offset of the next record in each partition.
func (r *Consumer) Positions() map[int32]int64 {
	all := maps.Clone(r.position)
	if r.inBatch || len(r.chunk) > 0 {
		all[r.partition] = r.next
	}
	return all
}

// Pending reports that Next has records at hand and need not wait for the node:
// a good moment to flush output is when it has none.
func (r *Consumer) Pending() bool { return r.unread > 0 || len(r.chunk) > 0 }

// Next returns the next record; its bytes are valid until the following Next
// (Clone keeps them). io.EOF: everything that was asked for was read. After an
// error it returns the same error again.
func (r *Consumer) Next() (Record, error) {
	for r.err == nil {
		if r.left == 0 {
			r.err = io.EOF
			break
		}
		ok, err := r.step()
		if err != nil {
			r.err = err
		} else if ok {
			if r.left > 0 {
				r.left--
			}
			return r.record(), nil
		}
	}
	r.cancel()
	return Record{}, r.err
}

// All yields records until the end or an error, which is the last thing it
// yields. Bytes are valid within one turn of the loop.
func (r *Consumer) All() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			rec, err := r.Next()
			if err == io.EOF {
				return
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the consumer.
func (r *Consumer) Close() error {
	r.cancel()
	if r.err == nil {
		r.err = lattice.E(lattice.Conflict, fmt.Errorf("consume %s: the consumer is closed", r.topic))
	}
	if r.stream != nil {
		// The stream was cut short on purpose; how it ends says nothing.
		_ = r.stream.Close()
		r.stream = nil
	}
	return nil
}

// step reads one record into r.rec, or moves one batch or message on.
func (r *Consumer) step() (bool, error) {
	switch {
	case r.inBatch:
		return r.nextRecord()
	case len(r.chunk) > 0:
		return false, r.nextBatch()
	default:
		return false, r.receive()
	}
}

func (r *Consumer) nextRecord() (bool, error) {
	ok, err := r.reader.Next(&r.rec)
	if err != nil {
		return false, fmt.Errorf("consume %s/%d at %d: %w", r.topic, r.partition, r.next, err)
	}
	if !ok {
		r.inBatch, r.unread = false, 0
		return false, nil
	}
	r.unread--
	if r.rec.Offset < r.next {
		return false, nil // the batch begins before what was asked for
	}
	r.next = r.rec.Offset + 1
	return true, nil
}

func (r *Consumer) nextBatch() error {
	batch, rest, h, err := record.Next(r.chunk)
	if err == nil {
		err = record.CheckCRC(batch)
	}
	if err == nil && !h.Control() {
		err = r.reader.Open(batch, record.Limits{MaxDecompressed: maxDecompressed})
		r.inBatch, r.unread = true, h.Count
	}
	if err != nil {
		return fmt.Errorf("consume %s/%d at %d: %w", r.topic, r.partition, r.next, err)
	}
	r.chunk = rest
	return nil
}

// receive takes the next message from the node.
func (r *Consumer) receive() error {
	if !r.stream.Receive() {
		err := r.c.failure(r.stream.Err())
		_ = r.stream.Close() // its error is the one we have
		switch {
		case r.ctx.Err() != nil:
			return lattice.E(lattice.Unavailable, fmt.Errorf("consume %s: %w", r.topic, context.Cause(r.ctx)))
		case err == nil && !r.o.Follow:
			return io.EOF
		case err != nil && !retriable(err):
			return fmt.Errorf("consume %s: %w", r.topic, err)
		}
		return r.reconnect(err)
	}
	switch e := r.stream.Msg().Event.(type) {
	case *pb.ConsumeResponse_Chunk:
		r.partition, r.chunk = e.Chunk.Partition, e.Chunk.Batches
		r.next = r.position[r.partition]
		r.position[r.partition] = e.Chunk.NextOffset
	case *pb.ConsumeResponse_Skipped:
		r.position[e.Skipped.Partition] = e.Skipped.To
		if r.o.Skipped != nil {
			r.o.Skipped(e.Skipped.Partition, e.Skipped.From, e.Skipped.To)
		}
	case *pb.ConsumeResponse_CaughtUp:
		if r.o.CaughtUp != nil {
			r.o.CaughtUp()
		}
	}
	return nil
}

// reconnect asks the node again until it answers. All that was received has
// been handed out by now, so the positions are where to go on.
func (r *Consumer) reconnect(err error) error {
	if err == nil {
		err = lattice.E(lattice.Unavailable, errors.New("the node ended the stream"))
	}
	begun, pause := time.Now(), 20*time.Millisecond
	for {
		if r.o.Retrying != nil {
			r.o.Retrying(err)
		}
		select {
		case <-r.ctx.Done():
			return lattice.E(lattice.Unavailable, fmt.Errorf("consume %s: %w", r.topic, context.Cause(r.ctx)))
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
		if err = r.connect(); err == nil {
			return nil
		}
		if !retriable(err) || !r.o.Follow && time.Since(begun) > giveUp {
			return fmt.Errorf("consume %s: %w", r.topic, err)
		}
	}
}

func (r *Consumer) record() Record {
	rec := Record{Topic: r.topic, Partition: r.partition, Offset: r.rec.Offset, Key: r.rec.Key, Value: r.rec.Value}
	if r.rec.Timestamp >= 0 {
		rec.Time = time.UnixMilli(r.rec.Timestamp)
	}
	if len(r.rec.Headers) > 0 {
		rec.Headers = make([]Header, len(r.rec.Headers))
		for i, h := range r.rec.Headers {
			rec.Headers[i] = Header{h.Key, h.Value}
		}
	}
	return rec
}
