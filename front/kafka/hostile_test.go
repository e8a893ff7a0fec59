package kafka

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// healthy fails unless the server still serves others.
func (f *fixture) healthy() {
	f.t.Helper()
	if r := ask[*kmsg.ApiVersionsResponse](f.dial(), newReq[*kmsg.ApiVersionsRequest](0)); r.ErrorCode != 0 {
		f.t.Fatalf("error %d", r.ErrorCode)
	}
}

func TestFramesThatAreNotServed(t *testing.T) {
	f := newFixture(t, Config{MaxRequestBytes: 1 << 20, MaxControlBytes: 1 << 16})
	header := func(key, version int16, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = append(append(b, 0, 0, 0, 1), rest...)
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
	}
	for name, b := range map[string][]byte{
		"length 0":                {0, 0, 0, 0},
		"length -1":               {0xff, 0xff, 0xff, 0xff},
		"length 2 GiB":            {0x7f, 0xff, 0xff, 0xff},
		"length above the limit":  {0, 0x10, 0, 1, 0, 0},
		"frame of 3 bytes":        {0, 0, 0, 3, 0, 18, 0},
		"unknown key":             header(9999, 0, 0xff, 0xff),
		"negative key":            header(-3, 0, 0xff, 0xff),
		"key that is not served":  header(24, 0, 0xff, 0xff),
		"version above":           header(3, 14, 0xff, 0xff),
		"negative version":        header(3, -1, 0xff, 0xff),
		"Produce version 2":       header(0, 2, 0xff, 0xff),
		"client id of -2 bytes":   header(3, 1, 0xff, 0xfe),
		"client id beyond frame":  header(3, 1, 0x7f, 0xff),
		"tags beyond frame":       header(3, 9, 0xff, 0xff, 9, 1, 0x7f),
		"array of 2^31-1":         header(3, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff),
		"array of -2":             header(1, 4, append([]byte{0xff, 0xff}, append(make([]byte, 17), 0xff, 0xff, 0xff, 0xfe)...)...),
		"produce without a body":  header(0, 9, 0xff, 0xff, 0),
		"fetch without a body":    header(1, 12, 0xff, 0xff, 0),
		"control above its limit": header(3, 1, append([]byte{0xff, 0xff}, make([]byte, 1<<16+1)...)...),
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			c := f.dial()
			c.t = t
			c.raw(b)
			c.closed()
		})
	}
	f.healthy()
	for deadline := time.Now().Add(10 * time.Second); f.srv.frames.used.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) { // an answer is read a moment before its request is off the books
			t.Fatalf("%d bytes of frames are still counted", f.srv.frames.used.Load())
		}
	}
}

// TestStalledFrames stops in the middle: the connection closes after ReadTimeout.
func TestStalledFrames(t *testing.T) {
	f := newFixture(t, Config{ReadTimeout: 50 * time.Millisecond, IdleTimeout: 100 * time.Millisecond})
	for _, b := range [][]byte{
		{},
		{0},
		{0, 0, 0, 50, 0},
		append([]byte{0, 0x10, 0, 0}, make([]byte, 70_000)...), // beyond the first step
	} {
		c := f.dial()
		c.raw(b)
		c.closed()
	}
	f.healthy()
}

// TestLengthsAreBelievedByWhatCame claims large frames and sends little of them:
// the server holds a small buffer, and a large one only for a connection that has
// sent as large a frame before.
func TestLengthsAreBelievedByWhatCame(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	holds := func(want int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); f.srv.frames.used.Load() != int64(want); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are held, want %d", f.srv.frames.used.Load(), want)
			}
		}
	}
	whole := frame(produceReq(topic, 9, 0, make([]byte, 3<<20)), 1) // refused, but an answer all the same
	for _, want := range []int{firstStep, len(whole) - 4} {
		c.raw(whole[:5])
		holds(want)
		c.raw(whole[5:])
		if _, err := c.readFrame(); err != nil {
			t.Fatal(err)
		}
		holds(0)
	}
}

// TestIdleTimeoutSparesLongPolls closes a connection that is idle, and not one
// that waits for an answer.
func TestIdleTimeoutSparesLongPolls(t *testing.T) {
	f := newFixture(t, Config{IdleTimeout: 40 * time.Millisecond})
	topic := f.topic("t", 1)
	c := f.dial()
	req := fetchReq(topic, 12, 0, 0)
	req.MaxWaitMillis = 300
	if r := ask[*kmsg.FetchResponse](c, req); r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal("long poll failed")
	}
	c.closed()
}

