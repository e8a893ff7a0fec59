package keyval

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// cpu reports the processor time of what was timed, all threads together: what
// counts on a machine that others use too.
func cpu(b *testing.B) func() {
	var from, to syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &from); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	return func() {
		b.StopTimer()
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &to); err != nil {
			b.Fatal(err)
		}
		d := to.Utime.Nano() + to.Stime.Nano() - from.Utime.Nano() - from.Stime.Nano()
		b.ReportMetric(float64(d)/float64(b.N), "cpu-ns/op")
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
		b.ReportMetric(0, "ns/op")
	}
}

// benchNode opens a store on the machine's disk.
func benchNode(b *testing.B, level signedlog.Durability) *node {
	o := options(disk.OS(), 0, 2, tick.Real{})
	o.Dir, o.Durability, o.BlockCache = b.TempDir(), level, 32<<20
	return start(b, o)
}

// BenchmarkUpdate sets one of 100,000 registers to 64 bytes, by 50 callers that
// each wait for their ticket.
func BenchmarkUpdate(b *testing.B) {
	for _, level := range []signedlog.Durability{signedlog.Fsync, signedlog.Interval} {
		b.Run(level.String(), func(b *testing.B) {
			n := benchNode(b, level)
			value := make([]byte, 64)
			var left atomic.Int64
			left.Store(int64(b.N))
			stop := cpu(b)
			var wg sync.WaitGroup
			for range 50 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for left.Add(-1) >= 0 {
						a := reg(fmt.Sprintf("key:%d", rand.IntN(100_000)))
						err := n.update(func(tx *Tx) error {
							r, err := tx.Row(a)
							if err != nil {
								return err
							}
							_, err = tx.Put(a, state.Payload{Bytes: value}, r.Dots(), state.Dot{})
							return err
						})
						if err != nil {
							b.Error(err)
							return
						}
					}
				}()
			}
			wg.Wait()
			stop()
			n.close()
		})
	}
}

// BenchmarkPipeline is BenchmarkUpdate with 16 updates for each wait.
func BenchmarkPipeline(b *testing.B) {
	n := benchNode(b, signedlog.Interval)
	value := make([]byte, 64)
	var left atomic.Int64
	left.Store(int64(b.N))
	stop := cpu(b)
	var wg sync.WaitGroup
	for range 50 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for left.Load() > 0 {
				var tk Ticket
				for range 16 {
					if left.Add(-1) < 0 {
						break
					}
					a := reg(fmt.Sprintf("key:%d", rand.IntN(100_000)))
					var err error
					tk, err = n.Update(func(tx *Tx) error {
						r, err := tx.Row(a)
						if err != nil {
							return err
						}
						_, err = tx.Put(a, state.Payload{Bytes: value}, r.Dots(), state.Dot{})
						return err
					})
					if err != nil {
						b.Error(err)
						return
					}
				}
				if err := tk.Wait(context.Background()); err != nil {
					b.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	stop()
	n.close()
}

// BenchmarkView reads registers: 10,000 that fit the memory, and 1,000,000 of
// which most do not.
func BenchmarkView(b *testing.B) {
	for _, keys := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			o := options(disk.OS(), 0, 2, tick.Real{})
			o.Dir, o.Durability, o.CacheBytes, o.BlockCache = b.TempDir(), signedlog.OS, 32<<20, 32<<20
			n := start(b, o)
			fillKeys(b, n, keys)
			stop := cpu(b)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					a := reg(fmt.Sprintf("key:%d", rand.IntN(keys)))
					_, err := n.View(func(tx *Tx) error {
						if r, err := tx.Row(a); err != nil || len(r) == 0 {
							return fmt.Errorf("%s: %v, %v", a.Key, r, err)
						}
						return nil
					})
					if err != nil {
						b.Error(err)
					}
				}
			})
			stop()
			n.close()
		})
	}
}

func fillKeys(b *testing.B, n *node, keys int) {
	value := make([]byte, 64)
	for at := 0; at < keys; {
		n.must(n.update(func(tx *Tx) error {
			for range min(1000, keys-at) {
				if _, err := tx.Put(reg(fmt.Sprintf("key:%d", at)), state.Payload{Bytes: value}, nil, state.Dot{}); err != nil {
					return err
				}
				at++
			}
			return nil
		}))
	}
}
