package app

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lattice-log/lattice/client/live"
)

// events is a client of server-sent events with nothing of ours but the view: it comes
// back with the last id, as a browser does.
type events struct {
	url string

	mu   sync.Mutex
	view live.View
	id   string
}

func (e *events) run(ctx context.Context) {
	for ctx.Err() == nil {
		_ = e.once(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (e *events) once(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url, nil)
	if err != nil {
		return err
	}
	e.mu.Lock()
	e.view.Stale()
	if e.view.Cursor() != "" { // in the middle of a snapshot there is none
		req.Header.Set("Last-Event-ID", e.id)
	}
	e.mu.Unlock()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	for id := ""; lines.Scan(); {
		line := lines.Text()
		if v, ok := strings.CutPrefix(line, "id: "); ok {
			id = v
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var f live.Frame
		if err := json.Unmarshal([]byte(data), &f); err != nil {
			return err
		}
		e.mu.Lock()
		_, err := e.view.Apply(&f)
		if err != nil { // begin anew: the rows are read again
			e.view, e.id = live.View{}, ""
		} else if id != "" {
			e.id = id
		}
		e.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// read calls f with the view, which no one else uses meanwhile.
func (e *events) read(f func(v *live.View)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.view)
}
