package group

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Join enters a classic group. The reply comes when the rebalance is through.
func (m *Manager) Join(r JoinRequest, reply func(JoinResult)) {
	refuse := func(err error) { reply(JoinResult{Err: err, MemberID: r.MemberID, Generation: -1}) }
	if r.Group == "" {
		refuse(ErrInvalidGroupID)
		return
	}
	size := len(r.MemberID) + len(r.InstanceID) + len(r.ProtocolType)
	r.Protocols = slices.Clone(r.Protocols)
	for i, p := range r.Protocols {
		size += len(p.Name) + len(p.Metadata)
		r.Protocols[i].Metadata = bytes.Clone(p.Metadata)
	}
	if size > m.cfg.MaxMemberBytes || len(r.InstanceID) > maxGroupBytes {
		refuse(fmt.Errorf("%w: protocols of %d bytes, limit %d", ErrInvalidRequest, size, m.cfg.MaxMemberBytes))
		return
	}
	newID := ""
	if r.MemberID == "" {
		name := r.Client.ID
		if r.InstanceID != "" {
			name = r.InstanceID
		}
		var err error
		if newID, err = m.memberID(name); err != nil {
			refuse(err)
			return
		}
	}
	var refused error
	err := m.with(r.Group, r.MemberID == "", func(e *entry, now time.Time, fx *effects) {
		if refused = m.becomeClassic(e, now, r.MemberID == ""); refused == nil {
			e.classic.enter(now, r, newID, reply, fx)
		}
	})
	if errors.Is(err, ErrGroupNotFound) {
		err = ErrUnknownMember
	}
	if err := cmp.Or(err, refused); err != nil {
		refuse(err)
	}
}

// becomeClassic makes an Empty consumer group a classic one for its first
// member. The generation goes on from the group epoch, so that no number means
// two things.
func (m *Manager) becomeClassic(e *entry, now time.Time, first bool) error {
	switch {
	case e.classic != nil:
		return nil
	case len(e.consumer.members) > 0:
		return fmt.Errorf("%w: its members use the consumer protocol, and live groups do not change protocol", ErrInconsistentProtocol)
	case !first:
		return ErrUnknownMember
	}
	e.classic, e.consumer = newClassic(&m.cfg, now, e.consumer.epoch), nil
	return nil
}

// becomeConsumer is the reverse.
func (m *Manager) becomeConsumer(e *entry, now time.Time, first bool) error {
	switch {
	case e.consumer != nil:
		return nil
	case !first:
		return ErrUnknownMember
	case e.classic.state != Empty:
		return fmt.Errorf("%w of the consumer type: its members use the classic protocol, and live groups do not change protocol", ErrGroupNotFound)
	}
	e.consumer, e.classic = newConsumer(&m.cfg, now, e.classic.generation), nil
	return nil
}

// Sync fetches a classic member's assignment, and brings all of them if the
// member leads.
func (m *Manager) Sync(r SyncRequest, reply func(SyncResult)) {
	if r.Group == "" {
		reply(SyncResult{Err: ErrInvalidGroupID})
		return
	}
	size := 0
	r.Assignments = slices.Clone(r.Assignments)
	for i, a := range r.Assignments {
		size += len(a.MemberID) + len(a.Assignment)
		r.Assignments[i].Assignment = bytes.Clone(a.Assignment)
	}
	if size > m.cfg.MaxAssignmentBytes {
		reply(SyncResult{Err: fmt.Errorf("%w: assignments of %d bytes, limit %d", ErrInvalidRequest, size, m.cfg.MaxAssignmentBytes)})
		return
	}
	err := m.with(r.Group, false, func(e *entry, now time.Time, fx *effects) {
		if e.classic == nil {
			fx.sync(reply, SyncResult{Err: ErrUnknownMember})
			return
		}
		e.classic.fetchAssignment(now, r, reply, fx)
	})
	if errors.Is(err, ErrGroupNotFound) {
		err = ErrUnknownMember
	}
	if err != nil {
		reply(SyncResult{Err: err})
	}
}

