// Package rebuild fills another generation of projections' tables from the topic or the
// ledger, beside the projectors that keep the live one, and swaps it in.
//
// What is durable when is told by projection.Rebuild. Run may be killed at any moment:
// the next one reads on from where this one noted that it was, and what it does again is
// a duplicate. Nothing waits for it: a rebuild that nobody goes on with takes up space,
// until it is dropped.
//
// # Failures
//
//	transient   the same again, later and later, until the context ends
//	schema      the run ends: somebody must mend the database
//	data        the batch is taken apart; the event becomes a dead letter of the set, and
//	            later ones of its entity are parked behind it. Flood of them with no
//	            success between end the run: the application does not fit its events
//	fenced      the run ends: somebody else swapped or dropped the set
package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
	"github.com/lattice-log/lattice/pipeline/projector"
	"github.com/lattice-log/lattice/pipeline/spec"
)

// Where a rebuild reads from.
const (
	FromTopic  = "topic"
	FromLedger = "ledger"
)

const (
	batch       = 256 // events of one transaction
	flood       = 10
	retries     = 2
	firstPause  = 50 * time.Millisecond
	maxPause    = 10 * time.Second
	applyWithin = time.Minute
	swapWithin  = 30 * time.Second
	// swaps bounds the attempts to swap between which nothing new was read.
	swaps = 5
)

// Options say what is rebuilt, and from what.
type Options struct {
	Store   *projection.Store
	Rebuild *projection.Rebuild
	Ledger  *ledger.Ledger // nil: there is none
	// From is FromTopic or FromLedger; "": the topic if it has its beginning, else the ledger.
	From  string
	Topic string
	Kafka []kgo.Opt
	// Hold ends the run when all is read, without a swap.
	Hold bool
	// Unequal swaps tables that have other numbers of rows than the live ones.
	Unequal bool
	// Patience is how long to wait for live tables that are behind the rebuilt ones before their
	// numbers of rows are compared (default 30 s).
	Patience time.Duration
	// Progress, if set, is called after each chunk.
	Progress func(Progress)
	Logger   *slog.Logger
}

// Progress is how far a run is.
type Progress struct {
	Source      string        `json:"source"`
	Done        int64         `json:"done"` // events of the source that were read
	Total       int64         `json:"total"`
	Applied     int64         `json:"applied"` // by all projections; what was there already is not counted
	Healed      int64         `json:"healed"`  // from the ledger, since the topic did not have them
	DeadLetters int64         `json:"dead_letters"`
	Parked      int64         `json:"parked"`
	Undecodable int64         `json:"undecodable"`
	PerSecond   float64       `json:"per_second"`
	Left        time.Duration `json:"left"` // estimated
}

// Result is what came of a run.
type Result struct {
	Progress
	Swapped bool                 `json:"swapped"`
	Counts  []projection.Counted `json:"counts,omitempty"`
}

