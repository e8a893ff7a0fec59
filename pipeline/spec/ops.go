package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lattice-log/lattice/internal/nearest"
	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// op is one operation of a rule. Which fields are set depends on its name.
type op struct {
	name      string
	path      []string
	typ       Type // of the field at path
	value     value
	min, max  *expr.Expr
	cond      *expr.Expr
	then, els []op
	event     *Event
	code      string
	message   string
	state     string
	id        *expr.Expr
}

// opKeys lists the operations and the keys of each. Those with a reason are read and
// not executed.
func opKeys() map[string]struct {
	keys []string
	why  string
} {
	type o = struct {
		keys []string
		why  string
	}
	const (
		loops = "rules do not loop"
		graph = "there is no graph of entities"
	)
	return map[string]o{
		"set":                 {keys: []string{"path", "field", "value"}},
		"add":                 {keys: []string{"path", "field", "value", "by", "cap"}},
		"sub":                 {keys: []string{"path", "field", "value", "by", "cap"}},
		"increment":           {keys: []string{"path", "field", "value", "by", "cap"}},
		"unset":               {keys: []string{"path", "field"}},
		"merge":               {keys: []string{"path", "field", "value"}},
		"push":                {keys: []string{"path", "field", "value"}},
		"remove":              {keys: []string{"path", "field", "value"}},
		"if":                  {keys: []string{"expr", "then", "else"}},
		"stop":                {},
		"emit":                {keys: []string{"event_type", "payload"}},
		"reject":              {keys: []string{"code", "message"}},
		"lookup":              {keys: []string{"into", "stream", "entity_id_expr"}},
		"filter":              {[]string{"path", "where", "as"}, loops},
		"find":                {[]string{"path", "from", "where", "into", "as"}, loops},
		"map":                 {[]string{"path", "from", "value", "into", "as"}, loops},
		"sort":                {[]string{"path", "by", "direction", "order"}, loops},
		"clone":               {[]string{"path", "from", "into"}, loops},
		"for_each":            {[]string{"for_each", "path", "from", "as", "then"}, loops},
		"foreach":             {[]string{"for_each", "path", "from", "as", "then"}, loops},
		"continue":            {nil, loops},
		"emit_each":           {[]string{"from", "as", "event_type", "payload", "where"}, loops},
		"submit":              {[]string{"intent_type", "target_stream", "target_entity", "payload"}, "an intent does not start another"},
		"schedule":            {[]string{"intent_type", "target_stream", "target_entity", "payload", "delay_seconds"}, "an intent does not start another"},
		"decision":            {[]string{"ref", "input", "into"}, "no language model is called"},
		"lock":                {[]string{"key"}, "an entity is written by one intent at a time anyway"},
		"unlock":              {[]string{"key"}, "an entity is written by one intent at a time anyway"},
		"relationship_create": {[]string{"relationship", "from_id", "to_id"}, graph},
		"relationship_remove": {[]string{"relationship", "from_id", "to_id"}, graph},
		"compute_regen":       {[]string{"path", "value"}, "nothing is computed later"},
	}
}

// ops compiles the operations of a rule.
func (c *checker) ops(items []*node, what string, scope expr.Scope, s *State, depth int) []op {
	var all []op
	known := opKeys()
	for _, item := range items {
		if item.kind != mapping {
			c.fail(item.Pos, "%s: expected an operation such as { op: set, ... }, and this is %s", what, item.describe())
			continue
		}
		name, ok := c.opName(item, what, known)
		if !ok {
			continue
		}
		b, _ := c.block(item, what+": "+name, append([]string{"op", "description"}, known[name].keys...)...)
		if why := known[name].why; why != "" {
			c.warn(WarnNotExecuted, item.Pos, "%s: %s is read and not executed: %s", what, name, why)
			continue
		}
		if o, ok := c.op(b, name, scope, s, depth); ok {
			all = append(all, o)
		}
	}
	return all
}

