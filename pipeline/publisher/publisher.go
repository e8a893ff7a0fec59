// Package publisher carries the ledger's events to Kafka, in the ledger's order
// for each entity.
//
// # The three modes
//
//	healing           what was just committed is published from memory; what was
//	                  missed, from the ledger, behind a cursor
//	outbox            only from the ledger, behind the same cursor
//	fire-and-forget   only from memory; what fails is counted and gone
//
// # What healing and outbox promise
//
// Every event is published at least once, after it is durable in the ledger. Of
// one entity, the first time that each event is on the topic is in the order of
// its sequence numbers; a run of them may come again. An event that no broker
// would take, since it is larger than the topic allows, is passed over, counted,
// and remembered in the ledger (Ledger.Skips).
//
// One publisher of a name works at a time, among all processes that share a
// ledger: it holds a lease (ledger.Lease). Others wait for it to end.
//
// # Life of a publication
//
//  1. The event is durable in the ledger. A crash here loses nothing: the cursor
//     lies below it.
//  2. It is produced to both topics: idempotent, acks=all, without a limit of
//     retries, so a broker that is away delays it. While more than MaxInFlight
//     events are not acknowledged, no more are read. A crash here may leave it
//     on none, one or both topics; it comes again.
//  3. Both are acknowledged. The cursor in memory moves over it once all below
//     are, too. A crash here makes it come again.
//  4. The cursor in the ledger follows, at most CursorEvery later.
//
// A record that is refused ends the session: what is under way is let go, and a
// new one begins behind the last acknowledged event, after a pause.
//
// # What it does not do
//
// It adds nothing to a commit but an append to a list in memory (Committed), and
// never makes one fail. It does not know what projectors do with an event.
package publisher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// Mode says what becomes of an event whose publication fails.
type Mode string

// Modes.
const (
	Healing       Mode = "healing"
	Outbox        Mode = "outbox"
	FireAndForget Mode = "fire-and-forget"
)

// ParseMode reads a mode's name.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Healing, Outbox, FireAndForget:
		return m, nil
	}
	return "", lattice.E(lattice.Invalid, fmt.Errorf("publish mode %q: want %s, %s or %s", s, Healing, Outbox, FireAndForget))
}

// Options say how to publish.
type Options struct {
	Mode Mode // default Healing
	// Name is the cursor's (default "kafka"): a ledger that is published to two
	// clusters has two.
	Name string
	// Projection is the topic of the projectors, Ledger the catch-up stream. A
	// topic without a name is not written; at least one must have one.
	Projection, Ledger topic.Spec
	// Kafka are the options of the connection: addresses, TLS, SASL.
	Kafka []kgo.Opt

	// TakeOver takes the lease at once: for a ledger that only this process has.
	TakeOver bool
	// LeaseFor is how long a lease outlives its owner (default 5 s).
	LeaseFor time.Duration
	// CursorEvery bounds how much is published again after a crash (default 200 ms).
	CursorEvery time.Duration
	// PollEvery is how often the ledger is asked for what others have committed
	// (default 500 ms).
	PollEvery time.Duration
	// MaxInFlight bounds the events that are not acknowledged (default 4096).
	MaxInFlight int
	// MaxRecent and MaxRecentBytes bound the events that are kept in memory
	// between their commit and their publication (defaults 8192, 16 MiB).
	MaxRecent, MaxRecentBytes int
	// Pause bounds the time between two sessions that fail (default 10 s).
	Pause time.Duration

	Logger *slog.Logger
}

// Publisher publishes one ledger. Committed, Wake and Stats may be called from
// anywhere.
type Publisher struct {
	o      Options
	ledger *ledger.Ledger
	owner  string
	recent *recent
	stats  counters
}

// counters are read by Stats while others count.
type counters struct {
	published, failed, lost, skipped, sessions, fromLedger, cursor, inFlight atomic.Int64
	leading                                                                  atomic.Bool
}

// Stats say what a publisher has done since it was made.
type Stats struct {
	Published  int64 // events that every topic acknowledged
	FromLedger int64 // events that were read from the ledger, not taken from memory
	Failed     int64 // records that were refused, and come again
	Lost       int64 // events that are gone: fire-and-forget only
	Skipped    int64 // events that no broker would take
	Sessions   int64 // starts, over again after failures
	Cursor     int64 // everything up to it is acknowledged
	InFlight   int64 // events that are not acknowledged yet
	Leading    bool  // it holds the lease
}

