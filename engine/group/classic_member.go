package group

import "time"

// fetchAssignment handles a SyncRequest.
func (c *classic) fetchAssignment(now time.Time, r SyncRequest, reply func(SyncResult), fx *effects) {
	m, err := c.check(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
	case r.Generation != c.generation:
		err = ErrIllegalGeneration
	case r.ProtocolType != "" && r.ProtocolType != c.protocolType, r.Protocol != "" && r.Protocol != c.protocol:
		err = ErrInconsistentProtocol
	case c.state == PreparingRebalance:
		err = ErrRebalanceInProgress
	case c.state == Empty:
		err = ErrUnknownMember
	}
	if err != nil {
		fx.sync(reply, SyncResult{Err: err})
		return
	}
	delete(c.unsynced, m.id)
	m.heard(now)
	if c.state == Stable {
		fx.sync(reply, c.syncResult(m))
		return
	}
	c.answerSync(m, SyncResult{Err: ErrRebalanceInProgress}, fx) // given up by its client
	m.sync = reply
	if m.id == c.leader {
		c.assign(now, r.Assignments, fx)
	}
}

// assign takes the leader's word: each member gets exactly the bytes given for
// it, and none when it was left out.
func (c *classic) assign(now time.Time, given []MemberAssignment, fx *effects) {
	for _, a := range given {
		if m := c.members[a.MemberID]; m != nil {
			m.assignment = a.Assignment
		}
	}
	c.state = Stable
	for _, m := range c.ordered() {
		if m.sync != nil {
			c.answerSync(m, c.syncResult(m), fx)
			m.heard(now)
		}
	}
}

func (c *classic) syncResult(m *classicMember) SyncResult {
	return SyncResult{ProtocolType: c.protocolType, Protocol: c.protocol, Assignment: m.assignment}
}

// heartbeat notes that a member lives, and tells it of a rebalance.
func (c *classic) heartbeat(now time.Time, r HeartbeatRequest) error {
	m, err := c.check(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return err
	case r.Generation != c.generation:
		return ErrIllegalGeneration
	}
	m.heardLater(now)
	if c.state == PreparingRebalance {
		return ErrRebalanceInProgress
	}
	return nil
}

// heardLater is heard, but never shortens the wait that a fresh member has.
func (m *classicMember) heardLater(now time.Time) {
	if t := now.Add(m.session); t.After(m.alive) {
		m.alive = t
	}
}

// leave takes out each member named, then rebalances once.
func (c *classic) leave(now time.Time, leaving []LeavingMember, fx *effects) []error {
	errs := make([]error, len(leaving))
	lost, returned := false, false
	for i, l := range leaving {
		if _, ok := c.pending[l.MemberID]; ok && l.InstanceID == "" {
			delete(c.pending, l.MemberID)
			returned = true
			continue
		}
		id := l.MemberID
		if holder, ok := c.static[l.InstanceID]; ok && l.InstanceID != "" && id == "" {
			id = holder
		}
		m, err := c.check(id, l.InstanceID)
		if err != nil {
			errs[i] = err
			continue
		}
		c.remove(m, ErrUnknownMember, fx)
		lost = true
	}
	if lost || returned && c.state == PreparingRebalance {
		c.afterLoss(now, fx)
	}
	return errs
}

// mayCommit says whether a commit under this name is in order. A producer that
// commits in a transaction need not say whose offsets it commits (before KIP-447
// it could not), and may do so while the group waits for its assignment.
func (c *classic) mayCommit(now time.Time, r CommitRequest, txn bool) error {
	if r.Generation < 0 && c.state == Empty {
		return nil // an administrator, or a client that assigns partitions by hand
	}
	if r.Generation < 0 && r.MemberID == "" && r.InstanceID == "" {
		if txn {
			return nil
		}
		return ErrUnknownMember // likewise, but the group has members
	}
	m, err := c.check(r.MemberID, r.InstanceID)
	switch {
	case err != nil:
		return err
	case r.Generation != c.generation:
		return ErrIllegalGeneration
	case c.state == CompletingRebalance && !txn:
		// The member is of this generation but has no assignment yet: what it
		// commits is of the one before.
		return ErrRebalanceInProgress
	}
	m.heardLater(now)
	return nil
}
