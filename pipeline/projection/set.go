package projection

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/sqldb"
)

// set is one generation of a table in a tenant's schema, with the guards and dead letters
// of the projections that write it. One of them is live, and has the table's name; the
// others are being filled, or were swapped out, and have the generation in theirs.
type set struct {
	name       string // the application's of the table
	generation int64  // from 1
	epoch      int64  // of patches
	live       bool
	digest     string // of the application that made it, if a rebuild did
}

// keyMark is between a projection and a generation in the keys of guards and dead letters,
// and between a table and a generation in its name. No declared name has it.
const keyMark = "~"

// key is what the guards and dead letters of a projection are kept by. The first generation
// has the projection's own name.
func (s set) key(projection string) string {
	if s.generation <= 1 || projection == "" {
		return projection
	}
	return projection + keyMark + strconv.FormatInt(s.generation, 10)
}

func nameOfKey(key string) string {
	name, _, _ := strings.Cut(key, keyMark)
	return name
}

func generationOfKey(key string) int64 {
	_, n, _ := strings.Cut(key, keyMark)
	g, err := strconv.ParseInt(n, 10, 64)
	if err != nil {
		return 1
	}
	return g
}

// table is the set's table in the database.
func (s set) table() string {
	if s.live {
		return s.name
	}
	return bounded(s.name, keyMark+strconv.FormatInt(s.generation, 10), false)
}

// forShare and forUpdate end a SELECT that is to hold what it reads.
func forShare(d sqldb.Dialect) string {
	if d == sqldb.Postgres {
		return " FOR SHARE"
	}
	return "" // a transaction that writes is alone
}

// liveSet returns the set that is live. hold ends the statement: forShare, forUpdate, or
// nothing. A table that was never made here has the first.
func liveSet(ctx context.Context, tx sqldb.Tx, schema, table, hold string) (set, error) {
	l := set{name: table, generation: 1, epoch: 1, live: true}
	if table == "" {
		return l, nil
	}
	_, err := sqldb.One(ctx, tx, []any{&l.generation, &l.epoch, &l.digest},
		"SELECT generation, epoch, digest FROM projection_tables WHERE tenant_schema = $1 AND name = $2"+hold, schema, table)
	return l, err
}

// enter finds the set of a tenant's tables that the transaction works on and holds it to
// the end: nobody swaps it meanwhile.
func (b *batch) enter(ctx context.Context, schema string) error {
	if _, there := b.sets[schema]; there {
		return nil
	}
	hold := forShare(b.tx.Dialect())
	if b.filling != nil {
		of := set{name: b.p.Table, generation: b.filling.generations[tableID{schema, b.p.Table}]}
		if err := b.filling.building(ctx, b.tx, schema, of, hold); err != nil {
			return err
		}
		b.sets[schema] = of
		return nil
	}
	live, err := liveSet(ctx, b.tx, schema, b.p.Table, hold)
	if err != nil {
		return err
	}
	if b.generation != 0 && b.generation != live.generation {
		live = set{name: b.p.Table, generation: b.generation}
	} else if err := b.s.ofThisVersion(schema, live); err != nil {
		return err
	}
	b.sets[schema] = live
	return nil
}

// ofThisVersion refuses to write tables that were swapped in since the store was opened,
// if another text of the application made them: what this one derives does not fit them.
func (s *Store) ofThisVersion(schema string, live set) error {
	opened, there := s.opened[tableID{schema, live.name}]
	if !there || opened == live.generation || live.digest == "" || live.digest == s.app.Digest {
		return nil
	}
	return lattice.E(lattice.Unsupported, fmt.Errorf("table %s of %s was rebuilt from another version of the application: start this program again with that one", live.name, schema))
}

// key is what the batch's projection keeps guards and dead letters by in a tenant's tables.
func (b *batch) key(schema string) string { return b.sets[schema].key(b.p.Name) }

// table is the identifier of the batch's table in a tenant's schema.
func (b *batch) table(schema string) string {
	return b.tx.Dialect().Table(schema, b.sets[schema].table())
}

// hidden is 1 for dead letters of tables that are not live.
func (b *batch) hidden(schema string) int64 {
	if s, there := b.sets[schema]; there && !s.live {
		return 1
	}
	return 0
}
