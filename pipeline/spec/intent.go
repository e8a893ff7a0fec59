package spec

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// Intent is what a client may ask for.
type Intent struct {
	Name string
	// State and Stream are whose entities it writes.
	State, Stream string
	Input         []Field

	state     *State
	entity    *expr.Expr
	phases    []phase
	listeners []*listener // of the state, in order
	events    map[string]*Event
}

// phase is preflight, core or side_effects.
type phase struct {
	name  string
	rules []rule
}

type rule struct {
	name     string
	when     *expr.Expr // nil: always
	priority int64
	ops      []op
}

// intents reads every intent:
//
//	intents:
//	  TAKE_SEAT:
//	    state: seat
//	    entity_id_expr: intent.seat_id
//	    input: { seat_id: { type: string, required: true }, who: string }
//	    preflight: { rules: [ { name: free, when: { expr: 'entity.holder != ""' }, then: [ ... ] } ] }
//	    core: { rules: [ ... ] }
func (c *checker) intents() {
	for _, d := range c.defs["intent"] {
		in := &Intent{Name: d.name, events: c.app.Events}
		c.app.Intents[d.name] = in
		what := "intent " + d.name
		b, ok := c.block(d.body, what, "state", "entity_id_expr", "description", "input", "preflight", "core", "side_effects")
		if !ok {
			continue
		}
		in.state = c.stateNamed(b, "state")
		in.Input = b.fields("input")
		entity := &expr.Shape{Open: true}
		if in.state != nil {
			in.State, in.Stream, entity = in.state.Name, in.state.Stream, in.state.shape
		}
		event := eventShape(shapeOfFields(in.Input, "the input of "+in.Name))
		scope := expr.Scope{
			Roots:  map[string]*expr.Shape{"event": event, "intent": event, "entity": entity},
			States: c.stateShapes(),
		}
		in.entity = c.id(b.need("entity_id_expr", "an expression for the entity's id"), what+": entity_id_expr", scope)
		for _, name := range []string{"preflight", "core", "side_effects"} {
			if n := b.has(name); n != nil {
				in.phases = append(in.phases, c.phase(n, name, what+": "+name, scope, in.state))
			}
		}
		if len(in.phases) == 0 {
			c.warn(WarnNoEffect, d.at, "%s has no rules: it changes nothing", what)
		}
	}
}

func (c *checker) phase(n *node, name, what string, scope expr.Scope, s *State) phase {
	p := phase{name: name}
	b, ok := c.block(n, what, "rules")
	if !ok {
		return p
	}
	seen := map[string]bool{}
	for i, item := range b.list("rules") {
		where := fmt.Sprintf("%s: rule %d", what, i+1)
		rb, ok := c.block(item, where, "name", "when", "priority", "then", "description")
		if !ok {
			continue
		}
		r := rule{name: rb.text("name"), priority: rb.number("priority", 0)}
		if r.name != "" {
			where = fmt.Sprintf("%s: rule %s", what, r.name)
			if seen[r.name] {
				c.fail(rb.has("name").Pos, "%s: there are two of this name", where)
			}
			seen[r.name] = true
		}
		r.when = c.when(rb.has("when"), where+": when", scope, expr.Condition)
		rb.need("then", "a list of operations")
		r.ops = c.ops(rb.list("then"), where, scope, s, 0)
		p.rules = append(p.rules, r)
	}
	slices.SortStableFunc(p.rules, func(a, b rule) int { return cmp.Compare(a.priority, b.priority) })
	return p
}

// when reads a condition: an expression, or {expr: ...}; {} is always.
// Of a rule it guards; elsewhere it filters.
func (c *checker) when(n *node, what string, scope expr.Scope, mode expr.Mode) *expr.Expr {
	if n == nil || n.kind != mapping {
		return c.condition(n, what, scope, mode)
	}
	b, ok := c.block(n, what, "expr")
	if !ok {
		return nil
	}
	return c.condition(b.has("expr"), what, scope, mode)
}
