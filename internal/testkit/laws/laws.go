// Package laws checks that a merge is a join: commutative, associative,
// idempotent, and with one result for all orders, groupings and repetitions.
// Whatever replicates by merging is tested with it.
//
// The generator matters more than the laws: it must produce values that have
// something to do with each other, such as copies of one history, and the values
// of misbehaving writers.
package laws

import (
	"fmt"

	"pgregory.net/rapid"
)

// Join checks the laws on values drawn from gen. The test fails with the law and
// the values that break it.
func Join[T any](t rapid.TB, gen *rapid.Generator[T], join func(a, b T) T, equal func(a, b T) bool) {
	t.Helper()
	JoinWithin(t, func(*rapid.T) *rapid.Generator[T] { return gen }, join, equal)
}

// JoinWithin is Join for values that have a world in common: world draws one for
// each check, and returns the generator of values in it.
func JoinWithin[T any](t rapid.TB, world func(*rapid.T) *rapid.Generator[T], join func(a, b T) T, equal func(a, b T) bool) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(world(t), 3, 6).Draw(t, "values")
		if broken := Broken(join, equal, values[:3]...); broken != "" {
			t.Fatal(broken)
		}
		want := fold(join, values)
		order := rapid.Permutation(append(values, values[rapid.IntRange(0, len(values)-1).Draw(t, "twice")])).Draw(t, "order")
		for len(order) > 1 { // join any two neighbours, until one is left: a random grouping
			i := rapid.IntRange(0, len(order)-2).Draw(t, "group")
			order[i] = join(order[i], order[i+1])
			order = append(order[:i+1], order[i+2:]...)
		}
		if !equal(order[0], want) {
			t.Fatalf("the order and grouping show:\n%+v\n%+v", order[0], want)
		}
		if again := fold(join, values); !equal(again, want) {
			t.Fatalf("joining changed the values that were joined:\n%+v\n%+v", again, want)
		}
	})
}

func fold[T any](join func(a, b T) T, values []T) T {
	acc := values[0]
	for _, v := range values[1:] {
		acc = join(acc, v)
	}
	return acc
}

// Broken returns which law breaks for some of the values, in all pairs and
// triples of them, and the values; or "" when none does.
func Broken[T any](join func(a, b T) T, equal func(a, b T) bool, values ...T) string {
	for _, a := range values {
		if aa := join(a, a); !equal(aa, a) {
			return fmt.Sprintf("not idempotent:\na   %+v\na+a %+v", a, aa)
		}
		for _, b := range values {
			ab := join(a, b)
			if ba := join(b, a); !equal(ab, ba) {
				return fmt.Sprintf("not commutative:\na   %+v\nb   %+v\na+b %+v\nb+a %+v", a, b, ab, ba)
			}
			if aab := join(a, ab); !equal(aab, ab) {
				return fmt.Sprintf("not inflationary:\na       %+v\na+b     %+v\na+(a+b) %+v", a, ab, aab)
			}
			for _, c := range values {
				if left, right := join(ab, c), join(a, join(b, c)); !equal(left, right) {
					return fmt.Sprintf("not associative:\na       %+v\nb       %+v\nc       %+v\n(a+b)+c %+v\na+(b+c) %+v", a, b, c, left, right)
				}
			}
		}
	}
	return ""
}
