package redis

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/lattice-log/lattice/core/proof"
	"github.com/lattice-log/lattice/engine/structs"
)

// message reads a message of a watch: what it is, and the fields of a change.
func (c *client) message() (what string, fields map[string]string) {
	c.t.Helper()
	v, err := c.Receive()
	if err != nil {
		c.t.Fatal(err)
	}
	if len(v.Elems) != 3 {
		c.t.Fatalf("%s", v)
	}
	if what = v.Elems[0].Str; what == "lattice.change" {
		fields = fieldsOf(v.Elems[2].Strings())
	} else {
		fields = map[string]string{"resume": v.Elems[2].Str}
	}
	fields["prefix"] = v.Elems[1].Str
	return what, fields
}

// changes reads changes, and compares what they say.
func (c *client) changes(want ...string) (last map[string]string) {
	c.t.Helper()
	for _, w := range want {
		what, f := c.message()
		got := what
		if what == "lattice.change" {
			got = f["key"] + "=" + f["value"]
			if f["deleted"] == "1" || f["deleted"] == "t" {
				got = f["key"] + " deleted"
			}
		}
		if got != w {
			c.t.Errorf("%s (%v), want %s", got, f, w)
		}
		last = f
	}
	return last
}

func TestLatticeProve(t *testing.T) {
	f, _ := newOthers(t, Config{})
	c := f.dial()
	c.want("+OK", "SET", "k", "v")
	c.raw("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nw\r\n*2\r\n$13\r\nLATTICE.PROVE\r\n$1\r\nk\r\n") // in one pipeline
	c.next("+OK")
	first, err := c.Receive()
	if err != nil || !bytes.HasPrefix([]byte(first.Str), []byte("lattice-key-proof-v1\n")) {
		t.Fatal(first, err)
	}
	for key, want := range map[string]string{"k": `key "k" of map "0" holds "w"`, "none": `there is no key "none" of map "0"`} {
		v, err := c.Do("LATTICE.PROVE", key)
		if err != nil {
			t.Fatal(err)
		}
		r, err := proof.VerifyKey([]byte(v.Str))
		if err != nil || r.What != want {
			t.Errorf("%s: %s, %v", key, r.What, err)
		}
	}
	c.want("-ERR wrong number of arguments for 'lattice.prove' command", "LATTICE.PROVE")
	newFixture(t, Config{}).dial().want("-ERR this state keeps no history", "LATTICE.PROVE", "k")
}

func TestLatticeWatch(t *testing.T) {
	f, o := newOthers(t, Config{})
	for _, resp3 := range []bool{false, true} {
		t.Run(fmt.Sprintf("RESP3 %t", resp3), func(t *testing.T) {
			c, w := f.dial(), f.dial()
			c.want("+OK", "FLUSHDB")
			kind := "*"
			if resp3 {
				w.begins("%[", "HELLO", "3")
				kind = ">"
			}
			c.want("+OK", "SET", "a:old", "0")
			w.want(kind+`["lattice.watch" "a:" :1]`, "LATTICE.WATCH", "a:")
			c.want("+OK", "SET", "b:1", "x")
			c.want("+OK", "SET", "a:1", "x")
			got := w.changes("a:1=x")
			if got["prefix"] != "a:" || got["db"] != "0" || got["type"] != "string" || len(got["hash"]) != 64 || len(got["author"]) != 64 || got["resume"] == "" {
				t.Errorf("%v", got)
			}
			c.want(":1", "DEL", "a:1")
			w.changes("a:1 deleted")
			o.receive(register(fmt.Sprintf("a:theirs%t", resp3), "y"))
			w.changes(fmt.Sprintf("a:theirs%t=y", resp3))
			o.do(func(m *structs.Map) error { _, err := m.Push([]byte("a:l"), false, []byte("x")); return err })
			if got := w.changes("a:l="); got["type"] != "list" {
				t.Errorf("%v", got)
			}
			if !resp3 {
				w.begins("-ERR Can't execute 'get'", "GET", "a:1")
				w.want(`*["pong" ""]`, "PING")
			} else {
				w.want(`"0"`, "GET", "a:old")
			}

			w.want(kind+`["lattice.watch" "a:o" :2]`, "LATTICE.WATCH", "a:o", "CURRENT")
			w.changes("a:old=0", "lattice.caughtup")
			c.want("+OK", "SET", "a:old", "1")
			w.changes("a:old=1", "a:old=1") // once for each
			w.want(kind+`["lattice.unwatch" "a:" :1]`, "LATTICE.UNWATCH", "a:")
			c.want("+OK", "SET", "a:1", "y")
			c.want("+OK", "SET", "a:o2", "z")
			w.changes("a:o2=z")
			w.want(kind+`["lattice.unwatch" "a:o" :0]`, "LATTICE.UNWATCH")
			w.want(kind+`["lattice.unwatch" `+null(resp3)+` :0]`, "LATTICE.UNWATCH")

			// From where the first change was on.
			w.want(kind+`["lattice.watch" "a:" :1]`, "LATTICE.WATCH", "a:", "FROM", got["resume"])
			for what := ""; what != "lattice.caughtup"; what, _ = w.message() {
			}
			w.want("+RESET", "RESET")
			c.want("+OK", "SET", "a:1", "z")
			w.want("+PONG", "PING") // and nothing else
		})
	}
}

