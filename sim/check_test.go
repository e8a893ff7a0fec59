package sim

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
)

// The properties, when everything that was broken is mended and everybody that is
// honest can meet:
//
//   - converge: honest members have the same frontier, the same state root and the same
//     catalogue; again after they were restarted.
//   - nothing acknowledged is lost: each write and record of which a client was told is
//     there, with its value, unless the disks that had it were taken away; and an
//     increment counts once.
//   - all or nothing: of a batch there is all or nothing.
//   - only entitled writes count: nothing of a stranger is stored, nothing beyond the
//     cut of a removed member has an effect, nobody has a role that nobody entitled gave.
//   - only its author writes a log: every entry that is stored is signed by its author and
//     follows the one before, and of an honest author it is the one that it wrote.
//   - an honest author never signs two entries for one place, and one who did is frozen
//     there, everywhere.
//   - a lying peer harms only itself: all of the above, and no honest node is refused
//     for what only a liar does.

// finish mends everything, lets everybody meet, and checks the properties.
func (w *world) finish() {
	w.say("everything is mended")
	clear(w.blocked)
	clear(w.slow)
	for _, n := range w.all {
		n.mem.SetFault(nil)
		n.powerless()
		if wrong := n.clock.wrong != 0; wrong || w.errors { // what a failed sync has stopped goes on after a restart
			n.halt(false)
			n.clock.set(0)
		}
		n.start()
	}
	w.pass(12_000) // nobody is kept off any more
	if w.clocks {
		for range 5 { // and what was held is not any more
			w.pass(300_000)
		}
	}
	w.settleTo(w.apart)
	w.last()
	w.settleTo(func() string { return cmp.Or(w.apart(), w.uncommitted()) })
	w.check()
	for _, n := range w.honest() {
		n.halt(true)
		n.open()
	}
	w.settle()
	w.check()
}

// honest are the nodes that tell the truth and are members, as the founder has it.
func (w *world) honest() []*node {
	founder := w.all[0]
	var out []*node
	for _, n := range w.all {
		if n.up() && !n.lies && (n == founder || founder.admits(n)) {
			out = append(out, n)
		}
	}
	return out
}

// settle lets everybody meet until honest members have the same frontier.
func (w *world) settle() { w.settleTo(w.apart) }

func (w *world) settleTo(apart func() string) {
	for range 400 {
		for i, a := range w.all {
			for _, b := range w.all[:i] {
				w.connect(a, b)
			}
		}
		w.drain()
		all := w.honest()
		if !slices.ContainsFunc(all, func(n *node) bool { return n.replica.Root() != all[0].replica.Root() }) && apart() == "" {
			return
		}
		w.pass(500)
	}
	if s := apart(); s != "" {
		w.fail("converge", "%s", s)
	}
	for _, n := range w.honest() {
		w.say("%s has %s, %d items", n.name, n.replica.Root().Hash.Short(), n.replica.Root().Items)
		for _, s := range n.st.State().LogStates() {
			w.say("  %s/%d: %d from %d, %s", w.name(s.Writer.Author), s.Writer.Incarnation&0xffff, s.Tip.Seq, s.First, s.Tip.ID.Short())
		}
	}
	w.fail("converge", "honest members do not come to the same frontier")
}

func (w *world) check() {
	all := w.honest()
	w.checkEqual(all)
	cut := all[0].cuts()
	for _, n := range all {
		w.checkLogs(n)
		w.checkWrites(n, cut)
		w.checkMembers(n)
		w.checkTopics(n)
	}
	w.checkForks(all)
	w.checkEverywhere(all)
}

