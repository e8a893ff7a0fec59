package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/internal/cli"
)

// position reads start, end, an offset, a time (RFC 3339, or a date), or an age:
// "-1h" is an hour ago. "-5" is five records before the end.
func position(flag, s string) (client.Position, error) {
	switch strings.ToLower(s) {
	case "start", "beginning", "earliest":
		return client.Start(), nil
	case "end", "latest":
		return client.End(), nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 0 {
			return client.Last(-n), nil
		}
		return client.Offset(n), nil
	}
	if age, ok := strings.CutPrefix(s, "-"); ok {
		if d, err := parseAge(age); err == nil && d >= 0 {
			return client.Time(time.Now().Add(-d)), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return client.Time(t), nil
		}
	}
	return client.Position{}, cli.Usagef("%s %q: want start, end, an offset, an RFC 3339 time or an age such as -1h", flag, s)
}

// parseAge reads a Go duration, or whole days: 7d.
func parseAge(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(s)
}
