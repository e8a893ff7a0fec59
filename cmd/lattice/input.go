package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
)

// maxRecord bounds one record of the input, in bytes: beyond it the input is
// most likely not what it was said to be.
const maxRecord = 256 << 20

// input reads ahead in a goroutine, so that the end of ctx interrupts a read
// from a terminal or a pipe, which nothing else can. The goroutine itself ends
// with the read that it is in.
type input struct {
	ctx    context.Context
	blocks chan block
	free   chan []byte
	cur    []byte
	whole  []byte // cur's buffer
	err    error
}

type block struct {
	data []byte
	err  error
}

func newInput(ctx context.Context, r io.Reader) *bufio.Reader {
	const buffers, size = 3, 256 << 10
	in := &input{ctx: ctx, blocks: make(chan block, buffers), free: make(chan []byte, buffers)}
	for range buffers {
		in.free <- make([]byte, size)
	}
	go in.readAhead(r)
	return bufio.NewReaderSize(in, size)
}

func (in *input) readAhead(r io.Reader) {
	for {
		var buf []byte
		select {
		case buf = <-in.free:
		case <-in.ctx.Done():
			return
		}
		n, err := r.Read(buf)
		select {
		case in.blocks <- block{buf[:n], err}:
		case <-in.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	for len(in.cur) == 0 {
		if in.err != nil {
			return 0, in.err
		}
		if in.whole != nil {
			in.free <- in.whole[:cap(in.whole)]
			in.whole = nil
		}
		select {
		case b := <-in.blocks:
			in.cur, in.whole, in.err = b.data, b.data, b.err
		case <-in.ctx.Done():
			in.err = lattice.E(lattice.Unavailable, errors.New("interrupted"))
		}
	}
	n := copy(p, in.cur)
	in.cur = in.cur[n:]
	return n, nil
}

// lines splits the input into records.
type lines struct {
	r         *bufio.Reader
	separator []byte
	nullEmpty bool
	lengths   bool
	record    client.Record // what every record has
	long      []byte        // a record that does not fit r's buffer
	n         int64         // records read
}

// next returns the next record, whose bytes are valid until the following
// call; io.EOF after the last.
func (l *lines) next() (client.Record, error) {
	var value []byte
	var err error
	if l.lengths {
		value, err = l.delimited()
	} else {
		value, err = l.line()
	}
	rec := l.record
	if err != nil {
		return rec, err
	}
	l.n++
	if len(l.separator) > 0 {
		if key, rest, ok := bytes.Cut(value, l.separator); ok {
			rec.Key, value = key, rest
		}
	}
	rec.Value = value
	if rec.Value == nil {
		rec.Value = []byte{}
	}
	if l.nullEmpty {
		if len(rec.Value) == 0 {
			rec.Value = nil
		}
		if len(rec.Key) == 0 {
			rec.Key = nil
		}
	}
	return rec, nil
}

// line reads up to the next newline, which is not part of the record. The last
// line may do without one.
func (l *lines) line() ([]byte, error) {
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case err == nil && len(l.long) == 0:
			return part[:len(part)-1], nil
		case err == nil:
			l.long = append(l.long, part[:len(part)-1]...)
			return l.long, nil
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, part...)
			if len(l.long) > maxRecord {
				return nil, l.tooLarge(int64(len(l.long)))
			}
		case err == io.EOF && len(part)+len(l.long) > 0:
			l.long = append(l.long, part...)
			return l.long, nil
		default:
			return nil, err
		}
	}
}

// delimited reads a length and so many bytes.
func (l *lines) delimited() ([]byte, error) {
	var head [4]byte
	if n, err := io.ReadFull(l.r, head[:]); err != nil {
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, l.cut(err)
		}
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size > maxRecord {
		return nil, l.tooLarge(size)
	}
	if int64(cap(l.long)) < size {
		l.long = make([]byte, size)
	}
	l.long = l.long[:size]
	if _, err := io.ReadFull(l.r, l.long); err != nil {
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, l.cut(io.ErrUnexpectedEOF)
		}
		return nil, err
	}
	return l.long, nil
}

func (l *lines) cut(err error) error {
	return lattice.E(lattice.Invalid, fmt.Errorf("record %d of the input is cut short: %w", l.n+1, err))
}

func (l *lines) tooLarge(size int64) error {
	return lattice.E(lattice.TooLarge, fmt.Errorf("record %d of the input has %d bytes or more, above the limit of %d", l.n+1, size, maxRecord))
}
