package spec

import (
	"fmt"
	"strings"
)

// splitPath reads /visible/balance, with or without the first slash.
func splitPath(s string) ([]string, error) {
	parts := strings.Split(strings.TrimPrefix(s, "/"), "/")
	if len(parts) > MaxNesting/2 {
		return nil, fmt.Errorf("path %q has more than %d parts", s, MaxNesting/2)
	}
	for _, p := range parts {
		if p == "" {
			return nil, fmt.Errorf("path %q: expected names with / between them", s)
		}
	}
	return parts, nil
}

func joinPath(path []string) string { return "/" + strings.Join(path, "/") }

// at returns the value at a path, and false when there is none.
func at(m map[string]any, path []string) (any, bool) {
	var v any = m
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil, false
		}
		if v, ok = m[name]; !ok {
			return nil, false
		}
	}
	return v, true
}

// put sets the value at a path, and makes the objects on the way. Below a value that
// is no object it fails.
func put(m map[string]any, path []string, v any) error {
	for i, name := range path[:len(path)-1] {
		switch next := m[name].(type) {
		case map[string]any:
			m = next
		case nil:
			inner := map[string]any{}
			m[name] = inner
			m = inner
		default:
			return fmt.Errorf("%s is no object, so that nothing can be put below it", joinPath(path[:i+1]))
		}
	}
	m[path[len(path)-1]] = v
	return nil
}

// drop removes the value at a path.
func drop(m map[string]any, path []string) {
	v, ok := at(m, path[:len(path)-1])
	if inner, is := v.(map[string]any); ok && is {
		delete(inner, path[len(path)-1])
	}
}
