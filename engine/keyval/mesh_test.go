package keyval

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/mesh/reconcile"
	"github.com/lattice-log/lattice/storage/disk"
)

// member is a node with what a mesh would run on it: a Replica, and the queues
// between that, the store and the other members. Messages travel as bytes.
type member struct {
	*node
	w    *mesh
	i    byte
	fs   *disk.Mem
	r    *reconcile.Replica
	stop func() // ends Follow

	inbox  [][][]byte // by sender
	linked []bool
	keeps  []reconcile.Store
	reads  []reconcile.Read

	mu  sync.Mutex
	own *state.Writer // told by Appended, and not taken over yet
	tip sigchain.Link
	at  uint64
	met bool
	re  bool
}

// mesh is some members, a clock, and who may meet whom.
type mesh struct {
	t     testing.TB
	rng   *rand.Rand
	clock *tick.Manual
	now   int64
	inc   uint64
	level signedlog.Durability
	all   []*member
	meets func(i, j int) bool
	acked map[string]string // what a client was told is written: its own keys, at its member

	sealed, bare, taken, crashes int // spans read with a checkpoint and without, snapshots, power cuts
}

func newMesh(t testing.TB, seed uint64, n int, level signedlog.Durability) *mesh {
	w := &mesh{t: t, rng: rand.New(rand.NewPCG(seed, 77)), clock: tick.NewManual(testEpoch), inc: 2, level: level, acked: map[string]string{}, meets: func(int, int) bool { return true }}
	for i := range n {
		m := &member{w: w, i: byte(i), fs: disk.NewMem(), inbox: make([][][]byte, n), linked: make([]bool, n)}
		w.all = append(w.all, m)
		m.open()
	}
	return w
}

func (m *member) open() {
	o := options(m.fs, m.i, m.w.inc, m.w.clock)
	o.Durability = m.w.level
	m.w.inc++
	m.node = start(m.w.t, o)
	m.own, m.met, m.re = nil, false, false
	m.stop = m.Follow(Follower{
		Appended: func(w state.Writer, tip sigchain.Link, time uint64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.own, m.tip, m.at = &w, tip, time
		},
		Roster:  func() { m.mu.Lock(); m.met = true; m.mu.Unlock() },
		Rebased: func() { m.mu.Lock(); m.re = true; m.mu.Unlock() },
	})
	r, err := reconcile.New(reconcile.Config{
		Store: genesis.Home(), Node: keyOf(m.i).Author(), Session: m.w.inc, Admit: m.Admits,
		Turn: 2000, Window: 20_000, StallMs: 3000, BarMs: 10_000, CompareMs: 4000,
	}, m.inventory(), m.w.now)
	m.must(err)
	m.r, m.keeps, m.reads = r, nil, nil
}

func (m *member) inventory() reconcile.Inventory {
	var inv reconcile.Inventory
	for _, s := range m.LogStates() {
		inv.Logs = append(inv.Logs, reconcile.Have{Log: s.Writer, Tip: s.Tip, Time: s.Time, First: s.First})
	}
	var err error
	inv.Forks, err = m.FirstForks()
	m.must(err)
	inv.Snapshot = m.newest()
	return inv
}

func (m *member) newest() reconcile.Snapshot {
	k, ok, err := m.NewestSnapshot()
	m.must(err)
	if !ok {
		return reconcile.Snapshot{}
	}
	return reconcile.Snapshot{Root: k.Root, Sum: k.ID, Bytes: uint64(k.Bytes)}
}

// cut ends the connections of a member, or that with one other.
func (m *member) cut(others ...int) {
	for j := range m.w.all {
		if m.linked[j] && (len(others) == 0 || slices.Contains(others, j)) {
			o := m.w.all[j]
			m.linked[j], o.linked[m.i] = false, false
			m.inbox[j], o.inbox[m.i] = nil, nil
			m.do(m.r.Disconnect(keyOf(o.i).Author(), m.w.now))
			o.do(o.r.Disconnect(keyOf(m.i).Author(), m.w.now))
		}
	}
}

// crash cuts the power, keeping a part of what no sync covered, and opens again.
func (m *member) crash() {
	percent := []int{0, 50, 100}[m.w.rng.IntN(3)]
	m.w.crashes++
	m.fs = m.fs.CrashClone(percent, m.w.rng)
	m.cut()
	m.stop()
	m.node.stop()
	m.open()
}

