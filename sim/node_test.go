package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/mesh/batches"
	"github.com/lattice-log/lattice/mesh/reconcile"
	"github.com/lattice-log/lattice/storage/disk"
)

const stores = "/data/stores"

// node is a store on a disk, with the Replica that a carrier would run on it.
type node struct {
	w     *world
	i     int
	name  string
	key   identity.Key
	id    lattice.NodeID
	rand  *randomness
	clock *clock
	lies  bool

	mem        *disk.Mem
	backup     *disk.Mem // what it may be put back from
	joined     bool
	inviter    lattice.NodeID
	invitation lattice.Hash // by which it joined
	removed    bool         // it was removed, by somebody whose entry counts
	sacked     bool         // by the founder, whose word nobody takes back

	st       *store.Store // nil: it does not run
	stop     func() error
	unfollow func()
	replica  *reconcile.Replica
	linked   []bool
	inbox    [][streams][]message // by sender
	keeps    []reconcile.Store
	reads    []reconcile.Read
	said     []reconcile.Message
	again    bool // it is to be restarted
	freight
	readable map[lattice.TopicPartition]int64 // up to where readers were shown a partition since the disk is there
	marks    map[lattice.TopicPartition]mark  // the high watermark, as long as it runs
	cosigned map[lattice.TopicPartition]int64 // how many batches it has told others that it has, since the disk is there
	blank    bool                             // its disk was emptied, it came back by no invitation, and has not been in step with anybody since

	mu    sync.Mutex
	mail  mail
	image *disk.Mem // what is left after the power failed in the middle of something
}

// mail is what the store has told, and the Replica has not heard.
type mail struct {
	own              *state.Writer
	tip              sigchain.Link
	time             uint64
	members, rebased bool
	topics           bool // came, went or were given partitions
	changed          map[lattice.TopicPartition]bool
	answers          []answered
}

// grew notes that a partition has more.
func (m *mail) grew(id lattice.TopicPartition) {
	if m.changed == nil {
		m.changed = map[lattice.TopicPartition]bool{}
	}
	m.changed[id] = true
}

// randomness is a reader of the seed's numbers that goroutines may share.
type randomness struct {
	mu sync.Mutex
	r  *rand.ChaCha8
}

func (r *randomness) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.Read(b)
}

// clock is a node's: it may be wrong.
type clock struct {
	*tick.Manual
	mu    sync.Mutex
	wrong time.Duration
}

// Now implements tick.Clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Manual.Now().Add(c.wrong)
}

func (c *clock) set(wrong time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = wrong
}

func newNode(w *world, i int) *node {
	n := &node{w: w, i: i, name: string(rune('a' + i)), mem: disk.NewMem(), linked: make([]bool, w.nodes), inbox: make([][streams][]message, w.nodes), readable: map[lattice.TopicPartition]int64{}, cosigned: map[lattice.TopicPartition]int64{}}
	n.key = w.keyOf(n.name)
	n.id = n.key.Author()
	var seed [32]byte
	copy(seed[:], fmt.Sprintf("random %s/%d", n.name, w.seed))
	n.rand = &randomness{r: rand.NewChaCha8(seed)}
	n.clock = &clock{Manual: tick.NewManual(epoch)}
	n.clock.AfterEach(w.quiet)
	return n
}

func (n *node) up() bool { return n.st != nil }

func (n *node) logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// found makes the store.
func (n *node) found() {
	n.w.must(disk.MkdirAll(n.mem, stores))
	_, err := store.Create(n.mem, stores, n.key, "main", n.clock, n.rand, n.logger())
	n.w.must(err)
	n.joined = true
	n.open()
	n.w.genesis = n.st.Genesis()
}

// join makes the store of another's genesis, empty, as the holder of an invitation does.
func (n *node) join() {
	n.w.must(disk.MkdirAll(n.mem, stores))
	_, err := store.JoinBy(n.mem, stores, n.w.genesis, store.JoinedRecord{Inviter: n.inviter, Invitation: n.invitation}, n.logger())
	n.w.must(err)
	n.joined = true
	n.open()
}

