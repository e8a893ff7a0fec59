package publisher

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
)

// overhead is what a batch and a record take beside key, value and headers, and a
// little.
const overhead = 256

// records makes the messages of an event, one for each topic, of at most limit bytes.
func (p *Publisher) records(e *event.Event, limit int) ([]*kgo.Record, error) {
	var headers []kgo.RecordHeader
	for _, h := range e.Headers() {
		headers = append(headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	var records []*kgo.Record
	add := func(topic string, encode func() ([]byte, error)) error {
		if topic == "" {
			return nil
		}
		value, err := encode()
		if err != nil {
			return err
		}
		records = append(records, &kgo.Record{Topic: topic, Key: []byte(e.EntityID), Value: value, Headers: headers})
		return nil
	}
	m := e.Projection()
	if err := add(p.o.Projection.Name, m.Encode); err != nil {
		return nil, err
	}
	if err := add(p.o.Ledger.Name, e.Encode); err != nil {
		return nil, err
	}
	return records, fits(records, limit)
}

// fits reports what is larger than a topic allows.
func fits(records []*kgo.Record, limit int) error {
	for _, r := range records {
		n := overhead + len(r.Key) + len(r.Value)
		for _, h := range r.Headers {
			n += len(h.Key) + len(h.Value) + 10
		}
		if n > limit {
			return lattice.E(lattice.TooLarge, fmt.Errorf("a record of %d bytes for topic %s, whose max.message.bytes is %d", n, r.Topic, limit))
		}
	}
	return nil
}

// Republish publishes events of the ledger once more, by hand, whatever the
// cursor says, and returns when they are acknowledged. They come behind what is on
// the topics already, so projectors that have seen them pass over them.
func (p *Publisher) Republish(ctx context.Context, events ...event.Event) error {
	client, limit, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	var all []*kgo.Record
	for i := range events {
		records, err := p.records(&events[i], limit)
		if err != nil {
			return fmt.Errorf("publish position %d again: %w", events[i].Position, err)
		}
		all = append(all, records...)
	}
	if err := client.ProduceSync(ctx, all...).FirstErr(); err != nil {
		return lattice.E(lattice.Unavailable, fmt.Errorf("publish %d events again: %w", len(events), err))
	}
	return nil
}
