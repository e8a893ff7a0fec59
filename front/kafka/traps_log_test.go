package kafka

import (
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTrap12FetchLongPoll(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	c, producer := f.dial(), f.dial()
	wait := func(v int16, ms, minBytes int32) *kmsg.FetchRequest {
		req := fetchReq(topic, v, 0, 0)
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, fetchReq(topic, v, 1, 0).Topics[0].Partitions[0])
		req.MaxWaitMillis, req.MinBytes = ms, minBytes
		return req
	}
	// Nothing comes: an empty answer, and not before the time.
	begin := time.Now()
	resp := ask[*kmsg.FetchResponse](c, wait(4, 150, 1))
	if took := time.Since(begin); took < 150*time.Millisecond {
		t.Errorf("answered after %v", took)
	}
	for _, p := range resp.Topics[0].Partitions {
		if p.ErrorCode != 0 || len(p.RecordBatches) != 0 || p.HighWatermark != 0 {
			t.Errorf("%+v", p)
		}
	}
	// A record arrives: the answer comes long before the time (which the
	// deadline of the connection is much shorter than).
	c.send(wait(12, 3_600_000, 1))
	producer.produce(topic, 9, 1, batch(record.None, "here"))
	got := c.recv().(*kmsg.FetchResponse).Topics[0].Partitions
	if len(got[0].RecordBatches) != 0 || len(values(t, got[1].RecordBatches)) != 1 {
		t.Errorf("woken with %d and %d bytes", len(got[0].RecordBatches), len(got[1].RecordBatches))
	}
	// MinBytes counts the sum over partitions, not each of them.
	one := len(batch(record.None, "here"))
	c.send(wait(12, 3_600_000, int32(4*one)))
	for i := range 3 {
		producer.produce(topic, 9, int32(i%2), batch(record.None, "here"))
	}
	total := 0
	for _, p := range c.recv().(*kmsg.FetchResponse).Topics[0].Partitions {
		total += len(p.RecordBatches)
	}
	if total != 4*one {
		t.Errorf("answered with %d bytes, want %d", total, 4*one)
	}
	// More arrives than one request may carry, but nothing more can come in: at once.
	full := wait(12, 3_600_000, 1<<30)
	full.MaxBytes = 1
	if p := ask[*kmsg.FetchResponse](c, full).Topics[0].Partitions[0]; len(p.RecordBatches) != one {
		t.Errorf("%d bytes, want the first batch", len(p.RecordBatches))
	}
	// The topic goes away: an error instead of silence.
	empty := f.topic("empty", 1)
	req := fetchReq(empty, 13, 0, 0)
	req.MaxWaitMillis = 3_600_000
	c.send(req)
	del := newReq[*kmsg.DeleteTopicsRequest](6)
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = &empty.Name
	del.Topics = append(del.Topics, dt)
	if r := ask[*kmsg.DeleteTopicsResponse](producer, del); r.Topics[0].ErrorCode != 0 || r.Topics[0].TopicID != empty.ID {
		t.Fatalf("%+v", r)
	}
	if p := c.recv().(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != 100 {
		t.Errorf("error %d after the topic was deleted", p.ErrorCode)
	}
}

func TestTrap13ListOffsets(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1, "message.timestamp.before.max.ms", "9223372036854775807")
	c := f.dial()
	build := func(ts ...int64) []byte {
		b := record.NewBuilder(record.None, 0)
		for _, ms := range ts {
			b.Add(ms, nil, []byte("v"), nil)
		}
		return b.Build(nil)
	}
	c.produce(topic, 9, 0, build(1000, 3000, 2000))
	c.produce(topic, 9, 0, build(2500))
	for v := int16(1); v <= 11; v++ {
		for _, step := range []struct {
			ask, offset, ts int64
			since           int16
		}{
			{-1, 4, -1, 1}, {-2, 0, -1, 1}, {-3, 1, 3000, 7}, {-4, 0, -1, 8}, {-5, -1, -1, 9},
			{0, 0, 1000, 1}, {1000, 0, 1000, 1}, {1001, 1, 3000, 1}, {2999, 1, 3000, 1}, {3001, -1, -1, 1},
		} {
			got := c.listOffset(topic, v, step.ask)
			if v < step.since {
				if got.ErrorCode != 35 || got.Offset != -1 {
					t.Errorf("version %d, timestamp %d: %+v, want UNSUPPORTED_VERSION", v, step.ask, got)
				}
				continue
			}
			if got.ErrorCode != 0 || got.Offset != step.offset || got.Timestamp != step.ts {
				t.Errorf("version %d, timestamp %d: %+v, want offset %d timestamp %d", v, step.ask, got, step.offset, step.ts)
			}
		}
	}
}

func TestTrap14LeaderEpochInProducedBatch(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	for i, epoch := range []int32{0, -1, 12345} {
		b := batch(record.Snappy, "a")
		record.Place(b, 99, epoch) // neither is the producer's to say
		if p := c.produce(topic, 9, 0, b); p.ErrorCode != 0 || p.BaseOffset != int64(i) {
			t.Errorf("epoch %d: %+v", epoch, p)
		}
	}
	h, err := record.ParseHeader(c.fetch(topic, 12, 0, 2).RecordBatches)
	if err != nil || h.LeaderEpoch != f.term(topic, 0) || h.BaseOffset != 2 {
		t.Errorf("stored %+v, %v", h, err)
	}
}

func TestTrap15CompressionIsKept(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	next := int64(0)
	for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
		sent := batch(codec, "hello", "world")
		for v := int16(3); v <= 13; v++ {
			p := c.produce(topic, v, 0, append([]byte(nil), sent...))
			if codec == record.Zstd && v < 7 {
				if p.ErrorCode != 76 {
					t.Errorf("zstd with version %d: %d, want UNSUPPORTED_COMPRESSION_TYPE", v, p.ErrorCode)
				}
				continue
			}
			if p.ErrorCode != 0 || p.BaseOffset != next {
				t.Fatalf("%v version %d: %+v", codec, v, p)
			}
			got := c.fetch(topic, 10, 0, next).RecordBatches
			if string(got[21:]) != string(sent[21:]) { // all that the checksum covers
				t.Errorf("%v: stored otherwise than sent", codec)
			}
			next += 2
		}
	}
	first := next - 14 // the zstd batches begin here
	if p := c.fetch(topic, 9, 0, first); p.ErrorCode != 76 {
		t.Errorf("zstd to a Fetch of version 9: error %d, want UNSUPPORTED_COMPRESSION_TYPE", p.ErrorCode)
	}
	if p := c.fetch(topic, 9, 0, 0); p.ErrorCode != 0 || len(values(t, p.RecordBatches)) == 0 {
		t.Errorf("other batches to a Fetch of version 9: error %d", p.ErrorCode)
	}
}
