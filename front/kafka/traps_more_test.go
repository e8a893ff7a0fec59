package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTrap06NothingIsNegotiated: clients that never ask for versions begin with what
// they came for, in whatever version they know.
func TestTrap06NothingIsNegotiated(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	for v := int16(3); v <= 12; v++ {
		if p := f.dial().produce(topic, v, 0, batch(record.None, "a")); p.ErrorCode != 0 {
			t.Errorf("Produce version %d first: error %d", v, p.ErrorCode)
		}
	}
	for v := int16(4); v <= 12; v++ {
		if p := f.dial().fetch(topic, v, 0, 0); p.ErrorCode != 0 || len(values(t, p.RecordBatches)) != 10 {
			t.Errorf("Fetch version %d first: error %d", v, p.ErrorCode)
		}
	}
	for v := int16(0); v <= 6; v++ {
		find := newReq[*kmsg.FindCoordinatorRequest](v)
		find.CoordinatorKey, find.CoordinatorKeys = "g", []string{"g"}
		r := ask[*kmsg.FindCoordinatorResponse](f.dial(), find)
		if v >= 4 {
			r.ErrorCode = r.Coordinators[0].ErrorCode
		}
		if r.ErrorCode != 0 {
			t.Errorf("FindCoordinator version %d first: error %d", v, r.ErrorCode)
		}
	}
}

// TestTrap08ConsumerGoesOn: a consumer that comes back to a server that was away
// compares epochs, and must not find that its records are lost. One that would have
// to reset its position says so here, as an error.
func TestTrap08ConsumerGoesOn(t *testing.T) {
	f := newFixture(t, Config{})
	f.topic("t", 1)
	ctx := testContext(t)
	produceN(ctx, t, f.kgo(), "t", 50)
	member := func(reset kgo.Offset) *kgo.Client {
		return f.kgo(kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(reset), kgo.DisableAutoCommit(),
			kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(50*time.Millisecond))
	}
	first := member(kgo.NewOffset().AtStart())
	consumeN(ctx, t, first, 50)
	if err := first.CommitUncommittedOffsets(ctx); err != nil {
		t.Fatal(err)
	}
	first.LeaveGroup()
	f.stop()
	f.serve(Config{})
	want := produceN(ctx, t, f.kgo(), "t", 30)
	equalRecords(t, consumeN(ctx, t, member(kgo.NoResetOffset()), 30), want)
}

// TestTrap13ListOffsetsVersion0: its meaning is another, so it is not served, and the
// connection closes rather than that one thing is taken for the other. One request may
// name several partitions, and each is answered.
func TestTrap13ListOffsetsVersion0(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 3)
	c := f.dial()
	c.send(newReq[*kmsg.ListOffsetsRequest](0))
	c.closed()
	c = f.dial()
	for p := range int32(3) {
		for range p {
			c.produce(topic, 9, p, batch(record.None, "a"))
		}
	}
	for v := int16(1); v <= 11; v++ {
		req := newReq[*kmsg.ListOffsetsRequest](v)
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic.Name
		for _, p := range []int32{2, 0, 1, 7} {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = p, -1, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
		got := ask[*kmsg.ListOffsetsResponse](c, req).Topics[0].Partitions
		if len(got) != 4 {
			t.Fatalf("version %d: %d partitions", v, len(got))
		}
		for _, p := range got {
			if p.Partition == 7 && p.ErrorCode == 3 {
				continue
			}
			if p.ErrorCode != 0 || p.Offset != int64(p.Partition) {
				t.Errorf("version %d: %+v", v, p)
			}
		}
	}
}

// framed puts the records of a snappy batch into the frames of snappy-java, which
// Java clients and librdkafka use.
func framed(b []byte) []byte {
	out := append([]byte(nil), b[:61]...)
	out = append(out, "\x82SNAPPY\x00"...)
	out = binary.BigEndian.AppendUint32(out, 1) // version
	out = binary.BigEndian.AppendUint32(out, 1) // oldest reader
	out = binary.BigEndian.AppendUint32(out, uint32(len(b)-61))
	out = append(out, b[61:]...)
	binary.BigEndian.PutUint32(out[8:], uint32(len(out)-12))
	binary.BigEndian.PutUint32(out[17:], crc32.Checksum(out[21:], crc32.MakeTable(crc32.Castagnoli)))
	return out
}

// TestTrap15BothSnappys: raw and framed snappy are taken, kept as they are, and can be
// read by the server where it has to: a compacted topic must see the keys.
func TestTrap15BothSnappys(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	raw := batch(record.Snappy, "hello", "world")
	for _, topic := range []string{"delete", "compact"} {
		to := f.topic(topic, 1, "cleanup.policy", topic)
		for i, b := range [][]byte{raw, framed(raw)} {
			if p := c.produce(to, 9, 0, append([]byte(nil), b...)); p.ErrorCode != 0 {
				t.Fatalf("%s, batch %d: error %d", topic, i, p.ErrorCode)
			}
			got := c.fetch(to, 12, 0, int64(2*i)).RecordBatches
			if string(got[21:]) != string(b[21:]) || len(values(t, got)) != 2 {
				t.Errorf("%s, batch %d: stored otherwise than sent", topic, i)
			}
		}
	}
}

// TestTrap19MemberLostInRebalance: a member that asked to join and then is gone does
// not hold the others up for longer than its session.
func TestTrap19MemberLostInRebalance(t *testing.T) {
	f := newFixture(t, Config{})
	a := f.dial()
	leader, generation := a.join(5, "g", "", nil)
	if s := a.sync(5, "g", leader, generation, map[string]string{leader: "all"}); s.ErrorCode != 0 {
		t.Fatalf("sync: error %d", s.ErrorCode)
	}
	lost := f.dial()
	req := newReq[*kmsg.JoinGroupRequest](3)
	req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = "g", "consumer", 200, 200
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	req.Protocols = append(req.Protocols, p)
	lost.send(req)
	hb := newReq[*kmsg.HeartbeatRequest](4)
	hb.Group, hb.MemberID, hb.Generation = "g", leader, generation
	for ask[*kmsg.HeartbeatResponse](a, hb).ErrorCode != 27 { // until the connection's deadline
		time.Sleep(time.Millisecond)
	}
	lost.Close()
	// The leader joins again, perhaps together with the one that is lost, and in the
	// end alone.
	for members := 0; members != 1; {
		_, generation = a.join(5, "g", leader, nil)
		if s := a.sync(5, "g", leader, generation, map[string]string{leader: "all"}); s.ErrorCode != 0 && s.ErrorCode != 27 {
			t.Fatalf("sync: error %d", s.ErrorCode)
		}
		for {
			d, err := f.store.Groups().Describe("g")
			if err != nil {
				t.Fatal(err)
			}
			if members = len(d.Members); members == 1 && d.State == group.Stable {
				break
			}
			hb.Generation = generation
			if ask[*kmsg.HeartbeatResponse](a, hb).ErrorCode == 27 {
				members = 2
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}
