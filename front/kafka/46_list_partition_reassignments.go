package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// ListPartitionReassignments (key 46), version 0 (KIP-455): those that are under
// way, and on one node none is.

func (c *conn) listPartitionReassignments(_ *request, req *kmsg.ListPartitionReassignmentsRequest) kmsg.Response {
	return req.ResponseKind()
}
