package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lattice-log/lattice/internal/nearest"
)

// block is a mapping whose keys are known.
type block struct {
	c    *checker
	n    *node
	what string // "event SEAT_TAKEN"
	at   map[string]*node
}

// block checks that n is a mapping with these keys and no others.
func (c *checker) block(n *node, what string, keys ...string) (block, bool) {
	b := block{c, n, what, map[string]*node{}}
	if n.kind != mapping {
		c.fail(n.Pos, "%s: expected a mapping with %s, and this is %s", what, oneOf(keys), n.describe())
		return b, false
	}
	for i, k := range n.keys {
		if !slices.Contains(keys, k.text) {
			c.unknown(k.Pos, what+": unknown key", k.text, keys)
			continue
		}
		b.at[k.text] = n.items[i]
	}
	return b, true
}

// has returns a key's value, or nil where it is missing or empty.
func (b block) has(key string) *node {
	n := b.at[key]
	if n == nil || n.kind == scalar && n.value == nil {
		return nil
	}
	return n
}

// need returns a key's value and reports a missing one.
func (b block) need(key, expected string) *node {
	n := b.has(key)
	if n == nil {
		b.c.fail(b.n.Pos, "%s: %s is missing: expected %s", b.what, key, expected)
	}
	return n
}

// text returns a text, or "" where there is none.
func (b block) text(key string) string {
	n := b.has(key)
	if n == nil {
		return ""
	}
	s, ok := n.value.(string)
	if !ok {
		b.c.fail(n.Pos, "%s: %s: expected text, and this is %s", b.what, key, n.describe())
	}
	return s
}

// number returns a whole number, or missing.
func (b block) number(key string, missing int64) int64 {
	n := b.has(key)
	if n == nil {
		return missing
	}
	i, ok := n.value.(int64)
	if !ok {
		b.c.fail(n.Pos, "%s: %s: expected a whole number, and this is %s", b.what, key, n.describe())
		return missing
	}
	return i
}

func (b block) boolean(key string) bool {
	n := b.has(key)
	if n == nil {
		return false
	}
	v, ok := n.value.(bool)
	if !ok {
		b.c.fail(n.Pos, "%s: %s: expected true or false, and this is %s", b.what, key, n.describe())
	}
	return v
}

// choice returns one of a few words, or missing.
func (b block) choice(key, missing string, words ...string) string {
	n := b.has(key)
	if n == nil {
		return missing
	}
	if s, ok := n.value.(string); ok && slices.Contains(words, s) {
		return s
	}
	b.c.unknown(n.Pos, b.what+": unknown "+key, n.text, words)
	return missing
}

// list returns the elements of a list. A single value is a list of one.
func (b block) list(key string) []*node {
	switch n := b.has(key); {
	case n == nil:
		return nil
	case n.kind == sequence:
		return n.items
	case n.kind == scalar:
		return []*node{n}
	default:
		b.c.fail(n.Pos, "%s: %s: expected a list, and this is %s", b.what, key, n.describe())
		return nil
	}
}

// names returns the elements of a list of names.
func (b block) names(key string) []*node {
	var all []*node
	for _, n := range b.list(key) {
		if s, ok := n.value.(string); !ok || s == "" {
			b.c.fail(n.Pos, "%s: %s: expected a name, and this is %s", b.what, key, n.describe())
			continue
		}
		all = append(all, n)
	}
	return all
}

// members returns the keys and values of a mapping.
func (b block) members(key string) (keys, values []*node) {
	n := b.has(key)
	if n == nil {
		return nil, nil
	}
	if n.kind != mapping {
		b.c.fail(n.Pos, "%s: %s: expected a mapping, and this is %s", b.what, key, n.describe())
		return nil, nil
	}
	return n.keys, n.items
}

// unexecuted warns of keys that are read and do nothing.
func (b block) unexecuted(why string, keys ...string) {
	for i, k := range b.n.keys {
		if slices.Contains(keys, k.text) && b.at[k.text] == b.n.items[i] {
			b.c.warn(WarnNotExecuted, k.Pos, "%s: %s is read and not executed: %s", b.what, k.text, why)
		}
	}
}

// unknown reports a name that is none of the known ones.
func (c *checker) unknown(pos Pos, what, name string, known []string) {
	if best, ok := nearest.Name(name, known); ok && best != name {
		c.fail(pos, "%s %q; did you mean %q?", what, name, best)
		return
	}
	if len(known) == 0 {
		c.fail(pos, "%s %q: there is none", what, name)
		return
	}
	c.fail(pos, "%s %q; expected %s", what, name, oneOf(known))
}

// oneOf writes a choice of names, the first dozen of them.
func oneOf(names []string) string {
	if len(names) > 12 {
		return strings.Join(names[:12], ", ") + fmt.Sprintf(" or one of %d others", len(names)-12)
	}
	return strings.Join(names, ", ")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
