package node

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// chain signs entries of a log, one behind the other, from the one after prev on.
func chain(t *testing.T, st state.Writer, key identity.Key, home sigchain.Signed, prev sigchain.Signed, values ...string) []sigchain.Signed {
	t.Helper()
	var out []sigchain.Signed
	for _, v := range values {
		op, err := (&state.Put{Address: state.Address{Map: "0", Key: []byte("lie"), Kind: state.Register}, Payload: state.Payload{Bytes: []byte(v)}}).Encode(st)
		if err != nil {
			t.Fatal(err)
		}
		e := sigchain.Entry{Store: home.Home(), Incarnation: st.Incarnation, Seq: 1, Time: uint64(time.Now().UnixMilli()) << 16, Ops: []sigchain.Op{op}}
		if prev.Seq > 0 {
			e.Prev = prev.Link()
			e.Time = max(e.Time, prev.Time+1)
		}
		if prev.Incarnation == st.Incarnation {
			e.Seq = prev.Seq + 1
		}
		s, err := sigchain.Sign(key, e)
		if err != nil {
			t.Fatal(err)
		}
		out, prev = append(out, s), s
	}
	return out
}

// TestLiarsAboutEntries has a member that runs a program of its own send, in sessions that
// are right otherwise, entries that are not: each is refused with its reason, what is right before it
// is kept, and what others write goes on all the while.
func TestLiarsAboutEntries(t *testing.T) {
	var cid state.Writer
	c := newCourt(t, func(c *court) {
		n, stop := runTwin(t, t.TempDir())
		if err := n.join(t.Context(), c.token(roster.Writer)); err != nil {
			t.Fatal(err)
		}
		soon(t, "the right to write", func() bool { return n.first.Role() == roster.Writer })
		if err := setKey(n.first, "cid", "1"); err != nil {
			t.Fatal(err)
		}
		cid = n.first.State().Writer()
		soon(t, "what cid wrote", func() bool { return getKey(t, c.eve.first, "cid") == "1" && getKey(t, c.bob.first, "cid") == "1" })
		stop() // from now on it is away
	})
	eve, home := c.eve, c.store.Genesis()
	last := uint64(1) << 62
	// fresh is a log of eve's own that nobody has.
	fresh := func(n int) (state.Writer, []sigchain.Signed) {
		last++
		w := state.Writer{Author: eve.node(), Incarnation: last}
		return w, chain(t, w, eve.key, home, sigchain.Signed{}, slices.Repeat([]string{"x"}, n)...)
	}
	refused := func(t *testing.T, x *talk[reconcile.Message], w state.Writer, why reconcile.Reason) {
		t.Helper()
		got := x.hears("why", func(m reconcile.Message) bool { r, ok := m.(reconcile.Refuse); return ok && r.Log == w })
		if r := got.(reconcile.Refuse); r.Reason != why {
			t.Errorf("refused as %q", r.Reason)
		}
	}
	for _, lie := range []struct {
		what   string
		why    reconcile.Reason
		kept   uint64 // that is right before it
		change func(all []sigchain.Signed, m *reconcile.Blocks)
	}{
		{"a forged signature", reconcile.Forged, 1, func(_ []sigchain.Signed, m *reconcile.Blocks) { m.Entries[1][len(m.Entries[1])-1] ^= 1 }},
		{"another's signature", reconcile.Foreign, 1, func(all []sigchain.Signed, m *reconcile.Blocks) {
			m.Entries[1] = signed(t, c.bob.key, all[1].Entry)
		}},
		{"entries in another order", reconcile.Foreign, 1, func(_ []sigchain.Signed, m *reconcile.Blocks) {
			m.Entries[1], m.Entries[2] = m.Entries[2], m.Entries[1]
		}},
		{"an entry of another store", reconcile.Foreign, 1, func(all []sigchain.Signed, m *reconcile.Blocks) {
			all[1].Store[0] ^= 1
			m.Entries[1] = signed(t, eve.key, all[1].Entry)
		}},
		{"no entry", reconcile.Malformed, 2, func(_ []sigchain.Signed, m *reconcile.Blocks) { m.Entries[2] = []byte("no entry") }},
		{"an entry before its time", reconcile.OutOfTime, 1, func(all []sigchain.Signed, m *reconcile.Blocks) {
			all[1].Time = all[0].Time
			m.Entries[1] = signed(t, eve.key, all[1].Entry)
		}},
		{"a hole", reconcile.Hole, 0, func(_ []sigchain.Signed, m *reconcile.Blocks) { m.After, m.Entries = 1, m.Entries[1:] }},
		{"a far start", reconcile.Hole, 0, func(all []sigchain.Signed, m *reconcile.Blocks) {
			all[2].Seq, all[2].Prev.Seq = 1<<40, 1<<40-1
			m.After, m.Entries = 1<<40-1, [][]byte{signed(t, eve.key, all[2].Entry)}
		}},
	} {
		c.refuses(lie.what, false, lie.why, func(t *testing.T) {
			x := eve.entries()
			w, all := fresh(3)
			want := eve.wanted(x, w, all[2].Link())
			m := reconcile.Blocks{Log: w, Ask: want.Ask}
			for _, e := range all {
				m.Entries = append(m.Entries, bytes.Clone(e.Bytes()))
			}
			lie.change(all, &m)
			x.write(reconcile.Encode(m))
			refused(t, x, w, lie.why)
			if got := tipOf(c.store, w); lie.kept == 0 && got != 0 {
				t.Errorf("%d are kept", got)
			}
			soon(t, "what was right before it", func() bool { return tipOf(c.store, w) == lie.kept })
		})
	}
	c.refuses("more than a message may hold", false, reconcile.BadMessage, func(t *testing.T) {
		x := eve.entries()
		w, all := fresh(1)
		want := eve.wanted(x, w, all[0].Link())
		m := reconcile.Encode(reconcile.Blocks{Log: w, Ask: want.Ask, Entries: [][]byte{all[0].Bytes()}})
		binary.BigEndian.PutUint32(m[4:], sigchain.MaxSize+1<<20+1)
		x.write(m)
		x.over()
	})
	c.refuses("an entry of more than 16 MiB", false, reconcile.BadMessage, func(t *testing.T) {
		x := eve.entries()
		w, all := fresh(1)
		want := eve.wanted(x, w, all[0].Link())
		x.write(reconcile.Encode(reconcile.Blocks{Log: w, Ask: want.Ask, Entries: [][]byte{append(bytes.Clone(all[0].Bytes()), make([]byte, sigchain.MaxSize+1-len(all[0].Bytes()))...)}}))
		x.over()
	})
	c.refuses("what is here, and nobody asked for", false, reconcile.NotAsked, func(t *testing.T) {
		x := eve.entries()
		w := c.bob.first.State().Writer()
		got, err := c.bob.first.State().ReadSpan(w, 0, 2, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		x.write(reconcile.Encode(reconcile.Blocks{Log: w, Entries: got.Entries}))
	})
	// Replayed where more was asked for: what is here is passed over, what is not is taken.
	x := eve.entries()
	w, all := fresh(4)
	want := eve.wanted(x, w, all[1].Link())
	x.write(reconcile.Encode(reconcile.Blocks{Log: w, Ask: want.Ask, Entries: [][]byte{all[0].Bytes(), all[1].Bytes()}}))
	soon(t, "two", func() bool { return tipOf(c.store, w) == 2 })
	x.write(reconcile.Encode(reconcile.Blocks{Log: w, Ask: want.Ask, Entries: [][]byte{all[0].Bytes(), all[1].Bytes(), all[2].Bytes(), all[3].Bytes()}}))
	soon(t, "four", func() bool { return tipOf(c.store, w) == 4 })

	// A longer history of who is away. It does not follow what is here; asked for the entry
	// where both part, eve has none that cid signed.
	c.refuses("a rewritten and longer log", false, reconcile.Forged, func(t *testing.T) {
		x := eve.entries()
		tip := tipOf(c.store, cid)
		got, err := c.store.State().ReadSpan(cid, tip-1, tip, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		end, err := sigchain.Parse(got.Entries[0])
		if err != nil {
			t.Fatal(err)
		}
		end.Ops = nil
		other := as(t, eve, cid, end.Entry)
		var longer [][]byte
		prev := other
		for range 3 {
			next := prev.Entry
			next.Seq, next.Prev, next.Time = prev.Seq+1, prev.Link(), prev.Time+1
			prev = as(t, eve, cid, next)
			longer = append(longer, prev.Bytes())
		}
		want := eve.wanted(x, cid, prev.Link())
		x.write(reconcile.Encode(reconcile.Blocks{Log: cid, Ask: want.Ask, After: tip, Entries: longer}))
		probe := asked(x, cid, want.Ask)
		x.write(reconcile.Encode(reconcile.Blocks{Log: cid, Ask: probe.Ask, After: probe.After, Entries: [][]byte{other.Bytes()}}))
		refused(t, x, cid, reconcile.Forged)
		if got := tipOf(c.store, cid); got != tip {
			t.Errorf("cid's log is at %d, was at %d", got, tip)
		}
		if st := c.store.State().Status(); st.Equivocations != 0 {
			t.Error("cid is taken for a liar")
		}
	})
	c.shows(false, reconcile.Forged, reconcile.Foreign, reconcile.Malformed, reconcile.OutOfTime, reconcile.Hole, reconcile.BadMessage, reconcile.NotAsked)
}

// tipOf is how far a log is in a store.
func tipOf(st *store.Store, w state.Writer) uint64 {
	for _, s := range st.State().LogStates() {
		if s.Writer == w {
			return s.Tip.Seq
		}
	}
	return 0
}

// signed signs an entry.
func signed(t *testing.T, key identity.Key, e sigchain.Entry) []byte {
	t.Helper()
	s, err := sigchain.Sign(key, e)
	if err != nil {
		t.Fatal(err)
	}
	return s.Bytes()
}

// as signs an entry with a liar's key, and puts another's name on it.
func as(t *testing.T, l *liar, w state.Writer, e sigchain.Entry) sigchain.Signed {
	t.Helper()
	e.Incarnation = w.Incarnation
	s, err := sigchain.Parse(bytes.ReplaceAll(signed(t, l.key, e), func() []byte { a := l.key.Author(); return a[:] }(), w.Author[:]))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
