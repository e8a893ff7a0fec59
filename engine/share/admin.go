package share

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
)

// assignorName is what Kafka calls its assignor of share groups.
const assignorName = "simple"

// protocolType is what ListGroups says of share groups.
const protocolType = "share"

func (e *entry) state() group.State {
	if len(e.members.members) == 0 {
		return group.Empty
	}
	return group.Stable
}

// List returns all share groups, sorted by name.
func (m *Manager) List() []group.Listing {
	list := []group.Listing{}
	for _, e := range m.entries() {
		e.mu.Lock()
		if !e.gone {
			list = append(list, group.Listing{
				Group: e.name, Type: group.Share, State: e.state(), ProtocolType: protocolType, Members: len(e.members.members),
			})
		}
		e.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b group.Listing) int { return strings.Compare(a.Group, b.Group) })
	return list
}

// Describe tells everything about one group but where it is. ErrGroupNotFound.
func (m *Manager) Describe(name string) (group.Description, error) {
	var d group.Description
	err := m.with(name, false, func(e *entry, _ time.Time, _ *effects) {
		d = group.Description{
			Group: name, Type: group.Share, State: e.state(), ProtocolType: protocolType, Protocol: assignorName,
			Epoch: e.members.epoch, AssignmentEpoch: e.members.epoch,
		}
		for _, mb := range e.members.ordered() {
			assigned := mb.byTopic(m.logs)
			d.Members = append(d.Members, group.MemberDescription{
				ID: mb.id, Rack: mb.rack, Client: mb.client, Epoch: mb.epoch,
				Subscribed: slices.Clone(mb.topics), Assigned: assigned, Target: assigned,
			})
		}
	})
	return d, err
}

// Progress is how far a group is in one partition.
type Progress struct {
	lattice.TopicPartition
	Start int64 // everything below is settled; -1: the group has had nothing of it
	Term  int32 // of the log
	Lag   int64 // records from Start on that are not settled; -1 with Start -1
}

// Offsets returns how far a group is in partitions, in their order, or if none are
// named in all that it has had something of, sorted. ErrGroupNotFound.
func (m *Manager) Offsets(name string, parts []lattice.TopicPartition) ([]Progress, error) {
	var all []Progress
	err := m.with(name, false, func(e *entry, _ time.Time, _ *effects) {
		asked := parts
		if asked == nil {
			asked = slices.SortedFunc(maps.Keys(e.parts), comparePartitions)
		}
		for _, tp := range asked {
			p := Progress{TopicPartition: tp, Start: -1, Term: -1, Lag: -1}
			committed, term, ok := m.logs.Committed(tp)
			if ok {
				p.Term = term
			}
			if d := e.parts[tp]; d != nil {
				m.refresh(tp, d)
				p.Start, p.Lag = d.w.start, max(committed-d.w.start-d.w.done(), 0)
			}
			all = append(all, p)
		}
	})
	return all, err
}

// Move is where a group is to begin in a partition.
type Move struct {
	lattice.TopicPartition
	Start int64
}

// AlterOffsets makes a group that has no members begin elsewhere, and makes the group
// if there is none. It replies when that is durable or refused, with one error for
// each partition. What was delivered before counts for nothing.
func (m *Manager) AlterOffsets(name string, moves []Move, reply func(error, []error)) {
	m.edit(name, true, moves, func(e *entry, move Move, fx *effects, done func(error)) error {
		log, ok := m.logs.Log(move.TopicPartition)
		switch {
		case !ok:
			return m.missing(move.TopicPartition)
		case move.Start < 0:
			return ErrInvalidRequest
		case e.parts[move.TopicPartition] != nil:
			m.parts.Add(-1)
		case m.parts.Load() >= int64(m.cfg.MaxParts):
			return ErrMaxSize
		}
		// Beyond the log's end there is nothing to settle: what comes is delivered.
		b := log.Bounds()
		start := min(max(move.Start, b.Start), b.Committed)
		m.parts.Add(1)
		e.parts[move.TopicPartition] = &delivery{w: &window{start: start, end: start}, fresh: true, term: -1}
		m.save(e, move.TopicPartition, fx, done)
		return nil
	}, reply)
}

// DeleteOffsets makes a group that has no members forget partitions. Forgetting what
// it does not know is no error.
func (m *Manager) DeleteOffsets(name string, parts []lattice.TopicPartition, reply func(error, []error)) {
	moves := make([]Move, len(parts))
	for i, tp := range parts {
		moves[i].TopicPartition = tp
	}
	m.edit(name, false, moves, func(e *entry, move Move, fx *effects, done func(error)) error {
		if e.parts[move.TopicPartition] == nil {
			done(nil)
			return nil
		}
		m.forget(e, move.TopicPartition, fx, done)
		return nil
	}, reply)
}

// edit changes partitions of an empty group. change calls done, now or later, unless
// it returns an error.
func (m *Manager) edit(name string, create bool, moves []Move, change func(*entry, Move, *effects, func(error)) error, reply func(error, []error)) {
	errs := make([]error, len(moves))
	var left atomic.Int32
	left.Store(1)
	var refused error
	end := func() {
		if left.Add(-1) == 0 {
			reply(refused, errs)
		}
	}
	err := m.with(name, create, func(e *entry, _ time.Time, fx *effects) {
		if len(e.members.members) > 0 {
			refused = ErrNonEmpty
			return
		}
		for _, s := range e.sessions { // of members that left without closing them
			m.endSession(e, s, fx)
		}
		for i, move := range moves {
			left.Add(1)
			errs[i] = change(e, move, fx, func(err error) {
				errs[i] = err
				end()
			})
			if errs[i] != nil {
				left.Add(-1)
			}
		}
		e.stir(fx)
	})
	refused = cmp.Or(refused, err)
	end()
}

// DeleteGroup removes a group without members and all that it knows, durably before
// it replies: nil, ErrGroupNotFound, ErrNonEmpty, ErrNotStored or ErrClosed. What the
// group is set to stays, as in Kafka.
func (m *Manager) DeleteGroup(name string, reply func(error)) {
	var parts []lattice.TopicPartition
	err := m.with(name, false, func(e *entry, _ time.Time, _ *effects) { parts = slices.Collect(maps.Keys(e.parts)) })
	if err != nil {
		reply(err)
		return
	}
	m.DeleteOffsets(name, parts, func(err error, errs []error) {
		if lattice.KindOf(err) == lattice.NotFound && err != nil {
			err = nil // it had nothing but its name
		}
		reply(cmp.Or(append([]error{err}, errs...)...))
	})
}
