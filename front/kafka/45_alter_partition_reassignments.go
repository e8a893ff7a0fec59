package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterPartitionReassignments (key 45), versions 0 to 1 (KIP-455).
//
//	v1  whether the number of replicas may change (KIP-860): it cannot here
//
// Replicas are where they are: on this node. Asking for that is granted and
// changes nothing; anything else is refused, and there is never a move to cancel.

func (c *conn) alterPartitionReassignments(_ *request, req *kmsg.AlterPartitionAssignmentsRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			want := &t.Partitions[j]
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition = want.Partition
			_, err := s.partition(t.Topic, want.Partition)
			switch {
			case err != nil:
			case want.Replicas == nil:
				err = refuse(kerr.NoReassignmentInProgress, "there is no move of %s/%d to cancel", t.Topic, want.Partition)
			default:
				err = s.onlyHere(want.Replicas)
			}
			p.ErrorCode, p.ErrorMessage = s.fail(err)
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
