package kafka

import (
	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumerGroupHeartbeat (key 68), versions 0 to 1 (KIP-848).
//
//	v0  flexible from the start
//	v1  the client makes the member id, and may subscribe by a pattern

func (c *conn) consumerGroupHeartbeat(r *request, req *kmsg.ConsumerGroupHeartbeatRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	beat := group.ConsumerHeartbeatRequest{
		Group: req.Group, MemberID: req.MemberID, MemberEpoch: req.MemberEpoch,
		InstanceID: deref(req.InstanceID), Rack: deref(req.RackID), Rebalance: millis(max(req.RebalanceTimeoutMillis, 0)),
		Topics: req.SubscribedTopicNames, Regex: req.SubscribedTopicRegex, Assignor: deref(req.ServerAssignor),
		Client: r.groupClient(), ClientMakesID: r.version >= 1,
	}
	if req.Topics != nil {
		beat.Owned = []lattice.TopicPartition{}
	}
	for i := range req.Topics {
		for _, p := range req.Topics[i].Partitions {
			beat.Owned = append(beat.Owned, lattice.TopicPartition{Topic: req.Topics[i].TopicID, Partition: p})
		}
	}
	res := c.srv.groups.ConsumerHeartbeat(beat)
	if resp.ErrorCode, resp.ErrorMessage = c.srv.fail(res.Err); res.Err != nil {
		return resp
	}
	resp.MemberID = optional(res.MemberID)
	resp.MemberEpoch = res.MemberEpoch
	resp.HeartbeatIntervalMillis = int32(res.Interval.Milliseconds())
	if res.Assign {
		a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
		for _, t := range res.Assigned {
			out := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			out.TopicID, out.Partitions = t.ID, t.Partitions
			a.Topics = append(a.Topics, out)
		}
		resp.Assignment = &a
	}
	return resp
}
