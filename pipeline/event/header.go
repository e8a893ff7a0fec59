package event

import (
	"strconv"
	"unicode/utf8"
)

// Names of the headers that records of the pipeline's topics carry.
const (
	HeaderCorrelation = "correlationId" // absent when the intent had none
	HeaderCausation   = "causationId"   // absent when the intent had none
	HeaderIntent      = "intentId"
	HeaderStream      = "stream"
	HeaderCursor      = "cursor" // position in the ledger, decimal
)

// Header is one header of a Kafka record.
type Header struct {
	Key   string
	Value []byte
}

// Headers returns what an event's records carry beside the message.
func (e *Event) Headers() []Header {
	h := make([]Header, 0, 5)
	add := func(key, value string) {
		if value != "" {
			h = append(h, Header{key, []byte(value)})
		}
	}
	add(HeaderCorrelation, e.CorrelationID)
	add(HeaderCausation, e.CausationID)
	add(HeaderIntent, e.IntentID)
	add(HeaderStream, e.Stream)
	if e.Position > 0 {
		add(HeaderCursor, strconv.FormatInt(e.Position, 10))
	}
	return h
}

// Provenance is what the headers of a record say. All of it may be absent:
// records of other programs have no such headers.
type Provenance struct {
	CorrelationID, CausationID, IntentID, Stream string
	Position                                     int64 // 0: unknown
}

// ReadHeaders takes what it knows from a record's headers. It refuses nothing:
// what is no text, too long or no number counts as absent, and the last of
// several counts.
func ReadHeaders(headers []Header) Provenance {
	var p Provenance
	for _, h := range headers {
		if len(h.Value) > MaxID || !utf8.Valid(h.Value) {
			continue
		}
		v := string(h.Value)
		switch h.Key {
		case HeaderCorrelation:
			p.CorrelationID = v
		case HeaderCausation:
			p.CausationID = v
		case HeaderIntent:
			p.IntentID = v
		case HeaderStream:
			p.Stream = v
		case HeaderCursor:
			if n, err := strconv.ParseInt(v, 10, 64); err == nil && n > 0 {
				p.Position = n
			}
		}
	}
	return p
}
