package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

// Meter shows how far long work is: a line that is redrawn on a terminal, and
// otherwise a line every ten seconds, so that a short run in a script says
// nothing. Add may be called from several goroutines; it costs two atomic
// additions.
type Meter struct {
	w        io.Writer
	terminal bool
	verb     string // "produced"
	total    int64  // in the unit of of; 0: unknown
	of       unit
	now      func() time.Time
	start    time.Time
	records  atomic.Int64
	bytes    atomic.Int64

	stop  chan struct{}
	done  sync.WaitGroup
	drawn bool // owned by run, then by Stop
}

type unit uint8

const (
	ofNothing unit = iota
	ofRecords
	ofBytes
)

// MeterOption changes a Meter.
type MeterOption func(*Meter)

// OfRecords draws a bar towards n records. Of 0 records it draws none.
func OfRecords(n int64) MeterOption { return func(m *Meter) { m.goal(n, ofRecords) } }

// OfBytes draws a bar towards n bytes. Of 0 bytes it draws none.
func OfBytes(n int64) MeterOption { return func(m *Meter) { m.goal(n, ofBytes) } }

func (m *Meter) goal(n int64, of unit) {
	if n > 0 {
		m.total, m.of = n, of
	}
}

// NewMeter starts a meter on w. It draws on a terminal only when w is one.
func NewMeter(w io.Writer, verb string, opts ...MeterOption) *Meter {
	m := &Meter{w: w, terminal: IsTerminal(w), verb: verb, now: time.Now, stop: make(chan struct{})}
	for _, o := range opts {
		o(m)
	}
	m.start = m.now()
	m.done.Add(1)
	go m.run()
	return m
}

// Add counts records and their bytes.
func (m *Meter) Add(records, bytes int64) {
	m.records.Add(records)
	m.bytes.Add(bytes)
}

// Counts returns what was counted so far.
func (m *Meter) Counts() (records, bytes int64) { return m.records.Load(), m.bytes.Load() }

// Stop ends the meter and, if it drew anything, writes the summary.
func (m *Meter) Stop() {
	close(m.stop)
	m.done.Wait()
	switch {
	case m.terminal:
		fmt.Fprintf(m.w, "\r\x1b[K%s\n", m.summary())
	case m.drawn:
		fmt.Fprintln(m.w, m.summary())
	}
}

func (m *Meter) run() {
	defer m.done.Done()
	every := 10 * time.Second
	if m.terminal {
		every = 200 * time.Millisecond
	}
	t := time.NewTicker(every)
	defer t.Stop()
	var last int64
	lastAt := m.start
	for {
		select {
		case <-m.stop:
			return
		case <-t.C:
		}
		now, n := m.now(), m.records.Load()
		rate := float64(n-last) / max(now.Sub(lastAt).Seconds(), 1e-9)
		last, lastAt = n, now
		line := m.line(rate)
		if m.terminal {
			fmt.Fprintf(m.w, "\r\x1b[K%s", line)
		} else {
			fmt.Fprintln(m.w, line)
		}
		m.drawn = true
	}
}

// line is one state of the meter.
func (m *Meter) line(rate float64) string {
	records, bytes := m.Counts()
	s := fmt.Sprintf("%s %s  %s  %s/s", m.verb, Of(records, "record"), Bytes(bytes), Count(int64(rate)))
	done := records
	switch m.of {
	case ofNothing:
		return s
	case ofBytes:
		done = bytes
	}
	const width = 24
	part := min(float64(done)/float64(m.total), 1)
	full := int(part * width)
	return fmt.Sprintf("%s  [%s%s] %d%%", s, strings.Repeat("#", full), strings.Repeat(".", width-full), int(part*100))
}

func (m *Meter) summary() string {
	records, bytes := m.Counts()
	took := m.now().Sub(m.start)
	rate := float64(records) / max(took.Seconds(), 1e-9)
	return fmt.Sprintf("%s %s, %s in %s (%s records/s, %s/s)", m.verb, Of(records, "record"), Bytes(bytes),
		Took(took), Count(int64(rate)), Bytes(int64(float64(bytes)/max(took.Seconds(), 1e-9))))
}

// Took writes a duration for people: 1.24 s, 12 ms, 3m20s.
func Took(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3g ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.3g µs", float64(d)/1e3)
}

// IsTerminal reports whether w (or r) is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
