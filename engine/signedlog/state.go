package signedlog

import "github.com/lattice-log/lattice/storage/segment"

// State is what people are shown.
type State struct {
	Failed   string // why it takes no writes; empty: it does
	Damaged  []Range
	Recovery Recovery
	Bytes    int64
	Segments []segment.Info
}

// State returns a snapshot.
func (l *Log) State() State {
	l.mu.Lock()
	s := State{Failed: l.failedLocked(), Damaged: append([]Range(nil), l.damaged...), Recovery: l.found}
	l.mu.Unlock()
	s.Bytes = l.seg.Bytes()
	var err error
	if s.Segments, err = l.seg.Segments(); err != nil {
		l.o.Logger.Error("segments", "log", l.o.Origin, "err", err)
	}
	return s
}

// Failed returns why the log takes no writes, empty when it does. Unlike State it
// looks at no file.
func (l *Log) Failed() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failedLocked()
}

func (l *Log) failedLocked() string {
	switch {
	case l.closed:
		return ErrClosed.Error()
	case l.broken != nil:
		return l.broken.Error()
	case l.failed != nil:
		return l.failed.Error()
	}
	return ""
}
