package resp

import (
	"math"
	"strings"
	"testing"
)

func TestReplies(t *testing.T) {
	for _, c := range []struct {
		name         string
		write        func(*Writer)
		resp2, resp3 string
	}{
		{"status", func(w *Writer) { w.Simple("OK") }, "+OK|", "+OK|"},
		{"error", func(w *Writer) { w.Error("ERR a\r\nb\xff") }, "-ERR a  b\xff|", "-ERR a  b\xff|"},
		{"integer", func(w *Writer) { w.Int(math.MinInt64) }, ":-9223372036854775808|", ":-9223372036854775808|"},
		{"string", func(w *Writer) { w.Bulk([]byte("a\x00b")) }, "$3|a\x00b|", "$3|a\x00b|"},
		{"empty string", func(w *Writer) { w.BulkString("") }, "$0||", "$0||"},
		{"integer as string", func(w *Writer) { w.BulkInt(-12) }, "$3|-12|", "$3|-12|"},
		{"null", func(w *Writer) { w.Null() }, "$-1|", "_|"},
		{"null array", func(w *Writer) { w.NullArray() }, "*-1|", "_|"},
		{"array", func(w *Writer) { w.Array(2) }, "*2|", "*2|"},
		{"map", func(w *Writer) { w.Map(2) }, "*4|", "%2|"},
		{"set", func(w *Writer) { w.Set(2) }, "*2|", "~2|"},
		{"push", func(w *Writer) { w.Push(3) }, "*3|", ">3|"},
		{"true", func(w *Writer) { w.Bool(true) }, ":1|", "#t|"},
		{"false", func(w *Writer) { w.Bool(false) }, ":0|", "#f|"},
		{"double", func(w *Writer) { w.Double(3.2) }, "$18|3.2000000000000002|", ",3.2000000000000002|"},
		{"whole double", func(w *Writer) { w.Double(10) }, "$2|10|", ",10|"},
		{"large double", func(w *Writer) { w.Double(1e17) }, "$5|1e+17|", ",1e+17|"},
		{"infinite", func(w *Writer) { w.Double(math.Inf(1)) }, "$3|inf|", ",inf|"},
		{"less than all", func(w *Writer) { w.Double(math.Inf(-1)) }, "$4|-inf|", ",-inf|"},
		{"minus zero", func(w *Writer) { w.Double(math.Copysign(0, -1)) }, "$2|-0|", ",-0|"},
		{"big number", func(w *Writer) { w.BigNumber("123456789012345678901234567890") },
			"$30|123456789012345678901234567890|", "(123456789012345678901234567890|"},
		{"verbatim", func(w *Writer) { w.Verbatim("txt", "hello") }, "$5|hello|", "=9|txt:hello|"},
	} {
		for _, v := range []struct {
			resp3 bool
			want  string
		}{{false, c.resp2}, {true, c.resp3}} {
			w := NewWriter(nil, v.resp3)
			c.write(&w)
			if got := strings.ReplaceAll(string(w.Bytes()), "\r\n", "|"); got != v.want {
				t.Errorf("%s, RESP3 %v: %q, want %q", c.name, v.resp3, got, v.want)
			}
		}
	}
}
