package soak

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"strings"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// up starts the node. Retention looks often, so that it has work in short runs too,
// and few closed files stay open, so that their number shows a leak.
func (s *soak) up() *realnode.Node {
	n := realnode.Start(s.t, s.bin, s.dir, "--kafka", s.at, "--log-level", "warn", "--set", "log.retention_check_ms=1000", "--set", "limits.open_segments=32")
	s.sampler.watch(n)
	return n
}

// live runs the node through its lives, then ends the clients, checks everything and
// prints the figures.
func (s *soak) live(node *realnode.Node) {
	rng := rand.New(rand.NewPCG(s.plan.seed, 1000))
	third := s.plan.length / 3
	node = s.briefly(node, rng, third)
	s.long(2*third - time.Since(s.begun))
	node = s.briefly(node, rng, s.plan.length)
	s.finish(node)
}

// briefly kills the node again and again until the run is old enough; and a run's last
// lives go on until there was something of everything, on a slow machine too.
func (s *soak) briefly(node *realnode.Node, rng *rand.Rand, until time.Duration) *realnode.Node {
	lo, hi := s.plan.brief[0], s.plan.brief[1]
	last := until == s.plan.length
	for s.ctx.Err() == nil {
		if age := time.Since(s.begun); age > until && (!last || age > until+patience || len(s.lacks()) == 0) {
			break
		}
		life := lo + time.Duration(rng.Int64N(int64(hi-lo)))
		switch {
		case rng.IntN(5) == 0: // killed while it and its clients are still coming back
			life = time.Duration(rng.Int64N(int64(time.Second)))
		default:
			s.audit(false)
		}
		if !s.sleep(life) {
			break
		}
		if rng.IntN(10) == 0 {
			node.Stop(s.t)
			s.stops++
		} else {
			node.Kill()
			s.kills++
		}
		if s.kills%10 == 9 {
			s.verify()
		}
		s.progress()
		s.sleep(time.Duration(rng.Int64N(int64(lo))))
		node = s.up()
	}
	return node
}

// long leaves the node alone for d.
func (s *soak) long(d time.Duration) {
	for end := time.Now().Add(d); s.ctx.Err() == nil && time.Now().Before(end); {
		s.audit(false)
		s.progress()
		s.sleep(min(time.Minute, time.Until(end)))
	}
}

func (s *soak) progress() {
	now := s.sampler.last()
	s.t.Logf("%s: %d records, %d commits, %d transactions, %d rebalances, %d kills, %d stops; rss %d MiB, heap %.1f MiB, %d handles, %d goroutines",
		time.Since(s.begun).Round(time.Second), s.records.Load(), s.commits.Load(), s.txns.committed.Load(), s.rebalances.Load(), s.kills, s.stops,
		now.of[rss]>>20, float64(now.of[heap])/(1<<20), now.of[handles], now.of[goroutines])
}

// finish ends the clients in an order in which everything that was begun can end, and
// holds the node to all that it ever acknowledged, once before a restart and once
// after it.
func (s *soak) finish(node *realnode.Node) {
	s.end()
	s.clients.Wait()
	for _, w := range s.writers {
		w.flush(s)
	}
	s.keys.writer.flush(s)
	if s.t.Failed() {
		return
	}
	s.drain()
	s.audit(true)
	node.Kill()
	s.kills++
	s.verify()
	node = s.up()
	s.audit(true)
	s.txns.check(s)
	s.kcats.check(s)
	node.Stop(s.t)
	s.stops++
	s.verify()
	trends := s.sampler.trends(s.plan)
	for _, t := range trends {
		if !t.flat() {
			s.t.Errorf("not flat: %s", t)
		}
	}
	s.t.Log(s.figures(trends))
	if l := s.lacks(); len(l) > 0 {
		s.t.Errorf("there was not one %s: the run tested nothing of it", strings.Join(l, ", "))
	}
}

// lacks names what has not happened yet, and so was not tested.
func (s *soak) lacks() []string {
	var lacking []string
	for what, n := range map[string]int64{
		"record": s.records.Load(), "commit": s.commits.Load(), "transaction": s.txns.committed.Load(), "aborted transaction": s.aborts.Load(),
		"rebalance": s.rebalances.Load(), "topic": s.churn.made.Load(), "deleted topic": s.churn.deleted.Load(), "kcat run": s.kcats.done.Load(),
		"trim": s.trims.done.Load(), "kill": int64(s.kills), "expired record": s.retained.passed(), "compacted record": s.keys.gone,
	} {
		if n == 0 {
			lacking = append(lacking, what)
		}
	}
	return lacking
}

// verify checks the directory while no node runs on it.
func (s *soak) verify() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, s.bin, "verify", "--data", s.dir, "-o", "json").Output()
	var v struct{ Valid bool }
	if jerr := json.Unmarshal(out, &v); jerr != nil || err != nil || !v.Valid {
		s.wrong("the data directory does not verify: %v %v %s", err, jerr, out)
	}
}
