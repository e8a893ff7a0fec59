package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/lattice-log/lattice/client"
)

// recordFormat appends one record in some output format to a buffer.
type recordFormat func(dst []byte, r *client.Record) []byte

// rawFormat writes the value and a newline, or its length before it.
func rawFormat(lengths bool) recordFormat {
	if lengths {
		return func(dst []byte, r *client.Record) []byte {
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(r.Value)))
			return append(dst, r.Value...)
		}
	}
	return func(dst []byte, r *client.Record) []byte { return append(append(dst, r.Value...), '\n') }
}

// kvFormat writes key, separator, value and a newline.
func kvFormat(separator []byte) recordFormat {
	return func(dst []byte, r *client.Record) []byte {
		dst = append(append(dst, r.Key...), separator...)
		return append(append(dst, r.Value...), '\n')
	}
}

// jsonFormat writes one JSON object a line:
//
//	{"topic":"t","partition":0,"offset":7,"time":"2026-01-02T03:04:05.006Z","key":"k","value":"v","headers":[{"key":"h","value":"x"}]}
//
// A key or value that is null is null; one that is no UTF-8 has key_base64 or
// value_base64 instead.
func jsonFormat(dst []byte, r *client.Record) []byte {
	dst = append(dst, `{"topic":`...)
	dst = appendString(dst, r.Topic)
	dst = append(dst, `,"partition":`...)
	dst = strconv.AppendInt(dst, int64(r.Partition), 10)
	dst = append(dst, `,"offset":`...)
	dst = strconv.AppendInt(dst, r.Offset, 10)
	dst = append(dst, `,"time":`...)
	if r.Time.IsZero() {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, '"')
		dst = r.Time.UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
		dst = append(dst, '"')
	}
	dst = append(dst, ',')
	dst = appendBytes(dst, "key", r.Key)
	dst = append(dst, ',')
	dst = appendBytes(dst, "value", r.Value)
	dst = append(dst, `,"headers":[`...)
	for i, h := range r.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, `{"key":`...)
		dst = appendString(dst, h.Key)
		dst = append(dst, ',')
		dst = appendBytes(dst, "value", h.Value)
		dst = append(dst, '}')
	}
	return append(dst, "]}\n"...)
}

// appendBytes writes "name":"text", "name":null, or "name_base64":"...".
func appendBytes(dst []byte, name string, b []byte) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	switch {
	case b == nil:
		return append(dst, `":null`...)
	case plain(b):
		dst = append(dst, `":"`...)
		dst = append(dst, b...)
		return append(dst, '"')
	case utf8.Valid(b):
		return appendString(append(dst, `":`...), string(b))
	}
	dst = append(dst, `_base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, b)
	return append(dst, '"')
}

// plain reports that b can stand in a JSON string as it is.
func plain(b []byte) bool {
	for _, c := range b {
		if c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func appendString(dst []byte, s string) []byte {
	if plain([]byte(s)) {
		return append(append(append(dst, '"'), s...), '"')
	}
	quoted, err := json.Marshal(s)
	if err != nil { // a string always has an encoding
		return append(dst, `""`...)
	}
	return append(dst, quoted...)
}
