package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/test/go-clients/driver"
)

func codec(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "", "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.CompressionCodec{}, fmt.Errorf("knows no codec %q", name)
}

// produce writes the records, keyed and idempotent, and answers them with the
// partitions and the offsets that were acknowledged, in their order.
func produce(ctx context.Context, r driver.Request) (out driver.Answer, err error) {
	c, err := codec(r.Codec)
	if err != nil {
		return out, err
	}
	batch := 32 << 10 // small, so that a request makes many
	for _, k := range r.Records {
		batch = max(batch, len(k.Key)+len(k.Value)+1<<10)
	}
	cl, err := client(r,
		kgo.ProducerBatchCompression(c),
		kgo.DefaultProduceTopic(r.Topic),
		kgo.ProducerBatchMaxBytes(int32(batch)),
		kgo.ProducerLinger(2*time.Millisecond))
	if err != nil {
		return out, err
	}
	defer cl.Close()
	var sent []*kgo.Record
	for _, in := range r.Records {
		k := &kgo.Record{Key: in.Key, Value: in.Value}
		if in.Timestamp != 0 {
			k.Timestamp = time.UnixMilli(in.Timestamp)
		}
		for _, h := range in.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		sent = append(sent, k)
	}
	if err := cl.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return out, err
	}
	for _, k := range sent {
		out.Records = append(out.Records, shown(k))
	}
	return out, nil
}

func shown(k *kgo.Record) driver.Record {
	r := driver.Record{Partition: k.Partition, Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value}
	for _, h := range k.Headers {
		r.Headers = append(r.Headers, driver.Header{Key: h.Key, Value: h.Value})
	}
	return r
}

// consume answers every record up to the ends that the partitions have now,
// from the start, or for "seek" from the first record at or after a time.
func consume(ctx context.Context, r driver.Request) (out driver.Answer, err error) {
	from := kgo.NewOffset().AtStart()
	if r.Do == "seek" {
		from = kgo.NewOffset().AfterMilli(r.Time)
	}
	cl, err := client(r, kgo.ConsumeTopics(r.Topic), kgo.ConsumeResetOffset(from), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return out, err
	}
	defer cl.Close()
	waiting, err := bounds(ctx, kadm.NewClient(cl), r)
	if err != nil {
		return out, err
	}
	for len(waiting) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return out, err
		}
		for it := fs.RecordIter(); !it.Done(); {
			k := it.Next()
			end, want := waiting[k.Partition]
			if !want {
				continue
			}
			if out.Records = append(out.Records, shown(k)); k.Offset+1 >= end {
				delete(waiting, k.Partition)
			}
		}
	}
	return out, nil
}

// bounds returns the ends of the partitions that have something to read.
func bounds(ctx context.Context, a *kadm.Client, r driver.Request) (map[int32]int64, error) {
	ends, err := a.ListEndOffsets(ctx, r.Topic)
	if err := errors.Join(err, ends.Error()); err != nil {
		return nil, err
	}
	starts, err := a.ListStartOffsets(ctx, r.Topic)
	if r.Do == "seek" {
		starts, err = a.ListOffsetsAfterMilli(ctx, r.Time, r.Topic)
	}
	if err := errors.Join(err, starts.Error()); err != nil {
		return nil, err
	}
	waiting := map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(r.Topic, end.Partition); ok && start.Offset < end.Offset {
			waiting[end.Partition] = end.Offset
		}
	})
	return waiting, nil
}

// beyond reads behind the end, which the client is told to report.
func beyond(ctx context.Context, r driver.Request) error {
	cl, err := client(r,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {0: kgo.NewOffset().At(1_000_000)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		if n := fs.NumRecords(); n > 0 {
			return fmt.Errorf("read %d records where there are none", n)
		}
	}
}
