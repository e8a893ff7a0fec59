package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TxnOffsetCommit (key 28), versions 0 to 4.
//
//	v2  leader epochs, kept as they were committed (KIP-320)
//	v3  flexible; member, instance and generation, which are checked (KIP-447)
//	v4  another error may be answered (KIP-890)
//
// The offsets are durable when the answer comes, and the group's when the
// transaction is committed.

func (c *conn) txnOffsetCommit(r *request) error {
	req, unlock, err := decode[*kmsg.TxnOffsetCommitRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	s := c.srv
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	as := txn.Request{ID: req.TransactionalID, Producer: req.ProducerID, Epoch: req.ProducerEpoch}
	commit := group.TxnCommitRequest{
		CommitRequest: group.CommitRequest{Group: req.Group, Generation: -1},
		Producer:      req.ProducerID,
		Ongoing:       func() error { return s.txns.OngoingFor(req.Group, as) },
	}
	if r.version >= 3 {
		commit.MemberID, commit.InstanceID, commit.Generation = req.MemberID, deref(req.InstanceID), req.Generation
	}
	elsewhere := s.ownGroup(req.Group)
	var at []*int16 // where the error of each offset in commit goes
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewTxnOffsetCommitResponseTopic()
		out.Topic, out.Partitions = t.Topic, make([]kmsg.TxnOffsetCommitResponseTopicPartition, len(t.Partitions))
		id, known := s.store.TopicIDOf(t.Topic)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			out.Partitions[j] = kmsg.NewTxnOffsetCommitResponseTopicPartition()
			out.Partitions[j].Partition = p.Partition
			code := &out.Partitions[j].ErrorCode
			switch {
			case req.Group == "":
				*code = s.code(kerr.InvalidGroupID)
				continue
			case elsewhere != nil:
				*code = s.code(elsewhere)
				continue
			case !known:
				*code = s.code(kerr.UnknownTopicOrPartition)
				continue
			}
			epoch := int32(-1)
			if r.version >= 2 {
				epoch = p.LeaderEpoch
			}
			commit.Offsets = append(commit.Offsets, group.OffsetCommit{
				TopicPartition: lattice.TopicPartition{Topic: id, Partition: p.Partition},
				Offset:         p.Offset, LeaderEpoch: epoch, Metadata: deref(p.Metadata),
			})
			at = append(at, code)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(at) == 0 {
		r.answer(resp)
		return nil
	}
	s.groups.CommitInTransaction(commit, func(res group.CommitResult) {
		for i, code := range at {
			err := res.Err
			if err == nil {
				err = res.Partitions[i]
			}
			*code = s.code(err)
		}
		r.answer(resp)
	})
	return nil
}
