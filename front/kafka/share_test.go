package kafka

import (
	"fmt"
	"slices"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sharer is a member of a share group that speaks the protocol by hand.
type sharer struct {
	*client
	group, member string
	epoch         int32 // of the next request of its session
}

// sharer joins a group that begins with the first record.
func (f *fixture) sharer(group, member string, topics ...store.Topic) *sharer {
	f.t.Helper()
	s := &sharer{client: f.dial(), group: group, member: member}
	s.set("share.auto.offset.reset", "earliest")
	if len(topics) > 0 {
		if code := s.beat(0, topics...).ErrorCode; code != 0 {
			f.t.Fatalf("ShareGroupHeartbeat: error %d", code)
		}
	}
	return s
}

// set changes a config of the group.
func (s *sharer) set(name, value string) {
	s.t.Helper()
	req := newReq[*kmsg.IncrementalAlterConfigsRequest](1)
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, s.group
	res.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name, Value: &value}}
	req.Resources = append(req.Resources, res)
	if r := ask[*kmsg.IncrementalAlterConfigsResponse](s.client, req); r.Resources[0].ErrorCode != 0 {
		s.t.Fatalf("%s=%s: error %d %s", name, value, r.Resources[0].ErrorCode, deref(r.Resources[0].ErrorMessage))
	}
}

func (s *sharer) beat(epoch int32, topics ...store.Topic) *kmsg.ShareGroupHeartbeatResponse {
	s.t.Helper()
	req := newReq[*kmsg.ShareGroupHeartbeatRequest](1)
	req.GroupID, req.MemberID, req.MemberEpoch = s.group, s.member, epoch
	for _, t := range topics {
		req.SubscribedTopicNames = append(req.SubscribedTopicNames, t.Name)
	}
	return ask[*kmsg.ShareGroupHeartbeatResponse](s.client, req)
}

// request is the session's next ShareFetch, for up to 100 records of one partition.
func (s *sharer) request(t store.Topic, p int32) *kmsg.ShareFetchRequest {
	req := newReq[*kmsg.ShareFetchRequest](2)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.group, &s.member, s.epoch
	req.MinBytes, req.MaxBytes, req.MaxRecords = 1, 1<<20, 100
	part := kmsg.NewShareFetchRequestTopicPartition()
	part.Partition = p
	topic := kmsg.NewShareFetchRequestTopic()
	topic.TopicID = t.ID
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	s.epoch++
	return req
}

func (s *sharer) fetch(t store.Topic, p int32, change ...func(*kmsg.ShareFetchRequest)) *kmsg.ShareFetchResponse {
	s.t.Helper()
	req := s.request(t, p)
	for _, f := range change {
		f(req)
	}
	return ask[*kmsg.ShareFetchResponse](s.client, req)
}

// acks brings acknowledgements with a fetch.
func acks(batches ...kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch) func(*kmsg.ShareFetchRequest) {
	return func(req *kmsg.ShareFetchRequest) { req.Topics[0].Partitions[0].AcknowledgementBatches = batches }
}

func ackBatch(first, last int64, types ...int8) kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch {
	return kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{FirstOffset: first, LastOffset: last, AcknowledgeTypes: types}
}

// acknowledge sends the session's next ShareAcknowledge, and returns the codes of the
// answer and of the partition.
func (s *sharer) acknowledge(t store.Topic, p int32, first, last int64, types ...int8) (int16, int16) {
	s.t.Helper()
	req := newReq[*kmsg.ShareAcknowledgeRequest](2)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.group, &s.member, s.epoch
	req.IsRenewAck = slices.Contains(types, 4)
	part := kmsg.NewShareAcknowledgeRequestTopicPartition()
	part.Partition = p
	part.AcknowledgementBatches = []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{{FirstOffset: first, LastOffset: last, AcknowledgeTypes: types}}
	topic := kmsg.NewShareAcknowledgeRequestTopic()
	topic.TopicID = t.ID
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	s.epoch++
	resp := ask[*kmsg.ShareAcknowledgeResponse](s.client, req)
	if resp.ErrorCode != 0 {
		return resp.ErrorCode, 0
	}
	return 0, resp.Topics[0].Partitions[0].ErrorCode
}

// got is what a member gets: the values of the records that it acquired.
func got(t testing.TB, resp *kmsg.ShareFetchResponse) []string {
	t.Helper()
	if resp.ErrorCode != 0 {
		t.Fatalf("ShareFetch: error %d %s", resp.ErrorCode, deref(resp.ErrorMessage))
	}
	var out []string
	for _, topic := range resp.Topics {
		for _, p := range topic.Partitions {
			if p.ErrorCode != 0 {
				t.Fatalf("partition %d: error %d %s", p.Partition, p.ErrorCode, deref(p.ErrorMessage))
			}
			out = append(out, acquiredValues(t, p)...)
		}
	}
	return out
}

