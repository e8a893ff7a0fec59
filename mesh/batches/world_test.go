package batches

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/span"
	"pgregory.net/rapid"
)

const startMs = 1_700_000_000_000

var testStore = lattice.StoreID(filled(0x50))

func filled(b byte) (h lattice.Hash) {
	for i := range h {
		h[i] = b
	}
	return h
}

func idOf(name string) lattice.NodeID { return lattice.NodeID(sha256.Sum256([]byte(name))) }

func tpOf(n int) lattice.TopicPartition {
	sum := sha256.Sum256(fmt.Append(nil, "topic", n/3))
	return lattice.TopicPartition{Topic: lattice.TopicID(sum[:16]), Partition: int32(n % 3)}
}

// log is a partition's log on one node, with all nodes of its tree. It stands for the
// engine: it takes what its leader's checkpoint commits to, and nothing else. What
// signs is a hash over a secret that no liar of these tests uses.
type log struct {
	id      lattice.TopicPartition
	leader  string
	first   uint64 // leaf of batches[0]
	batches [][]byte
	tree    map[[2]uint64]lattice.Hash
	note    []byte
}

const noteSize = 8 + 8 + 32 + 32

func sealed(leader string, id lattice.TopicPartition, size, first uint64, root lattice.Hash) []byte {
	b := binary.BigEndian.AppendUint64(nil, size)
	b = append(binary.BigEndian.AppendUint64(b, first), root[:]...)
	sum := sha256.Sum256(append(fmt.Appendf(nil, "secret of %s: %s ", leader, id), b...))
	return append(b, sum[:]...)
}

func newLog(id lattice.TopicPartition, leader string) *log {
	return &log{id: id, leader: leader, tree: map[[2]uint64]lattice.Hash{}}
}

func (l *log) size() uint64 { return l.first + uint64(len(l.batches)) }

func leafOf(batch []byte) lattice.Hash { return sha256.Sum256(batch) }

func (l *log) grow(batch []byte) {
	h, index := leafOf(batch), l.size()
	l.batches = append(l.batches, batch)
	for level := uint64(0); ; level++ {
		l.tree[[2]uint64{level, index}] = h
		if index%2 == 0 {
			return
		}
		h = merkle.NodeHash(l.tree[[2]uint64{level, index - 1}], h)
		index /= 2
	}
}

// Node implements merkle.Nodes.
func (l *log) Node(level uint, index uint64) (lattice.Hash, error) {
	h, ok := l.tree[[2]uint64{uint64(level), index}]
	if !ok {
		return h, errors.New("it is not here")
	}
	return h, nil
}

// edge is the compact range of the first leaves.
func (l *log) edge(size uint64) []lattice.Hash {
	var out []lattice.Hash
	for level := 63; level >= 0; level-- {
		if size>>level&1 == 1 {
			out = append(out, l.tree[[2]uint64{uint64(level), size>>level - 1}])
		}
	}
	return out
}

func (l *log) rangeAt(size uint64) merkle.Range {
	r, err := merkle.NewRange(size, l.edge(size))
	if err != nil {
		panic(err)
	}
	return r
}

// where is where the log is; the checkpoint that it keeps is one of which it has all.
func (l *log) where() Where {
	at := Where{Size: l.size()}
	if l.note != nil {
		at.Proven, at.Root = binary.BigEndian.Uint64(l.note), lattice.Hash(l.note[16:48])
	}
	return at
}

func (l *log) sign() { l.note = sealed(l.leader, l.id, l.size(), l.first, l.rangeAt(l.size()).Root()) }

func (l *log) truncate(first uint64) {
	l.batches = slices.Clone(l.batches[first-l.first:])
	l.first = first
	l.sign()
}

func (l *log) read(from uint64, most int) (span.Span, error) {
	s := span.Span{Partition: l.id, From: from}
	if from < l.first {
		return s, lattice.E(lattice.OutOfRange, errors.New("truncated"))
	}
	if most == 0 && l.note != nil && from == l.where().Proven {
		s.Note, s.Left, s.Grants = l.note, l.edge(from), [][]byte{[]byte(l.leader)}
		return s, nil
	}
	at, n := from, 0
	for ; at < l.where().Proven && (n == 0 || n < most); at++ {
		b := l.batches[at-l.first]
		s.Batches = append(s.Batches, b)
		n += len(b)
	}
	if n == 0 {
		return s, nil
	}
	s.Note, s.Left, s.Grants = l.note, l.edge(from), [][]byte{[]byte(l.leader)}
	var err error
	s.Proof, err = merkle.Consistency(l, at, binary.BigEndian.Uint64(l.note))
	return s, err
}

var errForged = lattice.E(lattice.Corrupt, errors.New("it is not what the leader signed"))