// opName returns which operation this is. Others are reported.
func (c *checker) opName(item *node, what string, known map[string]struct {
	keys []string
	why  string
},
) (string, bool) {
	i := slices.IndexFunc(item.keys, func(k *node) bool { return k.text == "op" })
	if i < 0 {
		c.fail(item.Pos, "%s: op is missing: expected %s", what, oneOf(sortedKeys(known)))
		return "", false
	}
	n := item.items[i]
	if _, ok := known[n.text]; !ok || n.kind != scalar {
		c.unknown(n.Pos, what+": unknown operation", n.text, sortedKeys(known))
		return "", false
	}
	return n.text, true
}

func (c *checker) op(b block, name string, scope expr.Scope, s *State, depth int) (op, bool) {
	o := op{name: name}
	switch name {
	case "set", "add", "sub", "increment", "unset", "merge", "push", "remove":
		return o, c.write(b, &o, scope, s)
	case "if":
		o.cond = c.when(b.need("expr", "a condition"), b.what+": expr", scope, expr.Condition)
		if depth >= 8 {
			c.fail(b.n.Pos, "%s: nested more than 8 deep", b.what)
			return o, false
		}
		b.need("then", "a list of operations")
		o.then = c.ops(b.list("then"), b.what, scope, s, depth+1)
		o.els = c.ops(b.list("else"), b.what, scope, s, depth+1)
	case "emit":
		return o, c.emit(b, &o, scope)
	case "reject":
		o.code, o.message = b.text("code"), b.text("message")
		b.need("code", "a code for programs, such as SEAT_TAKEN")
	case "lookup":
		return o, c.lookupOp(b, &o, scope, s)
	}
	return o, true
}

// write reads an operation on a field of the entity.
func (c *checker) write(b block, o *op, scope expr.Scope, s *State) bool {
	n := b.has("path")
	if n == nil {
		n = b.has("field")
	}
	if n == nil {
		b.need("path", "a field's path, such as /holder")
		return false
	}
	path, err := splitPath(n.text)
	if err != nil {
		c.fail(n.Pos, "%s: %v", b.what, err)
		return false
	}
	o.path, o.typ = path, "any"
	if s != nil && !c.fieldAt(b, n, s, o) {
		return false
	}
	key := "value"
	if b.has("value") == nil && b.has("by") != nil {
		key = "by"
	}
	switch v := b.at[key]; {
	case o.name == "unset":
	case v != nil:
		o.value = c.value(v, b.what+": "+key, scope)
	case o.name == "add" || o.name == "sub" || o.name == "increment":
		o.value = value{e: expr.Literal(int64(1))}
	default:
		b.need(key, "a value or an expression")
		return false
	}
	c.cap(b, o, scope)
	return c.fits(b, o)
}

// fieldAt finds the declared field at a path, for its type.
func (c *checker) fieldAt(b block, n *node, s *State, o *op) bool {
	if o.path[0] == "_tmp" || o.path[0] == "decisions" || s.shape.Open || o.path[0] == s.Key && len(o.path) == 1 {
		return true
	}
	var known []string
	for _, f := range s.Fields {
		fp, op := joinPath(f.Path), joinPath(o.path)
		switch {
		case fp == op:
			o.typ = f.Type
			return true
		case strings.HasPrefix(op, fp+"/") && (f.Type.Kind() == expr.Object || f.Type.Kind() == expr.Any):
			return true
		case strings.HasPrefix(fp, op+"/") && (o.name == "merge" || o.name == "unset" || o.name == "set"):
			return true
		}
		known = append(known, fp)
	}
	c.unknown(n.Pos, fmt.Sprintf("%s: state %s has no field", b.what, s.Name), joinPath(o.path), known)
	return false
}

// cap reads the bounds of add, sub and increment.
func (c *checker) cap(b block, o *op, scope expr.Scope) {
	n := b.has("cap")
	if n == nil {
		return
	}
	cb, ok := c.block(n, b.what+": cap", "min", "max")
	if !ok {
		return
	}
	for _, key := range []string{"min", "max"} {
		n := cb.has(key)
		if n == nil {
			continue
		}
		v := c.value(n, cb.what+": "+key, scope)
		if v.e == nil || v.kind() != expr.Number && v.kind() != expr.Any {
			c.fail(n.Pos, "%s: %s: expected a number, and this is %s", cb.what, key, v.kind())
			continue
		}
		if key == "min" {
			o.min = v.e
		} else {
			o.max = v.e
		}
	}
}

