package request

import (
	"encoding/json"
	"reflect"
	"testing"

	lattice "github.com/lattice-log/lattice"
)

// FuzzParse checks, for any body: no panic; a refusal has a kind; what is taken says
// the same when it is written down and read again.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"intentId":"i1","intentType":"OPEN","payload":{"account_id":"ann"},"expectedSequence":3}`))
	f.Add([]byte(`{"intentId":"i3","intentType":"SEND","payload":null,"forkId":"main","streamId":null,"entityId":"e","correlationId":"c","causationId":"k"}`))
	f.Add([]byte(`{"intentId":"a","intentID":"b"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := Parse(body)
		if err != nil {
			if lattice.KindOf(err) == lattice.Internal {
				t.Errorf("%q: %v has no kind", body, err)
			}
			return
		}
		m := map[string]any{
			"intentId": r.IntentID, "intentType": r.IntentType, "streamId": r.StreamID, "entityId": r.EntityID, "forkId": r.ForkID,
			"correlationId": r.CorrelationID, "causationId": r.CausationID, "expectedSequence": r.ExpectedSequence,
		}
		if r.Payload != nil {
			m["payload"] = r.Payload
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(b)
		if err != nil || again.IntentID != r.IntentID || !reflect.DeepEqual(again.ExpectedSequence, r.ExpectedSequence) || (again.Payload == nil) != (r.Payload == nil) {
			t.Errorf("%q: %+v, and then %+v (%v)", body, r, again, err)
		}
	})
}
