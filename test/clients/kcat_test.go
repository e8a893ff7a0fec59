package clients

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// kcat is Debian's kcat: librdkafka 2.0.2, older than most servers would like.
type kcat struct{}

func (kcat) name() string { return "kcat" }

func (kcat) balancers() []balancer {
	return []balancer{
		{name: "range", static: true, drops: true},
		{name: "cooperative-sticky", keeps: true, static: true, drops: true},
	}
}

// create: kcat has no way to but to write to a topic that is not there, which
// has a case of its own.
func (kcat) create(*testing.T, string, string, int32) bool { return false }

// sample: keys and values are lines of text with a tab between them, the same
// headers go with all of them, and timestamps are librdkafka's.
func (kcat) sample(codec string, n int) []record {
	all := sampleRecords(codec, n, false)
	for i := range all {
		all[i].Headers = []header{{"codec", []byte(codec)}, {"by", []byte("kcat")}}
	}
	return all
}

// produce writes lines. kcat does not say where the records went.
func (kcat) produce(t *testing.T, at, topic, codec string, records []record) []record {
	t.Helper()
	var lines bytes.Buffer
	for _, r := range records {
		fmt.Fprintf(&lines, "%s\t%s\n", r.Key, r.Value)
	}
	args := []string{
		"-P", "-b", at, "-t", topic, "-z", codec, "-K", `\t`, "-Z", // an empty value is sent as null
		"-E", // a lost connection is not the end
		"-X", "enable.idempotence=true", "-X", "batch.num.messages=40", "-X", "linger.ms=2", "-X", "reconnect.backoff.max.ms=500",
	}
	for _, h := range records[0].Headers {
		args = append(args, "-H", h.Key+"="+string(h.Value))
	}
	_, errs := command(t, lines.Bytes(), "kcat", args...)
	// librdkafka sends uncompressed, and says it only here, if it takes the
	// server for one that knows no compression.
	if bytes.Contains(errs, []byte("compression")) {
		t.Errorf("kcat says: %s", errs)
	}
	return nil
}

// format makes kcat print lengths before bytes: partition, offset, timestamp,
// lengths of key and value (-1: null), key, value, headers.
const (
	format = "%p %o %T %K %S %k%s%h" + mark
	mark   = "\x01\x02\x03\n"
)

func (k kcat) consume(t *testing.T, at, topic string) []record {
	t.Helper()
	return k.read(t, at, topic, "beginning")
}

func (k kcat) seek(t *testing.T, at, topic string, ms int64) []record {
	t.Helper()
	return k.read(t, at, topic, fmt.Sprintf("s@%d", ms))
}

func (kcat) read(t *testing.T, at, topic, from string) []record {
	t.Helper()
	out, errs := command(t, nil, "kcat", "-C", "-b", at, "-t", topic, "-o", from, "-e", "-q", "-f", format, "-X", "fetch.wait.max.ms=100")
	if len(errs) > 0 {
		t.Errorf("kcat says: %s", errs)
	}
	all, err := parseKcat(out)
	if err != nil {
		t.Fatalf("kcat: %v", err)
	}
	return all
}

func parseKcat(out []byte) ([]record, error) {
	var all []record
	for len(out) > 0 {
		parts := bytes.SplitN(out, []byte(" "), 6)
		if len(parts) != 6 {
			return nil, fmt.Errorf("after %d records: %q", len(all), out)
		}
		var n [5]int64
		for i := range n {
			v, err := strconv.ParseInt(string(parts[i]), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("after %d records: %w", len(all), err)
			}
			n[i] = v
		}
		rest := parts[5]
		take := func(length int64) (b []byte) {
			if length >= 0 && length <= int64(len(rest)) {
				b, rest = rest[:length:length], rest[length:]
			}
			return b
		}
		r := record{Partition: int32(n[0]), Offset: n[1], Timestamp: n[2], Key: take(n[3]), Value: take(n[4])}
		headers, after, ok := bytes.Cut(rest, []byte(mark))
		if !ok {
			return nil, fmt.Errorf("after %d records: no end of record in %q", len(all), rest)
		}
		r.Headers = printedHeaders(headers)
		all, out = append(all, r), after
	}
	return all, nil
}

// printedHeaders reads "a=1,b=2". What a value with commas says cannot be told
// apart; see shows.
func printedHeaders(b []byte) []header {
	if len(b) == 0 {
		return nil
	}
	return []header{{Key: string(b)}}
}

// shows gives the headers as printed.
func (kcat) shows(r record) record {
	var parts []string
	for _, h := range r.Headers {
		value, _, _ := strings.Cut(string(h.Value), "\x00") // as far as kcat prints it
		if h.Value == nil {
			value = "NULL"
		}
		parts = append(parts, h.Key+"="+value)
	}
	r.Headers = printedHeaders([]byte(strings.Join(parts, ",")))
	return r
}

var (
	// Eager: "(memberid M): assigned: LIST". Cooperative: "incremental
	// assignment of 3 partition(s) (memberid M, ...): LIST".
	rebalanced = regexp.MustCompile(`rebalanced.*(assigned|assignment|revoked|revoke|lost).*: (.*)$`)
	listed     = regexp.MustCompile(`\[(\d+)\]`)
)

func (kcat) join(t *testing.T, m membership) *member {
	t.Helper()
	args := []string{
		"kcat", "-b", m.at, "-G", m.group, "-u", "-f", `%p %o\n`,
		"-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200", "-X", "fetch.wait.max.ms=100",
		"-X", "auto.commit.interval.ms=500", "-X", "partition.assignment.strategy=" + m.balancer,
	}
	if m.instance != "" {
		args = append(args, "-X", "group.instance.id="+m.instance)
	}
	return startMember(t, "kcat", append(args, m.topic), spoken{
		stdout: func(m *member, line string) {
			e := event{Event: "read"}
			if _, err := fmt.Sscanf(line, "%d %d", &e.Partition, &e.Offset); err != nil {
				m.fail("printed %q: %v", line, err)
				return
			}
			m.feed(e)
		},
		stderr: func(m *member, line string) {
			m.say(line)
			if found := rebalanced.FindStringSubmatch(line); found != nil {
				e := event{Event: "revoked"}
				if strings.HasPrefix(found[1], "assign") {
					e.Event = "assigned"
				}
				for _, p := range listed.FindAllStringSubmatch(found[2], -1) {
					n, _ := strconv.Atoi(p[1]) // digits, by the expression
					e.Partitions = append(e.Partitions, int32(n))
				}
				m.feed(e)
			}
		},
		leave: syscall.SIGTERM,
	})
}
