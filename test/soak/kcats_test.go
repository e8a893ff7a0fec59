package soak

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// kcats are runs of kcat, one after the other: librdkafka's idempotent producer
// through whatever happens to the node.
type kcats struct {
	done atomic.Int64 // runs that ended well

	mu    sync.Mutex
	acked map[string]int // by run that ended well: its lines
	tried map[string]bool
}

const kcatLines = 200

func (k *kcats) run(s *soak, rng *rand.Rand) {
	k.acked, k.tried = map[string]int{}, map[string]bool{}
	for i := 0; s.sleep(time.Duration(500+rng.IntN(9500)) * time.Millisecond); i++ {
		name := fmt.Sprintf("kcat-%d", i)
		k.mu.Lock()
		k.tried[name] = true
		k.mu.Unlock()
		var lines bytes.Buffer
		for n := range kcatLines {
			fmt.Fprintf(&lines, "%s %d\n", name, n)
		}
		// A run that an end of the soak cuts off is one whose outcome is not known.
		ctx, cancel := context.WithTimeout(s.ctx, patience)
		cmd := exec.CommandContext(ctx, "kcat", "-P", "-b", s.at, "-t", s.byKcat.name, "-p", fmt.Sprint(i%2), "-z", "lz4",
			"-X", "enable.idempotence=true", "-X", "acks=all", "-X", "retry.backoff.ms=50", "-X", "reconnect.backoff.max.ms=500")
		cmd.Stdin = &lines
		out, err := cmd.CombinedOutput()
		cancel()
		switch {
		case s.ctx.Err() != nil:
			return
		case err != nil && strings.Contains(err.Error(), "executable file not found"):
			s.wrong("kcat is missing: \"make deps\" brings it")
		case err != nil && bytes.Contains(out, []byte("All broker connections are down")):
			// What kcat does when the only broker is away: it ends, and does not know.
		case err != nil:
			s.wrong("kcat: %v\n%s", err, out)
		default:
			k.mu.Lock()
			k.done.Add(1)
			k.acked[name] = kcatLines
			k.mu.Unlock()
			s.records.Add(kcatLines)
		}
	}
}

// check reads what kcat wrote with kcat: each acknowledged line is there once. The
// order of each run's lines is checked by audits.
func (k *kcats) check(s *soak) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "kcat", "-C", "-q", "-e", "-b", s.at, "-t", s.byKcat.name, "-o", "beginning").Output()
	if err != nil {
		s.wrong("kcat -C: %v", err)
		return
	}
	seen := map[string]map[string]bool{}
	for line := range strings.Lines(string(out)) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), " ")
		if seen[name] == nil {
			seen[name] = map[string]bool{}
		}
		if !k.tried[name] || seen[name][n] {
			s.wrong("%s: the line %q is there twice or nobody wrote it", s.byKcat.name, line)
		}
		seen[name][n] = true
	}
	for name, lines := range k.acked {
		if len(seen[name]) != lines {
			s.wrong("%s: %d lines of %s are there, and %d were acknowledged", s.byKcat.name, len(seen[name]), name, lines)
		}
	}
}
