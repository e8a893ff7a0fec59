package kafka

import (
	"fmt"
	"time"

	"github.com/lattice-log/lattice/engine/txn"
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
// Without a transactional id, each request gets a new producer id: what a producer
// sent under its old one and what it sends now cannot be mixed up. Kafka does the
// same. With one, the coordinator decides.

func (c *conn) initProducerID(r *request) error {
	req, unlock, err := decode[*kmsg.InitProducerIDRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	s := c.srv
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID == nil {
		id, err := s.store.NewProducerID(c.ctx)
		if resp.ErrorCode = s.code(err); err == nil {
			resp.ProducerID, resp.ProducerEpoch = id, 0
		}
		r.answer(resp)
		return nil
	}
	s.txns.Init(txn.InitRequest{
		ID: *req.TransactionalID, Timeout: time.Duration(req.TransactionTimeoutMillis) * time.Millisecond,
		Producer: req.ProducerID, Epoch: req.ProducerEpoch,
	}, func(p txn.Producer, err error) {
		resp.ErrorCode = s.txnCode(err, r.version >= 4)
		resp.ProducerID, resp.ProducerEpoch = p.ID, p.Epoch
		r.answer(resp)
	})
	return nil
}

// txnCode is code for an answer to a transactional producer: one who knows no
// PRODUCER_FENCED knows INVALID_PRODUCER_EPOCH.
func (s *Server) txnCode(err error, knowsFenced bool) int16 {
	if e := kafkaError(err); e == kerr.ProducerFenced && !knowsFenced {
		err = fmt.Errorf("%w: %w", kerr.InvalidProducerEpoch, err)
	}
	return s.code(err)
}
