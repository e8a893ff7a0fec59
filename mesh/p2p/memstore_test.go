package p2p

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

const startMs = 1_700_000_000_000

func keyOf(name string) identity.Key {
	var seed [32]byte
	copy(seed[:], name)
	return identity.FromSeed(seed)
}

func idOf(name string) lattice.NodeID { return keyOf(name).Author() }

// memStore is a Store in memory with real entries. It folds nothing: whoever a member
// operation of the founder names is a member.
type memStore struct {
	t       testing.TB
	key     identity.Key
	founder lattice.AuthorID
	id      lattice.StoreID
	own     state.Writer

	mu       sync.Mutex
	logs     map[state.Writer]*memLog
	forks    map[lattice.AuthorID]reconcile.ForkProof
	members  map[lattice.NodeID]bool
	removed  map[lattice.NodeID]bool
	invites  map[lattice.Hash]*memInvite
	events   map[int]Events
	watchers int
	snapshot []byte // that can be had
	part     []byte // of one that is being received
	received int    // snapshots that were begun
	imported int
	lie      bool // the snapshot that is sent is another
	batches  int  // calls of Keep
	keep     func(reconcile.Store) error
	cut      int  // a snapshot's reader fails after so many bytes; 0: never
	plain    bool // it serves nobody: it makes no trees
}

type memInvite struct {
	roster.Invite
	claimed lattice.NodeID
	revoked bool
}

// memLog is a log with all nodes of its tree, so that proofs cost nothing.
type memLog struct {
	entries []sigchain.Signed
	base    uint64 // entries up to it are pruned
	levels  [][]lattice.Hash
	note    []byte
	signed  uint64 // size that note covers
}

// found makes a store that key begins, in which the others named are members.
func found(t testing.TB, founder string, others ...string) *memStore {
	t.Helper()
	return foundAs(t, "test", founder, others...)
}

func foundAs(t testing.TB, name, founder string, others ...string) *memStore {
	t.Helper()
	op, err := sigchain.Genesis{Name: name}.Op()
	check(t, err)
	key := keyOf(founder)
	genesis, err := sigchain.Sign(key, sigchain.Entry{Incarnation: 1, Seq: 1, Time: uint64(clock.At(startMs, 0)), Ops: []sigchain.Op{op}})
	check(t, err)
	s := newMemStore(t, founder, genesis)
	for _, n := range others {
		s.admit(idOf(n))
	}
	return s
}

// newMemStore is a store of a node that knows its genesis only.
func newMemStore(t testing.TB, name string, genesis sigchain.Signed) *memStore {
	s := &memStore{
		t: t, key: keyOf(name), founder: genesis.Author, id: genesis.Home(), own: state.Writer{Author: idOf(name), Incarnation: 1},
		logs: map[state.Writer]*memLog{}, forks: map[lattice.AuthorID]reconcile.ForkProof{}, members: map[lattice.NodeID]bool{genesis.Author: true},
		removed: map[lattice.NodeID]bool{}, invites: map[lattice.Hash]*memInvite{}, events: map[int]Events{},
	}
	s.add(state.Writer{Author: genesis.Author, Incarnation: 1}, genesis)
	return s
}

// at is a copy of a store on another node, as after joining: all that was written.
func (s *memStore) at(name string) *memStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := state.Writer{Author: s.founder, Incarnation: 1}
	c := newMemStore(s.t, name, s.logs[w].entries[0])
	for w, l := range s.logs {
		for _, e := range l.entries {
			if c.logs[w] == nil || e.Seq > uint64(len(c.logs[w].entries)) {
				c.add(w, e)
			}
		}
	}
	return c
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *memStore) add(w state.Writer, e sigchain.Signed) {
	l := s.logs[w]
	if l == nil {
		l = &memLog{}
		s.logs[w] = l
	}
	l.entries = append(l.entries, e)
	if !s.plain {
		l.grow(sigchain.Leaf(e).Hash())
	}
	if w.Author != s.founder {
		return
	}
	for _, op := range e.Ops {
		if op.Kind == roster.KindMember {
			m, err := roster.ParseMember(op)
			check(s.t, err)
			s.members[m.Author] = true
		}
	}
}

