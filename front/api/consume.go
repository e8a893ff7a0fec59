package api

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

func (a *logService) Offsets(ctx context.Context, r *pb.OffsetsRequest) (*pb.OffsetsResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	all, err := places(s, t, r.Partitions)
	if err != nil {
		return nil, err
	}
	res := &pb.OffsetsResponse{}
	for _, p := range all {
		offset, err := p.resolve(ctx, r.At)
		if err != nil {
			return nil, fmt.Errorf("topic %q: %w", t.Name, err)
		}
		b := p.Bounds()
		res.Offsets = append(res.Offsets, &pb.OffsetsResponse_Offset{Partition: p.number, Offset: offset, Start: b.Start, Committed: b.Committed})
	}
	return res, nil
}

type consumeStream = connect.ServerStream[pb.ConsumeResponse]

// reading is one Consume call.
type reading struct {
	topic  string
	alive  func(number int32) error // whether the partition still exists
	stream *consumeStream
	parts  []*part
	follow bool
	skip   bool
	left   int64 // records to send, -1: no limit
	chunk  int
	log    *logService

	wake  chan struct{} // a token: ready is not empty
	mu    sync.Mutex
	ready []*part // partitions that may have something to read
}

// part is one partition of a reading.
type part struct {
	place
	at   int64
	stop int64 // where to end; following: none
	wait func()
	idle int // times in a row that it was woken for nothing
}

// maxIdle is how often a partition may wake its reader for nothing: a truncation
// does, but a closed partition does without end.
const maxIdle = 8

func (a *logService) Consume(ctx context.Context, req *pb.ConsumeRequest, stream *consumeStream) error {
	s, t, err := a.topic(req.Store, req.Topic)
	if err != nil {
		return err
	}
	r, err := a.newReading(ctx, s, t, req)
	if err != nil {
		return fmt.Errorf("consume %q: %w", t.Name, err)
	}
	r.stream = stream
	started := &pb.ConsumeStarted{TopicId: t.ID.String()}
	for _, p := range r.parts {
		b := p.Bounds()
		started.Partitions = append(started.Partitions, &pb.ConsumeStarted_At{Partition: p.number, Offset: p.at, Committed: p.stop, Start: b.Start})
	}
	if err := stream.Send(&pb.ConsumeResponse{Event: &pb.ConsumeResponse_Started{Started: started}}); err != nil {
		return err
	}
	defer r.cancelWaits()
	return r.run(ctx)
}

func (a *logService) newReading(ctx context.Context, s *store.Store, t store.Topic, req *pb.ConsumeRequest) (*reading, error) {
	limits := a.cfg.Limits
	if req.MaxRecords < 0 || req.ChunkBytes < 0 {
		return nil, lattice.E(lattice.Invalid, errors.New("max_records and chunk_bytes must not be negative"))
	}
	alive := func(number int32) error {
		_, err := s.Partition(t.ID, number)
		return err
	}
	r := &reading{topic: t.Name, alive: alive, follow: req.Follow, skip: req.SkipExpired, left: -1, chunk: limits.ChunkBytes, log: a, wake: make(chan struct{}, 1)}
	if req.MaxRecords > 0 {
		r.left = req.MaxRecords
	}
	if req.ChunkBytes > 0 {
		r.chunk = min(int(req.ChunkBytes), limits.MaxChunkBytes)
	}
	all, err := places(s, t, req.Partitions)
	if err != nil {
		return nil, err
	}
	starts := make(map[int32]int64, len(req.Starts))
	for _, st := range req.Starts {
		starts[st.Partition] = st.Offset
	}
	for _, p := range all {
		from := req.From
		offset, given := starts[p.number]
		if given {
			from = &pb.Position{At: &pb.Position_Offset{Offset: offset}}
		}
		at, err := p.resolve(ctx, from)
		if lattice.KindOf(err) == lattice.OutOfRange && r.skip {
			err = nil // told as skipped by the first read
		}
		if err != nil {
			return nil, err
		}
		r.parts = append(r.parts, &part{place: p, at: at, stop: p.Bounds().Stable})
	}
	return r, nil
}

// run sends until the end, the limit, or the caller's leaving.
func (r *reading) run(ctx context.Context) error {
	queue := append([]*part(nil), r.parts...)
	for {
		for len(queue) > 0 {
			p := queue[0]
			queue = queue[1:]
			more, err := r.turn(ctx, p)
			if err != nil {
				return fmt.Errorf("consume %s/%d at %d: %w", r.topic, p.number, p.at, err)
			}
			if r.left == 0 {
				return nil
			}
			if more {
				queue = append(queue, p)
			} else if r.follow {
				r.arm(p)
			}
			if woken := r.take(); woken != nil {
				queue = append(queue, woken...)
			}
		}
		if !r.follow {
			return nil
		}
		if err := r.stream.Send(&pb.ConsumeResponse{Event: &pb.ConsumeResponse_CaughtUp{CaughtUp: &pb.ConsumeCaughtUp{}}}); err != nil {
			return err
		}
		for len(queue) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-r.wake:
				queue = r.take()
			}
		}
	}
}

