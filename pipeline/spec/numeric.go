package spec

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// plus returns a + b, or a - b. Integers stay integers, and do not wrap; a null a is 0.
func plus(a, b any, minus bool) (any, error) {
	if a == nil {
		a = int64(0)
	}
	x, ok := a.(int64)
	y, ok2 := b.(int64)
	if ok && ok2 {
		n := x + y
		if minus {
			n = x - y
		}
		if (n > x) != ((y > 0) != minus) && y != 0 {
			return nil, fmt.Errorf("%d and %d do not add up within 64 bits", x, y)
		}
		return n, nil
	}
	f, err := float(a)
	if err != nil {
		return nil, err
	}
	g, err := float(b)
	if err != nil {
		return nil, err
	}
	if minus {
		g = -g
	}
	if f += g; math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, fmt.Errorf("the sum is no finite number")
	}
	return f, nil
}

func less(a, b any) (bool, error) {
	x, ok := a.(int64)
	y, ok2 := b.(int64)
	if ok && ok2 {
		return x < y, nil
	}
	f, err := float(a)
	if err != nil {
		return false, err
	}
	g, err := float(b)
	return f < g, err
}

func float(v any) (float64, error) {
	switch v := v.(type) {
	case int64:
		return float64(v), nil
	case float64:
		return v, nil
	}
	return 0, fmt.Errorf("expected a number, and this is %s", kindOf(v))
}

// kindOf says what a value is.
func kindOf(v any) string {
	if v == nil {
		return "null"
	}
	return expr.Literal(v).Shape().Kind.String()
}

// decimal returns a number, or text that is one, exactly.
func decimal(v any) (*big.Rat, error) {
	var text string
	switch v := v.(type) {
	case int64:
		return new(big.Rat).SetInt64(v), nil
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		text = v
	default:
		return nil, fmt.Errorf("expected a decimal number, and this is %s", kindOf(v))
	}
	// Rat would read fractions and exponents of any size.
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && c != '.' && (c != '-' || i > 0) {
			return nil, fmt.Errorf("%.40q is no decimal number", text)
		}
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok || len(text) > 400 {
		return nil, fmt.Errorf("%.40q is no decimal number", text)
	}
	return r, nil
}

// decimalText writes a decimal without more digits than it needs.
func decimalText(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	digits, exact := r.FloatPrec()
	if !exact {
		digits = 18
	}
	return r.FloatString(digits)
}
