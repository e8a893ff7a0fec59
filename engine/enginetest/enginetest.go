// Package enginetest is a store on a file system, for tests: it makes a data
// directory as a node does, runs the store's background work, produces batches,
// stops, restarts, and takes copies as a power cut would leave them.
package enginetest

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/keyfile"
)

// Dir is the data directory.
const Dir = "/data"

// TB is what a Node needs of a test.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// Node is a store in Dir, open unless stopped.
type Node struct {
	*store.Store
	FS    disk.FS
	Clock *tick.Manual
	Cfg   store.Config

	t    TB
	stop func() error
}

// Key is the key of every Node.
func Key() identity.Key { return identity.FromSeed([32]byte{1, 2, 3}) }

// Begin is where a Node's clock stands first.
func Begin() time.Time { return time.UnixMilli(1_767_225_600_000) }

// New makes a data directory with one store, and opens it. Everything is the
// same in each run but for what goroutines do to timing.
func New(t TB, fs disk.FS) *Node {
	t.Helper()
	n := &Node{FS: fs, t: t, Clock: tick.NewManual(Begin())}
	stores := fs.PathJoin(Dir, "stores")
	n.must(disk.MkdirAll(fs, stores))
	n.must(keyfile.Create(fs, fs.PathJoin(Dir, "identity.key"), Key()))
	random := rand.NewChaCha8([32]byte{7})
	id, err := store.Create(fs, stores, Key(), "main", n.Clock, random, slog.New(slog.DiscardHandler))
	n.must(err)
	n.Cfg = store.Config{
		FS: fs, Dir: fs.PathJoin(stores, id.String()), Key: Key(), Clock: n.Clock, Rand: random, Logger: slog.New(slog.DiscardHandler),
		Transactions: transactions(),
	}
	t.Cleanup(func() { n.Stop() })
	n.Start()
	return n
}

// Attach returns a Node for a data directory that is there, not open. now is the
// time on its clock.
func Attach(t TB, fs disk.FS, now time.Time) *Node {
	t.Helper()
	n := &Node{FS: fs, t: t, Clock: tick.NewManual(now)}
	stores := fs.PathJoin(Dir, "stores")
	names, err := fs.List(stores)
	n.must(err)
	for _, name := range names {
		if _, err := lattice.ParseStoreID(name); err == nil {
			n.Cfg = store.Config{
				FS: fs, Dir: fs.PathJoin(stores, name), Key: Key(), Clock: n.Clock, Rand: rand.NewChaCha8([32]byte{8}),
				Logger: slog.New(slog.DiscardHandler), Transactions: transactions(),
			}
		}
	}
	t.Cleanup(func() { n.Stop() })
	return n
}

func transactions() txn.Config {
	c := txn.DefaultConfig()
	c.MaxTimeout = TxnTimeout
	return c
}

func (n *Node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%v", err)
	}
}

// Start opens the store and runs its background work. A minute passes, so that
// each start has another term.
func (n *Node) Start() {
	n.t.Helper()
	n.Clock.Advance(time.Minute)
	s, err := store.Open(n.Cfg)
	n.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	n.Store = s
	n.stop = func() error {
		cancel()
		return <-done
	}
}

// Stop stops cleanly.
func (n *Node) Stop() {
	n.t.Helper()
	if n.stop == nil {
		return
	}
	stop := n.stop
	n.stop = nil
	n.must(stop())
	n.must(n.Close())
}

// Abandon stops as a crash does: the store is not closed, and what it does from
// now on does not count. Use a CrashClone taken before.
func (n *Node) Abandon() {
	if n.stop != nil {
		_ = n.stop()
		_ = n.Close()
		n.stop = nil
	}
}

// Restart stops cleanly and starts again.
func (n *Node) Restart() {
	n.t.Helper()
	n.Stop()
	n.Start()
}

// Topic creates a topic. Config is "name=value" each.
func (n *Node) Topic(name string, partitions int32, config ...string) store.Topic {
	n.t.Helper()
	cfg := map[string]string{}
	for _, c := range config {
		k, v, _ := strings.Cut(c, "=")
		cfg[k] = v
	}
	t, err := n.CreateTopic(context.Background(), store.NewTopic{Name: name, Partitions: partitions, Config: cfg})
	n.must(err)
	return t
}

// Part returns a partition of a topic.
func (n *Node) Part(t store.Topic, p int32) *partition.Partition {
	n.t.Helper()
	part, err := n.Partition(t.ID, p)
	n.must(err)
	return part
}

// Produce appends a batch and waits until it is acknowledged.
func Produce(p *partition.Partition, batch []byte) (partition.Result, error) {
	type answer struct {
		r   partition.Result
		err error
	}
	done := make(chan answer, 1)
	p.Append(partition.Append{Batches: batch, Done: func(r partition.Result, err error) { done <- answer{r, err} }})
	a := <-done
	return a.r, a.err
}

// Put produces one batch of records with the values as keys, too.
func (n *Node) Put(p *partition.Partition, codec record.Codec, values ...string) int64 {
	n.t.Helper()
	b := record.NewBuilder(codec, 0)
	for _, v := range values {
		key, value, ok := strings.Cut(v, "=")
		if !ok {
			value = key
		}
		b.Add(n.Clock.Now().UnixMilli(), []byte(key), []byte(value), nil)
	}
	r, err := Produce(p, b.Build(nil))
	n.must(err)
	return r.Base
}

// PutAs is Put by an idempotent producer.
func (n *Node) PutAs(p *partition.Partition, producer int64, epoch int16, sequence int32, values ...string) partition.Result {
	n.t.Helper()
	b := record.NewBuilder(record.None, 0)
	for _, v := range values {
		b.Add(n.Clock.Now().UnixMilli(), []byte(v), []byte(v), nil)
	}
	batch := b.Build(nil)
	record.SetProducer(batch, producer, epoch, sequence)
	r, err := Produce(p, batch)
	n.must(err)
	return r
}

// Commit commits a group's offset, as nobody's member.
func (n *Node) Commit(name string, t store.Topic, part int32, offset int64, metadata string) {
	n.t.Helper()
	done := make(chan group.CommitResult, 1)
	n.Groups().CommitOffsets(group.CommitRequest{Group: name, Generation: -1, Offsets: []group.OffsetCommit{{
		TopicPartition: lattice.TopicPartition{Topic: t.ID, Partition: part}, Offset: offset, LeaderEpoch: -1, Metadata: metadata,
	}}}, func(r group.CommitResult) { done <- r })
	r := <-done
	n.must(errors.Join(append(r.Partitions, r.Err)...))
}

// Committed returns a group's offsets.
func (n *Node) Committed(name string) []group.CommittedOffset {
	n.t.Helper()
	r := n.Groups().FetchOffsets(group.FetchRequest{Group: name, All: true})
	n.must(r.Err)
	return r.Offsets
}

// Read returns the records from an offset on.
func (n *Node) Read(p *partition.Partition, from int64) []record.Record {
	n.t.Helper()
	var out []record.Record
	for from < p.Bounds().Committed {
		s, err := p.Read(from, 1<<20)
		n.must(err)
		data := make([]byte, s.Len())
		for at := 0; at < len(data); {
			k, err := s.NextChunk(data[at:])
			n.must(err)
			at += k
		}
		s.Release()
		if len(data) == 0 {
			break
		}
		for len(data) > 0 {
			batch, rest, h, err := record.Next(data)
			n.must(err)
			out = n.records(out, batch, from)
			data, from = rest, h.NextOffset()
		}
	}
	return out
}

var _ TB = (*testing.T)(nil)
