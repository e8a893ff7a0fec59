package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing/synctest"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
)

// epoch is when every run begins.
var epoch = time.UnixMilli(1_767_225_600_000)

// profile is what may happen in a run. It is drawn from the seed.
type profile struct {
	nodes     int
	liar      bool // the last node lies
	forks     bool // an author without a node signs two histories
	removes   bool // members are removed
	prunes    bool // not together with removes: a cut below what was pruned counts as the design says, which the check does not follow
	clocks    bool // clocks are wrong
	losses    bool // disks are emptied, or put back from a backup
	errors    bool // disks fail
	truncates bool // logs are truncated
	several   bool // topics have several replicas, and clients want acks=all
	moves     bool // partitions are given to other leaders
	steps     int
}

func (p profile) String() string {
	var on []string
	for _, x := range []struct {
		on   bool
		name string
	}{{p.liar, "liar"}, {p.forks, "forks"}, {p.removes, "removals"}, {p.prunes, "pruning"}, {p.clocks, "wrong clocks"}, {p.losses, "lost disks"}, {p.truncates, "truncation"}, {p.errors, "disk errors"}, {p.several, "replicas"}, {p.moves, "leaders move"}} {
		if x.on {
			on = append(on, x.name)
		}
	}
	return fmt.Sprintf("%d nodes, %d steps: %s", p.nodes, p.steps, strings.Join(on, ", "))
}

func drawProfile(r *rand.Rand) profile {
	chance := func(n int) bool { return r.IntN(n) == 0 }
	p := profile{nodes: 2 + r.IntN(4), steps: 50 + r.IntN(130), liar: chance(3), forks: chance(3), removes: chance(2), clocks: chance(3), losses: chance(3), errors: chance(2)}
	p.prunes = !p.removes && chance(2)
	p.liar, p.truncates = p.liar && p.nodes > 2, chance(2)
	p.several, p.moves = chance(2), chance(2)
	return p
}

// world is the nodes of a run, the network between them, and what clients were told.
type world struct {
	profile
	seed    uint64
	rng     *rand.Rand
	now     int64 // of the network, ms
	all     []*node
	genesis sigchain.Signed
	blocked map[[2]int]bool // nothing goes from the first to the second
	slow    map[[2]int]int64
	writes  []*write
	orders  []*order                         // what clients want of topics
	records map[place]produced               // what they were told
	shown   map[inTerm]string                // what readers were shown
	low     map[lattice.TopicPartition]int64 // where a client wanted a log to begin
	began   map[lattice.TopicPartition]int64 // where it was told that it does
	lostAll map[lattice.TopicID]bool         // its leader has lost its disk, or got back an old one
	led     map[leading]bool                 // who led what at some time
	seats   map[leading]bool                 // who was to hold what at some time
	adds    []*write                         // to the counter
	eve     *author
	trace   strings.Builder
	seen    map[string]int // how often what happened
}

// failure is a property that does not hold.
type failure struct{ property, text string }

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 0x1a771ce))
	w := &world{
		profile: drawProfile(r), seed: seed, rng: r, now: epoch.UnixMilli(), blocked: map[[2]int]bool{}, slow: map[[2]int]int64{},
		records: map[place]produced{}, shown: map[inTerm]string{}, low: map[lattice.TopicPartition]int64{}, began: map[lattice.TopicPartition]int64{},
		lostAll: map[lattice.TopicID]bool{}, led: map[leading]bool{}, seats: map[leading]bool{}, seen: map[string]int{},
	}
	w.say("seed %d: %s", seed, w.profile)
	for i := range w.nodes {
		w.all = append(w.all, newNode(w, i))
	}
	w.all[w.nodes-1].lies = w.liar
	return w
}

// keyOf returns the key of a name, the same in each run.
func (w *world) keyOf(name string) identity.Key {
	var seed [32]byte
	copy(seed[:], fmt.Sprintf("%s/%d", name, w.seed))
	return identity.FromSeed(seed)
}

func (w *world) say(format string, args ...any) {
	fmt.Fprintf(&w.trace, "%8d ", w.now-epoch.UnixMilli())
	fmt.Fprintf(&w.trace, format, args...)
	w.trace.WriteByte('\n')
}

// did counts that something happened, for the run's summary.
func (w *world) did(what string) { w.seen[what]++ }

func (w *world) fail(property, format string, args ...any) {
	f := failure{property, fmt.Sprintf(format, args...)}
	w.say("FAILED %s: %s", f.property, f.text)
	panic(f)
}

// must ends the run when something fails that nothing was done to.
func (w *world) must(err error) {
	if err != nil {
		w.fail("works", "%v", err)
	}
}

// quiet waits until no goroutine of any node has anything to do.
func (w *world) quiet() { synctest.Wait() }

