package reconcile

import (
	"fmt"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/merkle"
	"pgregory.net/rapid"
)

// partition is a log of blocks that are numbers, with its leader's statements.
type partition struct {
	t      rapid.TB
	store  lattice.StoreID
	tp     lattice.TopicPartition
	leader string
	grant  grant.Signed
	blocks []lattice.Hash
}

func newPartition(w *world, leader string, set ...string) *partition {
	p := &partition{t: w.t, store: w.genesis.Home(), tp: lattice.TopicPartition{Topic: lattice.TopicID{7}, Partition: 2}, leader: leader}
	g := grant.Grant{
		Store: p.store, Partition: p.tp, Term: 5, Leader: idOf(leader), Incarnation: 1, BaseRoot: merkle.EmptyRoot(),
		AckSet: []lattice.AuthorID{idOf(leader)}, Min: 1, Kind: grant.Self, Signer: idOf(leader),
	}
	for _, name := range set {
		g.AckSet, g.Kind = append(g.AckSet, idOf(name)), grant.Unclean
	}
	var err error
	p.grant, err = grant.Sign(keyOf(leader), g)
	w.check(err)
	return p
}

// fill makes the log n blocks long; salt makes other blocks.
func (p *partition) fill(n int, salt byte) {
	for len(p.blocks) < n {
		p.blocks = append(p.blocks, merkle.Leaf{Base: int64(len(p.blocks)), Last: int64(len(p.blocks)), Length: 1, Sum: lattice.Hash{byte(len(p.blocks)), salt}}.Hash())
	}
}

func (p *partition) point(n int) merge.Point {
	tree := merkle.NewAppender(merkle.Range{})
	for _, b := range p.blocks[:n] {
		tree.Append(nil, b)
	}
	return merge.Point{Size: uint64(n), Root: tree.Root(), End: int64(n)}
}

