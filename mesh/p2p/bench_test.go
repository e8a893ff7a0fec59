package p2p

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/lattice-log/lattice/core/state"
)

// The copies that BenchmarkCatchUp and BenchmarkRawStream make: as much, over the
// same transport, between two hosts of one process. What CatchUp does beside is all
// that replication is: comparing, framing, hashing each entry twice (its id, its leaf),
// and proofs; its store is a slice.
const copySize = 256 << 20

// cpu is the CPU time of this process: user and system.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkCatchUp(b *testing.B) {
	for _, size := range []int{100, 1024, 64 << 10} {
		b.Run(fmt.Sprintf("entries=%d", size), func(b *testing.B) {
			total := copySize
			if size < 1000 {
				total = 64 << 20
			}
			probe := found(b, "ann")
			probe.write(1, size)
			l := probe.logs[probe.own].entries
			each := len(l[len(l)-1].Bytes())
			sa := found(b, "ann", "bob")
			sa.write(total/each, size)
			w := state.Writer{Author: idOf("ann"), Incarnation: 1}
			n := len(sa.logs[w].entries)
			b.SetBytes(int64(total))
			b.ReportAllocs()
			b.ResetTimer()
			began := time.Duration(0)
			for range b.N {
				b.StopTimer()
				sb := newMemStore(b, "bob", sa.genesis())
				sb.members[idOf("bob")], sb.plain = true, true
				sb.logs[w].entries = slices.Grow(sb.logs[w].entries, n) // it is not the store that is measured
				x := start(b, "ann", nil, sa)
				y := start(b, "bob", nil, sb)
				runtime.GC()
				before := cpu()
				b.StartTimer()
				y.knows(x)
				for {
					sb.mu.Lock()
					have := len(sb.logs[w].entries)
					sb.mu.Unlock()
					if have >= n {
						break
					}
					time.Sleep(time.Millisecond)
				}
				b.StopTimer()
				began += cpu() - before
				check(b, y.stop())
				check(b, x.stop())
				b.StartTimer()
			}
			b.ReportMetric(began.Seconds()/float64(b.N)*float64(1<<30)/float64(total), "cpu-s/GiB")
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

func BenchmarkRawStream(b *testing.B) {
	sa := found(b, "ann", "bob")
	x, y := start(b, "ann", nil, sa), start(b, "bob", nil, sa.at("bob"))
	x.host.SetStreamHandler("/raw/1", func(s network.Stream) {
		piece := make([]byte, 64<<10)
		for range copySize / len(piece) {
			if _, err := s.Write(piece); err != nil {
				return
			}
		}
		_ = s.CloseWrite()
	})
	y.knows(x)
	eventually(b, "they are connected", func() bool { return y.host.Network().Connectedness(x.host.ID()) == network.Connected })
	b.SetBytes(copySize)
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu()
	for range b.N {
		s, err := y.host.NewStream(context.Background(), x.host.ID(), "/raw/1")
		check(b, err)
		_, err = s.Write(nil)
		check(b, err)
		n, err := io.Copy(io.Discard, s)
		check(b, err)
		if n != copySize {
			b.Fatalf("%d bytes", n)
		}
		_ = s.Close()
	}
	b.ReportMetric((cpu()-before).Seconds()/float64(b.N)*float64(1<<30)/float64(copySize), "cpu-s/GiB")
}
