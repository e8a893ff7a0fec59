package spec

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// listener changes the entity of an event in the commit that emits it. A step of a saga
// is one, too.
type listener struct {
	event    string
	where    *expr.Expr
	priority int64
	ops      []op
}

// listeners reads every listener and gives it to the intents of its state:
//
//	listeners:
//	  - on: SEAT_TAKEN
//	    priority: 0
//	    mutate: [ { op: increment, field: times_taken } ]
func (c *checker) listeners() {
	var all []*listener
	for i, d := range c.defs["listener"] {
		what := fmt.Sprintf("listener %d", i+1)
		b, ok := c.block(d.body, what, "on", "where", "priority", "mutate", "description")
		if !ok {
			continue
		}
		e := c.eventNamed(b, "on")
		if e == nil {
			continue
		}
		what = "listener on " + e.Name
		b.what = what
		scope, s := c.listenerScope(e)
		l := &listener{event: e.Name, priority: b.number("priority", 0)}
		l.where = c.when(b.has("where"), what+": where", scope, expr.Filter)
		b.need("mutate", "a list of operations")
		for _, item := range b.list("mutate") {
			l.ops = append(l.ops, c.listenerOp(item, what, scope, s)...)
		}
		c.warnOtherEntity(d.at, what, e)
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(a, b *listener) int { return cmp.Compare(a.priority, b.priority) })
	c.listen(all)
}

// listenerOp is an operation that only writes.
func (c *checker) listenerOp(item *node, what string, scope expr.Scope, s *State) []op {
	ops := c.ops([]*node{item}, what, scope, s, 0)
	for _, o := range ops {
		if !slices.Contains([]string{"set", "add", "sub", "increment", "unset", "merge", "push", "remove", "if"}, o.name) {
			c.fail(item.Pos, "%s: %s cannot be used here: a listener only changes the entity", what, o.name)
			return nil
		}
	}
	return ops
}

func (c *checker) listenerScope(e *Event) (expr.Scope, *State) {
	s := c.app.States[e.State]
	entity := &expr.Shape{Open: true}
	if s != nil {
		entity = s.shape
	}
	return expr.Scope{Roots: map[string]*expr.Shape{"event": eventShape(e.shape), "entity": entity}, States: nil}, s
}

// listen gives each intent the listeners on events of its state.
func (c *checker) listen(all []*listener) {
	for _, in := range c.app.Intents {
		for _, l := range all {
			if e := c.app.Events[l.event]; e != nil && e.State == in.State {
				in.listeners = append(in.listeners, l)
			}
		}
	}
}

// warnOtherEntity warns of an event that no intent of its own state emits: nothing then
// changes the entity in the same commit.
func (c *checker) warnOtherEntity(pos Pos, what string, e *Event) {
	for _, in := range c.app.Intents {
		if in.State != e.State {
			continue
		}
		for _, p := range in.phases {
			for _, r := range p.rules {
				if emits(r.ops, e) {
					return
				}
			}
		}
	}
	c.warn(WarnOtherEntity, pos, "%s has no effect: no intent of state %s emits %s", what, e.State, e.Name)
}

func emits(ops []op, e *Event) bool {
	for _, o := range ops {
		if o.event == e || emits(o.then, e) || emits(o.els, e) {
			return true
		}
	}
	return false
}

// eventNamed returns the event that a key names.
func (c *checker) eventNamed(b block, key string) *Event {
	n := b.need(key, "the name of an event")
	if n == nil {
		return nil
	}
	e, ok := c.app.Events[n.text]
	if !ok {
		c.unknown(n.Pos, b.what+": unknown event", n.text, sortedKeys(c.app.Events))
	}
	return e
}

// sagas reads every saga. Each step on an event writes its values below the saga's path of the
// entity, in the commit that emits the event; steps are not guarded by their order.
//
//	sagas:
//	  booking:
//	    state: seat
//	    state_path: _tmp/booking
//	    steps: [ { name: taken, on: SEAT_TAKEN, set: { status: taken }, end: true } ]
func (c *checker) sagas() {
	var all []*listener
	for _, d := range c.defs["saga"] {
		what := "saga " + d.name
		b, ok := c.block(d.body, what, "state", "state_path", "steps", "description")
		if !ok {
			continue
		}
		s := c.stateNamed(b, "state")
		path := []string{"_tmp", d.name}
		if n := b.has("state_path"); n != nil {
			p, err := splitPath(n.text)
			if err != nil {
				c.fail(n.Pos, "%s: state_path: %v", what, err)
				continue
			}
			path = p
		}
		b.need("steps", "a list of steps")
		for i, item := range b.list("steps") {
			if l := c.sagaStep(item, fmt.Sprintf("%s: step %d", what, i+1), s, path); l != nil {
				all = append(all, l)
			}
		}
	}
	c.listen(all)
}

func (c *checker) sagaStep(item *node, what string, s *State, path []string) *listener {
	b, ok := c.block(item, what, "name", "on", "set", "end", "description")
	if !ok {
		return nil
	}
	b.need("name", "a name")
	b.boolean("end")
	if b.has("on") == nil {
		return nil // where a saga begins: nothing happened yet
	}
	e := c.eventNamed(b, "on")
	if e == nil {
		return nil
	}
	if s != nil && e.State != s.Name {
		c.fail(b.has("on").Pos, "%s: event %s belongs to state %s, and the saga to %s", what, e.Name, e.State, s.Name)
		return nil
	}
	scope, _ := c.listenerScope(e)
	l := &listener{event: e.Name}
	keys, values := b.members("set")
	for i, k := range keys {
		o := op{name: "set", path: append(slices.Clone(path), k.text), typ: "any"}
		o.value = c.value(values[i], what+": set: "+k.text, scope)
		l.ops = append(l.ops, o)
	}
	c.warnOtherEntity(item.Pos, what, e)
	return l
}
