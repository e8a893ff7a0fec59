package spec

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// Type is the declared type of a field, by its name in the file.
type Type string

// typeNames lists the types. Several names mean the same.
func typeNames() []string {
	return []string{
		"string", "uuid", "number", "float", "double", "decimal", "int", "integer", "boolean", "bool",
		"array", "object", "any", "json", "timestamp", "datetime", "date",
	}
}

// Kind returns what a value of this type is in JSON.
func (t Type) Kind() expr.Kind {
	switch t {
	case "string", "uuid":
		return expr.String
	case "number", "float", "double", "int", "integer":
		return expr.Number
	case "boolean", "bool":
		return expr.Bool
	case "array":
		return expr.Array
	case "object":
		return expr.Object
	}
	return expr.Any // json and any; times are milliseconds or text, decimals numbers or text
}

func (t Type) shape() *expr.Shape { return &expr.Shape{Kind: t.Kind(), Open: true} }

// Convert returns v as this type has it: whole numbers int64, other numbers float64. Null
// is a value of every type.
func (t Type) Convert(v any) (any, error) {
	if v == nil {
		return nil, nil
	}
	ok := true
	switch t {
	case "string", "uuid":
		_, ok = v.(string)
	case "number", "float", "double":
		switch n := v.(type) {
		case int64:
			return float64(n), nil
		case float64:
		default:
			ok = false
		}
	case "int", "integer":
		switch n := v.(type) {
		case int64:
		case float64:
			if n == math.Trunc(n) && math.Abs(n) < 1<<53 {
				return int64(n), nil
			}
			return nil, fmt.Errorf("expected a whole number, and this is %s", strconv.FormatFloat(n, 'g', -1, 64))
		default:
			ok = false
		}
	case "boolean", "bool":
		_, ok = v.(bool)
	case "array":
		_, ok = v.([]any)
	case "object":
		_, ok = v.(map[string]any)
	case "decimal", "timestamp", "datetime", "date":
		switch v.(type) {
		case int64, float64, string:
		default:
			ok = false
		}
	}
	if !ok {
		return nil, fmt.Errorf("expected %s, and this is %s", t, expr.Literal(v).Shape().Kind)
	}
	return v, nil
}

// Field is a declared member of a payload or of an intent's input.
type Field struct {
	Name     string
	Type     Type
	Required bool
	// Default is taken for a member that is not there; nil: none.
	Default any
}

// conform returns the payload with each declared member as its type has it, and what
// is wrong with it. Members that are not declared stay: old and new versions of an
// application read the same events.
func conform(fields []Field, payload map[string]any) (map[string]any, []string) {
	out := make(map[string]any, len(payload))
	for k, v := range payload {
		out[k] = v
	}
	var wrong []string
	for _, f := range fields {
		v, ok := out[f.Name]
		switch {
		case !ok && f.Default != nil:
			out[f.Name] = f.Default
			continue
		case (!ok || v == nil) && f.Required:
			wrong = append(wrong, fmt.Sprintf("%s is missing: expected %s", f.Name, f.Type))
			continue
		case !ok:
			continue
		}
		converted, err := f.Type.Convert(v)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", f.Name, err))
			continue
		}
		out[f.Name] = converted
	}
	return out, wrong
}

// fields reads a mapping of names to a type, or to {type, required, ...}.
func (b block) fields(key string) []Field {
	var all []Field
	keys, values := b.members(key)
	for i, k := range keys {
		what := fmt.Sprintf("%s: %s", b.what, k.text)
		f := Field{Name: k.text}
		v := values[i]
		if v.kind == scalar {
			f.Type = b.c.typeOf(v, what)
			all = append(all, f)
			continue
		}
		fb, ok := b.c.block(v, what, "type", "required", "description", "default", "nullable", "item_type", "item_fields")
		if !ok {
			continue
		}
		if t := fb.need("type", "one of "+oneOf(typeNames())); t != nil {
			f.Type = b.c.typeOf(t, what)
		}
		f.Required = fb.boolean("required")
		f.Default = fb.value("default", f.Type)
		fb.unexecuted("what is in a list or an object is not checked", "item_type", "item_fields")
		all = append(all, f)
	}
	return all
}

