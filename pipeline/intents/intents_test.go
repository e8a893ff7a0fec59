package intents_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/testkit/transcript"
	"github.com/lattice-log/lattice/pipeline/event"
	"github.com/lattice-log/lattice/pipeline/intents"
	"github.com/lattice-log/lattice/pipeline/ledger"
	"github.com/lattice-log/lattice/pipeline/spec"
	"github.com/lattice-log/lattice/pipeline/sqldb/sqldbtest"
	pb "github.com/lattice-log/lattice/proto/lattice/app/v1"
	"github.com/lattice-log/lattice/proto/lattice/app/v1/appv1connect"
	pbv1 "github.com/lattice-log/lattice/proto/lattice/v1"
)

var rewrite = flag.Bool("rewrite", false, "write the transcripts as they come out")

func load(t testing.TB, dir string) *spec.App {
	t.Helper()
	app, err := spec.Load(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func opened(t testing.TB, url string, o ledger.Options) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), sqldbtest.Open(t, url), o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func service(t testing.TB, o intents.Options) *intents.Service {
	t.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return time.UnixMilli(1719331200000) }
	}
	s, err := intents.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestHTTP(t *testing.T) {
	transcript.Run(t, *rewrite, func(t *testing.T) func(string) string {
		app := load(t, "testdata/app")
		l := opened(t, sqldbtest.SQLite(t), ledger.Options{})
		handler := service(t, intents.Options{App: app, Ledger: l}).Handler()
		return func(command string) string {
			verb, rest, _ := strings.Cut(command, " ")
			switch verb {
			case "post":
				return post(handler, rest)
			case "ledger":
				events, err := l.Events(t.Context(), 0, 0)
				if err != nil {
					return err.Error() + "\n"
				}
				var out strings.Builder
				for _, e := range events {
					b, _ := e.Encode()
					fmt.Fprintln(&out, string(b))
				}
				return out.String()
			case "state":
				e, err := l.Entity(t.Context(), ledger.Address{TenantSchema: app.TenantSchema(""), ForkID: "main", Stream: "account_stream", EntityID: rest})
				return fmt.Sprintln(e.Sequence, string(e.State), err)
			}
			return "no such command\n"
		}
	})
}

func post(h http.Handler, body string) string {
	req := httptest.NewRequest("POST", "/v1/intents", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return fmt.Sprintf("%d %s", w.Code, w.Body)
}

// The page's own example.
func TestConcertApp(t *testing.T) {
	app := load(t, "../../examples/concertapp")
	l := opened(t, sqldbtest.SQLite(t), ledger.Options{})
	h := service(t, intents.Options{App: app, Ledger: l}).Handler()
	got := post(h, `{"intentId":"i1","intentType":"FOLLOW_ARTIST","entityId":"user-123","forkId":"prod","payload":{"user_id":"user-123","artist_id":"artist-456"}}`)
	if got != `200 {"accepted":true,"cursor":1,"events":[{"eventType":"ARTIST_FOLLOWED","sequenceNumber":1}]}`+"\n" {
		t.Errorf("have %s", got)
	}
	e, err := l.At(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	m := e.Projection()
	b, err := m.Encode()
	want := `{"eventType":"ARTIST_FOLLOWED","entityId":"user-123","forkId":"prod","tenantSchema":"platform1_concertapp_prod","irVersion":"v42",` +
		`"sequenceNumber":1,"ts":1719331200000,"payload":{"artist_id":"artist-456","user_id":"user-123"}}`
	if string(b) != want {
		t.Errorf("have %s, %v; want %s", b, err, want)
	}
}

func TestBoth(t *testing.T) {
	sqldbtest.Run(t, sqldbtest.Case{Name: "conserved", Run: testConserved}, sqldbtest.Case{Name: "once", Run: testOnce})
}

// Whatever many callers send to and fro at once, money is neither made nor lost,
// and nobody goes below nothing.
func testConserved(t *testing.T, url string) {
	app := load(t, "testdata/app")
	l := opened(t, url, ledger.Options{MaxBatch: 5})
	s := service(t, intents.Options{App: app, Ledger: l})
	const accounts, callers, each = 4, 12, 15
	for a := range accounts {
		submit(t, s, fmt.Sprint("open", a), "OPEN", fmt.Sprintf(`{"account_id":"a%d"}`, a))
	}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for n := range each {
				submit(t, s, fmt.Sprint("s", c, "-", n), "SEND", fmt.Sprintf(`{"from":"a%d","to":"a%d","amount":%d}`, (c+n)%accounts, (c+n*n+1)%accounts, 10+7*n))
			}
		})
	}
	all.Wait()
	events, err := l.Events(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]int64{}
	numbers := map[string]int64{}
	for _, e := range events {
		var p struct{ Amount int64 }
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			t.Fatal(err)
		}
		if numbers[e.EntityID]++; e.SequenceNumber != numbers[e.EntityID] {
			t.Fatalf("%s has number %d, want %d", e.EntityID, e.SequenceNumber, numbers[e.EntityID])
		}
		switch e.EventType {
		case "OPENED":
			left[e.EntityID] = 100
		case "SENT":
			if left[e.EntityID] -= p.Amount; left[e.EntityID] < 0 {
				t.Fatalf("%s has %d left at position %d", e.EntityID, left[e.EntityID], e.Position)
			}
		}
	}
	st := s.Stats()
	if st.Accepted+st.Rejected != accounts+callers*each || st.Rejected == 0 || st.Accepted <= accounts || st.Failed+st.Refused+st.Repeated != 0 {
		t.Errorf("have %+v", st)
	}
	for id, n := range left {
		e, err := l.Entity(t.Context(), ledger.Address{TenantSchema: app.TenantSchema(""), ForkID: "main", Stream: "account_stream", EntityID: id})
		if err != nil || !strings.Contains(string(e.State), fmt.Sprintf(`"balance":%d,`, n)) {
			t.Errorf("%s: %s, %v; want a balance of %d", id, e.State, err, n)
		}
	}
}

