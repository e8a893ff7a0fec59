package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// Writer writes a snapshot: the items of each kind in their order, kind after
// kind, then Close. It holds one chunk in memory. Not safe for concurrent use.
type Writer struct {
	w     io.Writer
	head  Head
	kind  Kind
	buf   []byte // a chunk's head, then its body so far
	item  []byte
	chain chain
	count Counts
	size  int64
	err   error

	place  sigchain.Place // the last of each
	record []byte
	fork   sigchain.Signed
	row    state.Address
}

// NewWriter begins a snapshot. Errors of w come from the calls that follow.
func NewWriter(w io.Writer, h Head) *Writer {
	x := &Writer{w: w, head: h, kind: KindHead}
	x.write([]byte{'L', 'B', version})
	x.chunk(KindHead, append(append([]byte(nil), h.Genesis.Bytes()...), h.Root[:]...))
	return x
}

// Size returns how many bytes were written.
func (w *Writer) Size() int64 { return w.size }

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.size += int64(len(b))
	}
}

// chunk writes one chunk.
func (w *Writer) chunk(k Kind, body []byte) {
	sum := w.chain.next(k, body)
	b := append(make([]byte, 0, chunkHead+len(body)+len(sum)), byte(k))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	w.write(append(append(b, body...), sum[:]...))
}

// flush writes what there is of a kind's last chunk.
func (w *Writer) flush() {
	if len(w.buf) > 0 {
		w.chunk(w.kind, w.buf)
		w.buf = w.buf[:0]
	}
}

// add takes the next item of a kind, which is in w.item.
func (w *Writer) add(k Kind, ascending bool) error {
	switch {
	case w.err != nil:
		return w.err
	case k < w.kind || k == w.kind && !ascending:
		return lattice.E(lattice.Internal, fmt.Errorf("snapshot: items of kind %d are out of order", k))
	case len(w.item) > MaxItem:
		return lattice.E(lattice.TooLarge, fmt.Errorf("snapshot: an item of %d bytes, at most %d", len(w.item), MaxItem))
	case k > w.kind:
		w.flush()
		w.kind = k
	}
	*w.count.of(k)++
	for rest := w.item; len(rest) > 0; {
		n := min(MaxChunk-len(w.buf), len(rest))
		w.buf, rest = append(w.buf, rest[:n]...), rest[n:]
		if len(w.buf) == MaxChunk {
			w.flush()
		}
	}
	if cap(w.item) > MaxChunk {
		w.item = nil
	}
	return w.err
}

// Place adds to the frontier.
func (w *Writer) Place(by state.Writer, seq uint64) error {
	p := sigchain.Place{Author: by.Author, Incarnation: by.Incarnation, Seq: seq}
	w.item = appendPlace(w.item[:0], by, seq)
	before := w.place
	w.place = p
	return w.add(KindFrontier, before.Seq == 0 || before.Compare(p) < 0)
}

// Record adds a record of the machine.
func (w *Writer) Record(r fold.Record) error {
	w.item = appendRecord(w.item[:0], r)
	before := w.record
	w.record = r.Key
	return w.add(KindRecords, before == nil || bytes.Compare(before, r.Key) < 0)
}

// Fork adds an entry that proves, with another, a fork.
func (w *Writer) Fork(s sigchain.Signed) error {
	w.item = appendBytes(w.item[:0], s.Bytes())
	before := w.fork
	w.fork = s
	return w.add(KindForks, before.Seq == 0 || compareForks(before, s) < 0)
}

// Row adds a row.
func (w *Writer) Row(a state.Address, r state.Row) error {
	w.item = appendAddress(w.item[:0], a)
	w.item = appendBytes(w.item, r.AppendTo(nil))
	before := w.row
	w.row = a
	return w.add(KindRows, before.Kind == 0 || before.Compare(a) < 0)
}

// Close ends the snapshot and signs it.
func (w *Writer) Close(key identity.Key) (Seal, error) {
	w.flush()
	var end []byte
	for k := KindFrontier; k <= KindRows; k++ {
		end = binary.BigEndian.AppendUint64(end, *w.count.of(k))
	}
	w.kind = KindEnd
	w.chunk(KindEnd, end)
	s := Seal{Sum: w.chain.sum, Counts: w.count, Signer: key.Author()}
	s.Signature = key.Sign(identity.DomainSnapshot, signed(w.head, s.Sum))
	w.chunk(KindSignature, append(append([]byte(nil), s.Signer[:]...), s.Signature[:]...))
	w.kind = KindSignature
	return s, w.err
}
