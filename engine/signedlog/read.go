package signedlog

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/segment"
)

// Scan calls f for each stored block from the one that covers offset from, in
// order, as long as they end before offset limit. Blocks are not checked against
// their checksum: they were when they were written, and are when they are served.
func (l *Log) Scan(from, limit int64, f func(Block) error) error {
	return l.seg.Walk(from, limit, func(m segment.Meta, pos segment.Pos, b []byte) error {
		return f(Block{m, pos, b})
	})
}

// Read returns the block that covers offset, checked, in buf, which grows as
// needed. Errors by Kind: OutOfRange (dropped), NotYet, Corrupt, Storage.
func (l *Log) Read(offset int64, buf []byte) (segment.Meta, []byte, error) {
	return l.seg.Read(offset, buf)
}

// Spans returns what can be read from offset from, below limit, about max bytes
// and at least one block. The caller releases them.
func (l *Log) Spans(from, limit int64, max int) ([]segment.Span, error) {
	return l.seg.Spans(from, limit, int64(max))
}

// FindTime returns the first block whose greatest timestamp is ms or later.
func (l *Log) FindTime(ms int64) (segment.Meta, bool, error) { return l.seg.FindTime(ms) }

// FindMaxTime returns the first block that has the greatest timestamp.
func (l *Log) FindMaxTime() (segment.Meta, bool, error) { return l.seg.FindMaxTime() }

// Roll seals the active file.
func (l *Log) Roll() error { return l.seg.Roll() }

// Readable reports whether offset lies in a range that is known to be damaged:
// Kind Storage if so.
func (l *Log) Readable(offset int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.damaged {
		if r.From <= offset && offset < r.To {
			return lattice.E(lattice.Storage, fmt.Errorf("offsets %d to %d are damaged", r.From, r.To-1))
		}
	}
	return nil
}

// Sound returns the first damaged offset at or above from, or limit: nothing at
// or beyond it may be served together with from.
func (l *Log) Sound(from, limit int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.damaged {
		if r.From >= from {
			limit = min(limit, r.From)
		}
	}
	return limit
}

var errUnchanged = errors.New("nothing to rewrite")

// Rewrite replaces the blocks of a sealed file by what write produces, unless it
// reports no change. The tree goes on covering the original blocks. settle is
// called with the hash and length of the new bytes before they take the file's
// name, and must make durable whatever says so: after a crash the old bytes are
// there or the new ones. It reports whether the file was replaced.
func (l *Log) Rewrite(base int64, settle func(sum [32]byte, size int64) error, write func(io.Writer) (changed bool, err error)) (bool, error) {
	err := l.seg.Replace(base, func(w io.Writer) error {
		h := sha256.New()
		c := &counter{w: io.MultiWriter(w, h)}
		changed, err := write(c)
		if err != nil {
			return err
		}
		if !changed {
			return errUnchanged
		}
		// From here on the blocks do not give the file's leaves again.
		l.certMu.Lock()
		err = l.tree.sync()
		l.certMu.Unlock()
		if err != nil {
			return err
		}
		return settle([32]byte(h.Sum(nil)), c.n)
	})
	if errors.Is(err, errUnchanged) {
		return false, nil
	}
	return err == nil, err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}
