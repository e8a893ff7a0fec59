package redis

import (
	"fmt"
	"time"
)

// generators makes random commands, by family. A new family adds a row.
func generators() map[string]func(*random) []string {
	return map[string]func(*random) []string{
		"strings": stringCommand, "keys": keyCommand, "lists": listCommand, "hashes": hashCommand, "sets": setCommand,
		"zsets": zsetCommand, "bits": bitCommand, "mixed": mixedCommand,
	}
}

// pick draws one of several makers of commands.
func pick(r *random, makers ...func() []string) []string { return makers[r.IntN(len(makers))]() }

// other makes what may lie in the way: keys of other types, deletes.
func other(r *random) []string {
	k := r.key()
	return pick(r,
		func() []string { return cmd("DEL", k) },
		func() []string { return cmd("SET", k, r.word()) },
		func() []string { return cmd("RPUSH", k, r.words(1, 3)) },
		func() []string { return cmd("HSET", k, r.word(), r.word()) },
		func() []string { return cmd("SADD", k, r.words(1, 3)) },
		func() []string { return cmd("ZADD", k, "1", r.word()) },
		func() []string { return cmd("TYPE", k) },
		func() []string { return cmd("EXISTS", k, r.key()) },
		func() []string { return cmd(r.of("GET", "LLEN", "HLEN", "SCARD", "ZCARD"), r.words(0, 2)) },
	)
}

func later(r *random, ms bool) string {
	switch r.IntN(8) {
	case 0:
		return r.int()
	case 1:
		return r.of("0", "-1", "9223372036854775807", "1")
	}
	at := time.Now().Add(time.Duration(1+r.IntN(5)) * time.Hour)
	if ms {
		return fmt.Sprint(at.UnixMilli())
	}
	return fmt.Sprint(at.Unix())
}

func stringCommand(r *random) []string {
	if r.IntN(12) == 0 {
		return other(r)
	}
	k := r.key()
	return pick(r,
		func() []string { return cmd("GET", k) },
		func() []string { return cmd("SET", k, r.word()) },
		func() []string {
			return cmd("SET", k, r.word(), r.maybe(3, r.of("NX", "XX")), r.maybe(3, "GET"), r.maybe(6, "KEEPTTL"),
				r.maybe(4, r.of("EXAT", "exat"), later(r, false)), r.maybe(8, "PXAT", later(r, true)), r.maybe(12, r.word()))
		},
		func() []string {
			return cmd("SET", k, r.word(), r.of("EX", "PX"), r.of("100", "1000", "0", "-5", "x", "9223372036854775807"))
		},
		func() []string { return cmd("SETNX", k, r.word()) },
		func() []string {
			return cmd(r.of("SETEX", "PSETEX"), k, r.of("1000", "0", "-1", "x", "9223372036854775807"), r.word())
		},
		func() []string { return cmd("GETSET", k, r.word()) },
		func() []string { return cmd("GETDEL", k) },
		func() []string {
			return cmd("GETEX", k, r.maybe(3, "EXAT", later(r, false)), r.maybe(3, "PERSIST"), r.maybe(9, r.word()))
		},
		func() []string { return cmd("MGET", k, r.key(), r.key()) },
		func() []string { return cmd("MSET", k, r.word(), r.key(), r.word(), r.maybe(9, "odd")) },
		func() []string { return cmd("MSETNX", k, r.word(), r.key(), r.word(), r.maybe(9, "odd")) },
		func() []string { return cmd("APPEND", k, r.word()) },
		func() []string { return cmd("STRLEN", k) },
		func() []string {
			return cmd("SETRANGE", k, r.of("0", "1", "5", "20", "-1", "x", "536870912"), r.word())
		},
		func() []string { return cmd(r.of("GETRANGE", "SUBSTR"), k, r.int(), r.int()) },
		func() []string { return cmd(r.of("INCR", "DECR"), k) },
		func() []string { return cmd(r.of("INCRBY", "DECRBY"), k, r.int()) },
		func() []string {
			return cmd("INCRBYFLOAT", k, r.of("1", "0.5", "-1.25", "3", "x", "1000", "inf", "1e10"))
		},
		func() []string {
			return cmd("LCS", k, r.key(), r.maybe(4, "LEN"), r.maybe(3, "IDX"), r.maybe(4, "WITHMATCHLEN"), r.maybe(5, "MINMATCHLEN", r.int()))
		},
		func() []string { return cmd("OBJECT", "REFCOUNT", k) },
	)
}