// typeOf reads the name of a type; of a wrong one it makes any.
func (c *checker) typeOf(n *node, what string) Type {
	s, ok := n.value.(string)
	if ok && slices.Contains(typeNames(), s) {
		return Type(s)
	}
	if n.kind != scalar {
		c.fail(n.Pos, "%s: expected a type, and this is %s", what, n.describe())
	} else {
		c.unknown(n.Pos, what+": unknown type", n.text, typeNames())
	}
	return "any"
}

// value reads a literal of a type, nil where there is none.
func (b block) value(key string, t Type) any {
	n := b.has(key)
	if n == nil {
		return nil
	}
	v, err := t.Convert(n.plain())
	if err != nil {
		b.c.fail(n.Pos, "%s: %s: %v", b.what, key, err)
		return nil
	}
	return v
}

// plain returns a node as JSON.
func (n *node) plain() any {
	switch n.kind {
	case sequence:
		all := make([]any, len(n.items))
		for i, item := range n.items {
			all[i] = item.plain()
		}
		return all
	case mapping:
		m := make(map[string]any, len(n.items))
		for i, k := range n.keys {
			m[k.text] = n.items[i].plain()
		}
		return m
	}
	return n.value
}

// shapeOfFields returns the shape of an object with these members.
func shapeOfFields(fields []Field, what string) *expr.Shape {
	s := &expr.Shape{Kind: expr.Object, Fields: map[string]*expr.Shape{}, What: what}
	for _, f := range fields {
		s.Fields[f.Name] = f.Type.shape()
	}
	return s
}

// eventShape is the root "event": an envelope whose payload's members can be written
// without it.
func eventShape(payload *expr.Shape) *expr.Shape {
	return &expr.Shape{
		Kind: expr.Object, Short: "payload", What: "an event",
		Fields: map[string]*expr.Shape{
			"payload":    payload,
			"ts":         {Kind: expr.Number},
			"type":       {Kind: expr.String},
			"entity_id":  {Kind: expr.String},
			"ir_version": {Kind: expr.String},
		},
	}
}

func eventRoot(typ, entityID, irVersion string, ts int64, payload map[string]any) map[string]any {
	return map[string]any{
		"payload": payload, "ts": ts, "type": typ, "entity_id": entityID, "ir_version": irVersion,
	}
}

// measure returns at most how many bytes v takes as JSON, and how deep it is nested. What
// it finds to be within the bounds of Payload, Payload reads.
func measure(v any) (bytes, depth int) {
	switch v := v.(type) {
	case string:
		return textSize(v), 0
	case []any:
		bytes = 2
		for _, e := range v {
			n, d := measure(e)
			bytes, depth = bytes+n+1, max(depth, d)
		}
		return bytes, depth + 1
	case map[string]any:
		bytes = 2
		for k, e := range v {
			n, d := measure(e)
			bytes, depth = bytes+textSize(k)+n+2, max(depth, d)
		}
		return bytes, depth + 1
	}
	return 25, 0 // the longest number
}

// textSize is the length of a text in JSON at its worst: what may be escaped is.
func textSize(s string) int {
	n := len(s) + 2
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c >= 0x7f {
			n += 5
		}
	}
	return n
}

// cloned returns a deep copy.
func cloned(v any) any {
	switch v := v.(type) {
	case []any:
		c := make([]any, len(v))
		for i, e := range v {
			c[i] = cloned(e)
		}
		return c
	case map[string]any:
		c := make(map[string]any, len(v))
		for k, e := range v {
			c[k] = cloned(e)
		}
		return c
	}
	return v
}

// jsonText is v as JSON, the members of objects in order of their names.
func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}
