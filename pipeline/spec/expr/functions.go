package expr

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// lookupVar is the name under which an evaluation finds its Lookup. Nobody can write it.
const lookupVar = "@env"

// maxArgs bounds the functions that take any number of arguments.
const maxArgs = 64

// signature is a function that an expression can call.
type signature struct {
	to       string // the function behind it; "": CEL's own
	min, max int    // arguments, with the value before the dot
	member   bool   // is written x.f(...)
	both     bool   // can be written x.f(...) and f(x, ...)
	list     bool   // its arguments become one list,
	spread   bool   // unless there is one alone, which is the list
	fold     bool   // f(a, b, c) is f(a, f(b, c))
	result   Kind
}

func (s signature) count() string {
	if s.min == s.max {
		return plural(s.min)
	}
	if s.max == maxArgs {
		return fmt.Sprintf("%d or more arguments", s.min)
	}
	return fmt.Sprintf("%d to %s", s.min, plural(s.max))
}

func plural(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}

// signatures lists every function there is; docs/app.md describes them.
func signatures() map[string]signature {
	return map[string]signature{
		"concat":      {to: "@concat", min: 1, max: maxArgs, list: true, result: String},
		"coalesce":    {to: "@coalesce", min: 2, max: maxArgs, fold: true},
		"isnull":      {to: "@isnull", min: 2, max: maxArgs, fold: true},
		"min":         {to: "@min", min: 1, max: maxArgs, list: true, spread: true, result: Number},
		"max":         {to: "@max", min: 1, max: maxArgs, list: true, spread: true, result: Number},
		"sum":         {to: "@sum", min: 1, max: maxArgs, list: true, spread: true, result: Number},
		"floor":       {to: "@floor", min: 1, max: 1, result: Number},
		"contains":    {to: "@contains", min: 2, max: 2, both: true, result: Bool},
		"join":        {to: "@join", min: 2, max: 2, both: true, result: String},
		"hash":        {to: "@hash", min: 1, max: 1, result: String},
		"shard":       {to: "@shard", min: 2, max: 2, result: Number},
		"format_date": {to: "@format_date", min: 1, max: 1, result: String},
		"is_prev_day": {to: "@is_prev_day", min: 2, max: 2, result: Bool},
		"size":        {min: 1, max: 1, both: true, result: Number},
		"string":      {min: 1, max: 1, result: String},
		"int":         {min: 1, max: 1, result: Number},
		"double":      {min: 1, max: 1, result: Number},
		"bool":        {min: 1, max: 1, result: Bool},
		"matches":     {min: 2, max: 2, both: true, result: Bool},
		"startsWith":  {min: 2, max: 2, member: true, result: Bool},
		"endsWith":    {min: 2, max: 2, member: true, result: Bool},
	}
}

// functions declares what the walker writes.
func functions() []cel.EnvOption {
	absent := types.NewUnknown(1, nil)
	unary := func(name string, f func(ref.Val) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.Overload(name[1:]+"_of", []*cel.Type{cel.DynType}, cel.DynType, cel.UnaryBinding(f)))
	}
	binary := func(name string, f func(a, b ref.Val) ref.Val, opts ...cel.OverloadOpt) cel.EnvOption {
		opts = append(opts, cel.BinaryBinding(f))
		return cel.Function(name, cel.Overload(name[1:]+"_of", []*cel.Type{cel.DynType, cel.DynType}, cel.DynType, opts...))
	}
	var all []cel.EnvOption
	for name, holds := range map[string]func(int) bool{
		"@lt": func(c int) bool { return c < 0 }, "@le": func(c int) bool { return c <= 0 },
		"@gt": func(c int) bool { return c > 0 }, "@ge": func(c int) bool { return c >= 0 },
	} {
		all = append(all,
			binary(name, func(a, b ref.Val) ref.Val { return compare(a, b, false, holds) }),
			binary(name+"_guard", func(a, b ref.Val) ref.Val { return compare(a, b, true, holds) }))
	}
	return append(all,
		binary("@get", func(a, b ref.Val) ref.Val { return member(a, b, absent) }),
		binary("@opt", func(a, b ref.Val) ref.Val { return member(a, b, types.NullValue) }),
		binary("@has", has),
		binary("@add", add),
		binary("@sub", func(a, b ref.Val) ref.Val { return arith(a, b, '-') }),
		binary("@mul", func(a, b ref.Val) ref.Val { return arith(a, b, '*') }),
		binary("@div", func(a, b ref.Val) ref.Val { return arith(a, b, '/') }),
		binary("@mod", func(a, b ref.Val) ref.Val { return arith(a, b, '%') }),
		binary("@coalesce", func(a, b ref.Val) ref.Val {
			if isEmpty(a) || a.Equal(types.String("")) == types.True {
				return b
			}
			return a
		}, cel.OverloadIsNonStrict()),
		binary("@isnull", func(a, b ref.Val) ref.Val {
			if isEmpty(a) {
				return b
			}
			return a
		}, cel.OverloadIsNonStrict()),
		unary("@concat", func(l ref.Val) ref.Val { return joined(l, types.String("")) }),
		binary("@join", joined),
		unary("@min", func(l ref.Val) ref.Val { return extreme(l, "min", types.IntNegOne) }),
		unary("@max", func(l ref.Val) ref.Val { return extreme(l, "max", types.IntOne) }),
		unary("@sum", sum),
		unary("@floor", floor),
		binary("@contains", contains),
		unary("@hash", hash),
		binary("@shard", shard),
		unary("@format_date", formatDate),
		binary("@is_prev_day", isPrevDay),
		reads("@lookup", absent),
		reads("@lookup_opt", types.NullValue),
	)
}

