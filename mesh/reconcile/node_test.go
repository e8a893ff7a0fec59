package reconcile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// start makes a node's memory from its disk.
func (n *node) start() {
	n.store, n.reads = nil, nil
	m, err := fold.New(fold.Config{
		Genesis: n.genesis, MaxDriftMs: 1 << 40, Limits: fold.Limits{Entries: 1 << 20, Bytes: 1 << 30, AuthorEntries: 1 << 20, AuthorBytes: 1 << 30},
		Entry: func(p sigchain.Place) (sigchain.Signed, bool, error) {
			l := n.disk.logs[logOf(p)]
			if p.Seq > uint64(len(l)) {
				return sigchain.Signed{}, false, nil
			}
			return l[p.Seq-1], true, nil
		},
	})
	n.check(err)
	n.m, n.space, n.void = m, &state.Space{}, 0
	n.refold()
	c := Config{
		Store: n.genesis.Home(), Node: n.key.Author(), Session: 1,
		Admit: func(a lattice.AuthorID) error {
			if a == n.genesis.Author || len(n.m.Roster().GrantsTo(a)) > 0 {
				return nil
			}
			return lattice.E(lattice.Denied, fmt.Errorf("%s is no member", a.Short()))
		},
		Entitled: entitled,
	}
	if n.config != nil {
		n.config(&c)
	}
	n.r, err = New(c, n.inventory(), n.now)
	n.check(err)
}

func (n *node) inventory() Inventory {
	var inv Inventory
	for _, w := range slices.SortedFunc(maps.Keys(n.disk.logs), state.Writer.Compare) {
		if l := n.disk.logs[w]; len(l) > 0 {
			tip := l[len(l)-1]
			inv.Logs = append(inv.Logs, Have{w, tip.Link(), tip.Time, n.disk.base[w] + 1})
		}
	}
	for _, f := range n.disk.forks {
		inv.Forks = append(inv.Forks, f.A.Ref().Place())
	}
	for tp, s := range n.disk.parts {
		inv.Partitions = append(inv.Partitions, Statements{tp, s})
	}
	return inv
}

// refold folds all that is on the disk.
func (n *node) refold() {
	for range 4 {
		n.space, n.void = &state.Space{}, 0
		for _, f := range n.disk.forks {
			e, err := n.m.Forked(f.A, f.B)
			n.check(err)
			n.apply(e)
		}
		for _, w := range slices.SortedFunc(maps.Keys(n.disk.logs), state.Writer.Compare) {
			for _, s := range n.disk.logs[w] {
				e, err := n.m.Offer(s, n.now)
				n.check(err)
				n.apply(e)
			}
		}
		if !n.m.Stale() {
			return
		}
		n.m.Reset()
	}
	n.t.Fatal("a rebuild asks for a rebuild, again and again")
}

func (n *node) apply(e fold.Effects) {
	for _, f := range e.Fold {
		s := f.Entry
		if f.Void != nil {
			n.void++
			continue
		}
		for i, op := range f.Ops {
			if op != nil {
				n.space.Apply(op, state.Dot{Writer: state.Writer{Author: s.Author, Incarnation: s.Incarnation}, Seq: s.Seq, Index: uint32(i)}, s.Time)
			}
		}
	}
	n.m.Changes()
}

// judged says what came of all entries.
func (n *node) judged() string {
	var b strings.Builder
	for _, w := range slices.SortedFunc(maps.Keys(n.disk.logs), state.Writer.Compare) {
		fmt.Fprintf(&b, "%s:", n.logText(w))
		for _, s := range n.disk.logs[w] {
			e, err := n.m.Offer(s, n.now)
			fmt.Fprintf(&b, " %d %s %v %v", s.Seq, s.ID.Short(), e.Status, err)
		}
		fmt.Fprintln(&b)
	}
	return fmt.Sprintf("void %d\n%s%s", n.void, b.String(), n.rows())
}

// rows is the node's state as text.
func (n *node) rows() string {
	var b bytes.Buffer
	for a, row := range n.space.Rows {
		fmt.Fprintf(&b, "%s %q %x\n", a.Map, a.Key, row.AppendTo(nil))
	}
	return b.String()
}

