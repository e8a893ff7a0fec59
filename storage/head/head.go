// Package head is the small file that says how far a log is known to be good: its
// latest checkpoint, and all that is needed to go on from there without reading
// what lies before.
//
// The file has two slots of 8 KiB, written in turn, so that a torn write leaves
// the slot before. Numbers are big-endian.
//
//	0      2     3      4       12          20       28      36      44      48      52     56
//	+------+-----+------+-------+-----------+--------+-------+-------+-------+-------+------+-----
//	| "LH" | ver | zero | seq   | segment   | at     | next  | start | term  | body  | edge | ...
//	+------+-----+------+-------+-----------+--------+-------+-------+-------+-------+------+-----
//	  magic  1            u64     i64         i64      i64     i64     i32     u32 n   u32 m
//
//	 56        56+n          56+n+32m     60+n+32m
//	+-----------+-------------+------------+
//	| body, n   | edge, 32 m  | crc32c     |  of all before it
//	+-----------+-------------+------------+
//
//	 4096     4098  4099   4100     4108       4112     4112+k     4116+k
//	+--------+-----+------+--------+----------+--------+----------+
//	| "LS"   | ver | zero | seq    | length k | note   | crc32c   |  of the note's area before it
//	+--------+-----+------+--------+----------+--------+----------+
//
// The first 4 KiB are durable before Write returns: the log position, the
// checkpoint's body and the right edge of the tree under it. The note, which is
// the body with its signature, comes afterwards and is not synced: it can be made
// again from the body. It counts only if its seq is the slot's.
//
// The file has its full size from the start, so that a sync of it needs no change
// of metadata.
//
// # Rules for changing it
//
// A new field needs a new version, which this version refuses as damage, and a row
// in docs/format/README.md.
package head

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/segment"
)

const (
	// SlotSize is the size of one of the two slots.
	SlotSize = 8 << 10
	// FileSize is the size of the file.
	FileSize = 2 * SlotSize
	// MaxEdge is how many hashes the right edge of a tree can have.
	MaxEdge = 64
	// MaxBody is how long a checkpoint's body can be, in bytes.
	MaxBody = noteAt - fixed - MaxEdge*hashSize - crcSize
	// MaxNote is how long a signed note can be, in bytes.
	MaxNote = SlotSize - noteAt - noteFixed - crcSize

	noteAt    = SlotSize / 2
	fixed     = 56
	noteFixed = 16
	hashSize  = len(lattice.Hash{})
	crcSize   = 4
	version   = 1
)

// Slot is one state of a log's head.
type Slot struct {
	Seq   uint64         // counts up from 1 with every write
	Pos   segment.Pos    // where the blocks under the checkpoint end
	Next  int64          // the offset there
	Start int64          // the log's first offset
	Term  int32          // the term of the last block
	Body  []byte         // the checkpoint, unsigned
	Edge  []lattice.Hash // the right edge of the tree
	Note  []byte         // the checkpoint, signed; empty if that was not written yet
}

// State is what Open found.
type State struct {
	Slot    Slot
	OK      bool  // there is a valid slot; false for a new or wholly damaged file
	Damaged error // a slot is neither valid nor empty: Slot may be one write old. Kind Corrupt
	First   bool  // one slot is damaged and the other empty: no write but the first was ever begun
}

// File is a head file. It is opened for each use, because most logs are idle.
// The methods may be called concurrently, and wait for each other.
type File struct {
	fs   disk.FS
	name string

	mu   sync.Mutex
	seq  uint64 // of the last write that was started
	slot int    // where the next write goes
	live int    // where the last good write went, -1 before the first
	good uint64 // its seq
}

// Open opens the head file called name, or makes an empty one that is durable
// under its name, and returns the newest valid slot, which is durable then.
func Open(fs disk.FS, name string) (*File, State, error) {
	info, err := fs.Stat(name)
	if disk.IsNotExist(err) || err == nil && info.Size() == 0 {
		if err = disk.WriteFile(fs, name, make([]byte, FileSize)); err != nil {
			return nil, State{}, lattice.E(lattice.Storage, fmt.Errorf("make head %s: %w", name, err))
		}
	} else if err != nil {
		return nil, State{}, lattice.E(lattice.Storage, fmt.Errorf("stat head %s: %w", name, err))
	}
	h := &File{fs: fs, name: name, live: -1}
	b, err := h.read()
	if err != nil {
		return nil, State{}, err
	}
	st := h.load(b)
	if st.OK && len(st.Slot.Note) == 0 {
		// It may be in the page cache only: written, but not synced when the
		// process ended. Whoever acts on it relies on it. A note is written
		// after the sync, so with one, this is not needed.
		at := h.live * SlotSize
		if err := h.write(b[at:at+SlotSize], at, vfs.File.SyncData); err != nil {
			return nil, State{}, lattice.E(lattice.Storage, fmt.Errorf("make head %d durable: %w", st.Slot.Seq, err))
		}
	}
	return h, st, nil
}

