package keyval

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// dump returns every row as a transaction reads it, one a line.
func (n *node) dump() string {
	n.t.Helper()
	var b strings.Builder
	tk, err := n.View(func(tx *Tx) error {
		for _, m := range []string{"", "0", "one"} {
			var keys []string
			if err := tx.Keys(m, nil, func(key []byte, _ structs.Key) bool {
				keys = append(keys, string(key))
				return true
			}); err != nil {
				return err
			}
			for _, key := range keys {
				for k := state.Register; k < state.Kinds; k++ {
					if err := tx.Scan(m, []byte(key), k, nil, false, func(sub []byte, r state.Row) bool {
						fmt.Fprintf(&b, "%q %q %s %q %x\n", m, key, k, sub, r.AppendTo(nil))
						return true
					}); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	n.must(err)
	n.must(tk.Wait(context.Background()))
	return b.String()
}

func dumpOf(s *state.Space) string {
	var b strings.Builder
	for a, r := range s.Rows {
		fmt.Fprintf(&b, "%q %q %s %q %x\n", a.Map, a.Key, a.Kind, a.Sub, r.AppendTo(nil))
	}
	return b.String()
}

// entries returns everything in the logs, each log's in order.
func (n *node) entries() [][]sigchain.Signed {
	n.t.Helper()
	var out [][]sigchain.Signed
	for _, l := range n.logs.all() {
		var chain []sigchain.Signed
		first, last := l.Bounds()
		n.must(l.Scan(first, min(last, l.Durable()), func(s sigchain.Signed) error {
			chain = append(chain, s)
			return nil
		}))
		out = append(out, chain)
	}
	return out
}

// receive gives a node entries in an order that keeps each chain's, cut into
// pieces, and offers what was refused again until nothing more is taken.
func (n *node) receive(rng *rand.Rand, chains [][]sigchain.Signed) {
	n.t.Helper()
	chains = append([][]sigchain.Signed(nil), chains...)
	var again []sigchain.Signed
	for {
		var piece []sigchain.Signed
		for range 1 + rng.IntN(20) {
			if i := rng.IntN(len(chains)); len(chains[i]) > 0 {
				k := 1 + rng.IntN(min(3, len(chains[i])))
				piece, chains[i] = append(piece, chains[i][:k]...), chains[i][k:]
			}
		}
		left := 0
		for _, c := range chains {
			left += len(c)
		}
		retry := len(piece) == 0 && left == 0
		if retry {
			if len(again) == 0 {
				return
			}
			piece, again = again, nil
		}
		got, err := n.Receive(piece)
		n.must(err)
		progress := false
		for i, r := range got {
			progress = progress || r.Err == nil
			if k := lattice.KindOf(r.Err); r.Err != nil && (k == lattice.NotYet || k == lattice.Denied) {
				again = append(again, piece[i])
			} else if r.Err != nil {
				n.t.Fatalf("entry %d of %s: %v", piece[i].Seq, piece[i].Author.Short(), r.Err)
			}
		}
		if retry && len(again) > 0 && !progress {
			n.t.Fatalf("%d entries are never taken", len(again))
		}
	}
}

// admit has the owner make authors writers.
func (n *node) admit(authors ...byte) {
	n.t.Helper()
	n.must(n.update(func(tx *Tx) error {
		for _, a := range authors {
			op, err := roster.Member{Author: keyOf(a).Author(), Role: roster.Writer}.Op()
			if err != nil {
				return err
			}
			if err := tx.Append(op); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestWorld has three nodes write, restart, lose their fold databases and exchange
// entries in random pieces. In the end all hold the same, which is the plain fold
// of all entries, and what a new node comes to that gets them in another order.
func TestWorld(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runWorld(t, seed) })
	}
}

func runWorld(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	clock := tick.NewManual(testEpoch)
	var fss [3]disk.FS
	var nodes [3]*node
	inc := uint64(2)
	open := func(i int) {
		o := options(fss[i], byte(i), inc, clock)
		if rng.IntN(2) == 0 {
			o.CacheBytes = 1
		}
		inc++
		nodes[i] = start(t, o)
	}
	for i := range nodes {
		fss[i] = disk.NewMem()
		open(i)
	}
	if err := nodes[1].update(func(tx *Tx) error { return change(tx, rand.New(rand.NewPCG(9, 9))) }); lattice.KindOf(err) != lattice.Denied {
		t.Fatalf("a node that is no member writes: %v", err)
	}
	nodes[0].admit(1, 2)
	nodes[1].receive(rng, nodes[0].entries())
	nodes[2].receive(rng, nodes[0].entries())
	for range 120 {
		i := rng.IntN(3)
		switch rng.IntN(12) {
		case 0:
			nodes[i].close()
			if rng.IntN(2) == 0 {
				nodes[i].must(fss[i].RemoveAll("/store/state"))
			}
			open(i)
		case 1, 2:
			nodes[i].receive(rng, nodes[rng.IntN(3)].entries())
		case 3, 4:
			clock.Advance(time.Duration(rng.IntN(1000)) * time.Millisecond)
		default:
			nodes[i].must(nodes[i].update(func(tx *Tx) error {
				for range 1 + rng.IntN(5) {
					if err := change(tx, rng); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	for range 2 {
		for i := range nodes {
			for j := range nodes {
				nodes[i].receive(rng, nodes[j].entries())
			}
		}
	}
	var m model
	m.follow(nodes[0])
	want := dumpOf(&m.space)
	fresh := start(t, options(disk.NewMem(), 9, inc, clock))
	fresh.receive(rng, nodes[1].entries())
	for i, n := range []*node{nodes[0], nodes[1], nodes[2], fresh} {
		if got := n.dump(); got != want {
			t.Errorf("node %d holds\n%s\nwant\n%s", i, got, want)
		}
		if n.root() != rootOf(&m.space) {
			t.Errorf("node %d has another root", i)
		}
		if s := n.Status(); s.Waiting+s.Held+s.Equivocations != 0 || s.Failed != "" {
			t.Errorf("node %d: %+v", i, s)
		}
		tk, err := n.View(func(tx *Tx) error { return m.compare(tx, rng) })
		if err = errors.Join(err, tk.Wait(context.Background())); err != nil {
			t.Errorf("node %d: %v", i, err)
		}
		n.close()
	}
}

// member adds an entry of another author to its chain, as a node elsewhere would.
func foreign(t testing.TB, author byte, prev sigchain.Signed, time uint64, parents []sigchain.Ref, ops ...sigchain.Op) sigchain.Signed {
	t.Helper()
	e := sigchain.Entry{Store: genesis.Home(), Incarnation: 77, Seq: 1, Time: time, Parents: parents, Ops: ops}
	if prev.Seq > 0 {
		e.Seq, e.Prev = prev.Seq+1, prev.Link()
	}
	s, err := sigchain.Sign(keyOf(author), e)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func putOp(t testing.TB, author byte, key, value string) sigchain.Op {
	t.Helper()
	op, err := (&state.Put{Address: reg(key), Payload: state.Payload{Bytes: []byte(value)}}).Encode(state.Writer{Author: keyOf(author).Author(), Incarnation: 77})
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func (n *node) one(s sigchain.Signed) Received {
	n.t.Helper()
	r, err := n.Receive([]sigchain.Signed{s})
	n.must(err)
	return r[0]
}

// TestHostile: what may not be here is refused by name, and counted; nothing of it
// stays.
func TestHostile(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	n := start(t, options(disk.NewMem(), 0, 2, clock))
	n.admit(1)
	now := uint64(testEpoch.UnixMilli()) << 16
	first := foreign(t, 1, sigchain.Signed{}, now+1, n.tipsOf(0), putOp(t, 1, "a", "1"))
	broken := first
	broken.Signature[3] ^= 1
	other, err := sigchain.Sign(keyOf(1), sigchain.Entry{Store: lattice.StoreID{1}, Incarnation: 77, Seq: 1, Time: now})
	n.must(err)
	for _, tc := range []struct {
		what string
		s    sigchain.Signed
		want error
	}{
		{"a stranger", foreign(t, 5, sigchain.Signed{}, now, nil), ErrStranger},
		{"another store", other, fold.ErrForeign},
		{"a gap", foreign(t, 1, first, now+2, nil), sigchain.ErrGap},
		{"this incarnation", must(sigchain.Sign(keyOf(0), sigchain.Entry{Store: genesis.Home(), Incarnation: 2, Seq: 9, Time: now, Prev: sigchain.Link{Incarnation: 2, Seq: 8, ID: lattice.Hash{1}}})), sigchain.ErrGap},
		{"a later incarnation", must(sigchain.Sign(keyOf(0), sigchain.Entry{Store: genesis.Home(), Incarnation: 3, Seq: 1, Time: now})), ErrOwn},
	} {
		if r := n.one(tc.s); !errors.Is(r.Err, tc.want) || r.Status != 0 {
			t.Errorf("%s: %v, %v; want %v", tc.what, r.Status, r.Err, tc.want)
		}
	}
	if s := n.Status(); s.Refused != 5 || s.Writers != 2 {
		t.Errorf("%+v", s)
	}
	if r := n.one(first); r.Status != fold.Entered {
		t.Fatalf("the good one: %v, %v", r.Status, r.Err)
	}
	if r := n.one(first); r.Status != fold.Known {
		t.Fatalf("the good one again: %v, %v", r.Status, r.Err)
	}
	if n.get("a") != "1" {
		t.Fatalf("a is %q", n.get("a"))
	}
	n.close()
}

func must(s sigchain.Signed, err error) sigchain.Signed {
	if err != nil {
		panic(err)
	}
	return s
}

// tipsOf returns the last folded entry of every chain of an author.
func (n *node) tipsOf(author byte) []sigchain.Ref {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var out []sigchain.Ref
	for _, l := range n.logs.all() {
		if w := l.Writer(); w.Author == keyOf(author).Author() {
			out = append(out, sigchain.Ref{Author: w.Author, Link: n.machine.Tip(w)})
		}
	}
	return out
}

// TestHeldAndWaiting: an entry from the future waits for the clock, and one whose
// parent is missing for that; both survive a restart, and neither stalls others.
func TestHeldAndWaiting(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	fs := disk.NewMem()
	n := start(t, options(fs, 0, 2, clock))
	n.admit(1, 2, 3)
	now := uint64(testEpoch.UnixMilli()) << 16
	grant := n.tipsOf(0)
	future := foreign(t, 1, sigchain.Signed{}, uint64(testEpoch.Add(5*time.Minute).UnixMilli())<<16, grant, putOp(t, 1, "f", "future"))
	parent := foreign(t, 2, sigchain.Signed{}, now+1, grant, putOp(t, 2, "p", "parent"))
	child := foreign(t, 3, sigchain.Signed{}, now+2, append(grant, parent.Ref()), putOp(t, 3, "c", "child"))
	if r := n.one(future); r.Status != fold.Held {
		t.Fatalf("from the future: %v, %v", r.Status, r.Err)
	}
	if r := n.one(child); r.Status != fold.Waits {
		t.Fatalf("without its parent: %v, %v", r.Status, r.Err)
	}
	n.set("mine", "1")
	check := func(f, c, p string, held, waiting int) {
		t.Helper()
		if n.get("f") != f || n.get("c") != c || n.get("p") != p || n.get("mine") != "1" {
			t.Errorf("f=%q c=%q p=%q mine=%q", n.get("f"), n.get("c"), n.get("p"), n.get("mine"))
		}
		if s := n.Status(); s.Held != held || s.Waiting != waiting {
			t.Errorf("%+v, want %d held, %d waiting", s, held, waiting)
		}
	}
	check("", "", "", 1, 1)
	n.close()
	n = start(t, options(fs, 0, 3, clock))
	check("", "", "", 1, 1)
	if r := n.one(parent); r.Status != fold.Entered {
		t.Fatalf("the parent: %v, %v", r.Status, r.Err)
	}
	check("", "child", "parent", 1, 0)
	clock.Advance(3 * time.Minute)
	check("", "child", "parent", 1, 0)
	clock.Advance(2 * time.Minute)
	n.wait(func() bool { return n.get("f") == "future" })
	check("future", "child", "parent", 0, 0)
	n.set("after", "1") // names it as a parent
	n.close()
	n.must(fs.RemoveAll("/store/state"))
	n = start(t, options(fs, 0, 4, clock))
	check("future", "child", "parent", 0, 0)
	n.close()
}

// wait waits until a condition holds, as long as the test may take.
func (n *node) wait(cond func() bool) {
	n.t.Helper()
	for range 6000 {
		if cond() {
			return
		}
		time.Sleep(10 * time.Millisecond)
		n.clock.Advance(time.Second)
	}
	n.t.Fatal("it never happens")
}

// TestFork: an author signs two entries for one place. Whatever came first, and
// whether others had built on it, both nodes come to the same: nothing of the
// author counts from there on, everybody else goes on, and the proof is kept.
func TestFork(t *testing.T) {
	clock := tick.NewManual(testEpoch)
	fss := []disk.FS{disk.NewMem(), disk.NewMem()}
	a := start(t, options(fss[0], 0, 2, clock))
	a.admit(1, 2)
	b := start(t, options(fss[1], 2, 3, clock))
	rng := rand.New(rand.NewPCG(1, 1))
	b.receive(rng, a.entries())
	now := uint64(testEpoch.UnixMilli())<<16 + 1000
	grant := a.tipsOf(0)
	one := foreign(t, 1, sigchain.Signed{}, now, grant, putOp(t, 1, "k", "before"))
	left := foreign(t, 1, one, now+1, nil, putOp(t, 1, "k", "left"))
	right := foreign(t, 1, one, now+2, nil, putOp(t, 1, "k", "right"))
	onLeft := foreign(t, 1, left, now+3, nil, putOp(t, 1, "k", "on the left"))
	for _, s := range []sigchain.Signed{one, left, onLeft} {
		if r := a.one(s); r.Status != fold.Entered {
			t.Fatalf("%v, %v", r.Status, r.Err)
		}
	}
	for _, s := range []sigchain.Signed{one, right} {
		if r := b.one(s); r.Status != fold.Entered {
			t.Fatalf("%v, %v", r.Status, r.Err)
		}
	}
	a.set("other", "a")
	b.set("more", "b")
	for _, n := range []*node{a, b} {
		for _, s := range []sigchain.Signed{left, right, onLeft} {
			n.one(s)
		}
	}
	a.receive(rng, chainsOf(b, 2))
	b.receive(rng, chainsOf(a, 0))
	check := func(n *node) {
		t.Helper()
		if got := n.dump(); got != a.dump() {
			t.Errorf("one holds\n%s\nthe other\n%s", got, a.dump())
		}
		if n.get("k") != "before" || n.get("other") != "a" || n.get("more") != "b" {
			t.Errorf("k=%q other=%q more=%q", n.get("k"), n.get("other"), n.get("more"))
		}
		if s := n.Status(); s.Equivocations != 1 || s.Failed != "" || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
		proof := 0
		n.must(n.Forks(func(s sigchain.Signed) error {
			if s.ID == left.ID || s.ID == right.ID {
				proof++
			}
			return nil
		}))
		if proof != 2 {
			t.Errorf("%d entries of the proof are kept", proof)
		}
	}
	check(a)
	check(b)
	for i, n := range []*node{a, b} {
		n.close()
		if i == 1 {
			n.must(fss[i].RemoveAll("/store/state"))
		}
	}
	a = start(t, options(fss[0], 0, 12, clock))
	b = start(t, options(fss[1], 2, 13, clock))
	check(a)
	check(b)
	a.set("other", "a") // goes on
	a.close()
	b.close()
}

// TestForkInOneBatch: both entries for one place come together, in either order, with
// what stands on one of them.
func TestForkInOneBatch(t *testing.T) {
	for _, flip := range []bool{false, true} {
		n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
		n.admit(1)
		now := uint64(testEpoch.UnixMilli())<<16 + 1000
		one := foreign(t, 1, sigchain.Signed{}, now, n.tipsOf(0), putOp(t, 1, "k", "before"))
		left := foreign(t, 1, one, now+1, nil, putOp(t, 1, "k", "left"))
		right := foreign(t, 1, one, now+2, nil, putOp(t, 1, "k", "right"))
		onLeft := foreign(t, 1, left, now+3, nil, putOp(t, 1, "k", "on the left"))
		all := []sigchain.Signed{one, left, right, onLeft}
		if flip {
			all = []sigchain.Signed{one, right, left, onLeft}
		}
		_, err := n.Receive(all)
		n.must(err)
		n.set("mine", "1")
		if n.get("k") != "before" || n.get("mine") != "1" {
			t.Errorf("flipped %v: k=%q mine=%q", flip, n.get("k"), n.get("mine"))
		}
		if s := n.Status(); s.Equivocations != 1 || s.Failed != "" || s.Waiting != 0 {
			t.Errorf("flipped %v: %+v", flip, s)
		}
		n.close()
	}
}

// chainsOf returns the entries of one author.
func chainsOf(n *node, author byte) [][]sigchain.Signed {
	var out [][]sigchain.Signed
	for _, c := range n.entries() {
		if len(c) > 0 && c[0].Author == keyOf(author).Author() {
			out = append(out, c)
		}
	}
	return out
}
