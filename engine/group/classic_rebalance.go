package group

import "time"

// rebalanceOrComplete follows every arrival: it begins a rebalance, or ends the
// one that waited for this member.
func (c *classic) rebalanceOrComplete(now time.Time, fx *effects) {
	if c.state == PreparingRebalance {
		c.maybeComplete(now, fx)
		return
	}
	c.prepare(now, fx)
}

// afterLoss follows every removal.
func (c *classic) afterLoss(now time.Time, fx *effects) {
	switch c.state {
	case PreparingRebalance:
		c.maybeComplete(now, fx)
	case CompletingRebalance, Stable:
		c.prepare(now, fx)
	}
}

// prepare begins a rebalance: every member has to join again.
func (c *classic) prepare(now time.Time, fx *effects) {
	if c.state == CompletingRebalance {
		for _, m := range c.ordered() {
			if m.sync != nil {
				c.answerSync(m, SyncResult{Err: ErrRebalanceInProgress}, fx)
				m.heard(now)
			}
			m.assignment = nil
		}
	}
	c.initial = c.state == Empty
	c.state = PreparingRebalance
	c.syncBy = never
	clear(c.unsynced)
	if !c.initial {
		c.joinBy = now.Add(c.patience())
		c.maybeComplete(now, fx)
		return
	}
	c.arrived = false
	c.delay = c.cfg.InitialRebalanceDelay
	c.delayLeft = max(c.patience()-c.delay, 0)
	c.joinBy = now.Add(c.delay)
	if c.delay == 0 {
		c.complete(now, fx)
	}
}

// patience is the longest rebalance timeout of the members.
func (c *classic) patience() time.Duration {
	longest := time.Duration(0)
	for _, m := range c.members {
		longest = max(longest, min(m.rebalance, c.cfg.MaxRebalance))
	}
	return longest
}

// maybeComplete ends the join when nobody is missing. A first rebalance waits
// for its delay all the same.
func (c *classic) maybeComplete(now time.Time, fx *effects) {
	if !c.initial && c.waiting() == len(c.members) && len(c.pending) == 0 {
		c.complete(now, fx)
	}
}

// joinTimeout is called when joinBy has come.
func (c *classic) joinTimeout(now time.Time, fx *effects) {
	if c.initial && c.arrived && c.delayLeft > 0 {
		c.arrived = false
		next := min(c.cfg.InitialRebalanceDelay, c.delayLeft)
		c.delayLeft = max(c.delayLeft-c.delay, 0)
		c.delay = next
		c.joinBy = now.Add(next)
		return
	}
	c.complete(now, fx)
}

// complete begins the next generation with those who joined. Dynamic members
// that did not are out; static ones keep their place until their session ends.
func (c *classic) complete(now time.Time, fx *effects) {
	for _, m := range c.ordered() {
		if m.join == nil && m.instance == "" {
			c.remove(m, ErrUnknownMember, fx)
		}
	}
	if len(c.members) > 0 && !c.elect() {
		// Only static members that are away: nobody could assign. Not too often,
		// whatever rebalance timeout they asked for.
		c.joinBy = now.Add(max(c.patience(), c.cfg.MinSession))
		return
	}
	c.joinBy, c.initial = never, false
	c.generation++
	if len(c.members) == 0 {
		c.state, c.protocol, c.emptySince = Empty, "", now
		return
	}
	c.state = CompletingRebalance
	c.protocol = c.choose()
	c.syncBy = now.Add(c.patience())
	for _, m := range c.ordered() {
		if m.join != nil {
			c.answerJoin(m, c.joinResult(m), fx)
			m.heard(now)
			m.fresh = false
			c.unsynced[m.id] = true
		}
		m.assignment = nil
	}
}

// elect makes sure that the leader is one who joined, and reports whether there is one.
func (c *classic) elect() bool {
	if m := c.members[c.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range c.ordered() {
		if m.join != nil {
			c.leader = m.id
			return true
		}
	}
	return false
}

// syncTimeout removes the members that have not come for their assignment.
func (c *classic) syncTimeout(now time.Time, fx *effects) {
	c.syncBy = never
	lost := false
	for _, m := range c.ordered() {
		if c.unsynced[m.id] {
			c.remove(m, ErrUnknownMember, fx)
			lost = true
		}
	}
	if lost {
		c.afterLoss(now, fx)
	}
}

// tick handles every deadline that has come.
func (c *classic) tick(now time.Time, fx *effects) {
	due := func(t time.Time) bool { return !t.IsZero() && !t.After(now) }
	lost, expired := false, false
	for id, until := range c.pending {
		if due(until) {
			delete(c.pending, id)
			expired = true
		}
	}
	for _, m := range c.ordered() {
		switch {
		case !due(m.alive):
		case !m.fresh && (m.join != nil || m.sync != nil):
			m.heard(now)
		default:
			c.remove(m, ErrUnknownMember, fx)
			lost = true
		}
	}
	if lost || expired && c.state == PreparingRebalance {
		c.afterLoss(now, fx)
	}
	if due(c.joinBy) {
		c.joinTimeout(now, fx)
	}
	if due(c.syncBy) {
		c.syncTimeout(now, fx)
	}
}
