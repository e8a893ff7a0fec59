package spec

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// The rejection code of an intent whose input is not as declared. Other codes are the
// application's.
const InvalidInput = "INVALID_INPUT"

// Request is an intent as it came in, and the state of its entity.
type Request struct {
	Payload map[string]any
	// EntityID is what Intent.Entity returned.
	EntityID string
	// State is the entity's state, nil for one that nobody wrote yet.
	State map[string]any
	// TS is when the intent is decided, in milliseconds since 1970: event.ts.
	TS int64
	// Lookup reads other entities. Without it, an intent that does is an error.
	Lookup Lookup
}

// Decision is what comes of an intent. With a Rejection there is nothing to commit.
type Decision struct {
	Rejection *Rejection
	// State is the entity's state after it, and Changes is how it came about.
	State   map[string]any
	Changes []Change
	// Events are to be committed together, in this order. Their payloads are as their
	// events declare them.
	Events []Emitted
}

// Rejection says why not.
type Rejection struct {
	Code, Message string
	// Rule is the rule that rejected, "preflight/free", or "input".
	Rule string
}

// Change is one write to a state: a member of an object set or, with Gone, removed.
// Lists are written whole.
type Change struct {
	Path  []string
	Value any
	Gone  bool
}

// Emitted is one event to be committed.
type Emitted struct {
	Type             string
	State, Stream    string
	EntityID         string
	Payload          map[string]any
	ofRequestsEntity bool
}

// Entity returns the id of the entity that an intent with this payload is about. A payload
// that is not as declared is an error of kind lattice.Invalid, which clients are told as a
// rejection with the code InvalidInput.
func (in *Intent) Entity(payload map[string]any) (string, error) {
	payload, wrong := conform(in.Input, payload)
	if wrong != nil {
		return "", lattice.E(lattice.Invalid, fmt.Errorf("intent %s: payload: %s", in.Name, strings.Join(wrong, "; ")))
	}
	event := eventRoot(in.Name, "", "", 0, payload)
	id, err := entityID(in.entity, expr.Vars{Roots: map[string]any{"event": event, "intent": event, "entity": map[string]any{}}})
	if err != nil {
		return "", lattice.E(lattice.Invalid, fmt.Errorf("intent %s: entity_id_expr: %w", in.Name, err))
	}
	return id, nil
}

// entityID evaluates an expression for an id: text that is not empty, or a whole number.
func entityID(e *expr.Expr, vars expr.Vars) (string, error) {
	v, ok, err := e.Value(vars)
	if err != nil {
		return "", err
	}
	switch v := v.(type) {
	case string:
		if v == "" || len(v) > 512 {
			return "", fmt.Errorf("an entity's id has 1 to 512 bytes, and this has %d", len(v))
		}
		return v, nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	}
	if !ok || v == nil {
		return "", fmt.Errorf("%s is not there", e.Text())
	}
	return "", fmt.Errorf("expected text or a whole number, and this is %s", expr.Literal(v).Shape().Kind)
}

// errDone ends a phase, errRejected the intent.
var (
	errDone     = errors.New("done")
	errRejected = errors.New("rejected")
)