// write appends entries of its own, durably.
func (n *node) write(count, size int, ops ...sigchain.Op) {
	for i := range count {
		l := n.disk.logs[n.own]
		e := sigchain.Entry{Store: n.genesis.Home(), Incarnation: n.own.Incarnation, Seq: uint64(len(l)) + 1, Time: uint64(clock.At(n.now, 0)) + uint64(len(l))}
		if len(l) > 0 {
			e.Prev = l[len(l)-1].Link()
			e.Time = max(e.Time, l[len(l)-1].Time+1)
		} else {
			e.Parents = n.m.Roster().GrantsTo(n.own.Author)
			for inc := n.own.Incarnation - 1; inc > 0 && e.Prev.IsZero(); inc-- {
				if before := n.disk.logs[state.Writer{Author: n.own.Author, Incarnation: inc}]; len(before) > 0 {
					e.Prev = before[len(before)-1].Link()
					e.Time = max(e.Time, before[len(before)-1].Time+1)
				}
			}
		}
		if e.Ops = ops; len(ops) == 0 {
			e.Ops = []sigchain.Op{n.put(n.own, fmt.Sprintf("%s%d", n.name, (len(l)+i)%7), strings.Repeat("v", size))}
		}
		s := n.sign(n.name, e)
		n.disk.logs[n.own] = append(l, s)
		eff, err := n.m.Offer(s, n.now)
		n.check(err)
		n.apply(eff)
	}
	l := n.disk.logs[n.own]
	n.disk.notes[n.own] = n.checkpoint(n.own, n.key)
	tip := l[len(l)-1]
	n.do(n.r.Appended(n.own, tip.Link(), tip.Time, n.now))
}

// checkpoint signs what is here of a log.
func (n *node) checkpoint(w state.Writer, key identity.Key) []byte {
	l := n.disk.logs[w]
	tree := treeOf(l, uint64(len(l)))
	note, err := merkle.SignCheckpoint(key, merkle.Checkpoint{
		Origin: merkle.Origin(n.genesis.Home(), logName(w)), Size: tree.Size(), Root: tree.Root(), End: int64(len(l)), Incarnation: w.Incarnation, Time: l[len(l)-1].Time,
	})
	n.check(err)
	return note
}

func treeOf(l []sigchain.Signed, size uint64) *merkle.Appender {
	a := merkle.NewAppender(merkle.Range{})
	for _, s := range l[:size] {
		a.Append(nil, sigchain.Leaf(s).Hash())
	}
	return a
}

// leaves computes nodes of a tree, slowly.
type leaves []sigchain.Signed

func (l leaves) Node(level uint, index uint64) (lattice.Hash, error) {
	if level == 0 {
		return sigchain.Leaf(l[index]).Hash(), nil
	}
	a, _ := l.Node(level-1, 2*index)
	b, _ := l.Node(level-1, 2*index+1)
	return merkle.NodeHash(a, b), nil
}

// do takes effects: what is to be stored or read waits for its turn.
func (n *node) do(e Effects) {
	for _, l := range n.r.logs {
		if here := uint64(len(n.disk.logs[l.writer])); l.durable.Tip.Seq > here {
			n.t.Fatalf("%s claims entry %d of %s, and has %d", n.name, l.durable.Tip.Seq, n.logText(l.writer), here)
		}
	}
	n.store, n.reads = append(n.store, e.Store...), append(n.reads, e.Read...)
	for _, x := range e.Refused {
		n.refused[x.Reason]++
		who := "?"
		if p := n.byID(x.Peer); p != nil {
			who = p.name
		}
		what := ""
		if x.Seq != 0 {
			what = fmt.Sprintf(" %s:%d", n.logText(x.Log), x.Seq)
		}
		n.trace(fmt.Sprintf("%s refuses %s%s: %s", n.name, who, what, x.Reason))
	}
	n.proves = append(n.proves, e.Prove...)
	for _, s := range e.Snapshots {
		n.trace(fmt.Sprintf("%s needs a snapshot of %s for %s, which begins at %d there", n.name, n.byID(s.Peer).name, n.logText(s.Log), s.First))
	}
	for _, s := range e.Send {
		to := n.byID(s.To)
		if to == nil || !n.reach[to] {
			continue
		}
		all := []Message{s.Message}
		if n.lie != nil {
			all = n.lie(to, s.Message)
		}
		for _, m := range all {
			to.inbox[n] = append(to.inbox[n], Encode(m))
		}
	}
	for _, d := range e.Drop {
		n.drops++
		n.trace(fmt.Sprintf("%s drops %s: %s", n.name, n.byID(d.Peer).name, d.Reason))
		n.reach[n.byID(d.Peer)] = false
	}
}

