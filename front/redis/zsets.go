package redis

import (
	"math"
	"slices"

	"github.com/lattice-log/lattice/engine/structs"
)

func sortedSetCommands() family {
	const one = "@1 0,1,0"
	const many = "@1 n0,1,1"
	const store = "OW update @1 0,1,0; RO access @2 n0,1,1"
	return family{"sorted-set", []command{
		{name: "zadd", arity: -4, flags: "write denyoom fast", specs: "RW update " + one, since: "1.2.0", about: "give members scores", do: zadd},
		{name: "zincrby", arity: 4, flags: "write denyoom fast", specs: "RW access update " + one, since: "1.2.0", about: "add to a score", do: zincrBy,
			note: "Between nodes that have not met, a score is a value in conflict, not a sum."},
		{name: "zrem", arity: -3, flags: "write fast", specs: "RW delete " + one, since: "1.2.0", about: "remove members", do: zrem},
		{name: "zcard", arity: 2, flags: "readonly fast", specs: "RO " + one, since: "1.2.0", about: "number of members", do: zcard},
		{name: "zscore", arity: 3, flags: "readonly fast", specs: "RO access " + one, since: "1.2.0", about: "a score", do: zscore},
		{name: "zmscore", arity: -3, flags: "readonly fast", specs: "RO access " + one, since: "6.2.0", about: "several scores", do: zmscore},
		{name: "zrank", arity: 3, flags: "readonly fast", specs: "RO access " + one, since: "2.0.0", about: "a member's rank from the least", do: zrank(false)},
		{name: "zrevrank", arity: 3, flags: "readonly fast", specs: "RO access " + one, since: "2.0.0", about: "a member's rank from the greatest", do: zrank(true)},
		{name: "zcount", arity: 4, flags: "readonly fast", specs: "RO access " + one, since: "2.0.0", about: "how many have scores of a range", do: zcount(byScore)},
		{name: "zlexcount", arity: 4, flags: "readonly fast", specs: "RO access " + one, since: "2.8.9", about: "how many have names of a range", do: zcount(byLex)},
		{name: "zrange", arity: -4, flags: "readonly", specs: "RO access " + one, since: "1.2.0", about: "members of a range", do: zrange(zrangeForm{auto: true})},
		{name: "zrangebyscore", arity: -4, flags: "readonly", specs: "RO access " + one, since: "1.0.5", about: "members by score", do: zrange(zrangeForm{by: byScore})},
		{name: "zrangebylex", arity: -4, flags: "readonly", specs: "RO access " + one, since: "2.8.9", about: "members by name", do: zrange(zrangeForm{by: byLex}),
			note: "In the order of names whatever the scores, here and where BYLEX is said; Redis leaves unequal scores undefined."},
		{name: "zrevrange", arity: -4, flags: "readonly", specs: "RO access " + one, since: "1.2.0", about: "members of a range, greatest first", do: zrange(zrangeForm{reverse: true})},
		{name: "zrevrangebyscore", arity: -4, flags: "readonly", specs: "RO access " + one, since: "2.2.0", about: "members by score, greatest first", do: zrange(zrangeForm{by: byScore, reverse: true})},
		{name: "zrevrangebylex", arity: -4, flags: "readonly", specs: "RO access " + one, since: "2.8.9", about: "members by name, last first", do: zrange(zrangeForm{by: byLex, reverse: true})},
		{name: "zrangestore", arity: -5, flags: "write denyoom", specs: "OW update @1 0,1,0; RO access @2 0,1,0", since: "6.2.0", about: "store members of a range", do: zrangeStore},
		{name: "zremrangebyrank", arity: 4, flags: "write", specs: "RW delete " + one, since: "2.0.0", about: "remove by rank", do: zremRange(byRank, "zremrangebyrank")},
		{name: "zremrangebyscore", arity: 4, flags: "write", specs: "RW delete " + one, since: "1.2.0", about: "remove by score", do: zremRange(byScore, "zremrangebyscore")},
		{name: "zremrangebylex", arity: 4, flags: "write", specs: "RW delete " + one, since: "2.8.9", about: "remove by name", do: zremRange(byLex, "zremrangebylex")},
		{name: "zpopmin", arity: -2, flags: "write fast", specs: "RW access delete " + one, since: "5.0.0", about: "take the least", do: zpop(false)},
		{name: "zpopmax", arity: -2, flags: "write fast", specs: "RW access delete " + one, since: "5.0.0", about: "take the greatest", do: zpop(true)},
		{name: "zmpop", arity: -4, flags: "write movablekeys", specs: "RW access delete " + many, since: "7.0.0", about: "take from the first sorted set that has any", do: zmpop},
		{name: "bzpopmin", arity: -3, flags: "write noscript blocking fast", specs: "RW access delete @1 -2,1,0", since: "5.0.0", about: "zpopmin, waiting for a member", do: bzpop(false)},
		{name: "bzpopmax", arity: -3, flags: "write noscript blocking fast", specs: "RW access delete @1 -2,1,0", since: "5.0.0", about: "zpopmax, waiting for a member", do: bzpop(true)},
		{name: "bzmpop", arity: -5, flags: "write blocking movablekeys", specs: "RW access delete @2 n0,1,1", since: "7.0.0", about: "zmpop, waiting for a member", do: bzmpop},
		{name: "zrandmember", arity: -2, flags: "readonly", specs: "RO access " + one, tips: "nondeterministic_output", since: "6.2.0", about: "random members", do: zrandmember},
		{name: "zunion", arity: -3, flags: "readonly movablekeys", specs: "RO access " + many, since: "6.2.0", about: "what is in any set", do: zcombine(zunion)},
		{name: "zinter", arity: -3, flags: "readonly movablekeys", specs: "RO access " + many, since: "6.2.0", about: "what is in all sets", do: zcombine(zinter)},
		{name: "zdiff", arity: -3, flags: "readonly movablekeys", specs: "RO access " + many, since: "6.2.0", about: "what is in the first set and in no other", do: zcombine(zdiff)},
		{name: "zunionstore", arity: -4, flags: "write denyoom movablekeys", specs: store, since: "2.0.0", about: "store what is in any set", do: zcombineStore(zunion, "zunionstore")},
		{name: "zinterstore", arity: -4, flags: "write denyoom movablekeys", specs: store, since: "2.0.0", about: "store what is in all sets", do: zcombineStore(zinter, "zinterstore")},
		{name: "zdiffstore", arity: -4, flags: "write denyoom movablekeys", specs: store, since: "6.2.0", about: "store what is in the first set and in no other", do: zcombineStore(zdiff, "zdiffstore")},
		{name: "zintercard", arity: -3, flags: "readonly movablekeys", specs: "RO access " + many, since: "7.0.0", about: "how many are in all sets", do: zinterCard},
		{name: "zscan", arity: -3, flags: "readonly", specs: "RO access " + one, tips: "nondeterministic_output", since: "2.8.0", about: "members with scores, a page at a time", do: zscan, note: "As SCAN."},
	}}
}

