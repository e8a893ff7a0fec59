package event

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
)

func followed() Event {
	return Event{
		EventType: "ARTIST_FOLLOWED", EntityID: "user-123", ForkID: "prod", TenantSchema: "platform1_concertapp_prod", IRVersion: "v42",
		SequenceNumber: 1891, TS: 1719331200000, Payload: json.RawMessage(`{"user_id":"user-123","artist_id":"artist-456"}`),
		Position: 20000, Stream: "user_stream", IntentID: "i-1", IntentType: "FOLLOW_ARTIST", CorrelationID: "c<1>", CausationID: "k&2",
	}
}

// The page's fields, in the page's order, and nothing else. A case that changes
// here means that the change is wrong.
func TestGolden(t *testing.T) {
	e := followed()
	p := e.Projection()
	pb, err := p.Encode()
	check(t, "projection", pb, err, `{"eventType":"ARTIST_FOLLOWED","entityId":"user-123","forkId":"prod","tenantSchema":"platform1_concertapp_prod",`+
		`"irVersion":"v42","sequenceNumber":1891,"ts":1719331200000,"payload":{"user_id":"user-123","artist_id":"artist-456"}}`)
	if got, err := ParseProjection(pb); err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("read back %+v, %v", got, err)
	}

	eb, err := e.Encode()
	check(t, "event", eb, err, `{"eventType":"ARTIST_FOLLOWED","entityId":"user-123","forkId":"prod","tenantSchema":"platform1_concertapp_prod",`+
		`"irVersion":"v42","sequenceNumber":1891,"ts":1719331200000,"payload":{"user_id":"user-123","artist_id":"artist-456"},`+
		`"cursor":20000,"stream":"user_stream","intentId":"i-1","intentType":"FOLLOW_ARTIST","correlationId":"c<1>","causationId":"k&2"}`)
	if got, err := Parse(eb); err != nil || !reflect.DeepEqual(got, e) {
		t.Errorf("read back %+v, %v", got, err)
	}

	d := DeadLetter{
		OriginalEvent: pb, ProjectionName: "artist_followers", TenantSchema: e.TenantSchema, Error: `column "followed_at" does not exist`,
		StackTrace: "at …\nat …", RetryCount: 5, FailedAt: 1719331800000, ErrorClass: ClassData, FirstFailedAt: 1719331700000,
		SourceTopic: "causet.projection-events.v1", SourcePartition: 3, SourceOffset: 17, SourceKey: []byte("user-123"),
	}
	db, err := d.Encode()
	check(t, "dead letter", db, err, `{"originalEvent":`+string(pb)+`,"projectionName":"artist_followers","tenantSchema":"platform1_concertapp_prod",`+
		`"error":"column \"followed_at\" does not exist","stackTrace":"at …\nat …","retryCount":5,"failedAt":1719331800000,`+
		`"errorClass":"data","firstFailedAt":1719331700000,"sourceTopic":"causet.projection-events.v1","sourcePartition":3,"sourceOffset":17,"sourceKey":"dXNlci0xMjM="}`)
	if got, err := ParseDeadLetter(db); err != nil || !reflect.DeepEqual(got, d) {
		t.Errorf("read back %+v, %v", got, err)
	}
	raw, err := DeadLetter{Error: "not JSON", ErrorClass: ClassDecode, Raw: []byte{0xff, 0}}.Encode()
	check(t, "raw dead letter", raw, err, `{"originalEvent":null,"projectionName":"","tenantSchema":"","error":"not JSON","stackTrace":"","retryCount":0,"failedAt":0,`+
		`"errorClass":"decode","firstFailedAt":0,"sourceTopic":"","sourcePartition":0,"sourceOffset":0,"raw":"/wA="}`)

	patch := Patch{
		Projection: "artist_followers", TenantSchema: e.TenantSchema, ForkID: "prod", Stream: "user_stream", EntityID: "user-123", EventType: e.EventType,
		Key:        json.RawMessage(`{"artist_id":"artist-456"}`),
		Operations: []Operation{{OpReplace, "/followers", json.RawMessage("2")}, {OpAdd, "/last", json.RawMessage("null")}, {Op: OpRemove, Path: "/old"}},
		PrevCursor: 41, Cursor: 57, Epoch: 1, TS: e.TS,
	}
	xb, err := patch.Encode()
	check(t, "patch", xb, err, `{"projection":"artist_followers","tenantSchema":"platform1_concertapp_prod","forkId":"prod","stream":"user_stream",`+
		`"entityId":"user-123","eventType":"ARTIST_FOLLOWED","key":{"artist_id":"artist-456"},`+
		`"operations":[{"op":"replace","path":"/followers","value":2},{"op":"add","path":"/last","value":null},{"op":"remove","path":"/old"}],`+
		`"prevCursor":41,"cursor":57,"epoch":1,"ts":1719331200000}`)
	if got, err := ParsePatch(xb); err != nil || !reflect.DeepEqual(got, patch) {
		t.Errorf("read back %+v, %v", got, err)
	}
	rb, err := Patch{Projection: "p", TenantSchema: "t", ForkID: "f", Epoch: 2, Reset: true}.Encode()
	check(t, "reset", rb, err, `{"projection":"p","tenantSchema":"t","forkId":"f","stream":"","entityId":"","eventType":"","key":{},"operations":[],"prevCursor":0,"cursor":0,"epoch":2,"ts":0,"reset":true}`)
	if got, err := ParsePatch(rb); err != nil || !got.Reset {
		t.Errorf("read back %+v, %v", got, err)
	}
}

