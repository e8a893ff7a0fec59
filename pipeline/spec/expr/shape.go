package expr

import (
	"maps"
	"slices"
)

// Kind is the JSON kind of a value as far as it is known.
type Kind uint8

// The kinds.
const (
	Any Kind = iota
	String
	Number
	Bool
	Array
	Object
)

func (k Kind) String() string {
	return [...]string{"a value of any kind", "text", "a number", "true or false", "a list", "an object"}[k]
}

// Shape is what is known about a value before it is there.
type Shape struct {
	Kind Kind
	// Fields are the members of an object, when they are known.
	Fields map[string]*Shape
	// Open objects may have other members, too.
	Open bool
	// Short names a member whose own members can be written without it.
	Short string
	// What says whose members these are: "the payload of SEAT_TAKEN".
	What string
}

// anything is the shape of which nothing is known.
func anything() *Shape { return &Shape{Open: true} }

// is reports whether a value of this shape can be of kind k.
func (s *Shape) is(k Kind) bool { return s == nil || s.Kind == Any || s.Kind == k }

// kind returns the kind, Any for nil.
func (s *Shape) kind() Kind {
	if s == nil {
		return Any
	}
	return s.Kind
}

// member returns the shape of a member, and whether it was found through Short.
// The last result is false when there can be no such member.
func (s *Shape) member(name string) (m *Shape, short, ok bool) {
	switch {
	case s == nil || s.Kind == Any && s.Fields == nil:
		return anything(), false, true
	case s.Kind != Object && s.Kind != Any:
		return nil, false, false
	}
	if m, ok := s.Fields[name]; ok {
		return m, false, true
	}
	if inner := s.Fields[s.Short]; s.Short != "" && inner != nil {
		if m, _, ok := inner.member(name); ok {
			return m, true, true
		}
		return nil, true, s.Open
	}
	if s.Open || s.Fields == nil {
		return anything(), false, true
	}
	return nil, false, false
}

// names returns the members that can be written, sorted.
func (s *Shape) names() []string {
	names := slices.Collect(maps.Keys(s.Fields))
	if inner := s.Fields[s.Short]; s.Short != "" && inner != nil {
		names = append(names, slices.Collect(maps.Keys(inner.Fields))...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// whose returns the owner of the members for messages.
func (s *Shape) whose() string {
	if inner := s.Fields[s.Short]; s.Short != "" && inner != nil && inner.What != "" {
		return inner.What
	}
	if s.What != "" {
		return s.What
	}
	return s.Kind.String()
}

// throughShort writes the member that a path left out.
func throughShort(root *Shape, path []string) []string {
	if len(path) < 2 {
		return path
	}
	if _, short, _ := root.member(path[1]); !short {
		return path
	}
	return append([]string{path[0], root.Short}, path[1:]...)
}

// shapeOf returns the shape of a value that is there.
func shapeOf(v any) *Shape {
	s := anything()
	switch v.(type) {
	case string:
		s.Kind = String
	case bool:
		s.Kind = Bool
	case int64, float64, int:
		s.Kind = Number
	case []any:
		s.Kind = Array
	case map[string]any:
		s.Kind = Object
	}
	return s
}