// open starts the node on what is on its disk.
func (n *node) open() {
	names, err := n.mem.List(stores)
	n.w.must(err)
	names = slices.DeleteFunc(names, func(s string) bool { return len(s) != len(lattice.StoreID{}.String()) })
	if len(names) != 1 {
		n.w.fail("works", "%s has the stores %v", n.name, names)
	}
	n.image, n.again, n.marks = nil, false, map[lattice.TopicPartition]mark{}
	n.mem.SetFault(nil)
	st, err := store.Open(store.Config{
		FS: n.mem, Dir: stores + "/" + names[0], Key: n.key, Clock: n.clock, Rand: n.rand, Logger: n.logger(),
		DefaultPartitions: 1, OpenFiles: 64, State: store.StateConfig{CacheBytes: 1 << 20},
	})
	if err != nil {
		n.w.fail("opens", "%s does not start: %v", n.name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- st.Run(ctx) }()
	n.st, n.stop = st, func() error { cancel(); return <-done }
	n.mail, n.keeps, n.reads, n.said = mail{}, nil, nil, nil
	n.unfollow = st.State().Follow(keyval.Follower{
		Appended: func(w state.Writer, tip sigchain.Link, time uint64) {
			n.post(func(m *mail) { m.own, m.tip, m.time = &w, tip, time })
		},
		Roster:  func() { n.post(func(m *mail) { m.members = true }) },
		Rebased: func() { n.post(func(m *mail) { m.rebased = true }) },
	})
	n.w.quiet()
	r, err := reconcile.New(reconcile.Config{
		Store: st.Info().ID, Node: n.id, Session: n.w.rng.Uint64(), Admit: st.State().Admits,
		Turn: 4000, Window: 30_000, StallMs: 3000, BarMs: 10_000, CompareMs: 4000,
	}, n.inventory(), n.w.now)
	n.w.must(err)
	n.replica = r
	n.w.say("%s runs", n.name)
	n.carry()
	n.checkReadable()
	n.checkCosigned()
}

func (n *node) post(write func(*mail)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	write(&n.mail)
}

// halt stops the node; what it has under way to others goes with its sessions.
func (n *node) halt(clean bool) {
	if !n.up() {
		return
	}
	n.mem.SetFault(nil)
	for _, p := range n.w.all {
		n.w.cut(n, p, n.name+" stops")
	}
	n.unfollow()
	n.unload()
	err := errors.Join(n.stop(), n.st.Close())
	n.st, n.replica = nil, nil
	n.w.quiet()
	if clean && err != nil {
		n.w.fail("works", "%s does not stop: %v", n.name, err)
	}
}

func (n *node) inventory() reconcile.Inventory {
	var inv reconcile.Inventory
	db := n.st.State()
	for _, s := range db.LogStates() {
		inv.Logs = append(inv.Logs, reconcile.Have{Log: s.Writer, Tip: s.Tip, Time: s.Time, First: s.First})
	}
	var err error
	inv.Forks, err = db.FirstForks()
	n.w.must(err)
	inv.Snapshot = n.newest()
	return inv
}

func (n *node) newest() reconcile.Snapshot {
	k, ok, err := n.st.State().NewestSnapshot()
	n.w.must(err)
	if !ok {
		return reconcile.Snapshot{}
	}
	return reconcile.Snapshot{Root: k.Root, Sum: k.ID, Bytes: uint64(k.Bytes)}
}

// admits is what a carrier asks of its store before it opens a session.
func (n *node) admits(p *node) bool {
	m, ok := n.st.State().Member(p.id)
	if !ok {
		return n.inviter == p.id
	}
	return m.Role > roster.None
}

// hear has the Replica hear what the store has told; false: nothing.
func (n *node) hear() bool {
	n.mu.Lock()
	m := n.mail
	n.mail = mail{}
	n.mu.Unlock()
	n.hearOfRecords(m)
	if m.rebased {
		e, err := n.replica.Rebase(n.inventory(), n.w.now)
		n.w.must(err)
		n.do(e)
	}
	if m.own != nil {
		n.do(n.replica.Appended(*m.own, m.tip, m.time, n.w.now))
	}
	if m.members {
		n.do(n.replica.Reconsider(n.w.now))
		for _, p := range n.w.all {
			if n.linked[p.i] && !n.admits(p) {
				n.w.cut(n, p, n.name+" hears that "+p.name+" is no member")
			}
		}
	}
	return m.rebased || m.members || m.own != nil || m.topics || len(m.changed)+len(m.answers) > 0
}

// do takes effects: what is to be stored or read waits for its turn.
func (n *node) do(e reconcile.Effects) {
	w := n.w
	if n.failing() {
		return // it is off already, and everybody is about to see it
	}
	n.keeps, n.reads = append(n.keeps, e.Store...), append(n.reads, e.Read...)
	for _, x := range e.Refused {
		p := w.byID(x.Peer)
		w.say("%s refuses %s of %s/%d from %s: %s", n.name, x.Reason, w.name(x.Log.Author), x.Seq, p.name, short(x.Err))
		w.did("refused: " + x.Reason.String())
		if !n.lies && !p.lies && faultOfPeer(x.Reason) {
			w.fail("a lying peer harms only itself", "%s refuses what %s sends: %s, %v", n.name, p.name, x.Reason, x.Err)
		}
	}
	for _, s := range e.Send {
		to := w.byID(s.To)
		if !n.linked[to.i] {
			continue
		}
		n.claimsEntries(s.Message)
		all := []reconcile.Message{s.Message}
		if n.lies {
			all = n.lie(s.Message)
		}
		for _, m := range all {
			n.send(to, aboutEntries, reconcile.Encode(m))
		}
	}
	for _, d := range e.Drop {
		w.cut(n, w.byID(d.Peer), fmt.Sprintf("%s drops it, %s", n.name, d.Reason))
	}
	for _, s := range e.Snapshots {
		n.takeOver(s)
	}
}

// faultOfPeer says for which reasons a node that follows the protocol is never refused.
func faultOfPeer(r reconcile.Reason) bool {
	switch r {
	case reconcile.Stranger, reconcile.NotShown, reconcile.NotStored, reconcile.Rewritten, reconcile.Closing, reconcile.NotTaken:
		return false
	}
	return true
}

// deliver gives the node the next message of another.
func (n *node) deliver(from *node, about stream) {
	q := &n.inbox[from.i][about]
	b := (*q)[0].bytes
	*q = (*q)[1:]
	n.w.say("%s -> %s %s", from.name, n.name, describe(about, b))
	switch about {
	case aboutAsks:
		n.lead(from, b)
		return
	case aboutAnswers:
		n.answer(from, b)
		return
	}
	var err error
	if about == aboutBatches {
		var e batches.Effects
		e, err = n.parts.Step(from.id, b, n.w.now)
		n.takeFreight(e)
	} else {
		var e reconcile.Effects
		e, err = n.replica.Step(from.id, b, n.w.now)
		n.do(e)
	}
	if err != nil {
		n.w.cut(n, from, short(err))
	}
}

// keep makes durable the next thing that the Replica wants kept.
func (n *node) keep() {
	s := n.keeps[0]
	n.keeps = n.keeps[1:]
	kept, err := 0, error(nil)
	switch {
	case s.Fork != nil:
		err = n.st.State().StoreFork(s.Fork.A, s.Fork.B)
		n.w.say("%s keeps the fork of %s: %s", n.name, n.w.name(s.Fork.A.Author), short(err))
	case s.Statements != nil:
		err = lattice.E(lattice.Unsupported, errors.New("no statements are kept"))
	default:
		kept, err = n.st.State().StoreSpan(s.Entries, s.Note)
		n.w.say("%s keeps %s/%d-%d, %d of %d: %s", n.name, n.w.name(s.Log.Author), s.Entries[0].Seq, s.Entries[len(s.Entries)-1].Seq, kept, len(s.Entries), short(err))
	}
	n.w.quiet()
	if n.powerless() || !n.up() {
		return
	}
	n.do(n.replica.Stored(s.ID, kept, err, n.w.now))
}

// load reads the next thing that the Replica wants read.
func (n *node) load() {
	i := n.w.rng.IntN(len(n.reads))
	x := n.reads[i]
	n.reads = slices.Delete(n.reads, i, i+1)
	got := reconcile.Loaded{ID: x.ID}
	if x.Fork {
		a, b, err := n.st.State().ReadFork(x.Log.Author)
		got.Entries, got.Err = [][]byte{a.Bytes(), b.Bytes()}, err
	} else {
		s, err := n.st.State().ReadSpan(x.Log, x.After, x.Upto, x.Max)
		got.Entries, got.Note, got.Left, got.Proof, got.Err, got.First = s.Entries, s.Note, s.Left, s.Proof, err, s.First
		if err != nil && lattice.KindOf(err) == lattice.OutOfRange {
			got.Snapshot = n.newest()
		}
	}
	n.do(n.replica.Loaded(got, n.w.now))
}

// takeOver imports a peer's snapshot.
func (n *node) takeOver(s reconcile.SnapshotOffer) {
	p := n.w.byID(s.Peer)
	if !p.up() || !n.up() || !n.linked[p.i] {
		return
	}
	f, err := p.st.State().OpenSnapshot(s.Snapshot.Sum)
	if err != nil {
		return // it is another one now
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, f.Bytes))
	n.w.must(errors.Join(err, f.Close()))
	if err := errors.Join(disk.MkdirAll(n.mem, "/in"), disk.WriteFile(n.mem, "/in/snapshot", b)); err != nil {
		return // its disk fails
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = n.st.State().Import(ctx, "/in/snapshot")
	n.w.say("%s takes over the snapshot of %s: %s", n.name, p.name, short(err))
	n.w.did("snapshot taken over")
	n.w.quiet()
	n.again = errors.Is(err, keyval.ErrOwn) // what the error says to do
}

// powerless reports whether the power failed in the middle of what was just done. The
// node is off then: what it did from that moment on did not happen.
func (n *node) powerless() bool {
	if !n.failing() {
		return false
	}
	n.w.say("the power of %s had failed in the middle of it", n.name)
	n.w.did("power cut in the middle")
	n.mem.SetFault(nil)
	n.halt(false)
	n.mem, n.image = n.image, nil
	return true
}

// failing reports whether the power has failed.
func (n *node) failing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.image != nil
}