// An intent that several send at once, with one id, happens once.
func testOnce(t *testing.T, url string) {
	app := load(t, "testdata/app")
	var services []*intents.Service
	for range 2 { // two processes
		services = append(services, service(t, intents.Options{App: app, Ledger: opened(t, url, ledger.Options{})}))
	}
	var all sync.WaitGroup
	answers := make([]ledger.Answer, 20)
	for i := range answers {
		all.Go(func() { answers[i] = submit(t, services[i%2], "i1", "OPEN", `{"account_id":"ann"}`) })
	}
	all.Wait()
	first := 0
	for _, a := range answers {
		if !a.Repeated {
			first++
		}
		if a.Cursor != 1 || len(a.Events) != 1 || a.Events[0].SequenceNumber != 1 {
			t.Errorf("have %+v", a)
		}
	}
	if first != 1 {
		t.Errorf("%d were told that they were first", first)
	}
}

func submit(t testing.TB, s *intents.Service, id, typ, payload string) ledger.Answer {
	t.Helper()
	a, err := s.Submit(t.Context(), intents.Request{IntentID: id, IntentType: typ, Payload: json.RawMessage(payload)})
	if err != nil {
		t.Errorf("submit %s: %v", id, err)
	}
	return a
}

func TestAuthorize(t *testing.T) {
	asked := ""
	h := service(t, intents.Options{
		App: load(t, "testdata/app"), Ledger: opened(t, sqldbtest.SQLite(t), ledger.Options{}), Forks: []string{"main", "dev"},
		Authorize: func(_ context.Context, r intents.Request) error {
			asked = r.ForkID + "/" + r.StreamID + ":" + r.EntityID
			if r.ForkID == "dev" {
				return nil
			}
			return lattice.E(lattice.Denied, errors.New("not yours"))
		},
	}).Handler()
	if got := post(h, `{"intentId":"i","intentType":"OPEN","payload":{"account_id":"ann"}}`); !strings.HasPrefix(got, "403 ") || asked != "main/account_stream:ann" {
		t.Errorf("asked for %s; %s", asked, got)
	}
	if got := post(h, `{"intentId":"i","intentType":"OPEN","forkId":"dev","payload":{"account_id":"ann"}}`); !strings.HasPrefix(got, "200 ") {
		t.Errorf("in a fork that is allowed: %s", got)
	}
}

