// Package bench measures a Kafka server: how fast it takes records and gives
// them back, how long one synchronous produce takes, and, for a server on the
// same machine, how much CPU time it spends on a million records.
//
// It speaks the Kafka protocol, so it measures any server that does. The client
// shares the machine with the server and is often the slower of the two: look
// at the server's CPU seconds before the rates.
package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
)

// Config says what is measured. Zero fields get the defaults of Default.
type Config struct {
	Bootstrap   []string // host:port of the server
	Topic       string   // empty: a new one, deleted at the end
	Records     int64
	Size        int // bytes of each value
	Partitions  int32
	BatchBytes  int32
	Compression string // none, gzip, snappy, lz4 or zstd
	Acks        string // all, 1 or 0
	Durability  string // lattice.durability of a new topic; empty: the server's default
	Syncs       int    // synchronous produces for the latency; 0 none
	// Within ends a fast produce early, however many records are left; 0 never.
	Within time.Duration
	// Newest makes Consume read the newest records instead of the oldest.
	Newest bool
	// Rate and For say how many records a second Latency sends, and for how long.
	Rate int
	For  time.Duration
	// PID is the server's process, when it runs here; its CPU time is measured.
	PID int
	// Progress is told what was done since the last call. It may be nil.
	Progress func(records, bytes int64)
}

// Default returns the measurement that "lattice bench" makes without flags.
func Default() Config {
	return Config{
		Records: 1_000_000, Size: 100, Partitions: 4, BatchBytes: 1_000_000,
		Compression: "none", Acks: "all", Syncs: 1000, Rate: 1000, For: 3 * time.Second,
	}
}

// Result is what was measured.
type Result struct {
	What          string  `json:"what"` // "produce", "consume" or "latency"
	Records       int64   `json:"records"`
	Size          int     `json:"size"`
	Partitions    int32   `json:"partitions"`
	BatchBytes    int32   `json:"batch_bytes"`
	Compression   string  `json:"compression"`
	Acks          string  `json:"acks,omitempty"`
	Durability    string  `json:"durability,omitempty"`
	Seconds       float64 `json:"seconds"`
	RecordsPerSec float64 `json:"records_per_second"`
	MiBPerSec     float64 `json:"mib_per_second"` // of keys and values
	// SyncP50Ms and SyncP99Ms are the time of one produce with one record, one
	// at a time, in ms.
	SyncP50Ms *float64 `json:"sync_p50_ms,omitempty"`
	SyncP99Ms *float64 `json:"sync_p99_ms,omitempty"`
	// DeliverP50Ms and DeliverP99Ms are the time from a produce call to the
	// record's arrival at a consumer that waits for it, in ms.
	DeliverP50Ms *float64 `json:"deliver_p50_ms,omitempty"`
	DeliverP99Ms *float64 `json:"deliver_p99_ms,omitempty"`
	// ServerCPUPerMillion is user and system time of the server for a million
	// records, in seconds.
	ServerCPUPerMillion *float64 `json:"server_cpu_seconds_per_million,omitempty"`
}

// check refuses what cannot be measured.
func (c Config) check() error {
	switch {
	case len(c.Bootstrap) == 0:
		return lattice.E(lattice.Invalid, errors.New("bench: no server to measure"))
	case c.Records < 1 || c.Size < 0 || c.Partitions < 1 || c.BatchBytes < 1024 || c.Syncs < 0 || c.Rate < 0 || c.For < 0:
		return lattice.E(lattice.Invalid, errors.New("bench: records and partitions are 1 or more, batch 1024 bytes or more"))
	case c.Size > int(c.BatchBytes):
		return lattice.E(lattice.Invalid, fmt.Errorf("bench: a record of %d bytes does not fit a batch of %d", c.Size, c.BatchBytes))
	}
	if _, err := c.codec(); err != nil {
		return err
	}
	_, err := c.acks()
	return err
}

