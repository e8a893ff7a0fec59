package relay

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/projection"
)

// TestSmaller checks what is published instead of a message that its topic does not take.
func TestSmaller(t *testing.T) {
	big := strings.Repeat("x", 2000)
	value, _ := json.Marshal(big)
	patch, err := event.Patch{
		Projection: "p", TenantSchema: "a_b", ForkID: "f", Stream: "s", EntityID: "e", EventType: "E", Key: json.RawMessage(`{"k":1}`),
		Operations: []event.Operation{{Op: event.OpAdd, Path: "/a", Value: value}}, PrevCursor: 3, Cursor: 7, Epoch: 1,
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	b, err := smaller(projection.Boxed{Kind: projection.KindPatch, Message: patch}, 500)
	if err != nil || len(b) > 500 {
		t.Fatalf("%s, %v", b, err)
	}
	p, err := event.ParsePatch(b)
	if err != nil || !p.Reset || p.Cursor != 7 || p.Projection != "p" || p.EntityID != "e" || len(p.Operations) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, d := range []event.DeadLetter{
		{ProjectionName: "p", TenantSchema: "a_b", Error: "why", ErrorClass: event.ClassDecode, Raw: []byte(big), SourceTopic: "t", SourceOffset: 9},
		{ProjectionName: "p", TenantSchema: "a_b", Error: "why", ErrorClass: event.ClassDecode, OriginalEvent: value, SourceKey: []byte(big), SourceTopic: "t", SourceOffset: 9},
	} {
		long, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		b, err := smaller(projection.Boxed{Kind: projection.KindDeadLetter, Message: long}, 500)
		if err != nil || len(b) > 500 {
			t.Fatalf("%s, %v", b, err)
		}
		got, err := event.ParseDeadLetter(b)
		if err != nil || got.Error != "why" || got.SourceOffset != 9 || got.ProjectionName != "p" || got.Raw != nil || !strings.Contains(got.StackTrace, "dlq show") {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if _, err := smaller(projection.Boxed{Kind: projection.KindPatch, Message: []byte("no")}, 500); err == nil {
		t.Error("bytes that are no patch")
	}
}
