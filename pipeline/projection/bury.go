package projection

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// Failure says why an event becomes a dead letter.
type Failure struct {
	Class       string // of event's classes
	Err         error
	Retries     int
	FirstFailed time.Time
	Failed      time.Time
}

// letter is a dead letter that a transaction writes.
type letter struct {
	to         ledger.Address
	projection string // the set's key of it
	event      *Event // of bytes that are no event, the source only
	state      string
	failure    Failure
}

// States of a dead letter.
const (
	StateFailed    = "failed"    // it could not be applied
	StateParked    = "parked"    // it waits behind one that could not
	StateRetried   = "retried"   // applied after all
	StateDiscarded = "discarded" // somebody said that it is not to be applied
	// StateSuperseded: it waited in tables that were dropped, behind a rebuild.
	StateSuperseded = "superseded"
)

func parkedFailure() Failure {
	now := time.Now()
	return Failure{Class: event.ClassParked, Err: event.ErrParked, FirstFailed: now, Failed: now}
}

// park makes an event wait behind the dead letter of its entity.
func (b *batch) park(g *guard, a ledger.Address, e *Event, why Failure) {
	state := StateFailed
	if errors.Is(why.Err, event.ErrParked) {
		state = StateParked
	}
	g.Parked, g.changed = e.SequenceNumber, true
	b.letters = append(b.letters, letter{a, b.key(a.TenantSchema), e, state, why})
}

// Bury makes an event a dead letter and parks its entity, in one transaction with its
// guard. What the ledger has before it and did not come is parked with it, in order. An
// event that was applied or buried meanwhile is passed over.
func (s *Store) Bury(ctx context.Context, p *spec.Projection, e Event, why Failure) error {
	err := s.db.Write(ctx, func(tx sqldb.Tx) error { return s.batch(p, tx).bury(ctx, e, why) })
	if err != nil {
		return fmt.Errorf("bury an event of %s: %w", p.Name, err)
	}
	return nil
}

func (b *batch) bury(ctx context.Context, e Event, why Failure) error {
	if err := b.know(&e); err != nil {
		return err
	}
	if err := b.lockGuards(ctx); err != nil {
		return err
	}
	a, _ := b.s.Address(&e.Projection)
	g := b.guards[a]
	early, err := b.early(ctx, g, a, &e)
	if err != nil {
		return err
	}
	for _, e := range append(early, e) {
		switch Judge(g.Guard, e.SequenceNumber, -1) {
		case Fresh:
			b.park(g, a, &e, why)
		case Behind:
			b.park(g, a, &e, parkedFailure())
		}
	}
	return b.write(ctx)
}

// BuryBytes makes a record that is no event a dead letter. A projection's name is known
// where the type of the event was legible; "" is for all. It does so once for each place.
func (s *Store) BuryBytes(ctx context.Context, projection string, from Source, why Failure) error {
	err := s.db.Write(ctx, func(tx sqldb.Tx) error {
		b := s.batch(&spec.Projection{Name: projection}, tx)
		b.letters = []letter{{projection: projection, event: &Event{Source: from}, state: StateFailed, failure: why}}
		return b.write(ctx)
	})
	if err != nil {
		return fmt.Errorf("bury a record that is no event: %w", err)
	}
	return nil
}

// writeLetters writes the dead letters and returns their rows of the outbox.
func (b *batch) writeLetters(ctx context.Context, position int64) ([][]any, error) {
	args := make([][]any, len(b.letters))
	for i := range b.letters {
		args[i] = append(b.letters[i].args(position+int64(i)), b.hidden(b.letters[i].to.TenantSchema))
	}
	written := make([]bool, len(args))
	err := b.tx.Batch(ctx, `INSERT INTO projection_dead_letters (id, projection, tenant_schema, fork_id, stream, entity_id, sequence_number, event_type, state,
		error_class, error, stack_trace, retry_count, first_failed_at, failed_at, source_topic, source_partition, source_offset, source_key, record, hidden, resolved_at, resolved_by, reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, 0, '', '')
		ON CONFLICT (projection, source_topic, source_partition, source_offset) WHERE sequence_number = 0 DO NOTHING RETURNING 1`,
		args, func(i int, _ sqldb.Scan) error { written[i] = true; return nil })
	if err != nil {
		return nil, err
	}
	var boxed [][]any
	for i := range b.letters {
		if !written[i] {
			continue // these bytes were buried before
		}
		l := &b.letters[i]
		if b.hidden(l.to.TenantSchema) != 0 {
			continue // nobody is told of what a table that is being filled lacks
		}
		message, err := l.message()
		if err != nil {
			return nil, err
		}
		key := []byte(l.event.EntityID)
		if len(key) == 0 {
			key = l.event.Source.Key
		}
		if key == nil {
			key = []byte{}
		}
		boxed = append(boxed, []any{position + int64(i), KindDeadLetter, key, message})
	}
	return boxed, nil
}

// record returns the bytes that are kept: those of the topic, or, of an event that came
// from the ledger, those that should have been there.
func (l *letter) record() []byte {
	if l.event.EventType != "" {
		if b, err := l.event.Encode(); err == nil {
			return b
		}
	}
	if l.event.Source.Value == nil {
		return []byte{}
	}
	return l.event.Source.Value
}

func (l *letter) args(id int64) []any {
	e, f := l.event, l.failure
	key := e.Source.Key
	if key == nil {
		key = []byte{}
	}
	return []any{id, l.projection, l.to.TenantSchema, l.to.ForkID, l.to.Stream, l.to.EntityID, e.SequenceNumber, e.EventType, l.state,
		f.Class, plain(f.Err.Error()), plain(trace(f.Err)), int64(f.Retries), f.FirstFailed.UnixMilli(), f.Failed.UnixMilli(),
		e.Source.Topic, int64(e.Source.Partition), e.Source.Offset, key, l.record()}
}

// message returns the dead letter as its topic has it.
func (l *letter) message() ([]byte, error) {
	e, f := l.event, l.failure
	d := event.DeadLetter{
		ProjectionName: nameOfKey(l.projection), TenantSchema: l.to.TenantSchema, Error: f.Err.Error(), StackTrace: trace(f.Err),
		RetryCount: int64(f.Retries), FailedAt: f.Failed.UnixMilli(), ErrorClass: f.Class, FirstFailedAt: f.FirstFailed.UnixMilli(),
		SourceTopic: e.Source.Topic, SourcePartition: int64(e.Source.Partition), SourceOffset: e.Source.Offset, SourceKey: e.Source.Key,
	}
	if e.EventType == "" {
		d.Raw = l.record()
	} else {
		d.OriginalEvent = l.record()
	}
	return d.Encode()
}

// plain is a text that every database takes.
func plain(s string) string {
	if len(s) > event.MaxProse {
		s = s[:event.MaxProse]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// trace writes what an error is made of, the outermost first.
func trace(err error) string {
	var lines []string
	kind := lattice.KindOf(err)
	for last := ""; err != nil && len(lines) < 32; err = errors.Unwrap(err) {
		if text := err.Error(); text != last {
			lines, last = append(lines, text), text
		}
	}
	return strings.Join(lines, "\n  of ") + "\n  kind " + kind.String()
}