func TestHTTPRefusals(t *testing.T) {
	h := service(t, intents.Options{App: load(t, "testdata/app"), Ledger: opened(t, sqldbtest.SQLite(t), ledger.Options{})}).Handler()
	for _, c := range []struct {
		method, contentType string
		body                string
		header              [2]string
		want                int
	}{
		{"GET", "application/json", "", [2]string{}, 405},
		{"POST", "text/plain", "{}", [2]string{}, 415},
		{"POST", "", "{}", [2]string{}, 415},
		{"POST", "application/json", `{"payload":"` + strings.Repeat("x", event.MaxPayload+64<<10) + `"}`, [2]string{}, 413},
		{"POST", "application/json", `{"intentId":"x","intentType":"OPEN","payload":` + strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1000) + "}", [2]string{}, 413},
		{"POST", "application/json", "{}", [2]string{"Sec-Fetch-Site", "cross-site"}, 403},
	} {
		req := httptest.NewRequest(c.method, "/v1/intents", strings.NewReader(c.body))
		req.Header.Set("Content-Type", c.contentType)
		if c.header[0] != "" {
			req.Header.Set(c.header[0], c.header[1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if w.Code != c.want {
			t.Errorf("%s %s %.40s: %d %s, want %d", c.method, c.contentType, c.body, w.Code, w.Body, c.want)
		}
	}
}

// gRPC, and Connect's own protocol, give what HTTP gives.
func TestGRPC(t *testing.T) {
	l := opened(t, sqldbtest.SQLite(t), ledger.Options{})
	s := service(t, intents.Options{App: load(t, "testdata/app"), Ledger: l})
	server := httptest.NewUnstartedServer(s.Handler())
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for i, opts := range [][]connect.ClientOption{{connect.WithGRPC()}, {connect.WithGRPCWeb()}, nil} {
		client := appv1connect.NewIntentServiceClient(server.Client(), server.URL, opts...)
		id := fmt.Sprint("acc", i)
		req := &pb.IntentServiceSubmitRequest{IntentId: "open" + id, IntentType: "OPEN", Payload: fmt.Appendf(nil, `{"account_id":%q}`, id), CorrelationId: "c"}
		for n := range 2 {
			res, err := client.Submit(t.Context(), req)
			if err != nil || !res.Accepted || res.Repeated != (n == 1) || len(res.Events) != 1 || res.Events[0].EventType != "OPENED" ||
				res.Events[0].SequenceNumber != 1 || res.Events[0].EntityId != id || res.Events[0].Stream != "account_stream" {
				t.Errorf("have %v, %v", res, err)
			}
		}
		seven := int64(7)
		res, err := client.Submit(t.Context(), &pb.IntentServiceSubmitRequest{IntentId: "x", IntentType: "SHUT", Payload: req.Payload, ExpectedSequence: &seven})
		if err != nil || res.Accepted || res.RejectionCode != ledger.CodeSequence {
			t.Errorf("have %v, %v", res, err)
		}
		_, err = client.Submit(t.Context(), &pb.IntentServiceSubmitRequest{IntentId: "x", IntentType: "SHUTT", Payload: req.Payload})
		var ce *connect.Error
		if !errors.As(err, &ce) || ce.Code() != connect.CodeNotFound || !strings.Contains(ce.Message(), "SHUT") {
			t.Fatalf("have %v", err)
		}
		detail, err := ce.Details()[0].Value()
		if f, ok := detail.(*pbv1.Failure); err != nil || !ok || f.Kind != pbv1.Kind_KIND_NOT_FOUND {
			t.Errorf("have %v, %v", detail, err)
		}
	}
}

// Every kind has a status and a Connect code of its own choice.
func TestKinds(t *testing.T) {
	for _, k := range lattice.Kinds() {
		err := lattice.E(k, errors.New("x"))
		status, kind, code := intents.Mapped(err)
		if (status == 500) != (k == lattice.Internal || k == lattice.Corrupt) || (kind == pbv1.Kind_KIND_INTERNAL) != (k == lattice.Internal) || code == 0 {
			t.Errorf("%v is %d, %v, %v", k, status, kind, code)
		}
	}
}
