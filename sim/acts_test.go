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
	if n.lies || n.early(err) { // a liar may be held to have forked
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

// early reports whether an error says that the node does not know yet what it wrote once.
func (n *node) early(err error) bool {
	if errors.Is(err, keyval.ErrReturning) {
		n.w.did("too early to write")
		return true
	}
	return false
}

// knows reports whether the node has its own log, as far as that is the run's to know: one
// whose disk was emptied, and that comes back by no new invitation, since nobody is there who
// may give one. Its clients wait; those of all others do as they like, and the engine says
// when it is too early.
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
	config := map[string]string{}
	if n.w.several && n.w.rng.IntN(4) > 0 {
		config = n.replicas()
	}
	t, err := n.st.CreateTopic(ctx, store.NewTopic{Name: fmt.Sprintf("t%d", n.w.rng.IntN(3)), Partitions: 1, Config: config})
	n.w.quiet()
	n.w.noteSet(t.ID, config)
	n.w.say("%s creates a topic%s: %s", n.name, n.w.replicasIn(config), short(err))
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
		p.inviter, p.invitation, p.blank = n.id, token.ID(), false
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

// prune takes a snapshot and lets go of what is below: when all active members have it, or
// anyway.
func (n *node) prune() {
	ctx, cancel := soon()
	defer cancel()
	_, err := n.st.State().Snapshot(ctx)
	before := n.st.State().LogStates()
	how := n.w.rng.IntN(6)
	if err == nil && how > 1 {
		if _, err = n.st.State().Prune(ctx, lattice.Hash{}); err == nil {
			n.w.did("pruned when all had it")
		}
	} else if err == nil && how == 1 {
		_, err = n.st.State().PruneAnyway(ctx, lattice.Hash{})
		n.w.did("pruned anyway")
	}
	n.w.quiet()
	n.w.say("%s takes a snapshot and prunes (%d): %s", n.name, how, short(err))
	switch k := lattice.KindOf(err); {
	case errors.Is(err, keyval.ErrBehind):
		n.w.did("pruning waits")
	case err != nil && k != lattice.Conflict && k != lattice.NotFound && !errors.Is(err, keyval.ErrNotBegun) && !n.expected(err):
		n.w.fail("works", "%s cannot prune: %v", n.name, err)
	case err == nil && how > 1 && !n.failing() && !n.lies:
		n.checkWaited(before)
	}
	n.powerless()
}

// checkWaited checks that what was just pruned is with all who are waited for.
func (n *node) checkWaited(before []keyval.LogState) {
	w := n.w
	first := map[state.Writer]uint64{}
	for _, s := range n.st.State().LogStates() {
		first[s.Writer] = s.First
	}
	for _, m := range n.st.State().Watermark().Others {
		p := w.byID(m.Author)
		if p == nil || p.lies || !p.up() || w.losses { // a disk that was lost was not when it said what it had
			continue
		}
		has := p.st.State().Frontier()
		for _, s := range before {
			gone := s.Tip.Seq // a log of which nothing is left went as a whole
			if f, ok := first[s.Writer]; ok {
				gone = f - 1
			}
			if gone >= s.First && has[s.Writer] < gone {
				w.fail("pruning waits", "%s has pruned %s up to %d, and %s has it up to %d", n.name, w.name(s.Writer.Author), gone, p.name, has[s.Writer])
			}
		}
	}
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
	clear(n.cosigned)
	n.loseLead()
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
		n.comeBack()
	}
}

// comeBack has a node whose disk was emptied join again: by a new invitation, which who may
// give one does; or, if there is nobody, with its key alone.
func (n *node) comeBack() {
	for _, p := range n.w.all {
		if p.up() && p != n && !p.lies && p.st.Role() >= roster.Admin && !n.removed {
			role := roster.Writer
			if m, ok := p.st.State().Member(n.id); ok && m.Role == roster.Admin {
				role = m.Role
			}
			if p.invite(n, role); n.joined {
				n.w.did("came back by an invitation")
				return
			}
		}
	}
	n.invitation, n.blank = lattice.Hash{}, true
	n.join()
}