// Heartbeat keeps a classic member alive: nil, or what the member must act on
// (ErrRebalanceInProgress, ErrUnknownMember, ErrIllegalGeneration, ErrFencedInstance).
func (m *Manager) Heartbeat(r HeartbeatRequest) error {
	if r.Group == "" {
		return ErrInvalidGroupID
	}
	answer := ErrUnknownMember
	err := m.with(r.Group, false, func(e *entry, now time.Time, _ *effects) {
		if e.classic != nil {
			answer = e.classic.heartbeat(now, r)
		}
	})
	if err != nil && !errors.Is(err, ErrGroupNotFound) {
		return err
	}
	return answer
}

// Leave takes members out of a group of either type.
func (m *Manager) Leave(r LeaveRequest) LeaveResult {
	if r.Group == "" {
		return LeaveResult{Err: ErrInvalidGroupID}
	}
	var res LeaveResult
	err := m.with(r.Group, false, func(e *entry, now time.Time, fx *effects) {
		if e.classic != nil {
			res.Members = e.classic.leave(now, r.Members, fx)
			return
		}
		for _, l := range r.Members {
			res.Members = append(res.Members, e.consumer.leave(now, l.MemberID, l.InstanceID, EpochLeave))
		}
	})
	if errors.Is(err, ErrGroupNotFound) {
		err = ErrUnknownMember
	}
	res.Err = err
	return res
}

// ConsumerHeartbeat is KIP-848's request.
//
// A member that we do not know, because it was removed or because we restarted,
// is told ErrUnknownMember even when we do not know the group either: that is
// what makes clients join again, while Kafka's GROUP_ID_NOT_FOUND, which it can
// use since its memberships survive restarts, makes them give up.
func (m *Manager) ConsumerHeartbeat(r ConsumerHeartbeatRequest) ConsumerHeartbeatResult {
	refuse := func(err error) ConsumerHeartbeatResult {
		return ConsumerHeartbeatResult{Err: err, MemberID: r.MemberID}
	}
	if r.Group == "" {
		return refuse(fmt.Errorf("%w: the group id is empty", ErrInvalidRequest))
	}
	if err := validHeartbeat(r); err != nil {
		return refuse(err)
	}
	size := len(r.MemberID) + len(r.InstanceID) + len(r.Rack)
	for _, t := range r.Topics {
		size += len(t)
	}
	if size > m.cfg.MaxMemberBytes {
		return refuse(fmt.Errorf("%w: a subscription of %d bytes, limit %d", ErrInvalidRequest, size, m.cfg.MaxMemberBytes))
	}
	newID := ""
	if r.MemberID == "" {
		var err error
		if newID, err = m.memberID(""); err != nil {
			return refuse(err)
		}
	}
	join := r.MemberEpoch == EpochJoin
	var res ConsumerHeartbeatResult
	err := m.with(r.Group, join, func(e *entry, now time.Time, _ *effects) {
		if err := m.becomeConsumer(e, now, join); err != nil {
			res = refuse(err)
			return
		}
		e.consumer.times = m.timesOf(e.name)
		if r.MemberEpoch < 0 {
			res = ConsumerHeartbeatResult{MemberID: r.MemberID, MemberEpoch: r.MemberEpoch}
			res.Err = e.consumer.leave(now, r.MemberID, r.InstanceID, r.MemberEpoch)
			return
		}
		res = e.consumer.heartbeat(now, r, newID, m.view())
	})
	switch {
	case errors.Is(err, ErrGroupNotFound):
		err = ErrUnknownMember
	case errors.Is(err, ErrShareGroup):
		err = fmt.Errorf("%w of the consumer type: %w", ErrGroupNotFound, err)
	}
	if err != nil {
		return refuse(err)
	}
	return res
}
