package redis

import (
	"errors"
	"testing"

	lattice "github.com/lattice-log/lattice"
)

var errDisk = lattice.E(lattice.Storage, errors.New("no space left on device"))

// undecided waits until n transactions wait for the disk.
func (f *fixture) undecided(n int) {
	f.t.Helper()
	f.eventually("transactions wait", func() bool {
		f.st.mu.Lock()
		defer f.st.mu.Unlock()
		return len(f.st.pending) >= n
	})
}

// silent checks that nothing was written to anybody since before.
func (f *fixture) silent(before int64) {
	f.t.Helper()
	if n := f.srv.stats.bytesOut.Load(); n != before {
		f.t.Errorf("%d bytes were written before the disk had synced", n-before)
	}
}

func TestRepliesWaitForTheDisk(t *testing.T) {
	f := newFixture(t, Config{})
	a, b := f.dial(), f.dial()
	a.want("+OK", "SET", "k", "old")
	f.st.hold.Store(true)
	before := f.srv.stats.bytesOut.Load()
	a.raw("SET k new\r\nGET k\r\nINCR n\r\n")
	f.undecided(1)
	reads := f.st.views.Load()
	b.send("GET", "k") // sees what is not decided
	f.eventually("the other client has read", func() bool { return f.st.views.Load() > reads })
	f.silent(before)
	f.st.release(nil)
	a.next("+OK")
	a.next(`"new"`)
	a.next(":1")
	b.next(`"new"`)
}

func TestAFailedSyncFailsWhatDependedOnIt(t *testing.T) {
	f := newFixture(t, Config{})
	a, b := f.dial(), f.dial()
	f.st.hold.Store(true)
	a.raw("PING\r\nSET k v\r\nGET k\r\n")
	f.undecided(1)
	b.send("GET", "k")
	f.eventually("the other client has read", func() bool { return f.st.views.Load() > 0 })
	f.st.release(errDisk)
	const want = `-MISCONF Errors writing to the disk: no space left on device. Writes are refused until it takes them again; see the node's log.`
	a.next(want) // PING's as well: its place in the pipeline is all that is known of it
	a.next(want)
	a.next(want)
	b.next(want)
	a.want("+PONG", "PING")
}

func TestABlockedClientIsToldWhenItIsDurable(t *testing.T) {
	f := newFixture(t, Config{})
	a, b, c := f.dial(), f.dial(), f.dial()
	a.send("BLPOP", "q", "0")
	f.eventually("blocked", func() bool { return f.srv.blocked.any.Load() == 1 })
	f.st.hold.Store(true)
	before := f.srv.stats.bytesOut.Load()
	b.send("RPUSH", "q", "v")
	f.undecided(1)
	f.silent(before)
	f.st.release(nil)
	a.next(`*["q" "v"]`)
	b.next(":1")
	c.want(":0", "LLEN", "q")

	a.send("BLPOP", "q", "0")
	f.eventually("blocked", func() bool { return f.srv.blocked.any.Load() == 1 })
	f.st.hold.Store(true)
	b.send("RPUSH", "q", "v")
	f.undecided(1)
	f.st.release(errDisk)
	for _, x := range []*client{a, b} {
		if v, err := x.Receive(); err != nil || codeOf(v.Err()) != "MISCONF" {
			t.Errorf("%v %v", v, err)
		}
	}
}

func TestEventsFollowTheDiskInOrder(t *testing.T) {
	f := newFixture(t, Config{})
	sub, a, b := f.dial(), f.dial(), f.dial()
	a.want("+OK", "CONFIG", "SET", "notify-keyspace-events", "E$")
	sub.want(`*["subscribe" "__keyevent@0__:set" :1]`, "SUBSCRIBE", "__keyevent@0__:set")
	sub.want(`*["subscribe" "c" :2]`, "SUBSCRIBE", "c")
	f.st.hold.Store(true)
	before := f.srv.stats.bytesOut.Load()
	a.send("SET", "k1", "v")
	f.undecided(1)
	b.raw("SET k2 v\r\nPUBLISH c k2\r\n")
	f.undecided(2)
	f.silent(before)
	f.st.release(nil)
	sub.next(`*["message" "__keyevent@0__:set" "k1"]`)
	sub.next(`*["message" "__keyevent@0__:set" "k2"]`)
	sub.next(`*["message" "c" "k2"]`)
	a.next("+OK")
	b.next("+OK")
	b.next(":1")

	f.st.hold.Store(true)
	a.send("SET", "k3", "v")
	f.undecided(1)
	f.st.release(errDisk)
	if v, err := a.Receive(); err != nil || v.Kind != '-' {
		t.Fatal(v, err)
	}
	b.want("+OK", "SET", "k4", "v")
	sub.next(`*["message" "__keyevent@0__:set" "k4"]`) // nothing of k3
}

func TestAFailureInAChunkFailsOnlyWhatFails(t *testing.T) {
	f := newFixture(t, Config{})
	c := f.dial()
	c.want("+OK", "SET", "k", "v")
	f.st.refuse.Store(refusal{errDisk})
	c.raw("GET k\r\nSET k w\r\nGET k\r\nCLIENT REPLY SKIP\r\nSET k x\r\nINCR n\r\nGET k\r\n")
	c.next(`"v"`)
	const want = `-MISCONF Errors writing to the disk: no space left on device. Writes are refused until it takes them again; see the node's log.`
	c.next(want)
	c.next(`"v"`)
	c.next(want)
	c.next(`"v"`)
	// A transaction that cannot be written did not happen, and is over.
	c.want("+OK", "MULTI")
	c.want("+QUEUED", "SELECT", "1")
	c.want("+QUEUED", "SET", "k", "w")
	if got := c.do("EXEC"); codeOf(got) != "-MISCONF" {
		t.Errorf("EXEC: %s", got)
	}
	c.want(`"v"`, "GET", "k")
	c.want("-ERR EXEC without MULTI", "EXEC")
	f.st.refuse.Store(refusal{})
	c.want("+OK", "SET", "k", "w")
}

func TestEveryKindOfErrorHasAReply(t *testing.T) {
	for _, k := range lattice.Kinds() {
		msg, answer := text(lattice.E(k, errors.New("why")))
		if answer || msg == "" || codeOf(msg) == msg {
			t.Errorf("%v: %q, %v", k, msg, answer)
		}
	}
}

func TestDrainAnswersWhatWasExecuted(t *testing.T) {
	f := newFixture(t, Config{})
	a, b := f.dial(), f.dial()
	b.send("BLPOP", "q", "0")
	f.eventually("blocked", func() bool { return f.srv.blocked.any.Load() == 1 })
	f.st.hold.Store(true)
	a.raw("SET k v\r\nGET k\r\n")
	f.undecided(1)
	stopped := make(chan struct{})
	go func() {
		f.stop()
		close(stopped)
	}()
	b.gone()
	f.st.release(nil)
	a.next("+OK")
	a.next(`"v"`)
	a.gone()
	<-stopped
}
