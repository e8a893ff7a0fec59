package spec

import (
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// Message is an event as a projection sees it. The payload is current: Event.Current
// made it.
type Message struct {
	Type, EntityID string
	TS             int64 // milliseconds since 1970
	IRVersion      string
	Payload        map[string]any
	// Lookup reads other entities; needed where Projection.ReadsOthers.
	Lookup Lookup
}

// Cell is a column's value, of the Go type that the column's type says.
type Cell struct {
	Column string
	Value  any
}

// RowKind is what is done to rows.
type RowKind uint8

// What can be done to rows.
const (
	Insert      RowKind = iota // a row that is not there yet
	Update                     // the row with the key
	Delete                     // the row with the key
	UpdateWhere                // all rows whose columns have the values of Where
)

func (k RowKind) String() string {
	return [...]string{"insert", "update", "delete", "update where"}[k]
}

// RowOp is one operation on rows of a table.
type RowOp struct {
	Kind  RowKind
	Table string
	Key   []Cell // in order of the primary key; not for UpdateWhere
	Set   []Cell // in order of the columns, without the key
	Where []Cell // of UpdateWhere
}

// Step is what one event does to a projection, before the row it does it to was read.
// A Step without a Key reads no row.
type Step struct {
	// Table and Key say which row. The caller reads and locks it and hands it to
	// Apply. Of a row that is not there nothing can be locked: insert its key first, or
	// another writer of the same new row is overwritten.
	Table string
	Key   []Cell

	p     *Projection
	op    string
	set   []Cell
	where []Cell
	sums  []sum
}

// sum is an aggregate that was evaluated.
type sum struct {
	column Column
	op     string
	by     any
	floor  any
}

// Step evaluates everything that follows from the event alone. It returns nil when the
// event does nothing to this projection. Errors are of kind lattice.Invalid, and come back
// each time (an expression that fails, a value that its column does not take, a key that
// is null), but for those of a Lookup, which keep their kind.
func (p *Projection) Step(m Message) (*Step, error) {
	e := p.effects[m.Type]
	if e == nil {
		return nil, nil
	}
	s, err := p.step(e, m)
	if err != nil {
		err = fmt.Errorf("projection %s: %s: %w", p.Name, m.Type, err)
		if lattice.KindOf(err) == lattice.Internal {
			err = lattice.E(lattice.Invalid, err)
		}
		return nil, err
	}
	return s, nil
}

func (p *Projection) step(e *effect, m Message) (*Step, error) {
	vars := expr.Vars{
		Roots:  map[string]any{"event": eventRoot(m.Type, m.EntityID, m.IRVersion, m.TS, m.Payload)},
		Lookup: m.Lookup,
	}
	if e.cond != nil {
		if yes, err := e.cond.Holds(vars); err != nil || !yes {
			return nil, err
		}
	}
	s := &Step{Table: p.Table, p: p, op: e.op}
	if e.op == "bulk_update" {
		return p.bulk(s, e, vars)
	}
	values, err := p.derived(vars)
	if err != nil {
		return nil, err
	}
	if err := p.override(values, e.set, vars); err != nil {
		return nil, err
	}
	for _, name := range p.Key {
		v, ok := values[name]
		if !ok || v == nil {
			return nil, fmt.Errorf("column %s of the primary key is %s", name, map[bool]string{true: "null", false: "not in the event"}[ok])
		}
		s.Key = append(s.Key, Cell{name, v})
		delete(values, name)
	}
	if e.op == "delete" {
		return s, nil
	}
	for _, col := range p.Columns {
		if v, ok := values[col.Name]; ok {
			s.set = append(s.set, Cell{col.Name, v})
		}
	}
	for _, a := range e.aggregates {
		if err := s.aggregate(a, vars); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// bulk is an update of all rows that fit. A condition on null or on what is not there
// fits none.
func (p *Projection) bulk(s *Step, e *effect, vars expr.Vars) (*Step, error) {
	where, set := map[string]any{}, map[string]any{}
	if err := p.override(where, e.where, vars); err != nil {
		return nil, err
	}
	if err := p.override(set, e.set, vars); err != nil {
		return nil, err
	}
	for _, w := range e.where {
		if where[w.column] == nil {
			return nil, nil
		}
	}
	for _, col := range p.Columns {
		if v, ok := where[col.Name]; ok {
			s.where = append(s.where, Cell{col.Name, v})
		}
		if v, ok := set[col.Name]; ok {
			s.set = append(s.set, Cell{col.Name, v})
		}
	}
	if len(s.set) == 0 {
		return nil, nil
	}
	return s, nil
}

// derived evaluates the derived columns. A column whose value is absent is left out.
func (p *Projection) derived(vars expr.Vars) (map[string]any, error) {
	raw := map[string]any{}
	vars.Roots["derived"] = raw
	values := make(map[string]any, len(p.Columns))
	for _, d := range p.derive {
		v, ok, err := d.value.eval(vars)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", d.column, err)
		}
		if !ok {
			continue
		}
		raw[d.column] = v
		if values[d.column], err = p.columns[d.column].Convert(v); err != nil {
			return nil, err
		}
	}
	if b := p.bucket; b != nil {
		v, ok, err := b.start(vars)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", b.column, err)
		}
		if ok {
			if values[b.column], err = p.columns[b.column].Convert(v); err != nil {
				return nil, err
			}
		}
	}
	return values, nil
}

// start returns when the interval of an event began, in milliseconds since 1970.
func (b *bucket) start(vars expr.Vars) (any, bool, error) {
	v, ok, err := b.of.Value(vars)
	if err != nil || !ok || v == nil {
		return nil, false, err
	}
	t, err := timestamp(v)
	if err != nil {
		return nil, false, err
	}
	ms, every := t.(time.Time).UnixMilli(), b.every.Milliseconds()
	start := ms - ms%every
	if ms%every < 0 {
		start -= every
	}
	return start, true, nil
}

func (p *Projection) override(values map[string]any, set []derived, vars expr.Vars) error {
	for _, d := range set {
		v, ok, err := d.value.eval(vars)
		if err != nil {
			return fmt.Errorf("column %s: %w", d.column, err)
		}
		if !ok {
			continue
		}
		if values[d.column], err = p.columns[d.column].Convert(v); err != nil {
			return err
		}
	}
	return nil
}

// aggregate evaluates one. By null or what is not there, nothing changes.
func (s *Step) aggregate(a aggregate, vars expr.Vars) error {
	if a.when != nil {
		if yes, err := a.when.Holds(vars); err != nil || !yes {
			return err
		}
	}
	by, ok, err := a.by.eval(vars)
	if err != nil {
		return fmt.Errorf("column %s: %w", a.column, err)
	}
	if !ok || by == nil && a.op != "set" {
		return nil
	}
	s.sums = append(s.sums, sum{s.p.columns[a.column], a.op, by, a.floor})
	return nil
}

// Apply returns what to do to the row, which is nil when there is none; its values are as
// the database returned them. Values that do not change are not written, so that there may
// be nothing to do. It fails, with lattice.Invalid, when a sum does not fit its column.
func (s *Step) Apply(row map[string]any) ([]RowOp, error) {
	ops, err := s.apply(row)
	if err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("projection %s: %w", s.p.Name, err))
	}
	return ops, nil
}

