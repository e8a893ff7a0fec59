package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// WriteJSON writes one indented JSON document and a newline.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// WriteJSONLine writes one JSON document on one line.
func WriteJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Table writes rows in aligned columns with two spaces between them. Columns
// whose header begins with '>' are right-aligned. Trailing blanks are cut.
type Table struct {
	header []string
	right  []bool
	rows   [][]string
}

// NewTable returns a table with these column headers.
func NewTable(header ...string) *Table {
	t := &Table{}
	for _, h := range header {
		name, right := strings.CutPrefix(h, ">")
		t.header = append(t.header, name)
		t.right = append(t.right, right)
	}
	return t
}

// Row adds a row. Missing cells are empty.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(t.header))
	for i := range min(len(cells), len(row)) {
		row[i] = fmt.Sprint(cells[i])
	}
	t.rows = append(t.rows, row)
}

// WriteTo writes the table.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	width := make([]int, len(t.header))
	all := append([][]string{t.header}, t.rows...)
	for _, row := range all {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(c))
			if i > 0 {
				line.WriteString("  ")
			}
			if t.right[i] {
				line.WriteString(pad + c)
			} else {
				line.WriteString(c + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// Count writes a whole number with thousands separated: 1,234,567.
func Count[N ~int | ~int32 | ~int64 | ~uint64](n N) string {
	s := strconv.FormatInt(int64(n), 10)
	start := 0
	if s[0] == '-' {
		start = 1
	}
	for i := len(s) - 3; i > start; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Of writes how many there are of something, whose name for one is given: 1 entry,
// 1,234 entries.
func Of[N ~int | ~int32 | ~int64 | ~uint64](n N, one string) string {
	name := one
	switch stem, y := strings.CutSuffix(one, "y"); {
	case n == 1:
	case y && !strings.HasSuffix(stem, "e"): // key, keys
		name = stem + "ies"
	case strings.HasSuffix(one, "ch"), strings.HasSuffix(one, "s"):
		name += "es"
	default:
		name += "s"
	}
	return Count(n) + " " + name
}

// Bytes writes a size in binary units with three digits or so: 1.21 MiB.
func Bytes(n int64) string {
	if n < 1024 && n > -1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	v := float64(n)
	for _, unit := range []string{"KiB", "MiB", "GiB", "TiB"} {
		v /= 1024
		if v < 1023.95 && v > -1023.95 || unit == "TiB" {
			return strconv.FormatFloat(v, 'f', digits(v), 64) + " " + unit
		}
	}
	return ""
}

func digits(v float64) int {
	switch {
	case v < 9.995:
		return 2
	case v < 99.95:
		return 1
	}
	return 0
}

// Time writes a time as every JSON document has it: RFC 3339 in UTC; the zero
// time is empty.
func Time(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.999Z07:00")
}

// Short cuts a long identifier for a table.
func Short(id string) string {
	if len(id) <= 12 {
		return id
	}
	return id[:12]
}
