package segment

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/lattice-log/lattice/storage/disk"
)

// appender appends blocks of one size as fast as it can.
type appender struct {
	l    *Log
	b    []byte
	m    []Meta
	size []int
}

func newAppender(b *testing.B, size int) *appender {
	b.Helper()
	l, _, err := Open(disk.OS(), b.TempDir(), Options{Codec: testCodec{}}, Resume{}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	a := &appender{l: l, m: []Meta{{Term: 1}}, size: []int{size}}
	a.b = block(a.m[0], size, 1)
	return a
}

func (a *appender) append(b *testing.B) {
	if _, err := a.l.Append(a.m, a.size, a.b); err != nil {
		b.Fatal(err)
	}
	a.m[0].Base++
	a.m[0].Last++
	binary.BigEndian.PutUint64(a.b[9:], uint64(a.m[0].Base)) // nobody checks the sum here
}

func (a *appender) sync(b *testing.B) {
	end, _ := a.l.End()
	if err := a.l.Sync(end); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			a := newAppender(b, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				a.append(b)
			}
		})
	}
}

// BenchmarkAppendSync is the life of one acknowledged write; with prepare, room is
// made ready off its path, as an engine does.
func BenchmarkAppendSync(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		for _, prepare := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/prepare=%v", size, prepare), func(b *testing.B) {
				a := newAppender(b, size)
				b.SetBytes(int64(size))
				for b.Loop() {
					a.append(b)
					a.sync(b)
					if prepare {
						b.StopTimer()
						if err := a.l.Prepare(); err != nil {
							b.Fatal(err)
						}
						b.StartTimer()
					}
				}
			})
		}
	}
}

func BenchmarkSpans(b *testing.B) {
	for _, size := range []int{256, 16 << 10} {
		for _, fetch := range []int64{1, 1 << 20} {
			b.Run(fmt.Sprintf("blocks=%d/fetch=%d", size, fetch), func(b *testing.B) {
				a := newAppender(b, size)
				n := int64(64<<20) / int64(size)
				for range n {
					a.append(b)
				}
				a.sync(b)
				buf := make([]byte, 64<<10)
				from, i := int64(0), int64(0)
				b.ReportAllocs()
				for b.Loop() {
					i++
					from = i * 7919 % n
					spans, err := a.l.Spans(from, n, fetch)
					if err != nil {
						b.Fatal(err)
					}
					for _, s := range spans {
						for off := int64(0); off < s.Len; off += int64(len(buf)) {
							if _, err := s.ReadAt(buf, off); err != nil && err != io.EOF {
								b.Fatal(err)
							}
						}
					}
					ReleaseAll(spans)
				}
			})
		}
	}
}

// BenchmarkOpen opens a log of many segments, after a clean stop.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			fs, dir := disk.OS(), b.TempDir()
			opt := Options{Codec: testCodec{}, SegmentBytes: 1 << 10}
			l, _, err := Open(fs, dir, opt, Resume{}, nil)
			if err != nil {
				b.Fatal(err)
			}
			for i := range int64(n) {
				m := Meta{Base: i, Last: i, MaxTime: i}
				blk := block(m, 1<<10, 1)
				if _, err := l.Append([]Meta{m}, []int{len(blk)}, blk); err != nil {
					b.Fatal(err)
				}
			}
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
			pos, next := l.Synced()
			for b.Loop() {
				l, _, err := Open(fs, dir, opt, Resume{Pos: pos, Next: next}, nil)
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
