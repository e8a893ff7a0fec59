package merkle

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"golang.org/x/mod/sumdb/note"
)

// ErrCheckpoint means that bytes are no checkpoint of a version known here.
// Kind Corrupt.
var ErrCheckpoint = lattice.E(lattice.Corrupt, errors.New("not a checkpoint"))

const (
	originPrefix = "lattice/"
	maxLogName   = 255
	// MaxNote bounds a signed checkpoint in bytes: its text and 100 signatures.
	MaxNote = 32 << 10
)

// Checkpoint is a signed statement of a log's writer about its log. See the
// package comment.
type Checkpoint struct {
	Origin      string       // names the log; see Origin
	Size        uint64       // blocks in the tree
	Root        lattice.Hash // of that tree
	Start       int64        // first offset still offered
	End         int64        // next offset
	Term        int32        // leader epoch
	Grant       lattice.Hash // of the term's grant; zero: none
	Incarnation uint64       // of the signing node
	Time        uint64       // hybrid timestamp (core/clock)
}

// Cosignature says that a follower held the checkpoint's blocks durably.
type Cosignature struct {
	Author lattice.AuthorID
	Time   uint64 // seconds since 1970, by the follower's clock
}

// Origin returns the origin line of a log of a store.
func Origin(store lattice.StoreID, log string) string {
	return originPrefix + store.String() + "/" + log
}

// ParseOrigin splits an origin line. Wraps ErrCheckpoint.
func ParseOrigin(origin string) (store lattice.StoreID, log string, err error) {
	rest, ok := strings.CutPrefix(origin, originPrefix)
	hex, log, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 {
		return store, "", fmt.Errorf("%w: origin %q, want lattice/<store>/<log>", ErrCheckpoint, origin)
	}
	store, err = lattice.ParseStoreID(hex)
	if err != nil || Origin(store, log) != origin {
		return store, "", fmt.Errorf("%w: origin %q names no store", ErrCheckpoint, origin)
	}
	if err := checkLogName(log); err != nil {
		return store, "", fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	return store, log, nil
}

func checkLogName(log string) error {
	bad := strings.IndexFunc(log, func(r rune) bool { return r <= ' ' || r > '~' || r == '+' })
	if log == "" || len(log) > maxLogName || bad >= 0 {
		return lattice.E(lattice.Invalid, fmt.Errorf("log name %q: want 1 to %d printable ASCII characters without spaces and plus signs", log, maxLogName))
	}
	return nil
}

func (c Checkpoint) check() error {
	if _, _, err := ParseOrigin(c.Origin); err != nil {
		return err
	}
	switch {
	case c.Start < 0 || c.Start > c.End:
		return fmt.Errorf("%w: start %d, end %d", ErrCheckpoint, c.Start, c.End)
	case c.Size > uint64(c.End):
		return fmt.Errorf("%w: %d blocks end at offset %d", ErrCheckpoint, c.Size, c.End)
	case c.Size == 0 && (c.Root != EmptyRoot() || c.End != 0):
		return fmt.Errorf("%w: no blocks, but root %s and end %d", ErrCheckpoint, c.Root.Short(), c.End)
	case c.Term < 0:
		return fmt.Errorf("%w: term %d", ErrCheckpoint, c.Term)
	}
	return nil
}

// Body returns the text that is signed. It does not check the fields.
func (c Checkpoint) Body() []byte {
	return fmt.Appendf(make([]byte, 0, 512), "%s\n%d\n%s\nstart %d\nend %d\nterm %d\ngrant %s\nincarnation %d\ntime %d\n",
		c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]), c.Start, c.End, c.Term, c.Grant, c.Incarnation, c.Time)
}

// ParseBody reads the text of a checkpoint. What it accepts is exactly what Body
// returns. Wraps ErrCheckpoint.
func ParseBody(text []byte) (Checkpoint, error) {
	if len(text) > MaxNote {
		return Checkpoint{}, fmt.Errorf("%w: %d bytes", ErrCheckpoint, len(text))
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) != 10 || lines[9] != "" {
		return Checkpoint{}, fmt.Errorf("%w: %d lines, want 9", ErrCheckpoint, len(lines)-1)
	}
	c := Checkpoint{Origin: lines[0]}
	var errs [8]error
	c.Size, errs[0] = strconv.ParseUint(lines[1], 10, 64)
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if errs[1] = err; err == nil && len(root) != len(c.Root) {
		errs[1] = fmt.Errorf("root of %d bytes", len(root))
	}
	copy(c.Root[:], root)
	c.Start, errs[2] = strconv.ParseInt(strings.TrimPrefix(lines[3], "start "), 10, 64)
	c.End, errs[3] = strconv.ParseInt(strings.TrimPrefix(lines[4], "end "), 10, 64)
	term, err := strconv.ParseInt(strings.TrimPrefix(lines[5], "term "), 10, 32)
	c.Term, errs[4] = int32(term), err
	c.Grant, errs[5] = lattice.ParseHash(strings.TrimPrefix(lines[6], "grant "))
	c.Incarnation, errs[6] = strconv.ParseUint(strings.TrimPrefix(lines[7], "incarnation "), 10, 64)
	c.Time, errs[7] = strconv.ParseUint(strings.TrimPrefix(lines[8], "time "), 10, 64)
	for i, err := range errs {
		if err != nil {
			return Checkpoint{}, fmt.Errorf("%w: line %d: %w", ErrCheckpoint, i+2, err)
		}
	}
	// A missing label, a leading zero, a plus sign, upper-case hex and the like
	// all come back otherwise than they came.
	if !bytes.Equal(c.Body(), text) {
		return Checkpoint{}, fmt.Errorf("%w: not in the one form it has", ErrCheckpoint)
	}
	return c, c.check()
}

