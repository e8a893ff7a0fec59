package projection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// guard is a Guard that a transaction has locked.
type guard struct {
	Guard
	there   bool // in the database
	changed bool
}

const guardKey = "projection = $1 AND tenant_schema = $2 AND fork_id = $3 AND stream = $4 AND entity_id = $5"

func guardArgs(projection string, a ledger.Address) []any {
	return []any{projection, a.TenantSchema, a.ForkID, a.Stream, a.EntityID}
}

func compareAddresses(a, b ledger.Address) int {
	for _, c := range [][2]string{{a.TenantSchema, b.TenantSchema}, {a.ForkID, b.ForkID}, {a.Stream, b.Stream}, {a.EntityID, b.EntityID}} {
		if n := strings.Compare(c[0], c[1]); n != 0 {
			return n
		}
	}
	return 0
}

// addresses returns whose guards the transaction has, in the order in which they are locked.
func (b *batch) addresses() []ledger.Address {
	all := make([]ledger.Address, 0, len(b.guards))
	for a := range b.guards {
		all = append(all, a)
	}
	slices.SortFunc(all, compareAddresses)
	return all
}

// lockGuards holds the sets of tables, then reads and locks the guards. In PostgreSQL one that is not there is made first:
// of two transactions that see an entity for the first time one must wait.
func (b *batch) lockGuards(ctx context.Context) error {
	todo := b.addresses()
	for _, a := range todo {
		if err := b.enter(ctx, a.TenantSchema); err != nil {
			return err
		}
	}
	read := func() error {
		args := make([][]any, len(todo))
		for i, a := range todo {
			args[i] = guardArgs(b.key(a.TenantSchema), a)
		}
		return b.tx.Batch(ctx, "SELECT applied, parked FROM projection_guards WHERE "+guardKey+forUpdate(b.tx.Dialect()), args, func(i int, scan sqldb.Scan) error {
			g := b.guards[todo[i]]
			g.there = true
			return scan(&g.Applied, &g.Parked)
		})
	}
	if err := read(); err != nil || b.tx.Dialect() == sqldb.SQLite {
		return err
	}
	todo = slices.DeleteFunc(todo, func(a ledger.Address) bool { return b.guards[a].there })
	if len(todo) == 0 {
		return nil
	}
	args := make([][]any, len(todo))
	for i, a := range todo {
		args[i] = guardArgs(b.key(a.TenantSchema), a)
	}
	if err := b.tx.Batch(ctx, `INSERT INTO projection_guards (projection, tenant_schema, fork_id, stream, entity_id, applied, parked)
		VALUES ($1, $2, $3, $4, $5, 0, 0) ON CONFLICT DO NOTHING RETURNING 1`, args, func(i int, _ sqldb.Scan) error {
		b.guards[todo[i]].there = true
		return nil
	}); err != nil {
		return err
	}
	// What is not there now another has made, and committed.
	todo = slices.DeleteFunc(todo, func(a ledger.Address) bool { return b.guards[a].there })
	if len(todo) == 0 {
		return nil
	}
	return read()
}

// write takes positions and writes everything.
func (b *batch) write(ctx context.Context) error {
	var boxed [][]any
	if n := len(b.patches) + len(b.letters); n > 0 {
		next, err := b.positions(ctx, n)
		if err != nil {
			return err
		}
		for i := range b.patches {
			args, err := b.patches[i].box(b.p.Name, b.sets[b.patches[i].row.schema].epoch, next)
			if err != nil {
				return err
			}
			boxed = append(boxed, args)
			next++
		}
		args, err := b.writeLetters(ctx, next)
		if err != nil {
			return err
		}
		boxed = append(boxed, args...)
	}
	if err := b.writeRows(ctx); err != nil {
		return err
	}
	if err := b.writeGuards(ctx); err != nil {
		return err
	}
	return b.tx.Batch(ctx, "INSERT INTO projection_outbox (position, kind, key, message) VALUES ($1, $2, $3, $4)", boxed, nil)
}

// positions takes n positions and returns the first. From here to the end of the
// transaction nobody else takes any.
func (b *batch) positions(ctx context.Context, n int) (int64, error) {
	var last int64
	_, err := sqldb.One(ctx, b.tx, []any{&last}, "UPDATE projection_head SET position = position + $1 WHERE id = 1 RETURNING position", int64(n))
	return last - int64(n) + 1, err
}

// box makes a patch the outbox's row of a position, and the row's last.
func (p *patch) box(projection string, epoch, position int64) ([]any, error) {
	e := p.work.event
	message, err := event.Patch{
		Projection: projection, TenantSchema: e.TenantSchema, ForkID: e.ForkID, Stream: p.work.to.Stream, EntityID: e.EntityID, EventType: e.EventType,
		Key: p.key, Operations: p.ops, PrevCursor: p.row.cursor, Cursor: position, Epoch: epoch, TS: e.TS,
	}.Encode()
	if err != nil {
		return nil, fmt.Errorf("patch of %s: %w", projection, err)
	}
	p.row.cursor = position
	if p.delete {
		p.row.cursor = 0
	}
	return []any{position, KindPatch, []byte(e.EntityID), message}, nil
}

func (b *batch) writeGuards(ctx context.Context) error {
	var args [][]any
	for _, a := range b.addresses() {
		if g := b.guards[a]; g.changed {
			args = append(args, append(guardArgs(b.key(a.TenantSchema), a), g.Applied, g.Parked))
		}
	}
	return b.tx.Batch(ctx, `INSERT INTO projection_guards (projection, tenant_schema, fork_id, stream, entity_id, applied, parked) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (projection, tenant_schema, fork_id, stream, entity_id) DO UPDATE SET applied = excluded.applied, parked = excluded.parked`, args, nil)
}
