package segment

import (
	"container/list"
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Handles bounds how many segment files are open at a time, over all logs that
// share it. Files being appended to and files under a Span that was not released
// count, but are never closed. Safe for concurrent use.
type Handles struct {
	limit int
	bufs  sync.Pool // *[]byte, for scanning headers

	mu   sync.Mutex
	open int
	idle list.List // of *handle without references, most recently used first
}

// NewHandles returns a set that closes unused files beyond limit.
func NewHandles(limit int) *Handles {
	h := &Handles{limit: max(limit, 1)}
	h.bufs.New = func() any {
		b := make([]byte, 16<<10)
		return &b
	}
	return h
}

// Open returns how many files are open.
func (hs *Handles) Open() int {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.open
}

// handle is an open segment file, and its index once that was looked at.
type handle struct {
	set *Handles
	seg *segment
	f   vfs.File

	// The rest is guarded by set.mu.
	index vfs.File
	refs  int
	dead  bool // not the segment's any more: close when the last reference goes
	elem  *list.Element
}

// errGone says that a segment was dropped or replaced since it was looked up.
var errGone = errors.New("segment: file is gone")

// acquire returns the segment's open file, with a reference.
func (hs *Handles) acquire(s *segment, open func() (vfs.File, error)) (*handle, error) {
	hs.mu.Lock()
	if s.gone {
		hs.mu.Unlock()
		return nil, errGone
	}
	if h := s.h; h != nil {
		hs.ref(h)
		hs.mu.Unlock()
		return h, nil
	}
	hs.mu.Unlock()
	f, err := open()
	hs.mu.Lock()
	switch {
	case s.gone: // looked up by name: it may be another file already
		hs.mu.Unlock()
		if err == nil {
			_ = f.Close()
		}
		return nil, errGone
	case err != nil:
		hs.mu.Unlock()
		return nil, err
	case s.h != nil:
		h := s.h
		hs.ref(h)
		hs.mu.Unlock()
		return h, f.Close()
	}
	h := hs.put(s, f)
	shut := hs.evict()
	hs.mu.Unlock()
	closeAll(shut)
	return h, nil
}

// put makes f the segment's file, with one reference. hs.mu is held.
func (hs *Handles) put(s *segment, f vfs.File) *handle {
	h := &handle{set: hs, seg: s, f: f, refs: 1}
	s.h = h
	hs.open++
	return h
}

// adopt is put for a file that the caller opened. A file opened for reading in
// the meantime lives on for who has it.
func (hs *Handles) adopt(s *segment, f vfs.File) *handle {
	hs.mu.Lock()
	shut := hs.kill(s)
	h := hs.put(s, f)
	shut = append(shut, hs.evict()...)
	hs.mu.Unlock()
	closeAll(shut)
	return h
}

func (hs *Handles) ref(h *handle) {
	h.refs++
	if h.elem != nil {
		hs.idle.Remove(h.elem)
		h.elem = nil
	}
}

// release gives a reference back.
func (h *handle) release() {
	hs := h.set
	hs.mu.Lock()
	h.refs--
	var shut []vfs.File
	if h.refs == 0 {
		if h.dead {
			shut = hs.files(h)
		} else {
			h.elem = hs.idle.PushFront(h)
			shut = hs.evict()
		}
	}
	hs.mu.Unlock()
	closeAll(shut)
}

// drop says that the segment's file is not under its name any more. Who has it
// open keeps it; busy reports whether anyone has.
func (hs *Handles) drop(s *segment) (busy bool) {
	hs.mu.Lock()
	s.gone = true
	busy = s.h != nil && s.h.refs > 0
	shut := hs.kill(s)
	hs.mu.Unlock()
	closeAll(shut)
	return busy
}

// forgetIndex closes the segment's index, which was or will be written anew.
func (hs *Handles) forgetIndex(s *segment) {
	hs.mu.Lock()
	var f vfs.File
	if s.h != nil {
		f, s.h.index = s.h.index, nil
	}
	hs.mu.Unlock()
	if f != nil {
		_ = f.Close()
	}
}

func (hs *Handles) kill(s *segment) []vfs.File {
	h := s.h
	if h == nil {
		return nil
	}
	s.h, h.dead = nil, true
	if h.refs > 0 {
		return nil
	}
	hs.idle.Remove(h.elem)
	return hs.files(h)
}

// evict takes idle files out until the limit holds.
func (hs *Handles) evict() []vfs.File {
	var shut []vfs.File
	for hs.open > hs.limit && hs.idle.Len() > 0 {
		h := hs.idle.Remove(hs.idle.Back()).(*handle)
		h.elem, h.seg.h = nil, nil
		shut = append(shut, hs.files(h)...)
	}
	return shut
}

// files takes h out of the count and returns what to close.
func (hs *Handles) files(h *handle) []vfs.File {
	hs.open--
	if h.index == nil {
		return []vfs.File{h.f}
	}
	return []vfs.File{h.f, h.index}
}

func closeAll(files []vfs.File) {
	for _, f := range files {
		_ = f.Close() // read, or synced before: nothing depends on it
	}
}
