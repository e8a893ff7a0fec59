package sim

import (
	"bytes"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// lie changes what a node sends: what a member can do that runs another program.
func (n *node) lie(m reconcile.Message) []reconcile.Message {
	w := n.w
	if n.said = append(n.said, m); len(n.said) > 64 {
		n.said = n.said[1:]
	}
	how := w.rng.IntN(40)
	switch b := m.(type) {
	case reconcile.Blocks:
		if lied, ok := n.lieAbout(b, how); ok {
			w.did("lie")
			return lied
		}
	case reconcile.Offer:
		if how < 4 && len(b.Items) > 0 { // far ahead, of what nobody has
			w.did("lie")
			b.Items = slices.Clone(b.Items)
			b.Items[0].N += 1000
			return []reconcile.Message{b}
		}
	}
	switch how {
	case 30:
		w.did("lie")
		return nil
	case 31, 32: // said before
		w.did("lie")
		return []reconcile.Message{m, n.said[w.rng.IntN(len(n.said))]}
	case 33: // a fork that is none: two entries of one chain
		if a := n.entriesOf(w.genesis.Author, 2); len(a) == 2 {
			w.did("lie")
			return []reconcile.Message{m, reconcile.Fork{A: a[0], B: a[1]}}
		}
	case 34: // far start: all before was pruned
		w.did("lie")
		return []reconcile.Message{m, reconcile.Pruned{Log: writerOf(w.genesis), First: 1 << 60}}
	case 35: // a log that nobody wrote
		w.did("lie")
		k := reconcile.LogKey(state.Writer{Author: w.all[0].id, Incarnation: w.rng.Uint64()})
		return []reconcile.Message{m, reconcile.Offer{Items: []reconcile.Item{{Key: k, N: 5, ID: lattice.Hash{1}}}}}
	}
	return []reconcile.Message{m}
}

func writerOf(s sigchain.Signed) state.Writer {
	return state.Writer{Author: s.Author, Incarnation: s.Incarnation}
}

// lieAbout changes entries on their way.
func (n *node) lieAbout(b reconcile.Blocks, how int) ([]reconcile.Message, bool) {
	r := n.w.rng
	b.Entries = slices.Clone(b.Entries)
	i := r.IntN(len(b.Entries))
	switch how {
	case 0, 1: // forged: a byte is another
		e := bytes.Clone(b.Entries[i])
		e[r.IntN(len(e))] ^= 1
		b.Entries[i] = e
	case 2: // only its signature, under the author's checkpoint
		e := bytes.Clone(b.Entries[0])
		e[len(e)-1-r.IntN(64)] ^= 1
		b.Entries[0] = e
	case 3: // a hole
		b.Entries = b.Entries[1:]
		if len(b.Entries) == 0 {
			return nil, true
		}
	case 4: // far start
		b.After += 1 << 40
	case 5: // reordered
		slices.Reverse(b.Entries)
	case 6, 7: // longer, by an entry that its author never wrote
		b.Entries = append(b.Entries, n.forge(b, b.Entries[len(b.Entries)-1]))
		b.Note, b.Left, b.Proof = nil, nil, nil
	case 8, 9: // rewritten, and longer
		if e := n.rewrite(b.Entries[i]); e != nil {
			b.Entries = append(b.Entries[:i:i], e, n.forge(b, e))
			b.Note, b.Left, b.Proof = nil, nil, nil
		}
	case 10: // another log's
		b.Log.Incarnation++
	case 11:
		return nil, true // never shown
	default:
		return nil, false
	}
	return []reconcile.Message{b}, true
}

// forge makes an entry of another's log that follows one, signed by this node.
func (n *node) forge(b reconcile.Blocks, after []byte) []byte {
	prev, err := sigchain.Parse(after)
	if err != nil {
		return after
	}
	op, err := (&state.Put{Address: register("forged"), Payload: state.Payload{Bytes: []byte("forged")}}).Encode(b.Log)
	n.w.must(err)
	return n.as(b.Log.Author, sigchain.Entry{
		Store: prev.Home(), Incarnation: prev.Incarnation, Seq: prev.Seq + 1, Time: prev.Time + 1, Prev: prev.Link(), Ops: []sigchain.Op{op},
	})
}

// rewrite gives an entry other operations.
func (n *node) rewrite(b []byte) []byte {
	s, err := sigchain.Parse(b)
	if err != nil || s.Seq == 1 {
		return nil
	}
	op, err := (&state.Put{Address: register("forged"), Payload: state.Payload{Bytes: []byte("rewritten")}}).Encode(writerOf(s))
	n.w.must(err)
	e := s.Entry
	e.Ops = []sigchain.Op{op}
	return n.as(s.Author, e)
}

// as signs an entry with this node's key, and puts another author's name on it.
func (n *node) as(author lattice.AuthorID, e sigchain.Entry) []byte {
	s, err := sigchain.Sign(n.key, e)
	n.w.must(err)
	return bytes.ReplaceAll(s.Bytes(), n.id[:], author[:])
}

// entriesOf returns the first entries of an author that the node has.
func (n *node) entriesOf(a lattice.AuthorID, count int) [][]byte {
	for _, s := range n.st.State().LogStates() {
		if s.Writer.Author == a && s.First == 1 && s.Tip.Seq >= uint64(count) {
			got, err := n.st.State().ReadSpan(s.Writer, 0, uint64(count), 1<<20)
			if err == nil && len(got.Entries) == count {
				return got.Entries
			}
		}
	}
	return nil
}

// author is a member without a node: the run signs for it whatever it likes.
type author struct {
	w    *world
	key  identity.Key
	id   lattice.AuthorID
	both []sigchain.Signed // what everybody may see
	fork uint64            // the place for which it signed two entries; 0: none
	told [2]bool           // which of the two were shown to somebody
}

// makeEve has the founder admit an author that has no node.
func (w *world) makeEve() {
	n := w.all[0]
	if w.eve != nil || !n.up() {
		return
	}
	ctx, cancel := soon()
	defer cancel()
	e := &author{w: w, key: w.keyOf("eve")}
	e.id = e.key.Author()
	token, _, err := n.st.Invite(ctx, roster.Writer, 1<<40, "/ip4/127.0.0.1/tcp/1")
	if err == nil {
		err = n.st.Redeem(ctx, token.Claim(e.id))
	}
	w.quiet()
	if n.powerless() || err != nil {
		return
	}
	w.say("%s admits eve", n.name)
	w.eve = e
	var parents []sigchain.Ref
	n.st.State().ReadRoster(func(r *roster.Roster) { parents = slices.Clone(r.GrantsTo(e.id)) })
	if len(parents) == 0 {
		w.eve = nil
		return
	}
	prev := sigchain.Signed{}
	for i := range 2 + w.rng.IntN(3) {
		prev = e.sign(prev, parents, e.put(fmt.Sprintf("eve%d", i), "both"))
		e.both, parents = append(e.both, prev), nil
	}
	// What it has no right to.
	grant, err := roster.Member{Author: w.keyOf("zed").Author(), Role: roster.Admin}.Op()
	w.must(err)
	e.both = append(e.both, e.sign(prev, nil, grant))
	e.fork = uint64(len(e.both)) + 1
}

// put is an operation that sets a key.
func (e *author) put(key, value string) sigchain.Op {
	op, err := (&state.Put{Address: register(key), Payload: state.Payload{Bytes: []byte(value)}}).Encode(state.Writer{Author: e.id, Incarnation: eves})
	e.w.must(err)
	return op
}

// eves is the incarnation of authors without a node.
const eves = 77

// sign makes the author's next entry, of one operation.
func (e *author) sign(prev sigchain.Signed, parents []sigchain.Ref, op sigchain.Op) sigchain.Signed {
	x := sigchain.Entry{Store: e.w.genesis.Home(), Incarnation: eves, Seq: 1, Time: uint64(e.w.now)<<16 + 1, Parents: parents, Ops: []sigchain.Op{op}}
	if prev.Seq > 0 {
		x.Seq, x.Prev, x.Time = prev.Seq+1, prev.Link(), prev.Time+1
	}
	s, err := sigchain.Sign(e.key, x)
	e.w.must(err)
	return s
}

// far is an entry of a time that never comes, in a log of its own.
func (e *author) far() sigchain.Signed {
	op, err := (&state.Put{Address: register("far"), Payload: state.Payload{Bytes: []byte("too early")}}).Encode(state.Writer{Author: e.id, Incarnation: eves + 1})
	e.w.must(err)
	tip := e.both[len(e.both)-1]
	s, err := sigchain.Sign(e.key, sigchain.Entry{
		Store: e.w.genesis.Home(), Incarnation: eves + 1, Seq: 1, Time: uint64(e.w.now+100*365*86_400_000) << 16, Prev: tip.Link(), Ops: []sigchain.Op{op},
	})
	e.w.must(err)
	return s
}

// show gives a node what eve tells it: its history as everybody may see it, and one of two that go on
// from there. It goes past the Replica, as a session of eve's would bring it.
func (w *world) show() {
	n, ok := w.pick(func(n *node) bool { return !n.lies })
	e := w.eve
	if e == nil || !ok || n.st.State().Admits(e.id) != nil {
		return
	}
	all := slices.Clone(e.both)
	if w.rng.IntN(3) == 0 {
		if _, err := n.st.State().StoreSpan(all, nil); err == nil {
			_, err = n.st.State().StoreSpan([]sigchain.Signed{e.far()}, nil)
			w.say("eve shows %s an entry of another century: %s", n.name, short(err))
			w.did("far future")
		}
	} else {
		side := w.rng.IntN(2)
		word := [2]string{"left", "right"}[side]
		for i := range 3 {
			all = append(all, e.sign(all[len(all)-1], nil, e.put("split/"+word, fmt.Sprint(i))))
		}
		kept, err := n.st.State().StoreSpan(all, nil)
		w.say("eve shows %s its %s history: %d of %d kept, %s", n.name, word, kept, len(all), short(err))
		w.did("two histories")
		e.told[side] = e.told[side] || kept > len(e.both) && !n.failing()
	}
	w.quiet()
	n.post(func(m *mail) { m.rebased = true }) // the Replica was not told
	n.powerless()
}

// intrude offers a node entries that nobody may write: a stranger's, and a member's that
// grants what it has no right to.
func (w *world) intrude() {
	n, ok := w.pick(func(n *node) bool { return !n.lies })
	if !ok {
		return
	}
	zed := &author{w: w, key: w.keyOf("zed")}
	zed.id = zed.key.Author()
	s := zed.sign(sigchain.Signed{}, []sigchain.Ref{w.genesis.Ref()}, zed.put("stranger", "was here"))
	kept, err := n.st.State().StoreSpan([]sigchain.Signed{s}, nil)
	w.quiet()
	w.say("a stranger's entry at %s: %d kept, %s", n.name, kept, short(err))
	w.did("stranger")
	n.powerless()
}
