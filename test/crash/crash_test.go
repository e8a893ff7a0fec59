// Package crash has no code of its own: its test kills a node with kill -9, again
// and again at random moments, while clients write to it, and holds it to what it
// acknowledged.
package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// rounds is how often the node is killed: LATTICE_CRASH_ROUNDS, 20 by default.
func rounds(t *testing.T) int {
	s := os.Getenv("LATTICE_CRASH_ROUNDS")
	if s == "" {
		if testing.Short() {
			return 3
		}
		return 20
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("LATTICE_CRASH_ROUNDS=%q: want a positive number", s)
	}
	return n
}

// seed is of the moments at which the node is killed: LATTICE_CRASH_SEED repeats
// a run as far as a run with real clients can be repeated.
func seed(t *testing.T) uint64 {
	s := os.Getenv("LATTICE_CRASH_SEED")
	if s == "" {
		return uint64(time.Now().UnixNano())
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("LATTICE_CRASH_SEED=%q: want a number", s)
	}
	return n
}

// perLife is how many kills one data directory sees: each check reads all of it.
const perLife = 40

// TestCrash writes with acks=all through idempotent and plain producers, commits
// group offsets, creates and deletes topics, and kills the node in each round.
// After each restart every acknowledged record is at its offset, those of one
// producer in order and of an idempotent one once, offsets are dense, and
// acknowledged group offsets and topics are there. Now and then and at the end the
// whole directory is checked: roots and signatures equal a recomputation from the
// bytes.
func TestCrash(t *testing.T) {
	n, s := rounds(t), seed(t)
	t.Logf("%d rounds; repeat with LATTICE_CRASH_SEED=%d", n, s)
	rng := rand.New(rand.NewPCG(s, 0))
	bin := realnode.Build(t)
	for life := 0; life*perLife < n && !t.Failed(); life++ {
		t.Run(fmt.Sprintf("life-%d", life+1), func(t *testing.T) {
			live(t, bin, rng, min(perLife, n-life*perLife))
		})
	}
}

// live is n rounds on one data directory.
func live(t *testing.T, bin string, rng *rand.Rand, n int) {
	dir, at := t.TempDir(), realnode.FreeAddress(t)
	up := func() *realnode.Node { return realnode.Start(t, bin, dir, "--kafka", at) }

	node := up()
	w := newWorld(t, at)
	w.createTopics(t)
	var commits int64 // in the first half
	var made int
	for round := range n {
		if round == n/2 {
			commits, made = w.commits.Load(), w.catalogue.made
		}
		if round > 0 {
			node = up()
			w.check(t)
		}
		w.run()
		time.Sleep(time.Duration(50+rng.IntN(900)) * time.Millisecond)
		node.Kill()
		w.pause()
		if t.Failed() {
			t.Fatalf("in round %d", round+1)
		}
		if round%5 == 4 {
			verify(t, bin, dir)
		}
	}
	node = up()
	w.check(t)
	w.finish()
	w.check(t)
	node.Stop(t)
	verify(t, bin, dir)
	t.Logf("%d records, %d commits, %d topics made and %d deleted were acknowledged through %d kills",
		w.count(), w.commits.Load(), w.catalogue.made, w.catalogue.deleted, n)
	if w.count() < int64(n) {
		t.Errorf("only %d records were acknowledged: the test tested nothing", w.count())
	}
	if n >= 6 && (w.commits.Load() == commits || w.catalogue.made == made) {
		t.Errorf("in the last %d of %d lives %d commits and %d topics were acknowledged: a node that was killed takes no more of them",
			n-n/2, n, w.commits.Load()-commits, w.catalogue.made-made)
	}
}

// verify checks the directory of a node that does not run.
func verify(t *testing.T, bin, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, bin, "verify", "--data", dir, "-o", "json").Output()
	var v struct {
		Valid  bool
		Reason string
	}
	if jerr := json.Unmarshal(out, &v); jerr != nil || err != nil || !v.Valid {
		t.Fatalf("the data directory does not verify: %v %v %s", err, jerr, out)
	}
}

func valueOf(writer string, n int) string { return fmt.Sprintf("%s %d", writer, n) }
