package fold

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/state/statetest"
	"pgregory.net/rapid"
)

// history is entries of several authors, told to the nodes of a small mesh as
// they come, in which some behave badly.
type history struct {
	t       *rapid.T
	genesis sigchain.Signed
	all     []sigchain.Signed
	nodes   []*node
}

// node is an author and what the author's node has been told.
type node struct {
	*replica
	name string
	own  state.Writer
	last sigchain.Signed // of its own; the zero entry before the first
	skew int64           // of its clock, in milliseconds
}

var names = []string{"olga", "ann", "bob", "carl", "eve"}

func newHistory(t *rapid.T) *history {
	h := &history{t: t, genesis: found(t, "olga")}
	h.all = append(h.all, h.genesis)
	for _, name := range names[:rapid.IntRange(3, 5).Draw(t, "authors")] {
		n := &node{replica: newReplica(t, h.genesis), name: name, own: state.Writer{Author: id(name), Incarnation: 1}}
		n.skew = rapid.SampledFrom([]int64{0, 0, -5000, 30_000}).Draw(t, "skew")
		n.offer(h.genesis)
		h.nodes = append(h.nodes, n)
	}
	h.nodes[0].last = h.genesis
	if rapid.IntRange(0, 4).Draw(t, "usual") > 0 { // usually everybody may write from the start
		roles := rapid.SampledFrom([]roster.Role{roster.Writer, roster.Admin, roster.Owner})
		for _, n := range h.nodes[1:] {
			h.write(h.nodes[0], grant(t, n.name, max(roster.Writer, roles.Draw(t, "role"))))
		}
		for _, n := range h.nodes[1:] {
			n.offer(h.all...)
		}
	}
	return h
}

// draw grows a history by some steps.
func (h *history) draw(steps int) {
	for range rapid.IntRange(1, steps).Draw(h.t, "steps") {
		n := rapid.SampledFrom(h.nodes).Draw(h.t, "who")
		switch rapid.IntRange(0, 19).Draw(h.t, "step") {
		case 0, 1, 2, 3:
			h.hear(n)
		case 4:
			h.restart(n)
		case 5:
			h.fork(n)
		case 6, 7:
			h.write(n, h.membership(n)...)
		case 8:
			h.write(n, h.bad(n))
		case 9:
			h.future(n)
		case 10:
			h.odd(n)
		case 11:
			n.replica.restart()
		case 12:
			h.copy(n)
		case 13:
			h.write(n, h.report(n))
		default:
			h.write(n, h.ops(n)...)
		}
	}
}

// hear tells a node some of what there is.
func (h *history) hear(n *node) {
	for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(h.all)-1), 1, 8).Draw(h.t, "hears") {
		n.offer(h.all[max(0, i-2) : i+1]...)
	}
}

// next is what a node's next entry begins with.
func (h *history) next(n *node) sigchain.Entry {
	prev := n.last.Link()
	e := sigchain.Entry{Store: h.genesis.Home(), Incarnation: n.own.Incarnation, Seq: 1, Prev: prev, Parents: n.m.Parents(n.own, prev)}
	if prev.Incarnation == n.own.Incarnation {
		e.Seq = prev.Seq + 1
	}
	e.Parents = slices.DeleteFunc(e.Parents, func(p sigchain.Ref) bool { // after a fork the fold may be further
		return writerOf(p.Place()) == n.own && p.Seq >= e.Seq
	})
	e.Time = max(n.last.Time+1, uint64(clock.At(n.now+n.skew, 0)))
	return e
}

func (h *history) publish(n *node, e sigchain.Entry) sigchain.Signed {
	s := sign(h.t, n.name, e)
	h.all = append(h.all, s)
	n.last = s
	n.offer(s)
	return s
}

func (h *history) write(n *node, ops ...sigchain.Op) {
	e := h.next(n)
	e.Ops = ops
	h.publish(n, e)
}

