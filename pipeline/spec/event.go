package spec

import (
	"fmt"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// Event is a kind of fact.
type Event struct {
	Name string
	// State and Stream are whose entities it belongs to.
	State, Stream string
	// Kind is event, system, fact, compute or command. Nothing treats them differently.
	Kind    string
	Payload []Field

	entity   *expr.Expr
	upcast   []upcast
	shape    *expr.Shape // of the payload
	at       Pos
	produced bool
}

// upcast is one step from an old payload to a newer one.
type upcast struct {
	when   *expr.Expr
	names  []string
	values []value
	unset  []string
}

// events reads every event:
//
//	events:
//	  SEAT_TAKEN:
//	    state: seat
//	    entity_expr: event.seat_id
//	    payload: { seat_id: string, holder: string, price: integer }
//	    upcast:
//	      - { when: "!has(event.holder)", set: { holder: event.who }, unset: [who] }
func (c *checker) events() {
	for _, d := range c.defs["event"] {
		e := &Event{Name: d.name, Kind: "event", at: d.at}
		c.app.Events[d.name] = e
		what := "event " + d.name
		e.shape = &expr.Shape{Kind: expr.Object, Open: true}
		b, ok := c.block(d.body, what, "state", "entity_expr", "payload", "kind", "description", "upcast")
		if !ok {
			continue
		}
		if s := c.stateNamed(b, "state"); s != nil {
			e.State, e.Stream = s.Name, s.Stream
		}
		e.Kind = b.choice("kind", "event", "event", "system", "fact", "compute", "command")
		e.Payload = b.fields("payload")
		e.shape = shapeOfFields(e.Payload, "the payload of "+e.Name)
		keys, _ := b.members("payload")
		for _, k := range keys {
			if slices.Contains([]string{"type", "ts", "entity_id", "payload", "ir_version"}, k.text) {
				c.warn(WarnReserved, k.Pos, "%s: event.%s is the envelope's; write event.payload.%s for this field, or call it otherwise", what, k.text, k.text)
			}
		}
		scope := expr.Scope{Roots: map[string]*expr.Shape{"event": eventShape(e.shape)}}
		e.entity = c.id(b.need("entity_expr", "an expression for the entity's id"), what+": entity_expr", scope)
		for _, item := range b.list("upcast") {
			c.upcast(e, item, what+": upcast")
		}
	}
}

// upcast reads one step. The old payload has members that nobody declares any more, so
// that its expressions may read any.
func (c *checker) upcast(e *Event, n *node, what string) {
	b, ok := c.block(n, what, "when", "set", "unset", "description")
	if !ok {
		return
	}
	open := expr.Scope{Roots: map[string]*expr.Shape{"event": eventShape(&expr.Shape{Kind: expr.Object, Open: true})}}
	u := upcast{when: c.when(b.need("when", "a condition on the old payload"), what+": when", open, expr.Filter)}
	keys, values := b.members("set")
	for i, k := range keys {
		if _, ok := e.shape.Fields[k.text]; !ok {
			c.unknown(k.Pos, fmt.Sprintf("%s: set: event %s has no field", what, e.Name), k.text, sortedKeys(e.shape.Fields))
		}
		u.names = append(u.names, k.text)
		u.values = append(u.values, c.value(values[i], what+": set: "+k.text, open))
	}
	for _, name := range b.names("unset") {
		u.unset = append(u.unset, name.text)
	}
	if len(u.names)+len(u.unset) == 0 {
		c.fail(n.Pos, "%s: expected set, unset or both", what)
	}
	e.upcast = append(e.upcast, u)
}

// Current returns the payload of an event as this version of the application declares
// it: upcast, and each member as its type has it. irVersion is what the event was
// written under. An error, of kind lattice.Invalid, names every member that is wrong.
func (e *Event) Current(irVersion string, payload map[string]any) (map[string]any, error) {
	for i, u := range e.upcast {
		vars := expr.Vars{Roots: map[string]any{"event": eventRoot(e.Name, "", irVersion, 0, payload)}}
		if u.when == nil {
			continue
		}
		old, err := u.when.Holds(vars)
		if err != nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("event %s: upcast %d: %w", e.Name, i+1, err))
		}
		if !old {
			continue
		}
		next := make(map[string]any, len(payload))
		for k, v := range payload {
			next[k] = v
		}
		for j, name := range u.names {
			v, ok, err := u.values[j].eval(vars)
			if err != nil {
				return nil, lattice.E(lattice.Invalid, fmt.Errorf("event %s: upcast %d: %s: %w", e.Name, i+1, name, err))
			}
			if ok {
				next[name] = v
			}
		}
		for _, name := range u.unset {
			delete(next, name)
		}
		payload = next
	}
	out, wrong := conform(e.Payload, payload)
	if wrong != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("event %s: payload: %s", e.Name, strings.Join(wrong, "; ")))
	}
	return out, nil
}

// Entity returns the id of the entity that an event with this payload belongs to.
func (e *Event) Entity(payload map[string]any) (string, error) {
	id, err := entityID(e.entity, expr.Vars{Roots: map[string]any{"event": eventRoot(e.Name, "", "", 0, payload)}})
	if err != nil {
		return "", lattice.E(lattice.Invalid, fmt.Errorf("event %s: entity_expr: %w", e.Name, err))
	}
	return id, nil
}
