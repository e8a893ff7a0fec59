package field

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"
)

// event is what a member prints: "assigned" and "revoked" with partitions,
// "read" with a place, and "left" last.
type event struct {
	Event      string  `json:"event"`
	Partitions []int32 `json:"partitions"`
	Partition  int32   `json:"partition"`
	Offset     int64   `json:"offset"`
}

// member is one running member of a group.
type member struct {
	*process
	mu    sync.Mutex
	owned map[int32]bool
	read  map[place]int
	left  bool
	past  []string // what happened to its partitions
}

func join(t *testing.T, e *client, r request) *member {
	t.Helper()
	m := &member{process: startProcess(t, e.name+" "+r.Balancer, e.command), owned: map[int32]bool{}, read: map[place]int{}}
	r.Do = "member"
	m.send(t, r)
	go func() {
		for line := range m.lines {
			m.take(line)
		}
	}()
	return m
}

func (m *member) take(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		m.past = append(m.past, fmt.Sprintf("printed %.200q", line))
		return
	}
	switch e.Event {
	case "assigned":
		for _, p := range e.Partitions {
			m.owned[p] = true
		}
	case "revoked":
		for _, p := range e.Partitions {
			delete(m.owned, p)
		}
	case "read":
		m.read[place{e.Partition, e.Offset}]++
		return
	case "left":
		m.left = true
	}
	m.past = append(m.past, fmt.Sprint(e.Event, e.Partitions))
}

func (m *member) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%s: has %v, read %d, past %q, says %q", m.label, slices.Sorted(maps.Keys(m.owned)), len(m.read), m.past, m.stderr())
}

func (m *member) has() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.owned))
}

func (m *member) reads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.read)
}

func (m *member) saw(at place) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read[at] > 0
}

// leave tells the member to go and waits for it.
func (m *member) leave(t *testing.T) {
	t.Helper()
	if err := m.stdin.Close(); err != nil {
		t.Fatalf("%s: tell it to leave: %v", m, err)
	}
	select {
	case <-m.exited:
		if m.err != nil {
			t.Fatalf("left with %v: %s", m.err, m)
		}
	case <-time.After(limit):
		t.Fatalf("does not leave: %s", m)
	}
}

// until waits for a condition of members, which must stay alive.
func until(t *testing.T, what string, done func() bool, members ...*member) {
	t.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) {
		for _, m := range members {
			select {
			case <-m.exited:
				t.Fatalf("%s: a member ended: %v: %s", what, m.err, m)
			default:
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not in %s: %v", what, limit, members)
		}
	}
}
