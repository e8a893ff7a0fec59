package group

import (
	"bytes"
	"maps"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// refresh looks the subscribed topics up again if they may have changed, and
// reports whether they did: came, went, were made anew or grew.
func (c *consumer) refresh(view topicView) bool {
	if c.version == view.version {
		return false
	}
	c.version = view.version
	var all []string
	topics := map[string]TopicInfo{}
	for _, m := range c.members {
		if m.pattern == nil {
			m.matched = nil
		} else {
			if all == nil {
				all = namesOf(view.AllTopics())
			}
			m.matched = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !m.pattern.MatchString(name) })
		}
		for _, names := range [][]string{m.topics, m.matched} {
			for _, name := range names {
				if t, ok := view.TopicByName(name); ok {
					topics[name] = t
				}
			}
		}
	}
	changed := !maps.Equal(c.topics, topics)
	c.topics = topics
	return changed
}

func namesOf(topics []TopicInfo) []string {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	slices.Sort(names)
	return names
}

// nameIn finds the names of topics for an answer; the group knows its own ones.
func (c *consumer) nameIn(view topicView) func(lattice.TopicID) string {
	return func(id lattice.TopicID) string {
		t, _ := view.TopicByID(id)
		return t.Name
	}
}

// assignorName returns the assignor that most members ask for.
func (c *consumer) assignorName() string {
	votes := map[string]int{}
	for _, m := range c.members {
		votes[m.assignor]++
	}
	best := ""
	for _, name := range Assignors() {
		if votes[name] > 0 && (best == "" || votes[name] > votes[best]) {
			best = name
		}
	}
	if best == "" {
		return Assignors()[0]
	}
	return best
}

// retarget computes the target assignment of the group's epoch.
func (c *consumer) retarget() {
	members := c.ordered()
	in := assignInput{partitions: map[lattice.TopicID]int32{}}
	for _, t := range c.topics {
		in.partitions[t.ID] = t.Partitions
	}
	for _, m := range members {
		ids := []lattice.TopicID{}
		for _, names := range [][]string{m.topics, m.matched} {
			for _, name := range names {
				if t, ok := c.topics[name]; ok {
					ids = append(ids, t.ID)
				}
			}
		}
		slices.SortFunc(ids, func(a, b lattice.TopicID) int { return bytes.Compare(a[:], b[:]) })
		in.members = append(in.members, assignMember{
			id: m.id, instance: m.instance, topics: slices.Compact(ids), current: m.target,
		})
	}
	for i, share := range assignorFor(c.assignorName())(in) {
		members[i].target = share
	}
	c.targetEpoch = c.epoch
}

// reconcile leads a member one step towards its target.
func (c *consumer) reconcile(now time.Time, m *consumerMember, r ConsumerHeartbeatRequest) {
	owned := setOf(r.Owned)
	holds := func(s partitionSet) bool { return r.Owned == nil && r.MemberEpoch != EpochJoin || owned.meets(s) }
	switch m.state {
	case memberStable:
		if m.epoch != c.targetEpoch {
			c.advance(now, m, m.epoch, holds)
		}
	case memberUnreleased:
		c.advance(now, m, m.epoch, holds)
	case memberUnrevoked:
		if holds(m.revoking) {
			return
		}
		for tp := range m.revoking {
			delete(c.owners, tp)
		}
		m.revoking, m.revokeBy = partitionSet{}, never
		c.advance(now, m, m.epoch+1, holds)
	}
}

// advance computes what the member may own next. It takes away before it gives:
// as long as the member holds something that is not in its target, it stays at
// its epoch and gets nothing new.
func (c *consumer) advance(now time.Time, m *consumerMember, epoch int32, holds func(partitionSet) bool) {
	keep, revoke, gain, unreleased := partitionSet{}, partitionSet{}, partitionSet{}, false
	for tp := range m.assigned {
		if m.target.has(tp) {
			keep.add(tp)
		} else {
			revoke.add(tp)
		}
	}
	for tp := range m.target {
		switch {
		case keep.has(tp):
		case c.owners[tp] == nil:
			gain.add(tp)
		default:
			unreleased = true
		}
	}
	m.assigned = keep
	if len(revoke) > 0 && holds(revoke) {
		m.revoking, m.revokeBy, m.state = revoke, now.Add(m.rebalance), memberUnrevoked
		m.setEpoch(epoch)
		return
	}
	for tp := range revoke {
		delete(c.owners, tp)
	}
	for tp := range gain {
		m.assigned.add(tp)
		c.owners[tp] = m
	}
	m.state = memberStable
	if unreleased {
		m.state = memberUnreleased
	}
	m.setEpoch(c.targetEpoch)
}

func (m *consumerMember) setEpoch(epoch int32) {
	if epoch != m.epoch {
		m.previous, m.epoch = m.epoch, epoch
	}
}
