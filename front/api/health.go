package api

import (
	"encoding/json"
	"net/http"
)

// healthy answers as long as the process does.
func healthy(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]string{"status": "ok"})
}

// ready tells whether work can be sent here, and if not, why.
func (a *api) ready(w http.ResponseWriter, _ *http.Request) {
	reasons := a.reasons()
	status := http.StatusOK
	if len(reasons) > 0 {
		status = http.StatusServiceUnavailable
	}
	answer(w, status, map[string]any{"ready": len(reasons) == 0, "reasons": reasons})
}

func (a *api) reasons() []string {
	return append([]string{}, a.cfg.Ready()...)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	// An answer that nobody waits for any more is lost, and may be.
	_ = json.NewEncoder(w).Encode(v)
}
