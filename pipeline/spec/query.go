package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// Query is a named question to one table.
type Query struct {
	Name       string
	Projection string
	Table      string
	Input      []Field
	Columns    []string // those of the answer, in order; all of them when the file names none
	Where      []Condition
	Order      []Order
	Limit      int // 0: none given
}

// Condition is one comparison; all of a query's must hold.
type Condition struct {
	Column string
	// Op is eq, neq, gt, gte, lt, lte, in, nin, like or ilike.
	Op string

	value value
}

// Order is one column to sort by.
type Order struct {
	Column     string
	Descending bool
}

// Value returns what the column is compared with. It is false when the input that it reads
// was not given: the comparison then is left out.
func (c Condition) Value(input map[string]any) (any, bool, error) {
	v, ok, err := c.value.eval(expr.Vars{Roots: map[string]any{"input": input}})
	if err != nil {
		return nil, false, fmt.Errorf("where %s: %w", c.Column, err)
	}
	return v, ok && v != nil, nil
}

// Conform returns the input as the query declares it, and what is wrong with it.
func (q *Query) Conform(input map[string]any) (map[string]any, []string) {
	return conform(q.Input, input)
}

// queries reads every query:
//
//	queries:
//	  seats_of:
//	    from: seats_by_holder
//	    input: { holder: { type: string, required: true } }
//	    fields: [seats_by_holder.seats]
//	    where: { holder: { eq: input.holder } }
//	    order_by: { seats: desc }
//	    limit: 50
func (c *checker) queries() {
	for _, d := range c.defs["query"] {
		q := &Query{Name: d.name}
		what := "query " + d.name
		b, ok := c.block(d.body, what, "description", "from", "input", "fields", "where", "order_by", "limit",
			"joins", "group_by", "aggregate", "distinct", "coalesce_zero", "window")
		if !ok {
			continue
		}
		c.app.Queries[d.name] = q
		b.unexecuted("a query reads the rows of one table", "joins", "group_by", "aggregate", "distinct", "coalesce_zero", "window")
		q.Input = b.fields("input")
		t := c.from(b, q)
		if t == nil {
			continue
		}
		joined := b.has("joins") != nil || b.has("aggregate") != nil // names of others may come up
		column := func(n *node, what string) (Column, bool) { return c.queryColumn(n, what, q, t, joined) }
		for _, n := range b.names("fields") {
			if col, ok := column(n, what+": fields"); ok {
				q.Columns = append(q.Columns, col.Name)
			}
		}
		if len(q.Columns) == 0 {
			for _, col := range t.Columns {
				q.Columns = append(q.Columns, col.Name)
			}
		}
		c.where(b, q, column)
		keys, values := b.members("order_by")
		for i, k := range keys {
			if col, ok := column(k, what+": order_by"); ok {
				if !slices.Contains([]string{"asc", "desc"}, values[i].text) {
					c.unknown(values[i].Pos, what+": order_by: "+k.text, values[i].text, []string{"asc", "desc"})
				}
				q.Order = append(q.Order, Order{col.Name, values[i].text == "desc"})
			}
		}
		if n := b.has("limit"); n != nil {
			if q.Limit = int(b.number("limit", 1)); q.Limit < 1 || q.Limit > 10_000 {
				c.fail(n.Pos, "%s: limit: expected 1 to 10000, and this is %s", what, n.describe())
			}
		}
	}
}

// from finds the table: that of a projection, or one by its own name.
func (c *checker) from(b block, q *Query) *Table {
	n := b.need("from", "the name of a projection")
	if n == nil {
		return nil
	}
	q.Table = n.text
	known := []string{}
	for _, p := range c.app.Projections {
		known = append(known, p.Name)
		if p.Name == n.text {
			q.Projection, q.Table = p.Name, p.Table
		}
	}
	for _, t := range c.app.Tables {
		if t.Name == q.Table {
			if q.Projection == "" {
				q.Projection = t.Projections[0]
			}
			return t
		}
	}
	c.unknown(n.Pos, b.what+": from: unknown projection", n.text, known)
	return nil
}

// queryColumn finds a column, with or without its table before it.
func (c *checker) queryColumn(n *node, what string, q *Query, t *Table, joined bool) (Column, bool) {
	name := n.text
	if table, rest, dotted := strings.Cut(name, "."); dotted {
		if table != t.Name && table != q.Projection {
			if !joined {
				c.unknown(n.Pos, what+": unknown table", table, []string{t.Name})
			}
			return Column{}, false
		}
		name = rest
	}
	i := slices.IndexFunc(t.Columns, func(col Column) bool { return col.Name == name })
	if i < 0 {
		if !joined {
			var known []string
			for _, col := range t.Columns {
				known = append(known, col.Name)
			}
			c.unknown(n.Pos, fmt.Sprintf("%s: table %s has no column", what, t.Name), name, known)
		}
		return Column{}, false
	}
	return t.Columns[i], true
}

func (c *checker) where(b block, q *Query, column func(*node, string) (Column, bool)) {
	scope := expr.Scope{Roots: map[string]*expr.Shape{"input": shapeOfFields(q.Input, "the input of "+q.Name)}}
	operators := []string{"eq", "neq", "gt", "gte", "lt", "lte", "in", "nin", "like", "ilike", "gte_window"}
	keys, values := b.members("where")
	for i, k := range keys {
		what := fmt.Sprintf("%s: where: %s", b.what, k.text)
		col, ok := column(k, b.what+": where")
		if n := values[i]; n.kind != mapping || len(n.keys) != 1 {
			c.fail(n.Pos, "%s: expected one comparison such as { eq: input.x }, and this is %s", what, n.describe())
			continue
		}
		op, n := values[i].keys[0], values[i].items[0]
		if !slices.Contains(operators, op.text) {
			c.unknown(op.Pos, what+": unknown comparison", op.text, operators)
			continue
		}
		v := c.value(n, what, scope)
		if op.text == "gte_window" {
			c.warn(WarnNotExecuted, op.Pos, "%s: gte_window is read and not executed: a query does not know what time it is", what)
			continue
		}
		if !ok {
			continue
		}
		if list := op.text == "in" || op.text == "nin"; !list && !col.takes(v.kind()) || list && v.kind() != expr.Any && v.kind() != expr.Array {
			c.fail(n.Pos, "%s: column is %s, and %s compares with %s", what, col.Type, op.text, v.kind())
		}
		q.Where = append(q.Where, Condition{Column: col.Name, Op: op.text, value: v})
	}
}
