package event

import (
	"encoding/json"
	"fmt"
	"math"

	lattice "github.com/lattice-log/lattice"
)

// Patch is what one event changed in one row of a projection.
type Patch struct {
	Projection   string `json:"projection"`
	TenantSchema string `json:"tenantSchema"`
	ForkID       string `json:"forkId"`
	Stream       string `json:"stream"`
	EntityID     string `json:"entityId"` // whose event it was
	EventType    string `json:"eventType"`
	// Key is an object: the columns of the row's primary key.
	Key        json.RawMessage `json:"key"`
	Operations []Operation     `json:"operations"`
	// PrevCursor is the Cursor of the row's patch before this one; 0: there was no row.
	PrevCursor int64 `json:"prevCursor"`
	Cursor     int64 `json:"cursor"`
	// Epoch changes when the projection is built anew: cursors of different ones do not compare.
	Epoch int64 `json:"epoch"`
	TS    int64 `json:"ts"` // the event's
	// Reset: read the projection again. Then there is no row, key or operation.
	Reset bool `json:"reset,omitempty"`
}

// MaxOperations bounds the operations of one patch.
const MaxOperations = 10000

// Encode returns the message's bytes.
func (p Patch) Encode() ([]byte, error) {
	if p.Operations == nil {
		p.Operations = []Operation{}
	}
	if p.Key == nil {
		p.Key = json.RawMessage("{}")
	}
	return encode(p)
}

// ParsePatch reads a message of causet.patches.v1.
func ParsePatch(b []byte) (Patch, error) {
	o, err := parseObject(b)
	if err != nil {
		return Patch{}, err
	}
	p := Patch{
		Projection: o.name("projection"), TenantSchema: o.schema(), ForkID: o.name("forkId"), Reset: o.boolean("reset"),
		Key: o.members["key"], PrevCursor: o.integer("prevCursor", 0), Cursor: o.integer("cursor", 0),
		Epoch: o.integer("epoch", 0), TS: o.integer("ts", math.MinInt64),
	}
	if p.Reset {
		p.Stream, p.EntityID, p.EventType = o.optional("stream", MaxName), o.optional("entityId", MaxID), o.optional("eventType", MaxName)
	} else {
		p.Stream, p.EntityID, p.EventType = o.name("stream"), o.id("entityId"), o.name("eventType")
	}
	if kind(p.Key) != '{' {
		o.wrong("key", "an object")
	}
	if ops := o.members["operations"]; kind(ops) != '[' {
		o.wrong("operations", "an array")
	} else if p.Operations, err = ParseOperations(ops); err != nil {
		o.fail(err)
	}
	if o.err == nil && !p.Reset && p.PrevCursor >= p.Cursor {
		o.fail(lattice.E(lattice.Invalid, fmt.Errorf("cursor %d does not follow prevCursor %d", p.Cursor, p.PrevCursor)))
	}
	return p, o.err
}
