package clients

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// driver is a client whose program takes a request as JSON and prints JSON: see
// ../franz-go/main.go.
type driver struct {
	label   string
	command []string
	group   []balancer
	headers headers
}

// headers says what a client's headers are.
type headers int

const (
	inOrder headers = iota // a list
	byName                 // lists of values by name
)

type request struct {
	Do         string `json:"do"`
	Bootstrap  string `json:"bootstrap"`
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions,omitempty"`
	Codec      string `json:"codec,omitempty"`
	Input      string `json:"input,omitempty"`
	Time       int64  `json:"time,omitempty"`
	Group      string `json:"group,omitempty"`
	Instance   string `json:"instance,omitempty"`
	Balancer   string `json:"balancer,omitempty"`
}

func (d driver) name() string          { return d.label }
func (d driver) balancers() []balancer { return d.group }

func (d driver) args(t *testing.T, r request) []string {
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return append(d.command[1:len(d.command):len(d.command)], string(b))
}

func (d driver) run(t *testing.T, r request) []record {
	t.Helper()
	out, _ := command(t, nil, d.command[0], d.args(t, r)...)
	var all []record
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var r record
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: after %d records: %v", d.label, len(all), err)
		}
		all = append(all, r)
	}
}

func (d driver) create(t *testing.T, at, topic string, partitions int32) bool {
	t.Helper()
	d.run(t, request{Do: "create", Bootstrap: at, Topic: topic, Partitions: partitions})
	return true
}

func (d driver) produce(t *testing.T, at, topic, codec string, records []record) []record {
	t.Helper()
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines)
	for _, r := range records {
		if err := enc.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	input := filepath.Join(t.TempDir(), "records.jsonl")
	if err := os.WriteFile(input, lines.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	acked := d.run(t, request{Do: "produce", Bootstrap: at, Topic: topic, Codec: codec, Input: input})
	if len(acked) != len(records) {
		t.Fatalf("%s: %d records acknowledged of %d", d.label, len(acked), len(records))
	}
	return acked
}

func (d driver) sample(codec string, n int) []record {
	all := sampleRecords(codec, n, true)
	for i := range all {
		if d.headers == inOrder && i%13 == 6 {
			all[i].Headers = append(all[i].Headers, header{"n", nil}, header{"", []byte{}}, header{"n", []byte("again")})
		}
	}
	return all
}

// shows groups the headers by name where the client does.
func (d driver) shows(r record) record {
	if d.headers == byName {
		first := map[string]int{}
		for i, h := range r.Headers {
			if _, ok := first[h.Key]; !ok {
				first[h.Key] = i
			}
		}
		r.Headers = slices.Clone(r.Headers)
		slices.SortStableFunc(r.Headers, func(a, b header) int { return first[a.Key] - first[b.Key] })
	}
	return r
}

func (d driver) consume(t *testing.T, at, topic string) []record {
	t.Helper()
	return d.run(t, request{Do: "consume", Bootstrap: at, Topic: topic})
}

func (d driver) seek(t *testing.T, at, topic string, ms int64) []record {
	t.Helper()
	return d.run(t, request{Do: "seek", Bootstrap: at, Topic: topic, Time: ms})
}

func (d driver) join(t *testing.T, m membership) *member {
	t.Helper()
	r := request{Do: "member", Bootstrap: m.at, Topic: m.topic, Group: m.group, Instance: m.instance, Balancer: m.balancer}
	return startMember(t, d.label, append(d.command[:1:1], d.args(t, r)...), spoken{
		stdout: func(m *member, line string) {
			var e event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				m.fail("printed %q: %v", line, err)
				return
			}
			m.feed(e)
		},
		stderr: func(m *member, line string) { m.say(line) },
	})
}
