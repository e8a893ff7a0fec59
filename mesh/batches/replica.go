package batches

import (
	"errors"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/mesh/lag"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// Config is what a Replica works with. Numbers that are 0 get their defaults.
type Config struct {
	Store   lattice.StoreID
	Node    lattice.NodeID
	Session uint64 // random, of this start

	Window        int   // bytes of spans that a peer may send before they are durable; 16 MiB. Peers beyond the first eight: an eighth of it
	Unsent        int   // bytes of spans that wait to go to a peer, beyond which nothing more is read for it (see Waiting); 0: no bound
	Turn          int   // bytes of a partition that a peer gets at a time; 64 KiB. Four times that if it wants no other
	Reads         int   // reads under way for one peer; 4
	MaxPartitions int   // partitions that one peer may say it has more of than is here, and may follow; 100,000
	Budget        int   // bytes a second of messages other than spans, of one peer; 1 MiB
	Burst         int   // what of that may come at once; 16 MiB
	Offers        int   // bytes of offers that a peer is sent between two ticks; 32 KiB
	StallMs       int64 // a partition that a peer does not send is followed elsewhere; 10 s
	BarMs         int64 // a partition of which a peer sent something refused is not followed there; 10 min
	CompareMs     int64 // all is compared again; 30 s
	RetryMs       int64 // logs are tried again after one took nothing; 1 s
}

func or[T int | int64](n *T, v T) {
	if *n == 0 {
		*n = v
	}
}

func (c *Config) defaults() {
	or(&c.Window, 16<<20)
	or(&c.Turn, 64<<10)
	or(&c.Reads, 4)
	or(&c.MaxPartitions, 100_000)
	or(&c.Budget, 1<<20)
	or(&c.Burst, 16<<20)
	or(&c.Offers, 32<<10)
	or(&c.StallMs, 10_000)
	or(&c.BarMs, 600_000)
	or(&c.CompareMs, 30_000)
	or(&c.RetryMs, 1_000)
}

// Where is where a partition's log is on this node, durably.
type Where struct {
	Size   uint64       // batches: the next span begins at that leaf
	Proven uint64       // of those, the first that can be proven to others; at most Size
	Root   lattice.Hash // of the tree over Proven
}

// Have says where a partition is here, and who leads it as far as is known: this node,
// another, or nobody (zero). This node's own partitions are never followed.
type Have struct {
	Partition lattice.TopicPartition
	Where     Where
	Leader    lattice.NodeID
	// Cuts is how often its tail was cut off since this node started, because another
	// term rules: only with another number is it less than it was.
	Cuts uint64
}

// Receive is a span for a partition's log. It begins at the leaf behind what came
// before, or at a later one, where the sender's log begins: whether that may be, the
// log decides.
type Receive struct {
	ID   uint64
	Peer lattice.NodeID
	Span span.Span
}

// Read asks for durable batches of a partition from a leaf on, about Max bytes but at
// least one batch, with what proves them. Max 0: none, but the checkpoint that From is
// the size of.
type Read struct {
	ID        uint64
	Peer      lattice.NodeID // for whom
	Partition lattice.TopicPartition
	From      uint64
	Max       int
}

// Loaded is the answer to a Read. A span without batches, and no error: nothing that
// can be proven is there so far; it is asked for again.
type Loaded struct {
	ID    uint64
	Span  span.Span
	First uint64 // with an Err of Kind OutOfRange: the leaf at which the log begins here
	Err   error
}

// Send is a message to a peer.
type Send struct {
	To      lattice.NodeID
	Message Message
}

// Drop says that a connection ends, after what is sent to it in the same Effects.
type Drop struct {
	Peer   lattice.NodeID
	Reason Reason
}

// Refused is something that a peer sent, or did not send, and that did not enter.
type Refused struct {
	Peer      lattice.NodeID
	Partition lattice.TopicPartition
	Leaf      uint64 // at which the log is here
	Reason    Reason
	Err       error
}

// Effects is what follows. See the duties in the package comment.
type Effects struct {
	Receive []Receive
	Send    []Send
	Read    []Read
	Drop    []Drop
	Refused []Refused
	Heard   []Heard
}

// ErrPeer is wrapped by what Step returns: the connection must end. Kind Invalid.
var ErrPeer = lattice.E(lattice.Invalid, errors.New("the peer broke the protocol"))

// part is what is known of one partition.
type part struct {
	id     lattice.TopicPartition
	leader lattice.NodeID
	here   Where
	next   uint64 // leaf behind what is on its way to the disk
	jump   uint64 // leaf at which the source's log begins, beyond next; 0: it has next
	cuts   uint64
	gone   bool
	source *peer  // where it is followed
	ask    uint32 // number of the last follow
	moved  int64  // when it last came on
	count  uint64 // spans that had come from source by then
	epoch  uint32 // counts resets of next

	acks map[lattice.NodeID][]byte // the newest of each member
	came []cameAck                 // the newest that were told
}

// at is the leaf from which the partition is followed.
func (t *part) at() uint64 { return max(t.next, t.jump) }

// storing is what Received needs to know of a Receive.
type storing struct {
	peer  *peer
	part  *part
	epoch uint32
	cuts  uint64
	ask   uint32
	cost  int    // of credit
	end   uint64 // leaf behind the span
}

// Replica is one node's part in having a store's batches on many nodes. Not safe for
// concurrent use.
type Replica struct {
	c        Config
	now      int64
	parts    map[lattice.TopicPartition]*part
	index    index
	peers    []*peer                         // ascending by id
	todo     map[lattice.TopicPartition]bool // may need a source
	bars     map[bar]int64                   // until when
	barCount map[lattice.NodeID]int          // of bars
	banned   map[lattice.NodeID]int64        // peers that are not let in until then
	stores   map[uint64]storing
	reads    map[uint64]reading
	asks     uint32
	paused   int64 // nothing is followed anew until then
	swept    int64 // when stalled partitions were looked for
	lastID   uint64
	counts   map[Reason]uint64
	lags     *lag.Table[lattice.TopicPartition] // what peers lack: for people
	taken    uint64                             // batches of peers that became durable: for people
	eff      Effects
}

// bar keeps a partition from being followed at a peer that failed with it.
type bar struct {
	peer lattice.NodeID
	part lattice.TopicPartition
}

// New returns a Replica of the partitions that are here, without peers.
func New(c Config, have []Have, nowMs int64) *Replica {
	c.defaults()
	r := &Replica{
		c: c, now: nowMs, parts: make(map[lattice.TopicPartition]*part, len(have)), todo: map[lattice.TopicPartition]bool{}, bars: map[bar]int64{},
		barCount: map[lattice.NodeID]int{}, banned: map[lattice.NodeID]int64{}, stores: map[uint64]storing{}, reads: map[uint64]reading{}, counts: map[Reason]uint64{},
	}
	r.lags = lag.New(func(id lattice.TopicPartition) uint64 {
		i, _ := r.index.get(id)
		return i.Size
	})
	for _, h := range slices.SortedFunc(slices.Values(have), func(a, b Have) int { return comparePartitions(a.Partition, b.Partition) }) {
		r.changed(h)
	}
	return r
}

// Changed says where a partition is: a new one, one to which this node appended, or
// one that has another leader. A log shrinks only when its tail was cut off (Have.Cuts): less
// than is known otherwise means an older message, and is passed over.
func (r *Replica) Changed(h Have, nowMs int64) Effects {
	r.now = nowMs
	r.changed(h)
	return r.done()
}

func (r *Replica) changed(h Have) {
	t := r.parts[h.Partition]
	if t == nil {
		t = &part{id: h.Partition}
		r.parts[h.Partition] = t
	}
	if t.leader != h.Leader {
		r.unbar(t.id) // what failed while another led says nothing
	}
	if t.leader = h.Leader; t.leader == r.c.Node && t.source != nil {
		r.unfollow(t)
	}
	r.todo[t.id] = true
	if h.Cuts > t.cuts {
		r.cut(t, h)
	}
	r.comes(t, h.Where, nil)
}

// cut begins with a partition whose tail is gone as with a new one: who has more of it is
// asked again, and what is on its way to its log does not say where that is.
func (r *Replica) cut(t *part, h Have) {
	if t.source != nil {
		r.unfollow(t)
	}
	t.cuts, t.here, t.next, t.jump, t.epoch = h.Cuts, Where{}, 0, 0, t.epoch+1
	r.unbar(t.id)
	r.index.set(Item{Partition: t.id})
	next := t.id
	next.Partition++
	for _, p := range r.peers {
		if delete(p.has, t.id); p.greeted {
			r.question(p, boundAt(t.id), []Range{{To: boundAt(next), Mode: ModeItems}})
		}
	}
}

// Gone says that there is no such partition any more.
func (r *Replica) Gone(id lattice.TopicPartition, nowMs int64) Effects {
	r.now = nowMs
	t := r.parts[id]
	if t == nil {
		return r.done()
	}
	t.gone = true
	if t.source != nil {
		r.unfollow(t)
	}
	delete(r.parts, id)
	r.index.set(Item{Partition: id})
	r.lags.Gone(id)
	for _, p := range r.peers {
		if x := p.serving[id]; x != nil {
			r.end(p, x, 0, reconcile.NotShown)
		}
		delete(p.has, id)
		delete(p.news, id)
	}
	return r.done()
}

// Root returns where all partitions are, in 36 bytes.
func (r *Replica) Root() Root { return r.index.Root() }

// comes takes where a partition is, and spreads it if it has come on.
func (r *Replica) comes(t *part, at Where, from *peer) {
	if at.Size < t.here.Size || at.Proven < t.here.Proven || at.Proven > at.Size {
		return
	}
	t.here = at
	t.next = max(t.next, at.Size)
	was, _ := r.index.get(t.id)
	grown := r.index.set(Item{t.id, at.Proven, at.Root})
	if source := (lattice.NodeID{}); grown {
		if from != nil {
			source = from.id
		}
		r.lags.Grown(t.id, was.Size, source, r.now)
	}
	for _, p := range r.peers {
		if i, ok := p.has[t.id]; ok && i.Size <= at.Size {
			delete(p.has, t.id)
		}
		switch x := p.serving[t.id]; {
		case !grown:
		case x != nil:
			r.ready(p, x)
		case p != from && p.id != t.leader:
			p.news[t.id] = true
		}
	}
}

// done makes messages of what has gathered, and returns the effects of the call.
func (r *Replica) done() Effects {
	for _, p := range slices.Clone(r.peers) {
		if p.strikes > maxStrikes || r.barCount[p.id] > r.c.MaxPartitions {
			r.banned[p.id] = r.now + r.c.BarMs
			r.hangUp(p, reconcile.TooMuch)
		}
	}
	r.choose()
	for _, p := range r.peers {
		r.flush(p)
	}
	e := r.eff
	r.eff = Effects{}
	return e
}

// flush sends what has gathered for a peer.
func (r *Replica) flush(p *peer) {
	if !p.greeted {
		return
	}
	r.serve(p)
	r.flushAcks(p)
	r.offer(p)
	for len(p.follows) > 0 {
		n := min(len(p.follows), maxFollows)
		r.send(p, Follows{p.follows[:n:n]})
		p.follows = p.follows[n:]
	}
	p.follows = nil
	if p.owed > 0 && (p.owed >= p.window/4 || p.granted <= 0) {
		r.send(p, Credit{uint32(p.owed)})
		p.granted += p.owed
		p.owed = 0
	}
	if !p.settled && len(p.has) == 0 {
		p.settled = true
		r.send(p, Frontier{r.index.Root()})
	}
}

// offer tells a peer what is newly here: each partition once between two ticks, and
// no more than some bytes, so that thousands of busy partitions cost it little. What
// it is not told now it is told later, with where the partition is then.
func (r *Replica) offer(p *peer) {
	if len(p.news) == 0 || p.room < itemSize {
		return
	}
	var all []Item
	for _, id := range slices.SortedFunc(maps.Keys(p.news), comparePartitions) {
		if p.offered[id] {
			continue
		}
		if p.room < itemSize || len(all) == maxItems {
			break
		}
		delete(p.news, id)
		if i, ok := r.index.get(id); ok && p.serving[id] == nil {
			all = append(all, i)
			p.offered[id] = true
			p.room -= itemSize
		}
	}
	if len(all) > 0 {
		r.send(p, Offer{all})
	}
}

func (r *Replica) send(p *peer, m Message) { r.eff.Send = append(r.eff.Send, Send{p.id, m}) }

func (r *Replica) nextID() uint64 {
	r.lastID++
	return r.lastID
}

// refuse counts and shows something that did not enter.
func (r *Replica) refuse(p *peer, id lattice.TopicPartition, leaf uint64, reason Reason, err error) {
	r.counts[reason]++
	r.eff.Refused = append(r.eff.Refused, Refused{p.id, id, leaf, reason, err})
}

const maxStrikes = 256 // things that are wrong by themselves, after which a peer is not let in for a while

// hangUp ends a session, and tells the peer why.
func (r *Replica) hangUp(p *peer, reason Reason) {
	r.send(p, Bye{reason})
	r.eff.Drop = append(r.eff.Drop, Drop{p.id, reason})
	r.disconnect(p.id)
}

// unbar lets a partition be followed at all peers again.
func (r *Replica) unbar(id lattice.TopicPartition) {
	for _, p := range slices.Collect(maps.Keys(r.barCount)) {
		if _, ok := r.bars[bar{p, id}]; !ok {
			continue
		}
		delete(r.bars, bar{p, id})
		if r.barCount[p]--; r.barCount[p] == 0 {
			delete(r.barCount, p)
		}
	}
}

// keepOff bars a partition from being followed at a peer for a while.
func (r *Replica) keepOff(p *peer, id lattice.TopicPartition) {
	b := bar{p.id, id}
	if _, ok := r.bars[b]; !ok {
		r.barCount[p.id]++
	}
	r.bars[b] = r.now + r.c.BarMs
	delete(p.has, id)
}

func (r *Replica) barred(p *peer, id lattice.TopicPartition) bool {
	until, ok := r.bars[bar{p.id, id}]
	return ok && r.now < until
}
