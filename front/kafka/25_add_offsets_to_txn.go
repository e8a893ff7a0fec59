package kafka

import (
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AddOffsetsToTxn (key 25), versions 0 to 4.
//
//	v2  PRODUCER_FENCED may be answered
//	v3  flexible
//	v4  another error may be answered (KIP-890)
//
// Its answer lets the producer commit offsets of the group in its transaction.

func (c *conn) addOffsetsToTxn(r *request) error {
	req, unlock, err := decode[*kmsg.AddOffsetsToTxnRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	if req.Group == "" {
		resp.ErrorCode = c.srv.code(kerr.InvalidGroupID)
		r.answer(resp)
		return nil
	}
	if err := c.srv.ownGroup(req.Group); err != nil {
		resp.ErrorCode = c.srv.code(err)
		r.answer(resp)
		return nil
	}
	as := txn.Request{ID: req.TransactionalID, Producer: req.ProducerID, Epoch: req.ProducerEpoch}
	c.srv.txns.Add(as, nil, []string{req.Group}, func(err error) {
		resp.ErrorCode = c.srv.txnCode(err, r.version >= 2)
		r.answer(resp)
	})
	return nil
}
