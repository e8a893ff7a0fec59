package structs

import (
	"bytes"
	"math"
	"math/big"
)

// Number is a number that floats add to strings and fields: 64 bits of mantissa,
// as the 80-bit format has in which Redis adds on most machines. So 1 and -1.1
// are -0.1, as a user expects, and on every node.
type Number struct{ f *big.Float }

const (
	numberBits  = 64
	maxExponent = 16384 // of the 80-bit format, so that a few bytes never stand for a number of many digits
	maxNumber   = 5 << 10
)

// ParseNumber reads a number as Redis does: decimal, also with an exponent, or
// infinite; no spaces, no NaN.
func ParseNumber(b []byte) (Number, bool) {
	f, ok := Float(b)
	if !ok && !decimal(b) || len(b) > maxNumber {
		return Number{}, false
	}
	if math.IsInf(f, 0) && ok {
		return Number{new(big.Float).SetPrec(numberBits).SetInf(f < 0)}, true
	}
	n, _, err := big.ParseFloat(string(b), 10, numberBits, big.ToNearestEven)
	if err != nil || n.IsInf() || n.MantExp(nil) > maxExponent || n.MantExp(nil) < -maxExponent {
		return Number{}, false
	}
	return Number{n}, true
}

// decimal reports whether b has only the characters of a decimal number; Float
// refuses those that are beyond 64 bits.
func decimal(b []byte) bool {
	return len(b) > 0 && len(bytes.Trim(b, "0123456789+-.eE")) == 0
}

// IsInf reports whether the number is infinite.
func (n Number) IsInf() bool { return n.f.IsInf() }

// addNumber adds to the number in old, nil for 0, and formats the sum as Redis
// does: 17 decimals, without zeros at the end.
func addNumber(old []byte, delta Number) ([]byte, error) {
	sum := delta.f
	if old != nil {
		n, ok := ParseNumber(old)
		if !ok {
			return nil, ErrNotFloat
		}
		if n.f.IsInf() || sum.IsInf() {
			return nil, ErrNotANumber
		}
		sum = new(big.Float).SetPrec(numberBits).SetMode(big.ToNearestEven).Add(n.f, sum)
	}
	if sum.IsInf() || sum.MantExp(nil) > maxExponent {
		return nil, ErrNotANumber
	}
	b := sum.Append(nil, 'f', 17)
	b = bytes.TrimSuffix(bytes.TrimRight(b, "0"), []byte("."))
	if string(b) == "-0" {
		b = b[1:]
	}
	return b, nil
}
