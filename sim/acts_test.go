package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/mesh/reconcile"
	"github.com/lattice-log/lattice/storage/disk"
)

// write is what a client asked for: keys that nobody else writes, all or none.
type write struct {
	node   *node
	keys   []string
	value  string
	writer state.Writer // of the entry that has it, if the client was answered
	seq    uint64
	acked  bool
	lost   bool // the disks that had it are gone: it may be there or not
}

// place is an offset of a partition.
type place struct {
	lattice.TopicPartition
	offset int64
}

// produced is a record that a client was told is there.
type produced struct {
	leader *node
	value  string
}

// soon is how long anything may take before it is given up; it is the bubble's time,
// so nobody waits for it.
func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Minute)
}

// expected are errors that an operation may end with where disks and members are
// what the run has made of them.
func (n *node) expected(err error) bool {
	if n.lies { // and so may be held to have forked
		return true
	}
	switch lattice.KindOf(err) {
	case lattice.Denied: // it is no member, or not any more
		return n.st.Role() < roster.Writer
	case lattice.Storage, lattice.Unavailable, lattice.Corrupt, lattice.Internal:
		return n.w.errors || n.failing()
	}
	return errors.Is(err, context.DeadlineExceeded) || n.w.clocks
}

// knows reports whether the node has its own log: one whose disk was emptied, and that
// has kept its key, must have got back what it wrote before it writes again, or its
// entries follow nothing, and have no effect anywhere. Clients wait for that.
func (n *node) knows() bool {
	if n.blank {
		n.blank = !slices.ContainsFunc(n.replica.Peers(), func(p reconcile.PeerStatus) bool { return p.Equal && !n.w.byID(p.Node).lies })
	}
	return !n.blank
}

// put writes keys of their own in one batch.
func (n *node) put() {
	w := n.w
	x := &write{node: n, value: fmt.Sprintf("v%d of %s %s", len(w.writes), n.name, strings.Repeat("x", w.rng.IntN(300)))}
	for i := range 1 + w.rng.IntN(3)/2*2 {
		x.keys = append(x.keys, fmt.Sprintf("w%d/%d", len(w.writes), i))
	}
	w.writes = append(w.writes, x)
	n.ask(x, func(tx *keyval.Tx) error {
		for _, k := range x.keys {
			if _, err := tx.Put(register(k), state.Payload{Bytes: []byte(x.value)}, nil, state.Dot{}); err != nil {
				return err
			}
		}
		// And one that everybody writes, over what they have seen of it.
		r, err := tx.Row(register("shared"))
		if err == nil {
			_, err = tx.Put(register("shared"), state.Payload{Bytes: []byte(x.value[:4])}, r.Dots(), state.Dot{})
		}
		return err
	})
}

// hit adds one to a counter that everybody adds to.
func (n *node) hit() {
	x := &write{node: n, value: "a hit"}
	n.w.adds = append(n.w.adds, x)
	n.ask(x, func(tx *keyval.Tx) error {
		_, err := structs.In(tx, "0").Incr([]byte("hits"), 1)
		return err
	})
}

// ask has an update decided, and notes what the client is told.
func (n *node) ask(x *write, f func(tx *keyval.Tx) error) {
	ctx, cancel := soon()
	defer cancel()
	tk, err := n.st.State().Update(f)
	if err == nil {
		err = tk.Wait(ctx)
	}
	n.w.quiet()
	if err == nil && !n.failing() {
		x.acked, x.writer = true, n.st.State().Writer()
		for _, s := range n.st.State().LogStates() {
			if s.Writer == x.writer {
				x.seq = s.Tip.Seq
			}
		}
		n.w.did("write acknowledged")
	}
	n.w.say("%s writes %v: %s, entry %d", n.name, x.keys, short(err), x.seq)
	if err != nil && !n.expected(err) {
		n.w.fail("works", "%s cannot write: %v", n.name, err)
	}
	n.powerless()
}

func register(key string) state.Address {
	return state.Address{Map: "0", Key: []byte(key), Kind: state.Register}
}

// newTopic creates a topic, which the node leads.
func (n *node) newTopic() {
	ctx, cancel := soon()
	defer cancel()
	_, err := n.st.CreateTopic(ctx, store.NewTopic{Name: fmt.Sprintf("t%d", n.w.rng.IntN(6)), Partitions: 1})
	n.w.quiet()
	n.w.say("%s creates a topic: %s", n.name, short(err))
	if err != nil && !errors.Is(err, store.ErrTopicExists) && !n.expected(err) {
		n.w.fail("works", "%s cannot create a topic: %v", n.name, err)
	}
	n.powerless()
}

// invite has the node admit another, which joins.
func (n *node) invite(p *node, role roster.Role) {
	ctx, cancel := soon()
	defer cancel()
	token, _, err := n.st.Invite(ctx, role, time.Hour, "/ip4/127.0.0.1/tcp/1")
	if err == nil {
		err = n.st.Redeem(ctx, token.Claim(p.id))
	}
	n.w.quiet()
	n.w.say("%s invites %s as %s: %s", n.name, p.name, role, short(err))
	if err != nil && !n.expected(err) {
		n.w.fail("works", "%s cannot invite %s: %v", n.name, p.name, err)
	}
	if err == nil && !n.failing() {
		p.inviter = n.id
		p.join()
		n.w.did("joined")
		n.w.connect(n, p)
	}
	n.powerless()
}

