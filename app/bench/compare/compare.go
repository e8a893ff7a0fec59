// Package compare measures several servers in one run and says how they compare:
// the same work, in rounds of alternating order, one server at a time, and of each
// figure the median. What a server is and how it is spoken to is the caller's.
//
// Only peers of one Class may be compared: an acknowledgement that follows a sync
// costs what one out of the page cache does not. Client and server share the
// machine, so that a rate says as much about the client: the server's CPU
// seconds for a million records are the steadier figure.
package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lattice-log/lattice/app/bench"
)

// Class says what an acknowledgement means.
type Class string

const (
	Durable   Class = "durable"    // it follows a sync of the disk
	PageCache Class = "page cache" // it does not: a power cut takes what the kernel held
	Discards  Class = "discards"   // nothing is kept: what the client can do
)

// Work is what a server is asked to do with one topic.
type Work struct {
	Size       int   // bytes of a record's value
	Partitions int32 // of the topic
	Records    int64 // at most
	Within     time.Duration
	Syncs      int           // records produced one at a time
	Rate       int           // records a second, from producer to consumer
	For        time.Duration // for how long
}

// Peer is a server that can be started.
type Peer struct {
	Name  string // the same in every class
	Class Class
	How   string // what makes it one of its class
	Start func(ctx context.Context) (Server, error)
}

// ErrNotServed means that this server cannot do that work at all.
var ErrNotServed = errors.New("compare: not served")

// Server is a running peer. One method at a time is called.
type Server interface {
	Version() string
	PID() int
	Create(ctx context.Context, topic string, partitions int32) error
	Delete(ctx context.Context, topic string) error
	// Produce writes records as fast as they are taken.
	Produce(ctx context.Context, topic string, w Work) (bench.Result, error)
	// Consume reads w.Records records from the topic's start.
	Consume(ctx context.Context, topic string, w Work) (bench.Result, error)
	// Latency measures records one at a time, and from producer to consumer.
	Latency(ctx context.Context, topic string, w Work) (bench.Result, error)
	// Second does the work of Produce and of Consume with another client.
	Second(ctx context.Context, topic string, w Work) (produced, consumed bench.Result, err error)
	// Stop ends the process and removes its data.
	Stop() error
}

// Plan is what a run measures.
type Plan struct {
	Rounds     int
	Budget     time.Duration // no round begins that would likely end later; 0: no limit
	Sizes      []int         // bytes of a value
	Partitions []int32       // of a topic
	Records    map[int]int64
	Within     time.Duration
	Syncs      int
	Rate       int
	For        time.Duration
	Second     int64 // records for the second client, of the first size
	// Settle is called before each measurement, so that none pays for what the
	// one before left to the kernel. It may be nil.
	Settle func()
	// Say is told what is measured. It may be nil.
	Say func(format string, args ...any)
}

// Run measures all peers, and returns in how many rounds. A peer that fails is
// among them with the reason; the error is of the context.
func (p Plan) Run(ctx context.Context, peers []Peer) (_ []Measured, rounds int, _ error) {
	all := make([]Measured, len(peers))
	for i, peer := range peers {
		all[i] = Measured{Name: peer.Name, Class: peer.Class, How: peer.How, Figures: map[string]*Figure{}}
	}
	t := turns{p.Rounds, p.Budget, p.Say}
	rounds, err := t.run(ctx, all, func(i int) error { return p.one(ctx, peers[i], &all[i]) })
	return all, rounds, err
}

// turns is how often peers are measured, and what is told of it.
type turns struct {
	rounds int
	budget time.Duration // the last rounds are left out when they would take longer; 0: never
	tell   func(format string, args ...any)
}

// run calls one with each peer's number, in rounds of alternating order, and
// returns in how many rounds. A peer that fails is left out from then on.
func (t turns) run(ctx context.Context, all []Measured, one func(i int) error) (rounds int, _ error) {
	began := time.Now()
	for round := range t.rounds {
		if spent := time.Since(began); round > 0 && t.budget > 0 && spent+spent/time.Duration(round) > t.budget {
			t.say("no time for round %d: %v of %v are spent", round+1, spent.Round(time.Second), t.budget)
			return round, nil
		}
		order := make([]int, len(all))
		for i := range order {
			order[i] = i
		}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			m := &all[i]
			if m.Failed != "" {
				continue
			}
			t.say("round %d of %d: %s, %s", round+1, t.rounds, m.Name, m.Class)
			if err := one(i); err != nil {
				if ctx.Err() != nil {
					return round, ctx.Err()
				}
				m.Failed = err.Error()
				t.say("%s, %s: %v", m.Name, m.Class, err)
			}
		}
	}
	return t.rounds, nil
}