// arm asks the partition to put p into the ready list when there is more.
func (r *reading) arm(p *part) {
	p.wait = p.WaitStable(p.at, 1, func() {
		r.mu.Lock()
		r.ready = append(r.ready, p)
		r.mu.Unlock()
		signal(r.wake)
	})
}

func (r *reading) take() []*part {
	r.mu.Lock()
	defer r.mu.Unlock()
	ready := r.ready
	r.ready = nil
	return ready
}

func (r *reading) cancelWaits() {
	for _, p := range r.parts {
		if p.wait != nil {
			p.wait()
		}
	}
}

// turn sends one chunk of p and reports whether there is more to read now. Readers
// see committed records only: nothing of a transaction that is open or aborted, and
// no marker.
func (r *reading) turn(ctx context.Context, p *part) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if !r.follow && p.at >= p.stop {
		return false, nil
	}
	slice, err := p.ReadStable(p.at, r.chunk)
	if lattice.KindOf(err) == lattice.OutOfRange && r.skip && err != nil {
		return true, r.skipExpired(p)
	}
	if err != nil {
		return false, err
	}
	if slice.Len() == 0 {
		slice.Release()
		return false, r.nothing(p)
	}
	p.idle = 0
	// A reader that waits holds no buffer; one that does not read, this one.
	buf := r.log.buffer(slice.Len(), r.chunk)
	defer r.log.release(buf)
	err = fill(slice, *buf)
	aborted := slice.Aborted()
	slice.Release() // not only behind Send, which waits for the caller
	if err != nil {
		return false, err
	}
	batches, next, err := r.cut(p, *buf, partition.InAborted(aborted))
	if err != nil {
		return false, err
	}
	if len(batches) == 0 && next == p.at { // a gap up to the end, or only what came after it
		p.at = max(p.at, p.stop)
		return false, nil
	}
	p.at = next
	committed := p.Bounds().Stable
	chunk := &pb.ConsumeChunk{Partition: p.number, Batches: batches, NextOffset: next, Committed: committed}
	if err := r.stream.Send(&pb.ConsumeResponse{Event: &pb.ConsumeResponse_Chunk{Chunk: chunk}}); err != nil {
		return false, err
	}
	if r.follow {
		return next < committed, nil
	}
	return next < p.stop, nil
}

// nothing tells a partition that has nothing new from one that has ended.
func (r *reading) nothing(p *part) error {
	if err := r.alive(p.number); err != nil {
		return err
	}
	if p.at > p.Bounds().Stable {
		return nil // the transactions before it end one by one
	}
	if p.idle++; p.idle > maxIdle {
		return lattice.E(lattice.Unavailable, errors.New("the partition is closed"))
	}
	return nil
}

// buffer returns a buffer of n bytes, with room for usual at least.
func (a *logService) buffer(n, usual int) *[]byte {
	buf, ok := a.buffers.Get().(*[]byte)
	if !ok || cap(*buf) < n {
		fresh := make([]byte, max(n, usual))
		buf = &fresh
	}
	*buf = (*buf)[:n]
	return buf
}

// release keeps a buffer for the next turn, unless one huge batch made it huge.
func (a *logService) release(buf *[]byte) {
	if cap(*buf) <= a.cfg.Limits.MaxChunkBytes {
		a.buffers.Put(buf)
	}
}

// fill reads a whole slice into buf, which has its length.
func fill(slice *partition.Slice, buf []byte) error {
	for at := 0; at < len(buf); {
		n, err := slice.NextChunk(buf[at:])
		if err != nil {
			return fmt.Errorf("read stored batches: %w", err)
		}
		at += n
	}
	return nil
}

// cut returns the batches to send of those at the start of b, moved together, and
// the offset behind them: none beyond p.stop unless following, none beyond the
// limit, and of transactions only what was committed.
func (r *reading) cut(p *part, b []byte, aborted func(record.Header) bool) ([]byte, int64, error) {
	next, used := p.at, 0
	for rest := b; len(rest) > 0 && r.left != 0; {
		batch, tail, h, err := record.Next(rest)
		if err != nil {
			return nil, 0, lattice.E(lattice.Corrupt, fmt.Errorf("stored batches: %w", err))
		}
		if !r.follow && h.BaseOffset >= p.stop {
			break
		}
		if h.Control() || aborted(h) {
			next, rest = max(next, h.NextOffset()), tail
			continue
		}
		if r.left > 0 {
			r.left -= min(r.left, int64(h.Count), h.NextOffset()-next)
		}
		next = max(next, h.NextOffset())
		used += copy(b[used:], batch)
		rest = tail
	}
	return b[:used], next, nil
}

func (r *reading) skipExpired(p *part) error {
	start := p.Bounds().Start
	if start <= p.at {
		return nil // moved meanwhile; read again
	}
	skipped := &pb.ConsumeSkipped{Partition: p.number, From: p.at, To: start}
	p.at = start
	return r.stream.Send(&pb.ConsumeResponse{Event: &pb.ConsumeResponse_Skipped{Skipped: skipped}})
}
