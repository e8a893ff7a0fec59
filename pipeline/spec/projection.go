package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// Projection keeps rows of a table as its source events say.
type Projection struct {
	Name    string
	Sources []string // events, in order of the file
	Table   string
	Columns []Column // in order of the file
	Key     []string // primary key, in order
	Indexes []Index

	columns  map[string]Column
	derive   []derived // in an order in which each comes behind what it reads
	bucket   *bucket
	effects  map[string]*effect // by event
	counters []string           // columns that aggregates count in: 0 in a new row
	lookups  int
	at       Pos
}

// Index is an index on columns of a table.
type Index struct {
	Columns    []string
	Descending bool
	Unique     bool
}

// Table is what one or several projections write.
type Table struct {
	Name        string
	Columns     []Column
	Key         []string
	Indexes     []Index
	Projections []string
}

// derived is a column and how it follows from an event.
type derived struct {
	column string
	value  value
}

type bucket struct {
	column string
	of     *expr.Expr
	every  time.Duration
}

// effect is what one event does.
type effect struct {
	op         string // upsert, update, replace, delete, bulk_update
	cond       *expr.Expr
	set        []derived
	where      []derived
	aggregates []aggregate
}

type aggregate struct {
	column string
	op     string // add, sub, set
	by     value
	floor  any // nil: none
	when   *expr.Expr
}

// ReadsOthers reports whether the projection reads the state of other entities.
func (p *Projection) ReadsOthers() bool { return p.lookups > 0 }

// Column returns a column by its name.
func (p *Projection) Column(name string) (Column, bool) {
	c, ok := p.columns[name]
	return c, ok
}

// projections reads every projection:
//
//	projections:
//	  seats_by_holder:
//	    source_events: [SEAT_TAKEN]
//	    target: { table: seats_by_holder, primary_key: [holder] }
//	    fields: { holder: TEXT, seats: BIGINT }
//	    derive: { holder: event.payload.holder }
//	    aggregates: { SEAT_TAKEN: { seats: { op: add, by: 1 } } }
func (c *checker) projections() {
	for _, d := range c.defs["projection"] {
		p := &Projection{Name: d.name, columns: map[string]Column{}, effects: map[string]*effect{}, at: d.at}
		b, ok := c.block(d.body, "projection "+d.name, "description", "source_events", "target", "fields", "derive",
			"mutations", "aggregates", "indexes", "bucket", "partition", "override")
		if !ok {
			continue
		}
		pc := projecting{checker: c, p: p, b: b}
		pc.read()
		c.app.Projections = append(c.app.Projections, p)
	}
	slices.SortFunc(c.app.Projections, func(a, b *Projection) int { return strings.Compare(a.Name, b.Name) })
	c.tables()
}

// projecting reads one projection.
type projecting struct {
	*checker
	p     *Projection
	b     block
	scope expr.Scope // of all source events together
}

func (c projecting) read() {
	c.sources()
	c.target()
	c.fields()
	c.scope = c.scopeOf(c.p.Sources)
	c.bucket()
	c.derive()
	c.effects()
	c.keyColumns()
	c.indexes()
	c.b.unexecuted("tables are not partitioned", "partition")
	c.b.unexecuted("nothing is overridden", "override")
	if c.p.lookups > 0 {
		c.warn(WarnLookup, c.p.at, "%s reads other entities as they are when it runs: a rebuild may give other rows", c.b.what)
	}
	if c.p.lookups > MaxLookups {
		c.fail(c.p.at, "%s reads %d other entities, more than %d", c.b.what, c.p.lookups, MaxLookups)
	}
}

func (c projecting) sources() {
	c.b.need("source_events", "a list of events")
	for _, n := range c.b.names("source_events") {
		if _, ok := c.app.Events[n.text]; !ok {
			c.unknown(n.Pos, c.b.what+": source_events: unknown event", n.text, sortedKeys(c.app.Events))
			continue
		}
		if slices.Contains(c.p.Sources, n.text) {
			c.fail(n.Pos, "%s: source_events: %s is there twice", c.b.what, n.text)
			continue
		}
		c.p.Sources = append(c.p.Sources, n.text)
	}
}