// compare orders two numbers, or two values of one kind. Null is ordered to nothing.
func compare(a, b ref.Val, guard bool, holds func(int) bool) ref.Val {
	if (a == types.NullValue || b == types.NullValue) && !guard {
		return types.False
	}
	if x, ok := a.(traits.Comparer); ok && a != types.NullValue && b != types.NullValue {
		if c, ok := x.Compare(b).(types.Int); ok {
			return types.Bool(holds(int(c)))
		}
	}
	return types.NewErr("%s and %s cannot be compared", kindOf(a), kindOf(b))
}

// reads declares a lookup; missing is what there is when there is no such entity.
func reads(name string, missing ref.Val) cel.EnvOption {
	return cel.Function(name, cel.Overload(name[1:]+"_of", []*cel.Type{cel.DynType, cel.DynType, cel.DynType}, cel.DynType,
		cel.FunctionBinding(func(args ...ref.Val) ref.Val { return lookup(args, missing) })))
}

// isEmpty reports absent and null. An error is neither: it goes through.
func isEmpty(v ref.Val) bool { return types.IsUnknown(v) || v == types.NullValue }

// member reads a member of an object or an element of a list.
func member(from, key, missing ref.Val) ref.Val {
	switch from := from.(type) {
	case types.Null:
		return missing
	case traits.Mapper:
		if v, ok := from.Find(key); ok {
			return v
		}
		return missing
	case traits.Lister:
		i, ok := key.(types.Int)
		if n, _ := from.Size().(types.Int); ok && i >= 0 && i < n {
			return from.Get(i)
		}
		return missing
	}
	return types.NewErr("%q cannot be read of %s", fmt.Sprint(key.Value()), kindOf(from))
}

func has(from, key ref.Val) ref.Val {
	m, ok := from.(traits.Mapper)
	if !ok {
		return types.False
	}
	_, ok = m.Find(key)
	return types.Bool(ok)
}

func kindOf(v ref.Val) string {
	if v == types.NullValue {
		return "null"
	}
	n, err := fromCEL(v)
	if err != nil {
		return v.Type().TypeName()
	}
	return shapeOf(n).Kind.String()
}

func add(a, b ref.Val) ref.Val {
	if s, ok := a.(types.String); ok {
		if t, ok := b.(types.String); ok {
			if len(s)+len(t) > MaxString {
				return types.NewErr("a text of more than %d bytes", MaxString)
			}
			return s + t
		}
	}
	if l, ok := a.(traits.Lister); ok {
		if _, ok := b.(traits.Lister); ok {
			return l.Add(b)
		}
	}
	return arith(a, b, '+')
}

// arith computes with numbers of any kind. Integers stay integers; null gives null.
func arith(a, b ref.Val, op byte) ref.Val {
	if a == types.NullValue || b == types.NullValue {
		return types.NullValue
	}
	x, ok := a.(types.Int)
	y, ok2 := b.(types.Int)
	if ok && ok2 {
		switch op {
		case '+':
			return x.Add(y)
		case '-':
			return x.Subtract(y)
		case '*':
			return x.Multiply(y)
		case '/':
			return x.Divide(y)
		}
		return x.Modulo(y)
	}
	f, ok := toFloat(a)
	g, ok2 := toFloat(b)
	switch {
	case !ok || !ok2:
		return types.NewErr("%s %c %s: expected numbers", kindOf(a), op, kindOf(b))
	case op == '+':
		return types.Double(f + g)
	case op == '-':
		return types.Double(f - g)
	case op == '*':
		return types.Double(f * g)
	case g == 0:
		return types.NewErr("division by zero")
	case op == '/':
		return types.Double(f / g)
	}
	return types.Double(math.Mod(f, g))
}

func toFloat(v ref.Val) (float64, bool) {
	switch v := v.(type) {
	case types.Int:
		return float64(v), true
	case types.Double:
		return float64(v), true
	}
	return 0, false
}

// elements calls f for each element of a list until it returns a value.
func elements(l ref.Val, f func(ref.Val) ref.Val) ref.Val {
	list, ok := l.(traits.Lister)
	if !ok {
		return types.NewErr("expected a list, and this is %s", kindOf(l))
	}
	n, _ := list.Size().(types.Int)
	for i := range n {
		if v := f(list.Get(i)); v != nil {
			return v
		}
	}
	return nil
}