func acquiredValues(t testing.TB, p kmsg.ShareFetchResponseTopicPartition) []string {
	t.Helper()
	var out []string
	var r record.Reader
	for b := p.Records; len(b) > 0; {
		one, rest, h, err := record.Next(b)
		if err == nil {
			err = r.Open(one, record.Limits{})
		}
		if err != nil {
			t.Fatal(err)
		}
		for {
			var rec record.Record
			more, err := r.Next(&rec)
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
			for _, a := range p.AcquiredRecords {
				if a.FirstOffset <= rec.Offset && rec.Offset <= a.LastOffset && !h.Control() {
					out = append(out, fmt.Sprintf("%s/%d", rec.Value, a.DeliveryCount))
				}
			}
		}
		b = rest
	}
	return out
}

func want(t *testing.T, what string, have []string, want ...string) {
	t.Helper()
	if !slices.Equal(have, want) {
		t.Errorf("%s: have %v, want %v", what, have, want)
	}
}

// TestShareSession goes through the life of a session: what it gets, acknowledges by
// either request, gets again, and leaves to others.
func TestShareSession(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	a, b := f.sharer("g", "a", topic), f.sharer("g", "b", topic)
	a.produce(topic, 9, 0, batch(record.None, "0", "1", "2", "3"))
	resp := a.fetch(topic, 0)
	want(t, "a", got(t, resp), "0/1", "1/1", "2/1", "3/1")
	if resp.AcquisitionLockTimeoutMillis != 30_000 {
		t.Errorf("locked for %d ms", resp.AcquisitionLockTimeoutMillis)
	}
	resp = b.fetch(topic, 0)
	if want(t, "b", got(t, resp)); len(resp.Topics) != 1 {
		t.Errorf("a partition that is new to the session is not in its answer: %+v", resp.Topics)
	}
	if resp = b.fetch(topic, 0); len(resp.Topics) != 0 {
		t.Errorf("nothing to say, and yet: %+v", resp.Topics)
	}
	resp = a.fetch(topic, 0, acks(ackBatch(0, 1, 1, 2), ackBatch(2, 2, 3)))
	if want(t, "a after it released 1", got(t, resp), "1/2"); resp.Topics[0].Partitions[0].AcknowledgeErrorCode != 0 {
		t.Errorf("%+v", resp.Topics[0].Partitions[0])
	}
	if top, part := a.acknowledge(topic, 0, 1, 1, 4); top != 0 || part != 0 {
		t.Errorf("renew: %d %d", top, part)
	}
	if top, part := a.acknowledge(topic, 0, 1, 1, 1); top != 0 || part != 0 {
		t.Errorf("accept: %d %d", top, part)
	}
	if top, part := b.acknowledge(topic, 0, 3, 3, 1); top != 0 || part != kerr.InvalidRecordState.Code {
		t.Errorf("accept what another has: %d %d", top, part)
	}
	if top, part := a.acknowledge(topic, 0, 4, 4, 1); top != 0 || part != kerr.InvalidRequest.Code {
		t.Errorf("accept what nobody has: %d %d", top, part)
	}
	a.epoch = -1
	if top, part := a.acknowledge(topic, 0, 9, 9, 1); top != 0 || part != kerr.InvalidRequest.Code {
		t.Errorf("close: %d %d", top, part)
	}
	want(t, "b after a closed its session", got(t, b.fetch(topic, 0, func(r *kmsg.ShareFetchRequest) { r.MaxWaitMillis = 30_000 })), "3/2")
	if top, _ := a.acknowledge(topic, 0, 3, 3, 1); top != kerr.InvalidShareSessionEpoch.Code {
		t.Errorf("epoch 0 of ShareAcknowledge: %d", top)
	}
	a.epoch = 1
	if top, _ := a.acknowledge(topic, 0, 3, 3, 1); top != kerr.ShareSessionNotFound.Code {
		t.Errorf("a closed session: %d", top)
	}
	if r := b.fetch(topic, 0, func(r *kmsg.ShareFetchRequest) { r.ShareSessionEpoch = 77 }); r.ErrorCode != kerr.InvalidShareSessionEpoch.Code {
		t.Errorf("epoch 77: %d", r.ErrorCode)
	}
	a.epoch = 0
	if r := a.fetch(topic, 0, acks(ackBatch(0, 0, 1))); r.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("opened with acknowledgements: %d", r.ErrorCode)
	}
	if r := b.fetch(topic, 0, func(r *kmsg.ShareFetchRequest) { r.ShareSessionEpoch, r.IsRenewAck = 4, true }); r.ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("renewal that fetches: %d", r.ErrorCode)
	}
	b.Close() // and the session with the connection
	a.epoch = 0
	want(t, "a after b's connection closed", got(t, a.fetch(topic, 0, func(r *kmsg.ShareFetchRequest) { r.MaxWaitMillis = 30_000 })), "3/3")
}