// persist does one thing that is to be stored.
func (n *node) persist() {
	s := n.store[0]
	n.store = n.store[1:]
	switch {
	case s.Fork != nil:
		if err := errors.Join(s.Fork.A.Verify(), s.Fork.B.Verify()); err != nil || !sigchain.Equivocation(s.Fork.A, s.Fork.B) || s.Fork.A.Home() != n.genesis.Home() {
			n.t.Fatalf("%s was handed a fork that is none: %v", n.name, err)
		}
		n.disk.forks[s.Fork.A.Author] = *s.Fork
		n.trace(fmt.Sprintf("%s stores the fork of %s", n.name, n.placeText(s.Fork.A.Ref().Place())))
		e, err := n.m.Forked(s.Fork.A, s.Fork.B)
		n.check(err)
		n.folded(e)
		n.do(n.r.Stored(s.ID, 0, nil, n.now))
		return
	case s.Statements != nil:
		n.disk.parts[s.Statements.Partition] = append(n.disk.parts[s.Statements.Partition], s.Statements.All...)
		n.do(n.r.Stored(s.ID, 0, nil, n.now))
		return
	}
	kept := 0
	var refused error
	for _, x := range s.Entries {
		l := n.disk.logs[s.Log]
		chain := sigchain.Chain{}
		if len(l) > 0 {
			tip := l[len(l)-1]
			chain = sigchain.Chain{Store: n.genesis.Home(), Author: tip.Author, Incarnation: tip.Incarnation, Tip: tip.Link(), Time: tip.Time}
		}
		if refused = n.accepts(chain, x); refused != nil {
			break
		}
		n.disk.logs[s.Log] = append(l, x)
		kept++
		e, err := n.m.Offer(x, n.now)
		n.check(err)
		n.folded(e)
	}
	if s.Note != nil {
		n.disk.notes[s.Log] = s.Note
	}
	n.trace(fmt.Sprintf("%s stores %s:%d-%d", n.name, n.logText(s.Log), s.Entries[0].Seq, s.Entries[0].Seq+uint64(kept)-1))
	n.do(n.r.Stored(s.ID, kept, refused, n.now))
	if n.grown {
		n.grown = false
		n.do(n.r.Reconsider(n.now))
	}
}

// accepts is what a store checks again, so that a Replica which hands out what is
// not so fails the test.
func (n *node) accepts(chain sigchain.Chain, x sigchain.Signed) error {
	if x.Author != n.genesis.Author && len(n.m.Roster().GrantsTo(x.Author)) == 0 {
		return lattice.E(lattice.Denied, fmt.Errorf("a stranger"))
	}
	if err := x.Verify(); err != nil {
		n.t.Errorf("%s was handed an entry with a bad signature: %v", n.name, err)
	}
	if chain.Author == (lattice.AuthorID{}) && x.Seq != 1 || x.Home() != n.genesis.Home() {
		n.t.Errorf("%s was handed entry %d of an empty log, or of another store", n.name, x.Seq)
	}
	if err := chain.Check(x); err != nil {
		n.t.Errorf("%s was handed an entry that does not follow: %v", n.name, err)
		return err
	}
	return nil
}

func (n *node) folded(e fold.Effects) {
	members := 0
	for _, f := range e.Fold {
		for _, op := range f.Entry.Ops {
			if op.Kind == roster.KindMember {
				members++
			}
		}
	}
	n.grown = n.grown || members > 0
	n.apply(e)
	if n.m.Stale() {
		n.m.Reset()
		n.refold()
	}
}

// load does one read.
func (n *node) load() {
	x := n.reads[0]
	n.reads = n.reads[1:]
	got := Loaded{ID: x.ID}
	l, base := n.disk.logs[x.Log], n.disk.base[x.Log]
	switch {
	case x.Fork:
		f := n.disk.forks[x.Log.Author]
		got.Entries = [][]byte{f.A.Bytes(), f.B.Bytes()}
	case x.After < base:
		got.Err, got.First = lattice.E(lattice.OutOfRange, fmt.Errorf("pruned")), base+1
	default:
		size := 0
		at := x.After
		for ; at < min(x.Upto, uint64(len(l))) && (size == 0 || size < x.Max); at++ {
			got.Entries = append(got.Entries, l[at].Bytes())
			size += len(l[at].Bytes())
		}
		if note := n.disk.notes[x.Log]; note != nil && len(got.Entries) > 0 {
			if c, err := merkle.OpenCheckpoint(note, x.Log.Author); err == nil && c.Size >= at && c.Size <= uint64(len(l)) {
				got.Note, got.Left = note, treeOf(l, x.After).Range().Hashes()
				got.Proof, err = merkle.Consistency(leaves(l[:c.Size]), at, c.Size)
				n.check(err)
			}
		}
	}
	n.do(n.r.Loaded(got, n.now))
}
