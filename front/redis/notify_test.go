package redis

import (
	"sync/atomic"
	"testing"
)

func TestExpiredEvents(t *testing.T) {
	f := newFixture(t, Config{})
	var now atomic.Int64
	now.Store(1_000_000)
	f.st.mu.Lock()
	f.st.now = now.Load
	f.st.mu.Unlock()
	sub, c := f.dial(), f.dial()
	c.want("+OK", "CONFIG", "SET", "notify-keyspace-events", "Ex$")
	sub.want(`*["psubscribe" "*" :1]`, "PSUBSCRIBE", "*")
	c.want("+OK", "SET", "k", "v", "PX", "100")
	sub.next(`*["pmessage" "*" "__keyevent@0__:set" "k"]`)
	now.Add(100)
	c.want("$null", "GET", "k")
	// A write ends what had expired.
	c.want("+OK", "SET", "k", "w")
	sub.next(`*["pmessage" "*" "__keyevent@0__:expired" "k"]`)
	sub.next(`*["pmessage" "*" "__keyevent@0__:set" "k"]`)
	// Also inside of a transaction.
	c.want(":1", "PEXPIRE", "k", "100")
	now.Add(100)
	c.want("+OK", "MULTI")
	c.want("+QUEUED", "DEL", "k")
	c.want("*[:0]", "EXEC")
	sub.next(`*["pmessage" "*" "__keyevent@0__:expired" "k"]`)
	// Whoever removes keys in the background says so.
	f.srv.Expired("3", []byte("gone"))
	sub.next(`*["pmessage" "*" "__keyevent@3__:expired" "gone"]`)
	f.srv.Expired("$system", []byte("gone"))
	f.srv.Expired("0", []byte("last"))
	sub.next(`*["pmessage" "*" "__keyevent@0__:expired" "last"]`)
	if n := f.srv.stats.expired.Load(); n != 5 {
		t.Errorf("%d keys have expired", n)
	}
}

func TestNotifyClassesAreWrittenAsTheyAreRead(t *testing.T) {
	for in, want := range map[string]string{"KEA": "AKE", "Elg": "glE", "": "", "g$lshzxetd": "A", "K": "K"} {
		n, ok := parseNotify(in)
		if !ok || n.String() != want {
			t.Errorf("%q: %q, %v", in, n, ok)
		}
	}
	for _, bad := range []string{"q", "m", "n", "Kx!"} {
		if n, ok := parseNotify(bad); ok {
			t.Errorf("%q is taken as %q", bad, n)
		}
	}
}