func check(t *testing.T, what string, got []byte, err error, want string) {
	t.Helper()
	if err != nil || string(got) != want {
		t.Errorf("%s (%v):\n have %s\n want %s", what, err, got, want)
	}
}

func TestHeaders(t *testing.T) {
	e := followed()
	want := Provenance{CorrelationID: "c<1>", CausationID: "k&2", IntentID: "i-1", Stream: "user_stream", Position: 20000}
	if got := ReadHeaders(e.Headers()); got != want {
		t.Errorf("have %+v, want %+v", got, want)
	}
	junk := []Header{{HeaderCursor, []byte("-1")}, {HeaderIntent, []byte{0xff}}, {HeaderStream, []byte(strings.Repeat("x", MaxID+1))}, {"traceparent", []byte("00")}}
	if got := ReadHeaders(junk); got != (Provenance{}) {
		t.Errorf("junk gives %+v", got)
	}
}

// Each refusal names the member and says what can be done about it by its kind.
func TestRefused(t *testing.T) {
	good := func(change string) string {
		e := followed()
		p := e.Projection()
		b, _ := p.Encode()
		from, to, _ := strings.Cut(change, "=>")
		s := strings.Replace(string(b), from, to, 1)
		if from != "" && s == string(b) {
			t.Fatalf("%q changes nothing", change)
		}
		return s
	}
	for _, c := range []struct {
		in, names string
		kind      lattice.Kind
		eventType string
	}{
		{"", "empty", lattice.Invalid, ""},
		{"{", "not JSON", lattice.Invalid, ""},
		{"null", "object", lattice.Invalid, ""},
		{"[]", "object", lattice.Invalid, ""},
		{good("") + "{}", "more follows", lattice.Invalid, ""},
		{"\xff{}", "UTF-8", lattice.Invalid, ""},
		{strings.Repeat("[", 1000), "deeper", lattice.TooLarge, ""},
		{`{"a":"` + strings.Repeat("x", MaxMessage) + `"}`, "limit", lattice.TooLarge, ""},
		{`{}`, "eventType", lattice.Invalid, ""},
		{`{"eventType":"QUERY_CACHE_DROPPED"}`, "entityId", lattice.Invalid, "QUERY_CACHE_DROPPED"},
		{good(`"eventType"=>"EventType"`), "eventType", lattice.Invalid, ""},
		{good(`"entityId"=>"eventType"`), "twice", lattice.Invalid, ""},
		{good(`"user-123"=>7`), "entityId is 7", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`"user-123"=>""`), "entityId", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`"user-123"=>"a\u0000b"`), "control", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`"user-123"=>"` + strings.Repeat("x", MaxID+1) + `"`), "entityId has", lattice.TooLarge, "ARTIST_FOLLOWED"},
		{good(`platform1_=>../`), "tenant schema", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`platform1_=>1`), "tenant schema", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`1891=>0`), "sequenceNumber is 0", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`1891=>1.5`), "sequenceNumber", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`1891=>"1891"`), "sequenceNumber", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`1891=>9223372036854775808`), "sequenceNumber", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`"payload":{"user_id"=>"payload":null,"x":{"user_id"`), "payload", lattice.Invalid, "ARTIST_FOLLOWED"},
		{good(`{"user_id"=>{"big":"` + strings.Repeat("x", MaxPayload) + `","user_id"`), "payload has", lattice.TooLarge, "ARTIST_FOLLOWED"},
	} {
		p, err := ParseProjection([]byte(c.in))
		if err == nil || !strings.Contains(err.Error(), c.names) || lattice.KindOf(err) != c.kind || p.EventType != c.eventType {
			t.Errorf("%.90q: %q, %v (%v); want an error of kind %q that says %q, and the type %q", c.in, p.EventType, err, lattice.KindOf(err), c.kind, c.names, c.eventType)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.90q: an error of %d bytes quotes too much", c.in, len(err.Error()))
		}
	}
	if _, err := ParseProjection([]byte(good(`"irVersion":"v42",=>"later":[1],`))); err != nil {
		t.Errorf("without an IR version and with a member of the future: %v", err)
	}
}

