package kafka

import (
	"errors"
	"strings"

	"github.com/lattice-log/lattice/engine/group"
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
// This node answers for every group, whichever node coordinates it; and coordinates every
// transaction and every partition of a share group, which is asked for as group:topic
// id:partition.

const (
	coordinatorOfGroups       = 0
	coordinatorOfTransactions = 1
	coordinatorOfShares       = 2
)

func (c *conn) findCoordinator(r *request, req *kmsg.FindCoordinatorRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	find := func(key string) kmsg.FindCoordinatorResponseCoordinator {
		out := kmsg.NewFindCoordinatorResponseCoordinator()
		out.Key = key
		err := checkCoordinator(r.version, req.CoordinatorType, key)
		if err == nil && (r.version < 1 || req.CoordinatorType == coordinatorOfGroups) {
			if _, err = s.store.Coordinator(key, false); errors.Is(err, group.ErrMoving) {
				err = nil // who asks finds the new one by way of this node, too
			}
		}
		if err != nil {
			out.NodeID, out.Port = -1, -1
			out.ErrorCode, out.ErrorMessage = s.fail(err)
			return out
		}
		out.NodeID = s.nodeID()
		out.Host, out.Port = c.advertised()
		return out
	}
	if r.version < 1 || req.CoordinatorType == coordinatorOfGroups {
		s.store.UseGroups()
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

// checkCoordinator refuses kinds that there are not, and names that cannot be.
func checkCoordinator(version int16, kind int8, key string) error {
	switch {
	case version < 1 || kind == coordinatorOfGroups || kind == coordinatorOfTransactions:
		return nil
	case kind != coordinatorOfShares || version < 6:
		return refuse(kerr.InvalidRequest, "there is no coordinator of type %d in version %d", kind, version)
	case strings.Count(key, ":") < 2:
		return refuse(kerr.InvalidRequest, "share-partition %.100q: want group:topic id:partition", key)
	}
	return nil
}
