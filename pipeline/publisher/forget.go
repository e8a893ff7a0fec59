package publisher

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/pipeline/event"
)

// forgetAfter is how long a record is tried in the mode fire-and-forget.
const forgetAfter = 30 * time.Second

// runForgetting publishes what is committed here, from memory. A crash, a broker
// that stays away or a list that runs over loses events on the topics; they are
// counted where they can be, and all are in the ledger.
func (p *Publisher) runForgetting(ctx context.Context) error {
	pause := newBackoff(p.o.Pause)
	for ctx.Err() == nil {
		client, limit, err := p.connect(ctx, kgo.RecordDeliveryTimeout(forgetAfter))
		if err != nil {
			wait := pause.next()
			p.o.Logger.Warn("Kafka cannot be reached; events are lost to the topics meanwhile", "error", err, "again_in", wait)
			sleep(ctx, wait)
			continue
		}
		p.stats.sessions.Add(1)
		p.forget(ctx, client, limit)
		goodbye, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeWithin)
		_ = client.Flush(goodbye) // what does not make it is counted by its promise
		cancel()
		client.Close()
	}
	return nil
}

func (p *Publisher) forget(ctx context.Context, client *kgo.Client, limit int) {
	for {
		events := p.recent.drain()
		for i := range events {
			p.fire(ctx, client, limit, &events[i])
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-p.recent.wake:
		case <-ctx.Done():
			return
		}
	}
}

// fire sends an event's records on their way and does not look back.
func (p *Publisher) fire(ctx context.Context, client *kgo.Client, limit int, e *event.Event) {
	records, err := p.records(e, limit)
	if err != nil {
		p.stats.skipped.Add(1)
		p.o.Logger.Error("an event cannot be published; it stays in the ledger", "position", e.Position, "error", err)
		return
	}
	for i, r := range records {
		// The context of Run would take back what was sent before it ended.
		client.TryProduce(context.WithoutCancel(ctx), r, func(_ *kgo.Record, err error) {
			switch {
			case err != nil:
				p.stats.failed.Add(1)
				p.stats.lost.Add(1)
				p.o.Logger.Warn("an event was not published; it stays in the ledger", "position", e.Position, "error", err)
			case i == 0:
				p.stats.published.Add(1)
			}
		})
	}
}