func (w *world) checkEqual(all []*node) {
	var first string
	for _, n := range all {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		root, err := n.st.State().Root(ctx)
		cancel()
		if err != nil {
			w.fail("converge", "%s has no state root: %v", n.name, err)
		}
		w.quiet()
		s := fmt.Sprintf("state %s\n", root.Hash)
		for _, t := range n.st.Topics() {
			s += fmt.Sprintf("topic %s %s %d %v by %s\n", t.Name, t.ID, t.Partitions, t.Config, t.Leader.Short())
		}
		for _, m := range n.st.State().Members() {
			s += fmt.Sprintf("member %s %s %t\n", w.name(m.Author), m.Role, m.Forked)
		}
		if st := n.st.State().Status(); st.Failed != "" || len(st.Damaged) > 0 {
			w.fail("converge", "%s: %+v", n.name, st)
		}
		if first == "" {
			first = s
			w.say("%s has frontier %s and\n%s", n.name, n.replica.Root().Hash.Short(), s)
		}
		if s != first {
			w.fail("converge", "%s and %s have the same logs, and\n%s---\n%s", all[0].name, n.name, first, s)
		}
	}
}

// cuts returns up to where each chain of removed authors counts.
func (n *node) cuts() map[lattice.AuthorID]map[uint64]uint64 {
	out := map[lattice.AuthorID]map[uint64]uint64{}
	n.st.State().ReadRoster(func(r *roster.Roster) {
		for _, st := range r.Standings() {
			if st.Role != roster.None || len(st.Removed) == 0 {
				continue
			}
			upto := map[uint64]uint64{}
			for i, at := range st.Removed {
				for ref, rm := range r.Removals(st.Author) {
					if ref != at {
						continue
					}
					one := map[uint64]uint64{}
					for _, l := range rm.Cut {
						one[l.Incarnation] = l.Seq
					}
					if i == 0 {
						upto = one
						continue
					}
					for inc := range upto {
						upto[inc] = min(upto[inc], one[inc])
					}
				}
			}
			out[st.Author] = upto
		}
	})
	return out
}

// checkWrites looks for each write, and for what of it nobody may see.
func (w *world) checkWrites(n *node, cut map[lattice.AuthorID]map[uint64]uint64) {
	for _, x := range w.writes {
		there := 0
		for _, k := range x.keys {
			v, dot, ok := n.value(k)
			if !ok {
				continue
			}
			if there++; v != x.value {
				w.fail("nothing acknowledged is lost", "%s has %s=%.40q, written was %.40q", n.name, k, v, x.value)
			}
			upto, gone := cut[x.node.id]
			if gone && dot.Seq > upto[dot.Writer.Incarnation] {
				w.fail("only entitled writes count", "%s has %s, in entry %d of incarnation %d of %s, which was cut at %d", n.name, k, dot.Seq, dot.Writer.Incarnation&0xffff, x.node.name, upto[dot.Writer.Incarnation])
			}
		}
		if there != 0 && there != len(x.keys) {
			w.fail("all or nothing", "%s has %d of %v", n.name, there, x.keys)
		}
		if there == 0 && w.due(n, x, cut) {
			w.fail("nothing acknowledged is lost", "%s does not have %v, entry %d of incarnation %d of %s, which was acknowledged", n.name, x.keys, x.seq, x.writer.Incarnation&0xffff, x.node.name)
		}
	}
	if v, at, ok := n.value("forged"); ok && !w.byID(at.Writer.Author).lies { // of itself a liar may say anything
		w.fail("only its author writes a log", "%s has a forged write: %s", n.name, v)
	}
	if _, _, ok := n.value("stranger"); ok {
		w.fail("only entitled writes count", "%s has what a stranger wrote", n.name)
	}
	if _, _, ok := n.value("far"); ok {
		w.fail("nothing is before its time", "%s has what was written a century ahead", n.name)
	}
	w.checkHits(n, cut)
}

// due reports whether an acknowledged write must be there.
func (w *world) due(n *node, x *write, cut map[lattice.AuthorID]map[uint64]uint64) bool {
	if !x.acked || x.lost || x.node.lies {
		return false
	}
	if upto, gone := cut[x.node.id]; gone {
		return x.seq <= upto[x.writer.Incarnation]
	}
	all := w.honest()
	if w.losses { // who has it may be no member any more, since who made it one has lost that
		for _, p := range w.all {
			if p.up() && !p.lies && !slices.Contains(all, p) && p.has(x.writer) >= x.seq {
				return false
			}
		}
	}
	return slices.Contains(all, x.node) || n.has(x.writer) >= x.seq
}

