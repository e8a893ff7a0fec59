package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/record"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
	pbconnect "github.com/lattice-log/lattice/proto/lattice/v1/latticev1connect"
)

// fake is a node with one topic in memory, whose answers can be spoilt.
type fake struct {
	pbconnect.UnimplementedTopicServiceHandler
	pbconnect.UnimplementedLogServiceHandler

	partitions int32
	maxBytes   string
	// produced is called before a batch is taken (before) and after. An error is
	// the call's answer; nil to have none.
	produced func(before bool) error
	// hold makes followers wait at the end of the log, until it is closed.
	hold chan struct{}
	// cut is called before each chunk of a Consume stream is sent.
	cut func() error

	mu      sync.Mutex
	logs    map[int32][]byte
	ends    map[int32]int64
	sizes   []int
	last    map[[2]int64]int64 // (producer, partition) => next sequence
	nextID  int64
	streams int
}

func newFake(partitions int32) *fake {
	return &fake{partitions: partitions, logs: map[int32][]byte{}, ends: map[int32]int64{}, last: map[[2]int64]int64{}}
}

// dial serves f on a socket and returns a client for it.
func dial(t *testing.T, f *fake) *client.Client {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	serve(t, f, socket)
	c, err := client.Dial(client.Options{URL: "unix://" + socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func serve(t *testing.T, f *fake, socket string) *http.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(pbconnect.NewTopicServiceHandler(f))
	mux.Handle(pbconnect.NewLogServiceHandler(f))
	srv := &http.Server{Handler: mux, Protocols: new(http.Protocols)}
	srv.Protocols.SetHTTP1(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return srv
}

func refusal(code connect.Code, kind pb.Kind, message, hint string) error {
	e := connect.NewError(code, errors.New(message))
	d, err := connect.NewErrorDetail(&pb.Failure{Kind: kind, Message: message, Hint: hint})
	if err != nil {
		panic(err)
	}
	e.AddDetail(d)
	return e
}

func (f *fake) Describe(_ context.Context, r *pb.TopicServiceDescribeRequest) (*pb.TopicServiceDescribeResponse, error) {
	if r.Topic != "events" && r.Topic != "00" {
		return nil, refusal(connect.CodeNotFound, pb.Kind_KIND_NOT_FOUND, "no topic "+r.Topic, "see lattice topic list")
	}
	res := &pb.TopicServiceDescribeResponse{Topic: &pb.Topic{Name: "events", Id: "00", Partitions: f.partitions}}
	if f.maxBytes != "" {
		res.Config = append(res.Config, &pb.ConfigEntry{Name: "max.message.bytes", Value: f.maxBytes})
	}
	return res, nil
}

func (f *fake) NewProducerID(context.Context, *pb.NewProducerIDRequest) (*pb.NewProducerIDResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nextID++
	return &pb.NewProducerIDResponse{ProducerId: f.nextID}, nil
}

func (f *fake) ProduceBatches(_ context.Context, r *pb.ProduceBatchesRequest) (*pb.ProduceBatchesResponse, error) {
	if f.produced != nil {
		if err := f.produced(true); err != nil {
			return nil, err
		}
	}
	ack, err := f.take(r)
	if err != nil {
		return nil, err
	}
	if f.produced != nil {
		if err := f.produced(false); err != nil {
			return nil, err
		}
	}
	return &pb.ProduceBatchesResponse{Ack: ack}, nil
}

// take appends one batch as a node would: a repeated one only once.
func (f *fake) take(r *pb.ProduceBatchesRequest) (*pb.Ack, error) {
	b, rest, h, err := record.Next(r.Batches)
	if err == nil {
		err = record.CheckCRC(b)
	}
	if err != nil || len(rest) > 0 {
		return nil, refusal(connect.CodeInvalidArgument, pb.Kind_KIND_INVALID, "not one good batch", "")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	n := int64(h.Count)
	if h.Idempotent() {
		key := [2]int64{h.ProducerID, int64(r.Partition)}
		switch next := f.last[key]; {
		case int64(h.BaseSequence)+n == next:
			return &pb.Ack{Partition: r.Partition, FirstOffset: f.ends[r.Partition] - n, Records: n, Duplicate: true, AppendTime: -1}, nil
		case int64(h.BaseSequence) != next:
			return nil, refusal(connect.CodeAborted, pb.Kind_KIND_FENCED, "out of sequence", "")
		}
		f.last[key] = int64(h.BaseSequence) + n
	}
	base := f.ends[r.Partition]
	record.Place(b, base, 1)
	f.logs[r.Partition] = append(f.logs[r.Partition], b...)
	f.ends[r.Partition] += n
	f.sizes = append(f.sizes, len(b))
	return &pb.Ack{Partition: r.Partition, FirstOffset: base, LastOffset: base + n - 1, Records: n, AppendTime: -1}, nil
}

// Consume sends the log as it is, batch by batch, and ends.
func (f *fake) Consume(ctx context.Context, r *pb.ConsumeRequest, stream *connect.ServerStream[pb.ConsumeResponse]) error {
	f.mu.Lock()
	f.streams++
	at := map[int32]int64{}
	started := &pb.ConsumeStarted{TopicId: "00"}
	for p := range f.partitions {
		at[p] = r.From.GetOffset()
		for _, s := range r.Starts {
			if s.Partition == p {
				at[p] = s.Offset
			}
		}
		started.Partitions = append(started.Partitions, &pb.ConsumeStarted_At{Partition: p, Offset: at[p], Committed: f.ends[p]})
	}
	f.mu.Unlock()
	if err := stream.Send(&pb.ConsumeResponse{Event: &pb.ConsumeResponse_Started{Started: started}}); err != nil {
		return err
	}
	for p := range f.partitions {
		f.mu.Lock()
		rest := append([]byte(nil), f.logs[p]...)
		f.mu.Unlock()
		for len(rest) > 0 {
			b, tail, h, err := record.Next(rest)
			if err != nil {
				return err
			}
			rest = tail
			if h.NextOffset() <= at[p] {
				continue
			}
			if f.cut != nil {
				if err := f.cut(); err != nil {
					return err
				}
			}
			chunk := &pb.ConsumeChunk{Partition: p, Batches: b, NextOffset: h.NextOffset()}
			if err := stream.Send(&pb.ConsumeResponse{Event: &pb.ConsumeResponse_Chunk{Chunk: chunk}}); err != nil {
				return err
			}
		}
	}
	if f.hold == nil || !r.Follow {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-f.hold:
		return context.Canceled // as a node that stops
	}
}

// values returns what partition p holds, in order.
func (f *fake) values(t *testing.T, p int32) []string {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	var reader record.Reader
	for rest := f.logs[p]; len(rest) > 0; {
		b, tail, _, err := record.Next(rest)
		if err != nil {
			t.Fatal(err)
		}
		if err := reader.Open(b, record.Limits{}); err != nil {
			t.Fatal(err)
		}
		var rec record.Record
		for {
			ok, err := reader.Next(&rec)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			all = append(all, string(rec.Value))
		}
		rest = tail
	}
	return all
}

// dialWith serves topics alone.
func dialWith(t *testing.T, topics pbconnect.TopicServiceHandler) *client.Client {
	t.Helper()
	_, handler := pbconnect.NewTopicServiceHandler(topics)
	srv := httptest.NewUnstartedServer(handler)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(srv.Close)
	c, err := client.Dial(client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
