package event

import (
	"encoding/json"
	"errors"
	"strings"

	lattice "github.com/lattice-log/lattice"
)

// DeadLetter says which event could not be applied to which projection, and why.
type DeadLetter struct {
	// OriginalEvent is the message as it was read; null when it is no JSON.
	OriginalEvent  json.RawMessage `json:"originalEvent"`
	ProjectionName string          `json:"projectionName"`
	TenantSchema   string          `json:"tenantSchema"`
	Error          string          `json:"error"`
	StackTrace     string          `json:"stackTrace"`
	RetryCount     int64           `json:"retryCount"`
	FailedAt       int64           `json:"failedAt"` // milliseconds since 1970

	ErrorClass      string `json:"errorClass"`
	FirstFailedAt   int64  `json:"firstFailedAt"`
	SourceTopic     string `json:"sourceTopic"`
	SourcePartition int64  `json:"sourcePartition"`
	SourceOffset    int64  `json:"sourceOffset"`
	SourceKey       []byte `json:"sourceKey,omitempty"`
	// Raw is the record's value when it could not be decoded.
	Raw []byte `json:"raw,omitempty"`
}

// MaxProse bounds the error and the stack trace of a dead letter, in bytes. What
// is longer is cut: the message must fit a topic that the event fitted.
const MaxProse = 16 << 10

// Encode returns the message's bytes. An original event that is absent is null.
func (d DeadLetter) Encode() ([]byte, error) {
	if d.OriginalEvent == nil {
		d.OriginalEvent = json.RawMessage("null")
	}
	d.Error, d.StackTrace = cut(d.Error), cut(d.StackTrace)
	return encode(d)
}

// ParseDeadLetter reads a message of causet.projection-dlq.v1. The tenant and the
// projection may be empty: of bytes that were no event, neither is known.
func ParseDeadLetter(b []byte) (DeadLetter, error) {
	o, err := parseObject(b)
	if err != nil {
		return DeadLetter{}, err
	}
	d := DeadLetter{
		ProjectionName: o.optional("projectionName", MaxName), TenantSchema: o.optional("tenantSchema", MaxName),
		Error: o.prose("error"), StackTrace: o.prose("stackTrace"),
		RetryCount: o.integer("retryCount", 0), FailedAt: o.integer("failedAt", 0),
		ErrorClass: o.optional("errorClass", MaxName), SourceTopic: o.optional("sourceTopic", 249),
		SourceKey: o.bytes("sourceKey"), Raw: o.bytes("raw"),
	}
	// Those of others may have the page's seven only.
	for name, field := range map[string]*int64{"firstFailedAt": &d.FirstFailedAt, "sourcePartition": &d.SourcePartition, "sourceOffset": &d.SourceOffset} {
		if _, there := o.members[name]; there {
			*field = o.integer(name, 0)
		}
	}
	if v, there := o.members["originalEvent"]; !there {
		o.wrong("originalEvent", "the event, or null")
	} else if string(v) != "null" {
		d.OriginalEvent = v
	}
	return d, o.err
}

// cut shortens a text to MaxProse bytes and says so.
func cut(s string) string {
	if len(s) <= MaxProse {
		return s
	}
	const mark = "… (cut)"
	s = s[:MaxProse-len(mark)]
	return strings.ToValidUTF8(s, "") + mark // the last character may be cut
}

// Classes of errors that a dead letter names.
const (
	ClassDecode     = "decode"     // the bytes are no event
	ClassData       = "data"       // a value does not fit its column
	ClassExpression = "expression" // a derivation, a condition or an aggregate failed
	ClassConstraint = "constraint" // the database refused the row
	ClassInternal   = "internal"   // a defect of ours
	ClassParked     = "parked"     // nothing is wrong with it: an earlier one of its entity failed
)

// ErrParked is the error of an event that waits behind another of its entity.
var ErrParked = lattice.E(lattice.Conflict, errors.New("an earlier event of this entity is a dead letter: retry or discard that first"))