func bitCommand(r *random) []string {
	if r.IntN(10) == 0 {
		return other(r)
	}
	k := r.key()
	offset := func() string {
		return r.of("0", "1", "7", "8", "9", "15", "31", "63", "64", "100", "-1", "x", "4294967296", "#1")
	}
	width := func() string {
		return r.of("u1", "u4", "u8", "u32", "u63", "i1", "i3", "i8", "i16", "i63", "i64", "u64", "i65", "x8", "u", "u0")
	}
	place := func() string { return r.of("0", "3", "8", "#0", "#1", "#3", "70", "-1", "#-1", "#x") }
	value := func() string {
		return r.of("0", "1", "-1", "7", "127", "128", "255", "256", "-128", "-129", "9223372036854775807", "x")
	}
	op := func() []string {
		return pick(r,
			func() []string { return cmd("GET", width(), place()) },
			func() []string { return cmd("SET", width(), place(), r.of(value(), "-4611686018427387904")) }, // of less, Redis's own arithmetic overflows
			func() []string { return cmd("INCRBY", width(), place(), r.of(value(), "-9223372036854775808")) },
			func() []string { return cmd("OVERFLOW", r.of("WRAP", "SAT", "FAIL", "sat", "nope")) })
	}
	return pick(r,
		func() []string { return cmd("SETBIT", k, offset(), r.of("0", "1", "1", "2", "x")) },
		func() []string { return cmd("GETBIT", k, offset()) },
		func() []string { return cmd("SET", k, r.of("\xff\xff\xff", "\x00\xf0\x0f", "", "foobar", "\x00\x00")) },
		func() []string {
			return cmd("BITCOUNT", k, r.int(), r.int(), r.maybe(2, r.of("BIT", "BYTE", "bit", "x")), r.maybe(20, "1"))
		},
		func() []string {
			return cmd("BITPOS", k, r.of("0", "1", "0", "1", "2", "x"), r.int(), r.int(), r.maybe(2, r.of("BIT", "BYTE", "x")))
		},
		func() []string { return cmd("BITCOUNT", k, r.maybe(4, r.int())) },
		func() []string { return cmd("BITPOS", k, r.of("0", "1"), r.maybe(2, r.int())) },
		func() []string {
			return cmd("BITOP", r.of("AND", "OR", "XOR", "NOT", "not", "x"), k, r.key(), r.maybe(2, r.key()), r.maybe(3, r.key()))
		},
		func() []string {
			return cmd("BITFIELD", k, op(), r.maybe(2, op()...), r.maybe(2, op()...), r.maybe(2, op()...))
		},
		func() []string { return cmd("BITFIELD_RO", k, op(), r.maybe(2, op()...)) },
		func() []string { return cmd("GET", k) },
		func() []string { return cmd("PEXPIRETIME", k) },
	)
}

