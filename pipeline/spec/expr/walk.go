package expr

import (
	"fmt"
	"slices"
	"strings"

	celast "cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/lattice-log/lattice/internal/nearest"
)

// walker checks the names of a parsed expression and rewrites what differs from
// CEL (members, arithmetic, our functions) into calls of functions whose names
// nobody can write.
type walker struct {
	scope   Scope
	mode    Mode
	fac     celast.ExprFactory
	info    *celast.SourceInfo
	next    int64
	issues  []Issue
	lookups int
}

func (w *walker) issue(e celast.Expr, format string, args ...any) {
	i := Issue{Text: fmt.Sprintf(format, args...)}
	if loc := w.info.GetStartLocation(e.ID()); loc != nil {
		i.Line, i.Column = max(loc.Line()-1, 0), max(loc.Column(), 0)
	}
	w.issues = append(w.issues, i)
}

func (w *walker) id() int64 {
	w.next++
	return w.next
}

func (w *walker) literal(v ref.Val) celast.Expr { return w.fac.NewLiteral(w.id(), v) }

// call turns e into a call.
func (w *walker) call(e celast.Expr, function string, args ...celast.Expr) {
	e.SetKindCase(w.fac.NewCall(e.ID(), function, args...))
}

// get returns the name of the function that reads a member.
func (w *walker) get() string {
	if w.mode != Value {
		return "@opt"
	}
	return "@get"
}

// walk returns the shape of e. bound are the names that comprehensions around it
// declare.
func (w *walker) walk(e celast.Expr, bound []string) *Shape {
	switch e.Kind() {
	case celast.LiteralKind:
		if v, err := fromCEL(e.AsLiteral()); err == nil {
			return shapeOf(v)
		}
		w.issue(e, "%v is no JSON value", e.AsLiteral())
	case celast.IdentKind:
		return w.ident(e, bound)
	case celast.SelectKind:
		return w.member(e, bound)
	case celast.CallKind:
		return w.function(e, bound)
	case celast.ListKind:
		for _, el := range e.AsList().Elements() {
			w.walk(el, bound)
		}
		return &Shape{Kind: Array}
	case celast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			w.walk(entry.AsMapEntry().Key(), bound)
			w.walk(entry.AsMapEntry().Value(), bound)
		}
		return &Shape{Kind: Object, Open: true}
	case celast.ComprehensionKind:
		c := e.AsComprehension()
		w.walk(c.IterRange(), bound)
		inner := append(slices.Clone(bound), c.IterVar(), c.AccuVar())
		if c.HasIterVar2() {
			inner = append(inner, c.IterVar2())
		}
		for _, part := range []celast.Expr{c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result()} {
			w.walk(part, inner)
		}
	default:
		w.issue(e, "this form is not known here")
	}
	return anything()
}

func (w *walker) ident(e celast.Expr, bound []string) *Shape {
	name := e.AsIdent()
	if slices.Contains(bound, name) {
		return anything()
	}
	if own, ok := w.scope.States[w.scope.Own]; ok && name == "state" {
		w.lookups++
		e.SetKindCase(w.read(w.scope.Own, w.fac.NewCall(w.id(), "@get",
			w.fac.NewIdent(w.id(), "event"), w.literal(types.String("entity_id")))))
		return own
	}
	if root, ok := w.scope.Roots[name]; ok {
		return root
	}
	var roots []string
	for r := range w.scope.Roots {
		roots = append(roots, r)
	}
	slices.Sort(roots)
	text := fmt.Sprintf("unknown name %q; expected %s", name, oneOf(roots))
	if best, ok := nearest.Name(name, roots); ok {
		text = fmt.Sprintf("unknown name %q; did you mean %q?", name, best)
	} else {
		text += ", or quotes around text"
	}
	w.issue(e, "%s", text)
	return anything()
}

func (w *walker) member(e celast.Expr, bound []string) *Shape {
	sel := e.AsSelect()
	operand, name := sel.Operand(), sel.FieldName()
	owner := w.walk(operand, bound)
	m, short, ok := owner.member(name)
	if !ok {
		switch {
		case owner.Kind != Object && owner.Kind != Any:
			w.issue(e, "%q: %s has no members", name, owner.Kind)
		default:
			text := fmt.Sprintf("%s has no %q", owner.whose(), name)
			if best, near := nearest.Name(name, owner.names()); near {
				text += fmt.Sprintf("; did you mean %q?", best)
			} else if names := owner.names(); len(names) > 0 {
				text += "; it has " + oneOf(names)
			}
			w.issue(e, "%s", text)
		}
		m = anything()
	}
	if short {
		operand = w.fac.NewCall(w.id(), w.get(), operand, w.literal(types.String(owner.Short)))
	}
	field := w.literal(types.String(name))
	if sel.IsTestOnly() {
		w.call(e, "@has", operand, field)
		return &Shape{Kind: Bool}
	}
	w.call(e, w.get(), operand, field)
	return m
}