// remove has the node remove a member.
func (n *node) remove(p *node) {
	ctx, cancel := soon()
	defer cancel()
	got, err := n.st.Remove(ctx, p.id)
	n.w.quiet()
	n.w.say("%s removes %s, of which %d entries count: %s", n.name, p.name, got.Entries, short(err))
	if err == nil {
		p.removed = true
		p.sacked = p.sacked || n.i == 0 && !n.failing() && !n.w.losses
		n.w.did("removed")
	} else if k := lattice.KindOf(err); k != lattice.Denied && k != lattice.NotFound && k != lattice.Conflict && !n.expected(err) {
		n.w.fail("works", "%s cannot remove %s: %v", n.name, p.name, err)
	}
	n.powerless()
}

// prune takes a snapshot and lets go of what is below.
func (n *node) prune() {
	ctx, cancel := soon()
	defer cancel()
	_, err := n.st.State().Snapshot(ctx)
	if err == nil && n.w.rng.IntN(3) > 0 {
		_, err = n.st.State().PruneAnyway(ctx, lattice.Hash{})
		n.w.did("pruned")
	}
	n.w.quiet()
	n.w.say("%s takes a snapshot and prunes: %s", n.name, short(err))
	if k := lattice.KindOf(err); err != nil && k != lattice.Conflict && k != lattice.NotFound && !errors.Is(err, keyval.ErrNotBegun) && !n.expected(err) {
		n.w.fail("works", "%s cannot prune: %v", n.name, err)
	}
	n.powerless()
}

// crash cuts the power between two things.
func (n *node) crash() {
	percent := []int{0, 0, 50, 100}[n.w.rng.IntN(4)]
	n.w.say("the power of %s fails; %d%% of what was not synced is left", n.name, percent)
	n.w.did("power cut")
	n.mem.SetFault(nil)
	left := n.mem.CrashClone(percent, n.w.rng)
	n.halt(false)
	n.mem = left
}

// doom has the power fail in the middle of what the node does to its logs soon.
func (n *node) doom() {
	w := n.w
	after, percent := 1+w.rng.IntN(12), []int{0, 50, 50, 100}[w.rng.IntN(4)]
	r := rand.New(rand.NewPCG(w.rng.Uint64(), 1))
	w.say("the power of %s will fail at change %d of its logs, %d%%", n.name, after, percent)
	mem := n.mem
	mem.SetFault(func(op disk.Op) *disk.Fault {
		if !op.Kind.Changes() || !ofLogs(op.Path) {
			return nil
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if after--; after == 0 {
			n.image = mem.CrashClone(percent, r)
		}
		return nil
	})
}

// ofLogs reports whether a file is of what the engine alone writes, in an order that
// is the same in each run.
func ofLogs(path string) bool {
	return strings.Contains(path, "/authors/") || strings.Contains(path, "/topics/")
}

// ail makes some changes of the node's logs fail from now on, applied or not.
func (n *node) ail() {
	w := n.w
	after, kept, times := 1+w.rng.IntN(10), w.rng.IntN(2) == 0, 1+w.rng.IntN(3)
	w.say("the disk of %s will fail at change %d of its logs, %d times, applied: %t", n.name, after, times, kept)
	w.did("disk error")
	n.mem.SetFault(func(op disk.Op) *disk.Fault {
		if !op.Kind.Changes() || !ofLogs(op.Path) {
			return nil
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if after--; after > 0 || after <= -times {
			return nil
		}
		return &disk.Fault{Kept: kept}
	})
}

// lose takes the node's disk away, or puts an old copy in its place.
func (n *node) lose() {
	w := n.w
	n.halt(false)
	n.mem.SetFault(nil)
	from := n.backup
	n.mem = disk.NewMem()
	if from == nil || w.rng.IntN(2) == 0 {
		w.say("the disk of %s is emptied", n.name)
		w.did("disk emptied")
		n.joined, n.blank = false, true
	} else {
		w.say("%s is put back from an old backup", n.name)
		w.did("backup")
		n.mem = from.CrashClone(100, nil)
	}
	clear(n.readable)
	for at, r := range w.records { // what others have of them is another history than the one that begins
		if r.leader == n {
			delete(w.records, at)
		}
	}
	for _, o := range w.orders {
		if o.leader == n {
			w.lostAll[o.at.Topic] = true
		}
	}
	w.lostWith(n)
}

// lostWith notes what only the node had.
func (w *world) lostWith(n *node) {
	held := func(x *write) bool {
		return slices.ContainsFunc(w.all, func(p *node) bool { return p != n && !p.lies && !p.removed && p.joined && p.has(x.writer) >= x.seq })
	}
	for _, x := range w.writes {
		if x.acked && !x.lost && !held(x) {
			x.lost = true
		}
	}
	for _, x := range w.adds {
		if x.acked && !x.lost && !held(x) {
			x.lost = true
		}
	}
}

// has says how far a log is on the node's disk, durably.
func (n *node) has(of state.Writer) uint64 {
	if !n.up() {
		n.open()
	}
	for _, s := range n.st.State().LogStates() {
		if s.Writer == of {
			return s.Tip.Seq
		}
	}
	return 0
}

// start starts the node if it does not run.
func (n *node) start() {
	switch {
	case n.up():
	case n.joined:
		n.open()
	case n.inviter != (lattice.NodeID{}) || n.i == 0:
		n.join()
	}
}
