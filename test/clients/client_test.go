package clients

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// client is a Kafka client with its driver, a program that reads a request as a
// line of JSON and answers with another: see ../field/driver_test.go.
type client struct {
	name    string
	command []string
	group   []balancer // the ways that a group of it can share partitions
	headers headers
	creates bool // it can create topics
	says    bool // it says where records went
}

// headers says what a client's headers are.
type headers int

const (
	inOrder headers = iota // a list
	byName                 // lists of values by name
	printed                // text, as kcat prints it: the same for all that it writes
)

type request struct {
	Do         string   `json:"do"`
	Bootstrap  string   `json:"bootstrap"`
	Topic      string   `json:"topic"`
	Partitions int32    `json:"partitions,omitempty"`
	Codec      string   `json:"codec,omitempty"`
	Records    []record `json:"records,omitempty"`
	Time       int64    `json:"time,omitempty"` // ms since 1970
	Group      string   `json:"group,omitempty"`
	Instance   string   `json:"instance,omitempty"` // not kafkajs
	Balancer   string   `json:"balancer,omitempty"`
}

// answer is what is used of a driver's answer.
type answer struct {
	Records []record `json:"records"`
	Error   *struct {
		Code int    `json:"code"`
		Text string `json:"text"`
	} `json:"error"`
}

// ask runs the program for one request.
func (c client) ask(t *testing.T, r request) answer {
	t.Helper()
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := command(t, append(line, '\n'), c.command[0], c.command[1:]...)
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		t.Fatalf("%s: %s %s: %v in %.300q", c.name, r.Do, r.Topic, err, out)
	}
	return a
}

// run is ask for what must not be refused.
func (c client) run(t *testing.T, r request) []record {
	t.Helper()
	a := c.ask(t, r)
	if a.Error != nil {
		t.Fatalf("%s: %s %s: error %d: %s", c.name, r.Do, r.Topic, a.Error.Code, a.Error.Text)
	}
	return a.Records
}

// create makes a topic; false: this client has no way to.
func (c client) create(t *testing.T, at, topic string, partitions int32) bool {
	t.Helper()
	if !c.creates {
		return false
	}
	r := request{Do: "create", Bootstrap: at, Topic: topic, Partitions: partitions}
	c.run(t, r)
	if a := c.ask(t, r); a.Error == nil || a.Error.Code != 36 {
		t.Errorf("%s: create %s again: %+v, want error 36", c.name, topic, a.Error)
	}
	return true
}

// produce writes the records in order, idempotently, and returns them with the
// partitions and offsets that were acknowledged, or nil if the client does not
// say.
func (c client) produce(t *testing.T, at, topic, codec string, records []record) []record {
	t.Helper()
	acked := c.run(t, request{Do: "produce", Bootstrap: at, Topic: topic, Codec: codec, Records: records})
	if !c.says {
		return nil
	}
	if len(acked) != len(records) {
		t.Fatalf("%s: %d records acknowledged of %d", c.name, len(acked), len(records))
	}
	return acked
}

// sample returns n records that this client is able to write.
func (c client) sample(codec string, n int) []record {
	all := sampleRecords(codec, n, c.headers != printed)
	for i := range all {
		if c.headers == printed {
			all[i].Headers = []header{{"codec", []byte(codec)}, {"by", []byte(c.name)}}
		}
		if c.headers == inOrder && i%13 == 6 {
			all[i].Headers = append(all[i].Headers, header{"n", nil}, header{"", []byte{}}, header{"n", []byte("again")})
		}
	}
	return all
}

// shows returns a record as this client shows it: with headers grouped by name,
// or printed, where it does that.
func (c client) shows(r record) record {
	switch c.headers {
	case byName:
		first := map[string]int{}
		for i, h := range r.Headers {
			if _, ok := first[h.Key]; !ok {
				first[h.Key] = i
			}
		}
		r.Headers = slices.Clone(r.Headers)
		slices.SortStableFunc(r.Headers, func(a, b header) int { return first[a.Key] - first[b.Key] })
	case printed:
		r.Headers = asText(r.Headers)
	}
	return r
}

// asText gives headers as kcat prints them: one without a name.
func asText(headers []header) []header {
	if len(headers) == 0 {
		return nil
	}
	var parts []string
	for _, h := range headers {
		value, _, _ := strings.Cut(string(h.Value), "\x00") // as far as it prints
		if h.Value == nil {
			value = "NULL"
		}
		parts = append(parts, h.Key+"="+value)
	}
	return []header{{Value: []byte(strings.Join(parts, ","))}}
}

// consume returns all records of the topic; those of a partition in order.
func (c client) consume(t *testing.T, at, topic string) []record {
	t.Helper()
	return c.run(t, request{Do: "consume", Bootstrap: at, Topic: topic})
}

// seek returns, for each partition, the records from the first at or after the
// time (ms since 1970).
func (c client) seek(t *testing.T, at, topic string, ms int64) []record {
	t.Helper()
	return c.run(t, request{Do: "seek", Bootstrap: at, Topic: topic, Time: ms})
}

// join starts a member of a group.
func (c client) join(t *testing.T, m membership) *member {
	t.Helper()
	line, err := json.Marshal(request{Do: "member", Bootstrap: m.at, Topic: m.topic, Group: m.group, Instance: m.instance, Balancer: m.balancer})
	if err != nil {
		t.Fatal(err)
	}
	joined := startMember(t, c.name, c.command)
	if _, err := fmt.Fprintf(joined.stdin, "%s\n", line); err != nil {
		t.Fatalf("tell %s to join: %v", c.name, err)
	}
	return joined
}