func (t turns) say(format string, args ...any) {
	if t.tell != nil {
		t.tell(format, args...)
	}
}

func (p Plan) settle() {
	if p.Settle != nil {
		p.Settle()
	}
}

// one starts a peer, measures everything once, and stops it.
func (p Plan) one(ctx context.Context, peer Peer, m *Measured) (err error) {
	s, err := peer.Start(ctx)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	m.Version = s.Version()
	// First, not measured: code is compiled, memory is touched, the client is warm.
	for _, size := range p.Sizes {
		if err := p.bulk(ctx, s, Work{Size: size, Partitions: 1, Records: p.Records[size], Within: p.Within}, nil); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	for _, size := range p.Sizes {
		for _, partitions := range p.Partitions {
			w := Work{Size: size, Partitions: partitions, Records: p.Records[size], Within: p.Within}
			if err := p.bulk(ctx, s, w, m); err != nil {
				return fmt.Errorf("%d bytes, %d partitions: %w", size, partitions, err)
			}
		}
	}
	if err := p.latency(ctx, s, m); err != nil {
		return fmt.Errorf("latency: %w", err)
	}
	// Before the second client, whose batches are its own: memory is of the same work.
	if _, peak := bench.Memory(s.PID()); peak > 0 {
		m.add(Memory, float64(peak))
	}
	if err := p.second(ctx, s, m); err != nil {
		return fmt.Errorf("second client: %w", err)
	}
	return nil
}

// topic runs do on a new topic.
func (p Plan) topic(ctx context.Context, s Server, partitions int32, do func(topic string) error) (err error) {
	name := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	if err := s.Create(ctx, name, partitions); err != nil {
		return fmt.Errorf("create a topic: %w", err)
	}
	defer func() { err = errors.Join(err, s.Delete(ctx, name)) }()
	p.settle()
	return do(name)
}

// bulk writes and reads as fast as it goes. m may be nil.
func (p Plan) bulk(ctx context.Context, s Server, w Work, m *Measured) error {
	return p.topic(ctx, s, w.Partitions, func(topic string) error {
		made, err := s.Produce(ctx, topic, w)
		if err != nil {
			return fmt.Errorf("produce: %w", err)
		}
		m.addBulk(Produce, w, made)
		w.Records = made.Records
		p.settle()
		read, err := s.Consume(ctx, topic, w)
		if errors.Is(err, ErrNotServed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		m.addBulk(Consume, w, read)
		return nil
	})
}

func (p Plan) latency(ctx context.Context, s Server, m *Measured) error {
	w := Work{Size: p.Sizes[0], Partitions: 1, Syncs: p.Syncs, Rate: p.Rate, For: p.For}
	return p.topic(ctx, s, 1, func(topic string) error {
		r, err := s.Latency(ctx, topic, w)
		if err != nil {
			return err
		}
		for name, v := range map[string]*float64{
			OneP50: r.SyncP50Ms, OneP99: r.SyncP99Ms, WayP50: r.DeliverP50Ms, WayP99: r.DeliverP99Ms,
		} {
			if v != nil {
				m.add(name, *v)
			}
		}
		return nil
	})
}

func (p Plan) second(ctx context.Context, s Server, m *Measured) error {
	w := Work{Size: p.Sizes[0], Partitions: 1, Records: p.Second}
	return p.topic(ctx, s, 1, func(topic string) error {
		made, read, err := s.Second(ctx, topic, w)
		if errors.Is(err, ErrNotServed) {
			return nil
		}
		if err != nil {
			return err
		}
		m.addResult(SecondProduce, made)
		if read.Records > 0 {
			m.addResult(SecondConsume, read)
		}
		return nil
	})
}
