package partition_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/branch"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
)

var eve = identity.FromSeed([32]byte{5})

// takes has b lead from what is at by on, an admin's word for it, and tells b alone.
func takes(t *testing.T, by, b *replica) {
	t.Helper()
	g, err := by.Unclean(b.key.Author())
	if err != nil {
		t.Fatal(err)
	}
	by.admitted[g.ID] = true
	told, err := by.Grants()
	if err != nil {
		t.Fatal(err)
	}
	h, err := b.Heed(append(told, g.Bytes()))
	if err != nil || !h.Changed {
		t.Fatalf("%+v, %v", h, err)
	}
	b.reopen()
	if !b.Leads() {
		t.Fatal("it does not lead")
	}
}

// follows tells r of the terms of another, opens it again, and has it catch up.
func (r *replica) follows(of *replica) {
	r.t.Helper()
	if r.hear(of).Changed {
		r.reopen()
	}
	r.pull(of, 1<<20)
}

// valuesOf returns the records of a branch.
func (r *replica) valuesOf(s partition.Stranded) []string {
	r.t.Helper()
	var out []string
	err := r.WalkStranded(s, 0, func(_ uint64, b []byte) error {
		var rd record.Reader
		if err := rd.Open(b, record.Limits{}); err != nil {
			return err
		}
		var rec record.Record
		for {
			if ok, err := rd.Next(&rec); err != nil || !ok {
				return err
			}
			out = append(out, string(rec.Value))
		}
	})
	if err != nil && !errors.Is(err, io.EOF) {
		r.t.Fatal(err)
	}
	return out
}

func (r *replica) strandeds(want int) []partition.Stranded {
	r.t.Helper()
	all, err := r.Strandeds()
	if err != nil || len(all) != want {
		r.t.Fatalf("%d branches, want %d: %v", len(all), want, err)
	}
	return all
}