// arithmetic maps CEL's operators to ours, over mixed numbers and null.
func arithmetic(op string) (string, bool) {
	switch op {
	case operators.Add:
		return "@add", true
	case operators.Subtract:
		return "@sub", true
	case operators.Multiply:
		return "@mul", true
	case operators.Divide:
		return "@div", true
	case operators.Modulo:
		return "@mod", true
	}
	return "", false
}

func (w *walker) function(e celast.Expr, bound []string) *Shape {
	call := e.AsCall()
	name := call.FunctionName()
	if name == "lookup" || name == "LOOKUP_FIELD" {
		return w.lookup(e, bound)
	}
	var shapes []*Shape
	if call.IsMemberFunction() {
		shapes = append(shapes, w.walk(call.Target(), bound))
	}
	for _, a := range call.Args() {
		shapes = append(shapes, w.walk(a, bound))
	}
	if op, ok := arithmetic(name); ok {
		return w.operator(e, op, shapes)
	}
	switch name {
	case operators.Equals, operators.NotEquals, operators.Conditional:
		w.anyTypes(e, call)
	}
	switch name {
	case operators.Negate:
		w.call(e, "@sub", append([]celast.Expr{w.literal(types.IntZero)}, call.Args()...)...)
		return &Shape{Kind: Number}
	case operators.Index:
		w.call(e, w.get(), call.Args()...)
		return anything()
	case operators.Equals, operators.NotEquals:
		if a, b := shapes[0].kind(), shapes[1].kind(); a != b && a != Any && b != Any {
			w.issue(e, "%s never equals %s", a, b)
		}
		return &Shape{Kind: Bool}
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		if a, b := shapes[0].kind(), shapes[1].kind(); a != b && a != Any && b != Any {
			w.issue(e, "%s and %s cannot be compared", a, b)
		}
		w.call(e, w.order(name), call.Args()...)
		return &Shape{Kind: Bool}
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot:
		for _, s := range shapes {
			if !s.is(Bool) {
				w.issue(e, "expected true or false on each side, and this is %s", s.Kind)
			}
		}
		return &Shape{Kind: Bool}
	case operators.Conditional:
		return either(shapes[1], shapes[2])
	case operators.In, operators.NotStrictlyFalse:
		return &Shape{Kind: Bool}
	}
	return w.named(e, call, shapes)
}

// order returns the function behind a comparison.
func (w *walker) order(op string) string {
	names := map[string]string{
		operators.Less: "@lt", operators.LessEquals: "@le", operators.Greater: "@gt", operators.GreaterEquals: "@ge",
	}
	if w.mode == Condition {
		return names[op] + "_guard"
	}
	return names[op]
}

// anyTypes hides the types of a call's arguments from CEL, to which 1 and 1.5 cannot be
// compared.
func (w *walker) anyTypes(e celast.Expr, call celast.CallExpr) {
	args := make([]celast.Expr, len(call.Args()))
	for i, a := range call.Args() {
		args[i] = w.fac.NewCall(w.id(), "dyn", a)
		if call.FunctionName() == operators.Conditional && i == 0 {
			args[i] = a
		}
	}
	w.call(e, call.FunctionName(), args...)
}

// either returns what is known of a value that is one of two.
func either(a, b *Shape) *Shape {
	if a.kind() == b.kind() && a.kind() != Object {
		return a
	}
	return anything()
}

func (w *walker) operator(e celast.Expr, op string, shapes []*Shape) *Shape {
	a, b := shapes[0].kind(), shapes[1].kind()
	w.call(e, op, e.AsCall().Args()...)
	switch {
	case op == "@add" && a == String && b == String:
		return &Shape{Kind: String}
	case op == "@add" && (a == Any || a == Array) && (b == Any || b == Array):
		return anything()
	case op == "@add" && (a == String || b == String) && a != Any && b != Any:
		w.issue(e, "+ adds numbers, or joins texts; use concat(...) for %s and %s", a, b)
		return anything()
	case op == "@add" && (a == String || b == String):
		return &Shape{Kind: String}
	}
	for _, k := range []Kind{a, b} {
		if k != Any && k != Number {
			w.issue(e, "expected a number on each side, and this is %s", k)
		}
	}
	return &Shape{Kind: Number}
}

