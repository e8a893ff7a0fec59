package share

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
)

// Member epochs with a meaning of their own in a Heartbeat.
const (
	// EpochJoin enters the group, or enters it again.
	EpochJoin int32 = 0
	// EpochLeave leaves it.
	EpochLeave int32 = -1
)

// HeartbeatRequest joins, stays, changes or leaves. The Manager copies what it keeps.
type HeartbeatRequest struct {
	Group       string
	MemberID    string // made by the client
	MemberEpoch int32
	Rack        string   // "" for null
	Topics      []string // subscribed names; nil: as before
	Client      group.Client
}

// HeartbeatResult is the answer. With Assign, Assigned is what the member fetches.
type HeartbeatResult struct {
	Err         error
	MemberID    string
	MemberEpoch int32
	Interval    time.Duration // send the next heartbeat after this
	Assign      bool
	Assigned    []group.TopicPartitions // sorted by topic id
}

// membership is who is in a group, as a state machine. Every change of members,
// subscriptions or topics raises the epoch and assigns anew; a member learns of it,
// and takes that epoch, with its next heartbeat. Nobody waits for anybody to let go
// of a partition: records are what is locked.
type membership struct {
	epoch   int32
	members map[string]*member
	topics  map[string]topic // the subscribed ones that exist, as of version
	version uint64
}

type topic struct {
	id         lattice.TopicID
	partitions int32
}

type member struct {
	id, rack        string
	client          group.Client
	epoch, previous int32
	topics          []string  // sorted
	session         time.Time // removed then, unless it is heard of before
	assigned        map[lattice.TopicPartition]struct{}
}

// topicView is the topics at one moment: version changes when they do.
type topicView struct {
	group.Topics
	version uint64
}

func newMembership() *membership {
	return &membership{members: map[string]*member{}, topics: map[string]topic{}}
}

// maxMemberID is the longest member id: that of a UUID in text.
const maxMemberID = 36

// validHeartbeat checks what needs no knowledge of the group. ErrInvalidRequest.
func validHeartbeat(r HeartbeatRequest, maxBytes int) error {
	size := len(r.Rack)
	for _, t := range r.Topics {
		size += len(t)
	}
	switch {
	case r.Group == "":
		return fmt.Errorf("%w: the group id is empty", ErrInvalidRequest)
	case r.MemberID == "" || len(r.MemberID) > maxMemberID:
		return fmt.Errorf("%w: a member id of %d bytes, want 1 to %d", ErrInvalidRequest, len(r.MemberID), maxMemberID)
	case r.MemberEpoch < EpochLeave:
		return fmt.Errorf("%w: member epoch %d", ErrInvalidRequest, r.MemberEpoch)
	case r.MemberEpoch == EpochJoin && len(r.Topics) == 0:
		return fmt.Errorf("%w: the first heartbeat must give a subscription", ErrInvalidRequest)
	case size > maxBytes:
		return fmt.Errorf("%w: a subscription of %d bytes, limit %d", ErrInvalidRequest, size, maxBytes)
	}
	return nil
}

// heartbeat handles every request but leaving.
func (g *membership) heartbeat(now time.Time, r HeartbeatRequest, s Settings, most int, topics topicView) HeartbeatResult {
	res := HeartbeatResult{MemberID: r.MemberID}
	m := g.members[r.MemberID]
	changed := false
	switch {
	case m == nil && r.MemberEpoch != EpochJoin:
		res.Err = ErrUnknownMember
		return res
	case m == nil && len(g.members) >= most:
		res.Err = ErrMaxSize
		return res
	case m == nil:
		m = &member{id: r.MemberID, assigned: map[lattice.TopicPartition]struct{}{}}
		g.members[m.id], changed = m, true
	case r.MemberEpoch != EpochJoin && r.MemberEpoch != m.epoch && r.MemberEpoch != m.previous:
		res.Err = fmt.Errorf("%w: %d, it is %d", ErrFencedMemberEpoch, r.MemberEpoch, m.epoch)
		return res
	}
	m.session, m.client = now.Add(s.Session), r.Client
	if r.Rack != "" {
		m.rack = r.Rack
	}
	if r.Topics != nil {
		names := slices.Clone(r.Topics)
		slices.Sort(names)
		if names = slices.Compact(names); !slices.Equal(names, m.topics) {
			m.topics, changed = names, true
			g.version = topics.version - 1 // look the topics up again
		}
	}
	if g.refresh(topics) || changed {
		g.epoch++
		assign(g.ordered(), g.topics)
	}
	moved := m.epoch != g.epoch
	if moved {
		m.previous, m.epoch = m.epoch, g.epoch
	}
	res.MemberEpoch, res.Interval = m.epoch, s.Heartbeat
	if res.Assign = moved || r.Topics != nil || r.MemberEpoch == EpochJoin; res.Assign {
		res.Assigned = m.byTopic(topics)
	}
	return res
}

// refresh looks the subscribed topics up again if they may have changed, and
// reports whether they did.
func (g *membership) refresh(view topicView) bool {
	if g.version == view.version {
		return false
	}
	g.version = view.version
	topics := map[string]topic{}
	for _, m := range g.members {
		for _, name := range m.topics {
			if t, ok := view.TopicByName(name); ok {
				topics[name] = topic{t.ID, t.Partitions}
			}
		}
	}
	changed := !maps.Equal(g.topics, topics)
	g.topics = topics
	return changed
}

// remove takes a member out.
func (g *membership) remove(id string) {
	delete(g.members, id)
	g.epoch++
	assign(g.ordered(), g.topics)
}

// expired returns the members whose time is over, sorted.
func (g *membership) expired(now time.Time) []string {
	var due []string
	for _, m := range g.ordered() {
		if !m.session.After(now) {
			due = append(due, m.id)
		}
	}
	return due
}

// deadline returns when the next member's time is over; zero: there are none.
func (g *membership) deadline() (next time.Time) {
	for _, m := range g.members {
		if next.IsZero() || m.session.Before(next) {
			next = m.session
		}
	}
	return next
}

func (g *membership) ordered() []*member {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *member) int { return cmp.Compare(a.id, b.id) })
}

// byTopic is the member's share for an answer.
func (m *member) byTopic(topics group.Topics) []group.TopicPartitions {
	parts := slices.SortedFunc(maps.Keys(m.assigned), comparePartitions)
	all := []group.TopicPartitions{}
	for _, tp := range parts {
		if n := len(all); n == 0 || all[n-1].ID != tp.Topic {
			t, _ := topics.TopicByID(tp.Topic)
			all = append(all, group.TopicPartitions{ID: tp.Topic, Name: t.Name})
		}
		last := &all[len(all)-1]
		last.Partitions = append(last.Partitions, tp.Partition)
	}
	return all
}

func comparePartitions(a, b lattice.TopicPartition) int {
	return cmp.Or(bytes.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
}
