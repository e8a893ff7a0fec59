package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ElectLeaders (key 43), versions 0 to 2 (KIP-183, KIP-460).
//
//	v1  the preferred replica, or an unclean election
//	v2  flexible
//
// Every partition has one replica, which leads it, so no election is ever
// needed: that is the answer for each partition named. Asked for all, Kafka names
// those only where it had something to do; here there are none.

func (c *conn) electLeaders(_ *request, req *kmsg.ElectLeadersRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.ElectLeadersResponse)
	if req.ElectionType != 0 && req.ElectionType != 1 {
		resp.ErrorCode = s.code(kerr.InvalidRequest)
		return resp
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewElectLeadersResponseTopic()
		out.Topic = t.Topic
		for _, n := range t.Partitions {
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition = n
			_, err := s.partition(t.Topic, n)
			if err == nil {
				err = refuse(kerr.ElectionNotNeeded, "node %d has the only replica, and leads", s.nodeID())
			}
			p.ErrorCode, p.ErrorMessage = s.fail(err)
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}
