package fold

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"pgregory.net/rapid"
)

// snap is what a snapshot holds.
type snap struct {
	config  Config
	records []Record
	space   *state.Space
}

func (r *replica) snapshot() *snap {
	s := &snap{r.config, r.m.Snapshot(), r.space}
	s.space = s.copied()
	return s
}

// found returns a machine that begins from s.
func (s *snap) found(t rapid.TB) *Machine {
	m, err := Found(s.config, slices.Values(s.records))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (s *snap) copied() *state.Space { return s.space.Join(&state.Space{}) }

// join is the join of two snapshots, records and rows.
func (s *snap) join(t rapid.TB, o *snap) *snap {
	m := s.found(t)
	if err := m.Join(o.found(t)); err != nil {
		t.Fatal(err)
	}
	a, b := s.found(t), o.found(t)
	out := &snap{s.config, m.Snapshot(), &state.Space{Frontier: s.space.Frontier.Join(o.space.Frontier)}}
	for _, of := range []*snap{s, o} {
		for at := range of.space.Rows {
			out.space.Set(at, state.Join(at.Kind, s.space.Row(at), a.Beside(b), o.space.Row(at), b.Beside(a)))
		}
	}
	return out
}

// text is all of s, to be compared.
func (s *snap) text(t rapid.TB) string {
	var b bytes.Buffer
	for _, r := range s.records {
		fmt.Fprintf(&b, "%c %x: %x\n", r.Key[0], r.Key[1:], r.Value)
	}
	b.WriteString((&replica{t: t, space: s.space}).rows())
	return b.String()
}

// begin has a new replica begin from a snapshot.
func (r *replica) begin(s *snap) {
	r.base = s
	r.m = (&snap{r.config, s.records, nil}).found(r.t)
	r.space = s.copied()
	r.apply(Effects{})
}

// summary says what a replica has beyond its base, and of whom it knows forks.
func (r *replica) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "with an effect: %v\nwaiting: %v\n", r.effective(), r.waits())
	for p, err := range r.void {
		fmt.Fprintf(&b, "void: %s: %v\n", p, err)
	}
	for _, name := range names {
		if f := r.m.ForkOf(id(name)); f.Seq > 0 {
			fmt.Fprintf(&b, "forked: %s\n", f)
		}
		fmt.Fprintf(&b, "%s said: %+v\n", name, r.m.Said(id(name)))
	}
	return b.String()
}

// exact reports whether nothing came to light below a snapshot of what r has
// folded, so that it has to come to what folding everything comes to.
func (m *model) exact(r *replica, all []sigchain.Signed) bool {
	var want []sigchain.Place
	for _, p := range m.effective() {
		if r.m.entered(p) {
			want = append(want, p)
		}
	}
	if !slices.Equal(r.effective(), want) {
		return false
	}
	for c := range r.m.Chains {
		if m.frozen(sigchain.Place{Author: c.Writer.Author, Incarnation: c.Writer.Incarnation, Seq: c.Tip.Seq}) {
			return false
		}
	}
	for _, s := range all { // what follows an entry below the tip has seen what the chain had named at the tip
		if p, ok := before(s); ok && s.Seq == 1 && p.Seq < r.m.Tip(writerOf(p)).Seq && !r.m.entered(s.Ref().Place()) {
			return false
		}
	}
	return true
}

