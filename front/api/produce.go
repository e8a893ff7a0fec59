package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

type logService struct {
	*api
	next    atomic.Uint32 // partition for records without a key
	buffers sync.Pool     // *[]byte of ChunkBytes, for Consume
}

func newLogService(a *api) *logService { return &logService{api: a} }

// leaderWait is how long the answer of another node may take that leads a partition.
const leaderWait = 30 * time.Second

// appendChunk appends batches, where the partition is led, and calls done once, with
// the acknowledgement. done must not block. The partition owns the bytes from here on.
func appendChunk(s *store.Store, t store.Topic, number int32, batches []byte, done func(*pb.Ack)) {
	records, offsets, err := count(batches)
	if err == nil {
		err = checkNumber(t, number)
	}
	if err != nil {
		done(refusal(number, err))
		return
	}
	s.Append(t.ID, number, -1, leaderWait, partition.Append{Batches: batches, Done: func(r partition.Result, err error) {
		if err != nil {
			done(refusal(number, fmt.Errorf("append to %s/%d: %w", t.Name, number, err)))
			return
		}
		done(&pb.Ack{
			Partition: number, FirstOffset: r.Base, LastOffset: r.Base + offsets - 1, Records: records,
			Duplicate: r.Duplicate, AppendTime: r.AppendTime, Start: r.Start,
		})
	}})
}

func refusal(number int32, err error) *pb.Ack {
	f, _ := detail(err)
	return &pb.Ack{Partition: number, FirstOffset: -1, LastOffset: -1, AppendTime: -1, Failure: f}
}

// count returns how many records a chunk holds and how many offsets it takes.
func count(batches []byte) (records, offsets int64, err error) {
	if len(batches) == 0 {
		return 0, 0, lattice.E(lattice.Invalid, errors.New("the chunk holds no record batch"))
	}
	for i := 0; len(batches) > 0; i++ {
		_, rest, h, err := record.Next(batches)
		if err != nil {
			return 0, 0, fmt.Errorf("batch %d of the chunk: %w", i, err)
		}
		records += int64(h.Count)
		offsets += int64(h.LastOffsetDelta) + 1
		batches = rest
	}
	return records, offsets, nil
}

func (a *logService) ProduceBatches(ctx context.Context, r *pb.ProduceBatchesRequest) (*pb.ProduceBatchesResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	ack, err := appendWait(ctx, s, t, r.Partition, r.Batches)
	if err != nil {
		return nil, err
	}
	if ack.Failure != nil {
		return nil, ackError(ack)
	}
	return &pb.ProduceBatchesResponse{Ack: ack}, nil
}

