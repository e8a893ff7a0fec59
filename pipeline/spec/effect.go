package spec

import (
	"fmt"
	"slices"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// effects reads what each event does: mutations and aggregates.
func (c projecting) effects() {
	keys, values := c.b.members("mutations")
	for i, k := range keys {
		if c.isSource(k, "mutations") {
			c.mutation(k, values[i])
		}
	}
	keys, values = c.b.members("aggregates")
	for i, k := range keys {
		if c.isSource(k, "aggregates") {
			c.aggregates(k, values[i])
		}
	}
	if c.b.has("mutations") == nil && c.b.has("aggregates") == nil {
		c.fail(c.p.at, "%s: expected mutations, aggregates or both", c.b.what)
	}
	for _, name := range c.p.Sources {
		if _, ok := c.p.effects[name]; !ok {
			c.warn(WarnNoEffect, c.p.at, "%s: %s is a source event and changes nothing", c.b.what, name)
		}
	}
}

func (c projecting) isSource(k *node, section string) bool {
	if slices.Contains(c.p.Sources, k.text) {
		return true
	}
	if _, ok := c.app.Events[k.text]; ok {
		c.fail(k.Pos, "%s: %s: %s is not among its source_events", c.b.what, section, k.text)
	} else {
		c.unknown(k.Pos, fmt.Sprintf("%s: %s: unknown event", c.b.what, section), k.text, c.p.Sources)
	}
	return false
}

func (c projecting) mutation(k, n *node) {
	what := fmt.Sprintf("%s: mutations: %s", c.b.what, k.text)
	b, ok := c.block(n, what, "op", "set", "where", "condition", "when", "description")
	if !ok {
		return
	}
	scope := c.scopeOf([]string{k.text})
	e := &effect{}
	b.need("op", "upsert, update, replace, delete or bulk_update")
	e.op = b.choice("op", "upsert", "upsert", "update", "replace", "delete", "bulk_update", "soft_delete")
	if e.op == "soft_delete" {
		c.warn(WarnNotExecuted, b.has("op").Pos, "%s: soft_delete is read and not executed: set a column with update", what)
		return
	}
	for _, key := range []string{"condition", "when"} {
		if n := b.has(key); n != nil {
			e.cond = c.when(n, what+": "+key, scope, expr.Filter)
		}
	}
	e.set = c.cells(b, "set", "mutations: "+k.text+": set", scope)
	e.where = c.cells(b, "where", "mutations: "+k.text+": where", scope)
	switch {
	case e.op == "bulk_update" && len(e.where) == 0:
		c.fail(n.Pos, "%s: bulk_update needs where: without it every row would change", what)
	case e.op == "bulk_update" && len(e.set) == 0:
		c.fail(n.Pos, "%s: bulk_update needs set", what)
	case e.op != "bulk_update" && len(e.where) > 0:
		c.fail(b.has("where").Pos, "%s: where goes with bulk_update; %s changes the row of its key", what, e.op)
	case e.op == "delete" && len(e.set) > 0:
		c.fail(b.has("set").Pos, "%s: a deleted row has nothing to set", what)
	}
	for _, d := range e.set {
		if slices.Contains(c.p.Key, d.column) {
			c.fail(b.has("set").Pos, "%s: set: %s is in the primary key; derive it", what, d.column)
		}
	}
	c.p.effects[k.text] = e
}

// cells reads a mapping of columns to values.
func (c projecting) cells(b block, key, what string, scope expr.Scope) []derived {
	var all []derived
	keys, values := b.members(key)
	for i, k := range keys {
		if v, ok := c.cell(k, values[i], what, scope); ok {
			all = append(all, derived{k.text, v})
		}
	}
	return all
}

func (c projecting) aggregates(k, n *node) {
	what := fmt.Sprintf("%s: aggregates: %s", c.b.what, k.text)
	if n.kind != mapping {
		c.fail(n.Pos, "%s: expected columns with what is added to them, and this is %s", what, n.describe())
		return
	}
	e := c.p.effects[k.text]
	if e == nil {
		e = &effect{op: "upsert"}
		c.p.effects[k.text] = e
	}
	if e.op == "bulk_update" || e.op == "delete" {
		c.fail(k.Pos, "%s: the event's mutation is %s, which has no row to count in", what, e.op)
		return
	}
	scope := c.scopeOf([]string{k.text})
	for i, name := range n.keys {
		if a, ok := c.aggregate(name, n.items[i], what, scope); ok {
			e.aggregates = append(e.aggregates, a)
		}
	}
}

func (c projecting) aggregate(name, n *node, what string, scope expr.Scope) (aggregate, bool) {
	a := aggregate{column: name.text}
	col, ok := c.p.columns[name.text]
	switch {
	case !ok:
		c.unknown(name.Pos, what+": unknown column", name.text, c.columnNames())
		return a, false
	case slices.Contains(c.p.Key, name.text):
		c.fail(name.Pos, "%s: %s is in the primary key", what, name.text)
		return a, false
	}
	what += ": " + name.text
	b, ok := c.block(n, what, "op", "by", "value", "floor", "when", "condition")
	if !ok {
		return a, false
	}
	b.need("op", "add, sub or set")
	a.op = b.choice("op", "add", "add", "sub", "set")
	if a.op != "set" && !col.Numeric() {
		c.fail(name.Pos, "%s: column is %s, and only a number can be counted in", what, col.Type)
		return a, false
	}
	by := b.has("by")
	if by == nil {
		by = b.has("value")
	}
	switch {
	case by != nil:
		a.by = c.value(by, what+": by", scope)
		c.p.lookups += a.by.lookups()
		if k := a.by.kind(); a.op != "set" && k != expr.Number && k != expr.Any {
			c.fail(by.Pos, "%s: by: expected a number, and this is %s", what, k)
		} else if !col.takes(k) {
			c.fail(by.Pos, "%s: by: column is %s, and the value is %s", what, col.Type, k)
		}
	case a.op == "set":
		b.need("by", "a value or an expression")
		return a, false
	default:
		a.by = value{e: expr.Literal(int64(1))}
	}
	if f := b.has("floor"); f != nil {
		if a.floor = f.value; kindOf(a.floor) != expr.Number.String() || !col.Numeric() {
			c.fail(f.Pos, "%s: floor: expected a number, and this is %s", what, f.describe())
			return a, false
		}
	}
	for _, key := range []string{"when", "condition"} {
		if n := b.has(key); n != nil {
			a.when = c.when(n, what+": "+key, scope, expr.Filter)
		}
	}
	if a.op != "set" && !slices.Contains(c.p.counters, a.column) {
		c.p.counters = append(c.p.counters, a.column)
	}
	return a, true
}

// tables puts the projections of one table together, and checks that they agree.
func (c *checker) tables() {
	byName := map[string]*Table{}
	first := map[string]*Projection{} // table or table.column => who declared it
	for _, p := range c.app.Projections {
		if p.Table == "" {
			continue // reported
		}
		t := byName[p.Table]
		if t == nil {
			t = &Table{Name: p.Table, Key: p.Key}
			byName[p.Table], first[p.Table] = t, p
		} else if !slices.Equal(t.Key, p.Key) {
			c.fail(p.at, "projection %s: table %s has the primary key %v in projection %s, and %v here", p.Name, p.Table, t.Key, first[p.Table].Name, p.Key)
		}
		for _, col := range p.Columns {
			i := slices.IndexFunc(t.Columns, func(o Column) bool { return o.Name == col.Name })
			if i < 0 {
				t.Columns = append(t.Columns, col)
				first[p.Table+"."+col.Name] = p
			} else if t.Columns[i] != col {
				c.fail(p.at, "projection %s: column %s of table %s is %s in projection %s, and %s here", p.Name, col.Name, p.Table,
					t.Columns[i].Type, first[p.Table+"."+col.Name].Name, col.Type)
			}
		}
		for _, ix := range p.Indexes {
			if !slices.ContainsFunc(t.Indexes, func(o Index) bool {
				return slices.Equal(o.Columns, ix.Columns) && o.Descending == ix.Descending && o.Unique == ix.Unique
			}) {
				t.Indexes = append(t.Indexes, ix)
			}
		}
		t.Projections = append(t.Projections, p.Name)
	}
	for _, name := range sortedKeys(byName) {
		c.app.Tables = append(c.app.Tables, byName[name])
	}
}
