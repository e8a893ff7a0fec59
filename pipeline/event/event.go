// Package event is what travels through the pipeline: the event of the ledger
// and the four messages that are made of it. All are JSON objects; the names of
// their members are a promise to programs that are not ours.
//
//	topic                          type          written by   key
//	causet.projection-events.v1    Projection    runtime      entityId
//	causet.ledger-events.v1        Event         runtime      entityId
//	causet.projection-dlq.v1       DeadLetter    projector    entityId
//	causet.patches.v1              Patch         projector    entityId
//
// # Projection
//
//	{"eventType":"ARTIST_FOLLOWED","entityId":"user-123","forkId":"prod",
//	 "tenantSchema":"platform1_concertapp_prod","irVersion":"v42",
//	 "sequenceNumber":1891,"ts":1719331200000,"payload":{…}}
//
// exactly these members, in this order. What else is known of an event (stream,
// position, intent, correlation, causation) travels in the record's headers.
//
// # Event
//
// A Projection, with the members "cursor" (the position in the ledger), "stream",
// "intentId" and, where known, "intentType", "correlationId" and "causationId"
// behind "payload".
//
// # DeadLetter
//
//	{"originalEvent":{…}|null,"projectionName":"…","tenantSchema":"…","error":"…",
//	 "stackTrace":"…","retryCount":5,"failedAt":1719331800000,
//	 "errorClass":"data","firstFailedAt":1719331790000,"sourceTopic":"…",
//	 "sourcePartition":0,"sourceOffset":17,"sourceKey":"<base64>","raw":"<base64>"}
//
// The first seven are the published ones. "raw" is there only when the record
// could not be decoded; "originalEvent" is null then.
//
// # Patch
//
//	{"projection":"artist_followers","tenantSchema":"…","forkId":"…","stream":"…",
//	 "entityId":"…","eventType":"…","key":{"artist_id":"artist-456"},
//	 "operations":[{"op":"replace","path":"/followers","value":2}],
//	 "prevCursor":41,"cursor":57,"epoch":1,"ts":1719331200000}
//
// Cursors chain the patches of one row; 0 stands for "no row before". A message
// with "reset":true has no operations: whoever follows the projection must read
// it again.
//
// # Rules for changing them
//
//   - A member keeps its name, type and place for ever (TestGolden). A new one
//     goes to the end and may be absent. What is not so is a new topic, ".v2".
//   - Readers pass over members that they do not know.
//   - Numbers are integers below 2^63. Payloads are kept as they were written, so
//     that no number in them is rounded.
//
// # Hostile input
//
// Everything that reads bytes here is bounded: MaxMessage bytes, MaxDepth levels,
// names of the lengths below. A member that is there twice is refused, since two
// readers could take different ones. Refusals are lattice.Invalid or TooLarge and
// name the member.
package event

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	lattice "github.com/lattice-log/lattice"
)

// Bounds of what is read and written.
const (
	MaxMessage = 8 << 20 // bytes of one message
	MaxPayload = 768 << 10
	MaxDepth   = 64  // nested arrays and objects
	MaxID      = 512 // bytes of entity, intent, correlation and causation ids
	MaxName    = 128 // bytes of event types, streams, forks, projections, IR versions
	MaxSchema  = 63  // bytes of a tenant schema: PostgreSQL's names
)

// Event is one fact of the ledger.
type Event struct {
	EventType    string `json:"eventType"`
	EntityID     string `json:"entityId"`
	ForkID       string `json:"forkId"`
	TenantSchema string `json:"tenantSchema"`
	IRVersion    string `json:"irVersion"`
	// SequenceNumber counts from 1 without gaps in (TenantSchema, ForkID, Stream, EntityID).
	SequenceNumber int64 `json:"sequenceNumber"`
	// TS is the time of the commit in milliseconds since 1970. It may go backwards.
	TS int64 `json:"ts"`
	// Payload is a JSON object.
	Payload json.RawMessage `json:"payload"`

	// Position counts the ledger's events from 1 without gaps, in the order of commits.
	Position int64  `json:"cursor"`
	Stream   string `json:"stream"`
	IntentID string `json:"intentId"`
	// IntentType, CorrelationID and CausationID may be empty.
	IntentType    string `json:"intentType,omitempty"`
	CorrelationID string `json:"correlationId,omitempty"`
	CausationID   string `json:"causationId,omitempty"`
}

