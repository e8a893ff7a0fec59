// Package expr compiles the expressions of application files to CEL and evaluates
// them. It promises that an expression gives the same value for the same input on
// every machine and at every time: there is no clock, no randomness, no time zone, and
// the members of an object are visited in order of their names. It promises that an
// evaluation ends: text, nodes, nesting and the cost of one evaluation are bounded.
// It does not know what an application is: a Scope says which names there are.
//
// Four things differ from CEL as it is specified (https://cel.dev), because
// the values are JSON and the dialect is older:
//
//   - Numbers mix. 2 and 2.0 add, and an integer division stays one (7 / 2 is 3).
//     Arithmetic with null is null.
//   - A path that is not there is no error. In a value it makes the whole value
//     absent, which leaves what it would be written to alone; only coalesce, isnull
//     and has look through it. In a condition it is null.
//   - To order null is false (null < 5), but in a condition that guards, where it is an
//     error.
//   - event.seat means event.payload.seat where an event has no seat of its own.
//
// A path, by far the most common expression, is walked in Go without CEL.
package expr

import (
	"errors"
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

// The bounds of one expression.
const (
	MaxText    = 4096    // code points
	MaxNodes   = 1000    // after macros
	MaxNesting = 40      // parentheses and calls
	MaxCost    = 100_000 // of one evaluation, in CEL's unit: about one for each step
	MaxString  = 64 << 10
)

// Mode says what a path that is not there means.
type Mode uint8

const (
	// Value makes the whole value absent.
	Value Mode = iota
	// Condition takes null for it, and wants a boolean. To order null (null < 5) is an
	// error, so that a guard that cannot be evaluated lets nothing pass.
	Condition
	// Filter is a Condition in which nothing guards: null < 5 is false.
	Filter
)

// Scope is the names that an expression may use.
type Scope struct {
	// Roots are the first names of paths, such as "event".
	Roots map[string]*Shape
	// States are what lookup reads, by name; nil: no lookup here.
	States map[string]*Shape
	// Own is the state whose entity the event belongs to: "state" reads it.
	Own string
}

// Issue is one mistake in an expression. Line and Column count from 0.
type Issue struct {
	Line, Column int
	Text         string
}

// Lookup returns the state of another entity as it is (or, in a rebuild, was) for the
// caller, and false when there is none.
type Lookup func(state, id string) (map[string]any, bool, error)

// Vars is what one evaluation reads. Values are JSON: nil, bool, int64, float64,
// string, []any and map[string]any; they are never written to.
type Vars struct {
	Roots  map[string]any
	Lookup Lookup
}

// ErrNoLookup is the error of a lookup where the caller gave no means for it.
var ErrNoLookup = errors.New("the state of other entities cannot be read here")

// Expr is a compiled expression: safe for use by many goroutines.
type Expr struct {
	text    string
	mode    Mode
	shape   *Shape
	literal bool
	value   any
	path    []string // root first; nil: prg
	prg     cel.Program
	lookups int
}

// Literal returns an expression that is always v.
func Literal(v any) *Expr { return &Expr{literal: true, value: v, shape: shapeOf(v)} }

// Text returns what was compiled, or "" for a literal.
func (e *Expr) Text() string { return e.text }

// Shape returns what is known about the value.
func (e *Expr) Shape() *Shape { return e.shape }

// Lookups returns how many states of other entities one evaluation may read.
func (e *Expr) Lookups() int { return e.lookups }

// Constant returns the value of an expression that reads nothing.
func (e *Expr) Constant() (any, bool) { return e.value, e.literal }

// Path returns the members of a plain path, its root first, or nil.
func (e *Expr) Path() []string { return e.path }

// Compiler compiles expressions. It is safe for use by many goroutines.
type Compiler struct{ env *cel.Env }

// NewCompiler returns a compiler.
func NewCompiler() (*Compiler, error) {
	opts := []cel.EnvOption{
		cel.StdLib(),
		cel.ParserExpressionSizeLimit(MaxText),
		cel.ParserRecursionLimit(MaxNesting),
		cel.ExpressionNodeLimit(MaxNodes),
		cel.RegexProgramSizeLimit(1000),
		cel.Variable(lookupVar, cel.DynType),
	}
	for _, root := range []string{"event", "intent", "entity", "derived", "input"} {
		opts = append(opts, cel.Variable(root, cel.DynType))
	}
	env, err := cel.NewCustomEnv(append(opts, functions()...)...)
	if err != nil {
		return nil, fmt.Errorf("expr: CEL environment: %w", err)
	}
	return &Compiler{env}, nil
}

// Compile compiles one expression. It returns every mistake that it finds, and an
// expression only when there is none.
func (c *Compiler) Compile(text string, scope Scope, mode Mode) (*Expr, []Issue) {
	parsed, iss := c.env.Parse(text)
	if iss.Err() != nil {
		return nil, issues(iss)
	}
	tree := parsed.NativeRep()
	w := &walker{scope: scope, mode: mode, fac: celast.NewExprFactory(), info: tree.SourceInfo(), next: celast.MaxID(tree) + 1}
	e := &Expr{text: text, mode: mode, path: plainPath(tree.Expr())}
	if tree.Expr().Kind() == celast.LiteralKind {
		v, err := fromCEL(tree.Expr().AsLiteral())
		e.literal, e.value = err == nil, v
	}
	e.shape = w.walk(tree.Expr(), nil)
	e.lookups = w.lookups
	if mode != Value && !e.shape.is(Bool) {
		w.issue(tree.Expr(), "a condition must be true or false, and this is %s", e.shape.Kind)
	}
	if len(w.issues) > 0 {
		return nil, w.issues
	}
	if e.literal {
		return e, nil
	}
	if e.path != nil && e.lookups == 0 {
		e.path = throughShort(scope.Roots[e.path[0]], e.path)
		return e, nil
	}
	e.path = nil
	checked, iss := c.env.Check(parsed)
	if iss.Err() != nil {
		return nil, issues(iss)
	}
	prg, err := c.env.Program(checked, cel.CostLimit(MaxCost), cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return nil, []Issue{{Text: err.Error()}}
	}
	e.prg = prg
	return e, nil
}

// issues takes over what CEL found.
func issues(iss *cel.Issues) []Issue {
	var all []Issue
	for _, err := range iss.Errors() {
		all = append(all, issueOf(err))
	}
	return all
}

func issueOf(err *common.Error) Issue {
	i := Issue{Text: plainWords(err.Message)}
	if err.Location != nil {
		i.Line, i.Column = max(err.Location.Line()-1, 0), max(err.Location.Column(), 0)
	}
	return i
}

// Value evaluates e. It returns false when the value is absent.
func (e *Expr) Value(vars Vars) (any, bool, error) {
	switch {
	case e.literal:
		return e.value, true, nil
	case e.path != nil:
		return e.walkPath(vars)
	}
	v, _, err := e.prg.Eval(activation{vars})
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", e.text, evalError(err))
	}
	if types.IsUnknown(v) {
		return nil, false, nil
	}
	out, err := fromCEL(v)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", e.text, err)
	}
	return out, true, nil
}