func TestPatchRefused(t *testing.T) {
	for in, names := range map[string]string{
		`{"projection":"p","tenantSchema":"t","forkId":"f","stream":"s","entityId":"e","eventType":"E","key":{},"operations":[],"prevCursor":7,"cursor":7,"epoch":1,"ts":0}`:                                               "does not follow",
		`{"projection":"p","tenantSchema":"t","forkId":"f","stream":"s","entityId":"e","eventType":"E","key":[],"operations":[],"prevCursor":6,"cursor":7,"epoch":1,"ts":0}`:                                               "key",
		`{"projection":"p","tenantSchema":"t","forkId":"f","stream":"s","entityId":"e","eventType":"E","key":{},"operations":[{"op":"move","path":"/a","value":1}],"prevCursor":6,"cursor":7,"epoch":1,"ts":0}`:            "op",
		`{"projection":"p","tenantSchema":"t","forkId":"f","stream":"s","entityId":"e","eventType":"E","key":{},"operations":[{"op":"add","path":"a","value":1}],"prevCursor":6,"cursor":7,"epoch":1,"ts":0}`:              "path",
		`{"projection":"p","tenantSchema":"t","forkId":"f","stream":"s","entityId":"e","eventType":"E","key":{},"operations":[{"op":"replace","path":"/a"}],"prevCursor":6,"cursor":7,"epoch":1,"ts":0}`:                   "value",
		`{"projection":"p","tenantSchema":"t","forkId":"f","stream":"s","entityId":"e","eventType":"E","key":{},"operations":[` + strings.Repeat("{},", MaxOperations) + `{}],"prevCursor":6,"cursor":7,"epoch":1,"ts":0}`: "limit",
	} {
		if _, err := ParsePatch([]byte(in)); err == nil || !strings.Contains(err.Error(), names) {
			t.Errorf("%.200s: %v, want one that says %q", in, err, names)
		}
	}
}

// A dead letter of another program has the page's seven fields only.
func TestDeadLetterOfThePage(t *testing.T) {
	d, err := ParseDeadLetter([]byte(`{"originalEvent":{"any":1},"projectionName":"artist_followers","tenantSchema":"platform1_concertapp_prod",
		"error":"column \"followed_at\" does not exist","stackTrace":"...","retryCount":5,"failedAt":1719331800000}`))
	if err != nil || d.RetryCount != 5 || d.FailedAt != 1719331800000 || string(d.OriginalEvent) != `{"any":1}` {
		t.Errorf("have %+v, %v", d, err)
	}
	long, err := DeadLetter{Error: strings.Repeat("é", MaxProse), StackTrace: strings.Repeat("x", MaxProse+1)}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if d, err = ParseDeadLetter(long); err != nil || len(d.Error) > MaxProse || len(d.StackTrace) != MaxProse {
		t.Errorf("a long one reads back with %d and %d bytes, %v", len(d.Error), len(d.StackTrace), err)
	}
}
