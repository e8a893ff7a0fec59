package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// MaxLetters bounds the dead letters that one read returns.
const MaxLetters = 10000

// Letter is a dead letter of the database, which is the place of record: the topic has
// copies.
type Letter struct {
	ID         int64
	Projection string
	key        string // Projection in the set that it is of
	ledger.Address
	Sequence        int64 // 0: the bytes are no event
	EventType       string
	State           string
	Class           string
	Error, Trace    string
	Retries         int64
	FirstFailed     time.Time
	Failed          time.Time
	SourceTopic     string
	SourcePartition int64
	SourceOffset    int64
	SourceKey       []byte
	Record          []byte
	// Who settled it, when, and why. Zero while it waits.
	Resolved   time.Time
	ResolvedBy string
	Reason     string
}

// Waits reports whether somebody must retry or discard it.
func (l *Letter) Waits() bool { return l.State == StateFailed || l.State == StateParked }

// Filter says which dead letters are meant. Empty fields stand for all.
type Filter struct {
	Projection, EntityID, EventType, Class string
	// State is one of the states, or "waiting" for failed and parked.
	State string
	// Rebuilding: those of tables that are not live, instead of those that are.
	Rebuilding bool
	After      int64 // ids above it
	Limit      int   // default and bound MaxLetters
}

// Waiting as Filter.State stands for failed and parked.
const StateWaiting = "waiting"

// where returns the condition of a filter, and its arguments.
func (f Filter) where() (string, []any) {
	text, args := "WHERE id > $1", []any{f.After}
	if f.Rebuilding {
		text += " AND hidden = 1"
	} else {
		text += " AND hidden = 0"
	}
	if f.Projection != "" {
		args = append(args, f.Projection, f.Projection+keyMark)
		text += fmt.Sprintf(" AND (projection = $2 OR substr(projection, 1, %d) = $3)", len([]rune(f.Projection+keyMark)))
	}
	for _, c := range [][2]string{{"entity_id", f.EntityID}, {"event_type", f.EventType}, {"error_class", f.Class}} {
		if c[1] != "" {
			args = append(args, c[1])
			text += fmt.Sprintf(" AND %s = $%d", c[0], len(args))
		}
	}
	switch f.State {
	case "":
	case StateWaiting:
		text += " AND state IN ('failed', 'parked')"
	default:
		args = append(args, f.State)
		text += fmt.Sprintf(" AND state = $%d", len(args))
	}
	return text, args
}

// Count returns how many dead letters fit a filter, by projection.
func (s *Store) Count(ctx context.Context, f Filter) (map[string]int64, error) {
	all := map[string]int64{}
	err := s.db.Read(ctx, func(tx sqldb.Tx) error {
		clear(all)
		text, args := f.where()
		return tx.Query(ctx, func(scan sqldb.Scan) error {
			var name string
			var n int64
			if err := scan(&name, &n); err != nil {
				return err
			}
			all[nameOfKey(name)] += n
			return nil
		}, "SELECT projection, count(*) FROM projection_dead_letters "+text+" GROUP BY projection", args...)
	})
	if err != nil {
		return nil, fmt.Errorf("count the dead letters: %w", err)
	}
	return all, nil
}

