package kafka

import (
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ConsumerGroupDescribe (key 69), versions 0 to 1 (KIP-848).
//
//	v0  flexible from the start
//	v1  the type of each member (KIP-1099)
//
// A classic group counts as not there: DescribeGroups describes it.

const consumerMember = 1

func (c *conn) consumerGroupDescribe(_ *request, req *kmsg.ConsumerGroupDescribeRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	for _, name := range req.Groups {
		out := kmsg.NewConsumerGroupDescribeResponseGroup()
		out.Group = name
		out.AuthorizedOperations = operations(req.IncludeAuthorizedOperations, groupOperations)
		d, err := s.groups.Describe(name)
		if err == nil && d.Type != group.Consumer {
			err = refuse(kerr.GroupIDNotFound, "group %q is no consumer group", name)
		}
		if out.ErrorCode, out.ErrorMessage = s.fail(err); err == nil {
			out.State, out.Epoch, out.AssignmentEpoch, out.AssignorName = string(d.State), d.Epoch, d.AssignmentEpoch, d.Protocol
			for i := range d.Members {
				out.Members = append(out.Members, describeConsumer(&d.Members[i]))
			}
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func describeConsumer(m *group.MemberDescription) kmsg.ConsumerGroupDescribeResponseGroupMember {
	out := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	out.MemberID, out.InstanceID, out.RackID = m.ID, optional(m.InstanceID), optional(m.Rack)
	out.MemberEpoch = m.Epoch
	out.ClientID, out.ClientHost = m.Client.ID, m.Client.Host
	out.SubscribedTopics, out.SubscribedTopicRegex = m.Subscribed, optional(m.Regex)
	out.Assignment, out.TargetAssignment = assignment(m.Assigned), assignment(m.Target)
	out.MemberType = consumerMember
	return out
}

func assignment(topics []group.TopicPartitions) kmsg.Assignment {
	a := kmsg.NewAssignment()
	for _, t := range topics {
		out := kmsg.NewAssignmentTopicPartition()
		out.TopicID, out.Topic, out.Partitions = t.ID, t.Name, t.Partitions
		a.TopicPartitions = append(a.TopicPartitions, out)
	}
	return a
}
