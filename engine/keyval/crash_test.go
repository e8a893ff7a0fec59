package keyval

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// ledger is what a client was told: pairs of keys that one update sets together.
type ledger struct {
	mu     sync.Mutex
	acked  map[string]int // by key: number of the update
	inside map[string]int // under way, not answered
}

// moment is what a power cut left, and what had been acknowledged by then.
type moment struct {
	step          int
	op            disk.Op
	fs            *disk.Mem
	acked, inside map[string]int
}

// setPair sets two keys to a number, in one update.
func setPair(tx *Tx, key string, n int) error {
	v := fmt.Sprint(n) + strings.Repeat("x", n%7*50)
	if err := set(tx, key+"/a", v); err != nil {
		return err
	}
	return set(tx, key+"/b", v)
}

// pair reads both keys, which one view must show alike.
func (n *node) pair(key string) (v int, err error) {
	var got [2]string
	tk, err := n.View(func(tx *Tx) error {
		for i, side := range []string{"/a", "/b"} {
			r, err := tx.Row(reg(key + side))
			if err != nil {
				return err
			}
			if len(r) > 0 {
				got[i], _, _ = strings.Cut(string(r.Resolve()[0].Value), "x")
			}
		}
		return nil
	})
	if err = errors.Join(err, tk.Wait(context.Background())); err != nil {
		return 0, err
	}
	if got[0] != got[1] {
		return 0, fmt.Errorf("%s: half an update: %q and %q", key, got[0], got[1])
	}
	if got[0] != "" {
		v, err = strconv.Atoi(got[0])
	}
	return v, err
}

