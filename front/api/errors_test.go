package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
	pbconnect "github.com/lattice-log/lattice/proto/lattice/v1/latticev1connect"
)

func TestEveryKindIsMapped(t *testing.T) {
	seen := map[pb.Kind]lattice.Kind{}
	for _, k := range lattice.Kinds() {
		w, ok := wireOf(k)
		if !ok || w.kind == pb.Kind_KIND_UNSPECIFIED || w.code == 0 {
			t.Errorf("kind %q is not mapped: %+v", k, w)
		}
		if other, twice := seen[w.kind]; twice {
			t.Errorf("%q and %q both travel as %v", k, other, w.kind)
		}
		seen[w.kind] = k
	}
	if len(seen) != len(pb.Kind_name)-1 {
		t.Errorf("%d kinds travel, the protocol has %d", len(seen), len(pb.Kind_name)-1)
	}
}

// raising answers List with an error.
type raising struct {
	pbconnect.UnimplementedTopicServiceHandler
	err error
}

func (r raising) List(context.Context, *pb.TopicServiceListRequest) (*pb.TopicServiceListResponse, error) {
	if r.err == nil {
		panic("on purpose")
	}
	return nil, r.err
}

// list serves one failing call to a client and returns what the client sees.
func list(t *testing.T, raised error) error {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	a := &api{cfg: Config{Logger: logger}}
	_, h := pbconnect.NewTopicServiceHandler(raising{err: raised}, connect.WithInterceptors(failures{logger}), connect.WithRecover(a.recovered))
	srv := httptest.NewServer(h)
	defer srv.Close()
	c, err := client.Dial(client.Options{URL: srv.URL, HTTP1: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Topics(t.Context())
	return err
}

// A kind survives the way to the client, through wrapping on both sides, with its hint.
func TestKindsTravel(t *testing.T) {
	for _, k := range lattice.Kinds() {
		err := list(t, fmt.Errorf("list: %w", lattice.E(k, errors.New("reason"))))
		if got := lattice.KindOf(err); got != k || err == nil || err.Error() != "list: reason" {
			t.Errorf("%q arrives as %q: %v", k, got, err)
		}
		if w, _ := wireOf(k); client.Hint(err) != w.hint {
			t.Errorf("%q arrives with the hint %q", k, client.Hint(err))
		}
	}
	err := list(t, lattice.E(lattice.NotFound, hinted(errors.New("no such thing"), "make it")))
	if client.Hint(err) != "make it" || err.Error() != "no such thing" {
		t.Errorf("hint %q of %v", client.Hint(err), err)
	}
}

func TestPanicIsOneCallsAffair(t *testing.T) {
	if err := list(t, nil); lattice.KindOf(err) != lattice.Internal || err == nil {
		t.Errorf("a panic arrives as %v", err)
	}
}

func TestContextErrorsKeepTheirCodes(t *testing.T) {
	for err, code := range map[error]connect.Code{
		context.Canceled: connect.CodeCanceled, context.DeadlineExceeded: connect.CodeDeadlineExceeded,
	} {
		if got := failure(fmt.Errorf("wait: %w", err)).Code(); got != code {
			t.Errorf("%v has code %v", err, got)
		}
	}
}

func TestHealthy(t *testing.T) {
	w := httptest.NewRecorder()
	healthy(w, httptest.NewRequest("GET", "/healthz", nil))
	if w.Code != http.StatusOK || w.Body.String() != "{\"status\":\"ok\"}\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestReady(t *testing.T) {
	reasons := []string{"kafka: not listening"}
	a := &api{cfg: Config{Ready: func() []string { return reasons }}}
	w := httptest.NewRecorder()
	a.ready(w, httptest.NewRequest("GET", "/readyz", nil))
	if w.Code != http.StatusServiceUnavailable || w.Body.String() != "{\"ready\":false,\"reasons\":[\"kafka: not listening\"]}\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	reasons = nil
	w = httptest.NewRecorder()
	a.ready(w, httptest.NewRequest("GET", "/readyz", nil))
	if w.Code != http.StatusOK || w.Body.String() != "{\"ready\":true,\"reasons\":[]}\n" {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// The page's table says what the code does.
func TestKindsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/protocol/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range lattice.Kinds() {
		w, _ := wireOf(k)
		name := strings.TrimPrefix(w.kind.String(), "KIND_")
		row := regexp.MustCompile(`(?m)^\| [A-Z_, ]*\b` + name + `\b[^|]*\|[^|]*\b` + w.code.String() + `\b`)
		if !row.Match(page) {
			t.Errorf("no row for %s with %s", name, w.code)
		}
	}
}
