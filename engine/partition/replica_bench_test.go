package partition_test

import (
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/storage/disk"
)

// BenchmarkReceive is what a follower does with spans of about 1 MiB, in memory: it
// verifies them, writes them, and says that it has them. Batches are of 16 KiB and more.
func BenchmarkReceive(b *testing.B) {
	for name, size := range map[string]int{"100B": 100, "1KiB": 1 << 10} {
		b.Run(name, func(b *testing.B) {
			clock := newClock()
			a := newReplica(b, disk.NewMem(), ann, clock)
			values := make([]string, (16<<10)/size+1)
			for i := range values {
				values[i] = strings.Repeat("x", size)
			}
			var all []span.Span
			bytes := int64(0)
			for bytes < 32<<20 {
				batch := a.batch(values...)
				bytes += int64(len(batch))
				if _, err := a.put(batch); err != nil {
					b.Fatal(err)
				}
			}
			for from := uint64(0); ; {
				s, err := a.ReadSpan(from, 1<<20)
				if lattice.KindOf(err) == lattice.NotYet {
					break
				}
				if err != nil {
					b.Fatal(err)
				}
				all = append(all, s)
				from += uint64(len(s.Batches))
			}
			a.close()
			b.SetBytes(bytes)
			b.ReportAllocs()
			for b.Loop() {
				f := newReplica(b, disk.NewMem(), bob, clock)
				for _, s := range all {
					if _, err := f.Receive(s); err != nil {
						b.Fatal(err)
					}
				}
				f.close()
			}
		})
	}
}