func (c Config) codec() (kgo.CompressionCodec, error) {
	switch c.Compression {
	case "none":
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
	return kgo.NoCompression(), lattice.E(lattice.Invalid, fmt.Errorf("bench: no compression %q", c.Compression))
}

func (c Config) acks() (kgo.Acks, error) {
	switch c.Acks {
	case "all", "-1":
		return kgo.AllISRAcks(), nil
	case "1":
		return kgo.LeaderAck(), nil
	case "0":
		return kgo.NoAck(), nil
	}
	return kgo.AllISRAcks(), lattice.E(lattice.Invalid, fmt.Errorf("bench: acks %q is none of all, 1, 0", c.Acks))
}

// client connects to the server.
func (c Config) client(opts ...kgo.Opt) (*kgo.Client, error) {
	base := []kgo.Opt{
		kgo.SeedBrokers(c.Bootstrap...), kgo.ClientID("lattice-bench"),
		kgo.RetryTimeout(30 * time.Second), kgo.RecordDeliveryTimeout(time.Minute),
	}
	cl, err := kgo.NewClient(append(base, opts...)...)
	if err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("bench: %w", err))
	}
	return cl, nil
}

// producing returns the options of a producer. One request is in flight for
// each partition when idempotence is off, so acks 0 and 1 keep their order too.
func (c Config) producing() []kgo.Opt {
	codec, _ := c.codec() // checked before
	acks, _ := c.acks()
	opts := []kgo.Opt{
		kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(acks), kgo.ProducerBatchMaxBytes(c.BatchBytes),
		kgo.MaxBufferedRecords(1 << 18), kgo.MaxBufferedBytes(256 << 20),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if c.Acks == "0" || c.Acks == "1" {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	return opts
}

// prepare makes the topic. done deletes it again if it is ours.
func (c *Config) prepare(ctx context.Context) (done func(), err error) {
	cl, err := c.client()
	if err != nil {
		return nil, err
	}
	admin := kadm.NewClient(cl)
	if c.Topic != "" {
		defer cl.Close()
		topics, err := admin.ListTopics(ctx, c.Topic)
		if err != nil {
			return nil, unreachable(err)
		}
		t := topics[c.Topic]
		if t.Err != nil {
			return nil, lattice.E(lattice.NotFound, fmt.Errorf("bench: topic %s: %w", c.Topic, t.Err))
		}
		c.Partitions = int32(len(t.Partitions))
		return func() {}, nil
	}
	var id [6]byte
	if _, err := rand.Read(id[:]); err != nil {
		cl.Close()
		return nil, err
	}
	c.Topic = "bench-" + hex.EncodeToString(id[:])
	config := map[string]*string{"max.message.bytes": ptr(strconv.Itoa(max(int(c.BatchBytes)+1024, 1<<20)))}
	if c.Durability != "" {
		config["lattice.durability"] = &c.Durability
	}
	made, err := admin.CreateTopic(ctx, c.Partitions, 1, config, c.Topic)
	if err = errors.Join(err, made.Err); err != nil {
		cl.Close()
		return nil, unreachable(err)
	}
	return func() {
		// Runs after an interrupt too: a benchmark leaves nothing behind.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, _ = admin.DeleteTopic(ctx, c.Topic)
		cl.Close()
	}, nil
}

func unreachable(err error) error {
	return lattice.E(lattice.Unavailable, fmt.Errorf("bench: %w", err))
}

func ptr[T any](v T) *T { return &v }

// result fills in what both measurements share.
func (c Config) result(what string, records int64, took time.Duration, cpu, cpuEnd time.Duration) Result {
	seconds := max(took.Seconds(), 1e-9)
	r := Result{
		What: what, Records: records, Size: c.Size, Partitions: c.Partitions, BatchBytes: c.BatchBytes,
		Compression: c.Compression, Acks: c.Acks, Durability: c.Durability, Seconds: seconds,
		RecordsPerSec: float64(records) / seconds,
		MiBPerSec:     float64(records) * float64(c.Size) / (1 << 20) / seconds,
	}
	if cpuEnd > 0 && records > 0 {
		r.ServerCPUPerMillion = ptr((cpuEnd - cpu).Seconds() * 1e6 / float64(records))
	}
	return r
}

// percentile returns the smallest value that is not below the fraction q of
// all, in ms. It sorts all.
func percentile(all []time.Duration, q float64) *float64 {
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	i := int(q*float64(len(all))+0.9999999) - 1
	return ptr(float64(all[min(max(i, 0), len(all)-1)]) / 1e6)
}
