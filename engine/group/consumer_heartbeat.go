package group

import (
	"fmt"
	"regexp"
	"slices"
	"time"
)

// maxRegexBytes bounds a subscription pattern, because compiling it costs more
// memory than its bytes.
const maxRegexBytes = 4096

// validHeartbeat checks what needs no knowledge of the group.
func validHeartbeat(r ConsumerHeartbeatRequest) error {
	bad := func(what string) error { return fmt.Errorf("%w: %s", ErrInvalidRequest, what) }
	switch {
	case r.MemberEpoch < EpochLeaveStatic:
		return bad("no such member epoch")
	case r.MemberID == "" && (r.MemberEpoch != EpochJoin || r.ClientMakesID):
		return bad("the member id is empty")
	case len(r.MemberID) > maxGroupBytes || len(r.InstanceID) > maxGroupBytes:
		return bad("the member id or instance id is too long")
	case r.MemberEpoch < 0:
		// Leaving for a while (-2) needs no instance id in the request: franz-go up
		// to 1.22.3 does without, and the member id says as much. That the member
		// is static, leave checks.
		return nil
	case r.Assignor != "" && !slices.Contains(Assignors(), r.Assignor):
		return fmt.Errorf("assignor %q: %w", r.Assignor, ErrUnsupportedAssignor)
	case r.MemberEpoch != EpochJoin:
		return nil
	case r.Rebalance <= 0:
		return bad("the first heartbeat must give a rebalance timeout")
	case len(r.Owned) > 0:
		return bad("a member that joins owns no partitions")
	case r.Topics == nil && r.Regex == nil:
		return bad("the first heartbeat must give a subscription")
	}
	return nil
}

// heartbeat handles every request but leaving. newID is the id for a member
// that wants one.
func (c *consumer) heartbeat(now time.Time, r ConsumerHeartbeatRequest, newID string, topics topicView) ConsumerHeartbeatResult {
	if r.MemberID == "" {
		r.MemberID = newID
	}
	pattern, err := compile(r.Regex)
	if err != nil {
		return ConsumerHeartbeatResult{Err: err, MemberID: r.MemberID}
	}
	m, changed, err := c.admit(r)
	if err != nil {
		return ConsumerHeartbeatResult{Err: err, MemberID: r.MemberID}
	}
	m.session = now.Add(c.times.Session)
	if c.update(m, r, pattern, topics) {
		changed = true
	}
	if c.refresh(topics) {
		changed = true
	}
	if changed {
		c.epoch++
	}
	if c.epoch > c.targetEpoch {
		c.retarget()
	}
	before := m.assigned
	c.reconcile(now, m, r)
	res := ConsumerHeartbeatResult{MemberID: m.id, MemberEpoch: m.epoch, Interval: c.times.Heartbeat}
	full := r.Rebalance > 0 && (r.Topics != nil || r.Regex != nil) && r.Owned != nil
	if r.MemberEpoch == EpochJoin || full || !m.assigned.equal(before) {
		res.Assign = true
		res.Assigned = m.assigned.byTopic(c.nameIn(topics))
	}
	return res
}

// admit finds the member that a heartbeat speaks for, or makes it. changed: it is new.
func (c *consumer) admit(r ConsumerHeartbeatRequest) (m *consumerMember, changed bool, err error) {
	if r.MemberEpoch != EpochJoin {
		m, err = c.find(r.MemberID, r.InstanceID)
		if err == nil {
			err = m.checkEpoch(r)
		}
		return m, false, err
	}
	if r.InstanceID != "" {
		if holder := c.members[c.static[r.InstanceID]]; holder != nil {
			return holder, false, c.takeOver(holder, r.MemberID)
		}
	}
	if m = c.members[r.MemberID]; m != nil {
		if r.InstanceID != m.instance && r.InstanceID != "" {
			return nil, false, fmt.Errorf("%w: the member id is in use under another instance id", ErrInvalidRequest)
		}
		return m, false, nil
	}
	if len(c.members) >= c.cfg.MaxSize {
		return nil, false, ErrMaxSize
	}
	m = &consumerMember{
		id: r.MemberID, instance: r.InstanceID,
		assigned: partitionSet{}, revoking: partitionSet{}, target: partitionSet{},
	}
	c.members[m.id] = m
	if m.instance != "" {
		c.static[m.instance] = m.id
	}
	return m, true, nil
}

// takeOver lets the process that comes back under an instance id continue where
// the one before it left. A live holder keeps the id: unlike in the classic
// protocol it is the newcomer that is refused.
func (c *consumer) takeOver(holder *consumerMember, id string) error {
	if holder.epoch != EpochLeaveStatic && holder.id != id {
		return ErrUnreleasedInstance
	}
	if other := c.members[id]; other != nil && other != holder {
		return fmt.Errorf("%w: the member id is in use under another instance id", ErrInvalidRequest)
	}
	delete(c.members, holder.id)
	holder.id = id
	c.members[id] = holder
	c.static[holder.instance] = id
	return nil
}

// checkEpoch refuses a member that speaks for another epoch than its own. One
// behind is accepted when the answer that raised it may have been lost, which
// shows in that it owns nothing it might not own.
func (m *consumerMember) checkEpoch(r ConsumerHeartbeatRequest) error {
	if r.MemberEpoch == m.epoch {
		return nil
	}
	if r.MemberEpoch < m.epoch && r.MemberEpoch == m.previous && r.Owned != nil && setOf(r.Owned).within(m.assigned) {
		return nil
	}
	return ErrFencedMemberEpoch
}

func compile(regex *string) (*regexp.Regexp, error) {
	if regex == nil || *regex == "" {
		return nil, nil
	}
	if len(*regex) > maxRegexBytes {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", ErrInvalidRegex, len(*regex), maxRegexBytes)
	}
	if _, err := regexp.Compile(*regex); err != nil { // before it is wrapped: "a)(b" must not pass
		return nil, fmt.Errorf("%w: %v", ErrInvalidRegex, err)
	}
	whole, err := regexp.Compile(`\A(?:` + *regex + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrInvalidRegex, err)
	}
	return whole, nil
}

// update takes what the member says of itself and reports whether that can
// change the assignment.
func (c *consumer) update(m *consumerMember, r ConsumerHeartbeatRequest, pattern *regexp.Regexp, topics topicView) bool {
	m.client = r.Client
	if r.Rack != "" {
		m.rack = r.Rack
	}
	if r.Rebalance > 0 {
		m.rebalance = min(r.Rebalance, c.cfg.MaxRebalance)
	}
	changed := false
	if r.Assignor != "" && r.Assignor != m.assignor {
		before := c.assignorName()
		m.assignor = r.Assignor
		changed = before != c.assignorName()
	}
	if r.Topics != nil {
		names := slices.Clone(r.Topics)
		slices.Sort(names)
		names = slices.Compact(names)
		if !slices.Equal(names, m.topics) {
			m.topics, changed = names, true
			c.version = topics.version - 1 // look the topics up again
		}
	}
	if r.Regex != nil && *r.Regex != m.regex {
		m.regex, m.pattern, changed = *r.Regex, pattern, true
		c.version = topics.version - 1
	}
	return changed
}
