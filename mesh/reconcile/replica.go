package reconcile

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/lag"
)

// Config is what a Replica works with. Numbers that are 0 get their defaults.
type Config struct {
	Store   lattice.StoreID
	Node    lattice.NodeID
	Session uint64 // random, of this start

	// Admit says whether entries of an author may be here now: nil, or an error of
	// Kind Denied. It must not call the Replica. Required.
	Admit func(lattice.AuthorID) error
	// Entitled says whether a grant may begin a term: nil, or an error. nil: none may.
	Entitled func(grant.Signed) error

	Window    int   // bytes of blocks that each peer may send before they are durable; 4 MiB
	Turn      int   // bytes of a log that a peer gets at a time; 64 KiB
	Reads     int   // reads under way for one peer; 4
	MaxLogs   int   // logs that one peer may say it has more of than is here; 100,000
	Budget    int   // bytes a second of messages other than blocks, of one peer; 1 MiB
	Burst     int   // what of that may come at once; 16 MiB
	StallMs   int64 // a log that a peer does not send is wanted from another; 10 s
	BarMs     int64 // a log of which a peer sent something refused is not wanted from it; 10 min
	CompareMs int64 // frontiers are compared again; 30 s
	RetryMs   int64 // the store is tried again after it took nothing; 1 s
}

func (c *Config) defaults() {
	or := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	or64 := func(n *int64, v int64) {
		if *n == 0 {
			*n = v
		}
	}
	or(&c.Window, 4<<20)
	or(&c.Turn, 64<<10)
	or(&c.Reads, 4)
	or(&c.MaxLogs, 100_000)
	or(&c.Budget, 1<<20)
	or(&c.Burst, 16<<20)
	or64(&c.StallMs, 10_000)
	or64(&c.BarMs, 600_000)
	or64(&c.CompareMs, 30_000)
	or64(&c.RetryMs, 1_000)
}

// Have says how far a log is here, durably. First is the first entry that is still
// here; above Tip.Seq: none. Its chain goes on from Tip.
type Have struct {
	Log   state.Writer
	Tip   sigchain.Link
	Time  uint64 // of the tip
	First uint64
}

// Inventory is what a Replica begins with: all that is durable.
type Inventory struct {
	Logs       []Have
	Forks      []sigchain.Place // first forks, one for an author
	Partitions []Statements
	Snapshot   Snapshot // that can be offered for what was pruned
}

// Store is something to make durable.
type Store struct {
	ID      uint64
	Peer    lattice.NodeID
	Log     state.Writer
	Entries []sigchain.Signed // in order, each verified
	// Note is a checkpoint of the author, verified, that covers the entries and goes
	// beyond those kept before; nil: none. Keep the newest: others can be served by it.
	Note []byte
	Fork *ForkProof // instead of entries: keep for ever
	// Statements, instead of entries: keep what was verified about a partition.
	Statements *Statements
}

// ForkProof is two entries that one author signed for one place.
type ForkProof struct{ A, B sigchain.Signed }

// Read asks for durable entries of a log: behind After, up to Upto, about Max bytes
// but at least one entry.
type Read struct {
	ID          uint64
	Peer        lattice.NodeID // for whom; zero: for the Replica itself
	Log         state.Writer
	After, Upto uint64
	Max         int
	Fork        bool // the proof of the author's first fork instead: two entries
}

