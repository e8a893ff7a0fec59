package crash

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/lattice-log/lattice/internal/testkit/respclient"
)

// redisWriter is one client, with keys of its own beside those that all share. It
// writes number after number, in each way that it has; what it has no answer to when the
// node dies may be there or not.
type redisWriter struct {
	w    *redisWorld
	name string
	rng  *rand.Rand

	str    own // a string that is set to n
	list   own // elements pushed: 1 to n
	hash   own // fields written: 1 to n
	set    own // members added: 1 to n; those that 7 divides are removed again at once
	zset   own // members added with their scores: 1 to n
	popped own // elements taken from the front of the list
	cycle  own // a key that is set, with an expiry, by odd numbers, and deleted by even ones
}

// own is a number that only one writer moves.
type own struct{ acked, tried int64 }

func (o own) holds(n int64) bool { return n >= o.acked && n <= o.tried }

func (o own) String() string { return fmt.Sprintf("%d acknowledged, %d tried", o.acked, o.tried) }

// step is a command of a pipeline, and what its acknowledgement means.
type step struct {
	args []string
	ack  func(v respclient.Value)
}

// write sends pipelines until the connection fails.
func (x *redisWriter) write() error {
	c, err := respclient.Dial(x.w.at)
	if err != nil {
		return nil // the node is gone already
	}
	defer c.Close()
	for {
		var steps []step
		for range 1 + x.rng.IntN(8) {
			steps = append(steps, x.some()...)
		}
		var b bytes.Buffer
		for _, s := range steps {
			b.Write(respclient.Encode(s.args...))
		}
		if err := c.SendRaw(b.Bytes()); err != nil {
			x.w.going.Store(false)
			return nil
		}
		for _, s := range steps {
			v, err := c.Receive()
			if err != nil {
				x.w.going.Store(false)
				return nil
			}
			if v.Err() != "" {
				return fmt.Errorf("%q: %s", s.args, v)
			}
			if s.ack != nil {
				s.ack(v)
				x.w.acked.Add(1)
			}
		}
	}
}

// one is a command whose acknowledgement moves a number of the writer's own.
func one(o *own, args func(n string) []string) []step {
	o.tried++
	n := o.tried
	return []step{{args(strconv.FormatInt(n, 10)), func(respclient.Value) { o.acked = n }}}
}

// some makes the commands of one write.
func (x *redisWriter) some() []step {
	key := func(kind string) string { return kind + ":" + x.name }
	switch x.rng.IntN(9) {
	case 0:
		return one(&x.str, func(n string) []string { return []string{"SET", key("string"), n} })
	case 1:
		return one(&x.list, func(n string) []string { return []string{"RPUSH", key("list"), n} })
	case 2:
		return one(&x.hash, func(n string) []string { return []string{"HSET", key("hash"), n, "value " + n} })
	case 3:
		steps := one(&x.set, func(n string) []string { return []string{"SADD", key("set"), n} })
		if x.set.tried%7 == 0 {
			steps = append(steps, step{[]string{"SREM", key("set"), strconv.FormatInt(x.set.tried, 10)}, nil})
		}
		return steps
	case 4:
		return one(&x.zset, func(n string) []string { return []string{"ZADD", key("zset"), n, "m" + n} })
	case 5:
		if x.popped.tried+10 > x.list.acked {
			return nil
		}
		return one(&x.popped, func(string) []string { return []string{"LPOP", key("list")} })
	case 6:
		return one(&x.cycle, func(n string) []string {
			if x.cycle.tried%2 == 0 {
				return []string{"DEL", key("cycle")}
			}
			return []string{"SET", key("cycle"), n, "EX", "100000"}
		})
	case 7:
		x.w.counter.tried.Add(1)
		return []step{{[]string{"INCR", "counter"}, func(respclient.Value) { x.w.counter.acked.Add(1) }}}
	}
	x.w.transfers.tried.Add(1)
	return []step{
		{[]string{"MULTI"}, nil}, {[]string{"DECR", "left"}, nil}, {[]string{"INCR", "right"}, nil},
		{[]string{"EXEC"}, func(respclient.Value) { x.w.transfers.acked.Add(1) }},
	}
}

// check holds the node to what this writer was told.
func (x *redisWriter) check(k checker) {
	k.t.Helper()
	at := func(kind string) string { return kind + ":" + x.name }
	expect := func(kind string, o *own, n int64) {
		k.t.Helper()
		if !o.holds(n) {
			k.t.Errorf("%s: %d are there; %s", at(kind), n, o)
		}
		o.acked, o.tried = n, n // what was tried is decided now
	}
	expect("string", &x.str, k.int("GET", at("string")))
	// The list is what was pushed, without a gap, behind what was popped.
	elements := k.do("LRANGE", at("list"), "0", "-1").Strings()
	var first, last int64
	for i, e := range elements {
		n, err := strconv.ParseInt(e, 10, 64)
		if err != nil || i > 0 && n != last+1 {
			k.t.Fatalf("%s: element %d is %q behind %d", at("list"), i, e, last)
		}
		if last = n; i == 0 {
			first = n
		}
	}
	if len(elements) > 0 {
		expect("list", &x.list, last)
		expect("list, popped", &x.popped, first-1)
	} else {
		expect("list", &x.list, 0) // nothing is popped before ten are acknowledged to be there
	}
	fields := k.do("HGETALL", at("hash")).Strings()
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] != "value "+fields[i] {
			k.t.Errorf("%s: field %s is %q", at("hash"), fields[i], fields[i+1])
		}
	}
	expect("hash", &x.hash, int64(len(fields)/2))
	x.checkSet(k, at("set"))
	n := k.int("GET", at("cycle"))
	if ttl := k.int("TTL", at("cycle")); n != 0 && ttl <= 0 {
		k.t.Errorf("%s has a TTL of %d", at("cycle"), ttl)
	}
	if n == 0 { // deleted, by the first number that it can have been
		n = x.cycle.acked + x.cycle.acked%2
	}
	expect("cycle", &x.cycle, n)
	members := k.do("ZRANGE", at("zset"), "0", "-1", "WITHSCORES").Strings()
	for i := 0; i < len(members); i += 2 {
		if want := strconv.Itoa(i/2 + 1); members[i] != "m"+want || members[i+1] != want {
			k.t.Errorf("%s: member %d is %s with %s", at("zset"), i/2, members[i], members[i+1])
		}
	}
	expect("zset", &x.zset, int64(len(members)/2))
}

// checkSet: every member that was added is there, but for those that were removed. Of
// the last ones it is not known how far things went.
func (x *redisWriter) checkSet(k checker, key string) {
	k.t.Helper()
	there := map[int64]bool{}
	var most int64
	for _, m := range k.do("SMEMBERS", key).Strings() {
		n, err := strconv.ParseInt(m, 10, 64)
		if err != nil || n > x.set.tried {
			k.t.Errorf("%s: member %q; %s", key, m, x.set)
		}
		there[n] = true
		most = max(most, n)
	}
	for n := int64(1); n <= max(most, x.set.acked); n++ {
		if removed := n%7 == 0; !removed && !there[n] {
			k.t.Errorf("%s: %d is not there; %s", key, n, x.set)
		} else if removed && there[n] && n < most {
			k.t.Errorf("%s: %d was removed before %d was added, and is there", key, n, most)
		}
	}
	// A remove that was lost with the node is made up for.
	if most > 0 && most%7 == 0 {
		k.do("SREM", key, strconv.FormatInt(most, 10))
	}
	x.set.acked = max(most, x.set.acked)
	x.set.tried = x.set.acked
}
