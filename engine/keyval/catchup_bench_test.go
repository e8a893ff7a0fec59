package keyval

import (
	"fmt"
	"testing"

	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/authorlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/mesh/reconcile"
	"github.com/lattice-log/lattice/storage/disk"
)

// longHistory is n small entries of author 1, over 100,000 keys, and its checkpoint.
func longHistory(b *testing.B, n int, grant []sigchain.Ref) ([]sigchain.Signed, []byte) {
	b.Helper()
	w := state.Writer{Author: keyOf(1).Author(), Incarnation: 77}
	at := uint64(testEpoch.UnixMilli())<<16 + 1
	all := make([]sigchain.Signed, 0, n)
	tree := merkle.NewAppender(merkle.Range{})
	var prev sigchain.Signed
	for i := range n {
		op, err := (&state.Put{Address: reg(fmt.Sprintf("key:%06d", i*7919%100_000)), Payload: state.Payload{Bytes: []byte("value of some bytes")}}).Encode(w)
		if err != nil {
			b.Fatal(err)
		}
		prev = foreign(b, 1, prev, at+uint64(i), grant, op)
		all, grant = append(all, prev), nil
		tree.Append(nil, sigchain.Leaf(prev).Hash())
	}
	note, err := merkle.SignCheckpoint(keyOf(1), merkle.Checkpoint{
		Origin: merkle.Origin(genesis.Home(), authorlog.Name(w)), Size: tree.Size(), Root: tree.Root(), End: int64(n), Incarnation: w.Incarnation, Time: prev.Time,
	})
	if err != nil {
		b.Fatal(err)
	}
	return all, note
}

func benchOpen(b *testing.B, incarnation uint64) *node {
	o := options(disk.OS(), 0, incarnation, tick.Real{})
	o.Dir = b.TempDir()
	return start(b, o)
}

// BenchmarkStoreSpan stores b.N verified entries in spans of some 256 KiB, durably,
// and folds them: -benchtime=1000000x.
func BenchmarkStoreSpan(b *testing.B) {
	n := benchOpen(b, 2)
	n.admit(1)
	all, note := longHistory(b, b.N, n.tipsOf(0))
	b.ReportAllocs()
	stop := cpu(b)
	for at := 0; at < len(all); {
		k, size := at, 0
		for ; k < len(all) && size < 256<<10; k++ {
			size += len(all[k].Bytes())
		}
		if kept, err := n.StoreSpan(all[at:k], note); kept != k-at || err != nil {
			b.Fatal(kept, err)
		}
		at = k
	}
	stop()
	n.close()
}

// BenchmarkCatchUp has one replica get b.N entries from another, from its disk to the
// other's disk and state: reading, proving, encoding, verifying, storing and folding,
// all but the network. What is handed out to be stored is stored in pieces of up to
// 4 MiB, as the mesh does it.
func BenchmarkCatchUp(b *testing.B) {
	from, to := benchOpen(b, 2), benchOpen(b, 3)
	from.admit(1)
	all, note := longHistory(b, b.N, from.tipsOf(0))
	if kept, err := from.StoreSpan(all, note); kept != len(all) || err != nil {
		b.Fatal(kept, err)
	}
	if _, err := from.logs.get(state.Writer{Author: keyOf(1).Author(), Incarnation: 77}).Certify(b.Context()); err != nil {
		b.Fatal(err)
	}
	sides := [2]*side{{n: from, id: 1}, {n: to, id: 2}}
	for _, s := range sides {
		m := member{node: s.n}
		r, err := reconcile.New(reconcile.Config{Store: genesis.Home(), Node: [32]byte{s.id}, Session: 1, Admit: s.n.Admits}, m.inventory(), 0)
		if err != nil {
			b.Fatal(err)
		}
		s.r = r
	}
	b.ReportAllocs()
	stop := cpu(b)
	for i, s := range sides {
		s.do(sides[1-i], s.r.Connect([32]byte{sides[1-i].id}, 0))
	}
	for sides[0].r.Root() != sides[1].r.Root() {
		for i, s := range sides {
			s.run(b, sides[1-i])
		}
	}
	stop()
	if from.root() != to.root() {
		b.Fatal("another state")
	}
	from.close()
	to.close()
}

// side is one end of a benchmark's connection.
type side struct {
	n     *node
	id    byte
	r     *reconcile.Replica
	inbox [][]byte
	keeps []reconcile.Store
	reads []reconcile.Read
}

func (s *side) do(o *side, e reconcile.Effects) {
	s.keeps, s.reads = append(s.keeps, e.Store...), append(s.reads, e.Read...)
	for _, x := range e.Send {
		o.inbox = append(o.inbox, reconcile.Encode(x.Message))
	}
}

func (s *side) run(b *testing.B, o *side) {
	inbox := s.inbox
	s.inbox = nil
	for _, m := range inbox {
		e, err := s.r.Step([32]byte{o.id}, m, 0)
		if err != nil {
			b.Fatal(err)
		}
		s.do(o, e)
	}
	reads := s.reads
	s.reads = nil
	m := member{node: s.n}
	for _, x := range reads {
		s.do(o, s.r.Loaded(m.load(x), 0))
	}
	keeps := s.keeps
	s.keeps = nil
	for len(keeps) > 0 {
		var all []sigchain.Signed
		var note []byte
		n := 0
		for ; n < len(keeps) && keeps[n].Log == keeps[0].Log; n++ {
			if all = append(all, keeps[n].Entries...); keeps[n].Note != nil {
				note = keeps[n].Note
			}
		}
		if kept, err := s.n.StoreSpan(all, note); kept != len(all) || err != nil {
			b.Fatal(kept, err)
		}
		for _, k := range keeps[:n] {
			s.do(o, s.r.Stored(k.ID, len(k.Entries), nil, 0))
		}
		keeps = keeps[n:]
	}
	s.do(o, s.r.Reconsider(0))
}

// BenchmarkReadSpan reads 64 KiB of small entries with their proof.
func BenchmarkReadSpan(b *testing.B) {
	n := benchOpen(b, 2)
	n.admit(1)
	all, note := longHistory(b, 20_000, n.tipsOf(0))
	if kept, err := n.StoreSpan(all, note); kept != len(all) || err != nil {
		b.Fatal(kept, err)
	}
	w := state.Writer{Author: keyOf(1).Author(), Incarnation: 77}
	if _, err := n.logs.get(w).Certify(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(64 << 10)
	entries := 0
	for i := range b.N {
		s, err := n.ReadSpan(w, uint64(i*211%19_000), 20_000, 64<<10)
		if err != nil || s.Note == nil {
			b.Fatal(err)
		}
		entries += len(s.Entries)
	}
	b.ReportMetric(float64(entries)/float64(b.N), "entries/op")
	n.close()
}