func keyCommand(r *random) []string {
	if r.IntN(3) == 0 {
		return other(r)
	}
	k := r.key()
	return pick(r,
		func() []string {
			return cmd(r.of("DEL", "UNLINK", "EXISTS", "TOUCH"), k, r.maybe(2, r.key()), r.maybe(3, k))
		},
		func() []string {
			return cmd("EXPIREAT", k, later(r, false), r.maybe(2, r.of("NX", "XX", "GT", "LT", "zz")), r.maybe(5, r.of("NX", "XX", "GT", "LT")))
		},
		func() []string { return cmd("PEXPIREAT", k, later(r, true), r.maybe(2, r.of("nx", "xx", "gt", "lt"))) },
		func() []string {
			return cmd(r.of("EXPIRE", "PEXPIRE"), k, r.of("100000", "-1", "0", "x", "9223372036854775807", "-9223372036854775808", "9223372036854770"))
		},
		func() []string { return cmd(r.of("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME", "PERSIST", "TYPE"), k) },
		func() []string { return cmd(r.of("RENAME", "RENAMENX"), k, r.key()) },
		func() []string {
			return cmd("COPY", k, r.key(), r.maybe(3, "REPLACE"), r.maybe(6, "DB", r.of("0", "1", "16", "x")), r.maybe(9, "nope"))
		},
		func() []string { return cmd("MOVE", k, r.of("1", "0", "2", "16", "x")) },
		func() []string { return cmd("SELECT", r.of("0", "1", "0", "16", "-1", "x")) },
		func() []string {
			return cmd("KEYS", r.of("*", "k?", "k[1-3]", "k[^1-3]", "*1", "x*", "\\k1", "k[", "[k]1"))
		},
		func() []string { return cmd("RANDOMKEY") },
		func() []string {
			return cmd("SORT", k, r.maybe(2, "ALPHA"), r.maybe(3, "DESC"), r.maybe(3, "LIMIT", r.int(), r.int()),
				r.maybe(4, "BY", r.of("k*", "nosort", "k*->a")), r.maybe(4, "GET", r.of("#", "k*", "k*->a")), r.maybe(6, "STORE", r.key()))
		},
		func() []string { return cmd("OBJECT", r.of("REFCOUNT", "FREQ", "ENCODING", "nope"), k) },
		func() []string { return cmd("DBSIZE") },
	)
}

func listCommand(r *random) []string {
	if r.IntN(10) == 0 {
		return other(r)
	}
	k := r.key()
	side := func() string { return r.of("LEFT", "RIGHT", "left", "up") }
	return pick(r,
		func() []string { return cmd(r.of("LPUSH", "RPUSH", "LPUSHX", "RPUSHX"), k, r.words(1, 4)) },
		func() []string { return cmd(r.of("LPUSH", "RPUSH"), k, r.words(1, 4)) },
		func() []string { return cmd(r.of("LPOP", "RPOP"), k, r.maybe(2, r.int()), r.maybe(20, "x")) },
		func() []string { return cmd("LLEN", k) },
		func() []string { return cmd("LINDEX", k, r.int()) },
		func() []string { return cmd("LRANGE", k, r.int(), r.int()) },
		func() []string { return cmd("LSET", k, r.int(), r.word()) },
		func() []string { return cmd("LINSERT", k, r.of("BEFORE", "AFTER", "after", "x"), r.word(), r.word()) },
		func() []string { return cmd("LREM", k, r.int(), r.word()) },
		func() []string { return cmd("LTRIM", k, r.int(), r.int()) },
		func() []string {
			return cmd("LPOS", k, r.word(), r.maybe(2, "RANK", r.int()), r.maybe(2, "COUNT", r.int()), r.maybe(3, "MAXLEN", r.int()))
		},
		func() []string { return cmd("LMOVE", k, r.key(), side(), side()) },
		func() []string { return cmd("RPOPLPUSH", k, r.key()) },
		func() []string {
			return cmd("LMPOP", r.of("1", "2", "3", "0", "x"), k, r.key(), side(), r.maybe(3, "COUNT", r.int()))
		},
		func() []string { return cmd(r.of("BLPOP", "BRPOP"), k, r.key(), r.of("0.001", "-1", "x", "0.01")) },
		func() []string {
			return cmd("BLMPOP", r.of("0.001", "x"), "2", k, r.key(), side(), r.maybe(3, "COUNT", r.int()))
		},
		func() []string { return cmd("BLMOVE", k, r.key(), side(), side(), "0.001") },
		func() []string { return cmd("BRPOPLPUSH", k, r.key(), "0.001") },
	)
}