// grow adds a leaf to the tree.
func (l *memLog) grow(h lattice.Hash) {
	for level := 0; ; level++ {
		if level == len(l.levels) {
			l.levels = append(l.levels, nil)
		}
		l.levels[level] = append(l.levels[level], h)
		n := len(l.levels[level])
		if n%2 == 1 {
			break
		}
		h = merkle.NodeHash(l.levels[level][n-2], l.levels[level][n-1])
	}
}

func (l *memLog) Node(level uint, index uint64) (lattice.Hash, error) {
	return l.levels[level][index], nil
}

// edge is the compact range of the first entries.
func (l *memLog) edge(size uint64) []lattice.Hash {
	var out []lattice.Hash
	for level := len(l.levels) - 1; level >= 0; level-- {
		if size>>level&1 == 1 {
			out = append(out, l.levels[level][size>>level-1])
		}
	}
	return out
}

// write appends entries of this node's own: n of them with a value of size bytes.
func (s *memStore) write(n, size int) {
	ops := make([][]sigchain.Op, n)
	for i := range ops {
		p := &state.Put{Address: state.Address{Map: "0", Key: fmt.Appendf(nil, "k%d", i%10), Kind: state.Register}, Payload: state.Payload{Bytes: bytes.Repeat([]byte("v"), size)}}
		op, err := p.Encode(s.own)
		check(s.t, err)
		ops[i] = []sigchain.Op{op}
	}
	s.append(ops...)
}

func (s *memStore) append(all ...[]sigchain.Op) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.appendLocked(all...)
}

func (s *memStore) appendLocked(all ...[]sigchain.Op) {
	l := s.logs[s.own]
	members := len(s.members)
	for _, ops := range all {
		e := sigchain.Entry{Store: s.id, Incarnation: s.own.Incarnation, Seq: 1, Time: uint64(clock.At(startMs, 0)), Ops: ops}
		if l != nil {
			prev := l.entries[len(l.entries)-1]
			e.Seq, e.Time, e.Prev = prev.Seq+1, prev.Time+1<<16, prev.Link()
		}
		signed, err := sigchain.Sign(s.key, e)
		check(s.t, err)
		s.add(s.own, signed)
		l = s.logs[s.own]
	}
	size := uint64(len(l.entries))
	edge, err := merkle.NewRange(size, l.edge(size))
	check(s.t, err)
	last := l.entries[size-1]
	l.note, err = merkle.SignCheckpoint(s.key, merkle.Checkpoint{
		Origin: merkle.Origin(s.id, s.own.Author.String()+"/"+strconv.FormatUint(s.own.Incarnation, 10)), Size: size, Root: edge.Root(), End: int64(size),
		Incarnation: s.own.Incarnation, Time: last.Time,
	})
	check(s.t, err)
	l.signed = size
	s.tell(func(e Events) { e.Appended(s.own, last.Link(), last.Time) })
	if len(s.members) != members {
		s.tell(func(e Events) { e.Members() })
	}
}

func (s *memStore) tell(f func(Events)) {
	for _, e := range s.events {
		f(e)
	}
}

func (s *memStore) admit(n lattice.NodeID) {
	op, err := roster.Member{Author: n, Role: roster.Writer}.Op()
	check(s.t, err)
	s.append([]sigchain.Op{op})
}

func (s *memStore) remove(n lattice.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removed[n] = true
	s.tell(func(e Events) { e.Members() })
}

// tips is how far each log is, for comparison.
func (s *memStore) tips() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for w, l := range s.logs {
		e := l.entries[len(l.entries)-1]
		out = append(out, fmt.Sprintf("%s/%d %d %s", w.Author.Short(), w.Incarnation, e.Seq, e.ID.Short()))
	}
	for a := range s.forks {
		out = append(out, "fork of "+a.Short())
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (s *memStore) genesis() sigchain.Signed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.logs[state.Writer{Author: s.founder, Incarnation: 1}].entries[0]
}

func (s *memStore) ID() lattice.StoreID { return s.id }