// New makes a publisher; Run does the work.
func New(l *ledger.Ledger, o Options) (*Publisher, error) {
	if o.Mode == "" {
		o.Mode = Healing
	}
	if _, err := ParseMode(string(o.Mode)); err != nil {
		return nil, err
	}
	if o.Projection.Name == "" && o.Ledger.Name == "" {
		return nil, lattice.E(lattice.Invalid, errors.New("publish: no topic: name the projection topic, the ledger topic or both"))
	}
	if o.Name == "" {
		o.Name = "kafka"
	}
	if err := event.CheckName("publisher's name", o.Name); err != nil {
		return nil, err
	}
	for at, or := range map[*time.Duration]time.Duration{
		&o.LeaseFor: 5 * time.Second, &o.CursorEvery: 200 * time.Millisecond, &o.PollEvery: 500 * time.Millisecond, &o.Pause: 10 * time.Second,
	} {
		if *at <= 0 {
			*at = or
		}
	}
	for at, or := range map[*int]int{&o.MaxInFlight: 4096, &o.MaxRecent: 8192, &o.MaxRecentBytes: 16 << 20} {
		if *at <= 0 {
			*at = or
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // it does not fail
	host, _ := os.Hostname()
	return &Publisher{
		o: o, ledger: l, owner: fmt.Sprintf("%s/%d/%s", host, os.Getpid(), hex.EncodeToString(id)),
		recent: newRecent(o.MaxRecent, o.MaxRecentBytes, o.Mode == FireAndForget),
	}, nil
}

// Committed hands events to the publisher that were committed just now. It does
// not block and never fails: what it cannot keep is read from the ledger, or, in
// the mode fire-and-forget, lost and counted. It is the ledger's callback.
func (p *Publisher) Committed(events []event.Event) {
	if p.o.Mode == Outbox {
		p.Wake()
		return
	}
	if dropped := p.recent.add(events); p.o.Mode == FireAndForget {
		p.stats.lost.Add(int64(dropped))
	}
}

// Wake makes the publisher look into the ledger now: for those who append in
// transactions of their own.
func (p *Publisher) Wake() { p.recent.signal() }

// Stats returns what was done so far.
func (p *Publisher) Stats() Stats {
	c := &p.stats
	return Stats{
		Published: c.published.Load(), FromLedger: c.fromLedger.Load(), Failed: c.failed.Load(), Lost: c.lost.Load(), Skipped: c.skipped.Load(),
		Sessions: c.sessions.Load(), Cursor: c.cursor.Load(), InFlight: c.inFlight.Load(), Leading: c.leading.Load(),
	}
}

// Run publishes until the context ends, and returns nil then. It does not give
// up on errors: it says them and tries again.
func (p *Publisher) Run(ctx context.Context) error {
	if p.o.Mode == FireAndForget {
		return p.runForgetting(ctx)
	}
	pause := newBackoff(p.o.Pause)
	for ctx.Err() == nil {
		held, err := p.lead(ctx)
		if err == nil {
			before := p.stats.published.Load()
			err = p.session(ctx, held)
			if p.stats.published.Load() > before {
				pause.reset()
			}
		}
		if ctx.Err() != nil {
			break
		}
		wait := pause.next()
		p.o.Logger.Warn("publishing stopped; it goes on from the ledger", "error", err, "cursor", p.stats.cursor.Load(), "again_in", wait)
		sleep(ctx, wait)
	}
	return nil
}

// lead waits until this publisher holds the lease.
func (p *Publisher) lead(ctx context.Context) (ledger.Lease, error) {
	var seen ledger.Lease
	since := time.Now()
	for first := true; ; first = false {
		now, err := p.ledger.Lease(ctx, p.o.Name)
		if err != nil {
			return ledger.Lease{}, err
		}
		if first || now != seen {
			seen, since = now, time.Now()
		}
		free := now.Owner == "" || now.Owner == p.owner || time.Since(since) >= p.o.LeaseFor
		if free || first && p.o.TakeOver {
			held, ok, err := p.ledger.Take(ctx, now, p.owner)
			if err != nil || ok {
				return held, err
			}
			continue // another was quicker
		}
		if first {
			p.o.Logger.Info("another publisher works; this one waits", "owner", now.Owner)
		}
		sleep(ctx, min(p.o.LeaseFor/10, p.o.PollEvery))
		if err := ctx.Err(); err != nil {
			return ledger.Lease{}, err
		}
	}
}

// sleep waits, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
