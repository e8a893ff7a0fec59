package expr

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// adapter makes CEL values of JSON values.
type adapter struct{}

func (adapter) NativeToValue(v any) ref.Val { return toCEL(v) }

func toCEL(v any) ref.Val {
	switch v := v.(type) {
	case nil:
		return types.NullValue
	case bool:
		return types.Bool(v)
	case int64:
		return types.Int(v)
	case int:
		return types.Int(v)
	case float64:
		return types.Double(v)
	case string:
		return types.String(v)
	case json.Number:
		n, err := number(v)
		if err != nil {
			return types.WrapErr(err)
		}
		return toCEL(n)
	case []any:
		return types.NewDynamicList(adapter{}, v)
	case map[string]any:
		return object{v}
	case ref.Val:
		return v
	}
	return types.NewErr("a value of Go type %T is no JSON value", v)
}

// number returns an int64 when the number is whole and fits, and a float64 otherwise.
func number(n json.Number) (any, error) {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return i, nil
	}
	f, err := strconv.ParseFloat(n.String(), 64)
	if err != nil {
		return nil, fmt.Errorf("number %q is out of range", n.String())
	}
	return f, nil
}

// fromCEL returns the JSON value of a CEL value.
func fromCEL(v ref.Val) (any, error) {
	switch v := v.(type) {
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Double:
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
		return nil, errors.New("the result is no finite number")
	case types.String:
		if len(v) > MaxString {
			return nil, fmt.Errorf("the result has %d bytes, more than %d", len(v), MaxString)
		}
		return string(v), nil
	case object:
		return v.m, nil
	case traits.Lister:
		return listFromCEL(v)
	case traits.Mapper:
		return mapFromCEL(v)
	case *types.Err:
		return nil, evalError(v)
	}
	return nil, fmt.Errorf("the result is a %s, which is no JSON value", v.Type().TypeName())
}

func listFromCEL(l traits.Lister) (any, error) {
	n, _ := l.Size().(types.Int)
	all := make([]any, 0, n)
	for i := range n {
		if types.IsUnknown(l.Get(i)) { // an element that is absent is null: a list has no holes
			all = append(all, nil)
			continue
		}
		v, err := fromCEL(l.Get(i))
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

func mapFromCEL(m traits.Mapper) (any, error) {
	out := map[string]any{}
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		name, ok := k.(types.String)
		if !ok {
			return nil, fmt.Errorf("the result has the member name %v, which is no text", k)
		}
		v, err := fromCEL(m.Get(k))
		if err != nil {
			return nil, err
		}
		out[string(name)] = v
	}
	return out, nil
}

// evalError takes CEL's frame of words from an error.
func evalError(err error) error {
	if strings.Contains(err.Error(), "actual cost limit exceeded") {
		return fmt.Errorf("costs more than %d steps", MaxCost)
	}
	if e := errors.Unwrap(err); e != nil && strings.HasPrefix(err.Error(), "evaluation error") {
		return e
	}
	return err
}

// object is a JSON object as a CEL map. Its members come in order of their names, so
// that an expression over them gives the same result everywhere.
type object struct{ m map[string]any }

var _ traits.Mapper = object{}

func (o object) Contains(key ref.Val) ref.Val {
	_, ok := o.Find(key)
	return types.Bool(ok)
}

func (o object) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	v, ok := o.m[string(name)]
	if !ok {
		return nil, false
	}
	return toCEL(v), true
}

func (o object) Get(key ref.Val) ref.Val {
	if v, ok := o.Find(key); ok {
		return v
	}
	return types.NewErr("no such member: %v", key)
}

func (o object) Size() ref.Val { return types.Int(len(o.m)) }

func (o object) Iterator() traits.Iterator {
	return types.NewStringList(adapter{}, slices.Sorted(maps.Keys(o.m))).Iterator()
}

func (o object) Equal(other ref.Val) ref.Val {
	m, ok := other.(traits.Mapper)
	if !ok || m.Size() != o.Size() {
		return types.False
	}
	for name, v := range o.m {
		w, ok := m.Find(types.String(name))
		if !ok || types.Equal(toCEL(v), w) != types.True {
			return types.False
		}
	}
	return types.True
}

func (o object) ConvertToNative(t reflect.Type) (any, error) {
	if reflect.TypeOf(o.m).AssignableTo(t) {
		return o.m, nil
	}
	return nil, fmt.Errorf("an object is no %v", t)
}

func (o object) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case types.MapType:
		return o
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("an object is no %s", t.TypeName())
}

func (o object) Type() ref.Type { return types.MapType }
func (o object) Value() any     { return o.m }
