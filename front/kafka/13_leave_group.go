package kafka

import (
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup (key 13), versions 0 to 5.
//
//	v3  several members, static ones by instance id (KIP-345)
//	v4  flexible
//	v5  a reason (KIP-800)

func (c *conn) leaveGroup(r *request, req *kmsg.LeaveGroupRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	leave := group.LeaveRequest{Group: req.Group}
	if r.version < 3 {
		leave.Members = []group.LeavingMember{{MemberID: req.MemberID}}
	}
	for i := range req.Members {
		m := &req.Members[i]
		leave.Members = append(leave.Members, group.LeavingMember{MemberID: m.MemberID, InstanceID: deref(m.InstanceID), Reason: deref(m.Reason)})
	}
	res := s.groups.Leave(leave)
	err := res.Err
	if err == nil && r.version < 3 {
		err = res.Members[0]
	}
	if resp.ErrorCode = s.code(err); err != nil || r.version < 3 {
		return resp
	}
	for i := range req.Members {
		out := kmsg.NewLeaveGroupResponseMember()
		out.MemberID, out.InstanceID = req.Members[i].MemberID, req.Members[i].InstanceID
		out.ErrorCode = s.code(res.Members[i])
		resp.Members = append(resp.Members, out)
	}
	return resp
}
