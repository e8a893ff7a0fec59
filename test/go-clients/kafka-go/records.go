package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/lattice-log/lattice/test/go-clients/driver"
)

func produce(ctx context.Context, r driver.Request) (out driver.Answer, err error) {
	t := &kafka.Transport{ClientID: "kafka-go-driver"}
	defer t.CloseIdleConnections()
	w := &kafka.Writer{
		Transport: t, Addr: kafka.TCP(r.Bootstrap), Topic: r.Topic, Balancer: &kafka.Murmur2Balancer{}, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond, BatchBytes: 64 << 20, MaxAttempts: 3,
	}
	defer w.Close()
	if r.Codec != "none" {
		if err := w.Compression.UnmarshalText([]byte(r.Codec)); err != nil {
			return out, err
		}
	}
	acked := make([]driver.Record, len(r.Records))
	w.Completion = func(all []kafka.Message, err error) {
		for _, m := range all {
			i := m.WriterData.(int)
			acked[i] = r.Records[i]
			acked[i].Partition, acked[i].Offset = int32(m.Partition), m.Offset
		}
	}
	var all []kafka.Message
	for i, k := range r.Records {
		m := kafka.Message{Key: k.Key, Value: k.Value, WriterData: i}
		if k.Timestamp != 0 {
			m.Time = time.UnixMilli(k.Timestamp)
		}
		for _, h := range k.Headers {
			m.Headers = append(m.Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
		all = append(all, m)
	}
	if err := w.WriteMessages(ctx, all...); err != nil {
		var many kafka.WriteErrors
		if errors.As(err, &many) {
			err = many[0]
		}
		return out, err
	}
	out.Records = acked
	return out, nil
}

func consume(ctx context.Context, c *kafka.Client, r driver.Request) (out driver.Answer, err error) {
	n, err := partitions(ctx, c, r.Topic)
	if err != nil {
		return out, err
	}
	for p := range n {
		records, err := readPartition(ctx, c, r, p)
		if err != nil {
			return out, err
		}
		out.Records = append(out.Records, records...)
	}
	return out, nil
}

func readPartition(ctx context.Context, c *kafka.Client, r driver.Request, p int) (out []driver.Record, err error) {
	ask := func(o kafka.OffsetRequest) (kafka.PartitionOffsets, error) {
		resp, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{r.Topic: {o}}})
		if err != nil {
			return kafka.PartitionOffsets{}, err
		}
		return resp.Topics[r.Topic][0], resp.Topics[r.Topic][0].Error
	}
	last, err := ask(kafka.LastOffsetOf(p))
	if err != nil {
		return nil, err
	}
	first, err := ask(kafka.FirstOffsetOf(p))
	if err != nil {
		return nil, err
	}
	at := first.FirstOffset
	switch r.Do {
	case "seek":
		found, err := ask(kafka.TimeOffsetOf(p, time.UnixMilli(r.Time)))
		if err != nil {
			return nil, err
		}
		at = last.LastOffset
		for o := range found.Offsets {
			at = o
		}
	case "beyond":
		resp, err := c.Fetch(ctx, &kafka.FetchRequest{Topic: r.Topic, Partition: p, Offset: last.LastOffset + 1000, MinBytes: 1, MaxBytes: 1 << 20, MaxWait: 200 * time.Millisecond})
		if err != nil {
			return nil, err
		}
		return nil, resp.Error
	}
	if at < 0 || at >= last.LastOffset {
		return nil, nil
	}
	k := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{r.Bootstrap}, Topic: r.Topic, Partition: p, MaxWait: 200 * time.Millisecond, MaxBytes: 64 << 20})
	defer k.Close()
	if err := k.SetOffset(at); err != nil {
		return nil, err
	}
	for {
		m, err := k.ReadMessage(ctx)
		if err != nil {
			return nil, err
		}
		d := driver.Record{Partition: int32(m.Partition), Offset: m.Offset, Timestamp: m.Time.UnixMilli(), Key: m.Key, Value: m.Value}
		for _, h := range m.Headers {
			d.Headers = append(d.Headers, driver.Header{Key: h.Key, Value: h.Value})
		}
		if out = append(out, d); m.Offset+1 >= last.LastOffset {
			return out, nil
		}
	}
}

// member uses ConsumerGroup, on which the reader for groups is built, since
// that tells which partitions are the member's.
func member(ctx context.Context, r driver.Request, tell func(driver.Event)) error {
	ways := map[string]kafka.GroupBalancer{"range": kafka.RangeGroupBalancer{}, "roundrobin": kafka.RoundRobinGroupBalancer{}}
	way, ok := ways[r.Balancer]
	if !ok {
		return fmt.Errorf("knows no balancer %q", r.Balancer)
	}
	g, err := kafka.NewConsumerGroup(kafka.ConsumerGroupConfig{
		ID: r.Group, Brokers: []string{r.Bootstrap}, Topics: []string{r.Topic}, GroupBalancers: []kafka.GroupBalancer{way},
		HeartbeatInterval: 300 * time.Millisecond, StartOffset: kafka.FirstOffset,
	})
	if err != nil {
		return err
	}
	defer g.Close()
	for {
		gen, err := g.Next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var mine []int32
		for _, a := range gen.Assignments[r.Topic] {
			mine = append(mine, int32(a.ID))
		}
		tell(driver.Event{Event: "assigned", Partitions: mine})
		for _, a := range gen.Assignments[r.Topic] {
			gen.Start(func(over context.Context) {
				defer tell(driver.Event{Event: "revoked", Partitions: []int32{int32(a.ID)}})
				read(over, r, gen, a, tell)
			})
		}
	}
}

// read reads one partition, and commits each record, until its generation is over.
func read(over context.Context, r driver.Request, gen *kafka.Generation, a kafka.PartitionAssignment, tell func(driver.Event)) {
	k := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{r.Bootstrap}, Topic: r.Topic, Partition: a.ID, MaxWait: 100 * time.Millisecond})
	defer k.Close()
	if err := k.SetOffset(a.Offset); err != nil {
		panic(err)
	}
	for {
		m, err := k.ReadMessage(over)
		if err != nil {
			return // the generation is over
		}
		tell(driver.Event{Event: "read", Partition: int32(m.Partition), Offset: m.Offset})
		if err := gen.CommitOffsets(map[string]map[int]int64{r.Topic: {a.ID: m.Offset + 1}}); err != nil {
			return // likewise: the next one reads it again
		}
	}
}