// TestJoinIsFold: replicas fold what they happen to have of a history, and prune it
// there. Their snapshots join to one thing, whichever way; and what goes on from
// that comes to one state, which is that of folding all entries unless something
// came to light below a snapshot.
func TestJoinIsFold(t *testing.T) {
	exact, other := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.draw(40)
		all := h.all
		until := startMs + rapid.SampledFrom([]int64{3000, 20 * driftMs}).Draw(t, "until")
		m := newModel(h.genesis.Author, all, until)
		same := true
		var snaps []*snap
		for range rapid.IntRange(1, 3).Draw(t, "snapshots") {
			lost := rapid.IntRange(0, 3).Draw(t, "lost")
			some := slices.DeleteFunc(slices.Clone(all), func(s sigchain.Signed) bool {
				return s.ID != h.genesis.ID && rapid.IntRange(0, 9).Draw(t, "here") < lost
			})
			var base *snap
			if len(snaps) > 0 && rapid.IntRange(0, 3).Draw(t, "on one before") == 0 {
				base = rapid.SampledFrom(snaps).Draw(t, "base")
			}
			r := h.deliverOn(base, some, startMs+rapid.Int64Range(1000, until-startMs).Draw(t, "when"))
			same = same && base == nil && m.exact(r, all)
			s := r.snapshot()
			if again := s.found(t).Snapshot(); !slices.EqualFunc(again, s.records, sameRecord) {
				t.Fatalf("a snapshot of a snapshot is another:\n%s\n%s", s.text(t), (&snap{s.config, again, s.space}).text(t))
			}
			snaps = append(snaps, s)
		}
		joined := joinLaws(t, snaps)
		var want string
		var first *replica
		for i := range 3 {
			left := all
			if i > 0 && rapid.Bool().Draw(t, "tails") { // what was pruned is not there to be heard of
				found := joined.found(t)
				left = slices.DeleteFunc(slices.Clone(all), func(s sigchain.Signed) bool {
					id, here, err := found.idAt(s.Ref().Place())
					return err == nil && here && (id.IsZero() || id == s.ID)
				})
			}
			if len(left) == 0 {
				left = all
			}
			r := h.deliverOn(joined, left, until)
			got := r.rows()
			if i == 0 {
				want = got
			}
			if i == 0 {
				first = r
			}
			if got != want {
				t.Fatalf("one order comes to\n%s%s\nanother to\n%s%s\nfrom %v\n%s", want, first.summary(), got, r.summary(), joined.found(t).Base(), h.story())
			}
			if !same {
				continue
			}
			space, err := m.space()
			if err != nil {
				t.Fatal(err)
			}
			if folded := (&replica{t: t, space: space}).rows(); got != folded {
				t.Fatalf("joined:\n%s\nfolded:\n%s\n%s", got, folded, h.story())
			}
			if len(left) == len(all) && !slices.Equal(r.waits(), m.waits()) {
				t.Fatalf("waiting:\n%v\nwant\n%v\n%s", r.waits(), m.waits(), r.because())
			}
		}
		if same {
			exact++
		} else {
			other++
		}
	})
	t.Logf("%d histories came to what folding them comes to; in %d something came to light below a snapshot", exact, other)
}

func sameRecord(a, b Record) bool { return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) }

// joinLaws joins snapshots in several ways, which must not matter.
func joinLaws(t *rapid.T, snaps []*snap) *snap {
	joined := snaps[0]
	for _, s := range snaps[1:] {
		joined = joined.join(t, s)
	}
	want := joined.text(t)
	if len(snaps) == 1 {
		want = joined.join(t, joined).text(t)
		joined = joined.join(t, joined)
		if got := joined.text(t); got != snaps[0].text(t) {
			t.Fatalf("joined with itself:\n%s\nwas\n%s", got, snaps[0].text(t))
		}
	}
	order := rapid.Permutation(snaps).Draw(t, "order")
	back := order[len(order)-1]
	for i := len(order) - 2; i >= 0; i-- {
		back = order[i].join(t, back)
	}
	if got := back.join(t, order[0]).text(t); got != want {
		t.Fatalf("in another order:\n%s\nwant\n%s", got, want)
	}
	if got := joined.join(t, joined).text(t); got != want {
		t.Fatalf("joined with itself:\n%s\nwant\n%s", got, want)
	}
	return joined
}

