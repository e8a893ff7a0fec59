package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/lattice-log/lattice/test/go-clients/driver"
)

func produce(r driver.Request) (out driver.Answer, err error) {
	c := base()
	c.Producer.Idempotent = true
	c.Net.MaxOpenRequests = 1 // it asks for that
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Producer.MaxMessageBytes = 64 << 20
	if err := c.Producer.Compression.UnmarshalText([]byte(r.Codec)); err != nil {
		return out, err
	}
	p, err := sarama.NewSyncProducer([]string{r.Bootstrap}, c)
	if err != nil {
		return out, err
	}
	defer p.Close()
	var sent []*sarama.ProducerMessage
	for _, k := range r.Records {
		m := &sarama.ProducerMessage{Topic: r.Topic}
		if k.Timestamp != 0 {
			m.Timestamp = time.UnixMilli(k.Timestamp)
		}
		if k.Key != nil {
			m.Key = sarama.ByteEncoder(k.Key)
		}
		if k.Value != nil {
			m.Value = sarama.ByteEncoder(k.Value)
		}
		for _, h := range k.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		sent = append(sent, m)
	}
	if err := p.SendMessages(sent); err != nil {
		var all sarama.ProducerErrors
		if errors.As(err, &all) {
			err = all[0].Err
		}
		return out, err
	}
	for i, k := range r.Records {
		k.Partition, k.Offset = sent[i].Partition, sent[i].Offset
		out.Records = append(out.Records, k)
	}
	return out, nil
}

func consume(r driver.Request) (out driver.Answer, err error) {
	c := base()
	c.Consumer.Return.Errors = true
	c.Consumer.MaxWaitTime = 200 * time.Millisecond
	client, err := sarama.NewClient([]string{r.Bootstrap}, c)
	if err != nil {
		return out, err
	}
	defer client.Close()
	parts, err := client.Partitions(r.Topic)
	if err != nil {
		return out, err
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return out, err
	}
	defer consumer.Close()
	for _, p := range parts {
		records, err := readPartition(client, consumer, r, p)
		if err != nil {
			return out, err
		}
		out.Records = append(out.Records, records...)
	}
	return out, nil
}

func readPartition(client sarama.Client, consumer sarama.Consumer, r driver.Request, p int32) (out []driver.Record, err error) {
	end, err := client.GetOffset(r.Topic, p, sarama.OffsetNewest)
	if err != nil {
		return nil, err
	}
	when := sarama.OffsetOldest
	if r.Do == "seek" {
		when = r.Time
	}
	at, err := client.GetOffset(r.Topic, p, when)
	if err != nil {
		return nil, err
	}
	if r.Do == "beyond" {
		at = end + 1000
	} else if at < 0 || at >= end {
		return nil, nil
	}
	pc, err := consumer.ConsumePartition(r.Topic, p, at)
	if err != nil {
		return nil, err
	}
	defer pc.Close()
	for {
		select {
		case m := <-pc.Messages():
			k := driver.Record{Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(), Key: m.Key, Value: m.Value}
			for _, h := range m.Headers {
				k.Headers = append(k.Headers, driver.Header{Key: string(h.Key), Value: h.Value})
			}
			if out = append(out, k); m.Offset+1 >= end {
				return out, nil
			}
		case e := <-pc.Errors():
			return nil, e.Err
		case <-time.After(30 * time.Second):
			return nil, errors.New("nothing to read for 30 s")
		}
	}
}

// session tells what a member gets.
type session struct {
	topic string
	tell  func(driver.Event)
}

func (s session) Setup(c sarama.ConsumerGroupSession) error {
	s.tell(driver.Event{Event: "assigned", Partitions: c.Claims()[s.topic]})
	return nil
}

func (s session) Cleanup(c sarama.ConsumerGroupSession) error {
	s.tell(driver.Event{Event: "revoked", Partitions: c.Claims()[s.topic]})
	return nil
}

func (s session) ConsumeClaim(c sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for m := range claim.Messages() {
		s.tell(driver.Event{Event: "read", Partition: m.Partition, Offset: m.Offset})
		c.MarkMessage(m, "")
	}
	return nil
}

func member(ctx context.Context, r driver.Request, tell func(driver.Event)) error {
	c := base()
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Interval = 500 * time.Millisecond
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	c.Consumer.Group.Heartbeat.Interval = 300 * time.Millisecond
	ways := map[string]sarama.BalanceStrategy{
		"range":      sarama.NewBalanceStrategyRange(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
		"sticky":     sarama.NewBalanceStrategySticky(),
	}
	way, ok := ways[r.Balancer]
	if !ok {
		return fmt.Errorf("knows no balancer %q", r.Balancer)
	}
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{way}
	g, err := sarama.NewConsumerGroup([]string{r.Bootstrap}, r.Group, c)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := g.Consume(ctx, []string{r.Topic}, session{r.Topic, tell}); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return g.Close()
}