func world(t *testing.T) (a, b, c *replica) {
	clock, admitted := newClock(), map[lattice.Hash]bool{}
	a, b = newReplica(t, disk.NewMem(), ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	c = newReplica(t, disk.NewMem(), eve, clock)
	a.admitted, b.admitted, c.admitted = admitted, admitted, admitted
	for _, r := range []*replica{a, b, c} {
		r.reopen()
	}
	return a, b, c
}

// numbers writes records with their numbers in [from, to).
func (r *replica) numbers(from, to int) {
	for i := from; i < to; i++ {
		r.produce(fmt.Sprint(i))
	}
}

// TestUncleanGrant: a follower that lags is made the leader while the old one is away. What
// only that had is stranded when it returns, and on another follower; both follow.
func TestUncleanGrant(t *testing.T) {
	a, b, c := world(t)
	a.numbers(0, 6)
	b.pull(a, 1<<20)
	a.numbers(6, 10)
	c.pull(a, 1<<20)
	old := a.Bounds().Term
	takes(t, b, b)
	if got := b.Bounds(); got.End != 6 || got.Term <= old {
		t.Fatalf("%+v after term %d", got, old)
	}
	b.numbers(100, 120)
	// A span of the old term's that the new one does not have is refused, by name.
	c.hear(b)
	c.reopen()
	s, err := a.ReadSpan(c.Position().Size, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(s); !errors.Is(err, partition.ErrOldTerm) {
		t.Fatalf("a span beyond the base: %v", err)
	}
	if c.Cuts() != 1 {
		t.Fatalf("%d cuts", c.Cuts())
	}
	for _, r := range []*replica{a, c} {
		r.follows(b)
		same(t, b, r)
		x := r.strandeds(1)[0]
		if x.First != 6 || x.End != 10 || x.Records != 4 || x.FirstTerm != old || x.Leader != ann.Author() || x.From != 6 || x.Blocks != 4 {
			t.Fatalf("%+v", x)
		}
		if got := fmt.Sprint(r.valuesOf(x)); got != "[6 7 8 9]" {
			t.Fatal(got)
		}
		if n, err := r.ProveStranded(x); err != nil || n != 4 {
			t.Fatalf("%d are proven: %v", n, err)
		}
		if term, end, err := r.TermEnd(old); err != nil || term != old || end != 6 {
			t.Fatalf("term %d ends at %d: %v", term, end, err)
		}
		r.restart()
		r.strandeds(1)
		same(t, b, r)
	}
	b.restart()
	b.numbers(120, 125)
	for _, r := range []*replica{a, c} {
		r.pull(b, 1<<20)
		same(t, b, r)
	}
	if a.hear(b).Changed {
		t.Fatal("the same terms change something again")
	}
	give(t, b, a) // and back, cleanly
	a.numbers(200, 205)
	c.follows(a)
	same(t, a, c)
	b.strandeds(0)
}

// TestCleanBeatsUnclean: the old leader went on in a term that nobody had heard of when an
// admin gave its partition away. Its own term rules, and the other's records are stranded.
func TestCleanBeatsUnclean(t *testing.T) {
	a, b, c := world(t)
	a.numbers(0, 6)
	b.pull(a, 1<<20)
	c.pull(a, 1<<20)
	a.restart()
	a.numbers(6, 9)
	takes(t, b, b)
	b.numbers(100, 105)
	b.restart()
	b.numbers(105, 108)
	c.follows(b)
	same(t, b, c)
	if h := a.hear(b); h.Changed || !h.Behind {
		t.Fatalf("%+v", h)
	}
	a.numbers(9, 10)
	for _, r := range []*replica{b, c} {
		if h := r.hear(a); !h.Changed {
			t.Fatal("it does not follow")
		}
		if _, err := r.Receive(first(t, a)); !errors.Is(err, partition.ErrUnheard) && !errors.Is(err, partition.ErrLeads) {
			t.Fatal(err) // until it is opened again
		}
		r.reopen()
		r.pull(a, 1<<20)
		same(t, a, r)
		x := r.strandeds(1)[0]
		if x.First != 6 || x.Records != 8 || x.Leader != bob.Author() {
			t.Fatalf("%+v", x)
		}
		if n, err := r.ProveStranded(x); err != nil || n == 0 {
			t.Fatalf("%d are proven: %v", n, err)
		}
		r.restart()
		same(t, a, r)
	}
}

func first(t *testing.T, a *replica) span.Span {
	t.Helper()
	s, err := a.ReadSpan(0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestUncleanWord: a grant counts only with an admin's word, and no longer than that.
func TestUncleanWord(t *testing.T) {
	a, b, c := world(t)
	a.numbers(0, 4)
	for _, r := range []*replica{b, c} {
		r.pull(a, 1<<20)
	}
	if _, err := a.Unclean(bob.Author()); lattice.KindOf(err) != lattice.Conflict {
		t.Fatalf("its leader can give it cleanly: %v", err)
	}
	if _, err := b.Unclean(ann.Author()); !errors.Is(err, partition.ErrLeadsAlready) {
		t.Fatal(err)
	}
	g, err := c.Unclean(bob.Author())
	if err != nil {
		t.Fatal(err)
	}
	told, err := c.Grants()
	if err != nil {
		t.Fatal(err)
	}
	told = append(told, g.Bytes())
	if h, err := b.Heed(told); err != nil || h.Changed {
		t.Fatalf("without an admin's word: %+v, %v", h, err)
	}
	b.admitted[g.ID] = true
	if h, err := b.Heed(told); err != nil || !h.Changed {
		t.Fatalf("%+v, %v", h, err)
	}
	b.reopen()
	b.numbers(10, 12)
	delete(b.admitted, g.ID) // it turns out that it was no admin
	if h, err := b.Heed(told); err != nil || !h.Changed {
		t.Fatalf("%+v, %v", h, err)
	}
	b.reopen()
	b.strandeds(1)
	a.numbers(4, 6)
	b.pull(a, 1<<20)
	same(t, a, b)
}

// TestStrandedFromTheStart: the base lies before all that is still here, so the log begins
// anew, with what the new leader has.
func TestStrandedFromTheStart(t *testing.T) {
	a, b, _ := world(t)
	a.numbers(0, 5)
	b.pull(a, 1<<20)
	for i := 5; i < 200; i++ {
		a.produce(strings.Repeat("x", 100))
	}
	if _, err := a.Truncate(t.Context(), 150); err != nil {
		t.Fatal(err)
	}
	takes(t, b, b)
	b.numbers(5, 8)
	a.follows(b)
	same(t, b, a)
	if x := a.strandeds(1)[0]; x.End != 200 || x.First > 150 {
		t.Fatalf("%+v", x)
	}
	a.restart()
	same(t, b, a)
}

// TestStrandCrash cuts the power before each step that the file system is asked for while an
// old leader hears of another term and keeps its tail aside, and opens what that leaves. In
// the end it follows, and has the branch once, with all that it acknowledged.
func TestStrandCrash(t *testing.T) {
	for name, truncate := range map[string]int64{"cut": 0, "begins anew": 40} {
		t.Run(name, func(t *testing.T) { strandCrash(t, truncate) })
	}
}

func strandCrash(t *testing.T, truncate int64) {
	clock, admitted := newClock(), map[lattice.Hash]bool{}
	fs := disk.NewMem()
	a, b := newReplica(t, fs, ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	a.admitted, b.admitted = admitted, admitted
	a.reopen()
	b.reopen()
	for i := range 30 {
		a.produce(strings.Repeat("x", 200), fmt.Sprint(i))
	}
	b.pull(a, 1<<20)
	for i := range 40 {
		a.produce(strings.Repeat("y", 200), fmt.Sprint(i))
	}
	if truncate > 0 {
		if _, err := a.Truncate(t.Context(), 60+truncate); err != nil {
			t.Fatal(err)
		}
	}
	takes(t, b, b)
	b.numbers(0, 7)
	cuts := rand.New(rand.NewPCG(6, 6))
	var mu sync.Mutex
	var moments []*disk.Mem
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpRead || op.Kind == disk.OpOpen || op.Kind == disk.OpList {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		moments = append(moments, fs.CrashClone([]int{0, 50, 100}[cuts.IntN(3)], cuts))
		return nil
	})
	a.follows(b)
	fs.SetFault(nil)
	same(t, b, a)
	want := a.strandeds(1)[0]
	if len(moments) < 15 {
		t.Fatalf("%d moments", len(moments))
	}
	step := 2
	if testing.Short() {
		step = 9
	}
	t.Logf("%d moments", len(moments))
	for i := 0; i < len(moments); i += step {
		x := newReplica(t, moments[i], ann, clock)
		x.admitted = admitted
		x.close()
		clock.Advance(time.Minute)
		x.open()
		if st := x.Status(); st.Failed != "" {
			t.Fatalf("moment %d: %s", i, st.Failed)
		}
		x.follows(b)
		same(t, b, x)
		if got := x.strandeds(1)[0]; got.ID() != want.ID() || got.Records != want.Records {
			t.Fatalf("moment %d: branch %s of %d records, want %s of %d", i, got.ID(), got.Records, want.ID(), want.Records)
		}
		x.restart()
		same(t, b, x)
		x.strandeds(1)
		x.close()
	}
}

// TestStrandFault fails each step of keeping a tail aside once. The partition is not opened,
// or is, and in the end nothing is lost.
func TestStrandFault(t *testing.T) {
	for at := 1; strandFault(t, at); at += 1 + at/8 {
	}
}

func strandFault(t *testing.T, at int) bool {
	clock, admitted := newClock(), map[lattice.Hash]bool{}
	fs := disk.NewMem()
	a, b := newReplica(t, fs, ann, clock), newReplica(t, disk.NewMem(), bob, clock)
	a.admitted, b.admitted = admitted, admitted
	a.reopen()
	b.reopen()
	a.numbers(0, 5)
	b.pull(a, 1<<20)
	a.numbers(5, 9)
	takes(t, b, b)
	b.numbers(100, 103)
	told, err := b.Grants()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	step, hit := 0, false
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpRead || op.Kind == disk.OpOpen || op.Kind == disk.OpList {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if step++; step == at {
			hit = true
			return &disk.Fault{Err: errors.New("broken disk"), Kept: at%2 == 0}
		}
		return nil
	})
	_, herr := a.Heed(told)
	cerr := a.Close()
	a.stop()
	oerr := a.tryOpen()
	fs.SetFault(nil)
	if oerr != nil {
		a.open()
	} else if herr != nil || cerr != nil {
		a.reopen()
	}
	a.follows(b)
	a.restart()
	same(t, b, a)
	if got := fmt.Sprint(a.valuesOf(a.strandeds(1)[0])); got != "[5 6 7 8]" {
		t.Fatalf("step %d: %s", at, got)
	}
	a.close()
	return hit
}

// TestStrandedProgress: what was re-produced is remembered, and a branch goes on order only.
func TestStrandedProgress(t *testing.T) {
	a, b, _ := world(t)
	a.numbers(0, 2)
	b.pull(a, 1<<20)
	a.numbers(2, 4)
	takes(t, b, b)
	a.follows(b)
	x := a.strandeds(1)[0]
	done := branch.Progress{State: branch.Underway, Producer: 9, Blocks: 1, Records: 1, First: 5, End: 6}
	if err := a.MarkStranded(x, done); err != nil {
		t.Fatal(err)
	}
	a.restart()
	if x, err := a.FindStranded(x.ID()); err != nil || x.Progress != done {
		t.Fatalf("%+v, %v", x.Progress, err)
	}
	if err := a.DiscardStranded(x); err != nil {
		t.Fatal(err)
	}
	a.restart()
	a.strandeds(0)
	if _, err := a.FindStranded(x.ID()); lattice.KindOf(err) != lattice.NotFound {
		t.Fatal(err)
	}
}
