package kafka

import (
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeGroups (key 15), versions 0 to 6.
//
//	v3  authorized operations (KIP-430)
//	v4  static members (KIP-345)
//	v5  flexible
//	v6  GROUP_ID_NOT_FOUND for a group that is not there (KIP-1043)
//
// Before version 6 a group that is not there is Dead and no error. A consumer
// group of KIP-848 counts as not there: ConsumerGroupDescribe describes it.

func (c *conn) describeGroups(r *request, req *kmsg.DescribeGroupsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, name := range req.Groups {
		out := kmsg.NewDescribeGroupsResponseGroup()
		out.Group, out.State = name, string(group.Dead)
		out.AuthorizedOperations = operations(req.IncludeAuthorizedOperations, groupOperations)
		d, err := s.groups.Describe(name)
		if err == nil && d.Type != group.Classic {
			err = refuse(kerr.GroupIDNotFound, "group %q is no classic group", name)
		}
		switch {
		case err == nil:
			describeClassic(&out, &d)
		case kafkaError(err) == kerr.GroupIDNotFound && r.version < 6:
		default:
			out.ErrorCode, out.ErrorMessage = s.fail(err)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func describeClassic(out *kmsg.DescribeGroupsResponseGroup, d *group.Description) {
	out.State, out.ProtocolType, out.Protocol = string(d.State), d.ProtocolType, d.Protocol
	for i := range d.Members {
		m := &d.Members[i]
		res := kmsg.NewDescribeGroupsResponseGroupMember()
		res.MemberID, res.InstanceID = m.ID, optional(m.InstanceID)
		res.ClientID, res.ClientHost = m.Client.ID, m.Client.Host
		res.ProtocolMetadata, res.MemberAssignment = m.Metadata, m.Assignment
		out.Members = append(out.Members, res)
	}
}
