package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// membership says which group to join, and how.
type membership struct {
	at, topic, group, instance, balancer string
}

// event is what a member does: see ../field/member_test.go.
type event struct {
	Event      string  `json:"event"`
	Partitions []int32 `json:"partitions"`
	Partition  int32   `json:"partition"`
	Offset     int64   `json:"offset"`
}

// member is one running member of a group.
type member struct {
	label string
	stdin io.WriteCloser
	*realnode.Process

	mu      sync.Mutex
	owned   map[int32]bool
	changes []event // assignments and revocations, oldest first
	read    map[place]int
	said    []string // for a failure's message
	broken  error
}

func startMember(t *testing.T, label string, args []string) *member {
	t.Helper()
	m := &member{label: label, owned: map[int32]bool{}, read: map[place]int{}}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = &lines{each: m.hear}, &lines{each: m.say}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.stdin = stdin
	if m.Process, err = realnode.Spawn(cmd); err != nil {
		t.Fatalf("start a member with %s: %v", label, err)
	}
	t.Cleanup(func() {
		m.Kill()
		if t.Failed() {
			t.Log(m)
		}
	})
	return m
}

// lines is a writer that cuts what it gets into lines.
type lines struct {
	part []byte
	each func(line string)
}

func (l *lines) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, ok := bytes.Cut(l.part, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		l.each(string(line))
		l.part = rest
	}
}

// hear takes in what the member did.
func (m *member) hear(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		m.broken = fmt.Errorf("printed %q: %w", line, err)
		return
	}
	switch e.Event {
	case "assigned":
		for _, p := range e.Partitions {
			m.owned[p] = true
		}
		m.changes = append(m.changes, e)
	case "revoked":
		for _, p := range e.Partitions {
			delete(m.owned, p)
		}
		m.changes = append(m.changes, e)
	case "read":
		m.read[place{e.Partition, e.Offset}]++
	}
}

func (m *member) say(line string) {
	if strings.HasPrefix(line, "% Reached end of topic") {
		return // kcat, each time
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, line)
}

// has returns the partitions that are the member's now.
func (m *member) has() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.owned))
}

// history returns all that happened to the member's partitions.
func (m *member) history() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.changes)
}

// reads counts the records that the member got.
func (m *member) reads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.read)
}

// saw reports whether the member got the record at a place.
func (m *member) saw(at place) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.read[at] > 0
}

func (m *member) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return fmt.Sprintf("%s: has %v after %+v; read %d; broken: %v; said %q", m.label, slices.Sorted(maps.Keys(m.owned)), m.changes, len(m.read), m.broken, m.said[max(0, len(m.said)-20):])
}

// alive fails the test if the member ended by itself.
func (m *member) alive(t *testing.T) {
	t.Helper()
	select {
	case <-m.Exited():
		t.Fatalf("the member ended: %v; %s", m.Err(), m)
	default:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		t.Fatalf("%s: %v", m.label, m.broken)
	}
}

// leave tells the member to go and waits for it.
func (m *member) leave(t *testing.T) {
	t.Helper()
	m.alive(t)
	if err := m.stdin.Close(); err != nil {
		t.Fatalf("tell a member to leave: %v", err)
	}
	select {
	case <-m.Exited():
		if err := m.Err(); err != nil {
			t.Fatalf("the member left with %v; %s", err, m)
		}
	case <-time.After(limit):
		t.Fatalf("the member does not leave; %s", m)
	}
}
