package main

import (
	"encoding/base64"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/client"
)

// TestJSONFormat checks that any record becomes one line of JSON that says the same.
func TestJSONFormat(t *testing.T) {
	bytes := rapid.OneOf(
		rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		rapid.SliceOf(rapid.Byte()),
		rapid.Just([]byte(nil)),
	)
	type doc struct {
		Topic       string
		Partition   int32
		Offset      int64
		Time        *time.Time
		Key, Value  *string
		KeyBase64   *string `json:"key_base64"`
		ValueBase64 *string `json:"value_base64"`
		Headers     []struct {
			Key         string
			Value       *string
			ValueBase64 *string `json:"value_base64"`
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		r := client.Record{
			Topic: rapid.String().Draw(t, "topic"), Partition: rapid.Int32().Draw(t, "partition"),
			Offset: rapid.Int64().Draw(t, "offset"), Key: bytes.Draw(t, "key"), Value: bytes.Draw(t, "value"),
		}
		if rapid.Bool().Draw(t, "timed") {
			r.Time = time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "time"))
		}
		for range rapid.IntRange(0, 2).Draw(t, "headers") {
			r.Headers = append(r.Headers, client.Header{Key: rapid.String().Draw(t, "name"), Value: bytes.Draw(t, "header")})
		}
		line := jsonFormat(nil, &r)
		for i, c := range line {
			if c == '\n' && i != len(line)-1 {
				t.Fatalf("more than one line: %q", line)
			}
		}
		var d doc
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if d.Topic != r.Topic || d.Partition != r.Partition || d.Offset != r.Offset || len(d.Headers) != len(r.Headers) {
			t.Fatalf("have %s of %+v", line, r)
		}
		if r.Time.IsZero() != (d.Time == nil) || d.Time != nil && !d.Time.Equal(r.Time) {
			t.Fatalf("time: %s of %v", line, r.Time)
		}
		check := func(what string, b []byte, text, b64 *string) {
			switch {
			case b == nil && (text != nil || b64 != nil):
				t.Fatalf("%s: null became something: %s", what, line)
			case b != nil && utf8.Valid(b) && (text == nil || *text != string(b)):
				t.Fatalf("%s: %q became %s", what, b, line)
			case b != nil && !utf8.Valid(b):
				if b64 == nil || *b64 != base64.StdEncoding.EncodeToString(b) {
					t.Fatalf("%s: %x became %s", what, b, line)
				}
			}
		}
		check("key", r.Key, d.Key, d.KeyBase64)
		check("value", r.Value, d.Value, d.ValueBase64)
		for i, h := range r.Headers {
			if d.Headers[i].Key != h.Key {
				t.Fatalf("header %q became %s", h.Key, line)
			}
			check("header", h.Value, d.Headers[i].Value, d.Headers[i].ValueBase64)
		}
	})
}

func TestPlainFormats(t *testing.T) {
	r := client.Record{Key: []byte("k"), Value: []byte("v1")}
	for name, c := range map[string]struct {
		f    recordFormat
		want string
	}{
		"raw":     {rawFormat(false), "v1\n"},
		"lengths": {rawFormat(true), "\x00\x00\x00\x02v1"},
		"kv":      {kvFormat([]byte("\t")), "k\tv1\n"},
	} {
		if got := string(c.f(nil, &r)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
