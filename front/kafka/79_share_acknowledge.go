package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ShareAcknowledge (key 79), versions 1 to 2 (KIP-932).
//
//	v1  flexible from the start
//	v2  renewed locks (KIP-1222)
//
// It is a request of the session that ShareFetch opened, and takes its next epoch.
// The answer comes when the acknowledgements are durable.

func (c *conn) shareAcknowledge(r *request) error {
	req, unlock, err := decode[*kmsg.ShareAcknowledgeRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	s := c.srv
	resp := req.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
	group, member := deref(req.GroupID), deref(req.MemberID)
	session, err := c.acknowledging(req)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.fail(err)
		r.answer(resp)
		return nil
	}
	resp.AcquisitionLockTimeoutMillis = int32(s.shares.Lock(group).Milliseconds())
	var acks []share.Acknowledgement
	var at []*kmsg.ShareAcknowledgeResponseTopicPartition
	resp.Topics = make([]kmsg.ShareAcknowledgeResponseTopic, len(req.Topics))
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.TopicID = t.TopicID
		out.Partitions = make([]kmsg.ShareAcknowledgeResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &out.Partitions[j]
			p.Partition = t.Partitions[j].Partition
			p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = -1, -1 // it has not changed
			a := share.Acknowledgement{TopicPartition: lattice.TopicPartition{Topic: t.TopicID, Partition: p.Partition}}
			for _, b := range t.Partitions[j].AcknowledgementBatches {
				a.Acks = append(a.Acks, ackOf(b.FirstOffset, b.LastOffset, b.AcknowledgeTypes))
			}
			acks, at = append(acks, a), append(at, p)
		}
	}
	s.shares.Acknowledge(group, member, acks, req.IsRenewAck, func(errs []error) {
		for i, err := range errs {
			at[i].ErrorCode, at[i].ErrorMessage = s.fail(err)
		}
		r.answer(resp)
	})
	if req.ShareSessionEpoch == share.EpochFinal {
		s.shares.Close(session)
	}
	return nil
}

// acknowledging finds the session of a request.
func (c *conn) acknowledging(req *kmsg.ShareAcknowledgeRequest) (*share.Session, error) {
	group, member := deref(req.GroupID), deref(req.MemberID)
	switch req.ShareSessionEpoch {
	case share.EpochOpen:
		return nil, refuse(kerr.InvalidShareSessionEpoch, "a share session is opened by ShareFetch")
	case share.EpochFinal:
		return c.srv.shares.Current(group, member)
	}
	return c.srv.shares.Continue(group, member, req.ShareSessionEpoch, nil, nil)
}

// own notes that a session lives no longer than this connection.
func (c *conn) own(s *share.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	const few = 16
	if c.sessions == nil {
		c.sessions = map[*share.Session]struct{}{}
	}
	if len(c.sessions) >= few {
		for old := range c.sessions {
			if old.Closed() {
				delete(c.sessions, old)
			}
		}
	}
	c.sessions[s] = struct{}{}
}

// disown ends the connection's sessions: what their members have is available again.
func (c *conn) disown() {
	c.mu.Lock()
	sessions := c.sessions
	c.sessions = nil
	c.mu.Unlock()
	for s := range sessions {
		c.srv.shares.Close(s)
	}
}