// restart stops and starts.
func (m *member) restart() {
	m.cut()
	m.stop()
	m.close()
	m.open()
}

func (m *member) do(e reconcile.Effects) {
	m.keeps, m.reads = append(m.keeps, e.Store...), append(m.reads, e.Read...)
	for _, x := range e.Refused {
		switch x.Reason {
		case reconcile.Stranger, reconcile.NotShown, reconcile.NotStored, reconcile.Rewritten, reconcile.Closing, reconcile.NotTaken:
		default:
			m.t.Errorf("%d refuses %s:%d of %s: %s (%v)", m.i, x.Log.Author.Short(), x.Seq, x.Peer.Short(), x.Reason, x.Err)
		}
	}
	for _, s := range e.Send {
		for j, o := range m.w.all {
			if keyOf(o.i).Author() == s.To && m.linked[j] {
				o.inbox[m.i] = append(o.inbox[m.i], reconcile.Encode(s.Message))
			}
		}
	}
	for _, d := range e.Drop {
		for j, o := range m.w.all {
			if keyOf(o.i).Author() == d.Peer {
				m.cut(j)
			}
		}
	}
	for _, s := range e.Snapshots {
		m.takeOver(s)
	}
}

// takeOver imports a peer's snapshot.
func (m *member) takeOver(s reconcile.SnapshotOffer) {
	for _, o := range m.w.all {
		if keyOf(o.i).Author() != s.Peer {
			continue
		}
		f, err := o.OpenSnapshot(s.Snapshot.Sum)
		if err != nil {
			return // it is another one now
		}
		b, err := io.ReadAll(io.NewSectionReader(f, 0, f.Bytes))
		m.must(errors.Join(err, f.Close()))
		m.must(disk.MkdirAll(m.fs, "/in"))
		m.must(disk.WriteFile(m.fs, "/in/snapshot", b))
		m.w.taken++
		if _, err := m.Import(context.Background(), "/in/snapshot"); err != nil && !errors.Is(err, ErrOwn) {
			m.t.Errorf("%d takes over the snapshot of %d: %v", m.i, o.i, err)
		}
	}
}

// hear takes over what the store has told.
func (m *member) hear() bool {
	m.mu.Lock()
	own, tip, at, met, re := m.own, m.tip, m.at, m.met, m.re
	m.own, m.met, m.re = nil, false, false
	m.mu.Unlock()
	if re {
		e, err := m.r.Rebase(m.inventory(), m.w.now)
		m.must(err)
		m.do(e)
	}
	if own != nil {
		m.do(m.r.Appended(*own, tip, at, m.w.now))
	}
	if met {
		m.do(m.r.Reconsider(m.w.now))
	}
	return re || met || own != nil
}

// step does one thing that is waiting; false: nothing is.
func (m *member) step() bool {
	if m.hear() {
		return true
	}
	var can []func()
	if len(m.keeps) > 0 {
		can = append(can, func() {
			s := m.keeps[0]
			m.keeps = m.keeps[1:]
			kept, err := 0, error(nil)
			if s.Fork != nil {
				err = m.StoreFork(s.Fork.A, s.Fork.B)
			} else {
				kept, err = m.StoreSpan(s.Entries, s.Note)
			}
			m.do(m.r.Stored(s.ID, kept, err, m.w.now))
		})
	}
	if len(m.reads) > 0 {
		can = append(can, func() {
			i := m.w.rng.IntN(len(m.reads))
			x := m.reads[i]
			m.reads = slices.Delete(m.reads, i, i+1)
			m.do(m.r.Loaded(m.load(x), m.w.now))
		})
	}
	for j := range m.inbox {
		if len(m.inbox[j]) > 0 {
			can = append(can, func() {
				b := m.inbox[j][0]
				m.inbox[j] = m.inbox[j][1:]
				e, err := m.r.Step(keyOf(byte(j)).Author(), b, m.w.now)
				if err != nil && !strings.Contains(err.Error(), "ends the session") {
					m.t.Errorf("%d hears of %d: %v", m.i, j, err)
				}
				m.do(e)
			})
		}
	}
	if len(can) == 0 {
		return false
	}
	can[m.w.rng.IntN(len(can))]()
	return true
}

