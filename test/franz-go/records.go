package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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

// produce writes the records of the input file, keyed and idempotent, and
// prints each with the partition and the offset that were acknowledged, in the
// order of the file.
func produce(ctx context.Context, r request, out output) error {
	c, err := codec(r.Codec)
	if err != nil {
		return err
	}
	cl, err := client(r,
		kgo.ProducerBatchCompression(c),
		kgo.DefaultProduceTopic(r.Topic),
		// Small batches, so that a file makes many.
		kgo.ProducerBatchMaxBytes(32<<10),
		kgo.ProducerLinger(2*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	f, err := os.Open(r.Input)
	if err != nil {
		return err
	}
	defer f.Close()
	var sent []*kgo.Record
	errs := make(chan error, 1)
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var in record
		if err := json.Unmarshal(lines.Bytes(), &in); err != nil {
			return fmt.Errorf("%s: %w", r.Input, err)
		}
		k := &kgo.Record{Key: in.Key, Value: in.Value}
		if in.Timestamp != 0 {
			k.Timestamp = time.UnixMilli(in.Timestamp)
		}
		for _, h := range in.Headers {
			k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
		sent = append(sent, k)
		cl.Produce(ctx, k, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case errs <- err:
				default: // the first says enough
				}
			}
		})
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if err := cl.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-errs:
		return err
	default:
	}
	for _, k := range sent {
		if err := out.print(k); err != nil {
			return err
		}
	}
	return nil
}

func (o output) print(k *kgo.Record) error {
	r := record{Partition: k.Partition, Offset: k.Offset, Timestamp: k.Timestamp.UnixMilli(), Key: k.Key, Value: k.Value, Headers: []header{}}
	for _, h := range k.Headers {
		r.Headers = append(r.Headers, header{h.Key, h.Value})
	}
	return o.Encode(r)
}

// consume prints every record up to the ends that the partitions have now, from
// the start, or for "seek" from the first record at or after a time.
func consume(ctx context.Context, r request, out output) error {
	from := kgo.NewOffset().AtStart()
	if r.Do == "seek" {
		from = kgo.NewOffset().AfterMilli(r.Time)
	}
	cl, err := client(r, kgo.ConsumeTopics(r.Topic), kgo.ConsumeResetOffset(from), kgo.FetchMaxWait(200*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(ctx, r.Topic)
	if err != nil {
		return err
	}
	starts, err := adm.ListStartOffsets(ctx, r.Topic)
	if r.Do == "seek" {
		starts, err = adm.ListOffsetsAfterMilli(ctx, r.Time, r.Topic)
	}
	if err != nil {
		return err
	}
	waiting := map[int32]int64{} // partition => end, until everything below it is read
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(r.Topic, end.Partition); ok && start.Offset < end.Offset {
			waiting[end.Partition] = end.Offset
		}
	})
	for len(waiting) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err0(); err != nil {
			return err
		}
		for _, e := range fs.Errors() {
			return fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
		for it := fs.RecordIter(); !it.Done(); {
			k := it.Next()
			end, want := waiting[k.Partition]
			if !want {
				continue
			}
			if err := out.print(k); err != nil {
				return err
			}
			if k.Offset+1 >= end {
				delete(waiting, k.Partition)
			}
		}
	}
	return nil
}