// receive takes a span if it begins where the log ends, or where the leader signed
// that its own begins.
func (l *log) receive(s span.Span) error {
	if len(s.Note) != noteSize {
		return errForged
	}
	size, first := binary.BigEndian.Uint64(s.Note), binary.BigEndian.Uint64(s.Note[8:])
	root := lattice.Hash(s.Note[16:48])
	left, err := merkle.NewRange(s.From, s.Left)
	switch {
	case !bytes.Equal(s.Note, sealed(l.leader, l.id, size, first, root)), err != nil:
		return errForged
	case s.From > l.size() && s.From > first:
		return lattice.E(lattice.NotYet, fmt.Errorf("a hole: it begins at %d, here are %d", s.From, l.size()))
	case s.From < l.size():
		return lattice.E(lattice.Conflict, errors.New("it is here"))
	case s.From == l.size() && left.Root() != l.rangeAt(l.size()).Root():
		return errForged
	}
	tree := merkle.NewAppender(left)
	for _, b := range s.Batches {
		tree.Append(nil, leafOf(b))
	}
	if tree.Size() > size || merkle.VerifyConsistency(tree.Size(), size, s.Proof, tree.Root(), root) != nil {
		return errForged
	}
	if s.From > l.size() {
		*l = *newLog(l.id, l.leader)
		l.first = s.From
		for level, i := 63, 0; level >= 0; level-- {
			if s.From>>level&1 == 1 {
				l.tree[[2]uint64{uint64(level), s.From>>level - 1}] = s.Left[i]
				i++
			}
		}
	}
	for _, b := range s.Batches {
		l.grow(b)
	}
	if l.size() == size {
		l.note = s.Note
	}
	return nil
}

// node is a caller of a Replica that does its duties.
type node struct {
	*world
	name    string
	id      lattice.NodeID
	disk    map[lattice.TopicPartition]*log
	r       *Replica
	receive []Receive
	reads   []Read
	hold    bool // it does not get to its disk
	full    bool // its disk takes nothing
	lie     func(to *node, m Message) []Message
	reach   map[*node]bool
	inbox   map[*node][][]byte
	from    map[string]int // batches taken, by who sent them
}

// world is nodes, and the messages under way between them.
type world struct {
	t       rapid.TB
	now     int64
	nodes   []*node
	config  func(*Config)
	led     map[lattice.TopicPartition]*log // the leaders' logs: the truth
	truth   map[lattice.TopicPartition][][]byte
	bytes   map[Kind]int
	refused map[Reason]int
	seq     int
}

func newWorld(t rapid.TB, names ...string) *world {
	w := &world{t: t, now: startMs, led: map[lattice.TopicPartition]*log{}, truth: map[lattice.TopicPartition][][]byte{}, bytes: map[Kind]int{}, refused: map[Reason]int{}}
	for _, name := range names {
		n := &node{world: w, name: name, id: idOf(name), disk: map[lattice.TopicPartition]*log{}, reach: map[*node]bool{}, inbox: map[*node][][]byte{}, from: map[string]int{}}
		w.nodes = append(w.nodes, n)
		n.start()
	}
	return w
}

func (w *world) node(name string) *node {
	return w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n.name == name })]
}

func (w *world) byID(id lattice.NodeID) *node {
	return w.nodes[slices.IndexFunc(w.nodes, func(n *node) bool { return n.id == id })]
}

// start begins anew with what is on the disk.
func (n *node) start() {
	c := Config{Store: testStore, Node: n.id, Session: uint64(n.now)}
	if n.config != nil {
		n.config(&c)
	}
	var have []Have
	for _, l := range n.disk {
		have = append(have, n.have(l))
	}
	n.receive, n.reads = nil, nil
	n.r = New(c, have, n.now)
}

func (n *node) have(l *log) Have {
	return Have{Partition: l.id, Where: l.where(), Leader: idOf(l.leader)}
}

// create makes a partition that a node leads; others learn of it by know.
func (n *node) create(id lattice.TopicPartition) {
	l := newLog(id, n.name)
	n.disk[id], n.led[id] = l, l
	n.do(n.r.Changed(n.have(l), n.now))
}

// know tells a node of a partition of another's.
func (n *node) know(id lattice.TopicPartition) {
	if l := n.led[id]; l != nil && n.disk[id] == nil {
		n.disk[id] = newLog(id, l.leader)
		n.do(n.r.Changed(n.have(n.disk[id]), n.now))
	}
}

func (w *world) allKnow(id lattice.TopicPartition) {
	for _, n := range w.nodes {
		n.know(id)
	}
}

