package keyval

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/segment"
)

// genesis begins the store of every test. Its author is key 0.
var genesis = func() sigchain.Signed {
	op, err := sigchain.Genesis{Name: "test"}.Op()
	if err != nil {
		panic(err)
	}
	s, err := sigchain.Sign(keyOf(0), sigchain.Entry{Incarnation: 1, Seq: 1, Time: uint64(testEpoch.UnixMilli()-1000) << 16, Ops: []sigchain.Op{op}})
	if err != nil {
		panic(err)
	}
	return s
}()

// node is a DB with what runs it, on a file system that outlives it.
type node struct {
	*DB
	o     Options
	t     testing.TB
	clock *tick.Manual
	stop  func()
}

type stamps struct {
	mu   sync.Mutex
	last uint64
	now  func() time.Time
}

func (s *stamps) next() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last+1, uint64(s.now().UnixMilli())<<16)
	return s.last, nil
}

func (s *stamps) observe(t uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = max(s.last, t)
}

func keyOf(n byte) identity.Key { return identity.FromSeed([32]byte{n, 1, 2}) }

var testEpoch = time.UnixMilli(1_767_225_600_000)

func options(fs disk.FS, author byte, incarnation uint64, clock tick.Clock) Options {
	s := &stamps{now: clock.Now}
	return Options{
		FS: fs, Dir: "/store", Genesis: genesis, Key: keyOf(author), Incarnation: incarnation, Clock: clock, Stamp: s.next, Observe: s.observe,
		Committer: signedlog.NewCommitter(), Handles: segment.NewHandles(64), Logger: slog.New(slog.DiscardHandler),
		BlockCache: 1 << 20,
	}
}

// start opens the store and runs it.
func start(t testing.TB, o Options) *node {
	t.Helper()
	n, err := tryStart(t, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tryStart(t testing.TB, o Options) (*node, error) {
	db, err := Open(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	cctx, ccancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Add(2)
	go func() { defer wg.Done(); _ = o.Committer.Run(cctx) }()
	done := make(chan struct{})
	go func() { defer wg.Done(); defer close(done); _ = db.Run(ctx) }()
	n := &node{DB: db, o: o, t: t}
	n.clock, _ = o.Clock.(*tick.Manual)
	once := sync.Once{}
	n.stop = func() {
		once.Do(func() {
			cancel()
			<-done
			ccancel()
			wg.Wait()
		})
	}
	t.Cleanup(n.stop)
	return n, nil
}

// close stops cleanly.
func (n *node) close() {
	n.t.Helper()
	n.stop()
	if err := n.Close(); err != nil {
		n.t.Fatal(err)
	}
}

// update runs f and waits until it is decided.
func (n *node) update(f func(*Tx) error) error {
	tk, err := n.Update(f)
	if err != nil {
		return err
	}
	return tk.Wait(context.Background())
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

func reg(key string) state.Address {
	return state.Address{Map: "0", Key: []byte(key), Kind: state.Register}
}

// set makes value the only head of a register.
func set(tx *Tx, key, value string) error {
	r, err := tx.Row(reg(key))
	if err != nil {
		return err
	}
	_, err = tx.Put(reg(key), state.Payload{Bytes: []byte(value)}, r.Dots(), state.Dot{})
	return err
}

func (n *node) set(key, value string) {
	n.t.Helper()
	n.must(n.update(func(tx *Tx) error { return set(tx, key, value) }))
}

// get returns the winner's value, "" when there is none.
func (n *node) get(key string) string {
	n.t.Helper()
	var out string
	tk, err := n.View(func(tx *Tx) error {
		r, err := tx.Row(reg(key))
		if len(r) > 0 {
			out = string(r.Resolve()[0].Value)
		}
		return err
	})
	n.must(err)
	n.must(tk.Wait(context.Background()))
	return out
}

func TestSetGetReopen(t *testing.T) {
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	n.set("a", "1")
	n.set("b", "2")
	n.set("a", "3")
	if n.get("a") != "3" || n.get("b") != "2" || n.get("c") != "" {
		t.Fatalf("a=%q b=%q c=%q", n.get("a"), n.get("b"), n.get("c"))
	}
	n.close()
	n = start(t, options(fs, 0, 3, clock))
	if n.get("a") != "3" || n.get("b") != "2" {
		t.Fatalf("reopened: a=%q b=%q", n.get("a"), n.get("b"))
	}
	n.close()
}

// TestIdleStartLeavesNothing: a start without writes makes no log.
func TestIdleStartLeavesNothing(t *testing.T) {
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	start(t, options(fs, 0, 2, clock)).close()
	n := start(t, options(fs, 0, 3, clock))
	n.set("a", "1")
	n.close()
	start(t, options(fs, 0, 4, clock)).close()
	names, err := fs.List(fs.PathJoin("/store/authors", keyOf(0).Author().String()))
	if err != nil || len(names) != 2 { // the genesis entry's, and the one that wrote
		t.Fatalf("logs %v, %v", names, err)
	}
}

// TestOneEntryForManyUpdates: updates that come while an entry is being written
// share the next one.
func TestOneEntryForManyUpdates(t *testing.T) {
	fs := disk.NewMem()
	n := start(t, options(fs, 0, 2, tick.NewManual(testEpoch)))
	var wg sync.WaitGroup
	const clients, each = 20, 30
	for c := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				key := fmt.Sprintf("%d/%d", c, i)
				if err := n.update(func(tx *Tx) error { return set(tx, key, key) }); err != nil {
					t.Error(err)
				}
				if got := n.get(key); got != key {
					t.Errorf("read %q, wrote %q", got, key)
				}
			}
		}()
	}
	wg.Wait()
	for c := range clients {
		for i := range each {
			if key := fmt.Sprintf("%d/%d", c, i); n.get(key) != key {
				t.Fatalf("%s is %q", key, n.get(key))
			}
		}
	}
	n.close()
}

// TestTooLargeLeavesNothing: an update that is refused for its size leaves nothing
// that a reader would wait for.
func TestTooLargeLeavesNothing(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	n.set("a", "1")
	for _, write := range []func(tx *Tx) error{
		func(tx *Tx) error { return set(tx, "huge", string(make([]byte, MaxUpdate))) },
		func(tx *Tx) error { _ = set(tx, "huge", string(make([]byte, MaxUpdate))); return nil },
		func(tx *Tx) error {
			if err := set(tx, "b", "2"); err != nil {
				return err
			}
			return set(tx, "huge", string(make([]byte, MaxUpdate)))
		},
	} {
		_, _ = n.Update(write)
		tk, err := n.View(func(tx *Tx) error {
			return tx.Keys("0", nil, func(key []byte, _ structs.Key) bool {
				if string(key) != "a" {
					t.Errorf("there is %q", key)
				}
				return true
			})
		})
		n.must(err)
		if tk != (Ticket{}) {
			t.Error("a reader waits for what nobody wrote")
		}
	}
	n.close()
}

var _ = rand.IntN
