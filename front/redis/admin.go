package redis

import (
	"strings"
	"time"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

func serverCommands() family {
	return family{"server", []command{
		infoCommand(),
		configCommands(),
		commandCommand(),
		{name: "time", arity: 1, flags: "loading stale fast", tips: "nondeterministic_output", since: "2.6.0", about: "the node's time", do: timeCommand},
		{name: "dbsize", arity: 1, flags: "readonly fast", acl: "keyspace", tips: "request_policy:all_shards response_policy:agg_sum", since: "1.0.0",
			about: "how many keys the database has", do: dbsize, note: "Keys that have expired and were not yet removed count, as in Redis."},
		{name: "flushdb", arity: -1, flags: "write", acl: "keyspace dangerous", tips: "request_policy:all_shards response_policy:all_succeeded", since: "1.0.0",
			about: "delete every key of the database", do: flushDB, note: "ASYNC and SYNC do the same: one entry."},
		{name: "flushall", arity: -1, flags: "write", acl: "keyspace dangerous", tips: "request_policy:all_shards response_policy:all_succeeded", since: "1.0.0",
			about: "delete every key of the 16 databases", do: flushAll, note: "As FLUSHDB. Maps with other names stay."},
		{name: "swapdb", arity: 3, flags: "write fast", acl: "keyspace dangerous", since: "4.0.0", about: "refused", do: swapDB,
			note: "Refused by name: keys carry their map's name in what was signed."},
		{name: "role", arity: 1, flags: "noscript loading stale fast", acl: "admin dangerous", since: "2.8.12", about: "master, without replicas", do: role,
			note: "Replication is peer to peer, not Redis's."},
		slowlogCommands(),
		latencyCommands(),
		memoryCommands(),
		debugCommands(),
	}}
}

// otherCommands are what tools send in passing, where the true answer is simple.
func otherCommands() []family {
	return []family{
		{"generic", []command{
			{name: "wait", arity: 3, flags: "noscript", acl: "connection", tips: "request_policy:all_shards response_policy:agg_min", since: "3.0.0",
				about: "how many replicas have the writes: 0", do: wait, note: "There are no Redis replicas: answers 0 for numreplicas 0, and is refused otherwise."},
		}},
		{"scripting", []command{
			{name: "function", arity: -2, since: "7.0.0", about: "functions, of which there are none", sub: []command{
				{name: "flush", arity: -2, flags: "write noscript", tips: "request_policy:all_shards response_policy:all_succeeded", since: "7.0.0", about: "nothing to flush", do: nothingToFlush("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")},
				helpRow(),
			}},
			{name: "script", arity: -2, since: "2.6.0", about: "scripts, of which there are none", sub: []command{
				{name: "flush", arity: -2, flags: "noscript", tips: "request_policy:all_nodes response_policy:all_succeeded", since: "2.6.0", about: "nothing to flush", do: nothingToFlush("ERR SCRIPT FLUSH only support SYNC|ASYNC option")},
				helpRow(),
			}},
		}},
	}
}

func timeCommand(x *call) error {
	now := x.now.UnixMicro()
	x.w.Array(2)
	x.w.BulkInt(now / 1e6)
	x.w.BulkInt(now % 1e6)
	return nil
}

func dbsize(x *call) error {
	n, err := x.m().Len()
	if err != nil {
		return err
	}
	x.w.Int(n)
	return nil
}

// flushing reads the argument that both flushes take.
func (x *call) flushing() error {
	switch {
	case len(x.args) == 1, len(x.args) == 2 && (x.is(1, "sync") || x.is(1, "async")):
		return nil
	}
	return errSyntax
}

func flushDB(x *call) error {
	if err := x.flushing(); err != nil {
		return err
	}
	if err := x.m().Clear(); err != nil {
		return err
	}
	x.fx.changes++
	return x.ok()
}

func flushAll(x *call) error {
	if err := x.flushing(); err != nil {
		return err
	}
	for db := range Databases {
		if err := x.in(db).Clear(); err != nil {
			return err
		}
	}
	x.fx.changes++
	return x.ok()
}

func swapDB(*call) error {
	return replyError("ERR SWAPDB is not served: a key's database is part of every signed write to it; copy keys instead (COPY ... DB)")
}

func role(x *call) error {
	x.w.Array(3)
	x.w.BulkString("master")
	x.w.Int(0)
	x.w.Array(0)
	return nil
}

func wait(x *call) error {
	n, err := x.int(1)
	if err != nil {
		return err
	}
	if ms, ok := resp.Int(x.args[2]); !ok {
		return replyError("ERR timeout is not an integer or out of range")
	} else if ms < 0 {
		return replyError("ERR timeout is negative")
	}
	if n > 0 {
		return replyError("ERR WAIT is not served: there are no Redis replicas; peers are shown by \"lattice status\"")
	}
	x.w.Int(0)
	return nil
}

func nothingToFlush(usage string) func(*call) error {
	return func(x *call) error {
		if len(x.args) == 2 || len(x.args) == 3 && (x.is(2, "sync") || x.is(2, "async")) {
			return x.ok()
		}
		return replyError(usage)
	}
}

func slowlogCommands() command {
	const tips = "request_policy:all_nodes nondeterministic_output"
	return command{name: "slowlog", arity: -2, since: "2.2.12", about: "commands that took long", sub: []command{
		{name: "get", arity: -2, flags: "admin loading stale", tips: tips, since: "2.2.12", about: "the latest", do: slowlogGet},
		{name: "len", arity: 2, flags: "admin loading stale", tips: "request_policy:all_nodes response_policy:agg_sum nondeterministic_output", since: "2.2.12", about: "how many are kept",
			do: func(x *call) error { x.w.Int(int64(x.srv.slowlog.len())); return nil }},
		{name: "reset", arity: 2, flags: "admin loading stale", tips: "request_policy:all_nodes response_policy:all_succeeded", since: "2.2.12", about: "forget them",
			do: func(x *call) error { x.srv.slowlog.reset(); return x.ok() }},
		helpRow(),
	}}
}

func slowlogGet(x *call) error {
	count := int64(10)
	if len(x.args) == 3 {
		n, ok := resp.Int(x.args[2])
		if !ok || n < -1 {
			return replyError("ERR count should be greater than or equal to -1")
		}
		count = n
	} else if len(x.args) > 3 {
		return x.subSyntax()
	}
	entries := x.srv.slowlog.recent(count)
	x.w.Array(len(entries))
	for _, e := range entries {
		x.w.Array(6)
		x.w.Int(e.id)
		x.w.Int(e.unix)
		x.w.Int(e.micro)
		x.w.Array(len(e.args))
		for _, a := range e.args {
			x.w.BulkString(a)
		}
		x.w.BulkString(e.peer)
		x.w.BulkString(e.name)
	}
	return nil
}

func latencyCommands() command {
	const tips = "nondeterministic_output request_policy:all_nodes response_policy:special"
	return command{name: "latency", arity: -2, since: "2.8.13", about: "moments when commands took long", sub: []command{
		{name: "latest", arity: 2, flags: "admin noscript loading stale", tips: tips, since: "2.8.13", about: "the latest moment of each event", do: latencyLatest,
			note: "Events are `command` and `fast-command`."},
		{name: "history", arity: 3, flags: "admin noscript loading stale", tips: tips, since: "2.8.13", about: "an event's moments", do: latencyHistory},
		{name: "reset", arity: -2, flags: "admin noscript loading stale", tips: "request_policy:all_nodes response_policy:all_succeeded", since: "2.8.13", about: "forget events, or all", do: latencyReset},
		helpRow(),
	}}
}

func latencyLatest(x *call) error {
	names := x.srv.latency.names()
	x.w.Array(len(names))
	for _, n := range names {
		moments, most := x.srv.latency.history(n)
		last := latencyMoment{}
		if len(moments) > 0 {
			last = moments[len(moments)-1]
		}
		x.w.Array(4)
		x.w.BulkString(n)
		x.w.Int(last.unix)
		x.w.Int(last.ms)
		x.w.Int(most)
	}
	return nil
}

func latencyHistory(x *call) error {
	moments, _ := x.srv.latency.history(string(x.args[2]))
	x.w.Array(len(moments))
	for _, m := range moments {
		x.w.Array(2)
		x.w.Int(m.unix)
		x.w.Int(m.ms)
	}
	return nil
}

func latencyReset(x *call) error {
	names := x.srv.latency.names()
	if len(x.args) > 2 {
		names = nil
		for _, a := range x.args[2:] {
			names = append(names, string(a))
		}
	}
	n := int64(0)
	for _, name := range names {
		if x.srv.latency.reset(name) {
			n++
		}
	}
	x.w.Int(n)
	return nil
}

func memoryCommands() command {
	return command{name: "memory", arity: -2, since: "4.0.0", about: "memory", sub: []command{
		{name: "usage", arity: -3, flags: "readonly", specs: "RO @2 0,1,0", since: "4.0.0", about: "bytes that a key's rows take, encoded", do: memoryUsage,
			note: "The bytes of names, values and rows; SAMPLES is checked and everything counted."},
		helpRow(),
	}}
}

func debugCommands() command {
	return command{name: "debug", arity: -2, flags: "admin noscript loading stale", since: "1.0.0", about: "for tests", do: debug,
		note: "SLEEP (up to 60 s, delays this connection alone), JMAP is refused, and what Redis's test suite uses where it has a meaning: SET-ACTIVE-EXPIRE, RELOAD and LOADAOF are refused."}
}

// maxSleep bounds DEBUG SLEEP.
const maxSleep = 60 * time.Second

func debug(x *call) error {
	if x.is(1, "sleep") && len(x.args) == 3 && !x.inExec {
		f, ok := structs.Float(x.args[2])
		if !ok || f < 0 || f > maxSleep.Seconds() {
			return errNotFloat
		}
		t := time.NewTimer(time.Duration(f * float64(time.Second)))
		defer t.Stop()
		select {
		case <-t.C:
		case <-x.c.ctx.Done():
		}
		return x.ok()
	}
	return errorf("ERR DEBUG %.64s is not served", strings.ToUpper(string(x.args[1])))
}
