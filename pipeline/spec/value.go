package spec

import (
	"fmt"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// value is what a file writes somewhere: an expression, or an object or a list of them.
type value struct {
	e     *expr.Expr
	names []string // of an object
	parts []value
}

// eval returns the value, and false when it is absent. An absent member is left out of
// an object, and is null in a list.
func (v value) eval(vars expr.Vars) (any, bool, error) {
	switch {
	case v.e != nil:
		return v.e.Value(vars)
	case v.names != nil:
		m := make(map[string]any, len(v.parts))
		for i, p := range v.parts {
			x, ok, err := p.eval(vars)
			if err != nil {
				return nil, false, err
			}
			if ok {
				m[v.names[i]] = x
			}
		}
		return m, true, nil
	}
	list := make([]any, len(v.parts))
	for i, p := range v.parts {
		x, _, err := p.eval(vars)
		if err != nil {
			return nil, false, err
		}
		list[i] = x
	}
	return list, true, nil
}

// kind returns what the value is, as far as it is known.
func (v value) kind() expr.Kind {
	switch {
	case v.e != nil:
		return v.e.Shape().Kind
	case v.names != nil:
		return expr.Object
	}
	return expr.Array
}

// lookups counts the states of other entities that the value reads.
func (v value) lookups() int {
	if v.e != nil {
		return v.e.Lookups()
	}
	n := 0
	for _, p := range v.parts {
		n += p.lookups()
	}
	return n
}

// value compiles what stands where a value may stand: text that looks like an
// expression is one, all else is itself.
func (c *checker) value(n *node, what string, scope expr.Scope) value {
	switch n.kind {
	case mapping:
		v := value{names: []string{}}
		for i, k := range n.keys {
			v.names = append(v.names, k.text)
			v.parts = append(v.parts, c.value(n.items[i], what+"."+k.text, scope))
		}
		return v
	case sequence:
		v := value{}
		for _, item := range n.items {
			v.parts = append(v.parts, c.value(item, what, scope))
		}
		return v
	}
	s, ok := n.value.(string)
	if !ok || !expr.IsExpression(s, scope) {
		return value{e: expr.Literal(n.value)}
	}
	e := c.compile(n, what, scope, expr.Value)
	if e == nil {
		e = expr.Literal(nil) // the mistake is reported
	}
	return value{e: e}
}

// condition compiles what must be an expression that is true or false; nil for none.
func (c *checker) condition(n *node, what string, scope expr.Scope, mode expr.Mode) *expr.Expr {
	if n == nil {
		return nil
	}
	switch v := n.value.(type) {
	case bool:
		return expr.Literal(v)
	case string:
		return c.compile(n, what, scope, mode)
	}
	c.fail(n.Pos, "%s: expected an expression, and this is %s", what, n.describe())
	return nil
}

// id compiles an expression that gives an entity's id.
func (c *checker) id(n *node, what string, scope expr.Scope) *expr.Expr {
	if n == nil {
		return nil
	}
	if _, ok := n.value.(string); !ok {
		c.fail(n.Pos, "%s: expected an expression, and this is %s", what, n.describe())
		return nil
	}
	e := c.compile(n, what, scope, expr.Value)
	if e == nil {
		return nil
	}
	switch k := e.Shape().Kind; k {
	case expr.Any, expr.String, expr.Number:
	default:
		c.fail(n.Pos, "%s: an id is text or a number, and this is %s", what, k)
	}
	return e
}

// compile compiles the expression that a scalar holds, and puts its mistakes where
// they stand in the file.
func (c *checker) compile(n *node, what string, scope expr.Scope, mode expr.Mode) *expr.Expr {
	e, issues := c.comp.Compile(n.text, scope, mode)
	for _, i := range issues {
		pos := n.Pos
		if !n.block && i.Line == 0 {
			pos.Column += n.first + i.Column
		}
		hint := ""
		if len(issues) == 1 && mode == expr.Value && i.Text != "" && looksLikeProse(n.text) {
			hint = fmt.Sprintf("; if this is text, quote it twice: '%q'", n.text)
		}
		c.fail(pos, "%s: %s%s", what, i.Text, hint)
	}
	return e
}

// looksLikeProse reports text with two words side by side, which no expression has.
func looksLikeProse(s string) bool {
	word := false
	for i := 0; i+1 < len(s); i++ {
		letter := func(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }
		if s[i] == ' ' && word && letter(s[i+1]) {
			return true
		}
		word = letter(s[i]) || s[i] == ','
	}
	return false
}
