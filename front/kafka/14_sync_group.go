package kafka

import (
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SyncGroup (key 14), versions 0 to 5.
//
//	v3  static members (KIP-345)
//	v4  flexible
//	v5  protocol type and name, both ways (KIP-559)
//
// Followers wait for the leader's request. Each gets exactly the bytes that the
// leader gave for it, and no bytes when the leader left it out.

func (c *conn) syncGroup(r *request) error {
	req, unlock, err := decode[*kmsg.SyncGroupRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	ask := group.SyncRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: deref(req.InstanceID), Generation: req.Generation,
		ProtocolType: deref(req.ProtocolType), Protocol: deref(req.Protocol),
	}
	for i := range req.GroupAssignment {
		a := &req.GroupAssignment[i]
		ask.Assignments = append(ask.Assignments, group.MemberAssignment{MemberID: a.MemberID, Assignment: a.MemberAssignment})
	}
	first := r.orElse(func() { r.answer(c.synced(group.SyncResult{Err: kerr.NotCoordinator})) })
	c.srv.groups.Sync(ask, func(res group.SyncResult) {
		if first() {
			r.answer(c.synced(res))
		}
	})
	return nil
}

func (c *conn) synced(res group.SyncResult) kmsg.Response {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ErrorCode = c.srv.code(res.Err)
	resp.ProtocolType, resp.Protocol = optional(res.ProtocolType), optional(res.Protocol)
	resp.MemberAssignment = res.Assignment
	return resp
}
