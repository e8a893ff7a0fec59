package kafka

import (
	"errors"
	"sync/atomic"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/txn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AddPartitionsToTxn (key 24), versions 0 to 5.
//
//	v2  PRODUCER_FENCED may be answered
//	v3  flexible
//	v4  several transactions at once, and asking whether they have the partitions
//	    without adding them: for brokers (KIP-890)
//	v5  another error may be answered
//
// The answer comes when the transaction is known to have the partitions, durably.
// If one of them does not exist, none is added. One that another node leads is
// POLICY_VIOLATION, which ends the transaction and not the producer: its end could not
// be written there.

func (c *conn) addPartitionsToTxn(r *request) error {
	req, unlock, err := decode[*kmsg.AddPartitionsToTxnRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if r.version >= 4 {
		c.addToSeveral(r, req, resp)
		return nil
	}
	add := addition{Request: txn.Request{ID: req.TransactionalID, Producer: req.ProducerID, Epoch: req.ProducerEpoch}}
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewAddPartitionsToTxnResponseTopic()
		out.Topic, out.Partitions = t.Topic, make([]kmsg.AddPartitionsToTxnResponseTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			out.Partitions[j] = kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			out.Partitions[j].Partition = p
			add.partition(c.srv, t.Topic, p, &out.Partitions[j].ErrorCode)
		}
		resp.Topics = append(resp.Topics, out)
	}
	add.run(c.srv, false, r.version >= 2, func() { r.answer(resp) })
	return nil
}

func (c *conn) addToSeveral(r *request, req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse) {
	var left atomic.Int32
	left.Store(int32(len(req.Transactions)) + 1)
	done := func() {
		if left.Add(-1) == 0 {
			r.answer(resp)
		}
	}
	adds := make([]addition, len(req.Transactions))
	for i := range req.Transactions {
		in := &req.Transactions[i]
		adds[i].Request = txn.Request{ID: in.TransactionalID, Producer: in.ProducerID, Epoch: in.ProducerEpoch}
		out := kmsg.NewAddPartitionsToTxnResponseTransaction()
		out.TransactionalID = in.TransactionalID
		for j := range in.Topics {
			t := &in.Topics[j]
			topic := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			topic.Topic, topic.Partitions = t.Topic, make([]kmsg.AddPartitionsToTxnResponseTransactionTopicPartition, len(t.Partitions))
			for k, p := range t.Partitions {
				topic.Partitions[k] = kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				topic.Partitions[k].Partition = p
				adds[i].partition(c.srv, t.Topic, p, &topic.Partitions[k].ErrorCode)
			}
			out.Topics = append(out.Topics, topic)
		}
		resp.Transactions = append(resp.Transactions, out)
	}
	for i := range adds {
		adds[i].run(c.srv, req.Transactions[i].VerifyOnly, true, done)
	}
	done()
}

// addition is one transaction's part of a request.
type addition struct {
	txn.Request
	partitions []lattice.TopicPartition
	errs       []error
	codes      []*int16 // where each partition's error goes
}

func (a *addition) partition(s *Server, topic string, p int32, code *int16) {
	id, ok := s.store.TopicIDOf(topic)
	var err error
	if !ok {
		err = kerr.UnknownTopicOrPartition
	} else {
		err = s.ownTransaction(id, p)
	}
	a.partitions = append(a.partitions, lattice.TopicPartition{Topic: id, Partition: p})
	a.errs, a.codes = append(a.errs, err), append(a.codes, code)
}

// run adds the partitions, or only looks whether they are there, and calls done
// when every error has its place.
func (a *addition) run(s *Server, look, knowsFenced bool, done func()) {
	missing := errors.Join(a.errs...) != nil
	switch {
	case len(a.partitions) == 0:
		done()
	case missing || look:
		for i, err := range a.errs {
			if err == nil && missing {
				err = kerr.OperationNotAttempted
			} else if err == nil {
				err = s.txns.Ongoing(a.partitions[i], a.Producer, a.Epoch)
			}
			*a.codes[i] = s.code(err)
		}
		done()
	default:
		s.txns.Add(a.Request, a.partitions, nil, func(err error) {
			for _, code := range a.codes {
				*code = s.txnCode(err, knowsFenced)
			}
			done()
		})
	}
}