// joined writes the elements of a list one behind the other; one that is null makes all null.
func joined(l, sep ref.Val) ref.Val {
	between, ok := sep.(types.String)
	if !ok {
		return types.NewErr("expected text to join with, and this is %s", kindOf(sep))
	}
	var b strings.Builder
	first := true
	stop := elements(l, func(v ref.Val) ref.Val {
		if v == types.NullValue {
			return v
		}
		s, ok := scalarText(v)
		if !ok {
			return types.NewErr("expected text or a number, and this is %s", kindOf(v))
		}
		if !first {
			b.WriteString(string(between))
		}
		first = false
		b.WriteString(s)
		if b.Len() > MaxString {
			return types.NewErr("a text of more than %d bytes", MaxString)
		}
		return nil
	})
	if stop != nil {
		return stop
	}
	return types.String(b.String())
}

func scalarText(v ref.Val) (string, bool) {
	switch v := v.(type) {
	case types.String:
		return string(v), true
	case types.Int:
		return strconv.FormatInt(int64(v), 10), true
	case types.Double:
		return strconv.FormatFloat(float64(v), 'g', -1, 64), true
	case types.Bool:
		return strconv.FormatBool(bool(v)), true
	}
	return "", false
}

// extreme returns the least or the greatest number of a list; nulls are passed over.
func extreme(l ref.Val, name string, sign types.Int) ref.Val {
	var best ref.Val = types.NullValue
	stop := elements(l, func(v ref.Val) ref.Val {
		if v == types.NullValue {
			return nil
		}
		if _, ok := toFloat(v); !ok {
			return types.NewErr("%s: expected numbers, and this is %s", name, kindOf(v))
		}
		if best == types.NullValue || v.(traits.Comparer).Compare(best) == sign {
			best = v
		}
		return nil
	})
	if stop != nil {
		return stop
	}
	return best
}

func sum(l ref.Val) ref.Val {
	var total ref.Val = types.IntZero
	stop := elements(l, func(v ref.Val) ref.Val {
		if v != types.NullValue {
			total = arith(total, v, '+')
		}
		if types.IsError(total) {
			return total
		}
		return nil
	})
	if stop != nil {
		return stop
	}
	return total
}

func floor(v ref.Val) ref.Val {
	switch v := v.(type) {
	case types.Null, types.Int:
		return v
	case types.Double:
		f := math.Floor(float64(v))
		if f >= -1<<63 && f < 1<<63 {
			return types.Int(f)
		}
	}
	return types.NewErr("floor: expected a number, and this is %s", kindOf(v))
}

func contains(in, what ref.Val) ref.Val {
	switch in := in.(type) {
	case types.Null:
		return types.False
	case types.String:
		if s, ok := what.(types.String); ok {
			return types.Bool(strings.Contains(string(in), string(s)))
		}
	case traits.Lister:
		return in.Contains(what)
	}
	return types.NewErr("contains: expected text in text or a value in a list, and this is %s in %s", kindOf(what), kindOf(in))
}

// day returns the day, in UTC, of epoch milliseconds, an RFC 3339 time or a date.
func day(v ref.Val) (time.Time, bool) {
	switch v := v.(type) {
	case types.Int:
		return time.UnixMilli(int64(v)).UTC().Truncate(24 * time.Hour), true
	case types.Double:
		return day(types.Int(v))
	case types.String:
		for _, layout := range []string{time.DateOnly, time.RFC3339} {
			if t, err := time.Parse(layout, string(v)); err == nil {
				return t.UTC().Truncate(24 * time.Hour), true
			}
		}
	}
	return time.Time{}, false
}

func formatDate(v ref.Val) ref.Val {
	if v == types.NullValue {
		return v
	}
	t, ok := day(v)
	if !ok {
		return types.NewErr("format_date: expected milliseconds since 1970 or a date")
	}
	return types.String(t.Format(time.DateOnly))
}

func isPrevDay(a, b ref.Val) ref.Val {
	x, ok := day(a)
	y, ok2 := day(b)
	return types.Bool(ok && ok2 && x.AddDate(0, 0, 1).Equal(y))
}

// lookupVal carries a Lookup into an evaluation.
type lookupVal struct {
	ref.Val
	read Lookup
}

func lookup(args []ref.Val, missing ref.Val) ref.Val {
	env, ok := args[0].(lookupVal)
	state, _ := args[1].(types.String)
	id, isText := args[2].(types.String)
	switch {
	case !ok || env.read == nil:
		return types.WrapErr(ErrNoLookup)
	case args[2] == types.NullValue:
		return missing
	case !isText:
		return types.NewErr("lookup: expected the entity's id as text, and this is %s", kindOf(args[2]))
	}
	m, found, err := env.read(string(state), string(id))
	if err != nil {
		return types.WrapErr(fmt.Errorf("lookup of %s %q: %w", state, id, err))
	}
	if !found {
		return missing
	}
	return object{m}
}

// plainWords takes CEL's terms from a message.
func plainWords(s string) string {
	s = strings.TrimSuffix(s, " (in container '')")
	return strings.Replace(s, "Syntax error: ", "syntax: ", 1)
}

// Functions returns the names of the functions that can be called, sorted.
func Functions() []string {
	return append(slices.Sorted(maps.Keys(signatures())), "lookup", "LOOKUP_FIELD")
}
