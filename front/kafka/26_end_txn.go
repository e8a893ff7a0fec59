package kafka

import (
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// EndTxn (key 26), versions 0 to 4.
//
//	v2  PRODUCER_FENCED may be answered
//	v3  flexible
//	v4  another error may be answered (KIP-890)
//
// Version 5 belongs to the feature transaction.version 2, which is not there.
//
// The answer comes when the decision is in every partition: who reads after it sees
// what was committed. Should that not work out at once, it comes when the decision
// is durable.

func (c *conn) endTxn(r *request) error {
	req, unlock, err := decode[*kmsg.EndTxnRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	as := txn.Request{ID: req.TransactionalID, Producer: req.ProducerID, Epoch: req.ProducerEpoch}
	c.srv.txns.End(as, req.Commit, func(err error) {
		resp.ErrorCode = c.srv.txnCode(err, r.version >= 2)
		r.answer(resp)
	})
	return nil
}
