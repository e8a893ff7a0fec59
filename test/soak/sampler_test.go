package soak

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// What a sample measures.
const (
	rss        = iota // resident memory, bytes
	heap              // live heap after the last collection, bytes
	handles           // open file descriptors
	goroutines        // as the node counts them
	kinds
)

var kindNames = [kinds]string{"rss", "heap", "handles", "goroutines"}

// sample is what the node used at one moment.
type sample struct {
	life int
	age  time.Duration // of the process
	at   time.Duration // of the run
	of   [kinds]int64
}

// sampler measures the node each second.
type sampler struct {
	mu      sync.Mutex
	node    *realnode.Node
	since   time.Time
	life    int
	samples []sample
}

// watch begins a life.
func (x *sampler) watch(n *realnode.Node) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.node, x.since = n, time.Now()
	x.life++
}

func (x *sampler) run(ctx context.Context, begun time.Time) {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		x.mu.Lock()
		n, s := x.node, sample{life: x.life, age: time.Since(x.since), at: time.Since(begun)}
		x.mu.Unlock()
		if measure(ctx, n, &s) != nil { // it was just killed
			continue
		}
		x.mu.Lock()
		x.samples = append(x.samples, s)
		x.mu.Unlock()
	}
}

func measure(ctx context.Context, n *realnode.Node, s *sample) error {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.PID))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(status)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			s.of[rss] = kib << 10
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.PID))
	if err != nil {
		return err
	}
	s.of[handles] = int64(len(fds))
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.HTTP+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var next float64
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var v float64
		if _, err := fmt.Sscanf(lines.Text(), "go_goroutines %g", &v); err == nil {
			s.of[goroutines] = int64(v)
		}
		if _, err := fmt.Sscanf(lines.Text(), "go_memstats_next_gc_bytes %g", &v); err == nil {
			next = v
		}
	}
	if s.of[goroutines] == 0 || next == 0 || s.of[rss] == 0 {
		return fmt.Errorf("the node does not say how many goroutines it has, or how much memory: %+v", s)
	}
	s.of[heap] = int64(next) / 2 // the collector starts again when the heap has doubled
	return nil
}

func (x *sampler) last() sample {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.samples) == 0 {
		return sample{}
	}
	return x.samples[len(x.samples)-1]
}

func (x *sampler) most(kind int) int64 {
	var m int64
	for _, s := range x.samples {
		m = max(m, s.of[kind])
	}
	return m
}
