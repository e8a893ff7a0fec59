package segment

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/storage/disk"
)

// fileSize returns the size of the file that is written to.
func (m *model) fileSize() int64 {
	m.t.Helper()
	infos, err := m.l.Segments()
	if err != nil {
		m.t.Fatalf("%v", err)
	}
	info, err := m.fs.Stat(m.l.name(infos[len(infos)-1].Base, logExt))
	if err != nil {
		m.t.Fatalf("%v", err)
	}
	return info.Size()
}

// TestRoomIsOfTheLogsSize holds the room ahead to what the log has itself, and a
// little log to the first step, however often it is synced: thousands of them
// share a disk, and what is ahead was written, too.
func TestRoomIsOfTheLogsSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t, disk.NewMem(), Options{Codec: testCodec{}, Handles: NewHandles(2)}, rapid.Uint64().Draw(t, "seed"))
		bytes := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "appends") {
			size := rapid.SampledFrom([]int{60, 5000, 100_000, 900_000}).Draw(t, "size")
			b := block(Meta{Base: m.l.Next(), Last: m.l.Next(), MaxTime: 1, Term: 1}, size, 3)
			if _, err := m.l.Append([]Meta{{Base: m.l.Next(), Last: m.l.Next(), MaxTime: 1, Term: 1}}, []int{size}, b); err != nil {
				t.Fatal(err)
			}
			bytes += int64(size)
			end, _ := m.l.End()
			for range rapid.IntRange(0, 3).Draw(t, "syncs") {
				if err := m.l.Sync(end); err != nil {
					t.Fatal(err)
				}
				if err := m.l.Prepare(); err != nil {
					t.Fatal(err)
				}
			}
			// A step is added when less than half of one is left.
			if got, most := m.fileSize(), bytes+3*max(bytes, steps[0])/2; got > most {
				t.Fatalf("%d bytes of blocks in a file of %d, want at most %d", bytes, got, most)
			}
		}
	})
}

// TestIdleLogClosesWithoutSync makes every sync fail once all is durable: closing
// needs none, and a power cut behind it takes nothing, at whatever it leaves of
// what was written last.
func TestIdleLogClosesWithoutSync(t *testing.T) {
	for _, percent := range []int{0, 50, 100} {
		t.Run(fmt.Sprint(percent), func(t *testing.T) {
			m := newScripted(t)
			for range 6 {
				if err := m.append(3); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.sync(); err != nil {
				t.Fatal(err)
			}
			m.saveHead()
			syncs := 0
			m.fs.SetFault(func(op disk.Op) *disk.Fault {
				if op.Kind != disk.OpSync && op.Kind != disk.OpSyncDir {
					return nil
				}
				syncs++
				return &disk.Fault{Err: disk.ErrInjected}
			})
			err := m.l.Close()
			m.fs.SetFault(nil)
			if err != nil || syncs > 0 {
				t.Fatalf("close: %v, after %d syncs", err, syncs)
			}
			m.crash(percent)
			m.check()
			if err := m.append(3); err != nil {
				t.Fatal(err)
			}
			if err := m.sync(); err != nil {
				t.Fatal(err)
			}
			m.saveHead()
			m.crash(percent)
			m.check()
		})
	}
}
