package keyval

import (
	"fmt"
	"hash/maphash"
	"testing"
)

// TestKnown holds the filter to its one promise, whatever its size, and to being of
// use.
func TestKnown(t *testing.T) {
	seed := maphash.MakeSeed()
	hash := func(format string, args ...any) uint64 { return maphash.Bytes(seed, fmt.Appendf(nil, format, args...)) }
	var none *known
	if none.add(hash("a")); none.lacks(hash("a")) {
		t.Error("nothing known, yet a name is lacking")
	}
	for _, n := range []int{1, 1000, 200_000} {
		for _, expected := range []int{n, 1} { // one that was sized for it, and one that grows
			k := newKnown(int64(expected) * 32)
			if !k.lacks(hash("name 0")) {
				t.Error("an empty database has something")
			}
			for i := range n {
				k.add(hash("name %d", i))
			}
			for i := range n {
				if k.lacks(hash("name %d", i)) {
					t.Fatalf("%d names: %d is lacking", n, i)
				}
			}
			wrong := 0
			for i := range 10_000 {
				if !k.lacks(hash("other %d", i)) {
					wrong++
				}
			}
			if wrong > 500 {
				t.Errorf("%d names: %d of 10,000 others are taken for one of them", n, wrong)
			}
		}
	}
}