func (m *member) load(x reconcile.Read) reconcile.Loaded {
	got := reconcile.Loaded{ID: x.ID}
	if x.Fork {
		a, b, err := m.ReadFork(x.Log.Author)
		got.Entries, got.Err = [][]byte{a.Bytes(), b.Bytes()}, err
		return got
	}
	s, err := m.ReadSpan(x.Log, x.After, x.Upto, x.Max)
	if m.w != nil && s.Note != nil {
		m.w.sealed++
	} else if m.w != nil && err == nil {
		m.w.bare++
	}
	got.Entries, got.Note, got.Left, got.Proof, got.Err, got.First = s.Entries, s.Note, s.Left, s.Proof, err, s.First
	if lattice.KindOf(err) == lattice.OutOfRange && err != nil {
		got.Snapshot = m.newest()
	}
	return got
}

// connect connects whoever may meet and is not connected.
func (w *mesh) connect() {
	for i, a := range w.all {
		for j, b := range w.all[:i] {
			if !a.linked[j] && w.meets(i, j) {
				a.linked[j], b.linked[i] = true, true
				a.do(a.r.Connect(keyOf(b.i).Author(), w.now))
				b.do(b.r.Connect(keyOf(a.i).Author(), w.now))
			}
		}
	}
}

func (w *mesh) tick(ms int64) {
	w.now += ms
	w.clock.Advance(time.Duration(ms) * time.Millisecond)
	for _, m := range w.all {
		m.do(m.r.Tick(w.now))
	}
}

// settle lets everybody meet until all have the same, and checks that they do.
func (w *mesh) settle() {
	w.t.Helper()
	for range 600 {
		for _, m := range w.all {
			m.tellFollowers() // who wrote may have been answered before the Replica was told
		}
		w.connect()
		for busy := true; busy; {
			busy = false
			for _, m := range w.all {
				busy = m.step() || busy
			}
		}
		equal := true
		for _, m := range w.all[1:] {
			equal = equal && m.r.Root() == w.all[0].r.Root()
		}
		if equal {
			w.check()
			return
		}
		w.tick(500)
	}
	for _, m := range w.all {
		w.t.Logf("%d: %v refused %v\n%+v", m.i, m.r.Root(), m.r.Refusals(), m.LogStates())
	}
	w.t.Fatal("they do not come to the same")
}

func (w *mesh) check() {
	w.t.Helper()
	for _, m := range w.all {
		if m.root() != w.all[0].root() || m.dump() != w.all[0].dump() {
			w.t.Fatalf("%d has the same logs as 0 and another state:\n%s\n%s", m.i, m.dump(), w.all[0].dump())
		}
		if s := m.Status(); s.Waiting+s.Held != 0 || s.Failed != "" || len(s.Damaged) > 0 {
			w.t.Errorf("%d: %+v", m.i, s)
		}
		for key, want := range w.acked {
			if got := m.get(key); got != want {
				w.t.Errorf("%d has %s=%.20q, written was %.20q", m.i, key, got, want)
			}
		}
	}
}

// write has a member set a key of its own, if it may write yet.
func (m *member) write(size int) {
	key, value := fmt.Sprintf("m%d/%d", m.i, m.w.rng.IntN(12)), fmt.Sprintf("%d %s", m.w.now, strings.Repeat("v", size))
	err := m.update(func(tx *Tx) error { return set(tx, key, value) })
	switch {
	case err == nil:
		m.w.acked[key] = value
	case lattice.KindOf(err) != lattice.Denied:
		m.t.Fatalf("%d writes: %v", m.i, err)
	}
}

// TestMesh: members write, meet, part, crash, restart, lose their fold databases,
// prune and take over snapshots, as a seed has it; 0 and 2 never meet. In the end all
// have the same frontier, one state root, and every write that was acknowledged.
func TestMesh(t *testing.T) {
	seeds := uint64(12)
	if testing.Short() {
		seeds = 3
	}
	var all [4]int
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := runMesh(t, seed, 300)
			for i, n := range []int{w.sealed, w.bare, w.taken, w.crashes} {
				all[i] += n
			}
		})
	}
	t.Logf("%d spans with a checkpoint, %d without, %d snapshots taken over, %d power cuts", all[0], all[1], all[2], all[3])
	if !testing.Short() && slices.Min(all[:]) == 0 { // three seeds may well have no snapshot taken over
		t.Error("one of them never happened")
	}
}

