package p2p

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// deadliner is the part of a stream that reading and writing messages needs.
type deadliner interface {
	io.ReadWriter
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

const (
	firstPiece = 256 << 10 // of a body, before more memory is taken for it
	smallRead  = 4 << 10
)

// form is what there is to know of a protocol's messages to take them off a stream: a
// header of so many bytes, the kind in the fourth of them, says how long the rest is.
type form struct {
	bodySize func(header []byte) (int, error) // its errors wrap bad
	bad      error
}

const (
	headerSize = 8
	kindHello  = 1
)

var (
	entryForm = form{reconcile.BodySize, reconcile.ErrMessage}
	batchForm = form{batches.BodySize, batches.ErrMessage}
)

// frames reads messages off a stream. One goroutine uses it.
type frames struct {
	form
	from   deadliner
	in     *bufio.Reader
	limits *Limits
	large  chan struct{} // a place for each large message that may be on its way
}

func newFrames(of form, from deadliner, l *Limits, large chan struct{}) *frames {
	return &frames{form: of, from: from, in: bufio.NewReaderSize(from, smallRead), limits: l, large: large}
}

// frame is one message. Whoever has it calls done when it is taken apart.
type frame struct {
	bytes []byte
	large chan struct{}
}

func (f frame) done() {
	if f.large != nil {
		<-f.large
	}
}

// hello reads the first message of a stream, which must be one.
func (f *frames) hello() (frame, error) {
	_ = f.from.SetReadDeadline(time.Now().Add(f.limits.HelloTime)) // fails on a closed stream: so does reading
	header, err := f.in.Peek(headerSize)
	if err != nil {
		return frame{}, err
	}
	if header[3] != kindHello {
		return frame{}, fmt.Errorf("%w: a stream that does not begin with a hello", f.bad)
	}
	return f.next(f.limits.HelloTime)
}

// next reads one message, which must begin within wait. Its memory grows as bytes
// come, so what its header claims costs nothing. Errors wrap bad, with
// the header that is none, or are the stream's.
func (f *frames) next(wait time.Duration) (frame, error) {
	var header [headerSize]byte
	_ = f.from.SetReadDeadline(time.Now().Add(wait)) // fails on a closed stream: so does reading
	if _, err := io.ReadFull(f.in, header[:]); err != nil {
		return frame{}, err
	}
	size, err := f.bodySize(header[:])
	if err != nil {
		return frame{bytes: header[:]}, err
	}
	_ = f.from.SetReadDeadline(time.Now().Add(f.limits.allowance(size)))
	out := frame{}
	total := len(header) + size
	if total > firstPiece {
		select {
		case f.large <- struct{}{}:
			out.large = f.large
		case <-time.After(f.limits.allowance(0)):
			return frame{}, fmt.Errorf("a message of %d bytes: others take all the memory for such", size)
		}
	}
	out.bytes = append(make([]byte, 0, min(total, firstPiece)), header[:]...)
	for len(out.bytes) < total {
		n := len(out.bytes)
		if n == cap(out.bytes) {
			grown := make([]byte, n, min(4*n, total))
			copy(grown, out.bytes)
			out.bytes = grown
		}
		out.bytes = out.bytes[:cap(out.bytes)]
		if _, err := io.ReadFull(f.in, out.bytes[n:]); err != nil {
			out.done()
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return frame{}, err
		}
	}
	return out, nil
}

// write sends bytes, which must go within what their length allows.
func write(to deadliner, b []byte, l *Limits) error {
	if err := to.SetWriteDeadline(time.Now().Add(l.allowance(len(b)))); err != nil {
		return err
	}
	_, err := to.Write(b)
	return err
}
