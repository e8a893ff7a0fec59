package structs

import (
	"strings"
	"testing"
)

func TestNumbersAddAsInRedis(t *testing.T) {
	for _, c := range []struct{ old, delta, want string }{
		{"", "1.5", "1.5"},
		{"1", "-1.1", "-0.1"},
		{"3", "1.5", "4.5"},
		{"10.5", "0.1", "10.6"},
		{"0.1", "0.2", "0.3"},
		{"5.0e3", "200", "5200"},
		{"9223372036854775807", "0.5", "9223372036854775807.5"},
		{"9223372036854775808", "0.5", "9223372036854775808"},
		{"17179869184", "1.5", "17179869185.5"},
		{"1e4932", "-1e4932", "0"},
		{"-1", "1", "0"},
		{"-0.0", "-0.0", "0"},
	} {
		d, ok := ParseNumber([]byte(c.delta))
		if !ok {
			t.Fatalf("%q is no number", c.delta)
		}
		var old []byte
		if c.old != "" {
			old = []byte(c.old)
		}
		got, err := addNumber(old, d)
		if err != nil || string(got) != c.want {
			t.Errorf("%q + %q: %.80q, %v; want %.80q", c.old, c.delta, got, err, c.want)
		}
	}
	for _, bad := range []string{"", " 1", "1 ", "x", "nan", "0x10", "1e5000", "1e-5000", "1e999999999", "1e99999999999999999999", "1_0", "--1", "."} {
		if n, ok := ParseNumber([]byte(bad)); ok {
			t.Errorf("%q is taken as %v", bad, n.f)
		}
	}
	large, ok := ParseNumber([]byte("1e400"))
	if !ok {
		t.Fatal("1e400 is no number")
	}
	// It has no exact form: its first digits are right.
	if b, err := addNumber(nil, large); err != nil || len(b) != 401 || !strings.HasPrefix(string(b), "1000000000000000") {
		t.Errorf("1e400 is %.30q of %d digits, %v", b, len(b), err)
	}
	inf, ok := ParseNumber([]byte("-inf"))
	if !ok || !inf.IsInf() {
		t.Error("-inf is not infinite")
	}
	if _, err := addNumber([]byte("1"), inf); err != ErrNotANumber {
		t.Error(err)
	}
}
