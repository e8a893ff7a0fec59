package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// writer is one idempotent producer with acks=all. Its client lives through all the
// node's lives, so that it goes on with its sequence when the node is back.
type writer struct {
	name   string
	topic  *topic
	client *kgo.Client
	rate   int // records a second, about
	next   int
	flying atomic.Int64
}

// ticks is how often in a second a writer writes.
const ticks = 10

// filler returns 40 to 400 bytes that do not compress much.
func filler(rng *rand.Rand) []byte {
	b := make([]byte, 40+rng.IntN(360))
	for i := range b {
		b[i] = byte(' ' + rng.IntN(90))
	}
	return b
}

func newWriter(s *soak, name string, t *topic, rate int, codec kgo.CompressionCodec) *writer {
	c := s.dial(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(5*time.Millisecond))
	s.t.Cleanup(c.Close)
	return &writer{name: name, topic: t, client: c, rate: rate}
}

// record is the writer's next: the header says whose it is and which. Records of one
// writer in one partition have ascending numbers.
func (w *writer) record(rng *rand.Rand, partition int32, key []byte) *kgo.Record {
	r := &kgo.Record{
		Topic: w.topic.name, Partition: partition, Key: key, Value: filler(rng),
		Headers: []kgo.RecordHeader{{Key: "w", Value: fmt.Appendf(nil, "%s %d", w.name, w.next)}},
	}
	w.next++
	return r
}

// run writes until the run ends. It waits for answers only when much is unanswered:
// the client keeps what is in flight through a restart and delivers it then.
func (w *writer) run(s *soak, rng *rand.Rand) {
	for s.sleep(time.Second / ticks) {
		for range w.rate / ticks {
			if w.flying.Load() > int64(4*w.rate) {
				break
			}
			w.send(s, w.record(rng, int32(rng.IntN(len(w.topic.ledgers))), nil), nil)
		}
	}
}

// send produces a record and notes what is acknowledged; then is called after that.
func (w *writer) send(s *soak, r *kgo.Record, then func(*kgo.Record)) {
	w.flying.Add(1)
	w.client.Produce(context.Background(), r, func(r *kgo.Record, err error) {
		defer w.flying.Add(-1)
		switch {
		case errors.Is(err, kgo.ErrClientClosed): // the run was ended by an error
		case err != nil:
			s.wrong("%s: produce %s to %s/%d: %v", w.name, r.Headers[0].Value, r.Topic, r.Partition, err)
		default:
			s.note(w.topic, r)
			if then != nil {
				then(r)
			}
		}
	})
}

// flush delivers what is in flight.
func (w *writer) flush(s *soak) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := w.client.Flush(ctx); err != nil {
		s.wrong("%s: %d records are not answered: %v", w.name, w.flying.Load(), err)
	}
}