// Holds evaluates a condition. Null and absent are false.
func (e *Expr) Holds(vars Vars) (bool, error) {
	v, ok, err := e.Value(vars)
	if err != nil || !ok || v == nil {
		return false, err
	}
	b, is := v.(bool)
	if !is {
		return false, fmt.Errorf("%s: a condition must be true or false, and this is %s", e.text, shapeOf(v).Kind)
	}
	return b, nil
}

// walkPath follows a plain path. Below null, nothing is there.
func (e *Expr) walkPath(vars Vars) (any, bool, error) {
	v, ok := vars.Roots[e.path[0]]
	for i := 1; i < len(e.path) && ok && v != nil; i++ {
		m, is := v.(map[string]any)
		if !is {
			return nil, false, fmt.Errorf("%s: %q has no members: it is %s", e.text, e.path[i-1], shapeOf(v).Kind)
		}
		if v, ok = m[e.path[i]]; v == nil && ok && i < len(e.path)-1 {
			ok = false
		}
	}
	if !ok && e.mode != Value {
		return nil, true, nil
	}
	return v, ok, nil
}

// plainPath returns the members of a.b.c, and nil for all else.
func plainPath(e celast.Expr) []string {
	switch e.Kind() {
	case celast.IdentKind:
		return []string{e.AsIdent()}
	case celast.SelectKind:
		sel := e.AsSelect()
		if sel.IsTestOnly() {
			return nil
		}
		if up := plainPath(sel.Operand()); up != nil {
			return append(up, sel.FieldName())
		}
	}
	return nil
}

// activation hands the roots to CEL.
type activation struct{ vars Vars }

func (a activation) Parent() cel.Activation { return nil }

func (a activation) ResolveName(name string) (any, bool) {
	if name == lookupVar {
		return lookupVal{ref.Val(types.True), a.vars.Lookup}, true
	}
	v, ok := a.vars.Roots[name]
	if !ok {
		return nil, false
	}
	return toCEL(v), true
}
