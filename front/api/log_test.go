package api_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/front/api"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
	pbconnect "github.com/lattice-log/lattice/proto/lattice/v1/latticev1connect"
	"github.com/lattice-log/lattice/storage/disk"
)

// fill makes a topic and writes n records to it, round robin, value = running number.
func fill(tb testing.TB, c *client.Client, topic string, partitions int32, n int) {
	tb.Helper()
	if _, err := c.CreateTopic(tb.Context(), client.NewTopic{Name: topic, Partitions: partitions}); err != nil {
		tb.Fatal(err)
	}
	more(tb, c, topic, partitions, n)
}

func more(tb testing.TB, c *client.Client, topic string, partitions int32, n int) {
	tb.Helper()
	p, err := c.Producer(tb.Context(), client.ProducerOptions{Topic: topic, BatchBytes: 400, Partition: client.SamePartition()})
	if err != nil {
		tb.Fatal(err)
	}
	for i := range n {
		r := client.Record{Partition: int32(i) % partitions, Key: []byte("k"), Value: []byte(fmt.Sprint(i))}
		if err := p.SendAsync(tb.Context(), r, nil); err != nil {
			tb.Fatal(err)
		}
	}
	if err := p.Close(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

func TestProduceConsume(t *testing.T) {
	_, c, _ := node(t)
	fill(t, c, "events", 3, 300)
	for _, o := range []client.ConsumerOptions{
		{}, {ChunkBytes: 1}, {From: client.Offset(40)}, {MaxRecords: 17}, {Partitions: []int32{2, 0}},
		{From: client.Last(5)}, {From: client.End()}, {From: client.End(), Starts: map[int32]int64{1: 90}},
	} {
		o.Topic = "events"
		r, err := c.Consumer(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		at := map[int32]int64{}
		for _, b := range r.Begins() {
			want += int(b.Committed - b.Offset)
			at[b.Partition] = b.Offset
		}
		if o.MaxRecords > 0 {
			want = int(o.MaxRecords)
		}
		n := 0
		for rec, err := range r.All() {
			if err != nil {
				t.Fatal(err)
			}
			if rec.Offset != at[rec.Partition] || string(rec.Value) != fmt.Sprint(rec.Offset*3+int64(rec.Partition)) {
				t.Fatalf("%+v: record %+v, want offset %d", o, rec, at[rec.Partition])
			}
			at[rec.Partition]++
			n++
		}
		if n != want {
			t.Errorf("%+v: %d records, want %d", o, n, want)
		}
		r.Close()
	}
}

func TestConsumeRefusals(t *testing.T) {
	_, c, _ := node(t)
	fill(t, c, "events", 1, 10)
	if _, err := c.TruncateTopic(t.Context(), "events", client.Offset(4)); err != nil {
		t.Fatal(err)
	}
	for what, tc := range map[string]struct {
		o    client.ConsumerOptions
		kind lattice.Kind
	}{
		"no topic":        {client.ConsumerOptions{Topic: "nope"}, lattice.NotFound},
		"no partition":    {client.ConsumerOptions{Topic: "events", Partitions: []int32{1}}, lattice.NotFound},
		"below the start": {client.ConsumerOptions{Topic: "events", From: client.Offset(1)}, lattice.OutOfRange},
		"above the end":   {client.ConsumerOptions{Topic: "events", From: client.Offset(11)}, lattice.NotYet},
		"negative last":   {client.ConsumerOptions{Topic: "events", From: client.Last(-1)}, lattice.Invalid},
	} {
		_, err := c.Consumer(t.Context(), tc.o)
		wantKind(t, what, err, tc.kind)
	}
	var skipped []int64
	r, err := c.Consumer(t.Context(), client.ConsumerOptions{
		Topic: "events", From: client.Offset(1), SkipExpired: true,
		Skipped: func(_ int32, from, to int64) { skipped = append(skipped, from, to) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if rec, err := r.Next(); err != nil || rec.Offset != 4 || !slices.Equal(skipped, []int64{1, 4}) {
		t.Errorf("record %+v, %v, skipped %v", rec, err, skipped)
	}
}

// A follower gets what is appended, when it is appended.
func TestFollow(t *testing.T) {
	_, c, _ := node(t)
	fill(t, c, "events", 2, 4)
	caught := 0
	r, err := c.Consumer(t.Context(), client.ConsumerOptions{Topic: "events", Follow: true, MaxRecords: 24, CaughtUp: func() { caught++ }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range 24 {
		if i == 4 || i == 14 {
			more(t, c, "events", 2, 10)
		}
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("after the limit: %v", err)
	}
	if caught == 0 {
		t.Error("never caught up")
	}
}

// A deleted topic ends its followers.
func TestFollowDeletedTopic(t *testing.T) {
	_, c, _ := node(t)
	fill(t, c, "events", 1, 1)
	r, err := c.Consumer(t.Context(), client.ConsumerOptions{Topic: "events", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTopic(t.Context(), "events"); err != nil {
		t.Fatal(err)
	}
	_, err = r.Next()
	wantKind(t, "next after deletion", err, lattice.NotFound)
}

func logClient(t *testing.T, url string) pbconnect.LogServiceClient {
	t.Helper()
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	return pbconnect.NewLogServiceClient(&http.Client{Transport: tr}, url)
}

func produceStream(t *testing.T, url string) *connect.BidiStreamForClientSimple[pb.ProduceRequest, pb.ProduceResponse] {
	t.Helper()
	stream, err := logClient(t, url).Produce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func batchOf(n int, value string) []byte {
	b := record.NewBuilder(record.None, 0)
	for range n {
		b.Add(time.Now().UnixMilli(), nil, []byte(value), nil)
	}
	return b.Build(nil)
}

// The stream acknowledges each chunk, in order for each partition; a refused one
// ends nothing.
func TestProduceStream(t *testing.T) {
	_, c, url := node(t)
	fill(t, c, "events", 2, 0)
	stream := produceStream(t, url)
	send := func(m *pb.ProduceRequest) {
		t.Helper()
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	chunk := func(id uint64, partition int32, batches []byte) {
		t.Helper()
		send(&pb.ProduceRequest{Message: &pb.ProduceRequest_Chunk{Chunk: &pb.ProduceChunk{Id: id, Partition: partition, Batches: batches}}})
	}
	send(&pb.ProduceRequest{Message: &pb.ProduceRequest_Header{Header: &pb.ProduceHeader{Topic: "events"}}})
	two := append(batchOf(2, "a"), batchOf(3, "b")...)
	for i := range uint64(50) {
		chunk(i, int32(i%2), slices.Clone(two))
	}
	chunk(50, 7, batchOf(1, "x"))
	chunk(51, 0, []byte("no batch"))
	chunk(52, 0, batchOf(1, "last"))
	if err := stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	acks := map[uint64]*pb.Ack{}
	for {
		m, err := stream.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		acks[m.Ack.Id] = m.Ack
	}
	for i := range uint64(50) {
		a, first := acks[i], int64(i/2)*5
		if a == nil || a.Failure != nil || a.FirstOffset != first || a.LastOffset != first+4 || a.Records != 5 || a.Partition != int32(i%2) {
			t.Fatalf("ack %d: %v", i, a)
		}
	}
	if a := acks[50]; a == nil || a.Failure.GetKind() != pb.Kind_KIND_NOT_FOUND || a.Failure.Hint == "" {
		t.Errorf("no such partition: %v", a)
	}
	if a := acks[51]; a == nil || a.Failure.GetKind() != pb.Kind_KIND_INVALID {
		t.Errorf("no batch: %v", a)
	}
	if a := acks[52]; a == nil || a.FirstOffset != 125 {
		t.Errorf("after refused chunks: %v", a)
	}
}

func TestProduceStreamProtocol(t *testing.T) {
	_, c, url := node(t)
	fill(t, c, "events", 1, 0)
	for what, m := range map[string]*pb.ProduceRequest{
		"a chunk first": {Message: &pb.ProduceRequest_Chunk{Chunk: &pb.ProduceChunk{Batches: batchOf(1, "x")}}},
		"empty message": {},
	} {
		stream := produceStream(t, url)
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
		stream.CloseRequest()
		stream.CloseResponse()
	}
}

// Bad batches are refused by name, and nothing of them is kept.
func TestBadBatches(t *testing.T) {
	_, c, url := node(t)
	fill(t, c, "events", 1, 0)
	logs := logClient(t, url)
	good := batchOf(3, "value")
	flipped := slices.Clone(good)
	flipped[len(flipped)-1] ^= 1
	magic := slices.Clone(good)
	magic[16] = 1
	absurd := slices.Clone(good)
	copy(absurd[8:], []byte{0x7f, 0xff, 0xff, 0xff})
	for what, tc := range map[string]struct {
		b    []byte
		code connect.Code
	}{
		"nothing":                 {nil, connect.CodeInvalidArgument},
		"cut short":               {good[:len(good)-1], connect.CodeInvalidArgument},
		"half a header":           {good[:30], connect.CodeInvalidArgument},
		"flipped bit":             {flipped, connect.CodeDataLoss},
		"old magic":               {magic, connect.CodeInvalidArgument},
		"absurd length":           {absurd, connect.CodeInvalidArgument},
		"second is bad":           {append(slices.Clone(good), flipped...), connect.CodeDataLoss},
		"above max.message.bytes": {batchOf(1, strings.Repeat("x", 2<<20)), connect.CodeResourceExhausted},
	} {
		_, err := logs.ProduceBatches(t.Context(), &pb.ProduceBatchesRequest{Topic: "events", Batches: tc.b})
		if connect.CodeOf(err) != tc.code || err == nil {
			t.Errorf("%s: %v, want code %v", what, err, tc.code)
		}
	}
	got, err := c.Offsets(t.Context(), "events", client.End())
	if err != nil || got[0].Committed != 0 {
		t.Errorf("the log holds something: %+v, %v", got, err)
	}
}

func TestMessageSize(t *testing.T) {
	s := openStore(t, disk.NewMem(), "stores")
	url := serve(t, s, api.Config{Limits: api.Limits{RequestBytes: 10_000}})
	c := dial(t, client.Options{URL: url})
	fill(t, c, "events", 1, 0)
	_, err := logClient(t, url).ProduceBatches(t.Context(), &pb.ProduceBatchesRequest{Topic: "events", Batches: batchOf(1, strings.Repeat("x", 20_000))})
	if connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("too large a message: %v", err)
	}
	if _, err := logClient(t, url).ProduceBatches(t.Context(), &pb.ProduceBatchesRequest{Topic: "events", Batches: batchOf(1, strings.Repeat("x", 5_000))}); err != nil {
		t.Errorf("one below the limit: %v", err)
	}
	res, err := http.Post(url+"/lattice.v1.TopicService/Create", "application/json", bytes.NewReader(bytes.Repeat([]byte(" "), 20_000)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusTooManyRequests && res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("too large a JSON body: %d", res.StatusCode)
	}
	for _, body := range []string{"", "{", "[]", `{"name":3}`, `{"unknown":1}`, "\x00\xff"} {
		if status, m := post(t, url+"/lattice.v1.TopicService/Create", body); status != http.StatusBadRequest {
			t.Errorf("body %q: %d %v", body, status, m)
		}
	}
}

func TestNewProducerIDsDiffer(t *testing.T) {
	_, _, url := node(t)
	seen := map[int64]bool{}
	for range 100 {
		res, err := logClient(t, url).NewProducerID(t.Context(), &pb.NewProducerIDRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if seen[res.ProducerId] || res.ProducerId < 0 {
			t.Fatalf("producer id %d came twice or is negative", res.ProducerId)
		}
		seen[res.ProducerId] = true
	}
}
