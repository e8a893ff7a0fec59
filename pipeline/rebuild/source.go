package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/projection"
)

const (
	// chunk bounds the records that are read at a time.
	chunk = 2000
	// pollWithin is how long the end of a topic is waited at before its end is asked for.
	pollWithin = 500 * time.Millisecond
	// maxSeen bounds the entities whose last sequence number is remembered.
	maxSeen = 1 << 20
)

// source is where events come from.
type source interface {
	name() string
	// next returns what comes next; end: that is all that there was when refresh was called.
	// Events come faster than they are read, perhaps, so that "now" has no end.
	next(ctx context.Context) (events []projection.Event, end bool, err error)
	refresh(ctx context.Context) error
	// read returns how far each part is read, and how much of the whole that is.
	read() (next map[int64]int64, done, total int64)
	close()
}

// topicSource reads the topic of the events, outside any group.
type topicSource struct {
	o      *Options
	client *kgo.Client
	from   map[int64]int64 // where it began
	at     map[int64]int64
	ends   map[int64]int64
	quiet  int // polls that brought nothing
	seen   map[ledger.Address]int64
	counts *Progress
}

// topicParts returns the starts and ends of the topic's partitions.
func topicParts(ctx context.Context, client *kgo.Client, name string) (starts, ends map[int64]int64, err error) {
	admin := kadm.NewClient(client)
	read := func(list func(context.Context, ...string) (kadm.ListedOffsets, error)) (map[int64]int64, error) {
		all, err := list(ctx, name)
		if err == nil {
			err = all.Error()
		}
		if err != nil {
			return nil, lattice.E(lattice.Unavailable, fmt.Errorf("read topic %s: %w", name, err))
		}
		offsets := map[int64]int64{}
		for part, o := range all[name] {
			offsets[int64(part)] = o.Offset
		}
		return offsets, nil
	}
	if starts, err = read(admin.ListStartOffsets); err == nil {
		ends, err = read(admin.ListEndOffsets)
	}
	return starts, ends, err
}

// openTopic reads on from where a rebuild was, or from the start.
func openTopic(ctx context.Context, o *Options, counts *Progress) (*topicSource, error) {
	t := &topicSource{o: o, counts: counts, at: map[int64]int64{}, from: map[int64]int64{}, seen: map[ledger.Address]int64{}}
	was, err := o.Rebuild.Read(ctx, t.name())
	if err != nil {
		return nil, err
	}
	if t.client, err = kgo.NewClient(append([]kgo.Opt{kgo.ClientID("lattice-rebuild"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, o.Kafka...)...); err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("connect to Kafka: %w", err))
	}
	var starts map[int64]int64
	if starts, t.ends, err = topicParts(ctx, t.client, o.Topic); err != nil {
		t.client.Close()
		return nil, err
	}
	begin := map[int32]kgo.Offset{}
	for part, start := range starts {
		at := start
		if n, there := was[part]; there && n > start && n <= t.ends[part] { // else it is another topic of that name
			at = n
		}
		t.from[part], t.at[part] = start, at
		begin[int32(part)] = kgo.NewOffset().At(at)
	}
	t.client.AddConsumePartitions(map[string]map[int32]kgo.Offset{o.Topic: begin})
	return t, nil
}

func (t *topicSource) name() string { return "topic " + t.o.Topic }
func (t *topicSource) close()       { t.client.Close() }

func (t *topicSource) read() (map[int64]int64, int64, int64) {
	done, total := int64(0), int64(0)
	for part, end := range t.ends {
		done += t.at[part] - t.from[part]
		total += max(end, t.at[part]) - t.from[part]
	}
	return t.at, done, total
}

func (t *topicSource) next(ctx context.Context) ([]projection.Event, bool, error) {
	if t.ended() {
		return nil, true, nil
	}
	wait, cancel := context.WithTimeout(ctx, pollWithin)
	defer cancel()
	fetches := t.client.PollRecords(wait, chunk)
	if ctx.Err() != nil {
		return nil, false, ctx.Err()
	}
	var failed error
	fetches.EachError(func(topic string, part int32, err error) {
		if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			failed = lattice.E(lattice.Unavailable, fmt.Errorf("read %s, partition %d: %w", topic, part, err))
		}
	})
	var events []projection.Event
	none := true
	fetches.EachRecord(func(r *kgo.Record) {
		none = false
		t.at[int64(r.Partition)] = r.Offset + 1
		if e, ok := t.decode(r); ok {
			events = append(events, e)
		}
	})
	if failed != nil {
		return events, false, failed
	}
	// Where the last records are markers of transactions, or were compacted away, nothing
	// shows it but that nothing comes.
	if t.quiet++; !none {
		t.quiet = 0
	}
	return events, t.ended() || t.quiet >= 2, nil
}

func (t *topicSource) ended() bool {
	for part, e := range t.ends {
		if t.at[part] < e {
			return false
		}
	}
	return true
}

func (t *topicSource) refresh(ctx context.Context) (err error) {
	_, t.ends, err = topicParts(ctx, t.client, t.o.Topic)
	t.quiet = 0
	return err
}

// decode reads a record. What is no event is among the dead letters already, or will be when
// a projector comes to it.
func (t *topicSource) decode(r *kgo.Record) (projection.Event, bool) {
	m, err := event.ParseProjection(r.Value)
	if err != nil {
		t.counts.Undecodable++
		return projection.Event{}, false
	}
	e := projection.Event{Projection: m, Source: projection.Source{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Key: r.Key, Value: r.Value}}
	a, err := t.o.Store.Address(&m)
	if err != nil || !t.o.Store.Serves(m.TenantSchema) {
		return e, false
	}
	last, known := t.seen[a]
	if len(t.seen) >= maxSeen {
		clear(t.seen)
	}
	t.seen[a] = max(last, m.SequenceNumber)
	e.Follows = known && m.SequenceNumber <= last+1
	return e, true
}

// ledgerSource reads the ledger.
type ledgerSource struct {
	o    *Options
	at   int64 // position of the last event that was read
	head int64
}

func openLedger(ctx context.Context, o *Options) (*ledgerSource, error) {
	l := &ledgerSource{o: o}
	was, err := o.Rebuild.Read(ctx, l.name())
	if err == nil {
		l.head, err = o.Ledger.Head(ctx)
	}
	if l.at = was[0]; l.at > l.head {
		l.at = 0 // another ledger
	}
	return l, err
}

func (l *ledgerSource) name() string { return "ledger" }
func (l *ledgerSource) close()       {}

func (l *ledgerSource) read() (map[int64]int64, int64, int64) {
	return map[int64]int64{0: l.at}, l.at, max(l.head, l.at)
}

func (l *ledgerSource) next(ctx context.Context) ([]projection.Event, bool, error) {
	found, err := l.o.Ledger.Events(ctx, l.at, chunk)
	if err != nil {
		return nil, false, err
	}
	var events []projection.Event
	for i := range found {
		l.at = found[i].Position
		e := projection.Event{Projection: found[i].Projection(), Follows: true}
		if _, err := l.o.Store.Address(&e.Projection); err == nil && l.o.Store.Serves(e.TenantSchema) {
			events = append(events, e)
		}
	}
	return events, len(found) == 0 || l.at >= l.head, nil
}

func (l *ledgerSource) refresh(ctx context.Context) (err error) {
	l.head, err = l.o.Ledger.Head(ctx)
	return err
}