func hashCommand(r *random) []string {
	if r.IntN(12) == 0 {
		return other(r)
	}
	k := r.key()
	return pick(r,
		func() []string {
			return cmd(r.of("HSET", "HMSET"), k, r.word(), r.word(), r.maybe(3, r.word(), r.word()), r.maybe(15, "odd"))
		},
		func() []string { return cmd("HSET", k, r.word(), r.int()) },
		func() []string { return cmd("HSETNX", k, r.word(), r.word()) },
		func() []string { return cmd("HGET", k, r.word()) },
		func() []string { return cmd("HMGET", k, r.words(1, 4)) },
		func() []string { return cmd("HDEL", k, r.words(1, 4)) },
		func() []string { return cmd("HEXISTS", k, r.word()) },
		func() []string { return cmd(r.of("HLEN", "HKEYS", "HVALS", "HGETALL"), k) },
		func() []string { return cmd("HSTRLEN", k, r.word()) },
		func() []string { return cmd("HINCRBY", k, r.word(), r.int()) },
		func() []string {
			return cmd("HINCRBYFLOAT", k, r.word(), r.of("1", "0.5", "-1.25", "x", "inf", "1000"))
		},
		func() []string { return cmd("HRANDFIELD", k, r.maybe(2, r.int()), r.maybe(3, "WITHVALUES")) },
		func() []string { return cmd("HSCAN", k, "0", "COUNT", "1000", r.maybe(20, "COUNT", "0")) },
	)
}

func setCommand(r *random) []string {
	if r.IntN(12) == 0 {
		return other(r)
	}
	k := r.key()
	return pick(r,
		func() []string { return cmd("SADD", k, r.words(1, 5)) },
		func() []string { return cmd("SREM", k, r.words(1, 3)) },
		func() []string { return cmd("SMOVE", k, r.key(), r.word()) },
		func() []string { return cmd("SISMEMBER", k, r.word()) },
		func() []string { return cmd("SMISMEMBER", k, r.words(1, 4)) },
		func() []string { return cmd(r.of("SCARD", "SMEMBERS"), k) },
		func() []string { return cmd("SRANDMEMBER", k, r.maybe(2, r.int())) },
		func() []string { return cmd("SPOP", k, r.of("0", "100")) },
		func() []string {
			return cmd(r.of("SINTER", "SUNION", "SDIFF"), k, r.maybe(2, r.key()), r.maybe(2, r.key()))
		},
		func() []string {
			return cmd(r.of("SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"), k, r.key(), r.maybe(2, r.key()), r.maybe(2, k))
		},
		func() []string {
			return cmd("SINTERCARD", r.of("1", "2", "3", "0", "x"), k, r.key(), r.maybe(3, "LIMIT", r.int()))
		},
	)
}