func null(resp3 bool) string {
	if resp3 {
		return "_null"
	}
	return "$null"
}

func TestLatticeWatchRefuses(t *testing.T) {
	f, _ := newOthers(t, Config{})
	c := f.dial()
	c.begins("-ERR FROM wants", "LATTICE.WATCH", "a", "FROM", "nonsense")
	c.begins("-ERR FROM wants", "LATTICE.WATCH", "a", "FROM", "00ff")
	c.want("-ERR syntax error", "LATTICE.WATCH", "a", "NOW")
	c.want("+OK", "MULTI")
	c.want("-ERR Command not allowed inside a transaction", "LATTICE.WATCH", "a")
	c.want("+OK", "DISCARD")
	for i := range maxPrefixes {
		c.begins(`*["lattice.watch"`, "LATTICE.WATCH", fmt.Sprint("p", i))
	}
	c.begins("-ERR a connection watches at most", "LATTICE.WATCH", "one more")
	c.want(fmt.Sprintf(`*["lattice.watch" "p0" :%d]`, maxPrefixes), "LATTICE.WATCH", "p0") // again
	newFixture(t, Config{}).dial().want("-ERR this state keeps no history", "LATTICE.WATCH", "k")
}

// TestSlowPrefixWatch: a client that does not read costs a bounded queue, is told
// that it fell behind, and then of every key.
func TestSlowPrefixWatch(t *testing.T) {
	f, o := newOthers(t, Config{})
	w := f.dial()
	w.want(`*["lattice.watch" "" :1]`, "LATTICE.WATCH", "")
	want := map[string]bool{}
	write := func(n, size int) {
		o.do(func(m *structs.Map) error {
			for range n {
				key := fmt.Sprintf("k%05d", len(want))
				want[key] = true
				if err := m.Set([]byte(key), bytes.Repeat([]byte{'v'}, size), false); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for range 32 {
		write(8, 128<<10) // more than sockets hold
	}
	for range 20 {
		write(1000, 1)
	}
	lagged := false
	for len(want) > 0 {
		what, fields := w.message()
		lagged = lagged || what == "lattice.lagged"
		delete(want, fields["key"])
		if used := f.srv.budget.used.Load(); used > 8<<20 {
			t.Fatalf("%d bytes are held", used)
		}
	}
	if !lagged {
		t.Error("it was not told that it fell behind")
	}
}

// TestPrefixWatchEnds: with the connection, and with the server; and large values are
// left out.
func TestPrefixWatchEnds(t *testing.T) {
	f, o := newOthers(t, Config{MaxPushBytes: 64 << 10})
	c, gone := f.dial(), f.dial()
	gone.want(`*["lattice.watch" "" :1]`, "LATTICE.WATCH", "")
	c.want(`*["lattice.watch" "" :1]`, "LATTICE.WATCH", "")
	gone.Close()
	o.do(func(m *structs.Map) error { return m.Set([]byte("large"), []byte(strings.Repeat("x", 32<<10)), false) })
	if got := c.changes("large="); got["type"] != "string" {
		t.Errorf("%v", got)
	}
	f.stop()
	c.gone()
}
