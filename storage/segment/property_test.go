package segment

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/storage/disk"
)

// TestHistories: whatever is done to a log, and wherever the power goes, all that
// was reported durable is there, in order and without holes, and nothing that was
// not appended is.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { history(t, 0) })
}

// TestHistoriesWithFaults is TestHistories on a disk whose operations fail now and
// then, having been applied or not.
func TestHistoriesWithFaults(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { history(t, rapid.SampledFrom([]int{6, 25, 100}).Draw(t, "faults")) })
}

func history(t *rapid.T, faults int) {
	opt := Options{
		Codec:        testCodec{},
		Handles:      NewHandles(rapid.IntRange(1, 4).Draw(t, "handles")),
		SegmentBytes: rapid.SampledFrom([]int64{700, 3000, 20000}).Draw(t, "segment"),
		IndexBytes:   rapid.SampledFrom([]int64{1, 200, 1000}).Draw(t, "index"),
		keep:         rapid.SampledFrom([]int{1, 3, indexKept}).Draw(t, "kept entries"),
		Recycle:      rapid.IntRange(-1, 2).Draw(t, "recycle"),
	}
	seed := rapid.Uint64().Draw(t, "seed")
	m := newModel(t, disk.NewMem(), opt, seed)
	plan := randomFaults(rand.New(rand.NewPCG(seed, 9)), max(faults, 1))
	arm := func() {
		if faults > 0 {
			m.fs.SetFault(plan)
		}
	}
	arm()
	steps := rapid.SliceOfN(rapid.SampledFrom([]string{
		"append", "append", "append", "append", "sync", "sync", "head", "head", "roll", "drop", "replace",
		"index", "prepare", "crash", "reopen", "kill", "check",
	}), rapid.SampledFrom([]int{1, 40, 120}).Draw(t, "at least"), 160).Draw(t, "steps")
	for _, step := range steps {
		switch step {
		case "append":
			_ = m.append(1 + m.rng.IntN(4))
		case "sync":
			_ = m.sync()
		case "head":
			if m.sync() == nil {
				m.saveHead()
			}
		case "roll":
			if err := m.l.Roll(); err != nil {
				t.Fatalf("roll: %v", err)
			}
		case "drop": // as an engine: only what a head covers
			if m.sync() == nil {
				m.saveHead()
				_ = m.drop(m.start + m.rng.Int64N(m.head.Next-m.start+1))
			}
		case "replace":
			m.fs.SetFault(nil) // a failed one leaves the old or the new file: see TestSteps
			_ = m.replace()
			arm()
		case "index":
			_ = m.l.FlushIndex()
		case "prepare":
			_ = m.l.Prepare()
		case "crash":
			m.crash(rapid.SampledFrom([]int{0, 20, 50, 90, 100}).Draw(t, "percent"))
			arm()
		case "reopen", "kill":
			m.reopen(step == "reopen")
		case "check":
			m.fs.SetFault(nil)
			m.check()
			arm()
		}
	}
	m.fs.SetFault(nil)
	m.check()
	if err := m.sync(); err != nil {
		t.Fatalf("sync on a healthy disk: %v", err)
	}
	m.saveHead()
	m.crash(0)
	m.check()
	if err := m.l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if n := m.opt.Handles.Open(); n != 0 {
		t.Fatalf("%d files are open after close", n)
	}
}
