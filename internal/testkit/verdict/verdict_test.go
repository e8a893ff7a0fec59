package verdict

import (
	"slices"
	"testing"
)

func TestWorse(t *testing.T) {
	before := Results{Date: "then", Tests: map[string]Outcome{"A": Pass, "B": Pass, "C": Pass, "D": Fail, "E": Skip}}
	now := Results{Tests: map[string]Outcome{"A": Pass, "B": Skip, "D": Fail, "E": Pass, "F": Fail}}
	want := []string{"B passed on then, now: skip", "C passed on then, now: gone"}
	if got := before.Worse(now); !slices.Equal(got, want) {
		t.Errorf("worse: %q, want %q", got, want)
	}
	if got := (Results{}).Worse(now); got != nil {
		t.Errorf("worse than nothing: %q", got)
	}
}

func TestReasons(t *testing.T) {
	r, err := parse([]byte("# c\n\nA: because\nB/x: several nodes: two: really\nC: stale\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Of("B/x/y"); got != "several nodes: two: really" {
		t.Errorf("reason of a part: %q", got)
	}
	got := r.Faults(Results{Tests: map[string]Outcome{"A": Fail, "B": Pass, "B/x": Skip, "C": Pass, "D": Fail}})
	want := []string{"D: fail, and has no reason", "C has a reason, and all of it passes"}
	if !slices.Equal(got, want) {
		t.Errorf("faults: %q, want %q", got, want)
	}
	if got := (Reasons{"A": "x"}).Faults(Results{Tests: map[string]Outcome{"A": Pass, "A/b": Pass, "A/c": Skip}}); got != nil {
		t.Errorf("a reason for a whole of which a part does not pass: %q", got)
	}
	for _, bad := range []string{"A", "A:", "A: x\nA: y"} {
		if _, err := parse([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestReadAndWrite(t *testing.T) {
	dir := t.TempDir()
	if r, err := Read(dir, "none"); err != nil || r.Tests != nil {
		t.Errorf("a suite that was never run: %v %v", r, err)
	}
	if r, err := ReadReasons(dir, "none"); err != nil || len(r) != 0 {
		t.Errorf("a suite without reasons: %v %v", r, err)
	}
	want := Results{Version: "1", Date: "2026-01-01", Tests: map[string]Outcome{"A": Pass, "A/b": Fail, "A/c": Pass}}
	if err := want.Write(dir + "/x"); err != nil {
		t.Fatal(err)
	}
	tests, parts := want.Count(Pass)
	if tests != 1 || parts != 1 || !slices.Equal(want.Short(), []string{"A/b"}) {
		t.Errorf("%d tests and %d parts pass; short: %v", tests, parts, want.Short())
	}
}