// TestFixIsRebuild: what a replica makes the base where it stands goes on like one
// that begins from the snapshot.
func TestFixIsRebuild(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.draw(30)
		until := startMs + int64(20*driftMs)
		some := slices.DeleteFunc(slices.Clone(h.all), func(s sigchain.Signed) bool {
			return s.ID != h.genesis.ID && rapid.IntRange(0, 4).Draw(t, "late") == 0
		})
		r := h.deliver(some, until)
		s := r.snapshot()
		for range rapid.IntRange(0, 3).Draw(t, "meanwhile") {
			r.offer(rapid.SampledFrom(h.all).Draw(t, "hears"))
		}
		err := r.m.Fix(s.found(t))
		if errors.Is(err, ErrBase) {
			return // a fork or a cut came to light
		}
		if err != nil {
			t.Fatal(err)
		}
		r.base = s
		before := r.rows()
		r.apply(Effects{})
		r.checkRecords()
		r.restart()
		if r.rows() != before {
			t.Fatalf("pruning changed\n%s\ninto\n%s", before, r.rows())
		}
		for _, x := range h.all {
			r.try(x)
		}
		want := h.deliverOn(s, h.all, until)
		for _, name := range names {
			if r.m.ForkOf(id(name)) != want.m.ForkOf(id(name)) {
				return // one heard of both branches before it pruned them
			}
		}
		if got := r.rows(); got != want.rows() {
			t.Fatalf("pruned where it stood:\n%s%s\nbegun from the snapshot:\n%s%s\nfrom %v\n%s", got, r.summary(), want.rows(), want.summary(), s.found(t).Base(), h.story())
		}
	})
}

// TestCutBelowBase: a cut that lies below what one side has pruned takes effect
// there, for all who join it, and nothing that was written over comes back or goes.
func TestCutBelowBase(t *testing.T) {
	g := found(t, "olga")
	admit := after(t, "olga", g, nil, grant(t, "ann", roster.Writer), grant(t, "bob", roster.Writer))
	good := first(t, "ann", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{admit}, set(t, "ann", 1, "k", "good"))
	one := first(t, "bob", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{admit, good}, set(t, "bob", 1, "other", "one"))
	over := after(t, "bob", one, nil, set(t, "bob", 1, "k", "over", dotOf(good, 0)))
	late := after(t, "bob", over, nil, set(t, "bob", 1, "late", "late"))
	cut := after(t, "olga", admit, nil, remove(t, "bob", one))

	knows, pruned := newReplica(t, g), newReplica(t, g)
	knows.offer(g, admit, good, one, over, cut)
	pruned.offer(g, admit, good, one, over)
	if knows.get("k") != "[good]" || pruned.get("k") != "[over]" {
		t.Fatalf("k is %s and %s", knows.get("k"), pruned.get("k"))
	}
	a, b := knows.snapshot(), pruned.snapshot()
	joined := a.join(t, b)
	if got := b.join(t, a).text(t); got != joined.text(t) {
		t.Fatalf("%s\n%s", got, joined.text(t))
	}
	r := newReplica(t, g)
	r.begin(joined)
	r.offer(late, cut)
	if r.get("k") != "[over]" || r.get("other") != "[one]" || r.get("late") != "[]" {
		t.Fatalf("k=%s other=%s late=%s", r.get("k"), r.get("other"), r.get("late"))
	}
	// The same where the cut is heard of after the pruning.
	r = newReplica(t, g)
	r.begin(b)
	r.offer(late, cut)
	if r.get("k") != "[over]" || r.get("late") != "[]" || r.rebuilt != 1 {
		t.Fatalf("k=%s late=%s, rebuilt %d times", r.get("k"), r.get("late"), r.rebuilt)
	}
	if err := knows.m.Fix(b.found(t)); !errors.Is(err, ErrBase) {
		t.Fatalf("made the base what a cut had changed: %v", err)
	}
}