// fits checks that an operation can work on a field of this type.
func (c *checker) fits(b block, o *op) bool {
	want := map[string]expr.Kind{"add": expr.Number, "sub": expr.Number, "increment": expr.Number, "merge": expr.Object, "push": expr.Array, "remove": expr.Array}
	field, k := o.typ.Kind(), want[o.name]
	if k != expr.Any && field != expr.Any && field != k {
		c.fail(b.n.Pos, "%s: %s is %s, and %s wants %s", b.what, joinPath(o.path), field, o.name, k)
		return false
	}
	if o.name == "unset" || o.name == "push" || o.name == "remove" {
		return true
	}
	if o.name == "set" {
		k = field
	}
	if got := o.value.kind(); k != expr.Any && got != expr.Any && got != k && !(o.value.e != nil && isNull(o.value.e)) {
		c.fail(b.n.Pos, "%s: %s takes %s, and the value is %s", b.what, joinPath(o.path), k, got)
		return false
	}
	return true
}

func isNull(e *expr.Expr) bool {
	v, ok := e.Constant()
	return ok && v == nil
}

// emit reads an emission and checks its payload against the event's.
func (c *checker) emit(b block, o *op, scope expr.Scope) bool {
	n := b.need("event_type", "the name of an event")
	if n == nil {
		return false
	}
	e, ok := c.app.Events[n.text]
	if !ok {
		c.unknown(n.Pos, b.what+": unknown event", n.text, sortedKeys(c.app.Events))
		return false
	}
	o.event, e.produced = e, true
	keys, values := b.members("payload")
	given := map[string]bool{}
	o.value = value{names: []string{}}
	for i, k := range keys {
		given[k.text] = true
		f := slices.IndexFunc(e.Payload, func(f Field) bool { return f.Name == k.text })
		what := fmt.Sprintf("%s: payload: %s", b.what, k.text)
		if f < 0 && !e.shape.Open {
			var known []string
			for _, f := range e.Payload {
				known = append(known, f.Name)
			}
			if best, ok := nearest.Name(k.text, known); ok {
				c.fail(k.Pos, "%s: event %s has no field %q; did you mean %q?", b.what, e.Name, k.text, best)
				continue
			}
			c.warn(WarnUndeclared, k.Pos, "%s: event %s does not declare %q: it is carried unchecked", b.what, e.Name, k.text)
		}
		v := c.value(values[i], what, scope)
		if f >= 0 {
			want, got := e.Payload[f].Type.Kind(), v.kind()
			if want != expr.Any && got != expr.Any && want != got && !(v.e != nil && isNull(v.e)) {
				c.fail(values[i].Pos, "%s: expected %s, and this is %s", what, e.Payload[f].Type, got)
			}
		}
		o.value.names, o.value.parts = append(o.value.names, k.text), append(o.value.parts, v)
	}
	for _, f := range e.Payload {
		if f.Required && !given[f.Name] && f.Default == nil {
			c.fail(b.n.Pos, "%s: payload: %s is missing: event %s requires it", b.what, f.Name, e.Name)
		}
	}
	return true
}

// lookupOp reads the state of another entity into the rule's own scratch space.
func (c *checker) lookupOp(b block, o *op, scope expr.Scope, s *State) bool {
	into, stream := b.need("into", "a path below /_tmp"), b.need("stream", "the stream of a state")
	id := b.need("entity_id_expr", "an expression for the entity's id")
	if into == nil || stream == nil || id == nil {
		return false
	}
	path, err := splitPath(into.text)
	if err != nil {
		c.fail(into.Pos, "%s: into: %v", b.what, err)
		return false
	}
	o.path, o.state = path, strings.TrimSuffix(stream.text, "_stream")
	if _, ok := c.app.States[o.state]; !ok {
		var streams []string
		for name := range c.app.States {
			streams = append(streams, streamOf(name))
		}
		slices.Sort(streams)
		c.unknown(stream.Pos, b.what+": unknown stream", stream.text, streams)
		return false
	}
	if s != nil && path[0] != "_tmp" && !c.fieldAt(b, into, s, o) {
		return false
	}
	o.id = c.id(id, b.what+": entity_id_expr", scope)
	return true
}
