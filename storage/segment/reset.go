package segment

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// Reset lets go of all blocks: the log goes on at offset next, which is not before its
// end, with a file of that name. Whoever opens it must say so (Resume.Start). Readers
// keep what they hold. After an error of Kind Storage some of the blocks may still be
// here, and Reset can be called again.
func (l *Log) Reset(next int64) error {
	if have := l.Next(); next < have {
		return lattice.E(lattice.Invalid, fmt.Errorf("reset to offset %d: the log ends at %d", next, have))
	}
	if err := l.Roll(); err != nil {
		return err
	}
	end, have := l.End()
	if err := l.Sync(end); err != nil { // so that all files are sealed
		return fmt.Errorf("reset to offset %d: %w", next, err)
	}
	if err := l.Drop(have); err != nil {
		return fmt.Errorf("reset to offset %d: %w", next, err)
	}
	l.houseMu.Lock()
	defer l.houseMu.Unlock()
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.act; s != nil { // a file that an append made and never filled
		l.act, l.segs = nil, l.segs[:len(l.segs)-1:len(l.segs)-1]
		if w := l.w; w != nil {
			l.w = nil
			w.release()
		}
		l.opt.Handles.drop(s)
		if err := disk.RemoveIfExists(l.fs, l.name(s.base, logExt)); err != nil {
			return storage("reset to offset %d: %w", next, err)
		}
	}
	if len(l.segs) > 0 {
		return lattice.E(lattice.Conflict, fmt.Errorf("reset to offset %d: blocks were appended meanwhile", next))
	}
	l.next, l.synced, l.syncedOff = next, Pos{Segment: next}, next
	l.stale = 0
	return nil
}
