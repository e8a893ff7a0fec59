package node

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// What a program serves beside the node is on the node's HTTP address, never takes the
// node's own paths, and shares its metrics and readiness. The node's tokens stay the node's.
func TestBeside(t *testing.T) {
	cfg := local(t)
	cfg.HTTP.TokenFile = filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(cfg.HTTP.TokenFile, []byte("a-token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "beside_total", Help: "x"}, func() float64 { return 7 }))
	var busy atomic.Bool
	busy.Store(true)
	n, _ := runNodeWith(t, cfg, Options{
		Beside:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "beside "+r.URL.Path) }),
		Metrics: metrics,
		Reasons: func() []string {
			if busy.Load() {
				return []string{"the other one is busy"}
			}
			return nil
		},
	})
	ask := func(path, token string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.Info().HTTP+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", token)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	for path, want := range map[string]string{"/": "beside /", "/ws": "beside /ws", "/lattice.app.v1.X/Y": "beside /lattice.app.v1.X/Y"} {
		if code, have := ask(path, ""); code != 200 || have != want {
			t.Errorf("%s: %d %q", path, code, have)
		}
	}
	for _, path := range []string{"/metrics", "/lattice.v1.NodeService/Status"} {
		if code, have := ask(path, ""); code != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d %q", path, code, have)
		}
	}
	if code, have := ask("/metrics", "Bearer a-token"); code != 200 || !strings.Contains(have, "beside_total 7") || !strings.Contains(have, "lattice_") {
		t.Errorf("/metrics: %d %q", code, have)
	}
	if code, have := ask("/readyz", ""); code != http.StatusServiceUnavailable || !strings.Contains(have, "the other one is busy") {
		t.Errorf("/readyz: %d %q", code, have)
	}
	busy.Store(false)
	if code, have := ask("/readyz", ""); code != 200 {
		t.Errorf("/readyz: %d %q", code, have)
	}
}
