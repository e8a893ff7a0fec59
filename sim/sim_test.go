package sim

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lattice-log/lattice/core/roster"
)

var (
	seedsFlag = flag.Uint64("sim.seeds", 0, "run this many seeds, from sim.from on")
	fromFlag  = flag.Uint64("sim.from", 0, "the first seed of sim.seeds")
	seedFlag  = flag.Int64("sim.seed", -1, "run one seed and print its transcript")
)

// result is what came of a run.
type result struct {
	failure *failure
	trace   string
	seen    map[string]int
}

// run runs a seed, in a bubble of its own.
func run(t *testing.T, seed uint64) (out result) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(seed)
		defer func() {
			r := recover()
			for _, n := range w.all {
				n.mem.SetFault(nil)
				n.halt(false)
			}
			f, ok := r.(failure)
			switch {
			case ok:
				out.failure = &f
			case r != nil:
				fmt.Fprintf(os.Stderr, "seed %d\n%s", seed, tail(w.trace.String(), 40))
				panic(r)
			}
			out.trace, out.seen = w.trace.String(), w.seen
		}()
		w.live()
		w.finish()
	})
	return out
}

// tail returns the last lines of a transcript.
func tail(s string, lines int) string {
	all := strings.SplitAfter(s, "\n")
	return strings.Join(all[max(0, len(all)-lines-1):], "")
}

// live has things happen, as the seed has it.
func (w *world) live() {
	w.all[0].found()
	w.quiet()
	for _, n := range w.all[1:] {
		if w.rng.IntN(3) > 0 {
			w.admit(n)
		}
	}
	for range w.profile.steps {
		w.step()
	}
}

// admit has somebody who may admit a node.
func (w *world) admit(n *node) {
	by := w.all[0]
	role := roster.Writer
	if w.rng.IntN(4) == 0 && !n.lies {
		role = roster.Admin
	}
	if by.up() && !n.joined && !n.removed {
		by.invite(n, role)
	}
}

// step is one thing that happens.
func (w *world) step() {
	n, ok := w.pick(nil)
	if !ok {
		n = w.all[0]
		n.start()
		return
	}
	if n.powerless() {
		return
	}
	w.poll()
	p := w.all[w.rng.IntN(len(w.all))]
	switch k := w.rng.IntN(100); {
	case k < 37 && !n.knows():
	case k < 12:
		n.put()
	case k < 15:
		n.hit()
	case k < 18:
		n.newTopic()
	case k < 30:
		n.produce()
	case k < 33:
		n.fetch()
	case k < 35 && w.truncates:
		n.truncate()
	case k < 37:
		n.retry()
	case k < 40 && w.several:
		n.reseat()
	case k < 43 && w.moves:
		n.handoff()
	case k < 52:
		w.meet(n)
	case k < 54:
		w.cut(n, p, "the network")
	case k < 57:
		w.weather(n, p)
	case k < 62:
		w.pass(int64(1 + w.rng.IntN(3000)))
	case k < 64:
		w.admit(p)
	case k < 67:
		if p != n {
			p.start()
		}
	case k < 68:
		n.halt(false)
		w.say("%s is stopped", n.name)
	case k < 73:
		n.fall()
	case k < 75:
		w.misfortune(n, p)
	case k < 78:
		w.hostility()
	default:
		for range 1 + w.rng.IntN(40) {
			if !w.event() {
				break
			}
		}
	}
}

// meet has a node look for others, as it does by itself.
func (w *world) meet(n *node) {
	for _, p := range w.all {
		if w.rng.IntN(3) > 0 {
			w.connect(n, p)
		}
	}
}

// weather changes the network between two nodes.
func (w *world) weather(a, b *node) {
	if a == b {
		return
	}
	at := [2]int{a.i, b.i}
	switch w.rng.IntN(4) {
	case 0:
		w.say("nothing goes from %s to %s", a.name, b.name)
		w.did("one way")
		w.blocked[at] = true
	case 1:
		w.say("messages from %s to %s go slowly", a.name, b.name)
		w.slow[at] = int64(50 + w.rng.IntN(4000))
	default:
		delete(w.blocked, at)
		delete(w.slow, at)
		delete(w.blocked, [2]int{b.i, a.i})
	}
}

