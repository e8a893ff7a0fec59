package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestPowerLoss cuts the power at random moments while writers append, keeping
// none, some or all of what was not synced. Whatever was acknowledged at level
// fsync is there afterwards, at its offset, and the log goes on.
func TestPowerLoss(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for seed := range rounds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { powerLoss(t, uint64(seed)) })
	}
}

func powerLoss(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	mem := disk.NewMem()
	f := newFixture(t, mem)
	top := f.topic("t", 2, map[string]string{"segment.bytes": fmt.Sprint(300 + rng.IntN(3000))})
	acked := [2]sync.Map{}                // offset -> value
	before := [2]map[int64]string{{}, {}} // what was acknowledged when the power went
	var wg sync.WaitGroup
	var crashed *disk.Mem
	var n atomic.Int64
	cut := int64(20 + rng.IntN(150))
	percent := []int{0, 30, 100}[rng.IntN(3)]
	var once sync.Once
	for w := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := 0; n.Load() < cut; i++ {
				p := f.part(top, int32(w%2))
				v := fmt.Sprintf("w%d-%d", w, i)
				r, err := produce(p, batchOf(time.Now().UnixMilli(), v))
				if err != nil {
					t.Error(err)
					return
				}
				acked[w%2].Store(r.Base, v)
				if n.Add(1) == cut {
					once.Do(func() {
						for i := range before {
							acked[i].Range(func(k, v any) bool { before[i][k.(int64)] = v.(string); return true })
						}
						crashed = mem.CrashClone(percent, rng)
					})
				}
			}
		}()
	}
	wg.Wait()
	g := &fixture{t: t, cfg: f.cfg}
	g.cfg.FS = crashed
	g.open()
	for i := range before {
		p := g.part(top, int32(i))
		got := values(t, p, 0)
		if b := p.Bounds(); b.End != int64(len(got)) {
			t.Fatalf("partition %d: %d records, end %d: not dense", i, len(got), b.End)
		}
		for at, v := range before[i] {
			if at >= int64(len(got)) || got[at] != v {
				t.Errorf("partition %d: acknowledged %q at %d is not there", i, v, at)
			}
		}
		full := values(t, f.part(top, int32(i)), 0)
		if len(got) > len(full) || !slices.Equal(got, full[:len(got)]) {
			t.Errorf("partition %d: what is left is no prefix of what was written", i)
		}
		if s := p.Status(); s.Failed != "" {
			t.Errorf("partition %d takes no writes: %s", i, s.Failed)
		}
		if r, err := produce(p, batchOf(time.Now().UnixMilli(), "after")); err != nil || r.Base != int64(len(got)) {
			t.Errorf("partition %d goes on with %+v, %v; want offset %d", i, r, err, len(got))
		}
	}
}

// TestAcknowledgedSurvivesPowerLoss acknowledges one record at a time and cuts
// the power right after each acknowledgement.
func TestAcknowledgedSurvivesPowerLoss(t *testing.T) {
	mem := disk.NewMem()
	f := newFixture(t, mem)
	top := f.topic("t", 1, map[string]string{"segment.bytes": "500"})
	p := f.part(top, 0)
	for i := range 30 {
		v := fmt.Sprint("v", i)
		r, err := produce(p, batchOf(time.Now().UnixMilli(), v))
		if err != nil {
			t.Fatal(err)
		}
		g := &fixture{t: t, cfg: f.cfg}
		g.cfg.FS = mem.CrashClone(0, nil)
		g.open()
		if got := values(t, g.part(top, 0), r.Base); len(got) != 1 || got[0] != v {
			t.Fatalf("after the power cut at %d: %v, want %s", r.Base, got, v)
		}
		g.stop()
	}
}

// TestEachStepFails lets every single operation on the file system fail once,
// both ways: lost, and kept but reported as failed. A producer may hear an error;
// then the record may be there or not. What was acknowledged is there, before and
// after a power cut, and the log goes on.
func TestEachStepFails(t *testing.T) {
	for _, kept := range []bool{false, true} {
		for step := 0; ; step++ {
			if done := eachStep(t, kept, step); done {
				if step < 10 {
					t.Fatalf("only %d steps", step)
				}
				t.Logf("kept=%v: %d steps", kept, step)
				break
			}
			if t.Failed() {
				return
			}
		}
	}
}

var errInjected = errors.New("injected")

