package kafka

import (
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// WriteTxnMarkers (key 27), versions 1 to 2.
//
//	v1  flexible (KAFKA-9870)
//	v2  the transaction's version (KIP-1228), which changes nothing here
//
// Coordinators of Kafka write their markers by it; ours needs none. What is left
// is the use that kafka-transactions abort makes of it: to end, in one partition, a
// transaction that its coordinator has forgotten (KIP-664). One that the
// coordinator knows is refused, INVALID_TXN_STATE, since ending a part of it would
// break its promise; so is a commit, INVALID_REQUEST.

func (c *conn) writeTxnMarkers(r *request) error {
	req, unlock, err := decode[*kmsg.WriteTxnMarkersRequest](c, r)
	if err != nil {
		return err
	}
	defer unlock()
	s := c.srv
	resp := req.ResponseKind().(*kmsg.WriteTxnMarkersResponse)
	var left atomic.Int32
	left.Store(1)
	done := func() {
		if left.Add(-1) == 0 {
			r.answer(resp)
		}
	}
	for i := range req.Markers {
		m := &req.Markers[i]
		out := kmsg.NewWriteTxnMarkersResponseMarker()
		out.ProducerID = m.ProducerID
		for j := range m.Topics {
			t := &m.Topics[j]
			topic := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			topic.Topic, topic.Partitions = t.Topic, make([]kmsg.WriteTxnMarkersResponseMarkerTopicPartition, len(t.Partitions))
			for k, n := range t.Partitions {
				p := &topic.Partitions[k]
				p.Partition = n
				left.Add(1)
				s.abortHanging(m, t.Topic, n, func(err error) {
					p.ErrorCode = s.code(err)
					done()
				})
			}
			out.Topics = append(out.Topics, topic)
		}
		resp.Markers = append(resp.Markers, out)
	}
	done()
	return nil
}

func (s *Server) abortHanging(m *kmsg.WriteTxnMarkersRequestMarker, topic string, n int32, done func(error)) {
	log, err := s.ownPartition(topic, n)
	switch {
	case err != nil:
		done(err)
	case m.Committed:
		done(refuse(kerr.InvalidRequest, "only its coordinator commits a transaction"))
	case m.ProducerID < 0 || m.ProducerEpoch < 0:
		done(refuse(kerr.InvalidRequest, "producer %d epoch %d: want a producer's", m.ProducerID, m.ProducerEpoch))
	default:
		log.Abort(m.ProducerID, m.ProducerEpoch, done)
	}
}
