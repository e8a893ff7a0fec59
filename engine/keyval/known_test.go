package keyval

import (
	"fmt"
	"testing"
)

// TestKnown holds the filter to its one promise, whatever its size, and to being of
// use.
func TestKnown(t *testing.T) {
	var none *known
	if none.add([]byte("a")); none.lacks([]byte("a")) {
		t.Error("nothing known, yet a name is lacking")
	}
	for _, n := range []int{1, 1000, 200_000} {
		k := newKnown(int64(n) * 32)
		if !k.lacks([]byte("name 0")) {
			t.Error("an empty database has something")
		}
		for i := range n {
			k.add(fmt.Appendf(nil, "name %d", i))
		}
		for i := range n {
			if k.lacks(fmt.Appendf(nil, "name %d", i)) {
				t.Fatalf("%d names: %d is lacking", n, i)
			}
		}
		wrong := 0
		for i := range 10_000 {
			if !k.lacks(fmt.Appendf(nil, "other %d", i)) {
				wrong++
			}
		}
		if wrong > 500 {
			t.Errorf("%d names: %d of 10,000 others are taken for one of them", n, wrong)
		}
	}
}
