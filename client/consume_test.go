package client_test

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/record"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// filled returns a node with n records in each of two partitions, in batches of
// a few.
func filled(t *testing.T, n int) *fake {
	t.Helper()
	f := newFake(2)
	p := producer(t, f, client.ProducerOptions{BatchBytes: 250, Compression: "lz4", Partition: client.SamePartition()})
	for i := range n {
		for part := range int32(2) {
			r := client.Record{Partition: part, Key: []byte("k"), Value: []byte(fmt.Sprintf("%d/%d", part, i)), Headers: []client.Header{{Key: "h", Value: []byte{1}}}}
			if err := p.SendAsync(t.Context(), r, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// Cut after any number of messages, the consumer goes on where it was.
func TestConsumerResumes(t *testing.T) {
	f := filled(t, 40)
	sends := 0
	f.cut = func() error {
		if sends++; sends%3 == 0 {
			return connect.NewError(connect.CodeUnavailable, errors.New("spoilt"))
		}
		return nil
	}
	retries := 0
	r, err := dial(t, f).Consumer(t.Context(), client.ConsumerOptions{Topic: "events", Retrying: func(error) { retries++ }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got := map[int32][]string{}
	for rec, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		if rec.Offset != int64(len(got[rec.Partition])) {
			t.Fatalf("partition %d: offset %d after %d records", rec.Partition, rec.Offset, len(got[rec.Partition]))
		}
		if len(rec.Headers) != 1 || rec.Headers[0].Key != "h" || string(rec.Key) != "k" || rec.Time.IsZero() {
			t.Fatalf("record %+v", rec)
		}
		got[rec.Partition] = append(got[rec.Partition], string(rec.Value))
	}
	for part := range int32(2) {
		if want := f.values(t, part); !slices.Equal(got[part], want) {
			t.Errorf("partition %d: read %q, want %q", part, got[part], want)
		}
	}
	if retries == 0 || f.streams < 3 {
		t.Errorf("%d retries, %d streams: nothing was cut", retries, f.streams)
	}
}

func TestConsumerBounds(t *testing.T) {
	f := filled(t, 30)
	for _, max := range []int64{1, 2, 7, 60} {
		r, err := dial(t, f).Consumer(t.Context(), client.ConsumerOptions{Topic: "events", From: client.Offset(3), MaxRecords: max})
		if err != nil {
			t.Fatal(err)
		}
		n, first := int64(0), int64(-1)
		for {
			rec, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				first = rec.Offset
			}
			n++
			if at := r.Positions()[rec.Partition]; at != rec.Offset+1 {
				t.Fatalf("position %d after offset %d", at, rec.Offset)
			}
		}
		if want := min(max, 54); n != want || first != 3 {
			t.Errorf("max %d: %d records from offset %d, want %d from 3", max, n, first, want)
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("after the end: %v", err)
		}
		r.Close()
	}
}

func TestConsumerStopsOnDamage(t *testing.T) {
	f := filled(t, 5)
	f.logs[0][80] ^= 1
	r, err := dial(t, f).Consumer(t.Context(), client.ConsumerOptions{Topic: "events"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for rec, err := range r.All() {
		if err == nil {
			t.Fatalf("read %+v from a damaged batch", rec)
		}
		if lattice.KindOf(err) != lattice.Corrupt {
			t.Fatalf("kind %v: %v", lattice.KindOf(err), err)
		}
	}
}

func TestConsumerRefused(t *testing.T) {
	f := filled(t, 1)
	f.cut = func() error {
		return refusal(connect.CodeOutOfRange, pb.Kind_KIND_OUT_OF_RANGE, "expired", "start later")
	}
	r, err := dial(t, f).Consumer(t.Context(), client.ConsumerOptions{Topic: "events", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = r.Next()
	if lattice.KindOf(err) != lattice.OutOfRange || client.Hint(err) != "start later" {
		t.Errorf("next: %v, hint %q", err, client.Hint(err))
	}
	if _, again := r.Next(); again == nil || again.Error() != err.Error() {
		t.Errorf("next after an error: %v", again)
	}
}

// A follower outlives its node, whether it was stopped or killed.
func TestFollowerOutlivesTheNode(t *testing.T) {
	for _, kill := range []bool{false, true} {
		f := filled(t, 10)
		f.hold = make(chan struct{})
		socket := filepath.Join(t.TempDir(), "s")
		srv := serve(t, f, socket)
		c, err := client.Dial(client.Options{URL: "unix://" + socket})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		retries := 0
		r, err := c.Consumer(t.Context(), client.ConsumerOptions{Topic: "events", Follow: true, Retrying: func(error) { retries++ }})
		if err != nil {
			t.Fatal(err)
		}
		pending := 0
		for range 20 {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
			if r.Pending() {
				pending++
			}
		}
		if r.Pending() || pending < 5 {
			t.Errorf("pending after the last record: %v, after %d others", r.Pending(), pending)
		}
		if kill {
			srv.Close()
		} else {
			close(f.hold)
		}
		time.AfterFunc(50*time.Millisecond, func() {
			if kill {
				serve(t, f, socket)
			}
			if _, err := f.take(&pb.ProduceBatchesRequest{Batches: oneRecord("more")}); err != nil {
				t.Error(err)
			}
		})
		rec, err := r.Next()
		if err != nil || string(rec.Value) != "more" || rec.Offset != 10 || retries == 0 {
			t.Errorf("kill %v: after the node came back: %+v, %v, %d retries", kill, rec, err, retries)
		}
		r.Close()
	}
}

func oneRecord(value string) []byte {
	b := record.NewBuilder(record.None, 0)
	b.Add(0, nil, []byte(value), nil)
	return b.Build(nil)
}