// PeekCheckpoint reads the text of a signed note whose signatures are not checked: it
// says which term's grant tells who must have signed it. Wraps ErrCheckpoint.
func PeekCheckpoint(signed []byte) (Checkpoint, error) {
	if len(signed) > MaxNote {
		return Checkpoint{}, fmt.Errorf("%w: %d bytes", ErrCheckpoint, len(signed))
	}
	text, _, _ := bytes.Cut(signed, []byte("\n\n"))
	return ParseBody(append(bytes.Clone(text), '\n'))
}

// SignCheckpoint returns c as a note signed by key. Errors: c itself is wrong
// (wraps ErrCheckpoint).
func SignCheckpoint(key identity.Key, c Checkpoint) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return note.Sign(&note.Note{Text: string(c.Body())}, key.NoteSigner())
}

// OpenCheckpoint reads a signed note and checks author's signature under it.
// Other signatures are not looked at. Wraps ErrCheckpoint, or
// identity.ErrSignature when author did not sign exactly this.
func OpenCheckpoint(signed []byte, author lattice.AuthorID) (Checkpoint, error) {
	c, _, err := open(signed, author, note.VerifierList(identity.NoteVerifier(author)))
	return c, err
}

// OpenCosigned is OpenCheckpoint for a note in which every signature must be
// checked: author's, and C2SP cosignatures of lattice nodes, whose names hold
// their keys. It accepts exactly one encoding: any changed byte is refused.
func OpenCosigned(signed []byte, author lattice.AuthorID) (Checkpoint, []Cosignature, error) {
	c, n, err := open(signed, author, namedKeys{author})
	if err != nil {
		return Checkpoint{}, nil, err
	}
	var cosigned []Cosignature
	for _, s := range n.Sigs {
		raw, err := base64.StdEncoding.DecodeString(s.Base64)
		if err != nil || len(raw) < 12 || base64.StdEncoding.EncodeToString(raw) != s.Base64 {
			return Checkpoint{}, nil, fmt.Errorf("%w: signature of %s: loose base64", ErrCheckpoint, s.Name)
		}
		if s.Hash == identity.NoteVerifier(author).KeyHash() && s.Name == identity.NoteName(author) {
			continue
		}
		a, err := identity.ParseNoteName(s.Name)
		if err != nil {
			return Checkpoint{}, nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
		}
		cosigned = append(cosigned, Cosignature{a, binary.BigEndian.Uint64(raw[4:])})
	}
	// note.Open skips repeated lines, so compare.
	if again, err := note.Sign(n); err != nil || !bytes.Equal(again, signed) {
		return Checkpoint{}, nil, fmt.Errorf("%w: not in the one form it has", ErrCheckpoint)
	}
	return c, cosigned, nil
}

// Cosign adds key's C2SP cosignature, dated unix (seconds since 1970), to a note
// that author signed. A cosignature that key had given before is replaced; other
// signatures are kept.
func Cosign(key identity.Key, unix uint64, signed []byte, author lattice.AuthorID) ([]byte, error) {
	_, n, err := open(signed, author, note.VerifierList(identity.NoteVerifier(author)))
	if err != nil {
		return nil, fmt.Errorf("cosign: %w", err)
	}
	return note.Sign(n, key.Cosigner(unix))
}

func open(signed []byte, author lattice.AuthorID, known note.Verifiers) (Checkpoint, *note.Note, error) {
	if len(signed) > MaxNote {
		return Checkpoint{}, nil, fmt.Errorf("%w: %d bytes", ErrCheckpoint, len(signed))
	}
	n, err := note.Open(signed, known)
	var invalid *note.InvalidSignatureError
	var unverified *note.UnverifiedNoteError
	switch {
	case errors.As(err, &invalid), errors.As(err, &unverified), errors.Is(err, identity.ErrSignature):
		return Checkpoint{}, nil, fmt.Errorf("checkpoint of %s: %w: %w", author.Short(), identity.ErrSignature, err)
	case err != nil:
		return Checkpoint{}, nil, fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	want := identity.NoteVerifier(author)
	for _, s := range n.Sigs {
		if s.Name == want.Name() && s.Hash == want.KeyHash() {
			c, err := ParseBody([]byte(n.Text))
			return c, n, err
		}
	}
	return Checkpoint{}, nil, fmt.Errorf("checkpoint of %s: %w: others only", author.Short(), identity.ErrSignature)
}

// namedKeys finds the keys that are spelled out in the names of a note's
// signatures, and has an error for every other.
type namedKeys struct{ author lattice.AuthorID }

func (k namedKeys) Verifier(name string, hash uint32) (note.Verifier, error) {
	a, err := identity.ParseNoteName(name)
	if err != nil {
		return nil, err
	}
	if v := identity.NoteVerifier(a); a == k.author && v.KeyHash() == hash {
		return v, nil
	}
	if v := identity.CosignatureVerifier(a); v.KeyHash() == hash {
		return v, nil
	}
	return nil, fmt.Errorf("%w: that of %s is neither the writer's nor a cosignature", identity.ErrSignature, a.Short())
}
