package redis

import (
	"slices"
	"sync"
	"time"
)

// account counts an executed command, and keeps it if it was slow.
func (s *Server) account(c *conn, cmd *command, args [][]byte, began time.Time, took time.Duration) {
	s.stats.commands.Add(1)
	cmd.stats.calls.Add(1)
	cmd.stats.micros.Add(took.Microseconds())
	if slower := s.settings.slowlogSlower.Load(); slower >= 0 && took.Microseconds() >= slower && cmd.set&noSlowlog == 0 {
		s.slowlog.add(c, args, began, took, int(s.settings.slowlogMax.Load()))
	}
	if limit := s.settings.latencyThreshold.Load(); limit > 0 && took.Milliseconds() >= limit {
		event := "command"
		if cmd.has("fast") {
			event = "fast-command"
		}
		s.latency.add(event, began.Unix(), took.Milliseconds())
	}
}

// Of a slow command, this much is kept, as in Redis.
const (
	slowlogArgs  = 32
	slowlogBytes = 128
)

// slowlog is the slowest commands' recent history. Safe for concurrent use.
type slowlog struct {
	mu      sync.Mutex
	next    int64
	entries []slowEntry // newest first
}

type slowEntry struct {
	id    int64
	unix  int64
	micro int64
	args  []string
	peer  string
	name  string
}

func (l *slowlog) add(c *conn, args [][]byte, began time.Time, took time.Duration, most int) {
	e := slowEntry{unix: began.Unix(), micro: took.Microseconds(), peer: c.peer}
	c.mu.Lock()
	e.name = c.shown.name
	c.mu.Unlock()
	for i, a := range args {
		if i == slowlogArgs-1 && len(args) > slowlogArgs {
			e.args = append(e.args, "... ("+string(appendInt(nil, int64(len(args)-i)))+" more arguments)")
			break
		}
		text := string(a[:min(len(a), slowlogBytes)])
		if more := len(a) - slowlogBytes; more > 0 {
			text += "... (" + string(appendInt(nil, int64(more))) + " more bytes)"
		}
		e.args = append(e.args, text)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = slices.Insert(l.entries, 0, e)
	l.entries = l.entries[:min(len(l.entries), most)]
}

// recent returns up to n entries, newest first; all of them when n is negative.
func (l *slowlog) recent(n int64) []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > int64(len(l.entries)) {
		n = int64(len(l.entries))
	}
	return slices.Clone(l.entries[:n])
}

func (l *slowlog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

func (l *slowlog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}

// latencyKept is how many moments of an event are kept.
const latencyKept = 160

// latency is the moments at which commands took longer than
// latency-monitor-threshold. Safe for concurrent use.
type latency struct {
	mu     sync.Mutex
	events map[string]*latencyEvent
}

type latencyEvent struct {
	moments []latencyMoment // oldest first
	max     int64
}

type latencyMoment struct{ unix, ms int64 }

func (l *latency) add(event string, unix, ms int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.events == nil {
		l.events = map[string]*latencyEvent{}
	}
	e := l.events[event]
	if e == nil {
		e = &latencyEvent{}
		l.events[event] = e
	}
	e.max = max(e.max, ms)
	if n := len(e.moments); n > 0 && e.moments[n-1].unix == unix { // one a second, the worst
		e.moments[n-1].ms = max(e.moments[n-1].ms, ms)
		return
	}
	e.moments = append(e.moments, latencyMoment{unix, ms})
	if len(e.moments) > latencyKept {
		e.moments = slices.Delete(e.moments, 0, 1)
	}
}

// reset forgets an event, and reports whether there was one.
func (l *latency) reset(event string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.events[event]
	delete(l.events, event)
	return ok
}

// history returns an event's moments, oldest first, and the worst ever.
func (l *latency) history(event string) ([]latencyMoment, int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.events[event]; e != nil {
		return slices.Clone(e.moments), e.max
	}
	return nil, 0
}

// names returns the events that there are, sorted.
func (l *latency) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := make([]string, 0, len(l.events))
	for n := range l.events {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