// Decide runs the rules of an intent: preflight, core, side effects; in each the rules
// in order of priority and then of the file; then the listeners on what was emitted. It
// neither changes the request nor keeps it.
//
// An error means that the application is wrong (kind lattice.Invalid: an expression that
// fails, an event that is not as declared), or that a Lookup failed (its own kind): nothing
// may be committed. A guard that cannot be evaluated thus never lets an intent pass.
func (in *Intent) Decide(r Request) (Decision, error) {
	payload, wrong := conform(in.Input, r.Payload)
	if wrong != nil {
		return Decision{Rejection: &Rejection{InvalidInput, strings.Join(wrong, "; "), "input"}}, nil
	}
	state := map[string]any{}
	if r.State != nil {
		state, _ = cloned(r.State).(map[string]any)
	}
	in.state.complete(state, r.EntityID)
	event := eventRoot(in.Name, r.EntityID, "", r.TS, payload)
	d := &deciding{in: in, req: r, state: state}
	d.vars = expr.Vars{Roots: map[string]any{"event": event, "intent": event, "entity": state}, Lookup: r.Lookup}
	for _, p := range in.phases {
		if err := d.phase(p); errors.Is(err, errRejected) {
			return Decision{Rejection: d.rejection}, nil
		} else if err != nil {
			return Decision{}, d.invalid(err)
		}
	}
	for _, e := range d.events {
		if err := d.listen(e); err != nil {
			return Decision{}, d.invalid(err)
		}
	}
	for _, path := range d.scratch {
		drop(state, path)
	}
	// A state that could not be read again would lock its entity for ever.
	if n, depth := measure(state); n > MaxState || depth > MaxNesting {
		return Decision{}, lattice.E(lattice.TooLarge, fmt.Errorf("intent %s: the state of %s %q would have up to %d bytes and be nested %d deep, and the limits are %d and %d",
			in.Name, in.State, r.EntityID, n, depth, MaxState, MaxNesting))
	}
	return Decision{State: state, Changes: d.changes, Events: d.events}, nil
}

// deciding is one run of Decide.
type deciding struct {
	in        *Intent
	req       Request
	state     map[string]any
	vars      expr.Vars
	rule      string
	changes   []Change
	events    []Emitted
	scratch   [][]string // what lookups put into the state: it goes at the end
	rejection *Rejection
}

func (d *deciding) invalid(err error) error {
	err = fmt.Errorf("intent %s: %s: %w", d.in.Name, d.rule, err)
	if lattice.KindOf(err) != lattice.Internal {
		return err
	}
	return lattice.E(lattice.Invalid, err)
}

func (d *deciding) phase(p phase) error {
	for _, r := range p.rules {
		d.rule = p.name + "/" + r.name
		if r.when != nil {
			yes, err := r.when.Holds(d.vars)
			if err != nil {
				return err
			}
			if !yes {
				continue
			}
		}
		if err := d.run(r.ops); errors.Is(err, errDone) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (d *deciding) run(ops []op) error {
	for _, o := range ops {
		if err := d.op(o); err != nil {
			return err
		}
	}
	return nil
}

func (d *deciding) op(o op) error {
	switch o.name {
	case "if":
		yes, err := o.cond.Holds(d.vars)
		if err != nil {
			return err
		}
		if yes {
			return d.run(o.then)
		}
		return d.run(o.els)
	case "stop":
		return errDone
	case "reject":
		d.rejection = &Rejection{o.code, o.message, d.rule}
		return errRejected
	case "emit":
		return d.emit(o)
	case "lookup":
		return d.lookup(o)
	case "unset":
		drop(d.state, o.path)
		d.changes = append(d.changes, Change{Path: o.path, Gone: true})
		return nil
	}
	return d.write(o)
}

// write is an operation that puts a value somewhere. A value that is absent leaves the
// field alone.
func (d *deciding) write(o op) error {
	v, ok, err := o.value.eval(d.vars)
	if err != nil || !ok {
		return err
	}
	old, _ := at(d.state, o.path)
	switch o.name {
	case "set":
		v = cloned(v)
	case "add", "increment", "sub":
		v, err = d.sum(o, old, v)
	case "push":
		list, is := old.([]any)
		if !is && old != nil {
			err = fmt.Errorf("%s is no list", joinPath(o.path))
		}
		v = append(slices.Clone(list), cloned(v))
	case "remove":
		list, is := old.([]any)
		if !is && old != nil {
			err = fmt.Errorf("%s is no list", joinPath(o.path))
		}
		gone, _ := jsonText(v)
		v = slices.DeleteFunc(slices.Clone(list), func(e any) bool {
			text, _ := jsonText(e)
			return text == gone
		})
	case "merge":
		v, err = merged(o, old, v)
	}
	if err != nil {
		return err
	}
	if v, err = o.typ.Convert(v); err != nil {
		return fmt.Errorf("%s: %w", joinPath(o.path), err)
	}
	if err := put(d.state, o.path, v); err != nil {
		return err
	}
	d.changes = append(d.changes, Change{Path: o.path, Value: cloned(v)})
	return nil
}

func merged(o op, old, v any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("merge into %s: expected an object, and this is %s", joinPath(o.path), expr.Literal(v).Shape().Kind)
	}
	base, ok := old.(map[string]any)
	if !ok && old != nil {
		return nil, fmt.Errorf("%s is no object", joinPath(o.path))
	}
	out := map[string]any{}
	maps.Copy(out, base)
	for k, e := range m {
		out[k] = cloned(e)
	}
	return out, nil
}

// sum adds or subtracts, within the bounds.
func (d *deciding) sum(o op, old, by any) (any, error) {
	n, err := plus(old, by, o.name == "sub")
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.name, joinPath(o.path), err)
	}
	for _, bound := range []struct {
		e   *expr.Expr
		max bool
	}{{o.min, false}, {o.max, true}} {
		if bound.e == nil {
			continue
		}
		v, ok, err := bound.e.Value(d.vars)
		if err != nil {
			return nil, err
		}
		if !ok || v == nil {
			continue
		}
		below, err := less(n, v)
		if err != nil {
			return nil, fmt.Errorf("%s %s: cap: %w", o.name, joinPath(o.path), err)
		}
		above, _ := less(v, n)
		if below && !bound.max || above && bound.max {
			n = v
		}
	}
	return n, nil
}