func (c projecting) target() {
	n := c.b.need("target", "{ table, primary_key }")
	if n == nil {
		return
	}
	b, ok := c.block(n, c.b.what+": target", "table", "primary_key", "entity_key", "entity_expr")
	if !ok {
		return
	}
	if t := b.need("table", "a table's name"); t != nil && c.nameOK(t.Pos, "table", t.text) {
		c.p.Table = t.text
	}
	b.need("primary_key", "a list of columns")
	for _, n := range b.names("primary_key") {
		if c.nameOK(n.Pos, "column", n.text) {
			c.p.Key = append(c.p.Key, n.text)
		}
	}
	b.unexecuted("the event's own entity is used", "entity_key", "entity_expr")
}

// fields reads the columns. Without them they are what is written, as TEXT.
func (c projecting) fields() {
	keys, values := c.b.members("fields")
	for i, k := range keys {
		if c.nameOK(k.Pos, "column", k.text) {
			c.column(c.columnOf(k.text, values[i], c.b.what+": fields: "+k.text))
		}
	}
	if len(keys) > 0 {
		return
	}
	c.warn(WarnColumns, c.p.at, "%s has no fields: all its columns are TEXT, and those that are counted in BIGINT", c.b.what)
	for _, name := range c.p.Key {
		c.column(Column{Name: name})
	}
	derived, _ := c.b.members("derive")
	for _, k := range derived {
		c.column(Column{Name: k.text})
	}
	_, events := c.b.members("mutations")
	for _, e := range events {
		if sb, ok := (block{c: c.checker, n: e, at: map[string]*node{}}), e.kind == mapping; ok {
			for i, k := range e.keys {
				sb.at[k.text] = e.items[i]
			}
			set, _ := sb.members("set")
			for _, k := range set {
				c.column(Column{Name: k.text})
			}
		}
	}
	_, events = c.b.members("aggregates")
	for _, e := range events {
		for _, k := range e.keys {
			c.column(Column{Name: k.text, Type: BigInt})
		}
	}
}

func (c projecting) column(col Column) {
	if _, ok := c.p.columns[col.Name]; ok {
		return
	}
	c.p.columns[col.Name] = col
	c.p.Columns = append(c.p.Columns, col)
}

// scopeOf returns what expressions see of one of these events.
func (c projecting) scopeOf(events []string) expr.Scope {
	union := &expr.Shape{Kind: expr.Object, Fields: map[string]*expr.Shape{}}
	own := ""
	for i, name := range events {
		e := c.app.Events[name]
		union.Open = union.Open || e.shape.Open
		for f, s := range e.shape.Fields {
			if old, ok := union.Fields[f]; ok && old.Kind != s.Kind {
				s = &expr.Shape{Open: true}
			}
			union.Fields[f] = s
		}
		if i == 0 {
			own = e.State
		} else if own != e.State {
			own = ""
		}
	}
	union.What = "the payload of " + oneOf(events)
	return expr.Scope{
		Roots: map[string]*expr.Shape{"event": eventShape(union)}, States: c.stateShapes(), Own: own,
	}
}

// intervals are the lengths of a bucket.
func intervals() map[string]time.Duration {
	return map[string]time.Duration{
		"1m": time.Minute, "5m": 5 * time.Minute, "15m": 15 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour, "1d": 24 * time.Hour,
	}
}

// bucket adds a column with the start of the interval that an event falls into. It is the
// column that it names, or the one of the key that nothing derives, or bucket_start.
func (c projecting) bucket() {
	n := c.b.has("bucket")
	if n == nil {
		return
	}
	b, ok := c.block(n, c.b.what+": bucket", "field", "interval", "column")
	if !ok {
		return
	}
	bu := &bucket{column: b.text("column")}
	if f := b.need("field", "an expression, such as event.ts"); f != nil {
		if bu.of = c.id(f, b.what+": field", c.scope); bu.of == nil {
			return
		}
	}
	if b.need("interval", oneOf(sortedKeys(intervals()))) != nil {
		bu.every = intervals()[b.choice("interval", "1d", sortedKeys(intervals())...)]
	}
	if bu.column == "" {
		bu.column = "bucket_start"
		derived, _ := c.b.members("derive")
		for _, k := range c.p.Key {
			if !slices.ContainsFunc(derived, func(n *node) bool { return n.text == k }) && k != "shard_id" {
				bu.column = k
			}
		}
	}
	if col, ok := c.p.columns[bu.column]; ok && col.Type != Timestamp && col.Type != BigInt && col.Type != Text {
		c.fail(b.n.Pos, "%s: column %s must be TIMESTAMP or BIGINT", b.what, bu.column)
	}
	c.column(Column{Name: bu.column, Type: Timestamp})
	if bu.of != nil && bu.every > 0 {
		c.p.bucket = bu
	}
}