// read returns the file's bytes. What a file that was cut short does not have
// reads as zeros, and so as damage or as empty.
func (h *File) read() ([]byte, error) {
	f, err := h.fs.Open(h.name)
	if err != nil {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("open head %s: %w", h.name, err))
	}
	b := make([]byte, FileSize)
	_, err = f.ReadAt(b, 0)
	if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, io.EOF) {
		return nil, lattice.E(lattice.Storage, fmt.Errorf("read head %s: %w", h.name, err))
	}
	return b, nil
}

// load chooses the newest valid slot and where the next write goes.
func (h *File) load(b []byte) State {
	var st State
	empty := 0
	for i := range 2 {
		s, err := Decode(b[i*SlotSize : (i+1)*SlotSize])
		switch {
		case errors.Is(err, errEmpty):
			empty++
		case err != nil:
			st.Damaged = errors.Join(st.Damaged, fmt.Errorf("slot %d: %w", i, err))
		case !st.OK || s.Seq > st.Slot.Seq:
			st.Slot, st.OK = s, true
			h.live, h.slot = i, 1-i
			h.seq, h.good = s.Seq, s.Seq
		}
	}
	if st.Damaged != nil {
		st.First = empty == 1
		st.Damaged = lattice.E(lattice.Corrupt, fmt.Errorf("head: %w", st.Damaged))
		h.seq++ // the damaged slot may have had the next number
	}
	return st
}

// Load reads the file again and returns the newest valid slot.
func (h *File) Load() (State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b, err := h.read()
	if err != nil {
		return State{}, err
	}
	fresh := File{live: -1} // this one's idea of what to write next stays
	return fresh.load(b), nil
}

// Write writes s into the slot that does not hold the newest state, with the next
// sequence number, and makes it durable. It returns that number. s.Note and s.Seq
// are ignored: WriteNote adds the note. After an error of Kind Storage the state
// on disk is the one before or this one, and Write can be called again.
func (h *File) Write(s Slot) (uint64, error) {
	s.Note = nil
	return h.WriteSigned(s)
}

// WriteSigned is Write for a state whose note cannot be made again: it is written, and
// made durable, with the rest. Kind TooLarge: it does not fit.
func (h *File) WriteSigned(s Slot) (uint64, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Seq = h.seq + 1
	b, err := Encode(s)
	if err != nil {
		return 0, err
	}
	h.seq = s.Seq // also if it fails: the number may be on the disk
	err = h.write(b, h.slot*SlotSize, vfs.File.SyncData)
	if err != nil {
		return 0, lattice.E(lattice.Storage, fmt.Errorf("write head %d: %w", s.Seq, err))
	}
	h.live, h.slot, h.good = h.slot, 1-h.slot, s.Seq
	return s.Seq, nil
}

// WriteNote adds the signed note to the state with number seq. It is not synced.
// Kind Conflict: that is not the newest state any more.
func (h *File) WriteNote(seq uint64, note []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.live < 0 || seq != h.good {
		return lattice.E(lattice.Conflict, fmt.Errorf("write the note of head %d: the head is at %d", seq, h.good))
	}
	if len(note) > MaxNote {
		return lattice.E(lattice.TooLarge, fmt.Errorf("write the note of head %d: %d bytes, at most %d fit", seq, len(note), MaxNote))
	}
	b := appendNote(make([]byte, 0, noteFixed+len(note)+crcSize), seq, note)
	if err := h.write(b, h.live*SlotSize+noteAt, nil); err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("write the note of head %d: %w", seq, err))
	}
	return nil
}

// write writes b at a position and then calls sync, if any.
func (h *File) write(b []byte, at int, sync func(vfs.File) error) error {
	f, err := h.fs.OpenReadWrite(h.name, disk.Category)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, int64(at))
	if err == nil && sync != nil {
		err = sync(f)
	}
	return errors.Join(err, f.Close())
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// Encode returns the bytes of a slot, SlotSize long.
func Encode(s Slot) ([]byte, error) {
	b, err := appendDurable(make([]byte, 0, SlotSize), s)
	if err != nil {
		return nil, err
	}
	if len(s.Note) > MaxNote {
		return nil, lattice.E(lattice.TooLarge, fmt.Errorf("note of %d bytes, at most %d fit", len(s.Note), MaxNote))
	}
	b = append(b, make([]byte, noteAt-len(b))...)
	if len(s.Note) > 0 {
		b = appendNote(b, s.Seq, s.Note)
	}
	return append(b, make([]byte, SlotSize-len(b))...), nil
}