// appendWait appends and waits. When ctx ends first the chunk may still be written.
func appendWait(ctx context.Context, s *store.Store, t store.Topic, number int32, batches []byte) (*pb.Ack, error) {
	acks := make(chan *pb.Ack, 1)
	appendChunk(s, t, number, batches, func(ack *pb.Ack) { acks <- ack })
	select {
	case ack := <-acks:
		return ack, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ackError is a refused chunk as the error of a call.
func ackError(ack *pb.Ack) error {
	for _, k := range lattice.Kinds() {
		if w, _ := wireOf(k); w.kind == ack.Failure.Kind {
			return lattice.E(k, hinted(errors.New(ack.Failure.Message), ack.Failure.Hint))
		}
	}
	return errors.New(ack.Failure.Message)
}

// ProduceRecords packs records into one batch for each partition.
func (a *logService) ProduceRecords(ctx context.Context, r *pb.ProduceRecordsRequest) (*pb.ProduceRecordsResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	if len(r.Records) == 0 {
		return nil, lattice.E(lattice.Invalid, errors.New("the request holds no records"))
	}
	keyless := int32(a.next.Add(1) % uint32(t.Partitions))
	builders := map[int32]*record.Builder{}
	var order []int32
	now := time.Now().UnixMilli()
	for i, rec := range r.Records {
		number := keyless
		switch {
		case r.Partition != nil:
			number = *r.Partition
		case rec.Key != nil:
			number = record.PartitionForKey(rec.Key, t.Partitions)
		}
		if builders[number] == nil {
			builders[number] = record.NewBuilder(record.None, 0)
			order = append(order, number)
		}
		ms := now
		if rec.Time != nil {
			if err := rec.Time.CheckValid(); err != nil {
				return nil, lattice.E(lattice.Invalid, fmt.Errorf("record %d: time: %w", i, err))
			}
			ms = rec.Time.AsTime().UnixMilli()
		}
		var headers []record.RecordHeader
		for _, h := range rec.Headers {
			headers = append(headers, record.RecordHeader{Key: h.Key, Value: h.Value})
		}
		builders[number].Add(ms, rec.Key, rec.Value, headers)
	}
	res := &pb.ProduceRecordsResponse{}
	for _, number := range order {
		ack, err := appendWait(ctx, s, t, number, builders[number].Build(nil))
		if err != nil {
			return nil, err
		}
		if ack.Failure != nil && len(order) == 1 {
			return nil, ackError(ack)
		}
		res.Acks = append(res.Acks, ack)
	}
	return res, nil
}

func (a *logService) NewProducerID(ctx context.Context, r *pb.NewProducerIDRequest) (*pb.NewProducerIDResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	id, err := s.NewProducerID(ctx)
	if err != nil {
		return nil, fmt.Errorf("new producer id: %w", err)
	}
	return &pb.NewProducerIDResponse{ProducerId: id}, nil
}

// Produce reads chunks in the caller's goroutine and sends acknowledgements in
// another one, so that neither waits for the other.
func (a *logService) Produce(ctx context.Context, stream *connect.BidiStream[pb.ProduceRequest, pb.ProduceResponse]) error {
	first, err := stream.Receive()
	if err != nil {
		if errors.Is(err, io.EOF) {
			return lattice.E(lattice.Invalid, errors.New("produce: the stream ended before its header"))
		}
		return err
	}
	header := first.GetHeader()
	if header == nil {
		return lattice.E(lattice.Invalid, errors.New("produce: the first message must be the header"))
	}
	s, t, err := a.topic(header.Store, header.Topic)
	if err != nil {
		return err
	}
	w := &ackWindow{limit: a.cfg.Limits.UnackedBytes, changed: make(chan struct{}, 1), ready: make(chan struct{}, 1)}
	sent := make(chan error, 1)
	go func() { sent <- w.send(ctx, stream) }()
	received := a.receiveChunks(ctx, s, t, stream, w)
	w.end()
	// Chunks that were read are acknowledged even when the caller's side failed.
	return errors.Join(received, <-sent)
}

func (a *logService) receiveChunks(ctx context.Context, s *store.Store, t store.Topic, stream *connect.BidiStream[pb.ProduceRequest, pb.ProduceResponse], w *ackWindow) error {
	for {
		m, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		chunk := m.GetChunk()
		if chunk == nil {
			return lattice.E(lattice.Invalid, errors.New("produce: want a chunk behind the header"))
		}
		id, size := chunk.Id, len(chunk.Batches)
		if err := w.enter(ctx, size); err != nil {
			return err
		}
		appendChunk(s, t, chunk.Partition, chunk.Batches, func(ack *pb.Ack) {
			ack.Id = id
			w.leave(size, ack)
		})
	}
}

// ackWindow bounds the chunks under way and queues their acknowledgements, of
// which there are no more than chunks.
type ackWindow struct {
	limit   int
	changed chan struct{} // a token: bytes left
	ready   chan struct{} // a token: acks came, or the end

	mu     sync.Mutex
	bytes  int
	chunks int
	acks   []*pb.Ack
	ended  bool
}

// maxUnackedChunks bounds chunks that are tiny.
const maxUnackedChunks = 4096

// enter waits until there is room. One chunk always has.
func (w *ackWindow) enter(ctx context.Context, size int) error {
	for {
		w.mu.Lock()
		if w.chunks == 0 || w.bytes+size <= w.limit && w.chunks < maxUnackedChunks {
			w.bytes += size
			w.chunks++
			w.mu.Unlock()
			return nil
		}
		w.mu.Unlock()
		select {
		case <-w.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave queues the acknowledgement. Its room is free once it is sent.
func (w *ackWindow) leave(size int, ack *pb.Ack) {
	w.mu.Lock()
	w.bytes -= size
	w.acks = append(w.acks, ack)
	w.mu.Unlock()
	signal(w.ready)
}

func (w *ackWindow) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	signal(w.ready)
}

// send sends acknowledgements until the end and the last chunk's.
func (w *ackWindow) send(ctx context.Context, stream *connect.BidiStream[pb.ProduceRequest, pb.ProduceResponse]) error {
	for {
		w.mu.Lock()
		acks := w.acks
		w.acks = nil
		done := w.ended && w.chunks == 0
		w.mu.Unlock()
		if done {
			return nil
		}
		for _, ack := range acks {
			if err := stream.Send(&pb.ProduceResponse{Ack: ack}); err != nil {
				return err
			}
		}
		w.mu.Lock()
		w.chunks -= len(acks)
		w.mu.Unlock()
		signal(w.changed)
		if len(acks) > 0 {
			continue
		}
		select {
		case <-w.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
