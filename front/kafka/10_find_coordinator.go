package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FindCoordinator (key 10), versions 0 to 6.
//
//	v1  the kind of coordinator
//	v3  flexible
//	v4  several keys at once (KIP-699)
//	v6  share groups (KIP-932)
//
// This node coordinates every group and every transaction. Share groups have no
// coordinator here, which INVALID_REQUEST says once instead of letting a client
// retry for a minute.

const (
	coordinatorOfGroups       = 0
	coordinatorOfTransactions = 1
)

func (c *conn) findCoordinator(r *request, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	find := func(key string) kmsg.FindCoordinatorResponseCoordinator {
		out := kmsg.NewFindCoordinatorResponseCoordinator()
		out.Key = key
		if r.version >= 1 && req.CoordinatorType != coordinatorOfGroups && req.CoordinatorType != coordinatorOfTransactions {
			out.NodeID, out.Port = -1, -1
			out.ErrorCode, out.ErrorMessage = s.fail(refuse(kerr.InvalidRequest,
				"this node coordinates consumer groups and transactions: share groups are not served"))
			return out
		}
		out.NodeID = s.nodeID()
		out.Host, out.Port = c.advertised()
		return out
	}
	if r.version >= 4 {
		for _, key := range req.CoordinatorKeys {
			resp.Coordinators = append(resp.Coordinators, find(key))
		}
		return resp
	}
	one := find(req.CoordinatorKey)
	resp.ErrorCode, resp.ErrorMessage = one.ErrorCode, one.ErrorMessage
	resp.NodeID, resp.Host, resp.Port = one.NodeID, one.Host, one.Port
	return resp
}
