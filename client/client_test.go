package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
	pbconnect "github.com/lattice-log/lattice/proto/lattice/v1/latticev1connect"
)

func TestDialWithoutNode(t *testing.T) {
	dir := t.TempDir()
	_, err := client.Dial(client.Options{DataDir: dir})
	if lattice.KindOf(err) != lattice.Unavailable || client.Hint(err) != "start one: lattice up --data "+dir {
		t.Errorf("no node.json: %v, hint %q", err, client.Hint(err))
	}

	// A node that was killed leaves its file and its socket behind.
	info, err := json.Marshal(client.NodeInfo{Node: "aa", Socket: "api.sock", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "node.json"), info, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Options{DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Topics(t.Context())
	if lattice.KindOf(err) != lattice.Unavailable || !strings.Contains(client.Hint(err), "lattice up --data "+dir) {
		t.Errorf("stale node.json: %v, hint %q", err, client.Hint(err))
	}
}

func TestDialFindsTheNode(t *testing.T) {
	dir := t.TempDir()
	serve(t, newFake(3), filepath.Join(dir, "api.sock"))
	info, err := json.Marshal(client.NodeInfo{Socket: filepath.Join(dir, "api.sock"), PID: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "node.json"), info, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, http1 := range []bool{false, true} {
		c, err := client.Dial(client.Options{DataDir: dir, HTTP1: http1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		d, err := c.Topic(t.Context(), "events")
		if err != nil || d.Partitions != 3 {
			t.Errorf("describe: %+v, %v", d, err)
		}
	}
}

func TestDialRefuses(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "node")
	if err := os.MkdirAll(bad, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bad, "node.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		o    client.Options
		kind lattice.Kind
	}{
		{client.Options{}, lattice.Invalid},
		{client.Options{DataDir: "x", URL: "http://y"}, lattice.Invalid},
		{client.Options{URL: "127.0.0.1:80"}, lattice.Invalid},
		{client.Options{URL: "ftp://127.0.0.1"}, lattice.Invalid},
		{client.Options{DataDir: bad}, lattice.Corrupt},
	} {
		if _, err := client.Dial(tc.o); lattice.KindOf(err) != tc.kind || err == nil {
			t.Errorf("%+v: %v, want kind %v", tc.o, err, tc.kind)
		}
	}
	c, err := client.Dial(client.Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Topics(t.Context()); lattice.KindOf(err) != lattice.Unavailable || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("nobody there: %v", err)
	}
}

// failing answers every List with one error.
type failing struct {
	pbconnect.UnimplementedTopicServiceHandler
	err error
}

func (f failing) List(context.Context, *pb.TopicServiceListRequest) (*pb.TopicServiceListResponse, error) {
	return nil, f.err
}

// Each kind of the wire arrives as one of ours, no two as the same.
func TestKindsArrive(t *testing.T) {
	seen := map[lattice.Kind]pb.Kind{}
	for n := range pb.Kind_name {
		kind := pb.Kind(n)
		if kind == pb.Kind_KIND_UNSPECIFIED {
			continue
		}
		c := dialWith(t, failing{err: refusal(connect.CodeUnknown, kind, "message", "hint")})
		_, err := c.Topics(t.Context())
		got := lattice.KindOf(err)
		if other, taken := seen[got]; taken {
			t.Errorf("%v and %v both arrive as %v", kind, other, got)
		}
		seen[got] = kind
		var e *client.Error
		if !errors.As(err, &e) || e.Message != "message" || e.Hint != "hint" {
			t.Errorf("%v arrives as %v", kind, err)
		}
	}
	for _, k := range lattice.Kinds() {
		if _, ok := seen[k]; !ok {
			t.Errorf("no kind of the wire arrives as %v", k)
		}
	}
}

// An error without our detail, as a proxy sends, still gets a kind.
func TestKindsWithoutDetail(t *testing.T) {
	for code := connect.CodeCanceled; code <= connect.CodeUnauthenticated; code++ {
		c := dialWith(t, failing{err: connect.NewError(code, errors.New("no"))})
		_, err := c.Topics(t.Context())
		internal := code == connect.CodeInternal || code == connect.CodeUnknown
		if err == nil || (lattice.KindOf(err) == lattice.Internal) != internal {
			t.Errorf("%v arrives with kind %v: %v", code, lattice.KindOf(err), err)
		}
	}
}

func TestCancelledCall(t *testing.T) {
	c := dial(t, newFake(1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Topic(ctx, "events"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