// derive reads how columns follow from an event, and orders them.
func (c projecting) derive() {
	keys, values := c.b.members("derive")
	all := map[string]*expr.Shape{}
	for _, k := range keys {
		all[k.text] = &expr.Shape{Open: true}
	}
	scope := c.scope
	scope.Roots = map[string]*expr.Shape{
		"event": c.scope.Roots["event"], "derived": {Kind: expr.Object, Fields: all, What: "derive"},
	}
	reads := map[string][]string{}
	var list []derived
	for i, k := range keys {
		v, ok := c.cell(k, values[i], "derive", scope)
		if !ok {
			continue
		}
		list = append(list, derived{k.text, v})
		for _, other := range keys {
			if strings.Contains(values[i].text, "derived."+other.text) {
				reads[k.text] = append(reads[k.text], other.text)
			}
		}
	}
	done := map[string]bool{}
	for len(c.p.derive) < len(list) {
		n := len(c.p.derive)
		for _, d := range list {
			if !done[d.column] && !slices.ContainsFunc(reads[d.column], func(r string) bool { return !done[r] }) {
				done[d.column] = true
				c.p.derive = append(c.p.derive, d)
			}
		}
		if len(c.p.derive) == n {
			c.fail(c.b.has("derive").Pos, "%s: derive: columns are derived from each other in a circle", c.b.what)
			return
		}
	}
}

// cell compiles a value for a column.
func (c projecting) cell(k, n *node, what string, scope expr.Scope) (value, bool) {
	what = fmt.Sprintf("%s: %s: %s", c.b.what, what, k.text)
	col, ok := c.p.columns[k.text]
	if !ok {
		c.unknown(k.Pos, what+": unknown column", k.text, c.columnNames())
		return value{}, false
	}
	v := c.value(n, what, scope)
	c.p.lookups += v.lookups()
	if !col.takes(v.kind()) && !(v.e != nil && isNull(v.e)) {
		c.fail(n.Pos, "%s: column is %s, and the value is %s", what, col.Type, v.kind())
	}
	return v, true
}

func (c projecting) columnNames() []string {
	var all []string
	for _, col := range c.p.Columns {
		all = append(all, col.Name)
	}
	return all
}

// keyColumns checks that each event that writes a row says which one.
func (c projecting) keyColumns() {
	needsRow := false
	for _, e := range c.p.effects {
		needsRow = needsRow || e.op != "bulk_update"
	}
	for _, k := range c.p.Key {
		if _, ok := c.p.columns[k]; !ok {
			c.unknown(c.p.at, c.b.what+": primary_key: unknown column", k, c.columnNames())
			continue
		}
		if !needsRow || c.p.bucket != nil && c.p.bucket.column == k ||
			slices.ContainsFunc(c.p.derive, func(d derived) bool { return d.column == k }) {
			continue
		}
		if k == "shard_id" && c.p.columns[k].Numeric() {
			c.p.derive = append(c.p.derive, derived{k, value{e: expr.Literal(int64(0))}})
			c.warn(WarnNoEffect, c.p.at, "%s: nothing derives shard_id: it is always 0; derive it by shard(expression, N)", c.b.what)
			continue
		}
		c.fail(c.p.at, "%s: primary_key: nothing derives column %s", c.b.what, k)
	}
}

func (c projecting) indexes() {
	for i, n := range c.b.list("indexes") {
		b, ok := c.block(n, fmt.Sprintf("%s: index %d", c.b.what, i+1), "columns", "direction", "unique", "name")
		if !ok {
			continue
		}
		ix := Index{Descending: b.choice("direction", "asc", "asc", "desc") == "desc", Unique: b.boolean("unique")}
		b.need("columns", "a list of columns")
		for _, col := range b.names("columns") {
			if _, ok := c.p.columns[col.text]; !ok {
				c.unknown(col.Pos, b.what+": unknown column", col.text, c.columnNames())
				continue
			}
			ix.Columns = append(ix.Columns, col.text)
		}
		c.p.Indexes = append(c.p.Indexes, ix)
	}
}
