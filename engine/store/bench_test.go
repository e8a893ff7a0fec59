package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// benchStore opens a store on the machine's disk with one topic.
func benchStore(b *testing.B, cfg map[string]string) (*Store, *partition.Partition) {
	b.Helper()
	fs, dir := disk.OS(), b.TempDir()
	c := Config{FS: fs, Key: testKey(), Clock: tick.Real{}, Rand: rand.Reader, Logger: slog.New(slog.DiscardHandler)}
	id, err := Create(fs, dir, c.Key, "bench", c.Clock, c.Rand, c.Logger)
	if err != nil {
		b.Fatal(err)
	}
	c.Dir = fs.PathJoin(dir, id.String())
	s, err := Open(c)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		<-done
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	t, err := s.CreateTopic(ctx, NewTopic{Name: "t", Partitions: 1, Config: cfg})
	if err != nil {
		b.Fatal(err)
	}
	p, err := s.Partition(t.ID, 0)
	if err != nil {
		b.Fatal(err)
	}
	return s, p
}

func benchBatch(records, size int) []byte {
	bld := record.NewBuilder(record.None, 0)
	for range records {
		bld.Add(time.Now().UnixMilli(), nil, make([]byte, size), nil)
	}
	return bld.Build(nil)
}

// BenchmarkAppend is the produce path below the protocol, with five requests in
// flight: checks, offsets, write, shared sync, and the hashing behind.
func BenchmarkAppend(b *testing.B) {
	for _, level := range []string{"fsync", "os"} {
		for _, c := range []struct{ records, size int }{{1, 100}, {8000, 100}, {900, 1024}} {
			b.Run(fmt.Sprintf("%s/%dx%dB", level, c.records, c.size), func(b *testing.B) {
				_, p := benchStore(b, map[string]string{"lattice.durability": level, "retention.bytes": "1000000000"})
				batch := benchBatch(c.records, c.size)
				slots := make(chan []byte, 5)
				for range cap(slots) {
					slots <- append([]byte(nil), batch...)
				}
				b.SetBytes(int64(len(batch)))
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					buf := <-slots
					p.Append(partition.Append{Batches: buf, Done: func(_ partition.Result, err error) {
						if err != nil {
							b.Error(err)
						}
						slots <- buf
					}})
				}
				for range cap(slots) {
					<-slots
				}
			})
		}
	}
}

// BenchmarkSynchronousAppend has one record in flight: the floor of a durable
// produce.
func BenchmarkSynchronousAppend(b *testing.B) {
	_, p := benchStore(b, nil)
	batch := benchBatch(1, 100)
	for b.Loop() {
		if _, err := produce(p, batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFetch reads stored batches, checks their CRC and hands them over in
// chunks, as a Fetch does.
func BenchmarkFetch(b *testing.B) {
	_, p := benchStore(b, map[string]string{"lattice.durability": "os"})
	batch := benchBatch(900, 1024)
	const batches = 100
	for range batches {
		if _, err := produce(p, append([]byte(nil), batch...)); err != nil {
			b.Fatal(err)
		}
	}
	buf := make([]byte, 256<<10)
	b.SetBytes(batches * int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		for from := int64(0); from < p.Bounds().Committed; from += 900 {
			s, err := p.Read(from, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			for err == nil {
				_, err = s.NextChunk(buf)
			}
			if err != io.EOF {
				b.Fatal(err)
			}
			s.Release()
		}
	}
}

// BenchmarkCertify appends a batch and waits for a checkpoint over it: read back,
// hash, sync the head, sign.
func BenchmarkCertify(b *testing.B) {
	_, p := benchStore(b, nil)
	batch := benchBatch(900, 1024)
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		if _, err := produce(p, batch); err != nil {
			b.Fatal(err)
		}
		if _, _, err := p.Checkpoint(context.Background(), true); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen opens a store after a clean stop, with more and more log: the cost
// must not grow with it.
func BenchmarkOpen(b *testing.B) {
	for _, mib := range []int{1, 256} {
		b.Run(fmt.Sprintf("%dMiB", mib), func(b *testing.B) {
			s, p := benchStore(b, map[string]string{"lattice.durability": "os"})
			batch := benchBatch(900, 1024)
			for p.Size() < int64(mib)<<20 {
				if _, err := produce(p, append([]byte(nil), batch...)); err != nil {
					b.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				again, err := Open(s.cfg)
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := again.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
