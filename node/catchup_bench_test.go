package node

import (
	"crypto/rand"
	"syscall"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/partition"
)

// spent is the CPU time of this process: user and system.
func spent() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCatchUp has a node come back that was off while 256 MiB of records were written
// to another: both are in this process, and meet on the loopback. `make bench-mesh`
// measures it with processes, beside a raw stream and others.
func BenchmarkCatchUp(b *testing.B) {
	const total, batch, each = 256 << 20, 1000 << 10, 1 << 10
	dir := b.TempDir()
	x, stopX := runTwin(b, b.TempDir())
	y, stopY := runTwin(b, dir)
	if err := y.join(b.Context(), invited(b, x, roster.Writer)); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(total)
	var cpu time.Duration
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		stopY()
		topic := createOn(b, x.first, rand.Text(), 1)
		p, err := x.first.Partition(topic.ID, 0)
		if err != nil {
			b.Fatal(err)
		}
		for range total / batch {
			r := record.NewBuilder(record.None, 0)
			for range batch / each {
				r.Add(time.Now().UnixMilli(), nil, make([]byte, each), nil)
			}
			done := make(chan error, 1)
			p.Append(partition.Append{Batches: r.Build(nil), Done: func(_ partition.Result, err error) { done <- err }})
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		}
		before := spent()
		b.StartTimer()
		y, stopY = runTwin(b, dir)
		id := lattice.TopicPartition{Topic: topic.ID}
		soon(b, "the records are there", func() bool {
			q, err := y.first.Partition(id.Topic, id.Partition)
			return err == nil && q.Bounds().Committed == p.Bounds().Committed
		})
		cpu += spent() - before
	}
	b.StopTimer()
	b.ReportMetric(cpu.Seconds()/float64(b.N)*float64(1<<30)/total, "cpu-s/GiB")
	stopY()
	stopX()
}