// head is the leader's checkpoint at n blocks, cosigned by others.
func (p *partition) head(n int, by ...string) Statement {
	at := p.point(n)
	note, err := merkle.SignCheckpoint(keyOf(p.leader), merkle.Checkpoint{
		Origin: merkle.Origin(p.store, p.tp.String()), Size: at.Size, Root: at.Root, End: at.End, Term: p.grant.Term, Grant: p.grant.ID, Incarnation: 1, Time: uint64(n) << 16,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, name := range by {
		if note, err = merkle.Cosign(keyOf(name), uint64(n), note, idOf(p.leader)); err != nil {
			p.t.Fatal(err)
		}
	}
	return Statement{StatementHead, note}
}

type hashes []lattice.Hash

func (l hashes) Node(level uint, index uint64) (lattice.Hash, error) {
	if level == 0 {
		return l[index], nil
	}
	a, _ := l.Node(level-1, 2*index)
	b, _ := l.Node(level-1, 2*index+1)
	return merkle.NodeHash(a, b), nil
}

func (p *partition) prefix(from, to int) Statement {
	proof, err := merkle.Consistency(hashes(p.blocks), uint64(from), uint64(to))
	if err != nil {
		p.t.Fatal(err)
	}
	return PrefixStatement(p.point(from), p.point(to), proof)
}

func (p *partition) term() Statement { return Statement{StatementGrant, p.grant.Bytes()} }

// learn tells a node what it knows itself.
func (n *node) learn(p *partition, all ...Statement) {
	n.t.Helper()
	n.disk.parts[p.tp] = append(n.disk.parts[p.tp], all...)
	e, err := n.r.Learned(Statements{p.tp, all}, n.now)
	n.check(err)
	n.do(e)
}

func (n *node) sees(p *partition) string {
	s := n.r.Partition(p.tp)
	var out []string
	for _, h := range s.Heads {
		out = append(out, fmt.Sprint(h.Size))
	}
	return fmt.Sprintf("heads %s, acks %d, terms %d", strings.Join(out, " "), len(s.Acks), len(s.Terms))
}

// TestHeadsSpread checks that grants, heads and cosignatures reach nodes that the
// leader never meets; that of two heads the proof drops one, wherever it is made; and
// that a restart knows what it knew.
func TestHeadsSpread(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid", "dan")
	a, b, c, d := w.node("ann"), w.node("bob"), w.node("cid"), w.node("dan")
	p := newPartition(w, "ann", "bob")
	p.fill(20, 0)
	w.connect(a, b)
	w.connect(b, c)
	a.learn(p, p.term(), p.head(5))
	w.settle()
	if got := c.sees(p); got != "heads 5, acks 0, terms 1" {
		t.Fatal("cid sees", got)
	}
	// The leader has come on, and proves it. bob cosigns.
	a.learn(p, p.head(12), p.prefix(5, 12))
	w.settle()
	b.learn(p, p.head(12, "bob"))
	w.settle()
	// dan, who meets cid only, has an old head, which needs a proof.
	d.learn(p, p.term(), p.head(9))
	w.connect(c, d)
	w.settle()
	for _, n := range w.nodes {
		if got := n.sees(p); got != "heads 9 12, acks 1, terms 1" {
			t.Errorf("%s sees %s", n.name, got)
		}
	}
	asked := false
	e, err := a.r.Learned(Statements{p.tp, nil}, w.now)
	w.check(err)
	for _, x := range append(e.Prove, a.proves...) {
		asked = asked || x.From == p.point(9) && x.To == p.point(12)
	}
	if !asked {
		t.Error("ann, who has the blocks, was not asked to prove that 12 extends 9")
	}
	a.learn(p, p.prefix(9, 12))
	w.settle()
	b.restart()
	w.connect(a, b)
	w.connect(b, c)
	w.settle()
	for _, n := range w.nodes {
		if got := n.sees(p); got != "heads 12, acks 1, terms 1" {
			t.Errorf("%s sees %s", n.name, got)
		}
		if n.r.Root() != a.r.Root() {
			t.Errorf("%s has another frontier", n.name)
		}
	}
}

// TestLeaderSignsTwoHistories checks that both heads stay on every node, as the
// evidence that they are.
func TestLeaderSignsTwoHistories(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid")
	a, b, c := w.node("ann"), w.node("bob"), w.node("cid")
	p := newPartition(w, "ann")
	p.fill(4, 0)
	q := *p
	q.blocks = append([]lattice.Hash(nil), p.blocks...)
	p.fill(9, 1)
	q.fill(7, 2)
	b.learn(p, p.term(), p.head(4), p.head(9), p.prefix(4, 9))
	c.learn(p, q.term(), q.head(4), q.head(7), q.prefix(4, 7))
	w.connect(b, a)
	w.connect(a, c)
	w.settle()
	for _, n := range w.nodes {
		if got := n.sees(p); got != "heads 7 9, acks 0, terms 1" {
			t.Errorf("%s sees %s", n.name, got)
		}
	}
	if b.r.Root() != c.r.Root() {
		t.Error("they differ")
	}
}

// TestStatementsRefused gives a node statements that must not enter, each among good
// ones, which do.
func TestStatementsRefused(t *testing.T) {
	w := newWorld(t, "ann", "bob", "cid", "eve")
	p := newPartition(w, "ann", "bob")
	p.fill(20, 0)
	other := newPartition(w, "ann")
	other.tp.Partition = 3
	og := other.grant.Grant
	og.Partition = other.tp
	og.Signer = idOf("ann")
	var err error
	other.grant, err = grant.Sign(keyOf("ann"), og)
	w.check(err)
	other.fill(3, 0)
	eve := newPartition(w, "eve")
	eve.fill(3, 9)
	forged := p.head(7)
	forged.Bytes = append([]byte(nil), forged.Bytes...)
	forged.Bytes[len(forged.Bytes)-5] ^= 1
	stranger := p.head(6, "cid") // cosigned by somebody who is not of the set: the head counts, the cosignature does not
	proof := p.prefix(5, 12)
	proof.Bytes = append([]byte(nil), proof.Bytes...)
	proof.Bytes[len(proof.Bytes)-1] ^= 1
	for name, c := range map[string]struct {
		s      Statement
		reason Reason
		sees   string
	}{
		"forged":                {forged, Forged, "heads 12, acks 0, terms 1"},
		"a head of another log": {other.head(3), NotEntitled, "heads 12, acks 0, terms 1"},
		"another's grant":       {other.term(), NotTaken, "heads 12, acks 0, terms 1"},
		"no right to grant":     {eve.term(), NotEntitled, "heads 12, acks 0, terms 1"},
		"no grant":              {eve.head(3), NotEntitled, "heads 12, acks 0, terms 1"},
		"a bad proof":           {proof, Unproven, "heads 12, acks 0, terms 1"},
		"garbage":               {Statement{StatementHead, []byte("no note")}, Malformed, "heads 12, acks 0, terms 1"},
		"no such kind":          {Statement{9, nil}, Malformed, "heads 12, acks 0, terms 1"},
		"no cosigner":           {stranger, 0, "heads 6 12, acks 0, terms 1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "ann", "bob", "cid", "eve")
			a, b := w.node("ann"), w.node("bob")
			b.lie = func(_ *node, m Message) []Message {
				if s, ok := m.(Statements); ok {
					s.All = append([]Statement{s.All[0], c.s}, s.All[1:]...)
					return []Message{s}
				}
				return []Message{m}
			}
			b.learn(p, p.term(), p.head(12))
			w.connect(a, b)
			w.settle()
			if got := a.sees(p); got != c.sees {
				t.Error("ann sees", got)
			}
			if c.reason != 0 && w.refused[c.reason] == 0 || c.reason == 0 && len(w.refused) > 0 {
				t.Errorf("refused: %v, want %s", w.refused, c.reason)
			}
		})
	}
}