// Letters returns the dead letters that fit, in the order in which they came.
func (s *Store) Letters(ctx context.Context, f Filter) ([]Letter, error) {
	if f.Limit <= 0 || f.Limit > MaxLetters {
		f.Limit = MaxLetters
	}
	var all []Letter
	err := s.db.Read(ctx, func(tx sqldb.Tx) (err error) {
		text, args := f.where()
		all, err = letters(ctx, tx, fmt.Sprintf("%s ORDER BY id LIMIT $%d", text, len(args)+1), append(args, int64(f.Limit))...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the dead letters: %w", err)
	}
	return all, nil
}

// Letter returns one dead letter.
func (s *Store) Letter(ctx context.Context, id int64) (Letter, error) {
	var all []Letter
	err := s.db.Read(ctx, func(tx sqldb.Tx) (err error) {
		all, err = letters(ctx, tx, "WHERE id = $1", id)
		return err
	})
	if err == nil && len(all) == 0 {
		err = lattice.E(lattice.NotFound, errors.New("there is none with this id"))
	}
	if err != nil {
		return Letter{}, fmt.Errorf("dead letter %d: %w", id, err)
	}
	return all[0], nil
}

func letters(ctx context.Context, tx sqldb.Tx, where string, args ...any) ([]Letter, error) {
	var all []Letter
	err := tx.Query(ctx, func(scan sqldb.Scan) error {
		var l Letter
		var first, failed, resolved int64
		if err := scan(&l.ID, &l.key, &l.TenantSchema, &l.ForkID, &l.Stream, &l.EntityID, &l.Sequence, &l.EventType, &l.State, &l.Class, &l.Error, &l.Trace,
			&l.Retries, &first, &failed, &l.SourceTopic, &l.SourcePartition, &l.SourceOffset, &l.SourceKey, &l.Record, &resolved, &l.ResolvedBy, &l.Reason); err != nil {
			return err
		}
		l.Projection = nameOfKey(l.key)
		l.FirstFailed, l.Failed = time.UnixMilli(first).UTC(), time.UnixMilli(failed).UTC()
		if resolved > 0 {
			l.Resolved = time.UnixMilli(resolved).UTC()
		}
		all = append(all, l)
		return nil
	}, `SELECT id, projection, tenant_schema, fork_id, stream, entity_id, sequence_number, event_type, state, error_class, error, stack_trace,
		retry_count, first_failed_at, failed_at, source_topic, source_partition, source_offset, source_key, record, resolved_at, resolved_by, reason
		FROM projection_dead_letters `+where, args...)
	return all, err
}

// Retry applies the dead letters of one entity and projection that wait, in order, until
// one fails: that of the id is one of them. It returns how many were applied, and the error
// of the one that failed, which now has this error. Of an entity that nothing waits for
// it is 0 and nil. Each is applied in one transaction with the guard and its own row, so a
// crash leaves some applied and the others waiting.
func (s *Store) Retry(ctx context.Context, id int64, by string) (int, error) {
	l, err := s.Letter(ctx, id)
	switch {
	case err != nil:
		return 0, err
	case !l.Waits():
		return 0, nil
	case l.Sequence == 0:
		return 0, lattice.E(lattice.Invalid, fmt.Errorf("dead letter %d: its bytes are no event, and will not become one: discard it", id))
	}
	p := s.app.Projection(l.Projection)
	if p == nil {
		return 0, lattice.E(lattice.NotFound, fmt.Errorf("dead letter %d: the application has no projection %q any more: discard it", id, l.Projection))
	}
	for n := 0; ; n++ {
		head, err := s.retryHead(ctx, p, &l, by)
		if err != nil && head != nil {
			switch lattice.KindOf(err) {
			case lattice.Unavailable, lattice.Storage:
			default:
				err = errors.Join(err, s.failedAgain(ctx, head.ID, err))
			}
			return n, fmt.Errorf("dead letter %d, sequence %d of %s: %w", head.ID, head.Sequence, head.Address, err)
		}
		if err != nil || head == nil {
			return n, err
		}
	}
}

// retryHead applies the first dead letter of an entity that waits, and returns it; nil: none does.
func (s *Store) retryHead(ctx context.Context, p *spec.Projection, l *Letter, by string) (head *Letter, err error) {
	err = s.db.Write(ctx, func(tx sqldb.Tx) error {
		head = nil
		b := s.batch(p, tx)
		b.generation = generationOfKey(l.key)
		a := l.Address
		g, wait, err := b.waiting(ctx, a)
		if err != nil || len(wait) == 0 {
			return err
		}
		head = &wait[0]
		m, err := event.ParseProjection(head.Record)
		if err != nil {
			return err
		}
		e := &Event{Projection: m}
		if _, err := s.Address(&m); err != nil {
			return err
		}
		step, err := s.step(ctx, p, &m)
		if err != nil {
			return err
		}
		if step != nil {
			b.work = []work{{e, a, step}}
		}
		g.settle(wait, 1)
		if err := b.finish(ctx); err != nil {
			return err
		}
		return resolve(ctx, tx, head.ID, StateRetried, by, "")
	})
	return head, err
}

// waiting locks the guard of an entity and returns what waits for it, in order.
func (b *batch) waiting(ctx context.Context, a ledger.Address) (*guard, []Letter, error) {
	g := &guard{}
	b.guards[a] = g
	if err := b.lockGuards(ctx); err != nil {
		return nil, nil, err
	}
	wait, err := letters(ctx, b.tx, "WHERE "+guardKey+" AND state IN ('failed', 'parked') ORDER BY sequence_number", guardArgs(b.key(a.TenantSchema), a)...)
	return g, wait, err
}

// settle notes that the first done of those that wait do so no more. If none is left, all
// that was ever parked counts as done: what was discarded must not come back.
func (g *guard) settle(wait []Letter, done int) {
	numbers := make([]int64, len(wait))
	for i, l := range wait {
		numbers[i] = l.Sequence
	}
	parked := g.Parked
	g.Guard = g.Retry(numbers, done)
	if g.Parked == 0 {
		g.Applied = max(g.Applied, parked)
	}
	g.changed = true
}

func resolve(ctx context.Context, tx sqldb.Tx, id int64, state, by, reason string) error {
	_, err := tx.Exec(ctx, "UPDATE projection_dead_letters SET state = $1, resolved_at = $2, resolved_by = $3, reason = $4 WHERE id = $5",
		state, time.Now().UnixMilli(), plain(by), plain(reason), id)
	return err
}

// failedAgain notes another failure of a dead letter.
func (s *Store) failedAgain(ctx context.Context, id int64, why error) error {
	return s.db.Write(ctx, func(tx sqldb.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE projection_dead_letters SET state = 'failed', retry_count = retry_count + 1, failed_at = $1, error_class = $2, error = $3, stack_trace = $4
			WHERE id = $5 AND state IN ('failed', 'parked')`, time.Now().UnixMilli(), ClassOf(why), plain(why.Error()), plain(trace(why)), id)
		return err
	})
}

// Discard says that a dead letter is not to be applied, and why. What waits behind it goes
// on waiting: retry that. It returns how many do. Discarding again does nothing.
func (s *Store) Discard(ctx context.Context, id int64, by, reason string) (left int, err error) {
	if reason == "" {
		return 0, lattice.E(lattice.Invalid, errors.New("discard a dead letter: say why"))
	}
	l, err := s.Letter(ctx, id)
	if err != nil {
		return 0, err
	}
	p := s.app.Projection(l.Projection)
	if p == nil {
		p = &spec.Projection{Name: l.Projection} // the application has it no more
	}
	err = s.db.Write(ctx, func(tx sqldb.Tx) error {
		left = 0
		b := s.batch(p, tx)
		b.generation = generationOfKey(l.key)
		if l.Sequence == 0 {
			if !l.Waits() {
				return nil
			}
			return resolve(ctx, tx, id, StateDiscarded, by, reason)
		}
		g, wait, err := b.waiting(ctx, l.Address)
		if err != nil {
			return err
		}
		left = len(wait)
		i := slices.IndexFunc(wait, func(w Letter) bool { return w.ID == id })
		if i < 0 {
			return nil
		}
		if left--; left == 0 {
			g.settle(wait, 1)
		}
		if err := b.writeGuards(ctx); err != nil {
			return err
		}
		return resolve(ctx, tx, id, StateDiscarded, by, reason)
	})
	if err != nil {
		return 0, fmt.Errorf("discard dead letter %d: %w", id, err)
	}
	return left, nil
}