// ops draws operations on state, of all types, as they can be written by one that
// sees what the node has folded.
func (h *history) ops(n *node) []sigchain.Op {
	scratch := n.space.Join(&state.Space{})
	seq := h.next(n).Seq
	var ops []sigchain.Op
	for i := range rapid.IntRange(1, 3).Draw(h.t, "operations") {
		d := state.Dot{Writer: n.own, Seq: seq, Index: uint32(i)}
		op := statetest.Op(h.t, statetest.Mixed, scratch, d, n.now)
		scratch.Apply(op, d, 0)
		enc, err := op.Encode(n.own)
		if err != nil {
			h.t.Fatal(err)
		}
		ops = append(ops, enc)
	}
	return ops
}

func (h *history) membership(n *node) []sigchain.Op {
	of := rapid.SampledFrom(h.nodes).Draw(h.t, "member")
	if rapid.Bool().Draw(h.t, "grants") {
		return []sigchain.Op{grant(h.t, of.name, rapid.SampledFrom([]roster.Role{roster.Reader, roster.Writer, roster.Admin, roster.Owner}).Draw(h.t, "role"))}
	}
	rm := roster.Remove{Author: id(of.name)}
	for _, w := range n.chainsOf(id(of.name)) {
		if tip := n.m.Tip(w); tip.Seq > 0 && rapid.IntRange(0, 3).Draw(h.t, "cut") > 0 {
			tip.Seq = rapid.Uint64Range(1, tip.Seq).Draw(h.t, "last")
			rm.Cut = append(rm.Cut, tip)
		}
	}
	op, err := rm.Op()
	if err != nil {
		h.t.Fatal(err)
	}
	return append(h.ops(n)[:rapid.IntRange(0, 1).Draw(h.t, "beside")], op)
}

func (r *replica) chainsOf(a lattice.AuthorID) []state.Writer {
	var all []state.Writer
	for p := range r.entered {
		if p.Author == a {
			all = append(all, writerOf(p))
		}
	}
	slices.SortFunc(all, state.Writer.Compare)
	return slices.Compact(all)
}

// bad is an operation that makes an entry void, or that is not known yet.
func (h *history) bad(n *node) sigchain.Op {
	other := rapid.SampledFrom(h.all).Draw(h.t, "names")
	switch rapid.IntRange(0, 5).Draw(h.t, "bad") {
	case 0:
		return sigchain.Op{Kind: 0xfffe}
	case 1:
		return sigchain.Op{Kind: state.KindPut, Body: []byte{1, 0}}
	}
	p := &state.Put{Address: state.Address{Map: "0", Key: []byte("a"), Kind: state.Register}, Supersedes: []state.Dot{dotOf(other, 0)}}
	op, err := p.Encode(n.own)
	if err != nil {
		h.t.Fatal(err)
	}
	return op
}

// restart begins an incarnation: usually after the last entry, sometimes of a
// restored or copied directory, or of one that lost everything.
func (h *history) restart(n *node) {
	if n.last.Seq == 0 {
		return
	}
	var own []sigchain.Signed
	highest := n.own.Incarnation
	for _, s := range h.all {
		if s.Author == n.own.Author {
			own = append(own, s)
			highest = max(highest, s.Incarnation)
		}
	}
	n.own.Incarnation = highest + rapid.Uint64Range(1, 3).Draw(h.t, "incarnation")
	switch rapid.IntRange(0, 5).Draw(h.t, "restored") {
	case 0:
		n.last = rapid.SampledFrom(own).Draw(h.t, "backup")
	case 1:
		n.last = sigchain.Signed{}
		n.own.Incarnation = rapid.Uint64Range(1, n.own.Incarnation).Draw(h.t, "anew")
		if slices.ContainsFunc(own, func(s sigchain.Signed) bool { return s.Incarnation == n.own.Incarnation }) {
			n.own.Incarnation = highest + 1
		}
	}
	h.write(n, h.ops(n)...)
}