// append writes batches to a partition that the node leads.
func (n *node) append(id lattice.TopicPartition, count, size int) {
	l := n.disk[id]
	for range count {
		n.seq++
		b := make([]byte, size)
		copy(b, fmt.Sprint(n.seq))
		l.grow(b)
		n.truth[id] = append(n.truth[id], b)
	}
	l.sign()
	n.do(n.r.Changed(n.have(l), n.now))
}

// drop deletes a partition, of which the nodes hear one by one.
func (n *node) drop(id lattice.TopicPartition) {
	delete(n.disk, id)
	n.do(n.r.Gone(id, n.now))
}

func (n *node) do(e Effects) {
	n.receive = append(n.receive, e.Receive...)
	n.reads = append(n.reads, e.Read...)
	for _, x := range e.Refused {
		n.refused[x.Reason]++
	}
	for _, s := range e.Send {
		to := n.byID(s.To)
		if !n.reach[to] {
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
		if to := n.byID(d.Peer); n.reach[to] {
			n.reach[to] = false
			to.reach[n] = false
			to.do(to.r.Disconnect(n.id, n.now))
		}
	}
}

func (w *world) connect(a, b *node) {
	if a == b || a.reach[b] {
		return
	}
	a.reach[b], b.reach[a] = true, true
	a.inbox[b], b.inbox[a] = nil, nil
	a.do(a.r.Connect(b.id, w.now))
	b.do(b.r.Connect(a.id, w.now))
}

func (w *world) disconnect(a, b *node) {
	if !a.reach[b] {
		return
	}
	a.reach[b], b.reach[a] = false, false
	a.inbox[b], b.inbox[a] = nil, nil
	a.do(a.r.Disconnect(b.id, w.now))
	b.do(b.r.Disconnect(a.id, w.now))
}

// deliver gives a node the next message of another.
func (n *node) deliver(from *node) {
	if len(n.inbox[from]) == 0 {
		return
	}
	b := n.inbox[from][0]
	n.inbox[from] = n.inbox[from][1:]
	if !n.reach[from] {
		n.inbox[from] = nil
		return
	}
	n.bytes[Kind(b[3])] += len(b)
	e, err := n.r.Step(from.id, bytes.Clone(b), n.now)
	n.do(e)
	if err != nil && n.reach[from] {
		n.reach[from], from.reach[n] = false, false
		from.do(from.r.Disconnect(n.id, n.now))
	}
}

// persist gives the log the next span, and checks that whatever it takes is what the
// leader wrote there.
func (n *node) persist() {
	x := n.receive[0]
	n.receive = n.receive[1:]
	l := n.disk[x.Span.Partition]
	switch {
	case n.full:
		at := Where{}
		if l != nil {
			at = l.where()
		}
		n.do(n.r.Received(x.ID, at, lattice.E(lattice.Storage, errors.New("disk full")), n.now))
		return
	case l == nil:
		n.do(n.r.Received(x.ID, Where{}, lattice.E(lattice.NotFound, errors.New("no such partition")), n.now))
		return
	}
	err := l.receive(x.Span)
	if err == nil {
		for i, b := range x.Span.Batches {
			if !bytes.Equal(n.truth[l.id][x.Span.From+uint64(i)], b) {
				n.t.Fatalf("%s took batch %d of %s, which its leader did not write", n.name, x.Span.From+uint64(i), l.id)
			}
		}
		n.from[n.byID(x.Peer).name] += len(x.Span.Batches)
	}
	n.do(n.r.Received(x.ID, l.where(), err, n.now))
}

func (n *node) load() {
	q := n.reads[0]
	n.reads = n.reads[1:]
	got := Loaded{ID: q.ID}
	if l := n.disk[q.Partition]; l == nil {
		got.Err = lattice.E(lattice.NotFound, errors.New("no such partition"))
	} else if got.Span, got.Err = l.read(q.From, q.Max); lattice.KindOf(got.Err) == lattice.OutOfRange {
		got.First = l.first
	}
	n.do(n.r.Loaded(got, n.now))
}

// settle runs until nothing is under way.
func (w *world) settle() {
	for range 1_000_000 {
		busy := false
		for _, n := range w.nodes {
			for len(n.receive) > 0 && !n.hold {
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

// run is some seconds.
func (w *world) run(seconds int) {
	for range seconds {
		w.tick(1000)
		w.settle()
	}
}

func (n *node) restart() {
	for _, p := range n.nodes {
		n.disconnect(n, p)
	}
	n.start()
}

// has reports whether a node has all of each partition that it knows.
func (n *node) lacks() string {
	for id, l := range n.disk {
		lead := n.led[id]
		if lead == nil {
			continue
		}
		if p := l.where(); p != lead.where() {
			return fmt.Sprintf("%s has %d batches of %s of %s, which has %d", n.name, p.Size, id, lead.leader, lead.size())
		}
	}
	return ""
}
