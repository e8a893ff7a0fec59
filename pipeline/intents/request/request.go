// Package request reads an intent as it comes in over HTTP. It decides nothing and
// knows no application, and no database, so that it can be fuzzed by itself.
package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/nearest"
	"github.com/lattice-log/lattice/pipeline/event"
)

// Request is an intent as it comes in.
type Request struct {
	IntentID, IntentType string
	// StreamID and EntityID may be empty: then the application says. Forks that
	// are empty are the application's own.
	StreamID, EntityID, ForkID string
	Payload                    json.RawMessage // an object
	ExpectedSequence           *int64
	CorrelationID, CausationID string
}

// members are those that a request may have.
func members() []string {
	return []string{"intentId", "intentType", "streamId", "entityId", "forkId", "payload", "expectedSequence", "correlationId", "causationId"}
}

// Parse reads the body of POST /v1/intents. A member that it does not know
// is a mistake: it could be one that matters, written wrongly.
func Parse(body []byte) (Request, error) {
	m, err := event.Members(body)
	if err != nil {
		return Request{}, err
	}
	for name := range m {
		if !slices.Contains(members(), name) {
			err := fmt.Errorf("an intent has no member %q", name)
			if n, ok := nearest.Name(name, members()); ok {
				err = fmt.Errorf("%w; did you mean %s?", err, n)
			}
			return Request{}, lattice.E(lattice.Invalid, err)
		}
	}
	var r Request
	for name, to := range map[string]*string{
		"intentId": &r.IntentID, "intentType": &r.IntentType, "streamId": &r.StreamID, "entityId": &r.EntityID, "forkId": &r.ForkID,
		"correlationId": &r.CorrelationID, "causationId": &r.CausationID,
	} {
		v := m[name]
		if v == nil || string(v) == "null" {
			continue
		}
		if json.Unmarshal(v, to) != nil {
			return Request{}, lattice.E(lattice.Invalid, fmt.Errorf("%s is no string", name))
		}
	}
	if v := m["expectedSequence"]; v != nil && string(v) != "null" {
		n := int64(0)
		if strings.HasPrefix(string(v), `"`) || json.Unmarshal(v, &n) != nil || n < 0 {
			return Request{}, lattice.E(lattice.Invalid, errors.New("expectedSequence is no whole number of at least 0"))
		}
		r.ExpectedSequence = &n
	}
	if v := m["payload"]; v != nil && string(v) != "null" {
		r.Payload = v
	}
	return r, nil
}
