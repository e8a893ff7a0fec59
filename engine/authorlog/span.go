package authorlog

import (
	"errors"
	"fmt"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/storage/segment"
)

// DurableTip returns the last entry that is acknowledged at the log's level, and its
// time; what the log begins behind, when there is none. It reads the entry only if
// another was appended since. Errors are those of Read.
func (l *Log) DurableTip() (sigchain.Link, uint64, error) {
	tip, time := l.Tip() // first: what is durable may have moved beyond it, never fallen behind
	durable := l.Durable()
	switch {
	case durable == tip.Seq:
		return tip, time, nil
	case durable == l.o.After.Seq:
		return l.o.After, l.o.AfterTime, nil
	}
	s, err := l.Read(durable)
	return s.Link(), s.Time, err
}

// ReadSpan returns acknowledged entries as they are stored, those behind sequence
// number after up to upto: about limit bytes, and at least one. Their checksums are
// checked, and nothing else: they were verified before they were written. They share
// memory that nobody else uses. From anywhere. Errors are those of Read; what comes
// before a damaged entry is returned without one.
func (l *Log) ReadSpan(after, upto uint64, limit int) ([][]byte, error) {
	first, _ := l.Bounds()
	upto = min(upto, l.Durable())
	switch {
	case after+1 < first:
		return nil, lattice.E(lattice.OutOfRange, fmt.Errorf("entry %d of %s: the log begins with %d", after+1, Name(l.o.Writer), first))
	case after >= upto:
		return nil, lattice.E(lattice.NotYet, fmt.Errorf("entry %d of %s: it ends with %d", after+1, Name(l.o.Writer), upto))
	}
	spans, err := l.log.Spans(l.offset(after+1), l.offset(upto)+1, limit)
	if err != nil {
		if lattice.KindOf(err) == lattice.Corrupt {
			l.damage(after+1, err)
		}
		return nil, fmt.Errorf("entry %d of %s: %w", after+1, Name(l.o.Writer), err)
	}
	defer segment.ReleaseAll(spans)
	size, n := int64(0), int64(0)
	for _, s := range spans {
		size, n = size+s.Len, n+s.Last-s.First+1
	}
	buf, entries := make([]byte, size), make([][]byte, 0, n)
	for i := range spans {
		b := buf[:spans[i].Len]
		buf = buf[len(b):]
		if _, err := spans[i].ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			return entries, l.spoilt(after+1+uint64(len(entries)), len(entries), err)
		}
		if entries, err = l.unframe(entries, after, b); err != nil {
			return entries, l.spoilt(after+1+uint64(len(entries)), len(entries), err)
		}
	}
	return entries, nil
}

// spoilt is what becomes of an error on reading an entry, behind have good ones.
func (l *Log) spoilt(seq uint64, have int, err error) error {
	if lattice.KindOf(err) == lattice.Corrupt {
		l.damage(seq, err)
	}
	if have > 0 {
		return nil
	}
	return fmt.Errorf("entry %d of %s: %w", seq, Name(l.o.Writer), err)
}

// unframe appends the entries of whole frames, which follow those that are there.
func (l *Log) unframe(entries [][]byte, after uint64, b []byte) ([][]byte, error) {
	codec := Codec{After: l.o.After.Seq}
	for len(b) > 0 {
		m, size, err := codec.Header(b)
		if err == nil && size > len(b) {
			err = fmt.Errorf("%w: it is cut short", ErrFrame)
		}
		if err != nil {
			return entries, err
		}
		if err := codec.Check(b[:size]); err != nil {
			return entries, err
		}
		if want := l.offset(after + 1 + uint64(len(entries))); m.Base != want {
			return entries, fmt.Errorf("%w: it is number %d, want %d", ErrFrame, m.Base, want)
		}
		entries = append(entries, b[headerSize:size:size])
		b = b[size:]
	}
	return entries, nil
}

// Next returns how many of the entries come next in the log, in order, and what is
// wrong with the one behind them: see sigchain.Chain.Check.
func (l *Log) Next(entries []sigchain.Signed) (int, error) {
	chain := l.snapshot()
	for i, s := range entries {
		var err error
		if chain, err = chain.Next(s); err != nil {
			return i, err
		}
	}
	return len(entries), nil
}