func eachStep(t *testing.T, kept bool, step int) (done bool) {
	mem := disk.NewMem()
	f := newFixture(t, mem)
	f.hurt = true
	top := f.topic("t", 1, map[string]string{"segment.bytes": "400"})
	p := f.part(top, 0)
	var want []string
	ack := func(v string) {
		if _, err := produce(p, batchOf(time.Now().UnixMilli(), v)); err == nil {
			want = append(want, v)
		}
	}
	ack("before")
	var count atomic.Int64
	var what string
	mem.SetFault(func(op disk.Op) *disk.Fault {
		if count.Add(1) == int64(step+1) {
			what = fmt.Sprint(op)
			return &disk.Fault{Err: errInjected, Kept: kept}
		}
		return nil
	})
	for i := range 6 {
		ack(fmt.Sprint("during ", i))
	}
	_, _, _ = p.Checkpoint(context.Background(), true)
	_, _ = p.Truncate(context.Background(), 1)
	mem.SetFault(nil)
	if count.Load() <= int64(step) {
		return true
	}
	for range 3 { // a log that failed takes writes again once a sync succeeded
		ack("after")
	}
	if len(want) == 0 || want[len(want)-1] != "after" {
		t.Errorf("step %d (%s, kept=%v): the log does not recover: %+v", step, what, kept, p.Status())
	}
	contains := func(where string, got []string) {
		t.Helper()
		i := 0
		for _, v := range got {
			if i < len(want) && v == want[i] {
				i++
			}
		}
		if i < len(want) {
			t.Errorf("step %d (%s, kept=%v), %s: %q is missing from %q", step, what, kept, where, want[i], got)
		}
	}
	// The truncation may have taken effect, also where it was reported as failed.
	all := want
	from := func(p *partition.Partition) int64 {
		start := p.Bounds().Start
		want = all[min(start, 1):]
		return start
	}
	contains("at once", values(t, p, from(p)))
	g := &fixture{t: t, cfg: f.cfg}
	g.cfg.FS = mem.CrashClone(0, nil)
	g.open()
	gp := g.part(top, 0)
	contains("after a power cut", values(t, gp, from(gp)))
	if _, err := produce(gp, batchOf(time.Now().UnixMilli(), "on")); err != nil {
		t.Errorf("step %d (%s, kept=%v): after a power cut: %v", step, what, kept, err)
	}
	g.stop()
	f.stop()
	return false
}

// TestDiskFull: appends are refused with Kind Storage, reads go on, and appends
// work again when there is space.
func TestDiskFull(t *testing.T) {
	mem := disk.NewMem()
	f := newFixture(t, mem)
	top := f.topic("t", 1, nil)
	p := f.part(top, 0)
	big := string(make([]byte, 40_000))
	if _, err := produce(p, batchOf(1, "first")); err != nil {
		t.Fatal(err)
	}
	mem.SetFull(true)
	var refused error
	for range 100 {
		if _, refused = produce(p, batchOf(1, big)); refused != nil {
			break
		}
	}
	if lattice.KindOf(refused) != lattice.Storage {
		t.Fatalf("on a full disk: %v", refused)
	}
	if got := values(t, p, 0); got[0] != "first" {
		t.Fatalf("read on a full disk: %v", got)
	}
	end := p.Bounds().End
	mem.SetFull(false)
	if r, err := produce(p, batchOf(1, "last")); err != nil || r.Base != end {
		t.Fatalf("with space again: %+v, %v", r, err)
	}
}

// TestDamagedMiddleIsReported flips a byte in the middle of the log: it is not
// served, what is whole is, and the log takes no writes.
func TestDamagedMiddleIsReported(t *testing.T) {
	mem := disk.NewMem()
	f := newFixture(t, mem)
	top := f.topic("t", 1, nil)
	p := f.part(top, 0)
	for i := range 20 {
		if _, err := produce(p, batchOf(1, fmt.Sprint("value-", i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Prove(context.Background(), 3); err != nil {
		t.Fatal(err)
	}
	name := f.topicDir(top.ID) + "/0/00000000000000000000.log"
	data, err := disk.ReadFile(mem, name)
	if err != nil {
		t.Fatal(err)
	}
	at := indexOf(data, []byte("value-10"))
	file, err := mem.OpenReadWrite(name, disk.Category)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte("X"), int64(at)); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	var got []byte
	s, err := p.Read(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	for {
		n, err := s.NextChunk(buf)
		if err != nil {
			if lattice.KindOf(err) != lattice.Storage {
				t.Fatalf("read over the damage: %v", err)
			}
			break
		}
		got = append(got, buf[:n]...)
	}
	s.Release()
	if i := indexOf(got, []byte("value-9")); i < 0 {
		t.Error("what lies before the damage was not served")
	}
	if indexOf(got, []byte("Xalue-10")) >= 0 && indexOf(got, []byte("value-11")) >= 0 {
		t.Error("the damaged batch was served whole")
	}
	if _, err := p.Read(10, 100); lattice.KindOf(err) != lattice.Storage {
		t.Errorf("read at the damage: %v", err)
	}
	if got := values(t, p, 11); len(got) != 9 {
		t.Errorf("behind the damage: %v", got)
	}
	if _, err := produce(p, batchOf(1, "no")); lattice.KindOf(err) != lattice.Storage {
		t.Errorf("append to a damaged log: %v", err)
	}
	if s := p.Status(); s.Failed == "" || len(s.Damaged) != 1 || s.Damaged[0] != (partition.Range{From: 10, To: 11}) {
		t.Errorf("status: %+v", s)
	}
}

func indexOf(b, want []byte) int {
	for i := range b {
		if i+len(want) <= len(b) && string(b[i:i+len(want)]) == string(want) {
			return i
		}
	}
	return -1
}
