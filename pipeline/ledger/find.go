package ledger

import (
	"context"
	"fmt"

	"github.com/lattice-log/lattice/pipeline/event"
)

// MaxScan bounds the positions that one Find looks at.
const MaxScan = 50000

// Query says which events are meant. Empty fields but the first stand for all.
type Query struct {
	TenantSchema, ForkID        string
	Stream, EntityID, EventType string
	// Since and Until bound the time, in milliseconds since 1970: Since <= ts < Until. 0: none.
	Since, Until int64
}

// Find returns up to limit events behind a position that fit, in order, and the position
// behind which to go on: it looks at MaxScan positions at most, so that there may be more
// events although it found few.
func (l *Ledger) Find(ctx context.Context, q Query, after int64, limit int) ([]event.Event, int64, error) {
	head, err := l.Head(ctx)
	if err != nil {
		return nil, 0, err
	}
	last := min(head, max(after, 0)+MaxScan)
	text, args := "WHERE position > $1 AND position <= $2 AND tenant_schema = $3 AND fork_id = $4", []any{after, last, q.TenantSchema, q.ForkID}
	add := func(condition string, value any) {
		args = append(args, value)
		text += fmt.Sprintf(" AND %s $%d", condition, len(args))
	}
	for _, c := range [][2]string{{"stream =", q.Stream}, {"entity_id =", q.EntityID}, {"event_type =", q.EventType}} {
		if c[1] != "" {
			add(c[0], c[1])
		}
	}
	if q.Since > 0 {
		add("ts >=", q.Since)
	}
	if q.Until > 0 {
		add("ts <", q.Until)
	}
	n := rows(limit)
	args = append(args, n)
	found, err := l.events(ctx, fmt.Sprintf("%s ORDER BY position LIMIT $%d", text, len(args)), args...)
	if err != nil {
		return nil, 0, err
	}
	if int64(len(found)) == n {
		last = found[n-1].Position
	}
	return found, max(last, after), nil
}