// named is a function that is called by its name.
func (w *walker) named(e celast.Expr, call celast.CallExpr, shapes []*Shape) *Shape {
	name := call.FunctionName()
	if slices.Contains([]string{"now", "random", "uuid", "shuffle", "nanoTime"}, name) {
		w.issue(e, "%s() gives another value each time, and a replay would differ; use event.ts, or let the client send it", name)
		return anything()
	}
	sigs := signatures()
	sig, ok := sigs[name]
	if !ok || sig.member != call.IsMemberFunction() && !sig.both {
		var known []string
		for n, s := range sigs {
			if s.member == call.IsMemberFunction() || s.both {
				known = append(known, n)
			}
		}
		slices.Sort(known)
		if best, near := nearest.Name(name, known); near && best != name {
			w.issue(e, "unknown function %q; did you mean %q?", name, best)
		} else if ok && sig.member {
			w.issue(e, "%s is called behind a value: x.%s(...)", name, name)
		} else {
			w.issue(e, "unknown function %q; expected %s", name, oneOf(known))
		}
		return anything()
	}
	if n := len(shapes); n < sig.min || n > sig.max { // with the value before the dot
		w.issue(e, "%s takes %s, and here are %d", name, sig.count(), n)
		return anything()
	}
	args := call.Args()
	switch {
	case sig.fold:
		w.fold(e, sig.to, args)
	case sig.list && !(len(args) == 1 && sig.spread):
		w.call(e, sig.to, w.fac.NewList(w.id(), args, nil))
	case sig.to != "":
		if call.IsMemberFunction() {
			args = append([]celast.Expr{call.Target()}, args...)
		}
		w.call(e, sig.to, args...)
	}
	if sig.result == Any && sig.fold {
		out := shapes[0]
		for _, s := range shapes[1:] {
			out = either(out, s)
		}
		return out
	}
	return &Shape{Kind: sig.result, Open: true}
}

// fold nests a call: f(a, b, c) is f(a, f(b, c)).
func (w *walker) fold(e celast.Expr, to string, args []celast.Expr) {
	last := args[len(args)-1]
	for i := len(args) - 2; i > 0; i-- {
		last = w.fac.NewCall(w.id(), to, args[i], last)
	}
	w.call(e, to, args[0], last)
}

// lookup is lookup(state, id) and LOOKUP_FIELD('stream', id, '/path').
func (w *walker) lookup(e celast.Expr, bound []string) *Shape {
	call := e.AsCall()
	args := call.Args()
	want := 2
	if call.FunctionName() == "LOOKUP_FIELD" {
		want = 3
	}
	if len(args) != want {
		w.issue(e, "%s takes %d arguments, and here are %d", call.FunctionName(), want, len(args))
		return anything()
	}
	w.lookups++
	state, ok := nameOf(args[0])
	if !ok {
		w.issue(args[0], "expected the name of a state")
		return anything()
	}
	w.walk(args[1], bound)
	if w.scope.States == nil {
		w.issue(e, "%s cannot be used here: only in rules and in what a projection derives", call.FunctionName())
		return anything()
	}
	state = strings.TrimSuffix(state, "_stream")
	shape, ok := w.scope.States[state]
	if !ok {
		var known []string
		for n := range w.scope.States {
			known = append(known, n)
		}
		slices.Sort(known)
		if best, near := nearest.Name(state, known); near {
			w.issue(args[0], "unknown state %q; did you mean %q?", state, best)
		} else {
			w.issue(args[0], "unknown state %q; expected %s", state, oneOf(known))
		}
		return anything()
	}
	read := w.read(state, args[1])
	if want == 2 {
		e.SetKindCase(read)
		return shape
	}
	path, ok := nameOf(args[2])
	if !ok {
		w.issue(args[2], "expected a path such as '/balance'")
		return anything()
	}
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		m, _, ok := shape.member(name)
		if !ok {
			w.issue(args[2], "%s has no %q", shape.whose(), name)
			return anything()
		}
		read, shape = w.fac.NewCall(w.id(), w.get(), read, w.literal(types.String(name))), m
	}
	e.SetKindCase(read)
	return shape
}

// read is the state of an entity.
func (w *walker) read(state string, id celast.Expr) celast.Expr {
	function := "@lookup"
	if w.mode != Value {
		function = "@lookup_opt"
	}
	return w.fac.NewCall(w.id(), function, w.fac.NewIdent(w.id(), lookupVar), w.literal(types.String(state)), id)
}

// nameOf returns a name that was written with or without quotes.
func nameOf(e celast.Expr) (string, bool) {
	switch e.Kind() {
	case celast.IdentKind:
		return e.AsIdent(), true
	case celast.LiteralKind:
		s, ok := e.AsLiteral().(types.String)
		return string(s), ok
	}
	return "", false
}

// oneOf writes a choice of names, the first dozen of them.
func oneOf(names []string) string {
	if len(names) > 12 {
		return strings.Join(names[:12], ", ") + fmt.Sprintf(" or one of %d others", len(names)-12)
	}
	return strings.Join(names, ", ")
}