func (d *deciding) emit(o op) error {
	v, _, err := o.value.eval(d.vars)
	if err != nil {
		return err
	}
	m, _ := v.(map[string]any)
	payload, wrong := conform(o.event.Payload, m)
	if wrong != nil {
		return fmt.Errorf("emit %s: payload: %s", o.event.Name, strings.Join(wrong, "; "))
	}
	payload, _ = cloned(payload).(map[string]any)
	id, err := o.event.Entity(payload)
	if err != nil {
		return fmt.Errorf("emit: %w", err)
	}
	if len(d.events) == MaxEvents {
		return fmt.Errorf("emits more than %d events", MaxEvents)
	}
	d.events = append(d.events, Emitted{
		Type: o.event.Name, State: o.event.State, Stream: o.event.Stream, EntityID: id, Payload: payload,
		ofRequestsEntity: o.event.State == d.in.State && id == d.req.EntityID,
	})
	return nil
}

// lookup puts the state of another entity where rules can read it. It is no change of
// this entity.
func (d *deciding) lookup(o op) error {
	id, ok, err := o.id.Value(d.vars)
	if err != nil {
		return err
	}
	name, is := id.(string)
	if !ok || !is {
		return fmt.Errorf("lookup: %s is no id", o.id.Text())
	}
	if d.req.Lookup == nil {
		return lattice.E(lattice.Unsupported, fmt.Errorf("lookup of %s: %w", o.state, expr.ErrNoLookup))
	}
	m, found, err := d.req.Lookup(o.state, name)
	if err != nil {
		return fmt.Errorf("lookup of %s %q: %w", o.state, name, err)
	}
	d.scratch = append(d.scratch, o.path)
	if !found {
		drop(d.state, o.path)
		return nil
	}
	return put(d.state, o.path, cloned(m))
}

// listen lets the listeners on an event of this entity change it.
func (d *deciding) listen(e Emitted) error {
	if !e.ofRequestsEntity {
		return nil
	}
	event := eventRoot(e.Type, e.EntityID, "", d.req.TS, e.Payload)
	d.vars = expr.Vars{Roots: map[string]any{"event": event, "entity": d.state}, Lookup: d.req.Lookup}
	for _, l := range d.in.listeners {
		if l.event != e.Type {
			continue
		}
		d.rule = "listener/" + e.Type
		if l.where != nil {
			yes, err := l.where.Holds(d.vars)
			if err != nil {
				return err
			}
			if !yes {
				continue
			}
		}
		if err := d.run(l.ops); err != nil {
			return err
		}
	}
	return nil
}