// pass lets time go by, for the network and on all clocks.
func (w *world) pass(ms int64) {
	w.now += ms
	for _, n := range w.all {
		n.clock.Advance(time.Duration(ms) * time.Millisecond)
		w.quiet()
	}
	for _, n := range w.all {
		if n.up() {
			n.do(n.replica.Tick(w.now))
		}
		if n.up() {
			n.takeFreight(n.parts.Tick(w.now))
		}
		if n.up() {
			n.giveUp()
		}
	}
}

// pick draws a node that runs, and whether there is one.
func (w *world) pick(also func(*node) bool) (*node, bool) {
	var can []*node
	for _, n := range w.all {
		if n.up() && (also == nil || also(n)) {
			can = append(can, n)
		}
	}
	if len(can) == 0 {
		return nil, false
	}
	return can[w.rng.IntN(len(can))], true
}

func (w *world) byID(id lattice.NodeID) *node {
	for _, n := range w.all {
		if n.id == id {
			return n
		}
	}
	return nil
}

// name says who an author is.
func (w *world) name(a lattice.AuthorID) string {
	if n := w.byID(a); n != nil {
		return n.name
	}
	if w.eve != nil && w.eve.id == a {
		return "eve"
	}
	return a.Short()
}

// message is on its way.
type message struct {
	due   int64
	bytes []byte
}

// connect begins a session of two nodes, if both want it and messages go both ways.
func (w *world) connect(a, b *node) bool {
	if a == b || !a.up() || !b.up() || a.linked[b.i] || w.blocked[[2]int{a.i, b.i}] || w.blocked[[2]int{b.i, a.i}] || !a.admits(b) || !b.admits(a) {
		return false
	}
	w.say("%s and %s are connected", a.name, b.name)
	a.linked[b.i], b.linked[a.i] = true, true
	a.inbox[b.i], b.inbox[a.i] = [streams][]message{}, [streams][]message{}
	for _, x := range [2][2]*node{{a, b}, {b, a}} {
		x[0].beginAsks(x[1])
	}
	for _, x := range [2][2]*node{{a, b}, {b, a}} {
		if a.linked[b.i] {
			x[0].do(x[0].replica.Connect(x[1].id, w.now))
		}
		if a.linked[b.i] {
			x[0].takeFreight(x[0].parts.Connect(x[1].id, w.now))
		}
	}
	return a.linked[b.i] // or one is kept off
}

// cut ends the session of two nodes, with what is under way.
func (w *world) cut(a, b *node, why string) {
	if !a.linked[b.i] {
		return
	}
	lost := 0
	for i := range streams {
		lost += len(a.inbox[b.i][i]) + len(b.inbox[a.i][i])
	}
	w.say("%s and %s are cut, with %d messages under way: %s", a.name, b.name, lost, why)
	a.linked[b.i], b.linked[a.i] = false, false
	a.inbox[b.i], b.inbox[a.i] = [streams][]message{}, [streams][]message{}
	for _, x := range [2][2]*node{{a, b}, {b, a}} {
		if x[0].up() {
			x[0].do(x[0].replica.Disconnect(x[1].id, w.now))
			x[0].takeFreight(x[0].parts.Disconnect(x[1].id, w.now))
			x[0].endAsks(x[1])
		}
	}
}

// event does one thing that is waiting to be done; false: nothing is.
func (w *world) event() bool {
	type choice struct {
		n     *node
		what  int // one of those below, or from whom a message is
		about stream
	}
	const store, read, receive, load, heed = -1, -2, -3, -4, -5
	var can []choice
	if w.poll() {
		return true
	}
	for _, n := range w.all {
		if !n.up() {
			continue
		}
		if n.powerless() || n.hear() {
			return true
		}
		if n.again {
			n.halt(false)
			n.open()
			return true
		}
		if len(n.keeps) > 0 {
			can = append(can, choice{n, store, 0})
		}
		if len(n.reads) > 0 {
			can = append(can, choice{n, read, 0})
		}
		if len(n.receives) > 0 {
			can = append(can, choice{n, receive, 0})
		}
		if len(n.loads) > 0 {
			can = append(can, choice{n, load, 0})
		}
		if len(n.heards) > 0 {
			can = append(can, choice{n, heed, 0})
		}
		for j, all := range n.inbox {
			for about, q := range all {
				if len(q) > 0 && q[0].due <= w.now && !w.blocked[[2]int{j, n.i}] {
					can = append(can, choice{n, j, stream(about)})
				}
			}
		}
	}
	if len(can) == 0 {
		return false
	}
	switch c := can[w.rng.IntN(len(can))]; c.what {
	case store:
		c.n.keep()
	case read:
		c.n.load()
	case receive:
		c.n.receive()
	case load:
		c.n.loadSpan()
	case heed:
		c.n.heed()
	default:
		c.n.deliver(w.all[c.what], c.about)
	}
	return true
}

// drain does all that is waiting.
func (w *world) drain() {
	for range 200_000 {
		if !w.event() {
			return
		}
	}
	w.fail("ends", "messages go to and fro for ever")
}