func TestBadBatches(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	change := func(at int, v byte) []byte {
		b := batch(record.None, "hello", "world")
		b[at] = v
		return b
	}
	control := change(22, 0x20)
	record.SetProducer(control, -1, -1, -1) // renews the checksum
	good := batch(record.None, "hello")
	for name, tc := range map[string]struct {
		b    []byte
		code int16
	}{
		"magic 0":         {change(16, 0), 87},
		"magic 1":         {change(16, 1), 87},
		"bad CRC":         {change(17, 0x55), 2},
		"changed record":  {change(70, 0xaa), 2},
		"length 0":        {change(11, 0), 2},
		"length huge":     {change(8, 0x7f), 2},
		"cut short":       {good[:len(good)-1], 2},
		"only a header":   {good[:61], 2},
		"half a header":   {good[:30], 2},
		"nothing":         {nil, 87},
		"two batches":     {append(append([]byte(nil), good...), good...), 87},
		"trailing byte":   {append(append([]byte(nil), good...), 0), 87},
		"unknown codec":   {change(22, 7), 76},
		"control batch":   {control, 87},
		"negative delta":  {change(23, 0x80), 2},
		"count too large": {change(57, 0x7f), 2},
	} {
		if p := c.produce(topic, 9, 0, tc.b); p.ErrorCode != tc.code || p.BaseOffset != -1 {
			t.Errorf("%s: error %d, base %d; want %d", name, p.ErrorCode, p.BaseOffset, tc.code)
		}
	}
	if p := c.produce(topic, 9, 0, good); p.ErrorCode != 0 || p.BaseOffset != 0 {
		t.Errorf("then a good one: %+v", p)
	}
}

func TestAcks(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	req := produceReq(topic, 9, 0, batch(record.None, "a"))
	req.Acks = 2
	if p := ask[*kmsg.ProduceResponse](c, req).Topics[0].Partitions[0]; p.ErrorCode != 21 {
		t.Errorf("acks=2: %d, want INVALID_REQUIRED_ACKS", p.ErrorCode)
	}
	// acks=0 has no answer: the next one on the connection is another request's.
	silent := produceReq(topic, 9, 0, batch(record.None, "a"))
	silent.Acks = 0
	c.raw(frame(silent, 1000))
	if p := c.produce(topic, 9, 0, batch(record.None, "b")); p.ErrorCode != 0 || p.BaseOffset != 1 {
		t.Errorf("after acks=0: %+v", p)
	}
	// Its only way to be told of an error is that the connection closes.
	silent.Topics[0].Partitions[0].Records = []byte("no batch")
	c.raw(frame(silent, 1001))
	c.closed()
}

// TestPipelined sends 100 requests in one piece: long polls, appends, and quick
// ones. The answers come in the order of the requests.
func TestPipelined(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 4)
	for range 3 {
		c := f.dial()
		var reqs []kmsg.Request
		for i := range 100 {
			switch i % 5 {
			case 0:
				req := fetchReq(topic, 12, 3, 0)
				req.MaxWaitMillis = int32(1 + i%17)
				reqs = append(reqs, req)
			case 1, 2:
				reqs = append(reqs, produceReq(topic, 9, int32(i%3), batch(record.None, "x")))
			case 3:
				reqs = append(reqs, newReq[*kmsg.MetadataRequest](int16(i%14)))
			default:
				reqs = append(reqs, fetchReq(topic, 12, 0, 0))
			}
		}
		c.send(reqs...)
		for _, want := range reqs {
			got := c.recv() // checks the correlation id
			if got.Key() != want.Key() {
				t.Fatalf("answer to key %d, want %d", got.Key(), want.Key())
			}
			if p, ok := got.(*kmsg.ProduceResponse); ok && p.Topics[0].Partitions[0].ErrorCode != 0 {
				t.Fatalf("produce: %d", p.Topics[0].Partitions[0].ErrorCode)
			}
		}
	}
}