// Run fills and swaps. projection.ErrCounts or ErrAhead: the numbers of rows differ, nothing was
// swapped, and Result has them; what was filled stays, and another run goes on.
func Run(ctx context.Context, o Options) (Result, error) {
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	if o.Patience <= 0 {
		o.Patience = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	f := &filler{o: &o, started: time.Now()}
	if err := f.open(ctx); err != nil {
		return Result{}, err
	}
	defer f.from.close()
	err := f.fill(ctx)
	var counts []projection.Counted
	if err == nil && !o.Hold {
		counts, err = f.swap(ctx)
	}
	if errors.Is(err, projection.ErrEnded) {
		if live, lerr := o.Rebuild.Live(ctx); lerr == nil && live {
			err = nil // an answer was lost, or another process was at it, too
		}
	}
	if o.Hold {
		return Result{Progress: f.n}, err
	}
	return Result{Progress: f.n, Swapped: err == nil, Counts: counts}, err
}

// filler is one run.
type filler struct {
	o       *Options
	from    source
	n       Progress
	started time.Time
	before  int64 // what was done when it started
	burials int   // with no success between
	// asked is what the last swap was given of the source. If that failed, it is to be applied.
	asked [][]projection.Event
}

// open chooses the source.
func (f *filler) open(ctx context.Context) error {
	from := f.o.From
	if from == "" {
		whole, err := f.topicIsWhole(ctx)
		switch {
		case err != nil && f.o.Ledger == nil:
			return err
		case err != nil:
			f.o.Logger.Info("the topic cannot be read: the ledger is", "error", err)
			from = FromLedger
		case whole:
			from = FromTopic
		case f.o.Ledger == nil:
			return lattice.E(lattice.NotFound, fmt.Errorf("topic %s does not have its beginning any more, and there is no ledger to read instead: name its database, or say that the topic is to be taken as it is", f.o.Topic))
		default:
			f.o.Logger.Info("the topic does not have its beginning any more: the ledger is read")
			from = FromLedger
		}
	}
	var err error
	switch {
	case from == FromTopic:
		f.from, err = openTopic(ctx, f.o, &f.n)
	case f.o.Ledger == nil:
		return lattice.E(lattice.Invalid, errors.New("there is no ledger to rebuild from: name its database"))
	default:
		f.from, err = openLedger(ctx, f.o)
	}
	if err != nil {
		return err
	}
	f.n.Source = f.from.name()
	_, f.before, _ = f.from.read()
	return nil
}

// topicIsWhole reports whether the topic has all that was ever on it.
func (f *filler) topicIsWhole(ctx context.Context) (bool, error) {
	client, err := kgo.NewClient(f.o.Kafka...)
	if err != nil {
		return false, lattice.E(lattice.Invalid, fmt.Errorf("connect to Kafka: %w", err))
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, swapWithin)
	defer cancel()
	starts, _, err := topicParts(ctx, client, f.o.Topic)
	for _, at := range starts {
		if at > 0 {
			return false, err
		}
	}
	return true, err
}

// fill reads to the end.
func (f *filler) fill(ctx context.Context) error {
	for ; len(f.asked) > 0; f.asked = f.asked[1:] {
		if err := f.projectAll(ctx, f.asked[0]); err != nil {
			return err
		}
	}
	if err := f.insist(ctx, f.from.refresh); err != nil {
		return err
	}
	pause := firstPause
	for {
		events, end, err := f.from.next(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && projector.Classify(err) != projector.Transient:
			return err
		case err != nil:
			f.o.Logger.Warn("reading events failed; it is tried again", "error", err)
			if pause = wait(ctx, pause); ctx.Err() != nil {
				return ctx.Err()
			}
			if len(events) == 0 {
				continue
			}
		default:
			pause = firstPause
		}
		if err := f.projectAll(ctx, events); err != nil {
			return err
		}
		if err := f.note(ctx); err != nil {
			return err
		}
		if end {
			return nil
		}
	}
}

// note makes durable how far the source is read, and says it.
func (f *filler) note(ctx context.Context) error {
	next, done, total := f.from.read()
	f.n.Done, f.n.Total, f.n.Left = done, total, 0
	if passed := time.Since(f.started).Seconds(); passed > 0 && done > f.before {
		f.n.PerSecond = float64(done-f.before) / passed
		f.n.Left = time.Duration(float64(total-done) / f.n.PerSecond * float64(time.Second)).Round(time.Second)
	}
	f.o.Progress(f.n)
	return f.insist(ctx, func(ctx context.Context) error {
		return f.o.Rebuild.SetRead(ctx, f.from.name(), next, done, total)
	})
}

func (f *filler) projectAll(ctx context.Context, events []projection.Event) error {
	for _, p := range f.o.Rebuild.Projections() {
		if err := f.project(ctx, p, events); err != nil {
			return err
		}
	}
	return nil
}

// project applies what a projection takes of events.
func (f *filler) project(ctx context.Context, p *spec.Projection, events []projection.Event) error {
	var taken []projection.Event
	for _, e := range events {
		if slices.Contains(p.Sources, e.EventType) {
			taken = append(taken, e)
		}
	}
	for len(taken) > 0 {
		some := taken[:min(batch, len(taken))]
		taken = taken[len(some):]
		err := f.apply(ctx, p, some)
		if projector.Classify(err) == projector.Data { // one of them: each alone
			for i := range some {
				if err = f.one(ctx, p, some[i]); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// apply applies events in one transaction. Outages are waited out.
func (f *filler) apply(ctx context.Context, p *spec.Projection, events []projection.Event) error {
	var out projection.Applied
	err := f.insist(ctx, func(ctx context.Context) (err error) {
		out, err = f.o.Rebuild.Apply(ctx, p, events)
		return err
	})
	if err == nil && out.Fresh > 0 {
		f.burials = 0
	}
	f.n.Applied += int64(out.Fresh)
	f.n.Healed += int64(out.Healed)
	f.n.Parked += int64(out.Parked)
	return err
}

// one applies an event, or makes it a dead letter.
func (f *filler) one(ctx context.Context, p *spec.Projection, e projection.Event) error {
	first := time.Now()
	for n := 0; ; n++ {
		err := f.apply(ctx, p, []projection.Event{e})
		if projector.Classify(err) != projector.Data {
			return err
		}
		if n < retries {
			continue
		}
		if f.burials++; f.burials >= flood {
			return fmt.Errorf("%d events in a row cannot be applied to %s, so that it is the application that does not fit; mend it and begin again. The last, sequence %d of %s: %w",
				flood, p.Name, e.SequenceNumber, e.EntityID, err)
		}
		why := projection.Failure{Class: projection.ClassOf(err), Err: err, Retries: n, FirstFailed: first, Failed: time.Now()}
		f.n.DeadLetters++
		return f.insist(ctx, func(ctx context.Context) error { return f.o.Rebuild.Bury(ctx, p, e, why) })
	}
}

// insist repeats what fails by an outage.
func (f *filler) insist(ctx context.Context, do func(context.Context) error) error {
	for pause := firstPause; ; {
		some, cancel := context.WithTimeout(ctx, applyWithin)
		err := do(some)
		cancel()
		if projector.Classify(err) != projector.Transient || ctx.Err() != nil {
			return err
		}
		f.o.Logger.Warn("the rebuild waits; it goes on by itself", "error", err)
		pause = wait(ctx, pause)
	}
}

// swap swaps, and reads on as long as the live tables have more.
func (f *filler) swap(ctx context.Context) ([]projection.Counted, error) {
	patient := time.Now().Add(f.o.Patience)
	for tries, last := 0, int64(-1); ; {
		some, cancel := context.WithTimeout(ctx, swapWithin)
		counts, err := f.o.Rebuild.Swap(some, f.o.Unequal, f.more)
		cancel()
		switch {
		case err == nil:
			return counts, nil
		case errors.Is(err, projection.ErrCounts), ctx.Err() != nil, errors.Is(err, projection.ErrAhead) && time.Now().After(patient):
			return counts, err
		case errors.Is(err, projection.ErrAhead):
			wait(ctx, firstPause)
			continue
		}
		class := projector.Classify(err)
		if class != projector.Transient && class != projector.Data {
			return counts, err
		}
		_, done, _ := f.from.read()
		if tries++; done > last {
			tries, last = 0, done
		}
		var behind *projection.BehindError
		if tries >= swaps && errors.As(err, &behind) {
			return counts, err
		}
		f.o.Logger.Info("not swapped yet", "why", err)
		wait(ctx, firstPause<<min(tries, 6))
		if err := f.fill(ctx); err != nil {
			return counts, err
		}
	}
}

// more returns what the source has next, for a swap that waits for it.
func (f *filler) more(ctx context.Context, i int) ([]projection.Event, error) {
	for refreshed := false; i >= len(f.asked); {
		events, end, err := f.from.next(ctx)
		if len(events) > 0 {
			f.asked = append(f.asked, events)
		}
		switch {
		case err != nil:
			return nil, err
		case len(events) > 0 || !end:
		case refreshed:
			return nil, nil
		default:
			refreshed = true
			if err := f.from.refresh(ctx); err != nil {
				return nil, err
			}
		}
	}
	return f.asked[i], nil
}

// wait waits, and returns how long to wait next.
func wait(ctx context.Context, pause time.Duration) time.Duration {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return min(2*pause, maxPause)
}
