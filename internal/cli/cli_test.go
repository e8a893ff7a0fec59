package cli

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReport(t *testing.T) {
	base := errors.New("no node runs on /d")
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{nil, 0, ""},
		{base, 1, "lattice up: no node runs on /d\n"},
		{Hint(base, "lattice up --data %s", "/d"), 1, "lattice up: no node runs on /d\n  next: lattice up --data /d\n"},
		{Hint(Hint(base, "first"), "second"), 1, "lattice up: no node runs on /d\n  next: first\n"},
		{Usagef("needs %s", "TOPIC"), 2, "lattice up: needs TOPIC\n"},
		{fmt.Errorf("reading: %w", Usage(base)), 2, "lattice up: reading: no node runs on /d\n"},
		{errors.Join(base, base), 1, "lattice up: no node runs on /d\n  no node runs on /d\n"},
		{fmt.Errorf("x: %w", Exit(1)), 1, ""},
		{Hint(nil, "x"), 0, ""},
		{Usage(nil), 0, ""},
	} {
		var b bytes.Buffer
		if code := Report(&b, "lattice up", c.err); code != c.code || b.String() != c.want {
			t.Errorf("%v: exit %d, %q; want %d, %q", c.err, code, b.String(), c.code, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	tab := NewTable("TOPIC", ">RECORDS", "ID")
	tab.Row("orders", Count(int64(1234567)), "ab")
	tab.Row("é", 7)
	var b bytes.Buffer
	if _, err := tab.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	want := "TOPIC     RECORDS  ID\norders  1,234,567  ab\né               7\n"
	if b.String() != want {
		t.Errorf("have\n%swant\n%s", b.String(), want)
	}
}

func TestFigures(t *testing.T) {
	for _, c := range []struct{ have, want string }{
		{Count(0), "0"},
		{Count(999), "999"},
		{Count(1000), "1,000"},
		{Count(-123456), "-123,456"},
		{Count(int64(-999)), "-999"},
		{Of(0, "entry"), "0 entries"},
		{Of(1, "entry"), "1 entry"},
		{Of(uint64(1234), "entry"), "1,234 entries"},
		{Of(int32(1), "log"), "1 log"},
		{Of(2, "log"), "2 logs"},
		{Of(2, "key"), "2 keys"},
		{Bytes(0), "0 B"},
		{Bytes(1023), "1023 B"},
		{Bytes(1024), "1.00 KiB"},
		{Bytes(10 << 20), "10.0 MiB"},
		{Bytes(1<<30 - 1), "1.00 GiB"},
		{Bytes(150 << 40), "150 TiB"},
		{Bytes(5000 << 40), "5000 TiB"},
		{Took(1240 * time.Millisecond), "1.24 s"},
		{Took(12 * time.Millisecond), "12 ms"},
		{Took(200 * time.Second), "3m20s"},
		{Took(1500), "1.5 µs"},
		{Time(time.Time{}), ""},
		{Time(time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.FixedZone("x", 3600))), "2026-01-02T02:04:05.006Z"},
		{Short("0123456789abcdef"), "0123456789ab"},
	} {
		if c.have != c.want {
			t.Errorf("have %q, want %q", c.have, c.want)
		}
	}
}

// TestMeter checks the words of the meter with a clock that stands still, and
// that a short run that is not on a terminal says nothing.
func TestMeter(t *testing.T) {
	var b bytes.Buffer
	m := NewMeter(&b, "produced", OfRecords(200))
	at := m.start
	m.now = func() time.Time { return at.Add(2 * time.Second) }
	m.Add(50, 2<<20)
	if got, want := m.line(25), "produced 50 records  2.00 MiB  25/s  [######..................] 25%"; got != want {
		t.Errorf("have %q\nwant %q", got, want)
	}
	if got, want := m.summary(), "produced 50 records, 2.00 MiB in 2.00 s (25 records/s, 1.00 MiB/s)"; got != want {
		t.Errorf("have %q\nwant %q", got, want)
	}
	m.Add(500, 0)
	if got := m.line(0); !strings.HasSuffix(got, "[########################] 100%") {
		t.Errorf("beyond the goal: %q", got)
	}
	m.Stop()
	if b.Len() != 0 {
		t.Errorf("a short run wrote %q", b.String())
	}
	m = NewMeter(&b, "consumed", OfBytes(0))
	defer m.Stop()
	if got := m.line(0); got != "consumed 0 records  0 B  0/s" {
		t.Errorf("without a goal: %q", got)
	}
}