// TestForkBelowBase: likewise a fork.
func TestForkBelowBase(t *testing.T) {
	g := found(t, "olga")
	admit := after(t, "olga", g, nil, grant(t, "bob", roster.Writer))
	one := first(t, "bob", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{admit}, set(t, "bob", 1, "k", "one"))
	left := after(t, "bob", one, nil, set(t, "bob", 1, "k", "left", dotOf(one, 0)))
	right := after(t, "bob", one, nil, set(t, "bob", 1, "k", "right", dotOf(one, 0)))
	late := after(t, "bob", left, nil, set(t, "bob", 1, "late", "late"))
	p := newReplica(t, g)
	p.offer(g, admit, one, left)
	s := p.snapshot()
	r := newReplica(t, g)
	r.begin(s)
	if got := r.offer(right); got != Dropped { // the base's last id is known
		t.Fatalf("the other branch is %s", got)
	}
	if got := r.offer(late); got != Dropped {
		t.Fatalf("what follows is %s", got)
	}
	if r.get("k") != "[left]" || r.rebuilt != 0 {
		t.Fatalf("k is %s, rebuilt %d times", r.get("k"), r.rebuilt)
	}
	q := newReplica(t, g)
	q.offer(g, admit, one, right)
	x, y := s.join(t, q.snapshot()), q.snapshot().join(t, s)
	if x.text(t) != y.text(t) {
		t.Fatalf("two branches that were pruned apart join to\n%s\nor\n%s", x.text(t), y.text(t))
	}
}

// TestBackupBelowBase: a start from a copy of the directory that is older than what
// was pruned counts: its author has seen what it cites.
func TestBackupBelowBase(t *testing.T) {
	g := found(t, "olga")
	admit := after(t, "olga", g, nil, grant(t, "ann", roster.Writer), grant(t, "bob", roster.Writer))
	good := first(t, "ann", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{admit}, set(t, "ann", 1, "k", "good"))
	one := first(t, "bob", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{admit, good}, set(t, "bob", 1, "x", "1"))
	two := after(t, "bob", one, nil, set(t, "bob", 1, "x", "2", dotOf(one, 0)))
	restored := first(t, "bob", g.Home(), 2, one.Link(), nil, set(t, "bob", 2, "k", "restored", dotOf(good, 0)))
	p := newReplica(t, g)
	p.offer(g, admit, good, one, two)
	r := newReplica(t, g)
	r.begin(p.snapshot())
	r.offer(restored)
	if r.get("k") != "[restored]" {
		t.Fatalf("k is %s: %v", r.get("k"), r.void)
	}
}

// TestForkAtBase: the last entry that was pruned stays what it is when its author turns
// out to have forked there: it is known, others name it, and what they told of it stands.
func TestForkAtBase(t *testing.T) {
	g := found(t, "olga")
	admit := after(t, "olga", g, nil, grant(t, "bob", roster.Writer))
	one := first(t, "bob", g.Home(), 1, sigchain.Link{}, []sigchain.Signed{admit}, set(t, "bob", 1, "k", "one"))
	left := after(t, "bob", one, nil, set(t, "bob", 1, "k", "left", dotOf(one, 0)))
	right := after(t, "bob", one, nil, set(t, "bob", 1, "k", "right", dotOf(one, 0)))
	p := newReplica(t, g)
	p.offer(g, admit, one, left)
	r := newReplica(t, g)
	r.begin(p.snapshot())
	told := r.m.Frontier()
	r.offer(right)
	if got := r.offer(left); got != Known {
		t.Errorf("the entry at the base is %s", got)
	}
	if r.m.Upset(told) || r.m.Upset(r.m.Frontier()) {
		t.Error("what was told of it does not stand")
	}
	olga := state.Writer{Author: id("olga"), Incarnation: 1}
	if got := r.m.Parents(olga, sigchain.Link{}); !slices.Contains(got, left.Ref()) {
		t.Errorf("the next entry names %v", got)
	}
	next := after(t, "olga", admit, []sigchain.Signed{left}, set(t, "olga", 1, "k", "all", dotOf(left, 0)))
	r.offer(next)
	r.wantEffect(next)
	if r.get("k") != "[all]" {
		t.Errorf("k is %s", r.get("k"))
	}

	// A cut below the base takes effect there, so neither does it upset what was told.
	r = newReplica(t, g)
	r.begin(p.snapshot())
	r.offer(after(t, "olga", admit, nil, remove(t, "bob", one)))
	if r.m.Upset(told) || r.get("k") != "[left]" {
		t.Errorf("a cut below the base upsets what was told; k is %s", r.get("k"))
	}
}
