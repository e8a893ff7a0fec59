package group

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
)

// CommitOffsets stores offsets and replies when they are durable or refused.
//
// As in Kafka, an offset beyond the end of the log is accepted: tools set
// offsets before there are records, and clients that read back what they set
// expect to find it. See FetchOffsets for what such an offset comes to.
func (m *Manager) CommitOffsets(r CommitRequest, reply func(CommitResult)) {
	r.Offsets = slices.Clone(r.Offsets)
	var refused error
	admin := r.Generation < 0
	err := m.with(r.Group, admin, func(e *entry, now time.Time, _ *effects) {
		if e.classic != nil {
			refused = e.classic.mayCommit(now, r, false)
		} else {
			refused = e.consumer.mayCommit(r, false)
		}
		if refused != nil {
			return
		}
		errs := make([]error, len(r.Offsets))
		plan := func(b *batch) error {
			resetID, err := m.random()
			if err != nil {
				return err
			}
			m.planCommit(now, r.Offsets, errs, func(tp lattice.TopicPartition, v Value) { b.commit(e, tp, v, resetID) })
			return nil
		}
		if !m.enqueueFor(e, plan, false, func(err error) { reply(CommitResult{Err: err, Partitions: errs}) }) {
			refused = ErrClosed
		}
	})
	if errors.Is(err, ErrGroupNotFound) {
		if err = ErrUnknownMember; r.MemberID == "" {
			err = ErrIllegalGeneration // the oldest clients have no member id to lose
		}
	}
	if err := cmp.Or(err, refused); err != nil {
		reply(CommitResult{Err: err})
	}
}

// planCommit decides on each partition of a commit; the group's lock is held. It
// looks at the topics only now, so that a commit that is behind TopicDeleted in the
// queue cannot bring back what that removed.
func (m *Manager) planCommit(now time.Time, offsets []OffsetCommit, errs []error, put func(lattice.TopicPartition, Value)) {
	for i, o := range offsets {
		// The records may be on another node; then it is not known how far they go.
		topic, ok := m.topics.TopicByID(o.Topic)
		committed, term, here := m.topics.Committed(o.TopicPartition)
		switch {
		case !ok || o.Partition < 0 || o.Partition >= topic.Partitions:
			errs[i] = ErrUnknownTopicOrPartition
			continue
		case len(o.Metadata) > min(m.cfg.OffsetMetadataBytes, maxMetadata):
			errs[i] = ErrOffsetMetadataTooLarge
			continue
		}
		v := Value{
			Offset: o.Offset, LeaderEpoch: max(o.LeaderEpoch, -1), Term: -1,
			Time: time.UnixMilli(now.UnixMilli()).UTC(), Metadata: o.Metadata,
		}
		switch {
		case here && 0 <= o.Offset && o.Offset <= committed:
			v.Term = max(term, -1)
		case !here && o.Offset >= 0:
			v.Term = v.LeaderEpoch // another node leads: the client's word for what it has read
		}
		put(o.TopicPartition, v)
	}
}

// FetchOffsets reads committed offsets.
//
// What was committed is what is returned, with one exception. If the offset lay
// within the log when it was committed, and the log has since lost it (a crash
// at a durability level below fsync, or an unclean leader), the offset returned
// is where the log left that term. Otherwise the client would ask for an offset
// that is out of range, reset itself to the start or the end, and so read
// everything again or skip what was written since, in silence. An offset that
// lay beyond the log from the beginning is somebody's decision and stays.
func (m *Manager) FetchOffsets(r FetchRequest) FetchResult {
	stored := map[lattice.TopicPartition]Value{}
	unstable := partitionSet{}
	var refused error
	err := m.with(r.Group, false, func(e *entry, _ time.Time, _ *effects) {
		if e.consumer != nil {
			if refused = e.consumer.mayFetch(r); refused != nil {
				return
			}
		}
		if r.Stable {
			for po := range e.pending {
				unstable.add(po.TopicPartition)
			}
		}
		if r.All {
			for tp, v := range e.offsets {
				stored[tp] = v
			}
			return
		}
		for _, tp := range r.Partitions {
			if v, ok := e.offsets[tp]; ok {
				stored[tp] = v
			}
		}
	})
	if err != nil && !errors.Is(err, ErrGroupNotFound) {
		refused = err
	}
	if refused != nil {
		return FetchResult{Err: refused}
	}
	var res FetchResult
	if !r.All {
		for _, tp := range r.Partitions {
			res.Offsets = append(res.Offsets, m.shown(tp, stored, unstable))
		}
		return res
	}
	for tp := range stored {
		if o := m.shown(tp, stored, unstable); o.Topic != "" {
			res.Offsets = append(res.Offsets, o)
		}
	}
	slices.SortFunc(res.Offsets, func(a, b CommittedOffset) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return comparePartitions(a.TopicPartition, b.TopicPartition)
	})
	return res
}

// shown is the answer for one partition.
func (m *Manager) shown(tp lattice.TopicPartition, stored map[lattice.TopicPartition]Value, unstable partitionSet) CommittedOffset {
	o := CommittedOffset{TopicPartition: tp, Offset: -1, LeaderEpoch: -1}
	topic, ok := m.topics.TopicByID(tp.Topic)
	if !ok {
		return o
	}
	o.Topic = topic.Name
	if _, o.Unstable = unstable[tp]; o.Unstable {
		return o
	}
	v, ok := stored[tp]
	if !ok {
		return o
	}
	o.Offset, o.LeaderEpoch, o.Metadata, o.Committed = v.Offset, v.LeaderEpoch, v.Metadata, v.Time
	if v.Term >= 0 {
		if end, ok := m.topics.TermEnd(tp, v.Term); ok {
			o.Offset = min(o.Offset, end)
		}
		if committed, _, ok := m.topics.Committed(tp); ok {
			o.Offset = min(o.Offset, committed) // the log lost all that it knew of the term
		}
	}
	return o
}

// DeleteOffsets removes offsets of partitions that no member is subscribed to.
// Removing one that is not there is no error. ErrGroupNotFound, ErrNonEmpty (a
// live group whose subscriptions we cannot read), ErrNotStored.
func (m *Manager) DeleteOffsets(group string, partitions []lattice.TopicPartition, reply func(DeleteOffsetsResult)) {
	partitions = slices.Clone(partitions)
	var refused error
	err := m.with(group, false, func(e *entry, _ time.Time, _ *effects) {
		if e.classic != nil && e.classic.state != Empty && e.classic.protocolType != consumerProtocol {
			refused = ErrNonEmpty
			return
		}
		errs := make([]error, len(partitions))
		plan := func(b *batch) error {
			for i, tp := range partitions {
				topic, _ := m.topics.TopicByID(tp.Topic)
				if e.subscribed(topic.Name) {
					errs[i] = fmt.Errorf("topic %q: %w", topic.Name, ErrSubscribedToTopic)
				} else if _, ok := b.get(e, tp); ok {
					b.set(e, tp, nil)
				}
			}
			return nil
		}
		if !m.enqueueFor(e, plan, false, func(err error) { reply(DeleteOffsetsResult{Err: err, Partitions: errs}) }) {
			refused = ErrClosed
		}
	})
	if err := cmp.Or(err, refused); err != nil {
		reply(DeleteOffsetsResult{Err: err})
	}
}

func (e *entry) subscribed(topic string) bool {
	if e.classic != nil {
		return e.classic.subscribed(topic)
	}
	return e.consumer.subscribed(topic)
}
