package segment

import (
	"bytes"
	"testing"

	"github.com/lattice-log/lattice/storage/disk"
)

func TestSmoke(t *testing.T) {
	for name, fs := range map[string]disk.FS{"mem": disk.NewMem(), "os": disk.OS()} {
		t.Run(name, func(t *testing.T) {
			dir := "/log"
			if name == "os" {
				dir = t.TempDir()
			}
			opt := Options{Codec: testCodec{}, SegmentBytes: 100 << 10, IndexBytes: 512}
			l, rec, err := Open(fs, dir, opt, Resume{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var want [][]byte
			for i := range int64(1000) {
				m := Meta{Base: i * 3, Last: i*3 + 2, MaxTime: i * 10, Term: 1}
				b := block(m, 500+int(i), 1)
				want = append(want, b)
				if _, err := l.Append([]Meta{m}, []int{len(b)}, b); err != nil {
					t.Fatal(err)
				}
			}
			check := func() {
				t.Helper()
				var got []byte
				spans, err := l.Spans(0, 3000, 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range spans {
					b := make([]byte, s.Len)
					if _, err := s.ReadAt(b, 0); err != nil {
						t.Fatal(err)
					}
					got = append(got, b...)
				}
				ReleaseAll(spans)
				if !bytes.Equal(got, bytes.Join(want, nil)) {
					t.Fatal("bytes differ")
				}
				for i := range int64(1000) {
					m, b, err := l.Read(i*3+1, nil)
					if err != nil || m.Base != i*3 || !bytes.Equal(b, want[i]) {
						t.Fatalf("read %d: %v %v", i, m, err)
					}
					m, ok, err := l.FindTime(i*10 - 5)
					if !ok || err != nil || m.MaxTime != i*10 {
						t.Fatalf("time %d: %v %v %v", i, m, ok, err)
					}
				}
				m, ok, err := l.FindMaxTime()
				if !ok || err != nil || m.MaxTime != 9990 {
					t.Fatal(m, ok, err)
				}
			}
			check()
			end, _ := l.End()
			if err := l.Sync(end); err != nil {
				t.Fatal(err)
			}
			check()
			pos, next := l.Synced()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l, rec, err = Open(fs, dir, opt, Resume{Pos: pos, Next: next}, nil)
			if err != nil || rec.Cut != nil || rec.Damaged != nil || rec.Blocks != 0 {
				t.Fatal(rec, err)
			}
			check()
			infos, err := l.Segments()
			if err != nil || len(infos) < 8 || infos[3].MaxTime != (infos[3].Next/3-1)*10 || infos[3].FirstTime != infos[3].Base/3*10 {
				t.Fatal(infos, err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			l, rec, err = Open(fs, dir, opt, Resume{}, nil)
			if err != nil || rec.Cut != nil || rec.Damaged != nil || rec.Blocks != 1000 {
				t.Fatal(rec, err)
			}
			check()
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
