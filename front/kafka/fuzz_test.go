package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	rt "runtime/metrics"
	"sync"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sink is a connection to nowhere that keeps what is written.
type sink struct {
	net.Conn
	mu  sync.Mutex
	out bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *sink) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := bytes.Clone(s.out.Bytes())
	s.out.Reset()
	return b
}

func (*sink) Close() error                     { return nil }
func (*sink) SetReadDeadline(time.Time) error  { return nil }
func (*sink) SetWriteDeadline(time.Time) error { return nil }
func (*sink) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092} }
func (*sink) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: 1} }

// direct drives the dispatcher without a network.
type direct struct {
	srv   *Server
	topic store.Topic
}

func newDirect(t testing.TB) *direct {
	st := newStore(t, disk.NewMem(), func(c *store.Config) {
		c.MaxPartitions = 40
		c.Group.MaxGroups, c.Group.MaxSize = 50, 20
	})
	srv, err := New(Config{DefaultPartitions: 2}, st)
	if err != nil {
		t.Fatal(err)
	}
	topic, err := st.CreateTopic(context.Background(), store.NewTopic{Name: "t", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	d := &direct{srv, topic}
	d.do(t, 0, 9, bodyOf(produceReq(topic, 9, 0, batch(record.None, "a", "b"))))
	return d
}

// bodyOf returns a request's body.
func bodyOf(req kmsg.Request) []byte { return req.AppendTo(nil) }

// do dispatches one request and returns the bytes of its answer. ok is false
// when the request was refused, which would close the connection.
func (d *direct) do(t testing.TB, key, version int16, body []byte) (answer []byte, ok bool) {
	t.Helper()
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	b := binary.BigEndian.AppendUint16(nil, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = append(b, 0, 0, 0, 7, 0, 1, 'c')
	if req.IsFlexible() {
		b = append(b, 0)
	}
	frame := d.srv.bufs.get(len(b) + len(body))
	frame.b = append(append(frame.b, b...), body...)
	d.srv.frames.try(int64(len(frame.b)))

	nc := &sink{}
	c := newConn(d.srv, nc, context.Background(), make(chan struct{}))
	err := c.dispatch(frame)
	c.hurry() // waits end now
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.head != nil || c.writing {
		c.moved.Wait()
	}
	if c.inFlight != 0 || c.bytes != 0 || d.srv.frames.used.Load() != 0 {
		t.Fatalf("%d requests, %d bytes, %d bytes of frames are left in flight", c.inFlight, c.bytes, d.srv.frames.used.Load())
	}
	return nc.take(), err == nil
}

// allocated returns the bytes allocated so far.
func allocated() uint64 {
	s := []rt.Sample{{Name: "/gc/heap/allocs:bytes"}}
	rt.Read(s)
	return s[0].Value.Uint64()
}

// seeds calls add with a request of each key and version that is served: empty,
// and filled for those whose empty form does little.
func seeds(topic store.Topic, add func(key, version int16, body []byte)) {
	for _, a := range newAPITable() {
		if a == nil {
			continue
		}
		for v := a.min; v <= a.max; v++ {
			req := kmsg.RequestForKey(a.key)
			req.SetVersion(v)
			add(a.key, v, bodyOf(req))
		}
	}
	for v := int16(3); v <= 13; v++ {
		add(0, v, bodyOf(produceReq(topic, v, 1, batch(record.Snappy, "a", "b"))))
	}
	for v := int16(4); v <= 18; v++ {
		add(1, v, bodyOf(fetchReq(topic, v, 0, 1)))
	}
	for _, req := range filled(topic) {
		add(req.Key(), req.GetVersion(), bodyOf(req))
	}
}

// filled returns requests that go deep.
func filled(topic store.Topic) []kmsg.Request {
	join := newReq[*kmsg.JoinGroupRequest](9)
	join.Group, join.ProtocolType, join.SessionTimeoutMillis = "g", "consumer", 10_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 1, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 0}
	join.Protocols = append(join.Protocols, p)
	beat := newReq[*kmsg.ConsumerGroupHeartbeatRequest](1)
	beat.Group, beat.MemberID, beat.RebalanceTimeoutMillis = "c", "member-1", 1000
	beat.SubscribedTopicNames, beat.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	commit := newReq[*kmsg.OffsetCommitRequest](10)
	commit.Group, commit.Generation = "o", -1
	ct := kmsg.NewOffsetCommitRequestTopic()
	ct.TopicID, ct.Partitions = topic.ID, append(ct.Partitions, kmsg.NewOffsetCommitRequestTopicPartition())
	commit.Topics = append(commit.Topics, ct)
	create := newReq[*kmsg.CreateTopicsRequest](7)
	nt := kmsg.NewCreateTopicsRequestTopic()
	nt.Topic, nt.NumPartitions, nt.ReplicationFactor = "new", -1, -1
	create.Topics = append(create.Topics, nt)
	alter := newReq[*kmsg.IncrementalAlterConfigsRequest](1)
	ar := kmsg.NewIncrementalAlterConfigsRequestResource()
	ar.ResourceType, ar.ResourceName = kmsg.ConfigResourceTypeTopic, "t"
	ac := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	ac.Name, ac.Value = "retention.ms", kmsg.StringPtr("-1")
	ar.Configs = append(ar.Configs, ac)
	alter.Resources = append(alter.Resources, ar)
	list := newReq[*kmsg.ListOffsetsRequest](11)
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic, lt.Partitions = "t", append(lt.Partitions, kmsg.NewListOffsetsRequestTopicPartition())
	list.Topics = append(list.Topics, lt)
	return append(transactional(topic), join, beat, commit, create, alter, list)
}

// transactional returns the requests of a transaction.
func transactional(topic store.Topic) []kmsg.Request {
	init := newReq[*kmsg.InitProducerIDRequest](5)
	init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr("x"), 1000
	add := newReq[*kmsg.AddPartitionsToTxnRequest](3)
	add.TransactionalID = "x"
	at := kmsg.NewAddPartitionsToTxnRequestTopic()
	at.Topic, at.Partitions = topic.Name, []int32{0, 1}
	add.Topics = append(add.Topics, at)
	several := newReq[*kmsg.AddPartitionsToTxnRequest](5)
	st := kmsg.NewAddPartitionsToTxnRequestTransaction()
	tt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	tt.Topic, tt.Partitions = topic.Name, []int32{0, 9}
	st.TransactionalID, st.Topics = "x", append(st.Topics, tt)
	verify := st
	verify.VerifyOnly = true
	several.Transactions = append(several.Transactions, st, verify)
	offsets := newReq[*kmsg.AddOffsetsToTxnRequest](4)
	offsets.TransactionalID, offsets.Group = "x", "g"
	commit := newReq[*kmsg.TxnOffsetCommitRequest](4)
	commit.TransactionalID, commit.Group, commit.Generation = "x", "g", -1
	ct := kmsg.NewTxnOffsetCommitRequestTopic()
	ct.Topic, ct.Partitions = topic.Name, append(ct.Partitions, kmsg.NewTxnOffsetCommitRequestTopicPartition())
	commit.Topics = append(commit.Topics, ct)
	end := newReq[*kmsg.EndTxnRequest](4)
	end.TransactionalID, end.Commit = "x", true
	describe := newReq[*kmsg.DescribeTransactionsRequest](0)
	describe.TransactionalIDs = []string{"x", "y"}
	producers := newReq[*kmsg.DescribeProducersRequest](0)
	pt := kmsg.NewDescribeProducersRequestTopic()
	pt.Topic, pt.Partitions = topic.Name, []int32{0, 9}
	producers.Topics = append(producers.Topics, pt)
	list := newReq[*kmsg.ListTransactionsRequest](2)
	list.TransactionalIDPattern, list.StateFilters = kmsg.StringPtr("x.*"), []string{"Ongoing", "none"}
	return []kmsg.Request{init, add, several, offsets, commit, end, describe, producers, list}
}

// TestSeedsAreAnswered sends every version of every API: an answer that kmsg
// decodes and encodes to the same bytes.
func TestSeedsAreAnswered(t *testing.T) {
	d := newDirect(t)
	seeds(d.topic, func(key, version int16, body []byte) {
		d.check(t, key, version, body, true)
	})
}

// check dispatches a request and holds the answer to the invariants.
func (d *direct) check(t testing.TB, key, version int16, body []byte, must bool) {
	t.Helper()
	before := allocated()
	answer, ok := d.do(t, key, version, body)
	if grown := allocated() - before; grown > 64<<20 {
		t.Fatalf("key %d version %d: %d bytes allocated for a request of %d", key, version, grown, len(body))
	}
	switch {
	case !ok && must:
		t.Fatalf("key %d version %d: refused", key, version)
	case !ok && len(answer) > 0:
		t.Fatalf("key %d version %d: refused and answered", key, version)
	case !ok:
		return
	case len(answer) == 0:
		if key != keyProduce { // acks=0
			t.Fatalf("key %d version %d: no answer", key, version)
		}
		return
	}
	if n := int(binary.BigEndian.Uint32(answer)); n != len(answer)-4 {
		t.Fatalf("key %d version %d: length %d of an answer of %d bytes", key, version, n, len(answer)-4)
	}
	req := kmsg.RequestForKey(key)
	req.SetVersion(version)
	decodeAnswer(t, req, answer[8:])
}

// FuzzRequests checks, for any body of any API and version that is served: no
// panic, no allocation out of proportion, exactly one answer, which decodes, or a
// refusal without one, and nothing left in flight.
func FuzzRequests(f *testing.F) {
	topic := store.Topic{Name: "t", Partitions: 2}
	seeds(topic, func(key, version int16, body []byte) { f.Add(key, version, body) })
	d := newDirect(f)
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		a := d.srv.apis.find(key)
		if a == nil || version < a.min || version > a.max || len(body) > 1<<16 {
			return
		}
		d.check(t, key, version, body, false)
	})
}

// FuzzHeader checks, for any frame: no panic, and the bytes are given back.
func FuzzHeader(f *testing.F) {
	f.Add([]byte{0, 18, 0, 99, 0, 0, 0, 1})
	f.Add([]byte{0, 3, 0, 9, 0, 0, 0, 1, 0, 1, 'c', 1, 5, 1, 'x', 0})
	d := newDirect(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		frame := d.srv.bufs.get(len(b))
		frame.b = append(frame.b, b...)
		d.srv.frames.try(int64(len(b)))
		c := newConn(d.srv, &sink{}, context.Background(), make(chan struct{}))
		_ = c.dispatch(frame) // a refusal is fine
		c.hurry()
		c.mu.Lock()
		defer c.mu.Unlock()
		for c.head != nil || c.writing {
			c.moved.Wait()
		}
		if used := d.srv.frames.used.Load(); used != 0 {
			t.Fatalf("%d bytes of frames are left", used)
		}
	})
}
