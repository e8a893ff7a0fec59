package main

import (
	"testing"
	"time"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

func TestPosition(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]client.Position{
		"start":                     client.Start(),
		"END":                       client.End(),
		"0":                         client.Offset(0),
		"12345678901":               client.Offset(12345678901),
		"-5":                        client.Last(5),
		"2026-01-02T03:04:05Z":      client.Time(at),
		"2026-01-02T04:04:05+01:00": client.Time(at),
		"2026-01-02":                client.Time(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)),
	} {
		got, err := position("--from", in)
		if err != nil || got.String() != want.String() {
			t.Errorf("%s: %v, %v; want %v", in, got, err, want)
		}
	}
	for in, age := range map[string]time.Duration{"-1h": time.Hour, "-90m": 90 * time.Minute, "-7d": 7 * 24 * time.Hour} {
		before := time.Now().Add(-age)
		got, err := position("--from", in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		have, err := time.Parse(time.RFC3339Nano, got.String())
		if err != nil || have.Before(before.Truncate(time.Microsecond)) || have.After(time.Now().Add(-age)) {
			t.Errorf("%s: %v, want %v", in, got, before)
		}
	}
	for _, in := range []string{"", "soon", "1h", "--1h", "-", "-x", "1.5"} {
		if got, err := position("--from", in); !cli.IsUsage(err) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestPairs(t *testing.T) {
	got, err := pairs("--set", []string{"a=b", "c=", "d=e=f"})
	if err != nil || got["a"] != "b" || got["c"] != "" || got["d"] != "e=f" || len(got) != 3 {
		t.Errorf("%v, %v", got, err)
	}
	for _, in := range [][]string{{"a"}, {"=b"}, {"a=1", "a=2"}} {
		if got, err := pairs("--set", in); !cli.IsUsage(err) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}
