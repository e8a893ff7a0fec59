package segment

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConcurrently runs one appender, one syncer, one housekeeper and several
// readers on one log. Whatever a reader gets is whole, right and in order; what a
// span was taken of stays readable after the segment is dropped or replaced.
func TestConcurrently(t *testing.T) {
	for name, fs := range map[string]disk.FS{"mem": disk.NewMem(), "os": disk.OS()} {
		t.Run(name, func(t *testing.T) {
			dir := "/log"
			if name == "os" {
				dir = t.TempDir()
			}
			concurrently(t, fs, dir)
		})
	}
}

func concurrently(t *testing.T, fs disk.FS, dir string) {
	const blocks = 3000
	opt := Options{Codec: testCodec{}, SegmentBytes: 16 << 10, IndexBytes: 700, Handles: NewHandles(3), Recycle: 2, keep: 2}
	l, _, err := Open(fs, dir, opt, Resume{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var done atomic.Bool
	var start atomic.Int64
	wg.Go(func() { // appender
		defer done.Store(true)
		for i := range int64(blocks) {
			m := Meta{Base: i, Last: i, MaxTime: i, Term: 1}
			b := block(m, 100+int(i%300), 1)
			if _, err := l.Append([]Meta{m}, []int{len(b)}, b); err != nil {
				t.Error(err)
				return
			}
		}
	})
	wg.Go(func() { // syncer
		for !done.Load() {
			end, _ := l.End()
			if err := errors.Join(l.Sync(end), l.Prepare(), l.FlushIndex()); err != nil {
				t.Error(err)
				return
			}
			if pos, _ := l.Synced(); pos.Compare(end) < 0 {
				t.Errorf("synced %s, want %s", pos, end)
			}
		}
	})
	wg.Go(func() { keepHouse(t, l, &done, &start) })
	for seed := range uint64(3) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for !done.Load() {
				readSome(t, l, rng, &start)
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := opt.Handles.Open(); n != 0 {
		t.Errorf("%d files are open after close", n)
	}
}

// keepHouse replaces sealed segments by every other of their blocks, and drops old ones.
func keepHouse(t *testing.T, l *Log, done *atomic.Bool, start *atomic.Int64) {
	for n := 0; !done.Load(); n++ {
		infos, err := l.Segments()
		if err != nil {
			t.Error(err)
			return
		}
		for i, in := range infos {
			if !in.Sealed || in.Compacted || i%2 == 0 {
				continue
			}
			err := l.Replace(in.Base, func(w io.Writer) error {
				return l.Walk(in.Base, in.Next, func(m Meta, _ Pos, b []byte) error {
					if m.Base%2 == 0 {
						return nil
					}
					_, err := w.Write(b)
					return err
				})
			})
			if err != nil && lattice.KindOf(err) != lattice.Conflict { // not sealed on disk yet
				t.Error(err)
				return
			}
		}
		if len(infos) > 12 {
			start.Store(infos[6].Base)
			if err := l.Drop(infos[6].Base); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

func readSome(t *testing.T, l *Log, rng *rand.Rand, start *atomic.Int64) {
	from := start.Load()
	next := l.Next()
	if next <= from {
		return
	}
	from += rng.Int64N(next - from)
	spans, err := l.Spans(from, next, 1+rng.Int64N(20000))
	if err != nil {
		if kind := lattice.KindOf(err); kind != lattice.OutOfRange && kind != lattice.NotYet {
			t.Error(err)
		}
		return
	}
	defer ReleaseAll(spans)
	prev := from - 1
	for _, s := range spans {
		b := make([]byte, s.Len)
		if _, err := s.ReadAt(b, 0); err != nil {
			t.Error(err)
			return
		}
		for len(b) > 0 {
			m, size, err := testCodec{}.Header(b)
			if err != nil || size > len(b) {
				t.Errorf("block in span from %d: %v", from, err)
				return
			}
			if m.Base <= prev || !bytes.Equal(b[:size], block(m, size, 1)) {
				t.Errorf("block %d after %d is wrong", m.Base, prev)
				return
			}
			prev, b = m.Base, b[size:]
		}
	}
	if m, ok, err := l.FindTime(from); err != nil || ok && m.MaxTime < from {
		t.Errorf("time %d: %+v, %v", from, m, err)
	}
	if _, b, err := l.Read(from, nil); err == nil && (testCodec{}).Check(b) != nil {
		t.Errorf("read %d", from)
	}
}

// TestSpanOutlivesTheSegment: a span that is held reads the old bytes after its
// segment was replaced or dropped, also when the next file is a recycled one.
func TestSpanOutlivesTheSegment(t *testing.T) {
	m := newScripted(t)
	for range 6 {
		if err := m.append(4); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.sync(); err != nil {
		t.Fatal(err)
	}
	m.saveHead()
	spans, err := m.l.Spans(0, m.next, 1<<20)
	if err != nil || len(spans) < 3 {
		t.Fatal(spans, err)
	}
	var want [][]byte
	for _, s := range spans {
		b := make([]byte, s.Len)
		if _, err := s.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		want = append(want, b)
	}
	if err := m.l.Replace(spans[1].Segment, func(io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	m.items = slicesOutside(m.items, spans[1].Segment, spans[2].Segment)
	if err := m.drop(spans[1].Segment); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if err := m.append(4); err != nil {
			t.Fatal(err)
		}
	}
	for i, s := range spans {
		b := make([]byte, s.Len)
		if n, err := s.ReadAt(b, 0); err != nil || n != len(b) || !bytes.Equal(b, want[i]) {
			t.Errorf("span %d: %d bytes, %v", i, n, err)
		}
	}
	ReleaseAll(spans)
	m.check()
	if err := m.l.Close(); err != nil {
		t.Fatal(err)
	}
}

func slicesOutside(items []item, from, to int64) []item {
	var out []item
	for _, it := range items {
		if it.m.Base < from || it.m.Base >= to {
			out = append(out, it)
		}
	}
	return out
}
