package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]Config{
		"port without host":  {AdvertisedPort: 1},
		"port too large":     {AdvertisedHost: "h", AdvertisedPort: 70_000},
		"negative limit":     {MaxConnections: -1},
		"tiny requests":      {MaxRequestBytes: 10},
		"budget below frame": {MaxRequestBytes: 10 << 20, MaxBufferedBytes: 1 << 20},
		"negative timeout":   {WriteTimeout: -1},
		"negative in flight": {MaxInFlight: -1},
		"partitions":         {DefaultPartitions: -1},
	} {
		if err := cfg.withDefaults().validate(); lattice.KindOf(err) != lattice.Invalid || err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Config{}).withDefaults().validate(); err != nil {
		t.Error(err)
	}
}

func TestLogAppendTime(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1, "message.timestamp.type", "LogAppendTime")
	c := f.dial()
	for v := int16(3); v <= 13; v++ {
		before := time.Now().UnixMilli()
		p := c.produce(topic, v, 0, batch(record.LZ4, "a"))
		if p.ErrorCode != 0 || p.LogAppendTime < before || p.LogAppendTime > time.Now().UnixMilli() {
			t.Errorf("version %d: %+v", v, p)
		}
	}
	got := c.fetch(topic, 12, 0, 0).RecordBatches
	values(t, got) // checks the CRC
	if h, err := record.ParseHeader(got); err != nil || !h.LogAppendTime() {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestUnknownTopics(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	gone := topic
	gone.Name, gone.ID = "gone", lattice.TopicID{1}
	c := f.dial()
	if p := c.produce(gone, 9, 0, batch(record.None, "a")); p.ErrorCode != 3 {
		t.Errorf("produce by name: %d", p.ErrorCode)
	}
	if p := c.produce(gone, 13, 0, batch(record.None, "a")); p.ErrorCode != 100 {
		t.Errorf("produce by id: %d", p.ErrorCode)
	}
	if p := c.produce(topic, 13, 9, batch(record.None, "a")); p.ErrorCode != 3 {
		t.Errorf("produce to no partition: %d", p.ErrorCode)
	}
	if p := c.fetch(gone, 12, 0, 0); p.ErrorCode != 3 {
		t.Errorf("fetch by name: %d", p.ErrorCode)
	}
	if p := c.fetch(gone, 13, 0, 0); p.ErrorCode != 100 {
		t.Errorf("fetch by id: %d", p.ErrorCode)
	}
	if p := c.fetch(topic, 12, 0, 1); p.ErrorCode != 1 {
		t.Errorf("fetch above the end: %d", p.ErrorCode)
	}
	if p := c.fetch(topic, 12, 0, -5); p.ErrorCode != 1 {
		t.Errorf("fetch below the start: %d", p.ErrorCode)
	}
	if code := c.commit(9, "g", gone, 1, -1); code != 3 {
		t.Errorf("commit by name: %d", code)
	}
	if code := c.commit(10, "g", gone, 1, -1); code != 100 {
		t.Errorf("commit by id: %d", code)
	}
	req := newReq[*kmsg.MetadataRequest](12)
	for _, name := range []*string{kmsg.StringPtr("gone"), kmsg.StringPtr("b@d"), kmsg.StringPtr(""), kmsg.StringPtr(".."), nil, nil} {
		mt := kmsg.NewMetadataRequestTopic()
		mt.Topic = name
		req.Topics = append(req.Topics, mt)
	}
	req.Topics[4].TopicID, req.Topics[5].TopicID = gone.ID, topic.ID
	want := []int16{3, 17, 17, 17, 100, 0}
	for i, got := range ask[*kmsg.MetadataResponse](c, req).Topics {
		if got.ErrorCode != want[i] {
			t.Errorf("metadata of topic %d: %d, want %d", i, got.ErrorCode, want[i])
		}
	}
}

func TestAutoCreate(t *testing.T) {
	f := newFixture(t, Config{AutoCreate: true, DefaultPartitions: 3})
	c := f.dial()
	for v := int16(0); v <= 13; v++ {
		name := fmt.Sprintf("auto%d", v)
		for _, allow := range []bool{false, true} {
			req := newReq[*kmsg.MetadataRequest](v)
			mt := kmsg.NewMetadataRequestTopic()
			mt.Topic = &name
			req.Topics, req.AllowAutoTopicCreation = append(req.Topics, mt), allow
			got := ask[*kmsg.MetadataResponse](c, req).Topics[0]
			made := allow || v < 4
			if made && (got.ErrorCode != 0 || len(got.Partitions) != 3) || !made && got.ErrorCode != 3 {
				t.Errorf("version %d, allowed %v: error %d, %d partitions", v, allow, got.ErrorCode, len(got.Partitions))
			}
		}
	}
}

func TestDescribeTopicPartitionsPages(t *testing.T) {
	f := newFixture(t, Config{})
	for _, name := range []string{"a", "b", "c"} {
		f.topic(name, 3)
	}
	c := f.dial()
	req := newReq[*kmsg.DescribeTopicPartitionsRequest](0)
	req.ResponsePartitionLimit = 2
	var got []string
	for pages := 0; ; pages++ {
		if pages > 10 {
			t.Fatal("no end")
		}
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](c, req)
		n := 0
		for _, topic := range resp.Topics {
			for _, p := range topic.Partitions {
				got = append(got, fmt.Sprintf("%s%d", *topic.Topic, p.Partition))
				n++
			}
		}
		if n > 2 {
			t.Errorf("%d partitions in a page of 2", n)
		}
		if resp.NextCursor == nil {
			break
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	if s := strings.Join(got, " "); s != "a0 a1 a2 b0 b1 b2 c0 c1 c2" {
		t.Error(s)
	}
	one := newReq[*kmsg.DescribeTopicPartitionsRequest](0)
	one.Topics = []kmsg.DescribeTopicPartitionsRequestTopic{{Topic: "none"}, {Topic: "b"}}
	r := ask[*kmsg.DescribeTopicPartitionsResponse](c, one)
	if len(r.Topics) != 2 || *r.Topics[0].Topic != "b" || r.Topics[0].ErrorCode != 0 || r.Topics[1].ErrorCode != 3 {
		t.Errorf("%+v", r.Topics)
	}
}

func TestListGroupsFilters(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	c.commit(9, "empty", topic, 0, -1)
	c.heartbeat848("new", topic)
	c.join(3, "old", "", nil)
	names := func(states, types []string) string {
		req := newReq[*kmsg.ListGroupsRequest](5)
		req.StatesFilter, req.TypesFilter = states, types
		var got []string
		for _, g := range ask[*kmsg.ListGroupsResponse](c, req).Groups {
			got = append(got, g.Group+"/"+g.GroupType)
		}
		return strings.Join(got, " ")
	}
	for want, filter := range map[string][2][]string{
		"empty/classic new/consumer old/classic": {},
		"empty/classic":                          {{"Empty"}, nil},
		"new/consumer":                           {nil, {"consumer"}},
		"empty/classic old/classic":              {nil, {"CLASSIC"}},
		"":                                       {{"Dead"}, nil},
	} {
		if got := names(filter[0], filter[1]); got != want {
			t.Errorf("filter %q: %q, want %q", filter, got, want)
		}
	}
	// The groups of each kind are not there for the other kind's description.
	describe := newReq[*kmsg.DescribeGroupsRequest](6)
	describe.Groups = []string{"new", "none", "old"}
	for i, g := range ask[*kmsg.DescribeGroupsResponse](c, describe).Groups {
		if want := []int16{69, 69, 0}[i]; g.ErrorCode != want {
			t.Errorf("describe %s: %d, want %d", g.Group, g.ErrorCode, want)
		}
	}
	consumers := newReq[*kmsg.ConsumerGroupDescribeRequest](1)
	consumers.Groups = []string{"new", "none", "old"}
	for i, g := range ask[*kmsg.ConsumerGroupDescribeResponse](c, consumers).Groups {
		if want := []int16{0, 69, 69}[i]; g.ErrorCode != want {
			t.Errorf("describe consumer group %s: %d, want %d", g.Group, g.ErrorCode, want)
		}
	}
}

func TestManualAssignment(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	create := func(name string, assign map[int32][]int32) int16 {
		req := newReq[*kmsg.CreateTopicsRequest](7)
		nt := kmsg.NewCreateTopicsRequestTopic()
		nt.Topic, nt.NumPartitions, nt.ReplicationFactor = name, -1, -1
		for p, replicas := range assign {
			nt.ReplicaAssignment = append(nt.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: p, Replicas: replicas})
		}
		req.Topics = append(req.Topics, nt)
		return ask[*kmsg.CreateTopicsResponse](c, req).Topics[0].ErrorCode
	}
	self := []int32{f.srv.nodeID()}
	if code := create("a", map[int32][]int32{0: self, 1: self}); code != 0 {
		t.Errorf("here: %d", code)
	}
	if topic, _ := f.store.Topic("a"); topic.Partitions != 2 {
		t.Errorf("%d partitions", topic.Partitions)
	}
	for name, assign := range map[string]map[int32][]int32{"gap": {0: self, 2: self}, "elsewhere": {0: {12345}}, "two": {0: {self[0], 12345}}} {
		if code := create(name, assign); code != 39 {
			t.Errorf("%s: %d, want INVALID_REPLICA_ASSIGNMENT", name, code)
		}
	}
	if code := create("default", nil); code != 0 {
		t.Errorf("defaults: %d", code)
	}
}

func TestMetrics(t *testing.T) {
	f := newFixture(t, Config{})
	topic := f.topic("t", 1)
	c := f.dial()
	c.produce(topic, 9, 0, batch(record.None, "a"))
	c.fetch(topic, 12, 0, 5)
	families, err := f.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, fam := range families {
		for _, m := range fam.Metric {
			name := fam.GetName()
			for _, l := range m.Label {
				name += "/" + l.GetValue()
			}
			switch {
			case m.Counter != nil:
				got[name] = m.Counter.GetValue()
			case m.Gauge != nil:
				got[name] = m.Gauge.GetValue()
			case m.Histogram != nil:
				got[name] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	for name, want := range map[string]float64{
		"lattice_kafka_requests_total/Produce": 1, "lattice_kafka_requests_total/Fetch": 1, "lattice_kafka_request_seconds/Produce": 1,
		"lattice_kafka_errors_total/OFFSET_OUT_OF_RANGE": 1, "lattice_kafka_connections": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if got["lattice_kafka_received_bytes_total"] < 100 || got["lattice_kafka_sent_bytes_total"] < 50 {
		t.Errorf("bytes %v", got)
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	f := newFixture(t, Config{TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}})
	f.topic("t", 2)
	ctx := testContext(t)
	cl := f.kgo(kgo.DialTLSConfig(&tls.Config{RootCAs: pool}), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	want := produceN(ctx, t, cl, "t", 500)
	equalRecords(t, consumeN(ctx, t, cl, 500), want)
	plain := f.dial() // a client that does not speak TLS
	plain.send(newReq[*kmsg.MetadataRequest](9))
	if b, err := plain.readFrame(); err == nil {
		t.Errorf("answered in plain text: %x", b)
	}
}
