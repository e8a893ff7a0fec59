package redis

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/structs"
)

// others are those who write to the state besides the Redis front end: another
// front end of this node, and another node.
type others struct {
	t   *testing.T
	db  *keyval.DB
	key identity.Key // of the other node

	store lattice.StoreID
	tip   sigchain.Link
	in    []sigchain.Ref // grants it to write
}

func newOthers(t *testing.T, cfg Config) (*fixture, *others) {
	t.Helper()
	db := openEngine(t)
	o := &others{t: t, db: db, key: identity.FromSeed([32]byte{2}), store: testGenesis(t).Home()}
	op, err := roster.Member{Author: o.key.Author(), Role: roster.Writer}.Op()
	if err != nil {
		t.Fatal(err)
	}
	o.update(func(tx *keyval.Tx) error { return tx.Append(op) })
	w := db.Writer()
	seq := db.Frontier()[w]
	id, err := db.EntryID(w, seq)
	if err != nil {
		t.Fatal(err)
	}
	o.in = []sigchain.Ref{{Author: w.Author, Link: sigchain.Link{Incarnation: w.Incarnation, Seq: seq, ID: id}}}
	return serve(t, cfg, Over(db)), o
}

// update writes as another front end does.
func (o *others) update(f func(*keyval.Tx) error) {
	o.t.Helper()
	ticket, err := o.db.Update(f)
	if err == nil {
		err = ticket.Wait(context.Background())
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// do is update on the keys of map "0".
func (o *others) do(f func(m *structs.Map) error) {
	o.t.Helper()
	o.update(func(tx *keyval.Tx) error { return f(structs.In(tx, "0")) })
}

// receive has the state receive an entry of the other node.
func (o *others) receive(ops ...state.Op) {
	o.t.Helper()
	e := sigchain.Entry{Store: o.store, Incarnation: 9, Seq: o.tip.Seq + 1, Prev: o.tip, Parents: o.in, Time: uint64(time.Now().UnixMilli())<<16 + o.tip.Seq}
	for _, op := range ops {
		enc, err := op.Encode(state.Writer{Author: o.key.Author(), Incarnation: 9})
		if err != nil {
			o.t.Fatal(err)
		}
		e.Ops = append(e.Ops, enc)
	}
	if o.tip.Seq > 0 {
		e.Parents = nil
	}
	s, err := sigchain.Sign(o.key, e)
	if err != nil {
		o.t.Fatal(err)
	}
	got, err := o.db.Receive([]sigchain.Signed{s})
	if err != nil || got[0].Err != nil {
		o.t.Fatal(err, got[0].Err)
	}
	o.tip = s.Link()
}

func register(key, value string) state.Op {
	return &state.Put{Address: state.Address{Map: "0", Key: []byte(key), Kind: state.Register}, Payload: state.Payload{Bytes: []byte(value)}}
}

func element(key, value string) state.Op {
	at := state.Between(nil, nil, state.Tag{1, 2, 3, 4, 5, 6, 7, 8})
	return &state.Put{Address: state.Address{Map: "0", Key: []byte(key), Kind: state.Element, Sub: at}, Payload: state.Payload{Bytes: []byte(value)}}
}

func (f *fixture) blocked(n int) {
	f.t.Helper()
	f.eventually(fmt.Sprint(n, " clients block"), func() bool { return f.srv.blocked.any.Load() == int64(n) })
}

// TestOthersWakeTheBlocked: whoever brings what a client waits for, it gets it, in
// the order of waiting, once.
func TestOthersWakeTheBlocked(t *testing.T) {
	f, o := newOthers(t, Config{})
	a, b, c := f.dial(), f.dial(), f.dial()
	a.send("BLPOP", "l", "0")
	f.blocked(1)
	b.send("BRPOP", "other", "l", "0")
	f.blocked(2)
	o.do(func(m *structs.Map) error {
		_, err := m.Push([]byte("l"), false, []byte("1"), []byte("2"), []byte("3"))
		return err
	})
	a.next(`*["l" "1"]`)
	b.next(`*["l" "3"]`)
	c.want(`*["2"]`, "LRANGE", "l", "0", "-1")
	c.want(`"2"`, "LPOP", "l")

	a.send("BLMOVE", "l", "to", "LEFT", "RIGHT", "0")
	f.blocked(1)
	b.send("BLPOP", "to", "0") // served by what serves a
	f.blocked(2)
	o.receive(element("l", "theirs"))
	a.next(`"theirs"`)
	b.next(`*["to" "theirs"]`)

	a.send("BZPOPMIN", "z", "0")
	f.blocked(1)
	o.do(func(m *structs.Map) error { return m.ZSet([]byte("z"), []byte("m"), 2) })
	a.next(`*["z" "m" "2"]`)
	c.want(":0", "EXISTS", "l", "to", "z")

	a.send("BLPOP", "wrong", "0")
	f.blocked(1)
	o.do(func(m *structs.Map) error { return m.Set([]byte("wrong"), []byte("a string"), false) })
	o.update(func(tx *keyval.Tx) error { // another database
		_, err := structs.In(tx, "1").Push([]byte("wrong"), false, []byte("x"))
		return err
	})
	o.do(func(m *structs.Map) error { _, err := m.Delete([]byte("wrong")); return err })
	o.do(func(m *structs.Map) error { _, err := m.Push([]byte("wrong"), false, []byte("right")); return err })
	a.next(`*["wrong" "right"]`)
}

// TestOthersAndWatch: what others write changes what a transaction depends on.
func TestOthersAndWatch(t *testing.T) {
	f, o := newOthers(t, Config{})
	c := f.dial()
	for name, write := range map[string]func(){
		"another front end": func() {
			o.do(func(m *structs.Map) error { return m.Set([]byte("k"), []byte("x"), false) })
		},
		"another node": func() { o.receive(register("k", "y")) },
	} {
		c.want("+OK", "WATCH", "k")
		write()
		c.want("+OK", "MULTI")
		c.want("+QUEUED", "SET", "k", "mine")
		if got := c.do("EXEC"); !strings.Contains(got, "null") {
			t.Errorf("%s: %s", name, got)
		}
	}
	c.want("+OK", "WATCH", "k")
	o.receive(register("other", "y"))
	c.want("+OK", "MULTI")
	c.want("+QUEUED", "SET", "k", "mine")
	c.want("*[+OK]", "EXEC")
}

// TestOthersEvents: keyspace events of what others write, once each, beside those
// of Redis's own commands.
func TestOthersEvents(t *testing.T) {
	f, o := newOthers(t, Config{})
	c, sub := f.dial(), f.dial()
	c.want("+OK", "CONFIG", "SET", "notify-keyspace-events", "EA")
	sub.do("PSUBSCRIBE", "__keyevent@0__:*")
	next := func(what, key string) {
		t.Helper()
		sub.next(fmt.Sprintf(`*["pmessage" "__keyevent@0__:*" "__keyevent@0__:%s" %q]`, what, key))
	}
	fields := func(m *structs.Map) error {
		for _, f := range []string{"a", "b", "c"} {
			if _, err := m.HSet([]byte("h"), []byte(f), []byte("v")); err != nil {
				return err
			}
		}
		return nil
	}
	c.want("+OK", "SET", "k", "v")
	next("set", "k")
	o.do(func(m *structs.Map) error { return m.Set([]byte("k"), []byte("w"), false) })
	next("set", "k")
	o.do(func(m *structs.Map) error {
		if err := m.Set([]byte("k"), []byte("w"), false); err != nil {
			return err
		}
		_, err := m.ExpireAt([]byte("k"), time.Now().Add(time.Hour).UnixMilli())
		return err
	})
	next("set", "k")
	next("expire", "k")
	o.do(func(m *structs.Map) error { return m.Set([]byte("k"), []byte("w"), false) }) // and the expiry goes
	next("set", "k")
	o.do(func(m *structs.Map) error { _, err := m.Delete([]byte("k")); return err })
	next("del", "k")
	o.do(fields)
	next("hset", "h")
	o.do(func(m *structs.Map) error { // another hash in its place: as put does
		if _, err := m.Delete([]byte("h")); err != nil {
			return err
		}
		return fields(m)
	})
	next("hset", "h")
	o.do(func(m *structs.Map) error { _, err := m.HDel([]byte("h"), []byte("a")); return err })
	next("hdel", "h")
	o.do(func(m *structs.Map) error {
		_, err := m.HDel([]byte("h"), []byte("b"))
		if err == nil {
			_, err = m.HDel([]byte("h"), []byte("c"))
		}
		return err
	})
	next("hdel", "h")
	next("del", "h")
	o.do(func(m *structs.Map) error { _, err := m.Incr([]byte("n"), 5); return err })
	next("incrby", "n")
	o.do(func(m *structs.Map) error { _, err := m.SAdd([]byte("s"), []byte("x"), []byte("y")); return err })
	next("sadd", "s")
	o.receive(register("theirs", "1"), element("l", "e"))
	next("set", "theirs")
	next("rpush", "l")
	c.want(":1", "DEL", "n")
	next("del", "n")

	// What nobody can hear of is not kept.
	c.want("+OK", "CONFIG", "SET", "notify-keyspace-events", "")
	o.do(func(m *structs.Map) error { return m.Set([]byte("quiet"), []byte("w"), false) })
	c.want("+OK", "CONFIG", "SET", "notify-keyspace-events", "EA")
	c.want("+OK", "SET", "k", "v")
	next("set", "k")
}

// TestOutsideIsBounded: what others do beyond what is kept loses events, which is
// counted, and no wakeup.
func TestOutsideIsBounded(t *testing.T) {
	f, o := newOthers(t, Config{})
	a := f.dial()
	a.send("BLPOP", "l", "0")
	f.blocked(1)
	f.srv.outside.turn.Lock() // nothing is passed on meanwhile
	o.do(func(m *structs.Map) error { return m.Set([]byte("first"), []byte("v"), false) })
	for i := range outsideMax/1000 + 2 {
		o.do(func(m *structs.Map) error {
			for j := range 1000 {
				if err := m.Set(fmt.Appendf(nil, "%d/%d", i, j), []byte("v"), false); err != nil {
					return err
				}
			}
			return nil
		})
	}
	o.do(func(m *structs.Map) error { _, err := m.Push([]byte("l"), false, []byte("x")); return err })
	o.srvQueue(f)
	f.srv.outside.turn.Unlock()
	a.next(`*["l" "x"]`)
	if f.srv.outside.lost.Load() == 0 {
		t.Error("nothing was lost")
	}
}

func (o *others) srvQueue(f *fixture) {
	o.t.Helper()
	f.srv.outside.mu.Lock()
	defer f.srv.outside.mu.Unlock()
	if n := len(f.srv.outside.queue); n > outsideMax {
		o.t.Errorf("%d are queued", n)
	}
}

// TestRemadeWakesTheBlocked: when the state was made again, who waits is served with
// what is there.
func TestRemadeWakesTheBlocked(t *testing.T) {
	f, o := newOthers(t, Config{})
	a := f.dial()
	a.send("BLPOP", "l", "0")
	f.blocked(1)
	ticket, err := o.db.UpdateQuietly(func(tx *keyval.Tx) error { // as if nobody had been told
		_, err := structs.In(tx, "0").Push([]byte("l"), false, []byte("x"))
		return err
	})
	if err == nil {
		err = ticket.Wait(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	f.srv.outside.Remade()
	a.next(`*["l" "x"]`)
}
