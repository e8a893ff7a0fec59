// Package field has no code of its own. Its tests run the whole field of Kafka
// clients, as processes, against a node that is a process too, each through the
// same cases. test/clients asks more of three of them.
//
//	kafka-clients, Kafka's own tools                       ../java
//	kafka-python, aiokafka, confluent-kafka                ../python
//	kcat, franz-go, sarama, kafka-go                       ../go-clients
//	kafkajs, @confluentinc/kafka-javascript, @platformatic ../node
//	rdkafka                                                ../rust
//
// A Java and a Python client run with every change, and those three in
// test/clients; "make deps" brings them. The
// whole field needs more of Maven, PyPI and so on, compilers, and minutes: with
// LATTICE_FIELD=all, which scripts/test-field.sh sets, everything runs and writes
// docs/protocol/clients.md. A test that always runs holds the page to the roster.
package field

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const page = "../../docs/protocol/clients.md"

// cases are the columns of the page, in order, with what each says.
var cases = []struct {
	name, says string
	short      bool // runs with -short, too
}{
	{"admin", "create a topic with configs, describe, list, read and alter its configs, add partitions, delete it", true},
	{"none", "records without compression: content, headers, order of each key, acknowledged offsets, read back", false},
	{"gzip", "the same with gzip, and stored as gzip", false},
	{"snappy", "the same with snappy", false},
	{"lz4", "the same with lz4", false},
	{"zstd", "the same with zstd", true},
	{"read", "read what another client wrote: every codec, null and empty keys, values and headers", true},
	{"time", "seek by time: before, at, between and after the records", false},
	{"group", "a group: a second member joins while records arrive and leaves, every record is seen, offsets are committed, read, deleted", false},
	{"idempotent", "records are written by an idempotent producer", false},
	{"large", "a batch of exactly max.message.bytes is taken, one byte more is MESSAGE_TOO_LARGE; 5 MB there and back", false},
	{"errors", "existing, unknown and misnamed topics, wrong partitions, replicas and configs, an offset beyond the end, an unknown group", true},
}

// entry is a client of the roster.
type entry struct {
	name, lang string
	// everyday: it runs with every change.
	everyday bool
	// groups are the ways to share partitions that its members know.
	groups []string
	// lacks says why a case is nothing for this client.
	lacks map[string]string
	// blurs: it does not everywhere tell what is empty from null.
	blurs bool
	// text: it writes lines of text, with the same headers for all and no times of
	// their own, and does not say where they went; it prints headers as text.
	text bool
	// drops: a record that arrives just when a member is told to leave, it counts
	// as read without showing it. (Of rdkafka, BaseConsumer's drop polls until the
	// consumer is closed, and throws away what it gets.)
	drops bool
	// classic: it describes groups of the classic protocol only.
	classic bool
	// without are the things that it has no call for: see request.
	without []string
	// own are the mistakes that the client reports in its own way, without a
	// code of Kafka's, and what it says instead.
	own map[string]string
}

var roster = []entry{
	{
		name: "kcat", lang: "C", groups: []string{"range", "roundrobin", "cooperative-sticky"}, text: true, drops: true,
		lacks:   map[string]string{"admin": "it describes topics, and has nothing to create or change them"},
		without: []string{"create", "configs", "alter", "grow", "trim", "delete", "groups", "members", "committed", "forget"},
	},
	{name: "franz-go", lang: "Go", groups: []string{"range", "roundrobin", "sticky", "cooperative-sticky", "server", "server-pattern"}},
	{name: "kafkajs", lang: "Node.js", groups: []string{"roundrobin"}, own: map[string]string{
		"read beyond the end": "nothing: it reads on from the start",
	}},
	{name: "kafka-clients", lang: "Java", everyday: true, groups: []string{"range", "cooperative-sticky", "server", "server-pattern"}, own: map[string]string{
		"write to an unknown topic": "a timeout, whose cause is UnknownTopicOrPartitionException",
	}},
	{name: "kafka-python", lang: "Python", everyday: true, groups: []string{"range", "roundrobin", "sticky"}, own: map[string]string{
		"configs of an unknown topic": "no configs, and no error",
		"write to an unknown topic":   "a timeout",
	}},
	{name: "aiokafka", lang: "Python", groups: []string{"range", "roundrobin", "sticky"}, without: []string{"forget"}},
	{name: "confluent-kafka", lang: "Python", groups: []string{"range", "cooperative-sticky", "server", "server-pattern"}, own: map[string]string{
		"read beyond the end": "_AUTO_OFFSET_RESET of librdkafka",
	}},
	{name: "sarama", lang: "Go", groups: []string{"range", "roundrobin", "sticky"}},
	{name: "kafka-go", lang: "Go", groups: []string{"range", "roundrobin"}, without: []string{"trim"}, blurs: true, lacks: map[string]string{
		"idempotent": "it has no idempotent producer",
	}},
	{
		name: "@confluentinc/kafka-javascript", lang: "Node.js", groups: []string{"range", "cooperative-sticky", "server"}, blurs: true,
		without: []string{"configs", "alter", "grow"},
		own:     map[string]string{"read beyond the end": "nothing, ever"},
	},
	{name: "rdkafka", lang: "Rust", groups: []string{"range", "cooperative-sticky", "server"}, classic: true, drops: true, own: map[string]string{
		"read beyond the end":         "_AUTO_OFFSET_RESET of librdkafka",
		"unknown config":              "nothing: it does not look at that answer",
		"configs of an unknown topic": "nothing: it does not look at that answer",
	}},
	{name: "@platformatic/kafka", lang: "Node.js", groups: []string{"roundrobin", "server"}, classic: true, own: map[string]string{
		"describe an unknown topic": "an error of its own, Unknown topic",
		"write to an unknown topic": "an error of its own, Unknown topic",
		"read an unknown topic":     "an error of its own, Unknown topic",
	}},
}

// TestPage fails when the page is not of this roster: every client has a row
// and every cell says that it passed, or that it is nothing for this client.
func TestPage(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, e := range roster {
		row, ok := rowOf(text, e.name)
		if !ok {
			t.Errorf("the page has no row for %s; run scripts/test-field.sh", e.name)
			continue
		}
		for i, c := range cases {
			want := "ok"
			if e.lacks[c.name] != "" {
				want = "-"
			}
			if got := row[i+3]; got != want {
				t.Errorf("%s, %s: the page says %q, want %q; run scripts/test-field.sh", e.name, c.name, got, want)
			}
		}
	}
	for _, tool := range tools {
		if row, ok := rowOf(text, tool.name); !ok || !slices.Equal(row[2:], []string{"ok", tool.says}) {
			t.Errorf("the page does not say that %s passed with %q; run scripts/test-field.sh", tool.name, tool.says)
		}
	}
}

// rowOf returns the cells of the row that begins with a name.
func rowOf(text, name string) ([]string, bool) {
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == name && len(cells) > 1 {
			return cells, true
		}
	}
	return nil, false
}
