package field

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

// admin: the life of a topic.
func (b *bench) admin(t *testing.T, c *client, p *process) {
	topic := topicOf("admin", c.name)
	ask := func(do string, partitions int, configs ...string) answer {
		t.Helper()
		r := request{Do: do, Bootstrap: b.at, Topic: topic, Partitions: partitions}
		for i := 0; i < len(configs); i += 2 {
			if r.Configs == nil {
				r.Configs = map[string]string{}
			}
			r.Configs[configs[i]] = configs[i+1]
		}
		return p.must(t, r)
	}
	ask("create", 3, "retention.ms", "3600000", "cleanup.policy", "compact")
	if n := ask("describe", 0).Partitions; n != 3 {
		t.Errorf("describe: %d partitions, want 3", n)
	}
	if names := ask("list", 0).Names; !slices.Contains(names, topic) {
		t.Errorf("list: %q is not in %q", topic, names)
	}
	can := func(do string) bool { return !slices.Contains(c.without, do) }
	expect := func(want map[string]string) {
		t.Helper()
		if !can("configs") {
			return
		}
		got := ask("configs", 0).Configs
		for k, v := range want {
			if got[k] != v {
				t.Errorf("config %s is %q, want %q", k, got[k], v)
			}
		}
		if len(got) < 15 {
			t.Errorf("%d configs, want all: %v", len(got), got)
		}
	}
	expect(map[string]string{"retention.ms": "3600000", "cleanup.policy": "compact", "max.message.bytes": "1048588"})
	if can("alter") {
		ask("alter", 0, "retention.ms", "7200000", "cleanup.policy", "compact")
		expect(map[string]string{"retention.ms": "7200000", "cleanup.policy": "compact", "max.message.bytes": "1048588"})
	}
	if can("grow") {
		ask("grow", 5)
		if n := ask("describe", 0).Partitions; n != 5 {
			t.Errorf("describe: %d partitions after adding to 5", n)
		}
	}
	ask("delete", 0)
	for end := time.Now().Add(limit); slices.Contains(ask("list", 0).Names, topic); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("list: the topic is still there")
		}
	}
}

// codec: what is written is there, byte by byte, and comes back.
func (b *bench) codec(t *testing.T, c *client, p *process, codec string) {
	topic := topicOf("codec", c.name, codec)
	makeTopic(t, b.at, topic, partitions)
	sent := c.sample(codec, 200)
	acked := p.must(t, request{Do: "produce", Bootstrap: b.at, Topic: topic, Codec: codec, Records: sent}).Records
	var stored []record
	compressed := 0
	for _, s := range observe(t, b.at, topic) {
		stored = append(stored, s.record)
		switch s.codec {
		case codec:
			compressed++
		case "none": // clients leave a batch as it is that would not get smaller
		default:
			t.Errorf("stored with %s: %s", s.codec, s.record)
		}
	}
	checkOrder(t, "what is there", stored, sent)
	if !c.text {
		checkSame(t, "what was acknowledged", acked, stored)
	}
	if compressed < len(sent)*8/10 {
		t.Errorf("%d of %d records are stored with %s", compressed, len(sent), codec)
	}
	checkSame(t, "read back", p.must(t, request{Do: "consume", Bootstrap: b.at, Topic: topic}).Records, c.shows(stored))
}

func (b *bench) read(t *testing.T, c *client, p *process) {
	got := p.must(t, request{Do: "consume", Bootstrap: b.at, Topic: mixedTopic}).Records
	want := c.shows(b.mixed)
	if c.blurs {
		got, want = blurred(got), blurred(want)
	}
	checkSame(t, p.label, got, want)
}

// time: the first record at or after an instant, also in the middle of a
// compressed batch.
func (b *bench) time(t *testing.T, p *process) {
	for _, after := range []int64{-1000, 0, 1, 300 * timedStep, 301*timedStep + 50, (timedCount - 1) * timedStep, timedCount * timedStep} {
		var want []record
		for _, r := range b.timed {
			if r.Timestamp >= sampleTime+after {
				want = append(want, r)
			}
		}
		got := p.must(t, request{Do: "seek", Bootstrap: b.at, Topic: timedTopic, Time: sampleTime + after}).Records
		checkSame(t, p.label, got, want)
	}
}

// idempotent: batches carry a producer id.
func (b *bench) idempotent(t *testing.T, c *client, p *process) {
	topic := topicOf("idempotent", c.name)
	makeTopic(t, b.at, topic, partitions)
	sent := c.sample("lz4", 1000)
	p.must(t, request{Do: "produce", Bootstrap: b.at, Topic: topic, Codec: "lz4", Records: sent})
	var stored []record
	for _, s := range observe(t, b.at, topic) {
		if s.producer < 0 {
			t.Fatalf("written without a producer id: %s", s.record)
		}
		stored = append(stored, s.record)
	}
	checkOrder(t, "what is there", stored, sent)
}

// overhead is what a batch of one record without key and headers has besides
// its value, where the value's length takes 3 bytes as a varint.
const overhead = 61 + 11

// large: the limit is exact.
func (b *bench) large(t *testing.T, c *client, p *process) {
	topic := topicOf("large", c.name)
	makeTopic(t, b.at, topic, 1, "max.message.bytes", "100000")
	write := func(topic string, n int) answer {
		return p.ask(t, request{Do: "produce", Bootstrap: b.at, Topic: topic, Codec: "none", Records: []record{{Value: bytes.Repeat([]byte("x"), n)}}})
	}
	if a := write(topic, 100000-overhead); a.Error != nil {
		t.Errorf("a batch of 100000 bytes: %v", a.Error)
	}
	if a := write(topic, 100000-overhead+1); a.Error == nil || a.Error.Code != 10 {
		t.Errorf("a batch of 100001 bytes: %+v, %v, want error 10", a.Records, a.Error)
	}
	if n := len(observe(t, b.at, topic)); n != 1 {
		t.Errorf("%d records are there, want 1", n)
	}
	topic = topicOf("larger", c.name)
	makeTopic(t, b.at, topic, 1, "max.message.bytes", "8000000")
	if a := write(topic, 5_000_000); a.Error != nil {
		t.Fatalf("5 MB: %v", a.Error)
	}
	got := p.must(t, request{Do: "consume", Bootstrap: b.at, Topic: topic}).Records
	if len(got) != 1 || !bytes.Equal(got[0].Value, bytes.Repeat([]byte("x"), 5_000_000)) {
		t.Errorf("5 MB came back as %v", got)
	}
}

// mistakes: each is refused, with Kafka's code unless the client hides it.
func (b *bench) mistakes(t *testing.T, c *client, p *process) {
	for _, m := range mistakes {
		if slices.Contains(c.without, m.ask.Do) {
			continue
		}
		m.ask.Bootstrap = b.strict
		a := p.ask(t, m.ask)
		switch own := c.own[m.name]; {
		case own == "" && a.Error == nil:
			t.Errorf("%s: was not refused: %+v", m.name, a)
		case own == "" && a.Error.Code != m.code:
			t.Errorf("%s: %v, want code %d", m.name, a.Error, m.code)
		case own != "" && a.Error != nil && a.Error.Code == m.code:
			t.Errorf("%s: has code %d now; the roster says: %s", m.name, m.code, own)
		}
	}
}