// copy starts a copy of a node's directory; both go on.
func (h *history) copy(n *node) {
	if n.last.Seq == 0 || len(h.nodes) > 6 {
		return
	}
	c := &node{replica: newReplica(h.t, h.genesis), name: n.name, own: n.own, last: n.last, skew: n.skew}
	c.offer(n.log...)
	h.nodes = append(h.nodes, c)
	for _, s := range h.all {
		if s.Author == n.own.Author {
			c.own.Incarnation = max(c.own.Incarnation, s.Incarnation)
		}
	}
	c.own.Incarnation++
	h.write(c, h.ops(c)...)
}

// fork signs another entry in the place of one, and perhaps goes on from it.
func (h *history) fork(n *node) {
	var own []sigchain.Signed
	for _, s := range h.all {
		if s.Author == n.own.Author && s.Store == h.genesis.Home() {
			own = append(own, s)
		}
	}
	if len(own) == 0 {
		return
	}
	s := rapid.SampledFrom(own).Draw(h.t, "place")
	e := s.Entry
	e.Ops = []sigchain.Op{set(h.t, n.name, s.Incarnation, "a", fmt.Sprint("fork ", len(h.all)))}
	other := sign(h.t, n.name, e)
	h.all = append(h.all, other)
	if rapid.Bool().Draw(h.t, "go on") {
		n.last, n.own.Incarnation = other, other.Incarnation
	}
	if rapid.Bool().Draw(h.t, "tell") {
		n.offer(other)
	}
}

// future writes an entry that is further ahead than may be.
func (h *history) future(n *node) {
	e := h.next(n)
	e.Time = uint64(clock.At(n.now+rapid.Int64Range(driftMs, 10*driftMs).Draw(h.t, "ahead"), 0))
	e.Ops = h.ops(n)
	h.publish(n, e)
}

// odd writes an entry whose links are chosen at random.
func (h *history) odd(n *node) {
	e := h.next(n)
	e.Ops = h.ops(n)
	some := rapid.SampledFrom(h.all)
	for range rapid.IntRange(0, 2).Draw(h.t, "parents") {
		p := some.Draw(h.t, "parent").Ref()
		if rapid.IntRange(0, 3).Draw(h.t, "never") == 0 {
			p.Seq += 50
		}
		if p.Author != n.own.Author || p.Incarnation < e.Incarnation {
			e.Parents = append(e.Parents, p)
		}
	}
	slices.SortFunc(e.Parents, sigchain.Ref.Compare)
	e.Parents = slices.Compact(e.Parents)
	if prev := some.Draw(h.t, "prev"); rapid.Bool().Draw(h.t, "another") {
		if e.Seq > 1 {
			e.Prev.ID = prev.ID
		} else if prev.Incarnation < e.Incarnation {
			e.Prev = prev.Link()
		}
	}
	if rapid.Bool().Draw(h.t, "late") && e.Seq > 1 {
		e.Time = n.last.Time
	}
	h.publish(n, e)
}

// deliver offers entries to a new replica in any order, with repetitions, ends of
// the process and a clock that moves; what is refused is offered again.
func (h *history) deliver(all []sigchain.Signed, until int64) *replica {
	return h.deliverOn(nil, all, until)
}

