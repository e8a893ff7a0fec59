// Command kcat drives the program kcat for tests: see package driver. kcat is
// for people and shell scripts, so what it shows is what a shell script sees:
//
//   - it writes lines of text, with the same headers for all of a request, at
//     times of its own, and does not say where they went: answers have no records;
//   - it prints headers as text, "a=1,b=2": a record that it read has one header
//     without a name, whose value is that;
//   - it says errors as text.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/lattice-log/lattice/test/go-clients/driver"
)

func main() { driver.Serve(act, member, code) }

// said is what kcat said when it should have said nothing.
type said string

func (s said) Error() string { return "kcat says: " + string(s) }

// codes are librdkafka's texts of Kafka's errors.
var codes = map[string]int{
	"Broker: Offset out of range":        1,
	"Broker: Unknown topic or partition": 3,
	"Broker: Message size too large":     10,
}

func code(err error) (int, bool) {
	var s said
	if errors.As(err, &s) {
		for text, n := range codes {
			if strings.Contains(string(s), text) {
				return n, true
			}
		}
	}
	return 0, false
}

func act(ctx context.Context, r driver.Request) (driver.Answer, error) {
	switch r.Do {
	case "version":
		return version(ctx)
	case "describe":
		return describe(ctx, r)
	case "produce":
		return driver.Answer{}, produce(ctx, r)
	case "consume":
		return consume(ctx, r, "-o", "beginning")
	case "seek":
		return consume(ctx, r, "-o", fmt.Sprintf("s@%d", r.Time))
	case "beyond":
		return consume(ctx, r, "-p", "0", "-o", "1000000", "-X", "auto.offset.reset=error")
	}
	return driver.Answer{}, fmt.Errorf("knows no %q", r.Do)
}

// kcat runs it to its end and returns what it printed. It is an error when it
// says anything.
func kcat(ctx context.Context, args ...string) ([]byte, error) {
	out, complaint, err := talk(ctx, nil, args...)
	if complaint != "" {
		err = said(complaint)
	}
	return out, err
}

// talk runs it to its end and returns what it printed and what it said.
func talk(ctx context.Context, stdin []byte, args ...string) ([]byte, string, error) {
	cmd := exec.CommandContext(ctx, "kcat", args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &out, &errs
	err := cmd.Run()
	return out.Bytes(), strings.TrimSpace(errs.String()), err
}

var versions = regexp.MustCompile(`Version (\S+) .*librdkafka ([0-9.]+)`)

func version(ctx context.Context) (driver.Answer, error) {
	out, err := kcat(ctx, "-V")
	if err != nil {
		return driver.Answer{}, err
	}
	found := versions.FindSubmatch(out)
	if found == nil {
		return driver.Answer{}, fmt.Errorf("no version in %q", out)
	}
	return driver.Answer{Version: fmt.Sprintf("%s (librdkafka %s)", found[1], found[2])}, nil
}

var partitions = regexp.MustCompile(`topic ".*" with (\d+) partitions:(.*)`)

func describe(ctx context.Context, r driver.Request) (out driver.Answer, err error) {
	printed, err := kcat(ctx, "-L", "-b", r.Bootstrap, "-t", r.Topic)
	if err != nil {
		return out, err
	}
	found := partitions.FindSubmatch(printed)
	if found == nil {
		return out, fmt.Errorf("no topic in %q", printed)
	}
	if problem := bytes.TrimSpace(found[2]); len(problem) > 0 {
		return out, said(problem)
	}
	out.Partitions, err = strconv.Atoi(string(found[1]))
	return out, err
}

// produce writes the records as lines. One without a key or headers is a file,
// since a line has limits.
func produce(ctx context.Context, r driver.Request) error {
	args := []string{
		"-P", "-b", r.Bootstrap, "-t", r.Topic, "-z", r.Codec,
		"-E", // a lost connection is not the end
		"-X", "enable.idempotence=true", "-X", "batch.num.messages=40", "-X", "linger.ms=2", "-X", "reconnect.backoff.max.ms=500",
		"-X", "message.max.bytes=64000000", "-X", "message.timeout.ms=30000", "-X", "topic.metadata.propagation.max.ms=1000",
	}
	if k := r.Records[0]; len(r.Records) == 1 && k.Key == nil && k.Headers == nil {
		f, err := os.CreateTemp("", "kcat-")
		if err != nil {
			return err
		}
		defer os.Remove(f.Name())
		_, err = f.Write(k.Value)
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		return send(ctx, nil, append(args, f.Name()))
	}
	var lines bytes.Buffer
	for _, k := range r.Records {
		fmt.Fprintf(&lines, "%s\t%s\n", k.Key, k.Value)
	}
	args = append(args, "-K", `\t`, "-Z") // an empty value is sent as null
	for _, h := range r.Records[0].Headers {
		args = append(args, "-H", h.Key+"="+string(h.Value))
	}
	return send(ctx, lines.Bytes(), args)
}

// send fails when something did not arrive, or not as it should. A connection
// that was lost and found again is no failure.
func send(ctx context.Context, stdin []byte, args []string) error {
	_, complaint, err := talk(ctx, stdin, args...)
	// Where librdkafka takes the server for one that knows no compression, it
	// sends without, and says it only here.
	if err != nil || strings.Contains(complaint, "compression") || strings.Contains(complaint, "Delivery failed") {
		return said(fmt.Sprint(complaint, " ", err))
	}
	return nil
}

// format makes kcat print lengths before bytes: partition, offset, timestamp,
// lengths of key and value (-1: null), key, value, headers.
const (
	format = "%p %o %T %K %S %k%s%h" + mark
	mark   = "\x01\x02\x03\n"
)

func consume(ctx context.Context, r driver.Request, from ...string) (out driver.Answer, err error) {
	args := []string{"-C", "-b", r.Bootstrap, "-t", r.Topic, "-e", "-q", "-f", format, "-X", "fetch.wait.max.ms=100"}
	printed, err := kcat(ctx, append(args, from...)...)
	if err != nil {
		return out, err
	}
	for len(printed) > 0 {
		var k driver.Record
		if k, printed, err = parse(printed); err != nil {
			return out, fmt.Errorf("after %d records: %w", len(out.Records), err)
		}
		out.Records = append(out.Records, k)
	}
	return out, nil
}

// parse reads one record and returns what follows it.
func parse(b []byte) (k driver.Record, rest []byte, err error) {
	parts := bytes.SplitN(b, []byte(" "), 6)
	if len(parts) != 6 {
		return k, nil, fmt.Errorf("%.300q", b)
	}
	var n [5]int64
	for i := range n {
		if n[i], err = strconv.ParseInt(string(parts[i]), 10, 64); err != nil {
			return k, nil, err
		}
	}
	rest = parts[5]
	take := func(length int64) (b []byte) {
		if length >= 0 && length <= int64(len(rest)) {
			b, rest = rest[:length:length], rest[length:]
		}
		return b
	}
	k = driver.Record{Partition: int32(n[0]), Offset: n[1], Timestamp: n[2], Key: take(n[3]), Value: take(n[4])}
	headers, rest, ok := bytes.Cut(rest, []byte(mark))
	if !ok {
		return k, nil, fmt.Errorf("no end of record in %.300q", rest)
	}
	if len(headers) > 0 {
		k.Headers = []driver.Header{{Value: headers}}
	}
	return k, rest, nil
}

// gone asks the kernel to end kcat with this process, however that ends: which
// needs the thread that starts it to live as long.
var gone = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
