package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Trap 20: transactions.

// producer is a transactional producer that speaks the protocol by hand.
type producer struct {
	*client
	txn     string
	id      int64
	epoch   int16
	seq     map[int32]int32 // by partition
	version int16           // of EndTxn and its like
}

func (f *fixture) producer(txn string, version int16) *producer {
	f.t.Helper()
	p := &producer{client: f.dial(), txn: txn, id: -1, epoch: -1, version: version}
	if code := p.init(-1, -1); code != 0 {
		f.t.Fatalf("InitProducerId: error %d", code)
	}
	return p
}

func (p *producer) init(id int64, epoch int16) int16 {
	p.t.Helper()
	req := newReq[*kmsg.InitProducerIDRequest](min(p.version+2, 5))
	req.TransactionalID, req.TransactionTimeoutMillis = &p.txn, 60_000
	req.ProducerID, req.ProducerEpoch = id, epoch
	resp := ask[*kmsg.InitProducerIDResponse](p.client, req)
	if resp.ErrorCode == 0 {
		p.id, p.epoch, p.seq = resp.ProducerID, resp.ProducerEpoch, map[int32]int32{}
	}
	return resp.ErrorCode
}

func (p *producer) add(t store.Topic, parts ...int32) int16 {
	p.t.Helper()
	req := newReq[*kmsg.AddPartitionsToTxnRequest](p.version)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.txn, p.id, p.epoch
	in := kmsg.NewAddPartitionsToTxnRequestTopic()
	in.Topic, in.Partitions = t.Name, parts
	req.Topics = append(req.Topics, in)
	several := kmsg.NewAddPartitionsToTxnRequestTransaction()
	several.TransactionalID, several.ProducerID, several.ProducerEpoch = p.txn, p.id, p.epoch
	topic := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	topic.Topic, topic.Partitions = t.Name, parts
	several.Topics = append(several.Topics, topic)
	req.Transactions = append(req.Transactions, several)
	resp := ask[*kmsg.AddPartitionsToTxnResponse](p.client, req)
	if p.version >= 4 {
		return resp.Transactions[0].Topics[0].Partitions[0].ErrorCode
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

// batch is a batch of the producer's transaction.
func (p *producer) batch(part int32, values ...string) []byte {
	b := batch(record.None, values...)
	record.SetProducer(b, p.id, p.epoch, p.seq[part])
	record.SetTransactional(b)
	return b
}

func (p *producer) put(t store.Topic, part int32, values ...string) int16 {
	p.t.Helper()
	req := produceReq(t, 9, part, p.batch(part, values...))
	req.TransactionID = &p.txn
	code := ask[*kmsg.ProduceResponse](p.client, req).Topics[0].Partitions[0].ErrorCode
	if code == 0 {
		p.seq[part] += int32(len(values))
	}
	return code
}

func (p *producer) end(commit bool) int16 {
	p.t.Helper()
	req := newReq[*kmsg.EndTxnRequest](min(p.version, 4))
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.txn, p.id, p.epoch, commit
	return ask[*kmsg.EndTxnResponse](p.client, req).ErrorCode
}

func (p *producer) ok(code int16) {
	p.t.Helper()
	if code != 0 {
		p.t.Fatalf("error %d", code)
	}
}

// stable fetches as read_committed does, from the start.
func (c *client) stable(t store.Topic, version int16, part int32) kmsg.FetchResponseTopicPartition {
	c.t.Helper()
	req := fetchReq(t, version, part, 0)
	req.IsolationLevel = 1
	return ask[*kmsg.FetchResponse](c, req).Topics[0].Partitions[0]
}

// committed returns what a read_committed client makes of an answer.
func committed(t testing.TB, p kmsg.FetchResponseTopicPartition) []string {
	t.Helper()
	aborted := map[int64][]int64{}
	for _, a := range p.AbortedTransactions {
		aborted[a.ProducerID] = append(aborted[a.ProducerID], a.FirstOffset)
	}
	var out []string
	for b := p.RecordBatches; len(b) > 0; {
		one, rest, h, err := record.Next(b)
		if err != nil {
			t.Fatal(err)
		}
		b = rest
		list := aborted[h.ProducerID]
		switch {
		case h.Control():
			if m, ok, err := record.ParseMarker(one); err != nil || !ok {
				t.Fatalf("a control batch that is no marker: %v", err)
			} else if !m.Commit && len(list) > 0 {
				aborted[h.ProducerID] = list[1:]
			}
		case h.Transactional() && len(list) > 0 && list[0] <= h.BaseOffset:
		default:
			out = append(out, values(t, one)...)
		}
	}
	return out
}

// TestTrap20CommittedIsReadable: what was committed is read once EndTxn is
// answered, what was aborted never, and nothing behind the first transaction that
// is open; in every version.
func TestTrap20CommittedIsReadable(t *testing.T) {
	f := newFixture(t, Config{})
	reader := f.dial()
	for v := int16(0); v <= 5; v++ {
		topic := f.topic("t"+string(rune('0'+v)), 1)
		p, q := f.producer("p", v), f.producer("q", v)
		p.ok(p.add(topic, 0))
		q.ok(q.add(topic, 0))
		p.ok(p.put(topic, 0, "p1"))
		q.ok(q.put(topic, 0, "q1", "q2"))
		reader.produce(topic, 9, 0, batch(record.None, "plain"))
		p.ok(p.put(topic, 0, "p2"))
		for fv := int16(4); fv <= 18; fv++ {
			if got := reader.stable(topic, fv, 0); got.LastStableOffset != 0 || got.HighWatermark != 5 || len(got.RecordBatches) != 0 {
				t.Errorf("fetch %d while both are open: stable %d, high %d, %d bytes", fv, got.LastStableOffset, got.HighWatermark, len(got.RecordBatches))
			}
		}
		p.ok(p.end(true))
		if got := reader.stable(topic, 12, 0); !slices.Equal(committed(t, got), []string{"p1"}) || got.LastStableOffset != 1 {
			t.Errorf("version %d, one committed: %v, stable %d", v, committed(t, got), got.LastStableOffset)
		}
		q.ok(q.end(false))
		for fv := int16(4); fv <= 18; fv++ {
			got := reader.stable(topic, fv, 0)
			if !slices.Equal(committed(t, got), []string{"p1", "plain", "p2"}) || got.LastStableOffset != 7 || len(got.AbortedTransactions) != 1 {
				t.Errorf("fetch %d: %v, stable %d, aborted %v", fv, committed(t, got), got.LastStableOffset, got.AbortedTransactions)
			}
			if got := reader.fetch(topic, fv, 0, 0); len(got.AbortedTransactions) != 0 || len(values(t, got.RecordBatches)) != 7 {
				t.Errorf("fetch %d, read_uncommitted: %d records with the two markers, aborted %v", fv, len(values(t, got.RecordBatches)), got.AbortedTransactions)
			}
		}
		// Again, with the same epoch: sequences go on.
		p.ok(p.add(topic, 0))
		p.ok(p.put(topic, 0, "p3"))
		p.ok(p.end(true))
		if got := reader.stable(topic, 12, 0); !slices.Equal(committed(t, got), []string{"p1", "plain", "p2", "p3"}) {
			t.Errorf("version %d: %v", v, committed(t, got))
		}
	}
}

// TestTrap20Fencing: another instance of a transactional id aborts what the first
// left open, and the first is refused everywhere.
func TestTrap20Fencing(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	for v := int16(0); v <= 5; v++ {
		name := "x" + string(rune('0'+v))
		p := f.producer(name, v)
		p.ok(p.add(topic, 0))
		p.ok(p.put(topic, 0, "lost"))
		q := f.producer(name, v)
		if q.id != p.id || q.epoch <= p.epoch {
			t.Fatalf("producer %d epoch %d after %d epoch %d", q.id, q.epoch, p.id, p.epoch)
		}
		fenced := int16(90)
		if v < 2 {
			fenced = 47 // those versions do not know PRODUCER_FENCED
		}
		if code := p.put(topic, 0, "zombie"); code != 47 {
			t.Errorf("version %d: produce of the old epoch: error %d, want 47", v, code)
		}
		for i, code := range []int16{p.add(topic, 1), p.end(true), p.end(false)} {
			if code != fenced {
				t.Errorf("version %d: request %d of the old epoch: error %d, want %d", v, i, code, fenced)
			}
		}
		if v >= 1 { // InitProducerId version 3 and later names the producer
			if code := p.init(p.id, p.epoch); code != 90 && code != 47 {
				t.Errorf("version %d: init of the old epoch: error %d", v, code)
			}
		}
		q.ok(q.add(topic, 0))
		q.ok(q.put(topic, 0, name))
		q.ok(q.end(true))
	}
	if got := committed(t, f.dial().stable(topic, 12, 0)); !slices.Equal(got, []string{"x0", "x1", "x2", "x3", "x4", "x5"}) {
		t.Errorf("committed: %v", got)
	}
}

// TestTrap20Refusals: what is no part of a transaction is not taken.
func TestTrap20Refusals(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	p := f.producer("p", 3)
	for v := int16(0); v <= 5; v++ {
		for timeout, want := range map[int32]int16{900_001: 50, 0: 50, -1: 50, 900_000: 0} {
			req := newReq[*kmsg.InitProducerIDRequest](v)
			req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr("limits"), timeout
			if r := ask[*kmsg.InitProducerIDResponse](p.client, req); r.ErrorCode != want || (want == 0) != (r.ProducerID >= 0) {
				t.Errorf("version %d, timeout %d: %+v, want error %d", v, timeout, r, want)
			}
		}
		find := newReq[*kmsg.FindCoordinatorRequest](min(v+1, 6))
		find.CoordinatorKey, find.CoordinatorType, find.CoordinatorKeys = "p", 1, []string{"p"}
		r := ask[*kmsg.FindCoordinatorResponse](p.client, find)
		if find.Version >= 4 {
			r.ErrorCode, r.NodeID = r.Coordinators[0].ErrorCode, r.Coordinators[0].NodeID
		}
		if r.ErrorCode != 0 || r.NodeID != f.srv.nodeID() {
			t.Errorf("coordinator, version %d: %+v", find.Version, r)
		}
	}
	if code := p.put(topic, 0, "x"); code != 48 {
		t.Errorf("a batch before the partition was added: error %d, want 48", code)
	}
	if code := p.end(true); code != 48 {
		t.Errorf("the end of nothing: error %d, want 48", code)
	}
	p.ok(p.add(topic, 0))
	if code := p.put(topic, 1, "x"); code != 48 {
		t.Errorf("a batch in another partition: error %d, want 48", code)
	}
	if got := p.produce(topic, 9, 0, p.batch(0, "x")); got.ErrorCode != 42 {
		t.Errorf("a batch of a transaction without a transactional id: error %d, want 42", got.ErrorCode)
	}
	p.ok(p.put(topic, 0, "x"))
	outside := batch(record.None, "y")
	record.SetProducer(outside, p.id, p.epoch, p.seq[0])
	if got := p.produce(topic, 9, 0, outside); got.ErrorCode != 48 {
		t.Errorf("a batch outside of its producer's transaction: error %d, want 48", got.ErrorCode)
	}
	marker := record.Marker{ProducerID: p.id, Epoch: p.epoch, Commit: true}.AppendTo(nil)
	forged := produceReq(topic, 9, 0, marker)
	forged.TransactionID = &p.txn
	if got := ask[*kmsg.ProduceResponse](p.client, forged).Topics[0].Partitions[0]; got.ErrorCode != 87 {
		t.Errorf("a marker from a client: error %d, want 87", got.ErrorCode)
	}
	p.ok(p.end(true))
	if code := p.end(false); code != 48 {
		t.Errorf("abort after commit: error %d, want 48", code)
	}
	p.ok(p.end(true)) // a retry
	if code := p.put(topic, 0, "late"); code != 48 {
		t.Errorf("a batch after the end: error %d, want 48", code)
	}
	if code := p.add(store.Topic{Name: "none"}, 0); code != 3 {
		t.Errorf("a topic that does not exist: error %d, want 3", code)
	}
	other := *p
	other.id++
	if code := other.add(topic, 0); code != 49 {
		t.Errorf("another producer id: error %d, want 49", code)
	}
	some := newReq[*kmsg.AddPartitionsToTxnRequest](3)
	some.TransactionalID, some.ProducerID, some.ProducerEpoch = p.txn, p.id, p.epoch
	in := kmsg.NewAddPartitionsToTxnRequestTopic()
	in.Topic, in.Partitions = topic.Name, []int32{0, 9}
	some.Topics = append(some.Topics, in)
	got := ask[*kmsg.AddPartitionsToTxnResponse](p.client, some).Topics[0].Partitions
	if got[0].ErrorCode != 55 || got[1].ErrorCode != 3 {
		t.Errorf("one partition of two exists: %+v, want 55 and 3", got)
	}
}

// TestTrap20LongPoll: a read_committed fetch waits for the end of a transaction,
// not for its batches.
func TestTrap20LongPoll(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	p := f.producer("p", 3)
	reader := f.dial()
	wait := fetchReq(topic, 12, 0, 0)
	wait.IsolationLevel, wait.MaxWaitMillis, wait.MinBytes = 1, 30_000, 1
	reader.send(wait)
	p.ok(p.add(topic, 0))
	for range 3 {
		p.ok(p.put(topic, 0, "x"))
	}
	time.Sleep(20 * time.Millisecond) // wakes for nothing must not answer
	p.ok(p.end(true))
	got := reader.recv().(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if all := committed(t, got); len(all) != 3 {
		t.Errorf("the wait ended with %v, stable %d", all, got.LastStableOffset)
	}
	list := newReq[*kmsg.ListOffsetsRequest](7)
	lt := kmsg.NewListOffsetsRequestTopic()
	lp := kmsg.NewListOffsetsRequestTopicPartition()
	lp.Timestamp, lp.CurrentLeaderEpoch = -1, -1
	lt.Topic, lt.Partitions = "t", append(lt.Partitions, lp)
	list.Topics = append(list.Topics, lt)
	p.ok(p.add(topic, 0))
	p.ok(p.put(topic, 0, "open"))
	for level, want := range []int64{5, 4} {
		list.IsolationLevel = int8(level)
		if got := ask[*kmsg.ListOffsetsResponse](reader, list).Topics[0].Partitions[0]; got.Offset != want {
			t.Errorf("isolation level %d: the end is %d, want %d", level, got.Offset, want)
		}
	}
	list.IsolationLevel, list.Topics[0].Partitions[0].Timestamp = 1, 1000
	if got := ask[*kmsg.ListOffsetsResponse](reader, list).Topics[0].Partitions[0]; got.Offset != 0 {
		t.Errorf("by time: %d, want 0", got.Offset)
	}
}

// TestTrap20Offsets: offsets in a transaction are pending, then the group's.
func TestTrap20Offsets(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	for v := int16(0); v <= 4; v++ {
		group := "g" + string(rune('0'+v))
		p := f.producer("p"+group, v)
		commit := newReq[*kmsg.TxnOffsetCommitRequest](v)
		commit.TransactionalID, commit.Group, commit.ProducerID, commit.ProducerEpoch, commit.Generation = p.txn, group, p.id, p.epoch, -1
		ct := kmsg.NewTxnOffsetCommitRequestTopic()
		cp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		cp.Offset, cp.Metadata = 7, kmsg.StringPtr("m")
		ct.Topic, ct.Partitions = "t", append(ct.Partitions, cp)
		commit.Topics = append(commit.Topics, ct)
		send := func() int16 {
			return ask[*kmsg.TxnOffsetCommitResponse](p.client, commit).Topics[0].Partitions[0].ErrorCode
		}
		if code := send(); code != 48 {
			t.Errorf("version %d: offsets of a group that was not added: error %d, want 48", v, code)
		}
		for i, end := range []bool{false, true} {
			add := newReq[*kmsg.AddOffsetsToTxnRequest](v)
			add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = p.txn, p.id, p.epoch, group
			p.ok(ask[*kmsg.AddOffsetsToTxnResponse](p.client, add).ErrorCode)
			p.ok(send())
			fetch := newReq[*kmsg.OffsetFetchRequest](8)
			g := kmsg.NewOffsetFetchRequestGroup()
			gt := kmsg.NewOffsetFetchRequestGroupTopic()
			gt.Topic, gt.Partitions = "t", []int32{0}
			g.Group, g.Topics, fetch.RequireStable = group, append(g.Topics, gt), true
			fetch.Groups = append(fetch.Groups, g)
			if got := ask[*kmsg.OffsetFetchResponse](p.client, fetch).Groups[0].Topics[0].Partitions[0]; got.ErrorCode != 88 || got.Offset != -1 {
				t.Errorf("version %d: while the transaction is open: %+v, want error 88", v, got)
			}
			if got, code := p.offsets(5, group, topic); code != 0 || got[0].Offset != -1 || got[0].ErrorCode != 0 {
				t.Errorf("version %d: seen before the commit: %+v", v, got)
			}
			p.ok(p.end(end))
			want := []int64{-1, 7}[i]
			if got := ask[*kmsg.OffsetFetchResponse](p.client, fetch).Groups[0].Topics[0].Partitions[0]; got.ErrorCode != 0 || got.Offset != want {
				t.Errorf("version %d: after commit=%v: %+v, want %d", v, end, got, want)
			}
		}
		commit.ProducerEpoch++
		if code := send(); code != 47 {
			t.Errorf("version %d: another epoch: error %d, want 47", v, code)
		}
	}
}

// TestDescribeTransactions asks about transactions in every way there is.
func TestDescribeTransactions(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	p, idle := f.producer("busy", 3), f.producer("idle", 3)
	p.ok(p.add(topic, 0, 1))
	p.ok(p.put(topic, 1, "x", "y"))
	p.ok(p.put(topic, 1, "z"))
	d := newReq[*kmsg.DescribeTransactionsRequest](0)
	d.TransactionalIDs = []string{"busy", "none"}
	states := ask[*kmsg.DescribeTransactionsResponse](p.client, d).TransactionStates
	if s := states[0]; s.State != "Ongoing" || s.ProducerID != p.id || s.TimeoutMillis != 60_000 || s.StartTimestamp <= 0 ||
		len(s.Topics) != 1 || s.Topics[0].Topic != "t" || !slices.Equal(s.Topics[0].Partitions, []int32{0, 1}) {
		t.Errorf("described %+v", s)
	}
	if states[1].ErrorCode != 105 {
		t.Errorf("an id that is not known: %+v", states[1])
	}
	dp := newReq[*kmsg.DescribeProducersRequest](0)
	dt := kmsg.NewDescribeProducersRequestTopic()
	dt.Topic, dt.Partitions = "t", []int32{1, 9}
	dp.Topics = append(dp.Topics, dt)
	parts := ask[*kmsg.DescribeProducersResponse](p.client, dp).Topics[0].Partitions
	if len(parts[0].ActiveProducers) != 1 || parts[0].ActiveProducers[0].CurrentTxnStartOffset != 0 || parts[0].ActiveProducers[0].LastSequence != 2 || parts[1].ErrorCode != 3 {
		t.Errorf("producers %+v", parts)
	}
	list := func(version int16, change func(*kmsg.ListTransactionsRequest)) (ids []string, r *kmsg.ListTransactionsResponse) {
		req := newReq[*kmsg.ListTransactionsRequest](version)
		req.DurationFilterMillis = -1
		change(req)
		r = ask[*kmsg.ListTransactionsResponse](p.client, req)
		for _, s := range r.TransactionStates {
			ids = append(ids, s.TransactionalID)
		}
		return ids, r
	}
	for _, c := range []struct {
		version int16
		change  func(*kmsg.ListTransactionsRequest)
		want    []string
	}{
		{0, func(*kmsg.ListTransactionsRequest) {}, []string{"busy", "idle"}},
		{0, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Ongoing", "Odd"} }, []string{"busy"}},
		{0, func(r *kmsg.ListTransactionsRequest) { r.ProducerIDFilters = []int64{idle.id} }, []string{"idle"}},
		{1, func(r *kmsg.ListTransactionsRequest) { r.DurationFilterMillis = 3_600_000 }, nil},
		{2, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("i.*") }, []string{"idle"}},
	} {
		if ids, _ := list(c.version, c.change); !slices.Equal(ids, c.want) {
			t.Errorf("version %d: %v, want %v", c.version, ids, c.want)
		}
	}
	if _, r := list(0, func(r *kmsg.ListTransactionsRequest) { r.StateFilters = []string{"Odd"} }); !slices.Equal(r.UnknownStateFilters, []string{"Odd"}) {
		t.Errorf("unknown states: %+v", r)
	}
	if _, r := list(2, func(r *kmsg.ListTransactionsRequest) { r.TransactionalIDPattern = kmsg.StringPtr("(") }); r.ErrorCode != 128 {
		t.Errorf("a pattern that is none: %+v", r)
	}
	verify := newReq[*kmsg.AddPartitionsToTxnRequest](4)
	in := kmsg.NewAddPartitionsToTxnRequestTransaction()
	in.TransactionalID, in.ProducerID, in.ProducerEpoch, in.VerifyOnly = "idle", idle.id, idle.epoch, true
	vt := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	vt.Topic, vt.Partitions = "t", []int32{0}
	in.Topics = append(in.Topics, vt)
	verify.Transactions = append(verify.Transactions, in)
	if got := ask[*kmsg.AddPartitionsToTxnResponse](p.client, verify).Transactions[0].Topics[0].Partitions[0]; got.ErrorCode != 48 {
		t.Errorf("verified %+v", got)
	}
}