// Projection is an event as causet.projection-events.v1 carries it.
type Projection struct {
	EventType      string          `json:"eventType"`
	EntityID       string          `json:"entityId"`
	ForkID         string          `json:"forkId"`
	TenantSchema   string          `json:"tenantSchema"`
	IRVersion      string          `json:"irVersion"`
	SequenceNumber int64           `json:"sequenceNumber"`
	TS             int64           `json:"ts"`
	Payload        json.RawMessage `json:"payload"`
}

// Projection returns the event's message for the projectors.
func (e *Event) Projection() Projection {
	return Projection{e.EventType, e.EntityID, e.ForkID, e.TenantSchema, e.IRVersion, e.SequenceNumber, e.TS, e.Payload}
}

// Encode returns the message's bytes. The payload must be valid JSON.
func (p *Projection) Encode() ([]byte, error) { return encode(p) }

// Encode returns the bytes of the message for causet.ledger-events.v1.
func (e *Event) Encode() ([]byte, error) { return encode(e) }

// ParseProjection reads a message of causet.projection-events.v1, which others
// may write, too. If the bytes are an object with a legible eventType, it is in
// the result even beside an error: who does not know the type passes over the
// message, whatever else is wrong with it.
func ParseProjection(b []byte) (Projection, error) {
	o, err := parseObject(b)
	if err != nil {
		return Projection{}, err
	}
	p := o.projection()
	return p, o.err
}

// Parse reads a message of causet.ledger-events.v1.
func Parse(b []byte) (Event, error) {
	o, err := parseObject(b)
	if err != nil {
		return Event{}, err
	}
	p := o.projection()
	e := Event{
		EventType: p.EventType, EntityID: p.EntityID, ForkID: p.ForkID, TenantSchema: p.TenantSchema, IRVersion: p.IRVersion,
		SequenceNumber: p.SequenceNumber, TS: p.TS, Payload: p.Payload,
		Position: o.integer("cursor", 1), Stream: o.name("stream"), IntentID: o.id("intentId"),
		IntentType:    o.optional("intentType", MaxName),
		CorrelationID: o.optional("correlationId", MaxID), CausationID: o.optional("causationId", MaxID),
	}
	return e, o.err
}

// CheckID reports what is wrong with the id of an entity or an intent.
func CheckID(what, id string) error { return checkText(what, id, MaxID) }

// CheckName reports what is wrong with an event type, a stream, a fork or the like.
func CheckName(what, name string) error { return checkText(what, name, MaxName) }

// CheckSchema reports what is wrong with a tenant schema: it becomes a part of
// the names of tables, so it is lower-case letters, digits and underscores and
// does not begin with a digit.
func CheckSchema(schema string) error {
	ok := schema != "" && len(schema) <= MaxSchema && (schema[0] < '0' || schema[0] > '9')
	for _, c := range []byte(schema) {
		ok = ok && (c == '_' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9')
	}
	if !ok {
		return lattice.E(lattice.Invalid, fmt.Errorf("tenant schema %q: want 1 to %d of a-z, 0-9 and _, and no digit first", clip(schema), MaxSchema))
	}
	return nil
}

func checkText(what, s string, most int) error {
	switch {
	case s == "":
		return lattice.E(lattice.Invalid, fmt.Errorf("%s is missing or empty", what))
	case len(s) > most:
		return lattice.E(lattice.TooLarge, fmt.Errorf("%s has %d bytes, the limit is %d", what, len(s), most))
	case !utf8.ValidString(s):
		return lattice.E(lattice.Invalid, fmt.Errorf("%s is not UTF-8", what))
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return lattice.E(lattice.Invalid, fmt.Errorf("%s %q has a control character", what, clip(s)))
		}
	}
	return nil
}

// clip shortens what an error quotes of a stranger's bytes.
func clip(s string) string {
	if len(s) <= 64 {
		return s
	}
	return s[:64] + "…"
}