// deliverOn is deliver to a replica that begins from a snapshot.
func (h *history) deliverOn(base *snap, all []sigchain.Signed, until int64) *replica {
	r := newReplica(h.t, h.genesis)
	if base != nil {
		r.begin(base)
	}
	r.now = startMs + rapid.Int64Range(0, 2000).Draw(h.t, "clock")
	tight := rapid.Bool().Draw(h.t, "tight")
	left := rapid.Permutation(all).Draw(h.t, "order")
	for range rapid.IntRange(0, 3).Draw(h.t, "duplicates") {
		left = append(left, rapid.SampledFrom(all).Draw(h.t, "again"))
	}
	for i, s := range left {
		if tight {
			r.m.config.Limits = Limits{Entries: 3, Bytes: 4000, AuthorEntries: 2, AuthorBytes: 4000}
		}
		r.try(s)
		switch rapid.IntRange(0, 29).Draw(h.t, "then") {
		case 0:
			r.restart()
		case 1:
			r.advance(min(rapid.Int64Range(0, 2*driftMs).Draw(h.t, "moves"), until-r.now))
		case 2:
			r.checkRecords()
		}
		_ = i
	}
	r.m.config.Limits = Limits{Entries: 1000, Bytes: 1 << 20, AuthorEntries: 1000, AuthorBytes: 1 << 20}
	r.advance(until - r.now)
	for _, s := range all {
		r.try(s)
	}
	r.checkRecords()
	return r
}

// because says what each waits for.
func (r *replica) because() string {
	var b strings.Builder
	for w := range r.m.Waiting {
		fmt.Fprintf(&b, "%s %s for %v, time %d, parents %v; ", w.Entry.Ref().Place(), w.Status, w.For, clock.Timestamp(w.Entry.Time).Milli()-r.now, w.Entry.Parents)
	}
	return b.String()
}

// story tells entries for a person who looks for a mistake.
func (h *history) story() string {
	var b strings.Builder
	for _, s := range h.all {
		fmt.Fprintf(&b, "%s %s at %d", s.Ref().Place(), s.ID.Short(), clock.Timestamp(s.Time).Milli()-startMs)
		if !s.Prev.IsZero() {
			fmt.Fprintf(&b, " after %d/%d", s.Prev.Incarnation, s.Prev.Seq)
		}
		for _, p := range s.Parents {
			fmt.Fprintf(&b, " <- %s", p.Place())
		}
		for _, op := range s.Ops {
			if x, err := state.ParseOp(op, writerOf(s.Ref().Place())); err == nil {
				fmt.Fprintf(&b, "\n   %T%+v", x, x)
			} else {
				fmt.Fprintf(&b, "\n   kind %d %x", op.Kind, op.Body)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// try offers an entry that may be refused for now.
func (r *replica) try(s sigchain.Signed) {
	r.log = append(r.log, s)
	e, err := r.m.Offer(s, r.now)
	if err != nil && !errors.Is(err, ErrFull) {
		r.t.Fatal(err)
	}
	r.apply(e)
	r.rebuild()
}

// TestConvergence: whatever several authors write, and however it reaches a
// replica, what has an effect and every row is the same, and as the model has it.
func TestConvergence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t)
		h.draw(40)
		all := slices.DeleteFunc(slices.Clone(h.all), func(s sigchain.Signed) bool {
			return s.ID != h.genesis.ID && rapid.IntRange(0, 40).Draw(t, "lost") == 0
		})
		until := startMs + rapid.SampledFrom([]int64{3000, 20 * driftMs}).Draw(t, "until")
		m := newModel(h.genesis.Author, all, until)
		space, err := m.space()
		if err != nil {
			t.Fatal(err)
		}
		want := (&replica{t: t, space: space}).rows()
		for range 3 {
			r := h.deliver(all, until)
			if got := r.effective(); !slices.Equal(got, m.effective()) {
				t.Fatalf("with an effect:\n%v\nwant\n%v\nvoid: %v", got, m.effective(), r.void)
			}
			if got := r.waits(); !slices.Equal(got, m.waits()) {
				t.Fatalf("waiting:\n%v\nwant\n%v\nforks %v, %s", got, m.waits(), m.forks, r.because())
			}
			if got := r.rows(); got != want {
				t.Fatalf("rows:\n%s\nwant\n%s\norder %v\nmodel %v\n%s", got, want, r.order, places(m.order), h.story())
			}
			for _, n := range names {
				if got, want := r.m.ForkOf(id(n)), m.forks[id(n)]; got != want {
					t.Fatalf("%s is frozen at %v, want %v", n, got, want)
				}
			}
		}
	})
}