func zsetCommand(r *random) []string {
	if r.IntN(15) == 0 {
		return other(r)
	}
	k := r.key()
	score := func() string { return r.of(r.float(), "("+r.float(), r.float()) }
	lex := func() string { return r.of("-", "+", "["+r.word(), "("+r.word(), r.word()) }
	limit := func() []string { return r.maybe(3, "LIMIT", r.int(), r.int()) }
	return pick(r,
		func() []string { return cmd("ZADD", k, r.float(), r.word(), r.maybe(2, r.float(), r.word())) },
		func() []string { return cmd("ZADD", k, r.float(), r.word(), r.float(), r.word(), r.float(), r.word()) },
		func() []string {
			return cmd("ZADD", k, r.maybe(3, r.of("NX", "XX")), r.maybe(3, r.of("GT", "LT")), r.maybe(3, "CH"), r.maybe(4, "INCR"), r.float(), r.word(), r.maybe(4, r.float(), r.word()))
		},
		func() []string { return cmd("ZINCRBY", k, r.float(), r.word()) },
		func() []string { return cmd("ZREM", k, r.words(1, 3)) },
		func() []string { return cmd("ZCARD", k) },
		func() []string { return cmd(r.of("ZSCORE", "ZRANK", "ZREVRANK"), k, r.word()) },
		func() []string { return cmd("ZMSCORE", k, r.words(1, 3)) },
		func() []string { return cmd("ZCOUNT", k, score(), score()) },
		func() []string {
			return cmd(r.of("ZRANGE", "ZREVRANGE"), k, r.int(), r.int(), r.maybe(2, "WITHSCORES"))
		},
		func() []string {
			return cmd(r.of("ZRANGEBYSCORE", "ZREVRANGEBYSCORE"), k, score(), score(), r.maybe(2, "WITHSCORES"), limit())
		},
		func() []string { return cmd("ZRANGE", k, score(), score(), "BYSCORE", r.maybe(2, "REV"), limit()) },
		func() []string {
			return cmd("ZRANGE", k, r.int(), r.int(), r.maybe(3, "REV"), r.maybe(6, "LIMIT", "0", "1"), r.maybe(8, "x"))
		},
		func() []string {
			return cmd("ZRANGESTORE", k, r.key(), r.int(), r.int(), r.maybe(3, "REV"), r.maybe(9, "WITHSCORES"))
		},
		func() []string { return cmd("ZRANGESTORE", k, r.key(), score(), score(), "BYSCORE", limit()) },
		func() []string { return cmd("ZREMRANGEBYRANK", k, r.int(), r.int()) },
		func() []string { return cmd("ZREMRANGEBYSCORE", k, score(), score()) },
		func() []string { return cmd(r.of("ZPOPMIN", "ZPOPMAX"), k, r.maybe(2, r.int())) },
		func() []string {
			return cmd("ZMPOP", r.of("1", "2", "3", "0", "x"), k, r.key(), r.of("MIN", "MAX", "x"), r.maybe(3, "COUNT", r.int()))
		},
		func() []string { return cmd(r.of("BZPOPMIN", "BZPOPMAX"), k, r.key(), r.of("0.001", "x", "-1")) },
		func() []string { return cmd("BZMPOP", "0.001", "2", k, r.key(), r.of("MIN", "MAX")) },
		func() []string { return cmd("ZRANDMEMBER", k, r.maybe(2, r.int()), r.maybe(3, "WITHSCORES")) },
		func() []string {
			return cmd(r.of("ZUNION", "ZINTER"), r.of("2", "2", "2", "3", "0", "x"), k, r.key(), r.maybe(3, "WEIGHTS", r.float(), r.float()),
				r.maybe(3, "AGGREGATE", r.of("SUM", "MIN", "MAX", "x")), r.maybe(2, "WITHSCORES"))
		},
		func() []string {
			return cmd(r.of("ZUNIONSTORE", "ZINTERSTORE"), k, "2", r.key(), r.key(), r.maybe(3, "WEIGHTS", r.float(), r.float()))
		},
		func() []string {
			return cmd("ZDIFF", "2", k, r.key(), r.maybe(2, "WITHSCORES"), r.maybe(9, "WEIGHTS", "1", "1"))
		},
		func() []string { return cmd("ZDIFFSTORE", k, "2", r.key(), r.key()) },
		func() []string { return cmd("ZINTERCARD", "2", k, r.key(), r.maybe(3, "LIMIT", r.int())) },
		func() []string { return cmd("DEL", "lex") },
		func() []string { return cmd("ZADD", "lex", "0", r.word(), "0", r.word(), "0", r.word()) },
		func() []string { return cmd(r.of("ZRANGEBYLEX", "ZREVRANGEBYLEX"), "lex", lex(), lex(), limit()) },
		func() []string { return cmd("ZRANGE", "lex", lex(), lex(), "BYLEX", r.maybe(2, "REV"), limit()) },
		func() []string { return cmd("ZLEXCOUNT", "lex", lex(), lex()) },
		func() []string { return cmd("ZREMRANGEBYLEX", "lex", lex(), lex()) },
		func() []string { return cmd("ZSCAN", k, "0", "COUNT", "1000", r.maybe(3, "MATCH", r.of("a*", "*"))) },
	)
}

// mixedCommand draws from all families, within transactions now and then.
func mixedCommand(r *random) []string {
	switch r.IntN(12) {
	case 0:
		return cmd("MULTI")
	case 1, 2:
		return cmd("EXEC")
	case 3:
		return cmd(r.of("DISCARD", "UNWATCH"))
	case 4:
		return cmd("WATCH", r.key(), r.key())
	case 5:
		return cmd(r.of("nosuch", "GET", "PING", "ECHO", "CLIENT"), r.words(0, 3))
	}
	return pick(r,
		func() []string { return stringCommand(r) }, func() []string { return listCommand(r) },
		func() []string { return hashCommand(r) }, func() []string { return setCommand(r) },
		func() []string { return zsetCommand(r) })
}
