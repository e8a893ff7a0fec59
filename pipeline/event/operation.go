package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
)

// Operation changes one member of an object. It is the part of RFC 6902 that
// every client understands:
//
//   - Op is add, replace or remove. Add and replace both set the member.
//   - Path names members only, from the outermost: "/a/b". The empty path is the
//     whole document. It is not unescaped, so no name in it has "/" or "~":
//     an object with such a name is set whole.
//   - Arrays are set whole.
type Operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path"`
	Value json.RawMessage `json:"value,omitempty"` // absent for remove
}

// Operations.
const (
	OpAdd     = "add"
	OpReplace = "replace"
	OpRemove  = "remove"
)

// ParseOperations reads an array of operations.
func ParseOperations(b []byte) ([]Operation, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("operations: %w", err))
	}
	if len(raw) > MaxOperations {
		return nil, lattice.E(lattice.TooLarge, fmt.Errorf("%d operations, the limit is %d", len(raw), MaxOperations))
	}
	ops := make([]Operation, len(raw))
	for i, r := range raw {
		o, err := parseObject(r)
		if err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, err)
		}
		op := Operation{Op: o.name("op"), Path: o.prose("path"), Value: o.members["value"]}
		switch {
		case o.err != nil:
		case op.Op != OpAdd && op.Op != OpReplace && op.Op != OpRemove:
			o.wrong("op", "add, replace or remove")
		case op.Path != "" && op.Path[0] != '/':
			o.wrong("path", `"" or a path that begins with "/"`)
		case op.Op == OpRemove:
			op.Value = nil
		case op.Value == nil:
			o.wrong("value", "a value")
		}
		if o.err != nil {
			return nil, fmt.Errorf("operation %d: %w", i, o.err)
		}
		ops[i] = op
	}
	return ops, nil
}

// Diff returns the operations that make the document after of the document
// before, in an order that depends on the two alone. Both must be JSON; nil
// stands for no document.
func Diff(before, after []byte) ([]Operation, error) {
	if len(after) == 0 {
		if len(before) == 0 {
			return nil, nil
		}
		return []Operation{{Op: OpRemove}}, nil
	}
	if len(before) == 0 {
		return []Operation{{Op: OpAdd, Value: after}}, nil
	}
	return diff(nil, "", before, after, 0)
}

func diff(ops []Operation, path string, before, after json.RawMessage, depth int) ([]Operation, error) {
	if depth > MaxDepth {
		return nil, lattice.E(lattice.TooLarge, fmt.Errorf("nested deeper than %d levels", MaxDepth))
	}
	if same(before, after) {
		return ops, nil
	}
	if kind(before) != '{' || kind(after) != '{' {
		return append(ops, Operation{OpReplace, path, after}), nil
	}
	var old, now map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(before, &old), json.Unmarshal(after, &now)); err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("compare %q: %w", clip(path), err))
	}
	names := make([]string, 0, len(old)+len(now))
	for name := range old {
		names = append(names, name)
	}
	for name := range now {
		if _, both := old[name]; !both {
			names = append(names, name)
		}
	}
	if slices.ContainsFunc(names, func(s string) bool { return s == "" || strings.ContainsAny(s, "/~") }) {
		return append(ops, Operation{OpReplace, path, after}), nil
	}
	slices.Sort(names)
	for _, name := range names {
		was, there := old[name]
		is, stays := now[name]
		at := path + "/" + name
		var err error
		switch {
		case !stays:
			ops = append(ops, Operation{Op: OpRemove, Path: at})
		case !there:
			ops = append(ops, Operation{OpAdd, at, is})
		default:
			if ops, err = diff(ops, at, was, is, depth+1); err != nil {
				return nil, err
			}
		}
	}
	return ops, nil
}

// same reports whether two values are written alike but for space.
func same(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, a) == nil && json.Compact(&y, b) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

// Apply returns the document with the operations done to it, as a client does
// them: members on the way are made, a remove of what is not there does nothing.
// Nil stands for no document, before and after.
func Apply(document []byte, ops []Operation) ([]byte, error) {
	for _, op := range ops {
		var err error
		if document, err = apply(document, op, strings.Split(op.Path, "/")[1:]); err != nil {
			return nil, fmt.Errorf("%s %q: %w", op.Op, clip(op.Path), err)
		}
	}
	return document, nil
}

func apply(document json.RawMessage, op Operation, path []string) (json.RawMessage, error) {
	if len(path) > MaxDepth {
		return nil, lattice.E(lattice.TooLarge, fmt.Errorf("a path of %d members, the limit is %d", len(path), MaxDepth))
	}
	if len(path) == 0 {
		return op.Value, nil
	}
	members := map[string]json.RawMessage{}
	if kind(document) == '{' {
		if err := json.Unmarshal(document, &members); err != nil {
			return nil, lattice.E(lattice.Invalid, err)
		}
	} else if op.Op == OpRemove {
		return document, nil
	}
	inner, there := members[path[0]]
	switch {
	case op.Op == OpRemove && !there:
		return document, nil
	case op.Op == OpRemove && len(path) == 1:
		delete(members, path[0])
	default:
		v, err := apply(inner, op, path[1:])
		if err != nil {
			return nil, err
		}
		members[path[0]] = v
	}
	return encode(members)
}
