package nearest

import (
	"testing"

	"pgregory.net/rapid"
)

func TestName(t *testing.T) {
	known := []string{"kafka.listen", "kafka.advertise", "http.listen", "log.segment_bytes", "log.retention_ms"}
	for _, c := range []struct {
		name, want string
	}{
		{"kafka.listn", "kafka.listen"},
		{"kafka.lisetn", "kafka.listen"},
		{"Kafka.Listen", "kafka.listen"},
		{"advertise", "kafka.advertise"},
		{"log.segmentbytes", "log.segment_bytes"},
		{"log.retention", "log.retention_ms"},
		{"redis.requirepass", ""},
		{"", ""},
		{"x", ""},
	} {
		got, ok := Name(c.name, known)
		if got != c.want && ok || ok != (c.want != "") {
			t.Errorf("Name(%q) = %q, %v; want %q", c.name, got, ok, c.want)
		}
	}
}

// TestDistance checks what a distance must be, and that one edit costs one.
func TestDistance(t *testing.T) {
	word := rapid.StringMatching(`[ab.]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		if (d == 0) != (a == b) {
			t.Fatalf("distance(%q, %q) = %d", a, b, d)
		}
		if r := distance(b, a); r != d {
			t.Fatalf("distance(%q, %q) = %d, but %d the other way", a, b, d, r)
		}
		if d > max(len(a), len(b)) {
			t.Fatalf("distance(%q, %q) = %d", a, b, d)
		}
		if len(a) > 0 {
			i := rapid.IntRange(0, len(a)-1).Draw(t, "i")
			if got := distance(a, a[:i]+a[i+1:]); got != 1 {
				t.Fatalf("dropping byte %d of %q costs %d", i, a, got)
			}
		}
	})
}
