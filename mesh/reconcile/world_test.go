package reconcile

import (
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"pgregory.net/rapid"
)

const startMs = 1_700_000_000_000

func keyOf(name string) identity.Key {
	var seed [32]byte
	copy(seed[:], name)
	return identity.FromSeed(seed)
}

func idOf(name string) lattice.AuthorID { return keyOf(name).Author() }

// disk is what of a node outlives a crash.
type disk struct {
	logs  map[state.Writer][]sigchain.Signed
	notes map[state.Writer][]byte // newest checkpoint of the author
	base  map[state.Writer]uint64 // entries up to it are pruned
	forks map[lattice.AuthorID]ForkProof
	parts map[lattice.TopicPartition][]Statement
}

// node is a caller of a Replica that does its duties, in memory, with real entries
// and a real fold.
type node struct {
	*world
	name   string
	key    identity.Key
	own    state.Writer
	disk   disk
	r      *Replica
	m      *fold.Machine
	space  *state.Space
	void   int
	hold   bool // it does not get to its disk
	store  []Store
	reads  []Read
	grown  bool // members may have changed
	lie    func(to *node, m Message) []Message
	reach  map[*node]bool // connected, as this node sees it
	inbox  map[*node][][]byte
	drops  int
	proves []Prove
}

// world is nodes, and the messages under way between them.
type world struct {
	t        rapid.TB
	now      int64
	genesis  sigchain.Signed
	nodes    []*node
	config   func(*Config)
	trace    func(string)
	messages map[Kind]int
	bytes    map[Kind]int
	refused  map[Reason]int
}

// newWorld makes nodes that all know the genesis and that they are members. The
// first has founded the store.
func newWorld(t rapid.TB, names ...string) *world {
	w := &world{t: t, now: startMs, messages: map[Kind]int{}, bytes: map[Kind]int{}, refused: map[Reason]int{}, trace: func(string) {}}
	op, err := sigchain.Genesis{Name: "test"}.Op()
	w.check(err)
	w.genesis = w.sign(names[0], sigchain.Entry{Incarnation: 1, Seq: 1, Time: uint64(clock.At(startMs-1000, 0)), Ops: []sigchain.Op{op}})
	all := []sigchain.Signed{w.genesis}
	for _, name := range names[1:] {
		op, err := roster.Member{Author: idOf(name), Role: roster.Writer}.Op()
		w.check(err)
		all = append(all, w.after(names[0], all[len(all)-1], nil, op))
	}
	for _, name := range names {
		n := &node{world: w, name: name, key: keyOf(name), inbox: map[*node][][]byte{}, reach: map[*node]bool{}}
		n.own = state.Writer{Author: idOf(name), Incarnation: 1}
		n.disk = disk{map[state.Writer][]sigchain.Signed{}, map[state.Writer][]byte{}, map[state.Writer]uint64{}, map[lattice.AuthorID]ForkProof{}, map[lattice.TopicPartition][]Statement{}}
		n.disk.logs[state.Writer{Author: idOf(names[0]), Incarnation: 1}] = slices.Clone(all)
		w.nodes = append(w.nodes, n)
	}
	for _, n := range w.nodes {
		n.start()
	}
	return w
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) node(name string) *node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	w.t.Fatalf("no node %q", name)
	return nil
}

func (w *world) byID(id lattice.NodeID) *node {
	for _, n := range w.nodes {
		if n.key.Author() == id {
			return n
		}
	}
	return nil
}

func (w *world) sign(name string, e sigchain.Entry) sigchain.Signed {
	w.t.Helper()
	s, err := sigchain.Sign(keyOf(name), e)
	w.check(err)
	return s
}

// after is an entry that follows prev, a millisecond later.
func (w *world) after(name string, prev sigchain.Signed, parents []sigchain.Ref, ops ...sigchain.Op) sigchain.Signed {
	return w.sign(name, sigchain.Entry{
		Store: prev.Home(), Incarnation: prev.Incarnation, Seq: prev.Seq + 1, Time: prev.Time + 1<<16, Prev: prev.Link(), Parents: parents, Ops: ops,
	})
}

// put is an operation that adds a value to a register.
func (w *world) put(by state.Writer, key, value string) sigchain.Op {
	p := &state.Put{Address: state.Address{Map: "0", Key: []byte(key), Kind: state.Register}, Payload: state.Payload{Bytes: []byte(value)}}
	op, err := p.Encode(by)
	w.check(err)
	return op
}

func (w *world) connect(a, b *node) {
	a.reach[b], b.reach[a] = true, true
	a.inbox[b], b.inbox[a] = nil, nil
	a.do(a.r.Connect(b.key.Author(), w.now))
	b.do(b.r.Connect(a.key.Author(), w.now))
}

func (w *world) disconnect(a, b *node) {
	a.reach[b], b.reach[a] = false, false
	a.inbox[b], b.inbox[a] = nil, nil
	a.do(a.r.Disconnect(b.key.Author(), w.now))
	b.do(b.r.Disconnect(a.key.Author(), w.now))
}

// deliver gives a node the next message of another.
func (n *node) deliver(from *node) {
	b := n.inbox[from][0]
	n.inbox[from] = n.inbox[from][1:]
	if !n.reach[from] {
		n.inbox[from] = nil
		return
	}
	k := Kind(b[3])
	n.messages[k]++
	n.bytes[k] += len(b)
	if m, err := Parse(b); err == nil {
		n.trace(fmt.Sprintf("%s->%s %s", from.name, n.name, n.text(m)))
	} else {
		n.trace(fmt.Sprintf("%s->%s garbage", from.name, n.name))
	}
	e, err := n.r.Step(from.key.Author(), b, n.now)
	n.do(e)
	if err != nil {
		n.reach[from], from.reach[n] = false, false
		from.do(from.r.Disconnect(n.key.Author(), n.now))
	}
}

// settle runs until nothing is under way.
func (w *world) settle() {
	for range 100_000 {
		busy := false
		for _, n := range w.nodes {
			for len(n.store) > 0 && !n.hold {
				n.persist()
				busy = true
			}
			for len(n.reads) > 0 {
				n.load()
				busy = true
			}
			for _, from := range w.nodes {
				if len(n.inbox[from]) > 0 {
					n.deliver(from)
					busy = true
				}
			}
		}
		if !busy {
			return
		}
	}
	w.t.Fatal("it does not settle")
}

func (w *world) tick(ms int64) {
	w.now += ms
	for _, n := range w.nodes {
		n.do(n.r.Tick(w.now))
	}
}

func (n *node) restart() {
	for _, p := range n.nodes {
		if n.reach[p] {
			n.reach[p], p.reach[n] = false, false
			p.do(p.r.Disconnect(n.key.Author(), n.now))
		}
		n.inbox[p], p.inbox[n] = nil, nil
	}
	n.own.Incarnation++
	n.start()
}

// entitled lets only founders' names begin terms.
func entitled(g grant.Signed) error {
	if g.Signer == idOf("eve") {
		return lattice.E(lattice.Denied, fmt.Errorf("eve may not"))
	}
	return nil
}
