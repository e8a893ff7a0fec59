package publisher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// chunk is how many events are read from the ledger at once.
const chunk = 512

// goodbyeWithin bounds what a session does after its context has ended.
const goodbyeWithin = 5 * time.Second

// errLeaseLost ends a session whose lease another has.
var errLeaseLost = lattice.E(lattice.Fenced, errors.New("another publisher has taken over, or the cursor was moved"))

// session publishes with one producer, from the cursor of the lease on.
type session struct {
	p      *Publisher
	client *kgo.Client
	limit  int // bytes that a record may have
	stop   context.CancelCauseFunc
	room   chan struct{} // holds one signal: fewer events are in flight

	mu sync.Mutex
	// flight holds what is produced and not acknowledged, in order of positions:
	// how many topics each still waits for. flight[0] is position low+1.
	flight []int
	low    int64
}

// session publishes until something fails, and says what.
func (p *Publisher) session(ctx context.Context, held ledger.Lease) error {
	p.stats.sessions.Add(1)
	p.stats.leading.Store(true)
	defer p.stats.leading.Store(false)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	client, limit, err := p.connect(ctx, kgo.UnknownTopicRetries(4))
	if err != nil {
		// Whoever waits for the lease may have a better connection.
		goodbye, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeWithin)
		defer cancel()
		return errors.Join(err, p.ledger.Release(goodbye, held, held.Position))
	}
	s := &session{p: p, client: client, limit: limit, stop: stop, room: make(chan struct{}, 1), low: held.Position}
	p.stats.cursor.Store(s.low)

	var keeper sync.WaitGroup
	keeper.Go(func() { held = s.keep(ctx, held) })
	err = s.publish(ctx)
	stop(err) // the keeper's cause, if that was first
	// Nothing of this session is sent after this: an event that was given up here
	// and one of the next session must not overtake each other.
	client.Close()
	keeper.Wait()
	p.stats.inFlight.Store(0)

	err = context.Cause(ctx)
	if errors.Is(err, errLeaseLost) {
		return err
	}
	goodbye, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeWithin)
	defer cancel()
	return errors.Join(err, p.ledger.Release(goodbye, held, s.cursor()))
}

// connect makes a producer and the topics.
func (p *Publisher) connect(ctx context.Context, more ...kgo.Opt) (*kgo.Client, int, error) {
	var specs []topic.Spec
	var names []string
	for _, s := range []topic.Spec{p.o.Projection, p.o.Ledger} {
		if s.Name != "" {
			specs, names = append(specs, s), append(names, s.Name)
		}
	}
	// Kafka's own partitioner (murmur2 of the key) is kgo's default: consumers of
	// other programs find an entity where they look for it.
	base := append([]kgo.Opt{
		kgo.ClientID("lattice-publisher"), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.MaxBufferedRecords(4 * p.o.MaxInFlight), // more than ever are: Produce does not block
	}, p.o.Kafka...)
	admin, err := kgo.NewClient(base...)
	if err != nil {
		return nil, 0, lattice.E(lattice.Invalid, fmt.Errorf("connect to Kafka: %w", err))
	}
	defer admin.Close()
	if err := topic.Ensure(ctx, admin, specs...); err != nil {
		return nil, 0, err
	}
	limit := topic.MaxBytes(ctx, admin, names...)
	client, err := kgo.NewClient(append(append(base, kgo.ProducerBatchMaxBytes(int32(limit))), more...)...)
	if err != nil {
		return nil, 0, lattice.E(lattice.Invalid, fmt.Errorf("connect to Kafka: %w", err))
	}
	return client, limit, nil
}

