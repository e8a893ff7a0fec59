package kafka

import (
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat (key 12), versions 0 to 4.
//
//	v3  static members (KIP-345)
//	v4  flexible

func (c *conn) heartbeat(_ *request, req *kmsg.HeartbeatRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = c.srv.code(c.srv.groups.Heartbeat(group.HeartbeatRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: deref(req.InstanceID), Generation: req.Generation,
	}))
	return resp
}
