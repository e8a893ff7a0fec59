package share

import (
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// Session is what one member fetches from one group: a list of partitions that the
// requests of the session add to and take from, each with the epoch that follows the
// one before. Its fields are guarded by the group's lock.
type Session struct {
	e      *entry
	group  string
	member string

	epoch  int32 // of the next request
	closed bool
	parts  []lattice.TopicPartition // in the order in which they were added
	state  map[lattice.TopicPartition]*sessionPart
}

type sessionPart struct {
	shown bool   // the partition was in an answer
	told  string // the error that the member was told of; "": none
}

// Group and Member say whose the session is.
func (s *Session) Group() string { return s.group }

// Member returns the member's id.
func (s *Session) Member() string { return s.member }

// maxSessionParts bounds the partitions of one session.
const maxSessionParts = 20_000

// Epochs of a request with a meaning of their own.
const (
	// EpochOpen opens a session.
	EpochOpen int32 = 0
	// EpochFinal is a session's last request.
	EpochFinal int32 = -1
)

// next returns the epoch that follows: never 0, which opens a session.
func next(epoch int32) int32 {
	if epoch == 1<<31-1 {
		return 1
	}
	return epoch + 1
}

// Open begins a session with these partitions. One that the member had before is
// replaced; what the member has acquired stays its own until its lock is over.
func (m *Manager) Open(group, member string, parts []lattice.TopicPartition) (*Session, error) {
	if member == "" || len(member) > maxMemberID {
		return nil, fmt.Errorf("%w: a member id of %d bytes, want 1 to %d", ErrInvalidRequest, len(member), maxMemberID)
	}
	s := &Session{group: group, member: member, epoch: 1, state: map[lattice.TopicPartition]*sessionPart{}}
	var refused error
	err := m.with(group, true, func(e *entry, _ time.Time, fx *effects) {
		if refused = s.change(parts, nil); refused != nil {
			return
		}
		if old := e.sessions[member]; old != nil {
			old.closed = true
		} else if m.sessions.Add(1) > int64(m.cfg.MaxSessions) {
			m.sessions.Add(-1)
			refused = ErrSessionLimit
			return
		}
		s.e = e
		e.sessions[member] = s
		e.stir(fx)
	})
	if err == nil {
		err = refused
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Continue takes the next request of a session.
func (m *Manager) Continue(group, member string, epoch int32, add, forget []lattice.TopicPartition) (*Session, error) {
	return m.session(group, member, func(s *Session) error {
		if epoch != s.epoch {
			return fmt.Errorf("%w: %d, it is %d", ErrSessionEpoch, epoch, s.epoch)
		}
		if err := s.change(add, forget); err != nil {
			return err
		}
		s.epoch = next(s.epoch)
		return nil
	})
}

// Current returns a member's session, whatever its epoch.
func (m *Manager) Current(group, member string) (*Session, error) {
	return m.session(group, member, func(*Session) error { return nil })
}

// session finds a member's session and asks it. ErrSessionNotFound.
func (m *Manager) session(group, member string, ask func(*Session) error) (*Session, error) {
	var found *Session
	var refused error
	err := m.with(group, false, func(e *entry, _ time.Time, _ *effects) {
		if found = e.sessions[member]; found != nil {
			refused = ask(found)
		}
	})
	switch {
	case refused != nil:
		return nil, refused
	case found != nil:
		return found, nil
	case err != nil && lattice.KindOf(err) != lattice.NotFound:
		return nil, err
	}
	return nil, ErrSessionNotFound
}

// change adds partitions and takes some away.
func (s *Session) change(add, forget []lattice.TopicPartition) error {
	for _, tp := range add {
		if s.state[tp] == nil {
			if len(s.parts) >= maxSessionParts {
				return fmt.Errorf("%w: a share session of more than %d partitions", ErrInvalidRequest, maxSessionParts)
			}
			s.state[tp] = &sessionPart{}
			s.parts = append(s.parts, tp)
		}
	}
	gone := false
	for _, tp := range forget {
		if s.state[tp] != nil {
			delete(s.state, tp)
			gone = true
		}
	}
	if gone {
		s.parts = slices.DeleteFunc(s.parts, func(tp lattice.TopicPartition) bool { return s.state[tp] == nil })
	}
	return nil
}

// Closed reports whether the session has ended.
func (s *Session) Closed() bool {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return s.closed
}

// Partitions returns the session's partitions, beginning with another one at each
// request, so that each gets its turn; nil once it is closed.
func (s *Session) Partitions() []lattice.TopicPartition {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.closed || len(s.parts) == 0 {
		return nil
	}
	at := int(uint32(s.epoch)) % len(s.parts)
	return slices.Concat(s.parts[at:], s.parts[:at])
}

// Tell reports whether a partition without records must be in the answer: because it
// is new to the session, or because of an error of which the member was not told yet.
// With keep it remembers that it was.
func (s *Session) Tell(tp lattice.TopicPartition, err error, keep bool) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	p := s.state[tp]
	if p == nil {
		return err != nil
	}
	must := !p.shown || text != "" && text != p.told
	if keep {
		p.shown, p.told = true, text
	}
	return must
}

// Close ends a session, unless it ended before: what its member has acquired is
// available again.
func (m *Manager) Close(s *Session) {
	e := s.e
	e.mu.Lock()
	if s.closed {
		e.mu.Unlock()
		return
	}
	fx := &effects{}
	m.endSession(e, s, fx)
	m.leave(e, fx)
}

// endSession closes an open session; e.mu is held.
func (m *Manager) endSession(e *entry, s *Session, fx *effects) {
	s.closed = true
	if e.sessions[s.member] == s {
		delete(e.sessions, s.member)
		m.sessions.Add(-1)
	}
	m.letGo(e, s.member, fx)
	e.stir(fx)
}