// TestShareFetchWaits as Fetch does: until there is something, or its time is over.
func TestShareFetchWaits(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	a, b := f.sharer("g", "a", topic), f.sharer("g", "b", topic)
	long := func(r *kmsg.ShareFetchRequest) { r.MaxWaitMillis = 60_000 }
	req := a.request(topic, 0)
	long(req)
	a.send(req)
	b.produce(topic, 9, 0, batch(record.None, "0"))
	want(t, "a record that comes", got(t, a.recv().(*kmsg.ShareFetchResponse)), "0/1")
	b.fetch(topic, 0)
	req = b.request(topic, 0)
	long(req)
	b.send(req)
	a.fetch(topic, 0, acks(ackBatch(0, 0, 2)), func(r *kmsg.ShareFetchRequest) { r.MaxRecords = 0 })
	want(t, "a record that is released", got(t, b.recv().(*kmsg.ShareFetchResponse)), "0/2")
	brief := func(r *kmsg.ShareFetchRequest) { r.MaxWaitMillis = 50 }
	want(t, "nothing", got(t, a.fetch(topic, 0, brief)))
	b.acknowledge(topic, 0, 0, 0, 1)
	b.produce(topic, 9, 0, batch(record.None, "1"))
	want(t, "no bytes", got(t, a.fetch(topic, 0, brief, func(r *kmsg.ShareFetchRequest) { r.MaxBytes = 0 })))
	want(t, "too few bytes, until the time is over", got(t, a.fetch(topic, 0, brief, func(r *kmsg.ShareFetchRequest) { r.MinBytes = 1 << 30 })), "1/1")
	b.produce(topic, 9, 0, batch(record.None, "2"))
	req = a.request(topic, 0)
	long(req)
	req.MinBytes = 100
	a.send(req)
	b.produce(topic, 9, 0, batch(record.None, "3"))
	want(t, "enough bytes", got(t, a.recv().(*kmsg.ShareFetchResponse)), "2/1", "3/1")
	// The topic goes while a session waits, which then serves the other topic.
	other := f.topic("u", 1)
	req = a.request(other, 0)
	long(req)
	a.send(req)
	if err := f.store.DeleteTopic(t.Context(), topic.ID); err != nil {
		t.Fatal(err)
	}
	if r := a.recv().(*kmsg.ShareFetchResponse); len(r.Topics) == 0 || !slices.ContainsFunc(r.Topics, func(t kmsg.ShareFetchResponseTopic) bool {
		return t.Partitions[0].ErrorCode == kerr.UnknownTopicID.Code
	}) {
		t.Errorf("%+v", r)
	}
	req = a.request(other, 0)
	long(req)
	a.send(req)
	b.produce(other, 9, 0, batch(record.None, "4"))
	want(t, "the other topic", got(t, a.recv().(*kmsg.ShareFetchResponse)), "4/1")
	if _, code := a.acknowledge(topic, 0, 2, 3, 1); code != kerr.UnknownTopicID.Code {
		t.Errorf("acknowledge in the topic that is gone: %d", code)
	}
}

// TestShareFetchLimits: one batch however large, records strictly or by the batch, and
// a fair part of many partitions.
func TestShareFetchLimits(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 3)
	a := f.sharer("g", "a", topic)
	for p := range int32(3) {
		for _, v := range []string{"0", "1", "2"} {
			a.produce(topic, 9, p, batch(record.None, v+"a", v+"b"))
		}
	}
	tiny := func(r *kmsg.ShareFetchRequest) { r.MaxBytes = 1 }
	resp := a.fetch(topic, 0, tiny)
	want(t, "1 byte", got(t, resp), "0a/1", "0b/1")
	if _, rest, _, err := record.Next(resp.Topics[0].Partitions[0].Records); err != nil || len(rest) > 0 {
		t.Errorf("more than one batch: %v, %d bytes", err, len(rest))
	}
	want(t, "1 byte again", got(t, a.fetch(topic, 0, tiny)), "1a/1", "1b/1")
	strict := func(r *kmsg.ShareFetchRequest) { r.ShareAcquireMode, r.MaxRecords = 1, 1 }
	want(t, "one record", got(t, a.fetch(topic, 0, strict)), "2a/1")
	want(t, "one more", got(t, a.fetch(topic, 0, strict)), "2b/1")
	loose := func(r *kmsg.ShareFetchRequest) { r.MaxRecords = 3 }
	want(t, "three, by the batch", got(t, a.fetch(topic, 1, loose)), "0a/1", "0b/1", "1a/1", "1b/1")
	all := func(r *kmsg.ShareFetchRequest) {
		r.MaxRecords = 20
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, kmsg.ShareFetchRequestTopicPartition{Partition: 2})
	}
	if n := len(got(t, a.fetch(topic, 1, all))); n != 2 && n != 6 {
		t.Errorf("%d records of several partitions, want those of one", n)
	}
	if n := len(got(t, a.fetch(topic, 1))); n != 2 && n != 6 {
		t.Errorf("%d records, want those of the other", n)
	}
}

