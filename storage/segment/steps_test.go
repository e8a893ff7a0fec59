package segment

import (
	"fmt"
	"testing"

	"github.com/lattice-log/lattice/storage/disk"
)

// script does everything that changes files at least once, as an engine would.
// Each step may be tried again when it failed.
func script(m *model) []func() error {
	appendSome := func() error { return m.append(3) }
	head := func() error {
		err := m.sync()
		if err == nil {
			m.saveHead()
		}
		return err
	}
	drop := func() error { return m.drop(m.head.Next / 3) }
	var keep, gone []item
	var base int64 = -1
	replace := func() error {
		if base < 0 {
			infos, err := m.l.Segments()
			if err != nil {
				return err
			}
			base = infos[1].Base
			for i, it := range m.items {
				if it.m.Base < base || it.m.Base >= infos[1].Next {
					continue
				}
				if i%2 == 0 {
					keep = append(keep, it)
				} else {
					gone = append(gone, it)
				}
			}
		}
		return m.replaceBy(base, keep, gone)
	}
	return []func() error{
		appendSome, head, appendSome, func() error { return m.l.FlushIndex() }, appendSome, appendSome,
		head, func() error { return m.l.Prepare() }, appendSome, m.l.Roll, appendSome, appendSome, head,
		replace, drop, appendSome, appendSome, appendSome, head, func() error { return m.l.FlushIndex() },
		appendSome, m.sync, appendSome, func() error { return m.l.Close() },
	}
}

func newScripted(t fataler) *model {
	return newModel(t, disk.NewMem(), Options{Codec: testCodec{}, SegmentBytes: 2500, IndexBytes: 100, Handles: NewHandles(2), keep: 2}, 5)
}

// TestSteps fails each single operation of a script, once lost and once kept but
// reported as failed. Then the step is repeated, or the power goes at once, and
// every block that was durable must be there, and nothing else.
func TestSteps(t *testing.T) {
	n := 0
	m := newScripted(t)
	m.fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind.Changes() {
			n++
		}
		return nil
	})
	for _, step := range script(m) {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if n < 60 {
		t.Fatalf("the script has %d operations", n)
	}
	for fail := range n {
		for _, kept := range []bool{false, true} {
			for _, percent := range []int{-1, 0, 40, 100} {
				t.Run(fmt.Sprintf("%d kept %v crash %d", fail, kept, percent), func(t *testing.T) {
					runScript(t, fail, kept, percent)
				})
			}
		}
	}
}

func runScript(t *testing.T, fail int, kept bool, percent int) {
	m := newScripted(t)
	n := 0
	var failed disk.Op
	m.fs.SetFault(func(op disk.Op) *disk.Fault {
		if !op.Kind.Changes() {
			return nil
		}
		if n++; n != fail+1 {
			return nil
		}
		failed = op
		return &disk.Fault{Err: errFault, Kept: kept, Short: 100}
	})
	steps := script(m)
	for i, step := range steps {
		err := step()
		if err == nil {
			continue
		}
		if percent >= 0 {
			m.crash(percent)
			m.check()
			return
		}
		if i == len(steps)-1 {
			break // Close, which leaves a closed log: the next open is the retry
		}
		if err := step(); err != nil {
			t.Fatalf("step %d again, after %s of %s: %v", i, failed.Kind, failed.Path, err)
		}
	}
	m.reopen(false)
	m.check()
	if err := m.sync(); err != nil {
		t.Fatal(err)
	}
	m.saveHead()
	m.crash(0)
	m.check()
}

// TestFullDisk: a full disk refuses appends, with Kind Storage, but no reads, and
// what was durable stays; with room again, everything goes on.
func TestFullDisk(t *testing.T) {
	m := newScripted(t)
	for range 5 {
		if err := m.append(2); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.sync(); err != nil {
		t.Fatal(err)
	}
	m.saveHead()
	m.fs.SetFull(true)
	refused := 0
	for range 20 {
		if m.append(3) != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Fatal("no append was refused")
	}
	if err := m.sync(); err != nil {
		t.Fatalf("sync on a full disk: %v", err)
	}
	m.check()
	_ = m.l.FlushIndex()
	_ = m.l.Prepare()
	m.check()
	m.fs.SetFull(false)
	for range 5 {
		if err := m.append(3); err != nil {
			t.Fatalf("append with room again: %v", err)
		}
	}
	if err := m.sync(); err != nil {
		t.Fatal(err)
	}
	m.saveHead()
	m.check()
	m.crash(0)
	m.check()
}

// TestFullDiskAtOpen: a log opens on a full disk, also when its end has to be cut.
func TestFullDiskAtOpen(t *testing.T) {
	m := newScripted(t)
	if err := m.append(3); err != nil {
		t.Fatal(err)
	}
	if err := m.sync(); err != nil {
		t.Fatal(err)
	}
	m.saveHead()
	if err := m.append(1); err != nil {
		t.Fatal(err)
	}
	m.reopenTorn()
	m.check()
}

// reopenTorn kills the process, damages the last block, and opens on a full disk.
func (m *model) reopenTorn() {
	m.t.Helper()
	last := m.items[len(m.items)-1]
	_, pos, err := m.l.Find(last.m.Base)
	if err != nil {
		m.t.Fatalf("find: %v", err)
	}
	flip(m.t, m.fs, m.l.name(pos.Segment, logExt), pos.At+testHeader+3)
	m.items = m.items[:len(m.items)-1]
	m.fs.SetFull(true)
	m.reopen(false)
	m.fs.SetFull(false)
}
