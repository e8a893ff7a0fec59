package group

import (
	"sync"
	"time"
)

// Times are the periods of a KIP-848 group, which groups can be set to, each by
// itself. Zero: Config's.
type Times struct {
	Session   time.Duration // "consumer.session.timeout.ms"
	Heartbeat time.Duration // "consumer.heartbeat.interval.ms"
}

// timesTable is what groups were set to. Its lock is held with others held.
type timesTable struct {
	mu sync.RWMutex
	of map[string]Times
}

// SetTimes says what a group is set to, whether it exists or not; the zero Times
// forget it. Members are told with their next heartbeats.
func (m *Manager) SetTimes(group string, t Times) {
	m.times.mu.Lock()
	defer m.times.mu.Unlock()
	if t == (Times{}) {
		delete(m.times.of, group)
		return
	}
	if m.times.of == nil {
		m.times.of = map[string]Times{}
	}
	m.times.of[group] = t
}

// timesOf returns what applies to a group.
func (m *Manager) timesOf(group string) Times {
	m.times.mu.RLock()
	t := m.times.of[group]
	m.times.mu.RUnlock()
	if t.Session == 0 {
		t.Session = m.cfg.ConsumerSession
	}
	if t.Heartbeat == 0 {
		t.Heartbeat = m.cfg.ConsumerHeartbeat
	}
	return t
}
