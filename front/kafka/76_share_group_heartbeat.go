package kafka

import (
	"github.com/lattice-log/lattice/engine/share"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ShareGroupHeartbeat (key 76), version 1 (KIP-932). Version 0 was a preview that
// Kafka took back.

func (c *conn) shareGroupHeartbeat(r *request, req *kmsg.ShareGroupHeartbeatRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	res := c.srv.shares.Heartbeat(share.HeartbeatRequest{
		Group: req.GroupID, MemberID: req.MemberID, MemberEpoch: req.MemberEpoch, Rack: deref(req.RackID),
		Topics: req.SubscribedTopicNames, Client: r.groupClient(),
	})
	if resp.ErrorCode, resp.ErrorMessage = c.srv.fail(res.Err); res.Err != nil {
		return resp
	}
	resp.MemberID = optional(res.MemberID)
	resp.MemberEpoch = res.MemberEpoch
	resp.HeartbeatIntervalMillis = int32(res.Interval.Milliseconds())
	if res.Assign {
		a := kmsg.NewShareGroupHeartbeatResponseAssignment()
		for _, t := range res.Assigned {
			out := kmsg.NewShareGroupHeartbeatResponseAssignmentTopicPartition()
			out.TopicID, out.Partitions = t.ID, t.Partitions
			a.TopicPartitions = append(a.TopicPartitions, out)
		}
		resp.Assignment = &a
	}
	return resp
}
