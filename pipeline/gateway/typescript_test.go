package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The client for TypeScript runs its tests against this gateway, through a proxy that it has
// cut.
func TestTypeScriptClient(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not there: make deps")
	}
	tests, err := filepath.Glob("../../client/ts/test/*.mjs")
	if err != nil || len(tests) == 0 {
		t.Fatal("no tests", err)
	}
	for _, f := range append(tests, "../../client/ts/live.js") { // so that go test's cache knows them
		if _, err := os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	kafka := brokers(t)
	p := newProjector(t, kafka)
	_, server := start(t, kafka, p, nil)
	proxy := newCutter(t, strings.TrimPrefix(server.URL, "http://"))
	n := 0
	mux := http.NewServeMux()
	mux.HandleFunc("POST /write", func(w http.ResponseWriter, _ *http.Request) {
		for range 50 {
			n++
			p.set("artist_followers", fmt.Sprintf("u%d", n%7), map[string]string{"artist_id": fmt.Sprintf("a%d", n%5)}, "followers", n)
		}
		fmt.Fprint(w, "{}")
	})
	mux.HandleFunc("POST /cut", func(w http.ResponseWriter, _ *http.Request) {
		proxy.cut("")
		fmt.Fprint(w, "{}")
	})
	mux.HandleFunc("POST /rows", func(w http.ResponseWriter, _ *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		rows := []json.RawMessage{}
		for _, r := range p.rows["artist_followers"] {
			rows = append(rows, r.Row)
		}
		_ = json.NewEncoder(w).Encode(rows)
	})
	tester := httptest.NewServer(mux)
	t.Cleanup(tester.Close)
	// Node.js has WebSocket without being asked from 22 on.
	cmd := exec.CommandContext(t.Context(), node, append([]string{"--experimental-websocket", "--test"}, tests...)...)
	cmd.Env = append(os.Environ(), "LATTICE_GATEWAY=ws://"+proxy.Addr().String()+"/ws", "LATTICE_TESTER="+tester.URL)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The JavaScript that is served is what the TypeScript gives; where its compiler is installed, that is checked.
func TestTypeScriptBuild(t *testing.T) {
	const dir = "../../client/ts/"
	tsc := filepath.Join(dir, "node_modules", ".bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		t.Skip("tsc is not there: npm ci in client/ts")
	}
	out := t.TempDir()
	if b, err := exec.CommandContext(t.Context(), tsc, "-p", dir, "--outDir", out).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	for _, name := range []string{"live.js", "live.d.ts"} {
		have, err := os.ReadFile(dir + name)
		want, err2 := os.ReadFile(filepath.Join(out, name))
		if err != nil || err2 != nil || string(have) != string(want) {
			t.Errorf("%s is not what live.ts gives (%v, %v): npm run build in client/ts", name, err, err2)
		}
	}
}