// zaddOptions are what ZADD takes before its pairs.
type zaddOptions struct{ nx, xx, gt, lt, ch, incr bool }

// read returns where the pairs begin.
func (o *zaddOptions) read(x *call) (at int, err error) {
	for at = 2; at < len(x.args); at++ {
		if a := x.args[at]; len(a) > 0 && a[0] < 'A' { // a score, nearly always
			return at, o.check(len(x.args) - at)
		}
		switch lower(x.args[at]) {
		case "nx":
			o.nx = true
		case "xx":
			o.xx = true
		case "gt":
			o.gt = true
		case "lt":
			o.lt = true
		case "ch":
			o.ch = true
		case "incr":
			o.incr = true
		default:
			return at, o.check(len(x.args) - at)
		}
	}
	return at, errSyntax
}

func (o *zaddOptions) check(left int) error {
	switch {
	case left%2 != 0 || left == 0:
		return errSyntax
	case o.nx && o.xx:
		return replyError("ERR XX and NX options at the same time are not compatible")
	case o.gt && o.nx, o.lt && o.nx, o.gt && o.lt:
		return replyError("ERR GT, LT, and/or NX options at the same time are not compatible")
	case o.incr && left > 2:
		return replyError("ERR INCR option supports a single increment-element pair")
	}
	return nil
}

// errNaN is the reply to a score that is no number.
const errNaN = replyError("ERR resulting score is not a number (NaN)")

func zadd(x *call) error {
	var o zaddOptions
	at, err := o.read(x)
	if err != nil {
		return err
	}
	return x.zadd(o, x.args[at:])
}

func zincrBy(x *call) error { return x.zadd(zaddOptions{incr: true}, x.args[2:]) }

