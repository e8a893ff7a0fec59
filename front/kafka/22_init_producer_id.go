package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId (key 22), versions 0 to 5.
//
//	v2  flexible
//	v3  a producer that had an error names its id and epoch (KIP-360)
//	v4  PRODUCER_FENCED may be answered
//	v5  transactions, version 2 (KIP-890)
//
// Idempotent producers only. Each request gets a new id: what a producer sent
// under its old one and what it sends now cannot be mixed up. Kafka does the same.

func (c *conn) initProducerID(_ *request, req *kmsg.InitProducerIDRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		// Not COORDINATOR_NOT_AVAILABLE, which clients retry until they time out.
		resp.ErrorCode = s.code(refuse(kerr.InvalidRequest, "transactions are not served"))
		return resp
	}
	id, err := s.store.NewProducerID(c.ctx)
	if resp.ErrorCode = s.code(err); err == nil {
		resp.ProducerID, resp.ProducerEpoch = id, 0
	}
	return resp
}