// checkHits checks that each increment counts once.
func (w *world) checkHits(n *node, cut map[lattice.AuthorID]map[uint64]uint64) {
	least, most := int64(0), int64(0)
	for _, x := range w.adds {
		if most++; w.due(n, x, cut) {
			least++
		}
	}
	got := int64(0)
	n.view(func(tx *keyval.Tx) error {
		v, ok, err := structs.In(tx, "0").Get([]byte("hits"))
		if err == nil && ok {
			_, err = fmt.Sscan(string(v.Bytes), &got)
		}
		return err
	})
	if got < least || got > most {
		w.fail("nothing acknowledged is lost", "%s counts %d, of %d increments %d are due", n.name, got, most, least)
	}
}

func (n *node) view(f func(tx *keyval.Tx) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	tk, err := n.st.State().View(f)
	if err == nil {
		err = tk.Wait(ctx)
	}
	n.w.quiet()
	n.w.must(err)
}

// value returns what a reader sees of a key, and where it was written.
func (n *node) value(key string) (v string, at state.Dot, ok bool) {
	n.view(func(tx *keyval.Tx) error {
		r, err := tx.Row(register(key))
		if ok = err == nil && len(r) > 0; ok {
			v, at = string(r.Resolve()[0].Value), r.Dots()[0]
		}
		return err
	})
	return v, at, ok
}

// checkLogs reads every entry that the node has stored, and asks what the node itself
// does not ask again.
func (w *world) checkLogs(n *node) {
	db := n.st.State()
	for _, s := range db.LogStates() {
		if _, ok := db.Member(s.Writer.Author); !ok {
			w.fail("only entitled writes count", "%s has the log of a stranger: %s", n.name, w.name(s.Writer.Author))
		}
		var prev sigchain.Signed
		for at := s.First - 1; at < s.Tip.Seq; {
			span, err := db.ReadSpan(s.Writer, at, s.Tip.Seq, 1<<20)
			w.must(err)
			for _, b := range span.Entries {
				e, err := sigchain.Parse(b)
				w.must(err)
				at++
				if err := e.Verify(); err != nil || writerOf(e) != s.Writer || e.Seq != at || e.Home() != w.genesis.Home() {
					w.fail("only its author writes a log", "%s has, as entry %d of %s, one of %s: %v", n.name, at, w.name(s.Writer.Author), w.name(e.Author), err)
				}
				if prev.Seq > 0 && e.Prev != prev.Link() {
					w.fail("only its author writes a log", "entry %d of %s at %s does not follow the one before", at, w.name(s.Writer.Author), n.name)
				}
				prev = e
			}
		}
	}
}

// checkMembers checks that roles are those that somebody entitled gave.
func (w *world) checkMembers(n *node) {
	for _, m := range n.st.State().Members() {
		if p := w.byID(m.Author); p == nil && m.Role > roster.None && m.Author != w.keyOf("eve").Author() {
			w.fail("only entitled writes count", "%s has a member that nobody admitted: %s", n.name, m.Author)
		} else if p != nil && p.sacked && m.Role > roster.None {
			w.fail("only entitled writes count", "%s has %s as %s, whom the founder removed", n.name, p.name, m.Role)
		} else if p != nil && m.Forked && !p.lies {
			w.fail("an honest author never forks", "%s says that %s signed two entries for one place", n.name, p.name)
		} else if p == nil && m.Role > roster.Writer {
			w.fail("only entitled writes count", "%s has eve as %s", n.name, m.Role)
		}
	}
}

// checkForks checks that who signed two entries for one place is frozen there.
func (w *world) checkForks(all []*node) {
	e := w.eve
	if e == nil || !e.told[0] || !e.told[1] || w.losses || w.prunes || slices.ContainsFunc(w.all, func(n *node) bool { return n.removed }) {
		return // who was shown one of them may be gone
	}
	for _, n := range all {
		at := n.st.State().Forked(e.id)
		left, _, l := n.value("split/left")
		right, _, r := n.value("split/right")
		if at.Seq != e.fork || l || r {
			w.fail("who forks is frozen", "%s knows that eve forked at %d, it was at %d; it has left=%q, right=%q", n.name, at.Seq, e.fork, left, right)
		}
	}
}