func appendDurable(b []byte, s Slot) ([]byte, error) {
	if len(s.Body) > MaxBody || len(s.Edge) > MaxEdge {
		return nil, lattice.E(lattice.TooLarge, fmt.Errorf("head %d: a body of %d bytes and %d hashes do not fit", s.Seq, len(s.Body), len(s.Edge)))
	}
	if s.Pos.At < 0 || s.Pos.Segment < 0 || s.Next < s.Pos.Segment || s.Start < 0 || s.Seq == 0 {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("head %d: position %s, offset %d, start %d", s.Seq, s.Pos, s.Next, s.Start))
	}
	from := len(b)
	u := binary.BigEndian
	b = append(b, 'L', 'H', version, 0)
	b = u.AppendUint64(b, s.Seq)
	b = u.AppendUint64(b, uint64(s.Pos.Segment))
	b = u.AppendUint64(b, uint64(s.Pos.At))
	b = u.AppendUint64(b, uint64(s.Next))
	b = u.AppendUint64(b, uint64(s.Start))
	b = u.AppendUint32(b, uint32(s.Term))
	b = u.AppendUint32(b, uint32(len(s.Body)))
	b = u.AppendUint32(b, uint32(len(s.Edge)))
	b = append(b, s.Body...)
	for _, h := range s.Edge {
		b = append(b, h[:]...)
	}
	return u.AppendUint32(b, checksum(b[from:])), nil
}

func appendNote(b []byte, seq uint64, note []byte) []byte {
	from := len(b)
	u := binary.BigEndian
	b = append(b, 'L', 'S', version, 0)
	b = u.AppendUint64(b, seq)
	b = u.AppendUint32(b, uint32(len(note)))
	b = append(b, note...)
	return u.AppendUint32(b, checksum(b[from:]))
}

// errEmpty says that a slot was never written.
var errEmpty = errors.New("empty")

// Decode reads one slot of SlotSize bytes. A note that is damaged or another
// state's is left out; everything else that is wrong is an error of Kind Corrupt.
func Decode(b []byte) (Slot, error) {
	bad := func(format string, args ...any) (Slot, error) {
		return Slot{}, lattice.E(lattice.Corrupt, fmt.Errorf(format, args...))
	}
	if len(b) != SlotSize {
		return bad("a slot of %d bytes", len(b))
	}
	if isZero(b[:noteAt]) {
		return Slot{}, errEmpty
	}
	u := binary.BigEndian
	if b[0] != 'L' || b[1] != 'H' {
		return bad("magic %q", b[:2])
	}
	if b[2] != version || b[3] != 0 {
		return bad("version %d", b[2])
	}
	n, m := int(u.Uint32(b[48:])), int(u.Uint32(b[52:]))
	if n > MaxBody || m > MaxEdge {
		return bad("a body of %d bytes and %d hashes", n, m)
	}
	end := fixed + n + m*hashSize
	if want, have := u.Uint32(b[end:]), checksum(b[:end]); want != have {
		return bad("checksum %08x, want %08x", have, want)
	}
	if !isZero(b[end+crcSize : noteAt]) {
		return bad("bytes behind the checksum")
	}
	s := Slot{
		Seq:   u.Uint64(b[4:]),
		Pos:   segment.Pos{Segment: int64(u.Uint64(b[12:])), At: int64(u.Uint64(b[20:]))},
		Next:  int64(u.Uint64(b[28:])),
		Start: int64(u.Uint64(b[36:])),
		Term:  int32(u.Uint32(b[44:])),
		Body:  append([]byte{}, b[fixed:fixed+n]...),
		Edge:  make([]lattice.Hash, m),
	}
	for i := range s.Edge {
		copy(s.Edge[i][:], b[fixed+n+i*hashSize:])
	}
	if _, err := appendDurable(nil, s); err != nil {
		return bad("%w", err)
	}
	s.Note = decodeNote(b[noteAt:], s.Seq)
	return s, nil
}

func decodeNote(b []byte, seq uint64) []byte {
	u := binary.BigEndian
	if b[0] != 'L' || b[1] != 'S' || b[2] != version || b[3] != 0 || u.Uint64(b[4:]) != seq {
		return nil
	}
	n := int(u.Uint32(b[12:]))
	if n == 0 || n > MaxNote || u.Uint32(b[noteFixed+n:]) != checksum(b[:noteFixed+n]) {
		return nil
	}
	return append([]byte{}, b[noteFixed:noteFixed+n]...)
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
