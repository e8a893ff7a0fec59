package redis

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/segment"
)

// testGenesis begins the store of every test.
func testGenesis(t testing.TB) sigchain.Signed {
	t.Helper()
	op, err := sigchain.Genesis{Name: "test"}.Op()
	if err != nil {
		t.Fatal(err)
	}
	genesis, err := sigchain.Sign(identity.FromSeed([32]byte{1}), sigchain.Entry{Incarnation: 1, Seq: 1, Time: 1 << 16, Ops: []sigchain.Op{op}})
	if err != nil {
		t.Fatal(err)
	}
	return genesis
}

// openEngine opens a store's state on a disk in memory, and runs it.
func openEngine(t testing.TB) *keyval.DB {
	t.Helper()
	return openEngineOn(t, disk.NewMem(), "/store", signedlog.Fsync)
}

// openEngineOn is openEngine, elsewhere and at a level.
func openEngineOn(t testing.TB, fs disk.FS, dir string, level signedlog.Durability) *keyval.DB {
	t.Helper()
	key, genesis := identity.FromSeed([32]byte{1}), testGenesis(t)
	var mu sync.Mutex
	var last uint64
	committer := signedlog.NewCommitter()
	db, err := keyval.Open(keyval.Options{
		FS: fs, Dir: dir, Durability: level, Genesis: genesis, Key: key, Incarnation: 2, Clock: tick.Real{},
		Stamp: func() (uint64, error) {
			mu.Lock()
			defer mu.Unlock()
			last = max(last+1, uint64(time.Now().UnixMilli())<<16)
			return last, nil
		},
		Observe: func(t uint64) {
			mu.Lock()
			defer mu.Unlock()
			last = max(last, t)
		},
		Committer: committer, Handles: segment.NewHandles(64), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cctx, ccancel := context.WithCancel(context.Background())
	var wg, run sync.WaitGroup
	wg.Go(func() { _ = committer.Run(cctx) })
	run.Go(func() { _ = db.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		run.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		ccancel()
		wg.Wait()
	})
	return db
}

// newEngineFixture is a server over the engine.
func newEngineFixture(t testing.TB, cfg Config) *fixture {
	t.Helper()
	return serve(t, cfg, Over(openEngine(t)))
}

// serve runs a server on loopback.
func serve(t testing.TB, cfg Config, st State) *fixture {
	t.Helper()
	srv, err := New(cfg, st)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, ln) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("serve: %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return &fixture{t: t, srv: srv, addr: ln.Addr().String(), stop: stop}
}

func TestOverTheEngine(t *testing.T) {
	f := newEngineFixture(t, Config{})
	c := f.dial()
	c.want("+OK", "SET", "k", "v")
	c.want(`"v"`, "GET", "k")
	c.want(":3", "RPUSH", "l", "a", "b", "c")
	c.want(`*["a" "b"]`, "LPOP", "l", "2")
	c.want(":2", "INCRBY", "n", "2")
	c.want(`"3.5"`, "INCRBYFLOAT", "n", "1.5")
}

// TestLargerThanAnEntry: keys, values and elements of any length up to what fits an
// entry, and beyond that an error by name; nothing of it has happened, and others go on.
func TestLargerThanAnEntry(t *testing.T) {
	f := newEngineFixture(t, Config{})
	c := f.dial()
	fits, large := strings.Repeat("x", 1<<20), strings.Repeat("x", 15<<20)
	c.want("+OK", "SET", fits, fits)
	c.want(fmt.Sprintf("%q", fits), "GET", fits)
	c.want(":1", "DEL", fits)
	c.want("+OK", "SET", "half", large[:8<<20])
	before := c.do("DBSIZE")
	for _, args := range [][]string{
		{"SET", large, "v"}, {"SET", "k", large}, {"APPEND", "half", large[:8<<20]}, {"SETBIT", "k", "200000000", "1"}, {"HSET", "k", large, "v"},
		{"HSET", "k", "f", large}, {"RPUSH", "k", "a", large}, {"SADD", "k", large}, {"ZADD", "k", "1", large}, {"MSET", "k", large[:8<<20], "m", large[:8<<20]},
		{"BITOP", "NOT", large, "half"}, {"RENAME", "half", large}, {"INCR", large},
	} {
		c.begins("-ERR too large for one entry: keyval: ", args...)
		f.dial().want(before, "DBSIZE")
	}
	c.want(fmt.Sprintf(":%d", 8<<20), "STRLEN", "half")
	c.want("+OK", "MULTI")
	c.want("+QUEUED", "SET", "k", large[:8<<20])
	c.want("+QUEUED", "SET", "m", large[:8<<20])
	c.begins("-ERR too large for one entry: command 2 of the transaction: keyval: ", "EXEC")
	c.want("$null", "GET", "k")
	c.Close()
	f.calm()
}

func TestHeadsAndHistory(t *testing.T) {
	f := newEngineFixture(t, Config{})
	c := f.dial()
	c.want("*[]", "LATTICE.HEADS", "k")
	c.want("*[]", "LATTICE.HISTORY", "k")
	c.want("+OK", "SET", "k", "one")
	c.want("+OK", "SET", "k", "two")
	c.want(":1", "EXPIRE", "k", "1000")
	heads, err := c.Do("LATTICE.HEADS", "k")
	if err != nil || len(heads.Elems) != 1 {
		t.Fatal(heads, err)
	}
	got := fieldsOf(heads.Elems[0].Strings())
	if got["type"] != "string" || got["value"] != "two" || got["winner"] != "1" || len(got["hash"]) != 64 || len(got["author"]) != 64 {
		t.Errorf("%v", got)
	}
	history, err := c.Do("LATTICE.HISTORY", "k")
	if err != nil || len(history.Elems) != 3 {
		t.Fatal(history, err)
	}
	for i, want := range []string{"expire", "register two", "register one"} {
		got := fieldsOf(history.Elems[i].Strings())
		if !strings.HasPrefix(got["what"]+" "+got["value"], want) || len(got["hash"]) != 64 {
			t.Errorf("%d: %v, want %s", i, got, want)
		}
	}
	c.begins(`*[*["what"`, "LATTICE.HISTORY", "k", "LIMIT", "1")
	c.want("-ERR LIMIT must be between 1 and 10000", "LATTICE.HISTORY", "k", "LIMIT", "0")
	c.want("-ERR syntax error", "LATTICE.HEADS", "k", "x")
	c.begins("%[", "HELLO", "3")
	c.begins("*[%[", "LATTICE.HEADS", "k")

	m := newFixture(t, Config{}).dial()
	m.want("-ERR this state keeps no history", "LATTICE.HISTORY", "k")
}

// begins compares how the reply to a command begins.
func (c *client) begins(want string, args ...string) {
	c.t.Helper()
	if got := c.do(args...); !strings.HasPrefix(got, want) {
		c.t.Errorf("%.80q: %.300s, want %s...", args, got, want)
	}
}

func fieldsOf(flat []string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(flat); i += 2 {
		m[flat[i]] = flat[i+1]
	}
	return m
}
