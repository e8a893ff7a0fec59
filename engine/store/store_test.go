package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// fixture is a store on a file system of its own, with its background work running.
type fixture struct {
	*Store
	t    *testing.T
	cfg  Config
	stop func()
	hurt bool // the test broke it: Close may say so
}

func testKey() identity.Key { return identity.FromSeed([32]byte{1, 2, 3}) }

func newFixture(t *testing.T, fs disk.FS) *fixture { return newFixtureAt(t, fs, tick.Real{}) }

func newFixtureAt(t *testing.T, fs disk.FS, clock tick.Clock) *fixture {
	t.Helper()
	cfg := Config{FS: fs, Key: testKey(), Clock: clock, Rand: rand.Reader, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if err := disk.MkdirAll(fs, "/data/stores"); err != nil {
		t.Fatal(err)
	}
	id, err := Create(fs, "/data/stores", cfg.Key, "main", cfg.Clock, cfg.Rand, cfg.Logger)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Dir = "/data/stores/" + id.String()
	f := &fixture{t: t, cfg: cfg}
	f.open()
	if f.Info().ID != id {
		t.Fatalf("opened store %s, made %s", f.Info().ID, id)
	}
	return f
}

func (f *fixture) open() {
	f.t.Helper()
	s, err := Open(f.cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f.Store = s
	stopped := false
	f.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	}
	f.t.Cleanup(func() {
		f.stop()
		if err := s.Close(); err != nil && !f.hurt {
			f.t.Error(err)
		}
	})
}

// restart stops cleanly and opens again.
func (f *fixture) restart() {
	f.t.Helper()
	f.stop()
	if err := f.Close(); err != nil {
		f.t.Fatal(err)
	}
	f.open()
}

func (f *fixture) topic(name string, parts int32, cfg map[string]string) Topic {
	f.t.Helper()
	t, err := f.CreateTopic(context.Background(), NewTopic{Name: name, Partitions: parts, Config: cfg})
	if err != nil {
		f.t.Fatal(err)
	}
	return t
}

func (f *fixture) part(t Topic, n int32) *partition.Partition {
	f.t.Helper()
	p, err := f.Partition(t.ID, n)
	if err != nil {
		f.t.Fatal(err)
	}
	return p
}

type result struct {
	partition.Result
	err error
}

// produce appends one batch and waits for its answer.
func produce(p *partition.Partition, batch []byte) (partition.Result, error) {
	done := make(chan result, 1)
	p.Append(partition.Append{Batches: batch, Done: func(r partition.Result, err error) { done <- result{r, err} }})
	r := <-done
	return r.Result, r.err
}

func batchOf(ts int64, values ...string) []byte {
	b := record.NewBuilder(record.None, 0)
	for i, v := range values {
		b.Add(ts+int64(i), []byte("k-"+v), []byte(v), nil)
	}
	return b.Build(nil)
}

// values reads everything from an offset.
func values(t *testing.T, p *partition.Partition, from int64) (out []string) {
	t.Helper()
	for _, r := range records(t, p, from) {
		out = append(out, string(r.Value))
	}
	return out
}

// records does likewise.
func records(t *testing.T, p *partition.Partition, from int64) (out []record.Record) {
	t.Helper()
	for {
		s, err := p.Read(from, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if s.Len() == 0 {
			s.Release()
			return out
		}
		data := make([]byte, s.Len())
		for n := 0; n < len(data); {
			k, err := s.NextChunk(data[n:min(len(data), n+777)])
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
		s.Release()
		for len(data) > 0 {
			batch, rest, h, err := record.Next(data)
			if err != nil {
				t.Fatal(err)
			}
			var r record.Reader
			if err := r.Open(batch, record.Limits{}); err != nil {
				t.Fatal(err)
			}
			for {
				var rec record.Record
				ok, err := r.Next(&rec)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				if rec.Offset >= from {
					out = append(out, rec)
				}
			}
			data, from = rest, h.NextOffset()
		}
	}
}

func TestProduceReadRestart(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	top := f.topic("t", 2, nil)
	p := f.part(top, 0)
	var want []string
	for i := range 100 {
		v := fmt.Sprintf("v%d", i)
		want = append(want, v)
		r, err := produce(p, batchOf(time.Now().UnixMilli(), v))
		if err != nil || r.Base != int64(i) {
			t.Fatalf("produce %d: %+v, %v", i, r, err)
		}
	}
	check := func(p *partition.Partition) {
		t.Helper()
		if got := values(t, p, 0); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("read %v, want %v", got, want)
		}
	}
	check(p)
	term := p.Bounds().Term
	f.restart()
	p = f.part(top, 0)
	check(p)
	if now := p.Bounds().Term; now <= term {
		t.Errorf("term after a restart is %d, was %d: want a new one", now, term)
	}
	if _, err := produce(p, batchOf(time.Now().UnixMilli(), "after")); err != nil {
		t.Fatal(err)
	}
	want = append(want, "after")
	check(p)
	pf, err := p.Prove(context.Background(), 42)
	if err != nil {
		t.Fatal(err)
	}
	res, err := proof.Verify(pf)
	if err != nil {
		t.Fatalf("verify: %v\n%s", err, pf)
	}
	if res.Store != f.Info().ID || res.Topic != top.ID || string(res.Record.Value) != "v42" {
		t.Errorf("the proof shows %+v", res)
	}
}

func TestTopicsSurviveRestart(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	ctx := context.Background()
	a := f.topic("a", 3, map[string]string{"retention.ms": "1000"})
	b := f.topic("b", 1, nil)
	if _, err := f.CreateTopic(ctx, NewTopic{Name: "a"}); lattice.KindOf(err) != lattice.Exists {
		t.Errorf("create it twice: %v", err)
	}
	if err := f.DeleteTopic(ctx, b.ID); err != nil {
		t.Fatal(err)
	}
	if err := f.AddPartitions(ctx, a.ID, 5, false); err != nil {
		t.Fatal(err)
	}
	v := "compact"
	if err := f.AlterTopic(ctx, a.ID, []ConfigChange{{Name: "cleanup.policy", Value: &v}}, false, false); err != nil {
		t.Fatal(err)
	}
	again := f.topic("b", 2, nil)
	if again.ID == b.ID {
		t.Error("a re-created topic has the old id")
	}
	f.restart()
	all := f.Topics()
	if len(all) != 2 || all[0].ID != a.ID || all[0].Partitions != 5 || all[1].ID != again.ID || all[1].Partitions != 2 {
		t.Fatalf("topics after a restart: %+v", all)
	}
	if c := all[0].Config; c["retention.ms"] != "1000" || c["cleanup.policy"] != "compact" {
		t.Errorf("configs after a restart: %v", c)
	}
	if ok, _ := f.cfg.FS.List(f.topicDir(b.ID)); len(ok) != 0 {
		t.Errorf("files of the deleted topic are there: %v", ok)
	}
}

func TestIdempotentProducerSurvivesRestartAndTruncation(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	top := f.topic("t", 1, map[string]string{"segment.bytes": "200"})
	p := f.part(top, 0)
	batch := func(seq int32) []byte {
		b := batchOf(time.Now().UnixMilli(), fmt.Sprint("v", seq))
		record.SetProducer(b, 7, 0, seq)
		return b
	}
	for seq := range int32(10) {
		if r, err := produce(p, batch(seq)); err != nil || r.Base != int64(seq) {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	again := func(when string, seq int32, base int64) {
		t.Helper()
		r, err := produce(p, batch(seq))
		if err != nil || r.Base != base || !r.Duplicate {
			t.Errorf("%s: a retry of sequence %d got %+v, %v; want offset %d again", when, seq, r, err, base)
		}
	}
	again("at once", 9, 9)
	if _, err := produce(p, batch(12)); lattice.KindOf(err) != lattice.Conflict {
		t.Errorf("a gap in the sequence: %v", err)
	}
	f.restart()
	p = f.part(top, 0)
	again("after a restart", 8, 8)
	if start, err := p.Truncate(context.Background(), -1); err != nil || start != 10 {
		t.Fatalf("truncate: %d, %v", start, err)
	}
	again("after truncation", 9, 9)
	f.restart()
	p = f.part(top, 0)
	again("after truncation and a restart", 9, 9)
	if b := p.Bounds(); b.Start != 10 || b.Committed != 10 {
		t.Errorf("bounds %+v, want an empty log at 10", b)
	}
	if r, err := produce(p, batch(10)); err != nil || r.Base != 10 {
		t.Errorf("the next batch: %+v, %v", r, err)
	}
}

// TestCommittedNeverGoesBack raises a topic's durability while it is written to.
func TestCommittedNeverGoesBack(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	top := f.topic("t", 1, map[string]string{"lattice.durability": "os"})
	p := f.part(top, 0)
	var last int64
	for i := range 200 {
		if _, err := produce(p, batchOf(time.Now().UnixMilli(), "v")); err != nil {
			t.Fatal(err)
		}
		level := []string{"os", "fsync", "interval"}[i%3]
		if err := f.AlterTopic(context.Background(), top.ID, []ConfigChange{{Name: "lattice.durability", Value: &level}}, false, false); err != nil {
			t.Fatal(err)
		}
		if c := p.Bounds().Committed; c < last {
			t.Fatalf("committed went from %d back to %d", last, c)
		} else {
			last = c
		}
	}
	if last != 200 {
		t.Errorf("committed %d of 200", last)
	}
}

// TestReadAtTheEndOfADeletedTopic: a long poll that is woken by the deletion must
// hear of it, not find nothing and wait again.
func TestReadAtTheEndOfADeletedTopic(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	top := f.topic("t", 1, nil)
	p := f.part(top, 0)
	woken := make(chan struct{})
	p.Wait(0, 1, func() { close(woken) })
	if err := f.DeleteTopic(context.Background(), top.ID); err != nil {
		t.Fatal(err)
	}
	<-woken
	if _, err := p.Read(0, 1); lattice.KindOf(err) != lattice.Unavailable {
		t.Errorf("read at the end of a deleted topic: %v", err)
	}
}

// TestWaitBetweenBatches waits for more bytes than one batch has and less than two,
// when two are there: a read limited to that number brings one only.
func TestWaitBetweenBatches(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	p := f.part(f.topic("t", 1, nil), 0)
	b := batchOf(1, "v")
	for range 2 {
		if _, err := produce(p, append([]byte(nil), b...)); err != nil {
			t.Fatal(err)
		}
	}
	woken := false
	cancel := p.Wait(0, len(b)*3/2, func() { woken = true })
	defer cancel()
	if !woken {
		t.Error("not woken, although enough is there")
	}
}

// TestOldTimestampsDoNotExpireAProducer: an idempotent producer that writes records
// of last year goes on after retention ran.
func TestOldTimestampsDoNotExpireAProducer(t *testing.T) {
	f := newFixture(t, disk.NewMem())
	p := f.part(f.topic("t", 1, map[string]string{"retention.ms": "-1"}), 0)
	for seq := range int32(3) {
		b := batchOf(1, "v")
		record.SetProducer(b, 7, 0, seq)
		if _, err := produce(p, b); err != nil {
			t.Fatal(err)
		}
		f.Retain(context.Background())
	}
}
