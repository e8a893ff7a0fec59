package group

import (
	"slices"
	"time"
)

// enter handles a JoinRequest. newID is the id for a member that has none.
func (c *classic) enter(now time.Time, r JoinRequest, newID string, reply func(JoinResult), fx *effects) {
	refuse := func(id string, err error) {
		fx.join(reply, JoinResult{Err: err, MemberID: id, Generation: -1})
	}
	known := c.members[r.MemberID]
	switch {
	case r.Session < c.cfg.MinSession || r.Session > c.cfg.MaxSession:
		refuse(r.MemberID, ErrInvalidSession)
	case !c.room(known):
		if known != nil {
			c.remove(known, ErrMaxSize, fx)
			c.afterLoss(now, fx)
		}
		refuse(r.MemberID, ErrMaxSize)
	case !c.supports(r.ProtocolType, r.Protocols):
		refuse(r.MemberID, ErrInconsistentProtocol)
	case r.MemberID == "" && r.InstanceID != "":
		c.enterStatic(now, r, newID, reply, fx)
	case r.MemberID == "" && r.NeedsMemberID:
		if len(c.pending) >= c.cfg.MaxSize {
			refuse("", ErrMaxSize)
			return
		}
		c.pending[newID] = now.Add(r.Session)
		refuse(newID, ErrMemberIDRequired)
	case r.MemberID == "":
		c.enterNew(now, r, newID, reply, fx)
	case !c.pending[r.MemberID].IsZero() && r.InstanceID == "":
		c.enterNew(now, r, r.MemberID, reply, fx)
	default:
		m, err := c.check(r.MemberID, r.InstanceID)
		if err != nil {
			refuse(r.MemberID, err)
			return
		}
		c.enterAgain(now, m, r, reply, fx)
	}
}

// room reports whether the caller fits. In a rebalance the members that came
// first count; those that have not joined yet may find their place taken.
func (c *classic) room(known *classicMember) bool {
	switch c.state {
	case PreparingRebalance:
		return known != nil && known.join != nil || c.waiting() < c.cfg.MaxSize
	case CompletingRebalance, Stable:
		return known != nil || len(c.members) < c.cfg.MaxSize
	default:
		return true
	}
}

func (c *classic) enterNew(now time.Time, r JoinRequest, id string, reply func(JoinResult), fx *effects) {
	m := &classicMember{
		id: id, instance: r.InstanceID, client: r.Client,
		fresh: true, alive: now.Add(c.cfg.NewMemberJoin), join: reply,
	}
	m.take(r)
	if c.state == PreparingRebalance && c.initial {
		c.arrived = true
	}
	c.add(m, r.ProtocolType)
	c.rebalanceOrComplete(now, fx)
}

// take copies what a member says of itself at each join.
func (m *classicMember) take(r JoinRequest) {
	m.client, m.session, m.rebalance, m.protocols = r.Client, r.Session, r.Rebalance, r.Protocols
	if m.rebalance <= 0 {
		m.rebalance = m.session
	}
}

// park keeps the member's reply until the join completes. A request of the same
// member that is parked already has been given up by its client.
func (c *classic) park(m *classicMember, r JoinRequest, reply func(JoinResult), fx *effects) {
	c.answerJoin(m, JoinResult{Err: ErrRebalanceInProgress}, fx)
	m.take(r)
	m.join = reply
}

// enterAgain handles the join of a member that is in the group.
func (c *classic) enterAgain(now time.Time, m *classicMember, r JoinRequest, reply func(JoinResult), fx *effects) {
	same := m.offers(r.Protocols)
	switch {
	case c.state == CompletingRebalance && same:
		// It may have missed the answer to its first join: tell it again.
		fx.join(reply, c.joinResult(m))
	case c.state == Stable && same && m.id != c.leader:
		// Nothing changed for a follower: it goes on to SyncGroup. A leader that
		// joins again wants a rebalance.
		fx.join(reply, c.joinResult(m))
	default:
		c.park(m, r, reply, fx)
		c.rebalanceOrComplete(now, fx)
	}
}

// enterStatic handles a static member that comes without a member id: the first
// time, or after a restart of its process.
func (c *classic) enterStatic(now time.Time, r JoinRequest, newID string, reply func(JoinResult), fx *effects) {
	oldID, ok := c.static[r.InstanceID]
	if !ok {
		c.enterNew(now, r, newID, reply, fx)
		return
	}
	m := c.members[oldID]
	oldLeader, subscribed := c.leader, c.topicsOf(m)
	c.answerJoin(m, JoinResult{Err: ErrFencedInstance}, fx)
	c.answerSync(m, SyncResult{Err: ErrFencedInstance}, fx)
	c.rename(m, newID)
	m.take(r)
	m.fresh = false
	m.heard(now)

	if c.state == Stable && c.choose() == c.protocol && slices.Equal(subscribed, c.topicsOf(m)) {
		// The point of static membership: a restart moves no partition. The leader
		// is named by its old id, lest the restarted process thinks it must assign,
		// unless it understands SkipAssignment.
		res := c.joinResult(m)
		if r.CanSkipAssignment {
			res.SkipAssignment = m.id == c.leader
		} else {
			res.Leader, res.Members = oldLeader, nil
		}
		fx.join(reply, res)
		return
	}
	m.join = reply
	c.rebalanceOrComplete(now, fx)
}

// topicsOf returns what a member of Kafka's consumers subscribed to, as far as
// it can be read. Unlike Kafka we compare it when a static member returns:
// otherwise a restart with another subscription would go unnoticed.
func (c *classic) topicsOf(m *classicMember) []string {
	if c.protocolType != consumerProtocol {
		return nil
	}
	topics, _ := parseSubscription(m.metadata(c.protocol)) // unreadable: as if it had none, then and now
	return topics
}

// rename gives a static member its new id; whoever uses the old one is fenced.
func (c *classic) rename(m *classicMember, id string) {
	delete(c.members, m.id)
	if c.unsynced[m.id] {
		delete(c.unsynced, m.id)
		c.unsynced[id] = true
	}
	if c.leader == m.id {
		c.leader = id
	}
	m.id = id
	c.members[id] = m
	c.static[m.instance] = id
}

// joinResult is the answer to a join of the current generation.
func (c *classic) joinResult(m *classicMember) JoinResult {
	r := JoinResult{
		Generation: c.generation, ProtocolType: c.protocolType, Protocol: c.protocol,
		Leader: c.leader, MemberID: m.id,
	}
	if m.id == c.leader {
		for _, o := range c.ordered() {
			r.Members = append(r.Members, JoinedMember{ID: o.id, InstanceID: o.instance, Metadata: o.metadata(c.protocol)})
		}
	}
	return r
}