func (s *Step) apply(row map[string]any) ([]RowOp, error) {
	op := RowOp{Kind: Update, Table: s.Table, Key: s.Key}
	switch {
	case s.op == "bulk_update":
		return []RowOp{{Kind: UpdateWhere, Table: s.Table, Set: s.set, Where: s.where}}, nil
	case row == nil && (s.op == "delete" || s.op == "update"):
		return nil, nil
	case s.op == "delete":
		op.Kind = Delete
		return []RowOp{op}, nil
	case row == nil:
		op.Kind = Insert
	}
	next, err := s.next(row)
	if err != nil {
		return nil, err
	}
	for _, col := range s.p.Columns {
		v, ok := next[col.Name]
		if !ok || slices.Contains(s.p.Key, col.Name) {
			continue
		}
		if op.Kind == Update {
			if old, err := col.Read(row[col.Name]); err == nil && same(old, v) {
				continue
			}
		}
		op.Set = append(op.Set, Cell{col.Name, v})
	}
	if op.Kind == Update && len(op.Set) == 0 {
		return nil, nil
	}
	return []RowOp{op}, nil
}

// next returns the values that the row has afterwards, as far as the event says.
func (s *Step) next(row map[string]any) (map[string]any, error) {
	next := map[string]any{}
	if row != nil && s.op == "replace" {
		for _, col := range s.p.Columns {
			next[col.Name] = nil
		}
	}
	if row == nil || s.op == "replace" {
		for _, name := range s.p.counters {
			zero, err := s.p.columns[name].Convert(int64(0))
			if err != nil {
				return nil, err
			}
			next[name] = zero
		}
	}
	for _, cell := range s.set {
		next[cell.Column] = cell.Value
	}
	for _, a := range s.sums {
		base, ok := next[a.column.Name]
		if !ok {
			var err error
			if base, err = a.column.Read(row[a.column.Name]); err != nil {
				return nil, err
			}
		}
		v, err := a.over(base)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", a.column.Name, err)
		}
		next[a.column.Name] = v
	}
	return next, nil
}

// over returns the value behind an aggregate on a base, NULL counting as 0.
func (a sum) over(base any) (any, error) {
	v := a.by
	switch {
	case a.op == "set":
	case a.column.Type == Decimal:
		if base == nil {
			base = int64(0)
		}
		x, err := decimal(base)
		if err != nil {
			return nil, err
		}
		y, err := decimal(a.by)
		if err != nil {
			return nil, err
		}
		if a.op == "sub" {
			y.Neg(y)
		}
		v = decimalText(x.Add(x, y))
	default:
		var err error
		if v, err = plus(base, a.by, a.op == "sub"); err != nil {
			return nil, err
		}
	}
	if a.floor != nil && v != nil {
		x, err := decimal(v)
		if err != nil {
			return nil, err
		}
		if y, err := decimal(a.floor); err == nil && x.Cmp(y) < 0 {
			v = a.floor
		}
	}
	if v == nil {
		return nil, nil
	}
	return a.column.convert(v)
}

// same reports whether two values of one column are equal.
func same(a, b any) bool {
	switch x := a.(type) {
	case time.Time:
		y, ok := b.(time.Time)
		return ok && x.Equal(y)
	case []byte:
		y, ok := b.([]byte)
		return ok && slices.Equal(x, y)
	}
	return a == b
}
