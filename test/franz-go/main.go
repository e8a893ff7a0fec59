// Command franz-go is a Kafka client for tests: it does one thing that its
// argument says, with franz-go, against any Kafka server, and prints what
// happened as JSON, one object a line. test/clients drives it.
//
//	franz-go '{"do":"produce","bootstrap":"127.0.0.1:9092","topic":"t","codec":"zstd","input":"records.jsonl"}'
//
// What it can do, and which fields of the request each uses:
//
//	create   topic, partitions, config
//	produce  topic, codec, input (a file of records, one a line)
//	consume  topic: everything up to the ends that it finds at the start
//	seek     topic, time: everything from the first record at or after time on
//	member   topic, group, instance, balancer: until stdin ends
//
// The driver for kafkajs takes and prints the same.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type request struct {
	Do         string            `json:"do"`
	Bootstrap  string            `json:"bootstrap"`
	Topic      string            `json:"topic"`
	Partitions int32             `json:"partitions"`
	Config     map[string]string `json:"config"`
	Codec      string            `json:"codec"`
	Input      string            `json:"input"`
	Time       int64             `json:"time"` // ms since 1970
	Group      string            `json:"group"`
	Instance   string            `json:"instance"`
	Balancer   string            `json:"balancer"` // range, cooperative-sticky or server (KIP-848)
}

// record is one record, in and out. Null keys, values and header values are null.
type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"` // ms since 1970
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "franz-go:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("want one argument, a request as JSON")
	}
	var r request
	if err := json.Unmarshal([]byte(os.Args[1]), &r); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	// Nothing that a test asks for takes this long.
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	buffered := bufio.NewWriterSize(os.Stdout, 1<<16)
	out := output{json.NewEncoder(buffered), buffered}
	var err error
	switch r.Do {
	case "create":
		err = create(ctx, r)
	case "produce":
		err = produce(ctx, r, out)
	case "consume", "seek":
		err = consume(ctx, r, out)
	case "member":
		err = member(ctx, r, out)
	default:
		err = fmt.Errorf("knows no %q", r.Do)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", r.Do, r.Topic, err)
	}
	return buffered.Flush()
}

type output struct {
	*json.Encoder
	buffered *bufio.Writer
}

func client(r request, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(r.Bootstrap), kgo.ClientID("franz-go-driver")}, opts...)...)
}

func create(ctx context.Context, r request) error {
	cl, err := client(r)
	if err != nil {
		return err
	}
	defer cl.Close()
	config := map[string]*string{}
	for k, v := range r.Config {
		config[k] = &v
	}
	created, err := kadm.NewClient(cl).CreateTopic(ctx, r.Partitions, 1, config, r.Topic)
	if err != nil {
		return err
	}
	if created.NumPartitions != r.Partitions {
		return fmt.Errorf("the answer says %d partitions, want %d", created.NumPartitions, r.Partitions)
	}
	// A second one of that name must be refused, by the right error.
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, r.Partitions, 1, nil, r.Topic); err == nil || err.Error() != kerr.TopicAlreadyExists.Error() {
		return fmt.Errorf("create it again: %v, want %v", err, kerr.TopicAlreadyExists)
	}
	return nil
}
