package kafka

import (
	"sync/atomic"
	"time"

	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// JoinGroup (key 11), versions 0 to 9. Versions 0 and 1 are served although
// Kafka 4.0 dropped them: clients still send them, and Kafka 4.1 took them back.
//
//	v1  a rebalance timeout of its own
//	v4  a member without an id is given one and asked to come again (KIP-394)
//	v5  static members (KIP-345)
//	v6  flexible
//	v7  the protocol type in the answer (KIP-559)
//	v8  a reason (KIP-800)
//	v9  a static leader may skip the assignment (KIP-814)
//
// The answer comes when the group has gathered; meanwhile the connection takes
// other requests.

func (c *conn) joinGroup(r *request) error {
	req, unlock, err := decode[*kmsg.JoinGroupRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	join := group.JoinRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: deref(req.InstanceID), Client: r.groupClient(),
		Session: millis(req.SessionTimeoutMillis), Rebalance: millis(req.RebalanceTimeoutMillis),
		ProtocolType: req.ProtocolType, NeedsMemberID: r.version >= 4, CanSkipAssignment: r.version >= 9,
		Reason: deref(req.Reason),
	}
	if r.version == 0 {
		join.Rebalance = join.Session
	}
	for i := range req.Protocols {
		join.Protocols = append(join.Protocols, group.Protocol{Name: req.Protocols[i].Name, Metadata: req.Protocols[i].Metadata})
	}
	first := r.orElse(func() { r.answer(c.joined(r, group.JoinResult{Err: kerr.NotCoordinator, Generation: -1})) })
	c.srv.groups.Join(join, func(res group.JoinResult) {
		if first() {
			r.answer(c.joined(r, res))
		}
	})
	return nil
}

func (c *conn) joined(r *request, res group.JoinResult) kmsg.Response {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.ErrorCode = c.srv.code(res.Err)
	resp.Generation = res.Generation
	resp.LeaderID, resp.MemberID = res.Leader, res.MemberID
	resp.SkipAssignment = res.SkipAssignment
	resp.ProtocolType = optional(res.ProtocolType)
	resp.Protocol = &res.Protocol
	if r.version >= 7 && res.Err != nil {
		resp.Protocol = nil // null is legal from version 7
	}
	for _, m := range res.Members {
		out := kmsg.NewJoinGroupResponseMember()
		out.MemberID, out.InstanceID, out.ProtocolMetadata = m.ID, optional(m.InstanceID), m.Metadata
		resp.Members = append(resp.Members, out)
	}
	return resp
}

// groupClient says who asks, as Kafka's tools show it.
func (r *request) groupClient() group.Client {
	return group.Client{ID: r.clientID(), Host: "/" + r.c.addr.String()}
}

// orElse arranges that otherwise is called if the connection closes, or the
// server stops, before the first call of the function that it returns. That one
// is told whether it came first: only then may it answer.
func (r *request) orElse(otherwise func()) (first func() bool) {
	var answered atomic.Bool
	r.onHurry(func() {
		if answered.CompareAndSwap(false, true) {
			otherwise()
		}
	})
	return func() bool { return answered.CompareAndSwap(false, true) }
}

func millis(ms int32) time.Duration { return time.Duration(ms) * time.Millisecond }