// fall has the node stop in one of the ways in which nodes stop.
func (n *node) fall() {
	w := n.w
	switch w.rng.IntN(5) {
	case 0:
		w.say("%s is restarted", n.name)
		n.halt(false)
		n.open()
	case 1, 2:
		n.crash()
		if w.rng.IntN(3) > 0 {
			n.open()
		}
	default:
		n.doom()
	}
}

// misfortune is what befalls the nodes of some runs only.
func (w *world) misfortune(n, p *node) {
	switch w.rng.IntN(6) {
	case 0:
		if w.removes && n != p && p.i != 0 {
			n.remove(p)
		}
	case 1:
		if w.prunes {
			n.prune()
		}
	case 2:
		if w.errors {
			n.ail()
		}
	case 3:
		if w.losses && !n.removed {
			n.lose()
		}
	case 4:
		if w.losses {
			n.backup = n.mem.CrashClone(100, nil)
		}
	case 5:
		if w.clocks && n.i > 0 {
			wrong := []time.Duration{0, time.Second, -time.Second, 50 * time.Second, 20 * time.Minute, -time.Hour}[w.rng.IntN(6)]
			w.say("the clock of %s is wrong by %s", n.name, wrong)
			w.did("wrong clock")
			n.clock.set(wrong)
		}
	}
}

// hostility is what those do who have no node.
func (w *world) hostility() {
	switch {
	case w.rng.IntN(4) == 0:
		w.intrude()
		w.trespass()
	case w.forks && w.eve == nil:
		w.makeEve()
	case w.forks:
		w.show()
	}
}

// report fails a test with what a person needs to find out why.
func report(t *testing.T, seed uint64, r result) {
	t.Helper()
	if r.failure != nil {
		t.Errorf("seed %d: %s: %s\nthe end of its transcript (make sim SEED=%d prints all):\n%s", seed, r.failure.property, r.failure.text, seed, tail(r.trace, 60))
	}
}

// TestSeeds runs seeds; make sim runs more of them.
func TestSeeds(t *testing.T) {
	from, count := *fromFlag, *seedsFlag
	if *seedFlag >= 0 {
		r := run(t, uint64(*seedFlag))
		fmt.Println(r.trace)
		report(t, uint64(*seedFlag), r)
		return
	}
	if count == 0 {
		if count = 200; testing.Short() {
			count = 6
		}
	}
	results := make([]map[string]int, count)
	t.Run("all", func(t *testing.T) {
		for i := range count {
			t.Run(fmt.Sprint(from+i), func(t *testing.T) {
				t.Parallel()
				r := run(t, from+i)
				report(t, from+i, r)
				results[i] = r.seen
			})
		}
	})
	total := map[string]int{}
	for _, seen := range results {
		for what, n := range seen {
			total[what] += n
		}
	}
	for _, what := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%8d %s", total[what], what)
	}
}

// TestSame: a seed run twice does the same, byte for byte.
func TestSame(t *testing.T) {
	count := uint64(4)
	if testing.Short() {
		count = 2
	}
	for seed := range count {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			a, b := run(t, seed), run(t, seed)
			if a.trace == b.trace {
				return
			}
			x, y := strings.Split(a.trace, "\n"), strings.Split(b.trace, "\n")
			for i := range min(len(x), len(y)) {
				if x[i] != y[i] {
					t.Fatalf("the transcripts differ in line %d:\n%s\n%s\nbefore it:\n%s", i+1, x[i], y[i], strings.Join(x[max(0, i-10):i], "\n"))
				}
			}
			t.Fatalf("one transcript has %d lines, the other %d", len(x), len(y))
		})
	}
}