// zaddOne gives a member a score, as o says, and reports what that did.
func (x *call) zaddOne(o zaddOptions, key, member []byte, score float64) (is float64, added, updated, done bool, err error) {
	was, there, err := x.m().ZScore(key, member)
	switch {
	case err != nil:
		return 0, false, false, false, err
	case there && o.nx, !there && o.xx:
		return 0, false, false, false, nil
	}
	if there && o.incr {
		score += was
	}
	if math.IsNaN(score) {
		return 0, false, false, false, errNaN
	}
	if there && (o.lt && score >= was || o.gt && score <= was) {
		return 0, false, false, false, nil
	}
	if !there || score != was {
		if err := x.m().ZSet(key, member, score); err != nil {
			return 0, false, false, false, err
		}
	}
	return score, !there, there && score != was, true, nil
}

// zadd is ZADD and ZINCRBY behind their options.
func (x *call) zadd(o zaddOptions, pairs [][]byte) error {
	var few [4]float64
	scores := few[:min(len(pairs)/2, len(few))]
	if len(pairs)/2 > len(few) {
		scores = make([]float64, len(pairs)/2)
	}
	for i := range scores {
		var ok bool
		if scores[i], ok = structs.Float(pairs[2*i]); !ok {
			return errNotFloat
		}
	}
	key := x.args[1]
	if _, err := x.isType(key, structs.SortedSet); err != nil {
		return err
	}
	var added, updated int64
	var score float64
	var done bool
	var failed error
	for i, s := range scores {
		is, isNew, moved, ok, err := x.zaddOne(o, key, pairs[2*i+1], s)
		if err == errNaN { // what came before it stays, as in Redis
			failed = err
			break
		}
		if err != nil {
			return err
		}
		score, done = is, ok
		if isNew {
			added++
		}
		if moved {
			updated++
		}
	}
	if added+updated > 0 {
		event := "zadd"
		if o.incr {
			event = "zincr"
		}
		x.changed(notifyZset, event, key)
	}
	switch {
	case failed != nil:
		return failed
	case o.incr && done:
		x.w.Double(score)
	case o.incr:
		x.w.Null()
	case o.ch:
		x.w.Int(added + updated)
	default:
		x.w.Int(added)
	}
	return nil
}

func zrem(x *call) error {
	n, err := x.m().ZRem(x.args[1], x.args[2:]...)
	if err != nil {
		return err
	}
	if n > 0 {
		x.changed(notifyZset, "zrem", x.args[1])
		if err := x.emptied(x.args[1]); err != nil {
			return err
		}
	}
	x.w.Int(int64(n))
	return nil
}

func zcard(x *call) error { return x.count(x.m().ZLen(x.args[1])) }

func (x *call) doubleOrNull(f float64, ok bool) {
	if ok {
		x.w.Double(f)
	} else {
		x.w.Null()
	}
}

func zscore(x *call) error {
	f, ok, err := x.m().ZScore(x.args[1], x.args[2])
	if err == nil {
		x.doubleOrNull(f, ok)
	}
	return err
}

func zmscore(x *call) error {
	x.w.Array(len(x.args) - 2)
	for _, m := range x.args[2:] {
		f, ok, err := x.m().ZScore(x.args[1], m)
		if err != nil {
			return err
		}
		x.doubleOrNull(f, ok)
	}
	return nil
}

func zrank(reverse bool) func(*call) error {
	return func(x *call) error {
		rank, ok, err := x.m().ZRank(x.args[1], x.args[2], reverse)
		switch {
		case err != nil:
			return err
		case ok:
			x.w.Int(rank)
		default:
			x.w.Null()
		}
		return nil
	}
}

func zrandmember(x *call) error {
	var s sample
	if err := s.read(x, "withscores"); err != nil {
		return err
	}
	key := x.args[1]
	n, err := x.m().ZLen(key)
	if err != nil {
		return err
	}
	var scores []float64 // of what was picked; a part is the place here
	picked, err := s.pick(n, func(yield func(...[]byte) bool) error {
		return x.m().ZScan(key, math.Inf(-1), false, func(m structs.Scored) bool {
			scores = append(scores, m.Score)
			return yield(slices.Clone(m.Member), appendInt(nil, int64(len(scores)-1)))
		})
	})
	if err != nil {
		return err
	}
	s.reply(x.w, picked, func(place []byte) { x.w.Double(scores[atoi(string(place))]) })
	return nil
}

func zscan(x *call) error {
	key := x.args[1]
	return x.scanIn(structs.SortedSet, "listpack", func(o *scanOptions, isSmall bool, from []byte, p *page) error {
		var failed error
		err := x.m().ZLexScan(key, from, false, func(b []byte) bool {
			var f float64
			if f, _, failed = x.m().ZScore(key, b); failed != nil {
				return false
			}
			return p.take(o, b, b, scoreText(f, isSmall))
		})
		if failed != nil {
			return failed
		}
		return err
	})
}