// TestCrashAtEveryStep cuts the power before each step that the file system is
// asked for, keeping none, some or all of what no sync covered: while a store is
// made, written to, folded, closed and opened again. Whatever was acknowledged at
// level fsync is there afterwards, updates are there wholly or not at all, and the
// state is the plain fold of the logs.
func TestCrashAtEveryStep(t *testing.T) {
	rng, cuts := rand.New(rand.NewPCG(3, 4)), rand.New(rand.NewPCG(5, 6)) // cuts: under mu
	fs := disk.NewMem()
	book := &ledger{acked: map[string]int{}, inside: map[string]int{}}
	var moments []moment
	step, every := 0, 9
	if testing.Short() {
		every = 60
	}
	var mu sync.Mutex
	fs.SetFault(func(op disk.Op) *disk.Fault {
		if op.Kind == disk.OpRead || op.Kind == disk.OpOpen || op.Kind == disk.OpList {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if step++; step%every == 0 {
			book.mu.Lock()
			defer book.mu.Unlock()
			moments = append(moments, moment{step, op, fs.CrashClone([]int{0, 50, 100}[cuts.IntN(3)], cuts), maps.Clone(book.acked), maps.Clone(book.inside)})
		}
		return nil
	})
	clock := tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	number := 0
	for range 120 {
		number++
		key := fmt.Sprint(rng.IntN(12))
		book.mu.Lock()
		book.inside[key] = number
		book.mu.Unlock()
		n.must(n.update(func(tx *Tx) error { return setPair(tx, key, number) }))
		book.mu.Lock()
		delete(book.inside, key)
		book.acked[key] = number
		book.mu.Unlock()
		switch rng.IntN(10) {
		case 0:
			clock.Advance(time.Second)
		case 1:
			n.must(n.kv.Flush())
		case 2:
			n.close()
			n = start(t, options(fs, 0, uint64(2+number), clock))
		}
	}
	n.close()
	fs.SetFault(nil)
	if len(moments) < 20 {
		t.Fatalf("only %d power cuts", len(moments))
	}
	for _, m := range moments {
		check := func() error {
			n, err := tryStart(t, options(m.fs, 0, 1000, clock))
			if err != nil {
				return err
			}
			defer n.close()
			for key, want := range m.acked {
				got, err := n.pair(key)
				if err != nil || got != want && got != m.inside[key] {
					return fmt.Errorf("%s is %d, acknowledged %d, under way %d; %w", key, got, want, m.inside[key], err)
				}
			}
			var plain model
			plain.follow(n)
			if got, want := n.dump(), dumpOf(&plain.space); got != want {
				return fmt.Errorf("the state is\n%s\nthe fold of the logs\n%s", got, want)
			}
			return n.update(func(tx *Tx) error { return setPair(tx, "after", 1) })
		}
		if err := check(); err != nil {
			t.Fatalf("power cut at step %d, before %s %s: %v", m.step, m.op.Kind, m.op.Path, err)
		}
	}
}

// TestCrashLazily: at the levels that sync later, a power cut takes the newest
// updates, wholly, and the fold database is never ahead of the logs.
func TestCrashLazily(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		fs := disk.NewMem()
		clock := tick.NewManual(testEpoch)
		o := options(fs, 0, 2, clock)
		o.Durability = []signedlog.Durability{signedlog.Interval, signedlog.OS}[rng.IntN(2)]
		n := start(t, o)
		for i := range 30 {
			n.must(n.update(func(tx *Tx) error { return setPair(tx, fmt.Sprint(i%5), i+1) }))
			if rng.IntN(5) == 0 {
				clock.Advance(time.Second)
			}
		}
		if rng.IntN(2) == 0 {
			n.must(n.kv.Flush())
		}
		crashed := fs.CrashClone(rng.IntN(101), rng)
		n.stop()
		o = options(crashed, 0, 3, clock)
		n = start(t, o)
		var plain model
		plain.follow(n)
		if got, want := n.dump(), dumpOf(&plain.space); got != want {
			t.Fatalf("seed %d: the state is\n%s\nthe fold of the logs\n%s", seed, got, want)
		}
		for i := range 5 {
			if _, err := n.pair(fmt.Sprint(i)); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		n.set("goes", "on")
		n.close()
	}
}

// TestFailingDisk fails one write or sync of the log, lost or kept but reported as
// failed. The update fails; reads show what is durable; the store goes on by
// itself; and what an update that failed left is there wholly or not at all, and
// no longer changes once it was read.
func TestFailingDisk(t *testing.T) {
	for _, kind := range []disk.OpKind{disk.OpWrite, disk.OpSync} {
		for _, kept := range []bool{false, true} {
			for after := range 4 {
				t.Run(fmt.Sprintf("%s, kept %t, after %d", kind, kept, after), func(t *testing.T) { failDisk(t, kind, kept, after) })
			}
		}
	}
}

func failDisk(t *testing.T, kind disk.OpKind, kept bool, after int) {
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	n.must(n.update(func(tx *Tx) error { return setPair(tx, "k", 1) }))
	var armed atomic.Bool
	fs.SetFault(func(op disk.Op) *disk.Fault {
		room := op.Kind == disk.OpWrite && op.Len == 64<<10 // zeros, ahead of entries
		if op.Kind == kind && !room && strings.Contains(op.Path, "/authors/") && strings.HasSuffix(op.Path, ".log") && armed.Swap(false) {
			return &disk.Fault{Kept: kept}
		}
		return nil
	})
	good, bad := 1, map[int]bool{}
	for i := 2; i < 12; i++ {
		if i >= after+2 && len(bad) == 0 {
			armed.Store(true) // a sync of room made ahead may take it: then again
		}
		err := n.update(func(tx *Tx) error { return setPair(tx, "k", i) })
		if err == nil {
			good = i
		} else {
			if lattice.KindOf(err) != lattice.Storage {
				t.Fatalf("update %d: %v", i, err)
			}
			bad[i] = true
		}
		got, perr := n.pair("k")
		if perr != nil || got != good && !bad[got] {
			t.Fatalf("after update %d (%v): %d, last good %d; %v", i, err, got, good, perr)
		}
		if got != good && got < good {
			t.Fatalf("update %d shows again after %d", got, good)
		}
		if err != nil {
			n.wait(func() bool { return n.Status().Failed == "" })
			if got, err = n.pair("k"); err != nil || got != good && !bad[got] {
				t.Fatalf("it went on with %d, last good %d; %v", got, good, err)
			}
			good = got // what turned out to be there stays
		}
	}
	if len(bad) == 0 {
		t.Fatal("no update failed")
	}
	fs.SetFault(nil)
	n.close()
	n = start(t, options(fs, 0, 3, clock))
	if got, err := n.pair("k"); err != nil || got != good {
		t.Fatalf("after a restart: %d, want %d; %v", got, good, err)
	}
	n.close()
}

// TestFullDisk: writes fail by name while there is no room, reads go on, and so do
// writes once there is.
func TestFullDisk(t *testing.T) {
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	n := start(t, options(fs, 0, 2, clock))
	n.set("a", "1")
	fs.SetFull(true)
	big := strings.Repeat("x", 200<<10)
	var err error
	for range 20 { // the room made ahead takes some
		if err = n.update(func(tx *Tx) error { return set(tx, "b", big) }); err != nil {
			break
		}
	}
	if lattice.KindOf(err) != lattice.Storage || !disk.IsFull(err) {
		t.Fatalf("on a full disk: %v", err)
	}
	if n.get("a") != "1" {
		t.Fatal("reads stopped")
	}
	fs.SetFull(false)
	n.wait(func() bool { return n.Status().Failed == "" })
	n.set("b", "2")
	n.close()
	n = start(t, options(fs, 0, 3, clock))
	if n.get("a") != "1" || n.get("b") != "2" {
		t.Fatalf("a=%q b=%q", n.get("a"), n.get("b"))
	}
	n.close()
}

// TestStopDecides: a clean stop decides all that was asked for; what comes later is
// refused by name.
func TestStopDecides(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	var tickets []Ticket
	for i := range 50 {
		tk, err := n.Update(func(tx *Tx) error { return setPair(tx, fmt.Sprint(i), i) })
		n.must(err)
		tickets = append(tickets, tk)
	}
	n.stop()
	for _, tk := range tickets {
		n.must(tk.Wait(context.Background()))
	}
	if _, err := n.Update(func(tx *Tx) error { return set(tx, "late", "1") }); !errors.Is(err, ErrClosed) {
		t.Fatalf("after the stop: %v", err)
	}
	n.must(n.Close())
	if _, err := n.View(func(*Tx) error { return nil }); !errors.Is(err, ErrClosed) {
		t.Fatalf("a view of what is closed: %v", err)
	}
}

// TestLimits: one update may not be larger than an entry; what does not fit beside
// others goes into the next entry.
func TestLimits(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	big := strings.Repeat("v", 3<<20)
	err := n.update(func(tx *Tx) error {
		for i := range 6 {
			if err := set(tx, fmt.Sprint(i), big); err != nil {
				return err
			}
		}
		return nil
	})
	if !errors.Is(err, ErrTooLarge) || n.get("0") != "" {
		t.Fatalf("18 MiB in one update: %v", err)
	}
	var tickets []Ticket
	for i := range 8 {
		tk, err := n.Update(func(tx *Tx) error { return set(tx, fmt.Sprint(i), big) })
		n.must(err)
		tickets = append(tickets, tk)
	}
	for _, tk := range tickets {
		n.must(tk.Wait(context.Background()))
	}
	n.must(n.update(func(tx *Tx) error { // many keys are one batch
		for i := range 5000 {
			if err := set(tx, fmt.Sprintf("many/%d", i), "1"); err != nil {
				return err
			}
		}
		return nil
	}))
	n.close()
	largest := 0
	n = start(t, options(n.o.FS, 0, 3, n.clock))
	for _, c := range n.entries() {
		for _, e := range c {
			largest = max(largest, len(e.Bytes()))
		}
	}
	if largest > sigchain.MaxSize || largest < 3<<20 {
		t.Fatalf("the largest entry has %d bytes", largest)
	}
	if got := n.get("many/4999"); got != "1" {
		t.Fatal("a batch of many keys is not there")
	}
	n.close()
}

// TestPanic: an update that panics leaves nothing, and the store goes on.
func TestPanic(t *testing.T) {
	n := start(t, options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch)))
	n.set("a", "1")
	func() {
		defer func() { _ = recover() }()
		_, _ = n.Update(func(tx *Tx) error {
			if err := set(tx, "a", "2"); err != nil {
				return err
			}
			panic("out")
		})
	}()
	if n.get("a") != "1" {
		t.Fatalf("a is %q", n.get("a"))
	}
	n.set("a", "3")
	if n.get("a") != "3" {
		t.Fatalf("a is %q", n.get("a"))
	}
	n.close()
}

// TestSettleWithoutRun: what was settled without Run is there after a restart,
// also what stood in a round that nobody wrote.
func TestSettleWithoutRun(t *testing.T) {
	fs := disk.NewMem()
	clock := tick.NewManual(testEpoch)
	o := options(fs, 0, 2, clock)
	db, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, err := db.Update(func(tx *Tx) error { return setPair(tx, fmt.Sprint(i), i+1) }); err != nil {
			t.Fatal(err)
		}
		clock.Advance(time.Second) // a round is due
		db.Settle()
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	n := start(t, options(fs, 0, 3, clock))
	for i := range 10 {
		if got, err := n.pair(fmt.Sprint(i)); err != nil || got != i+1 {
			t.Fatalf("%d is %d, %v", i, got, err)
		}
	}
	n.close()
}
