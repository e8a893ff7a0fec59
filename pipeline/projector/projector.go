package projector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/topic"
)

// Options say what a Projector consumes.
type Options struct {
	Store *projection.Store
	// Projections are those that are kept here; none: all of the application.
	Projections []string
	// Group is what the names of the consumer groups begin with (default DefaultGroup of the application).
	Group string
	// Topic is read from its start (default topic.ProjectionEvents), and made if it is not there.
	Topic topic.Spec
	// Kafka are the options of the connection: addresses, TLS, SASL.
	Kafka []kgo.Opt
	// Lane bounds what is tried and for how long.
	Lane Config
	// CommitEvery bounds how much is read again after a crash (default 500 ms).
	CommitEvery time.Duration
	// Heartbeat is how often a group is told that this instance lives, and so how long it
	// takes to hear that the partitions are shared anew (default 2 s).
	Heartbeat time.Duration
	// Changed, if set, is called when the outbox has something new. It must not block.
	Changed func()
	Logger  *slog.Logger

	// crash leaves out what follows a commit of the database: tests end like kill -9.
	crash func() bool
}

// DefaultGroup returns what the names of an application's consumer groups begin with.
func DefaultGroup(app *spec.App) string { return "lattice-projector." + app.Name }

// GroupOf returns the consumer group of a projection.
func GroupOf(group, projection string) string { return group + "." + projection }

// Projector keeps projections. Run does the work; Status may be called from anywhere.
type Projector struct {
	o         Options
	consumers []*consumer
}

// New makes a projector and connects nowhere yet.
func New(o Options) (*Projector, error) {
	app := o.Store.App()
	if o.Group == "" {
		o.Group = DefaultGroup(app)
	}
	if o.Topic.Name == "" {
		o.Topic.Name = topic.ProjectionEvents
	}
	if o.CommitEvery <= 0 {
		o.CommitEvery = 500 * time.Millisecond
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = 2 * time.Second
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.crash == nil {
		o.crash = func() bool { return false }
	}
	if err := event.CheckName("consumer group", o.Group); err != nil {
		return nil, err
	}
	names := o.Projections
	if len(names) == 0 {
		for _, p := range app.Projections {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("application %s has no projection", app.Name))
	}
	p := &Projector{o: o}
	for _, name := range names {
		of := app.Projection(name)
		if of == nil {
			return nil, lattice.E(lattice.NotFound, fmt.Errorf("application %s has no projection %q", app.Name, name))
		}
		p.consumers = append(p.consumers, newConsumer(&p.o, of))
	}
	return p, nil
}

// Run consumes until the context ends, and returns nil then. Outages it says and waits out;
// an error is a configuration that no client can be made with.
func (p *Projector) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := p.ensureTopic(ctx); err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make([]error, len(p.consumers))
	for i, c := range p.consumers {
		all.Go(func() {
			if errs[i] = c.run(ctx); errs[i] != nil {
				cancel() // one cannot start: none is left running alone
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// ensureTopic makes the topic, or waits until somebody who may has.
func (p *Projector) ensureTopic(ctx context.Context) error {
	client, err := kgo.NewClient(p.o.Kafka...)
	if err != nil {
		return lattice.E(lattice.Invalid, fmt.Errorf("connect to Kafka: %w", err))
	}
	defer client.Close()
	for {
		err := topic.Ensure(ctx, client, p.o.Topic)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if kind := lattice.KindOf(err); kind != lattice.Unavailable && kind != lattice.Denied {
			return err
		}
		p.o.Logger.Warn("the topic of the events is not there yet; it is tried again", "error", err)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// Status is what one projection's consumer does here.
type Status struct {
	Projection string            `json:"projection"`
	Group      string            `json:"group"`
	Idle       bool              `json:"idle"` // it is in the group and owns no partition
	Partitions []PartitionStatus `json:"partitions"`
	Counts     Counts            `json:"counts"`
}

// PartitionStatus is one partition that is owned here.
type PartitionStatus struct {
	Partition int32  `json:"partition"`
	Position  int64  `json:"position"`         // all below it is durable
	Paused    string `json:"paused,omitempty"` // why
	Waiting   int    `json:"waiting"`          // records that are read and not applied
}

// Counts say what a consumer has done since it was made.
type Counts struct {
	Applied    int64 `json:"applied"`
	Duplicates int64 `json:"duplicates"`
	Healed     int64 `json:"healed"`  // read from the ledger, since the topic did not have them
	Gaps       int64 `json:"gaps"`    // sequence numbers that the topic jumped over
	Unknown    int64 `json:"unknown"` // of types that the application does not know
	Foreign    int64 `json:"foreign"` // of tenant schemas that are not served
	Buried     int64 `json:"buried"`
	Parked     int64 `json:"parked"`
	Retries    int64 `json:"retries"` // transactions that failed
	Patches    int64 `json:"patches"`
}

// Status returns what each projection does here, in the order of Options.
func (p *Projector) Status() []Status {
	all := make([]Status, len(p.consumers))
	for i, c := range p.consumers {
		all[i] = c.status()
	}
	return all
}

// Resume tells the partitions of a projection that are paused here to go on at once, as
// somebody does who has mended what was wrong. It reports how many there are.
func (p *Projector) Resume(projection string) int {
	n := 0
	for _, c := range p.consumers {
		if c.p.Name != projection {
			continue
		}
		c.mu.Lock()
		for _, w := range c.owned {
			if *w.paused.Load() == "" {
				continue
			}
			n++
			select {
			case w.resume <- struct{}{}:
			default:
			}
		}
		c.mu.Unlock()
	}
	return n
}