func (s *memStore) Inventory() (reconcile.Inventory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var inv reconcile.Inventory
	for _, w := range slices.SortedFunc(maps.Keys(s.logs), state.Writer.Compare) {
		l := s.logs[w]
		e := l.entries[len(l.entries)-1]
		inv.Logs = append(inv.Logs, reconcile.Have{Log: w, Tip: e.Link(), Time: e.Time, First: l.base + 1})
	}
	for _, f := range s.forks {
		inv.Forks = append(inv.Forks, f.A.Ref().Place())
	}
	inv.Snapshot = s.snapshotName()
	return inv, nil
}

func (s *memStore) snapshotName() reconcile.Snapshot {
	if s.snapshot == nil {
		return reconcile.Snapshot{}
	}
	return reconcile.Snapshot{Root: lattice.Hash{1}, Sum: sha256.Sum256(s.snapshot), Bytes: uint64(len(s.snapshot))}
}

func (s *memStore) Read(_ context.Context, r reconcile.Read) reconcile.Loaded {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := reconcile.Loaded{ID: r.ID}
	if r.Fork {
		f := s.forks[r.Log.Author]
		got.Entries = [][]byte{f.A.Bytes(), f.B.Bytes()}
		return got
	}
	l := s.logs[r.Log]
	if l == nil {
		got.Err = lattice.E(lattice.NotFound, errors.New("no such log"))
		return got
	}
	if r.After < l.base {
		got.Err, got.First, got.Snapshot = lattice.E(lattice.OutOfRange, errors.New("pruned")), l.base+1, s.snapshotName()
		return got
	}
	at, size := r.After, 0
	for ; at < min(r.Upto, uint64(len(l.entries))) && (size == 0 || size < r.Max); at++ {
		got.Entries = append(got.Entries, l.entries[at].Bytes())
		size += len(l.entries[at].Bytes())
	}
	if l.note != nil && len(got.Entries) > 0 && l.signed >= at && l.signed <= uint64(len(l.entries)) {
		var err error
		got.Note, got.Left = l.note, l.edge(r.After)
		got.Proof, err = merkle.Consistency(l, at, l.signed)
		check(s.t, err)
	}
	return got
}

func (s *memStore) Keep(_ context.Context, x reconcile.Store) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.batches++
	if s.keep != nil {
		if err := s.keep(x); err != nil {
			return 0, err
		}
	}
	if x.Fork != nil {
		s.forks[x.Fork.A.Author] = *x.Fork
		return 0, nil
	}
	members, kept := len(s.members), 0
	var refused error
	for _, e := range x.Entries {
		chain := sigchain.Chain{}
		if l := s.logs[x.Log]; l != nil {
			t := l.entries[len(l.entries)-1]
			chain = sigchain.Chain{Store: s.id, Author: t.Author, Incarnation: t.Incarnation, Tip: t.Link(), Time: t.Time}
		} else if e.Seq != 1 {
			refused = sigchain.ErrGap
			break
		}
		if refused = chain.Check(e); refused != nil {
			break
		}
		s.add(x.Log, e)
		kept++
	}
	if l := s.logs[x.Log]; refused == nil && x.Note != nil {
		c, err := merkle.OpenCheckpoint(x.Note, x.Log.Author)
		check(s.t, err)
		l.note, l.signed = x.Note, c.Size
	}
	if len(s.members) != members {
		s.tell(func(e Events) { e.Members() })
	}
	return kept, refused
}

func (s *memStore) Admit(a lattice.AuthorID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.members[a] {
		return nil
	}
	return lattice.E(lattice.Denied, fmt.Errorf("%s is no member", a.Short()))
}

func (s *memStore) Member(n lattice.NodeID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.removed[n]:
		return lattice.E(lattice.Denied, errors.New("removed"))
	case !s.members[n]:
		return lattice.E(lattice.NotFound, errors.New("no member"))
	}
	return nil
}

func (s *memStore) Members() []lattice.NodeID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []lattice.NodeID
	for n := range s.members {
		if !s.removed[n] && n != s.key.Author() {
			out = append(out, n)
		}
	}
	return out
}

func (s *memStore) Watch(e Events) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchers++
	n := s.watchers
	s.events[n] = e
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.events, n)
	}
}
