package kafka

import (
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ShareGroupDescribe (key 77), version 1 (KIP-932).

func (c *conn) shareGroupDescribe(_ *request, req *kmsg.ShareGroupDescribeRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.ShareGroupDescribeResponse)
	for _, name := range req.GroupIDs {
		out := kmsg.NewShareGroupDescribeResponseGroup()
		out.GroupID = name
		out.AuthorizedOperations = operations(req.IncludeAuthorizedOperations, groupOperations)
		d, err := s.shares.Describe(name)
		if out.ErrorCode, out.ErrorMessage = s.fail(err); err == nil {
			out.GroupState, out.GroupEpoch, out.AssignmentEpoch, out.Assignor = string(d.State), d.Epoch, d.AssignmentEpoch, d.Protocol
			for i := range d.Members {
				out.Members = append(out.Members, describeSharer(&d.Members[i]))
			}
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func describeSharer(m *group.MemberDescription) kmsg.ShareGroupDescribeResponseGroupMember {
	out := kmsg.NewShareGroupDescribeResponseGroupMember()
	out.MemberID, out.RackID, out.MemberEpoch = m.ID, optional(m.Rack), m.Epoch
	out.ClientID, out.ClientHost = m.Client.ID, m.Client.Host
	out.SubscribedTopicNames = m.Subscribed
	for _, t := range m.Assigned {
		tp := kmsg.NewShareGroupDescribeResponseGroupMemberAssignmentTopicPartition()
		tp.TopicID, tp.Topic, tp.Partitions = t.ID, t.Name, t.Partitions
		out.Assignment.TopicPartitions = append(out.Assignment.TopicPartitions, tp)
	}
	return out
}