// TestShareTransactions: markers are nobody's records; with read_committed aborted ones
// are not either, and nothing is delivered that may be aborted yet.
func TestShareTransactions(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	p := f.producer("x", 3)
	put := func(commit bool, values ...string) {
		p.ok(p.add(topic, 0))
		p.ok(p.put(topic, 0, values...))
		p.ok(p.end(commit))
	}
	put(true, "0", "1")
	put(false, "2", "3")
	put(true, "4")
	p.ok(p.add(topic, 0))
	p.ok(p.put(topic, 0, "5"))
	a, b := f.sharer("committed", "a", topic), f.sharer("all", "b", topic)
	a.set("share.isolation.level", "read_committed")
	want(t, "read_uncommitted", got(t, b.fetch(topic, 0)), "0/1", "1/1", "2/1", "3/1", "4/1", "5/1")
	want(t, "read_committed", got(t, a.fetch(topic, 0)), "0/1", "1/1", "4/1")
	req := a.request(topic, 0)
	req.MaxWaitMillis = 60_000
	a.send(req)
	p.ok(p.end(true))
	want(t, "read_committed, then", got(t, a.recv().(*kmsg.ShareFetchResponse)), "5/1")
	for _, run := range [][2]int64{{0, 1}, {6, 6}, {8, 8}} {
		if top, part := a.acknowledge(topic, 0, run[0], run[1], 1); top != 0 || part != 0 {
			t.Fatalf("accept %v: %d %d", run, top, part)
		}
	}
	if n, err := f.store.Shares().Offsets("committed", nil); err != nil || n[0].Start != 10 || n[0].Lag != 0 {
		t.Errorf("start %d, lag %d, %v: want nothing left, markers and all", n[0].Start, n[0].Lag, err)
	}
}

// TestShareDamage: what cannot be read is an error, is given back, and does not hurt
// other partitions.
func TestShareDamage(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	a := f.sharer("g", "a", topic)
	a.produce(topic, 9, 0, batch(record.None, "damaged"))
	a.produce(topic, 9, 1, batch(record.None, "sound"))
	f.damage(topic, 0, "damaged")
	resp := a.fetch(topic, 0, func(r *kmsg.ShareFetchRequest) {
		r.Topics[0].Partitions = append(r.Topics[0].Partitions, kmsg.ShareFetchRequestTopicPartition{Partition: 1})
		r.MaxRecords = 1000
	})
	codes, values := map[int32]int16{}, []string{}
	for _, p := range resp.Topics[0].Partitions {
		codes[p.Partition] = p.ErrorCode
		values = append(values, acquiredValues(t, p)...)
	}
	if codes[0] != kerr.KafkaStorageError.Code || codes[1] != 0 || !slices.Equal(values, []string{"sound/1"}) {
		t.Errorf("codes %v, values %v", codes, values)
	}
	if p, err := f.store.Shares().Offsets("g", []lattice.TopicPartition{{Topic: topic.ID}}); err != nil || p[0].Start != 0 || p[0].Lag != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestShareLockIsOver: a member that says nothing loses its records after their time.
func TestShareLockIsOver(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	a, b := f.sharer("g", "a", topic), f.sharer("g", "b", topic)
	a.set("share.record.lock.duration.ms", "1000")
	a.produce(topic, 9, 0, batch(record.None, "0"))
	want(t, "a", got(t, a.fetch(topic, 0)), "0/1")
	since := time.Now()
	want(t, "b, after a second", got(t, b.fetch(topic, 0, func(r *kmsg.ShareFetchRequest) { r.MaxWaitMillis = 60_000 })), "0/2")
	if d := time.Since(since); d < 900*time.Millisecond {
		t.Errorf("after %v already", d)
	}
	if _, code := a.acknowledge(topic, 0, 0, 0, 1); code != kerr.InvalidRecordState.Code {
		t.Errorf("a acknowledges too late: %d", code)
	}
}