// publish produces what follows the cursor until the context ends.
func (s *session) publish(ctx context.Context) error {
	next := s.low + 1
	poll := time.NewTicker(s.p.o.PollEvery)
	defer poll.Stop()
	for {
		events, err := s.read(ctx, next)
		if err != nil {
			return err
		}
		for i := range events {
			if err := s.produce(ctx, &events[i]); err != nil {
				return err
			}
			next++
		}
		if len(events) > 0 {
			continue
		}
		select {
		case <-s.p.recent.wake:
		case <-poll.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// read returns events from a position on: from memory or from the ledger.
func (s *session) read(ctx context.Context, next int64) ([]event.Event, error) {
	if events := s.p.recent.take(next, chunk); len(events) > 0 {
		return events, nil
	}
	events, err := s.p.ledger.Events(ctx, next-1, chunk)
	if err != nil {
		return nil, err
	}
	for i := range events {
		if events[i].Position != next+int64(i) {
			return nil, lattice.E(lattice.Corrupt, fmt.Errorf("the ledger has position %d where %d should be", events[i].Position, next+int64(i)))
		}
	}
	s.p.stats.fromLedger.Add(int64(len(events)))
	return events, nil
}

// produce sends one event on its way to each topic.
func (s *session) produce(ctx context.Context, e *event.Event) error {
	for !s.admit() {
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	records, err := s.p.records(e, s.limit)
	if err != nil {
		// No retry will help, and what follows must not wait for ever.
		s.p.o.Logger.Error("an event cannot be published; it stays in the ledger", "position", e.Position, "type", e.EventType, "error", err)
		if err := s.p.ledger.Skip(ctx, s.p.o.Name, ledger.Skipped{Position: e.Position, Error: err.Error(), At: time.Now().UnixMilli()}); err != nil {
			return err
		}
		s.p.stats.skipped.Add(1)
		s.start(0)
		return nil
	}
	s.start(len(records))
	for _, r := range records {
		s.client.Produce(ctx, r, func(r *kgo.Record, err error) { s.end(e.Position, r, err) })
	}
	return nil
}

// admit reports whether one more event may be in flight.
func (s *session) admit() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flight) < s.p.o.MaxInFlight
}

// start notes that the next event waits for n topics.
func (s *session) start(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flight = append(s.flight, n)
	s.settle()
}

// end is kgo's promise: a record is acknowledged, or never will be.
func (s *session) end(position int64, r *kgo.Record, err error) {
	if err != nil {
		s.p.stats.failed.Add(1)
		s.stop(fmt.Errorf("publish position %d to %s: %w", position, r.Topic, err))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := position - s.low - 1
	if s.flight[i]--; s.flight[i] == 0 {
		s.p.stats.published.Add(1)
	}
	s.settle()
}

// settle moves the cursor over what is acknowledged. The caller holds mu.
func (s *session) settle() {
	n := 0
	for n < len(s.flight) && s.flight[n] == 0 {
		n++
	}
	s.flight = s.flight[n:]
	s.low += int64(n)
	s.p.stats.cursor.Store(s.low)
	s.p.stats.inFlight.Store(int64(len(s.flight)))
	if n > 0 {
		select {
		case s.room <- struct{}{}:
		default:
		}
	}
}

func (s *session) cursor() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.low
}

// keep holds the lease and lets the cursor in the ledger follow. If the lease is
// lost, or could not be renewed for most of its time, it ends the session.
func (s *session) keep(ctx context.Context, held ledger.Lease) ledger.Lease {
	beat := min(s.p.o.CursorEvery, s.p.o.LeaseFor/4)
	alive := time.Now()
	for {
		sleep(ctx, beat)
		if ctx.Err() != nil {
			return held
		}
		cursor := s.cursor()
		if cursor == held.Position && time.Since(alive) < s.p.o.LeaseFor/4 {
			continue // nothing to say yet
		}
		now := time.Now()
		next, ok, err := s.p.ledger.Renew(ctx, held, cursor)
		switch {
		case err == nil && ok:
			held, alive = next, now
		case err == nil:
			s.stop(errLeaseLost)
		case time.Since(alive) > s.p.o.LeaseFor/2:
			s.stop(fmt.Errorf("the lease could not be renewed in time: %w", err))
		default:
			s.p.o.Logger.Warn("the cursor could not be written", "error", err)
		}
	}
}