// TestDamagedRecords flips a stored bit. A small answer becomes an error for its
// partition; a large one, of which bytes have left, ends with the connection.
// Afterwards the good batches before the damage come, then the error.
func TestDamagedRecords(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 2)
	c := f.dial()
	for i := range 10 {
		c.produce(topic, 9, 0, batch(record.None, fmt.Sprintf("<%d>", i)+strings.Repeat("x", 100_000)))
	}
	c.produce(topic, 9, 1, batch(record.None, "other"))
	f.damage(topic, 0, "<7>")
	small := fetchReq(topic, 12, 0, 7)
	small.Topics[0].Partitions[0].PartitionMaxBytes = 100
	small.Topics[0].Partitions = append(small.Topics[0].Partitions, fetchReq(topic, 12, 1, 0).Topics[0].Partitions[0])
	r := ask[*kmsg.FetchResponse](c, small)
	if p := r.Topics[0].Partitions[0]; p.ErrorCode != 56 || len(p.RecordBatches) != 0 {
		t.Errorf("small answer: error %d, %d bytes; want KAFKA_STORAGE_ERROR", p.ErrorCode, len(p.RecordBatches))
	}
	if p := r.Topics[0].Partitions[1]; p.ErrorCode != 0 || len(values(t, p.RecordBatches)) != 1 {
		t.Errorf("the other partition: error %d", p.ErrorCode)
	}
	var got []string
	closed := 0
	for offset := int64(0); closed < 3; {
		c := f.dial()
		c.raw(frame(fetchReq(topic, 12, 0, offset), 1))
		b, err := c.readFrame()
		if err != nil {
			closed++
			continue
		}
		p := decodeAnswer(t, fetchReq(topic, 12, 0, offset), b[4:]).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if p.ErrorCode == 56 {
			break
		}
		for _, v := range values(t, p.RecordBatches) { // checks the CRC
			got = append(got, v[:3])
		}
		offset = int64(len(got))
	}
	if strings.Join(got, "") != "<0><1><2><3><4><5><6>" || closed > 1 {
		t.Errorf("read %v, with %d connections closed", got, closed)
	}
}

func TestFullDisk(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	if p := c.produce(topic, 9, 0, batch(record.None, "a")); p.ErrorCode != 0 {
		t.Fatal(p.ErrorCode)
	}
	f.fs.SetFull(true)
	if p := c.produce(topic, 9, 0, batch(record.None, strings.Repeat("x", 900_000))); p.ErrorCode != 56 {
		t.Errorf("full disk: %d, want KAFKA_STORAGE_ERROR", p.ErrorCode)
	}
	if p := c.fetch(topic, 12, 0, 0); p.ErrorCode != 0 || len(values(t, p.RecordBatches)) != 1 {
		t.Errorf("reading on a full disk: %d", p.ErrorCode)
	}
	f.fs.SetFull(false)
	if p := c.produce(topic, 9, 0, batch(record.None, "b")); p.ErrorCode != 0 {
		t.Errorf("with room again: %d", p.ErrorCode)
	}
}

// TestDrain stops the server: what is in work is answered, nothing new is taken.
func TestDrain(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	poll, join, idle := f.dial(), f.dial(), f.dial()
	req := fetchReq(topic, 12, 0, 0)
	req.MaxWaitMillis = 3_600_000
	poll.send(req)
	f.srv.store.Groups()
	// Two members, of which one does not come back: the other's join waits.
	join.join(3, "g", "", nil)
	second := newReq[*kmsg.JoinGroupRequest](3)
	second.Group, second.ProtocolType, second.SessionTimeoutMillis, second.RebalanceTimeoutMillis = "g", "consumer", 60_000, 60_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name = "range"
	second.Protocols = append(second.Protocols, p)
	waiter := f.dial()
	waiter.send(second)
	for f.pendingRequests() < 2 {
		time.Sleep(time.Millisecond)
	}
	f.stop()
	if p := poll.recv().(*kmsg.FetchResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
		t.Errorf("long poll: %d", p.ErrorCode)
	}
	if r := waiter.recv().(*kmsg.JoinGroupResponse); r.ErrorCode != 16 {
		t.Errorf("join: %d, want NOT_COORDINATOR", r.ErrorCode)
	}
	for _, c := range []*client{poll, join, idle, waiter} {
		c.closed()
	}
	if n := f.open(); n != 0 {
		t.Errorf("%d connections are left", n)
	}
}