func runMesh(t *testing.T, seed uint64, steps int) *mesh {
	w := newMesh(t, seed, 3, signedlog.Fsync)
	w.meets = func(i, j int) bool { return i+j != 2 || i == j }
	w.all[0].admit(1, 2)
	for range steps {
		m := w.all[w.rng.IntN(3)]
		switch w.rng.IntN(40) {
		case 0:
			m.crash()
		case 1:
			m.restart()
		case 2:
			m.cut()
			m.stop()
			m.close()
			m.must(m.fs.RemoveAll("/store/state"))
			m.open()
		case 3:
			m.cut()
		case 4, 5, 6, 7:
			w.connect()
		case 8, 9:
			w.tick(int64(w.rng.IntN(2000)))
		case 10:
			if seed%2 == 1 {
				_, err := m.Snapshot(context.Background())
				if err == nil {
					_, err = m.PruneAnyway(context.Background(), lattice.Hash{})
				}
				if k := lattice.KindOf(err); err != nil && k != lattice.Conflict && k != lattice.NotFound {
					t.Fatalf("%d prunes: %v", m.i, err)
				}
			}
		case 11, 12, 13, 14, 15, 16:
			for range 1 + w.rng.IntN(8) {
				m.write(w.rng.IntN(400))
			}
		default:
			for range w.rng.IntN(60) {
				w.all[w.rng.IntN(3)].step()
			}
		}
	}
	w.settle()
	for _, m := range w.all { // and what is there after a restart is the same
		m.restart()
	}
	w.settle()
	for _, m := range w.all {
		m.close()
	}
	return w
}

// TestMeshFork: an author shows one member one history and another member another.
// Both find the place, keep the proof, tell a third, and come to one state.
func TestMeshFork(t *testing.T) {
	w := newMesh(t, 1, 3, signedlog.Fsync)
	w.all[0].admit(1, 2, 5)
	w.settle()
	a, b := w.all[0], w.all[1]
	now := uint64(testEpoch.UnixMilli())<<16 + 1000
	one := foreign(t, 5, sigchain.Signed{}, now, a.tipsOf(0), putOp(t, 5, "k", "before"))
	left := []sigchain.Signed{one}
	right := []sigchain.Signed{one}
	for i := range 9 {
		l, r := left[len(left)-1], right[len(right)-1]
		word := [2]string{"both", "both"}
		if i >= 4 {
			word = [2]string{"left", "right"}
		}
		left = append(left, foreign(t, 5, l, now+uint64(i)+1, nil, putOp(t, 5, fmt.Sprint(i), word[0])))
		right = append(right, foreign(t, 5, r, now+uint64(i)+1, nil, putOp(t, 5, fmt.Sprint(i), word[1])))
	}
	for _, x := range []struct {
		m   *member
		all []sigchain.Signed
	}{{a, left}, {b, right}} {
		x.m.cut()
		if n, err := x.m.StoreSpan(x.all, nil); n != len(x.all) || err != nil {
			t.Fatalf("%d takes %d of its history: %v", x.m.i, n, err)
		}
		x.m.restart() // the Replica was not told
	}
	w.settle()
	for _, m := range w.all {
		forks, err := m.FirstForks()
		m.must(err)
		if len(forks) != 1 || forks[0].Seq != 6 {
			t.Fatalf("%d knows the forks %v", m.i, forks)
		}
		if m.get("3") != "both" || m.get("4") != "" || m.get("k") != "before" {
			t.Errorf("%d: 3=%q 4=%q", m.i, m.get("3"), m.get("4"))
		}
		x, y, err := m.ReadFork(keyOf(5).Author())
		if err != nil || !sigchain.Equivocation(x, y) {
			t.Errorf("%d has no proof: %v", m.i, err)
		}
		if p, ok := m.Member(keyOf(5).Author()); !ok || !p.Forked {
			t.Errorf("%d says of the author %+v", m.i, p)
		}
		m.close()
	}
}
