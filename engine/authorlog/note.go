package authorlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/storage/disk"
)

// Of a log that another node wrote, the newest checkpoint that its author signed is
// kept beside it. With it, entries are served to others with one signature for many,
// wherever they stand (mesh/reconcile).
//
//	<log's directory>/author.note     big-endian
//
//	 0      2     3     4        8         8+n
//	+------+-----+-----+--------+---------+--------+
//	| "LK" | ver | 0   | length | note    | crc32c |   of all before it
//	|      | 1   |     | u32    | n bytes |        |
//	+------+-----+-----+--------+---------+--------+
//
// The note is a checkpoint (core/merkle) of at most MaxNote bytes. It can cover more
// than is here. Only a log that begins at the first entry has one: a later beginning
// has another tree.
//
// It is written beside and renamed, and not synced: it decides nothing. A power cut
// leaves the one before, this one, or bytes that do not match their checksum and are
// passed over; then others check each signature until the author's next checkpoint
// comes.
const (
	// NoteFile is the name of the file in the log's directory.
	NoteFile = "author.note"
	// MaxNote bounds a checkpoint that is kept. The author's own have some 500 bytes.
	MaxNote = 4096

	noteVersion = 1
	noteHeader  = 2 + 1 + 1 + 4
)

// ErrNote means bytes that are no kept checkpoint. Kind Corrupt.
var ErrNote = lattice.E(lattice.Corrupt, errors.New("damaged checkpoint of the author"))

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// EncodeNote returns the file of a checkpoint.
func EncodeNote(note []byte) []byte {
	b := append(make([]byte, 0, noteHeader+len(note)+4), 'L', 'K', noteVersion, 0)
	b = append(binary.BigEndian.AppendUint32(b, uint32(len(note))), note...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodeNote returns the checkpoint in a file. Its signature is the caller's to
// check. Wraps ErrNote.
func DecodeNote(b []byte) ([]byte, error) {
	switch {
	case len(b) < noteHeader+4 || b[0] != 'L' || b[1] != 'K' || b[2] != noteVersion || b[3] != 0:
		return nil, fmt.Errorf("%w: it does not begin with LK and version %d", ErrNote, noteVersion)
	case binary.BigEndian.Uint32(b[4:]) > MaxNote || int(binary.BigEndian.Uint32(b[4:])) != len(b)-noteHeader-4:
		return nil, fmt.Errorf("%w: its length does not match", ErrNote)
	case binary.BigEndian.Uint32(b[len(b)-4:]) != crc32.Checksum(b[:len(b)-4], castagnoli):
		return nil, fmt.Errorf("%w: its checksum does not match", ErrNote)
	}
	return b[noteHeader : len(b)-4], nil
}

// Sealed is a checkpoint of the log's author that is here.
type Sealed struct {
	merkle.Checkpoint
	Note []byte // signed
}

// notes are the author's checkpoints of a log that another node wrote. The newest
// may cover what is not here yet; then the one before serves.
type notes struct {
	mu             sync.Mutex
	loaded         bool
	newest, before sealed
}

type sealed struct {
	Sealed
	compared bool // with the tree here, which has that root
}

// KeepNote keeps a checkpoint of the log's author if it is newer than what is kept:
// from now on in memory, and soon in the file. The caller has verified it; it is
// opened all the same, as everything that is read back is. A checkpoint of another
// log, or one that is too long, is refused: Kind Invalid.
func (l *Log) KeepNote(note []byte) error {
	if l.ours() || l.o.After.Seq > 0 {
		return nil
	}
	c, err := l.openNote(note)
	if err != nil {
		return err
	}
	n := &l.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	l.loadNote()
	if c.Size <= n.newest.Size {
		return nil
	}
	if n.newest.Size > 0 {
		n.before = n.newest
	}
	n.newest = sealed{Sealed: c}
	return l.writeNote(c.Note)
}

// ours reports whether this node is the log's author, so that its own checkpoints
// are the author's.
func (l *Log) ours() bool { return l.o.Key.Author() == l.o.Writer.Author }

func (l *Log) openNote(note []byte) (Sealed, error) {
	if len(note) > MaxNote {
		return Sealed{}, lattice.E(lattice.Invalid, fmt.Errorf("checkpoint of %s: %d bytes, at most %d are kept", Name(l.o.Writer), len(note), MaxNote))
	}
	c, err := merkle.OpenCheckpoint(note, l.o.Writer.Author)
	if err == nil && c.Origin != merkle.Origin(l.o.Store, Name(l.o.Writer)) {
		err = fmt.Errorf("it is of %q", c.Origin)
	}
	if err != nil {
		return Sealed{}, lattice.E(lattice.Invalid, fmt.Errorf("checkpoint of %s: %w", Name(l.o.Writer), err))
	}
	return Sealed{c, append([]byte(nil), note...)}, nil
}

func (l *Log) notePath() string { return l.o.FS.PathJoin(l.Start().Dir(l.o.FS, l.o.Dir), NoteFile) }

// loadNote reads what is kept, once. notes.mu is held.
func (l *Log) loadNote() {
	n := &l.notes
	if n.loaded {
		return
	}
	n.loaded = true
	b, err := disk.ReadFile(l.o.FS, l.notePath())
	if disk.IsNotExist(err) {
		return
	}
	var note []byte
	if err == nil {
		note, err = DecodeNote(b)
	}
	var c Sealed
	if err == nil {
		c, err = l.openNote(note)
	}
	if err != nil {
		l.o.Logger.Warn("the checkpoint of a log's author cannot be used; the next one takes its place", "log", Name(l.o.Writer), "err", err)
		return
	}
	n.newest = sealed{Sealed: c}
}

// writeNote puts a checkpoint into the file. See the drawing for what a crash leaves.
func (l *Log) writeNote(note []byte) error {
	tmp := l.notePath() + ".tmp"
	f, err := l.o.FS.Create(tmp, disk.Category)
	if err == nil {
		_, err = f.Write(EncodeNote(note))
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = l.o.FS.Rename(tmp, l.notePath())
	}
	if err != nil {
		return lattice.E(lattice.Storage, fmt.Errorf("keep the checkpoint of %s: %w", Name(l.o.Writer), err))
	}
	return nil
}

// Seal returns the newest checkpoint of the log's author that covers the entries
// behind after as far as possible, at most up to upto, and the last entry that it
// covers. ok is false when none covers any.
func (l *Log) Seal(after, upto uint64) (c Sealed, last uint64, ok bool) {
	if l.o.After.Seq > 0 {
		return Sealed{}, 0, false
	}
	if l.ours() {
		own := l.log.Checkpoint()
		c = Sealed{own.Checkpoint, own.Note}
		return c, min(c.Size, upto), len(c.Note) > 0 && c.Size > after
	}
	n := &l.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	l.loadNote()
	if n.newest.Size <= after { // then the one before, too
		return Sealed{}, 0, false
	}
	for _, s := range []*sealed{&n.newest, &n.before} {
		if s.Size > after && l.matches(s) {
			return s.Sealed, min(s.Size, upto), true
		}
	}
	return Sealed{}, 0, false
}

// matches reports whether a checkpoint is of the tree that is here, as far as that
// is hashed. One of another tree, which its author must have signed beside this one,
// is let go: nothing that is here can be proven by it.
func (l *Log) matches(s *sealed) bool {
	if s.compared {
		return true
	}
	root, err := l.log.RootAt(s.Size)
	switch {
	case err != nil:
		return false // not all of it is here yet
	case root != s.Root:
		l.o.Logger.Error("an author signed another tree than that of its entries here", "log", Name(l.o.Writer), "blocks", s.Size)
		*s = sealed{}
		return false
	}
	s.compared = true
	return true
}

// Extend returns the compact range of the tree before the entries behind after, and
// the proof that the tree with those up to upto is a prefix of c's. Errors: those of
// signedlog.Log.Extend.
func (l *Log) Extend(after, upto uint64, c Sealed) (left, proof []lattice.Hash, err error) {
	return l.log.Extend(after, upto, c.Size)
}
