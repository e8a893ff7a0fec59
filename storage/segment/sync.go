package segment

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

var errSuspect = errors.New("unsynced blocks do not read back as they were written")

// Sync makes everything before a position durable, and whatever else was
// appended when it began. Appends go on meanwhile. After an error of Kind
// Storage nothing is known about the blocks behind Synced; the next Sync writes
// them again.
func (l *Log) Sync(upTo Pos) error {
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	return l.sync(upTo)
}

func (l *Log) sync(upTo Pos) error {
	l.mu.Lock()
	if l.synced.Compare(upTo) >= 0 || l.closed {
		closed := l.closed && l.synced.Compare(upTo) < 0
		l.mu.Unlock()
		if closed {
			return ErrClosed
		}
		return nil
	}
	todo := make([]*segment, 0, 4)
	for _, s := range l.segs {
		if s.state == closing || s.state == active && s.syncedAt < s.end {
			todo = append(todo, s)
		}
	}
	pos, off := l.endPos(), l.next
	l.mu.Unlock()

	err := l.syncFiles(todo, pos, off)
	l.mu.Lock()
	names := l.newNames // those of the indexes too
	l.newNames = false
	l.mu.Unlock()
	if err == nil && names {
		if err = disk.SyncDir(l.fs, l.dir); err != nil {
			err = storage("sync %s: %w", l.dir, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.newNames = l.newNames || names
		return fmt.Errorf("sync up to %s: %w", upTo, err)
	}
	l.synced, l.syncedOff = pos, off
	return nil
}

// syncFiles seals what waits for it and syncs the active file up to pos, where
// offset off begins. The order does not matter: nothing is reported before all
// of it is done.
func (l *Log) syncFiles(todo []*segment, pos Pos, off int64) error {
	for _, s := range todo {
		if s.base < pos.Segment {
			if err := l.seal(s); err != nil {
				return fmt.Errorf("seal segment %d: %w", s.base, err)
			}
			continue
		}
		// Active when the sync began. If it rolled since, the next sync seals it.
		if err := l.syncActive(s, pos.At, off); err != nil {
			return fmt.Errorf("segment %d: %w", s.base, err)
		}
	}
	return nil
}

// syncActive makes the blocks before byte position end and offset off durable.
func (l *Log) syncActive(s *segment, end, off int64) error {
	h, err := l.forWriting(s)
	if err != nil {
		return err
	}
	defer h.done()
	if err := l.mend(s, h.f, end); err != nil {
		return err
	}
	if err := h.f.SyncData(); err != nil {
		return l.suspect(s, err)
	}
	l.mu.Lock()
	s.syncedAt, s.syncedOff = end, off
	l.mu.Unlock()
	return nil
}

// seal trims a full file to its blocks, makes blocks and length durable, then
// writes the indexes. Each step may be repeated.
//
// The last file of a log that closes needs less, because Open reads it on from
// where it is told and believes its index for the hint's sake: only its blocks
// must be durable. So thousands of idle logs close without a sync.
func (l *Log) seal(s *segment) error {
	h, err := l.forWriting(s)
	if err != nil {
		return err
	}
	defer h.done()
	if err := l.mend(s, h.f, s.end); err != nil {
		return err
	}
	l.mu.RLock()
	last := l.stopping && s == l.segs[len(l.segs)-1]
	dirty := s.syncedAt < s.end
	l.mu.RUnlock()
	l.growMu.Lock() // Prepare must not write behind the end any more
	err = l.fs.Truncate(l.name(s.base, logExt), s.end)
	l.growMu.Unlock()
	if err != nil {
		return storage("trim: %w", err)
	}
	if dirty || !last {
		if err := h.f.Sync(); err != nil {
			return l.suspect(s, err)
		}
	}
	l.mu.Lock()
	s.syncedAt, s.syncedOff = s.end, s.next
	x, t := s.index, s.times
	l.mu.Unlock()
	x.addTime(s.base, &t)
	if x.offsets == nil {
		x.offsets = []offsetEntry{}
	}
	err = l.flushIndex(s.base, &x, !last)
	if err != nil {
		l.opt.Logger.Warn("segment index not written", "dir", l.dir, "segment", s.base, "error", err)
		if rmErr := l.removeIndex(s.base); rmErr != nil { // what is there is not complete, and would pass for it
			return errors.Join(err, rmErr)
		}
		l.opt.Handles.forgetIndex(s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.state = sealed
	s.index = memIndex{}
	if err != nil && x.offsetsGone+x.timesGone == 0 { // made again by the next process; until then served from memory
		s.index = x
	} // else it is made again when somebody looks
	l.newNames = l.newNames || !last
	if last && err == nil {
		err = l.writeHint(s.base, &x)
	} else {
		err = disk.RemoveIfExists(l.fs, l.name(s.base, hintExt))
	}
	if err != nil { // the next Open reads more, or removes it
		l.opt.Logger.Debug("segment hint", "dir", l.dir, "segment", s.base, "error", err)
	}
	return nil
}

// writable is a segment's file open for writing.
type writable struct {
	f vfs.File
	h *handle // nil: opened for this use
}

func (w writable) done() {
	if w.h != nil {
		w.h.release()
		return
	}
	_ = w.f.Close()
}

// forWriting returns the file that the appender writes to, or opens it.
func (l *Log) forWriting(s *segment) (writable, error) {
	l.mu.RLock()
	w := l.refWriter(s)
	l.mu.RUnlock()
	if w != nil {
		return writable{w.f, w}, nil
	}
	f, err := l.fs.OpenReadWrite(l.name(s.base, logExt), disk.Category)
	if err != nil {
		return writable{}, storage("open to sync: %w", err)
	}
	return writable{f: f}, nil
}

// refWriter returns the handle that the appender writes to s with, referenced;
// nil when there is none. l.mu is held.
func (l *Log) refWriter(s *segment) *handle {
	if l.w == nil || l.w.seg != s {
		return nil
	}
	l.opt.Handles.mu.Lock()
	defer l.opt.Handles.mu.Unlock()
	l.opt.Handles.ref(l.w)
	return l.w
}

// suspect remembers that a sync failed: what it should have covered is clean
// for the kernel and may not be on the disk.
func (l *Log) suspect(s *segment, err error) error {
	l.mu.Lock()
	s.suspect = true
	l.mu.Unlock()
	return storage("sync: %w", err)
}

// mend writes the blocks between syncedAt and end again if a sync failed, after
// checking that they read back intact. The caller then syncs; if that fails the
// segment is suspect again.
func (l *Log) mend(s *segment, f vfs.File, end int64) error {
	l.mu.Lock()
	needed, at, off := s.suspect, s.syncedAt, s.syncedOff
	l.mu.Unlock()
	if !needed {
		return nil
	}
	sc := l.opt.Handles.scan(f, l.opt.Codec, end, 256<<10)
	defer l.opt.Handles.done(sc)
	for at < end {
		m, b, err := sc.block(at)
		if err == nil && m.Base != off {
			err = corrupt("block at %d begins at offset %d, want %d", at, m.Base, off)
		}
		if err == nil {
			err = l.opt.Codec.Check(b)
		}
		if err != nil {
			return lattice.E(lattice.Storage, fmt.Errorf("%w: %w", errSuspect, err))
		}
		if _, err := f.WriteAt(b, at); err != nil {
			return storage("write blocks at %d again: %w", at, err)
		}
		at, off = at+int64(len(b)), m.Last+1
	}
	l.mu.Lock()
	s.suspect = false
	l.mu.Unlock()
	return nil
}

// Close makes everything durable, trims the active file and writes its index.
// Spans stay readable until they are released. The error is the first that kept
// something from being durable; the log is closed all the same.
func (l *Log) Close() error {
	l.houseMu.Lock()
	defer l.houseMu.Unlock()
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	l.syncMu.Lock()
	defer l.syncMu.Unlock()
	l.mu.RLock()
	s, closed := l.act, l.closed
	l.mu.RUnlock()
	if closed {
		return nil
	}
	var err error
	switch {
	case s == nil:
	case s.end > 0:
		l.mu.Lock()
		l.stopping = true
		l.mu.Unlock()
		l.roll(s) // which the sync seals; Open decides anew whether it is appended to
	default:
		_ = l.fs.Truncate(l.name(s.base, logExt), 0) // room for an append that failed
	}
	end, _ := l.End()
	if err = l.sync(end); err != nil {
		err = fmt.Errorf("close: %w", err)
	}
	l.mu.Lock()
	l.closed = true
	segs, w, names := l.segs, l.w, l.newNames
	l.w = nil
	l.mu.Unlock()
	if names && err == nil {
		if err = disk.SyncDir(l.fs, l.dir); err != nil {
			err = storage("close: %w", err)
		}
	}
	if w != nil {
		w.release()
	}
	for _, s := range segs {
		l.opt.Handles.drop(s)
	}
	return err
}