// Loaded is the answer to a Read. With Note, the newest checkpoint of the author
// that is here, Left and Proof are as in Blocks; without one they are empty.
type Loaded struct {
	ID          uint64
	Entries     [][]byte
	Note        []byte
	Left, Proof []lattice.Hash
	// Err: Kind OutOfRange when it was pruned, otherwise it cannot be read.
	Err error
	// First and Snapshot say what is there instead of what was pruned.
	First    uint64
	Snapshot Snapshot
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

// Refused is something that a peer sent and that did not enter.
type Refused struct {
	Peer   lattice.NodeID
	Log    state.Writer
	Seq    uint64 // of the first entry; 0: no entry
	Reason Reason
	Err    error
}

// SnapshotOffer says that a log goes on only from a peer's snapshot.
type SnapshotOffer struct {
	Peer     lattice.NodeID
	Log      state.Writer
	First    uint64
	Snapshot Snapshot
}

// Effects is what follows. See the duties in the package comment.
type Effects struct {
	Store     []Store
	Send      []Send
	Read      []Read
	Drop      []Drop
	Refused   []Refused
	Snapshots []SnapshotOffer
	Prove     []Prove
}

// ErrPeer is wrapped by what Step returns: the connection must end. Kind Invalid.
var ErrPeer = lattice.E(lattice.Invalid, errors.New("the peer broke the protocol"))

// log is what is known of one writer's log.
type log struct {
	writer  state.Writer
	key     Key
	chain   sigchain.Chain // with what is on its way to the disk
	durable sigchain.Chain
	first   uint64
	source  *peer  // from whom it is wanted
	moved   int64  // when it last came on
	epoch   uint32 // counts resets of chain
	search  *search
	signed  checked
	cutAt   uint64       // the last place before its author's fork, if the log goes on beyond
	cutID   lattice.Hash // of the entry there
	kept    string       // the checkpoint that was stored last
	ask     uint32       // number of the last want
}

// Replica is one node's part in keeping a store the same everywhere. Not safe for
// concurrent use.
type Replica struct {
	c        Config
	now      int64
	logs     map[Key]*log
	forks    map[lattice.AuthorID]sigchain.Place
	parts    map[lattice.TopicPartition]*heads
	front    frontier
	snapshot Snapshot
	peers    []*peer // ascending by id
	todo     []Key   // logs that may need a source
	cuts     []*log  // whose entry before a fork may have to be looked up
	bars     map[bar]int64
	barCount map[lattice.NodeID]int
	denied   map[lattice.AuthorID]bool // by Admit or the store, until Reconsider
	banned   map[lattice.NodeID]int64  // peers that are not let in until then
	asks     uint32
	paused   int64 // nothing is wanted until then
	proved   int64
	swept    int64 // when stalled logs were looked for
	stores   map[uint64]storing
	reads    map[uint64]reading
	lastID   uint64
	counts   map[Reason]uint64
	lags     *lag.Table[Key] // what peers lack: for people
	taken    uint64          // entries of peers that became durable: for people
	eff      Effects
}

// bar keeps a log from being wanted from a peer that sent something refused.
type bar struct {
	peer lattice.NodeID
	key  Key
}

// New returns a replica that has what is in the inventory and no peers. Errors say
// what is wrong with the inventory.
func New(c Config, have Inventory, nowMs int64) (*Replica, error) {
	c.defaults()
	r := &Replica{
		c: c, now: nowMs, bars: map[bar]int64{}, barCount: map[lattice.NodeID]int{}, denied: map[lattice.AuthorID]bool{}, banned: map[lattice.NodeID]int64{},
		stores: map[uint64]storing{}, reads: map[uint64]reading{}, counts: map[Reason]uint64{},
	}
	r.lags = lag.New(func(k Key) uint64 {
		i, _ := r.front.get(k)
		return i.N
	})
	if c.Admit == nil {
		return nil, lattice.E(lattice.Internal, errors.New("reconcile: nobody says whom to admit"))
	}
	return r, r.fill(have)
}

func (r *Replica) fill(have Inventory) error {
	r.logs, r.forks = map[Key]*log{}, map[lattice.AuthorID]sigchain.Place{}
	r.parts, r.front = map[lattice.TopicPartition]*heads{}, frontier{}
	r.snapshot = have.Snapshot
	for _, at := range have.Forks {
		r.forks[at.Author] = at
		r.front.set(forkItem(at))
	}
	for _, h := range have.Logs {
		l := r.open(h.Log)
		l.chain.Tip, l.chain.Time, l.first = h.Tip, h.Time, max(h.First, 1)
		l.durable = l.chain
		r.front.set(r.item(l))
		r.cuts = append(r.cuts, l)
	}
	for _, s := range have.Partitions {
		if err := r.known(s); err != nil {
			return fmt.Errorf("reconcile: what is here of %s: %w", s.Partition, err)
		}
	}
	return nil
}

// open returns a writer's log, which is made if it is not here.
func (r *Replica) open(w state.Writer) *log {
	k := LogKey(w)
	l := r.logs[k]
	if l == nil {
		l = &log{writer: w, key: k, first: 1, chain: sigchain.Chain{Store: r.c.Store, Author: w.Author, Incarnation: w.Incarnation}}
		l.durable = l.chain
		r.logs[k] = l
	}
	return l
}

// end returns the last place of a log that can count: that before its author's fork.
func (r *Replica) end(w state.Writer) uint64 {
	at, ok := r.forks[w.Author]
	if !ok || w.Incarnation < at.Incarnation {
		return 1<<64 - 1
	}
	base := uint64(0) // what is pruned counts, also if a fork comes to light there
	if l := r.logs[LogKey(w)]; l != nil {
		base = l.first - 1
	}
	if w.Incarnation == at.Incarnation {
		return max(at.Seq-1, base)
	}
	return base
}

// item returns what a log is in the frontier.
func (r *Replica) item(l *log) Item {
	tip, end := l.durable.Tip, r.end(l.writer)
	switch {
	case tip.Seq <= end:
		return Item{l.key, tip.Seq, tip.ID}
	case l.cutAt == end:
		return Item{l.key, end, l.cutID}
	}
	return Item{Key: l.key, N: end} // until it is looked up
}

// lookUp reads the ids of the entries before forks, where logs go on beyond.
func (r *Replica) lookUp() {
	for _, l := range r.cuts {
		if end := r.end(l.writer); l.durable.Tip.Seq > end && end > 0 && l.cutAt != end {
			l.cutAt, l.cutID = end, lattice.Hash{}
			r.read(reading{log: l, cut: end}, Read{Log: l.writer, After: end - 1, Upto: end, Max: 1})
		}
	}
	r.cuts = nil
}

// Root returns the replica's frontier in 36 bytes: equal roots mean the same logs.
func (r *Replica) Root() Root { return r.front.Root() }

// Rebase replaces what is here, after a snapshot was imported or entries were
// pruned. All peers are compared with again.
func (r *Replica) Rebase(have Inventory, nowMs int64) (Effects, error) {
	r.now = nowMs
	for _, l := range r.logs {
		l.search = nil
	}
	clear(r.bars) // mostly of logs that were pruned at a peer
	clear(r.barCount)
	r.stores, r.todo, r.cuts = map[uint64]storing{}, nil, nil // what is on its way to the disk is not counted
	if err := r.fill(have); err != nil {
		return r.done(), err
	}
	for _, p := range r.peers {
		clear(p.has)
		p.sources, p.wants, p.news = 0, Want{}, nil
		for _, k := range slices.SortedFunc(maps.Keys(p.serving), Key.compare) {
			x := p.serving[k]
			if x.log = r.open(k.writer()); x.after+1 < x.log.first {
				r.stop(p, x)
				r.send(p, Pruned{x.log.writer, x.log.first, r.snapshot})
			} else {
				r.ready(p, x) // it may have come on
			}
		}
		if p.greeted {
			r.lags.Met(p.id, r.now)
		}
		if p.greeted && !p.asking() {
			r.compare(p)
		}
	}
	return r.done(), nil
}

// Appended says that this node wrote entries of its own, which are durable: the
// log's tip is tip, of that time.
func (r *Replica) Appended(w state.Writer, tip sigchain.Link, time uint64, nowMs int64) Effects {
	r.now = nowMs
	l := r.open(w)
	if tip.Seq > l.durable.Tip.Seq {
		l.durable.Tip, l.durable.Time = tip, time
		l.chain = l.durable
		r.grown(l, nil)
	}
	return r.done()
}

// Reconsider says that the members, or what Entitled knows, have changed: what was
// refused by that is wanted again.
func (r *Replica) Reconsider(nowMs int64) Effects {
	r.now = nowMs
	clear(r.denied)
	for _, p := range r.peers {
		strange := p.strange
		p.strange = nil
		for _, i := range strange {
			_ = r.learn(p, i) // it was counted when it came
		}
	}
	return r.done()
}

// done makes messages of what has gathered, and returns the effects of the call.
func (r *Replica) done() Effects {
	for _, p := range slices.Clone(r.peers) {
		if p.strikes > maxStrikes || r.barCount[p.id] > r.c.MaxLogs {
			r.banned[p.id] = r.now + r.c.BarMs
			r.hangUp(p, TooMuch)
		}
	}
	r.lookUp()
	r.choose()
	for _, p := range r.peers {
		r.flush(p)
	}
	e := r.eff
	r.eff = Effects{}
	return e
}

func (r *Replica) send(p *peer, m Message) {
	r.eff.Send = append(r.eff.Send, Send{p.id, m})
	p.out += uint64(HeaderSize)
}

func (r *Replica) nextID() uint64 {
	r.lastID++
	return r.lastID
}

// refuse counts and shows something that did not enter.
func (r *Replica) refuse(p *peer, w state.Writer, seq uint64, reason Reason, err error) {
	r.counts[reason]++
	r.eff.Refused = append(r.eff.Refused, Refused{p.id, w, seq, reason, err})
}

const (
	maxStrikes = 256  // things that are wrong by themselves, after which a peer is not let in for a while
	maxStrange = 4096 // logs of strangers that are remembered of a peer
)

// hangUp ends a session, and tells the peer why.
func (r *Replica) hangUp(p *peer, reason Reason) {
	r.send(p, Bye{reason})
	r.eff.Drop = append(r.eff.Drop, Drop{p.id, reason})
	r.disconnect(p.id)
}

// keepOff bars a log from being wanted from a peer for a while.
func (r *Replica) keepOff(p *peer, k Key) {
	b := bar{p.id, k}
	if _, ok := r.bars[b]; !ok {
		r.barCount[p.id]++
	}
	r.bars[b] = r.now + r.c.BarMs
	delete(p.has, k)
}

func (r *Replica) barred(p *peer, k Key) bool {
	until, ok := r.bars[bar{p.id, k}]
	return ok && r.now < until
}

func (r *Replica) peer(id lattice.NodeID) *peer {
	i, ok := r.findPeer(id)
	if !ok {
		return nil
	}
	return r.peers[i]
}

func (r *Replica) findPeer(id lattice.NodeID) (int, bool) {
	return slices.BinarySearchFunc(r.peers, id, func(p *peer, id lattice.NodeID) int { return slices.Compare(p.id[:], id[:]) })
}
