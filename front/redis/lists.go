package redis

import (
	"bytes"
	"math"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

func listCommands() family {
	const one = "@1 0,1,0"
	const wait = "Served in the transaction that brought the element, first come first served. Between nodes that have not met, both may pop one element."
	return family{"list", []command{
		{name: "lpush", arity: -3, flags: "write denyoom fast", specs: "RW insert " + one, since: "1.0.0", about: "put elements in front", do: push(true, false)},
		{name: "rpush", arity: -3, flags: "write denyoom fast", specs: "RW insert " + one, since: "1.0.0", about: "put elements behind", do: push(false, false)},
		{name: "lpushx", arity: -3, flags: "write denyoom fast", specs: "RW insert " + one, since: "2.2.0", about: "lpush, if there is a list", do: push(true, true)},
		{name: "rpushx", arity: -3, flags: "write denyoom fast", specs: "RW insert " + one, since: "2.2.0", about: "rpush, if there is a list", do: push(false, true)},
		{name: "lpop", arity: -2, flags: "write fast", specs: "RW access delete " + one, since: "1.0.0", about: "take elements from the front", do: pop(true)},
		{name: "rpop", arity: -2, flags: "write fast", specs: "RW access delete " + one, since: "1.0.0", about: "take elements from behind", do: pop(false)},
		{name: "llen", arity: 2, flags: "readonly fast", specs: "RO " + one, since: "1.0.0", about: "number of elements", do: llen},
		{name: "lindex", arity: 3, flags: "readonly", specs: "RO access " + one, since: "1.0.0", about: "the element at an index", do: lindex},
		{name: "lrange", arity: 4, flags: "readonly", specs: "RO access " + one, since: "1.0.0", about: "elements of a range", do: lrange},
		{name: "lset", arity: 4, flags: "write denyoom", specs: "RW update " + one, since: "1.0.0", about: "replace the element at an index", do: lset},
		{name: "linsert", arity: 5, flags: "write denyoom", specs: "RW insert " + one, since: "2.2.0", about: "put an element beside another", do: linsert},
		{name: "lrem", arity: 4, flags: "write", specs: "RW delete " + one, since: "1.0.0", about: "remove elements with a value", do: lrem},
		{name: "ltrim", arity: 4, flags: "write", specs: "RW delete " + one, since: "1.0.0", about: "keep a range", do: ltrim},
		{name: "lpos", arity: -3, flags: "readonly", specs: "RO access " + one, since: "6.0.6", about: "indexes of a value", do: lpos},
		{name: "lmove", arity: 5, flags: "write denyoom", specs: "RW access delete @1 0,1,0; RW insert @2 0,1,0", since: "6.2.0", about: "take an element from one list and put it on another", do: lmove},
		{name: "rpoplpush", arity: 3, flags: "write denyoom", specs: "RW access delete @1 0,1,0; RW insert @2 0,1,0", since: "1.2.0", about: "from behind one list to the front of another", do: rpoplpush},
		{name: "lmpop", arity: -4, flags: "write movablekeys", specs: "RW access delete @1 n0,1,1", since: "7.0.0", about: "take elements from the first list that has any", do: lmpop},
		{name: "blpop", arity: -3, flags: "write noscript blocking", specs: "RW access delete @1 -2,1,0", since: "2.0.0", about: "lpop, waiting for an element", do: bpop(true), note: wait},
		{name: "brpop", arity: -3, flags: "write noscript blocking", specs: "RW access delete @1 -2,1,0", since: "2.0.0", about: "rpop, waiting for an element", do: bpop(false)},
		{name: "blmove", arity: 6, flags: "write denyoom noscript blocking", specs: "RW access delete @1 0,1,0; RW insert @2 0,1,0", since: "6.2.0", about: "lmove, waiting for an element", do: blmove},
		{name: "brpoplpush", arity: 4, flags: "write denyoom noscript blocking", specs: "RW access delete @1 0,1,0; RW insert @2 0,1,0", since: "2.2.0", about: "rpoplpush, waiting for an element", do: brpoplpush},
		{name: "blmpop", arity: -5, flags: "write blocking movablekeys", specs: "RW access delete @2 n0,1,1", since: "7.0.0", about: "lmpop, waiting for an element", do: blmpop},
	}}
}

// side names an end of a list in events.
func side(left bool, what string) string {
	if left {
		return "l" + what
	}
	return "r" + what
}

// isType reports whether a key is there, and is an error when it is of another
// type than t.
func (x *call) isType(key []byte, t structs.Type) (bool, error) {
	is, err := x.m().Type(key)
	if err != nil || is == structs.None {
		return false, err
	}
	if is != t {
		return false, errWrongType
	}
	return true, nil
}

// emptied says that a collection is gone, if it is.
func (x *call) emptied(key []byte) error {
	there, err := x.present(key)
	if err == nil && !there {
		x.notify(notifyGeneric, "del", key)
	}
	return err
}

func push(left, onlyThere bool) func(*call) error {
	return func(x *call) error {
		key := x.args[1]
		if onlyThere {
			if there, err := x.isType(key, structs.List); err != nil {
				return err
			} else if !there {
				x.w.Int(0)
				return nil
			}
		}
		n, err := x.m().Push(key, left, x.args[2:]...)
		if err != nil {
			return err
		}
		x.changed(notifyList, side(left, "push"), key)
		x.w.Int(n)
		return nil
	}
}

// positive reads argument i as a count, 0 included.
func (x *call) positive(i int, text replyError) (int64, error) {
	n, ok := resp.Int(x.args[i])
	if !ok && text == errNotPositive || n < 0 || !ok {
		return 0, text
	}
	return n, nil
}

func pop(left bool) func(*call) error {
	return func(x *call) error {
		count := int64(-1)
		switch len(x.args) {
		case 2:
		case 3:
			var err error
			if count, err = x.positive(2, errNotPositive); err != nil {
				return err
			}
		default:
			return errorf("ERR wrong number of arguments for '%s' command", x.cmd.fullName())
		}
		key := x.args[1]
		there, err := x.isType(key, structs.List)
		switch {
		case err != nil:
			return err
		case !there && count < 0:
			x.w.Null()
			return nil
		case !there:
			x.w.NullArray()
			return nil
		case count == 0:
			x.w.Array(0)
			return nil
		}
		popped, err := x.take(key, left, max(count, 1))
		if err != nil {
			return err
		}
		if count < 0 {
			x.w.Bulk(popped[0])
			return nil
		}
		x.bulks(popped)
		return nil
	}
}

// take pops elements of a list that is there.
func (x *call) take(key []byte, left bool, n int64) ([][]byte, error) {
	popped, err := x.m().Pop(key, left, n)
	if err != nil {
		return nil, err
	}
	x.changed(notifyList, side(left, "pop"), key)
	return popped, x.emptied(key)
}

// bulks replies an array of strings.
func (x *call) bulks(all [][]byte) {
	x.w.Array(len(all))
	for _, b := range all {
		x.w.Bulk(b)
	}
}

func llen(x *call) error { return x.count(x.m().LLen(x.args[1])) }

// count replies a number.
func (x *call) count(n int64, err error) error {
	if err == nil {
		x.w.Int(n)
	}
	return err
}

func lindex(x *call) error {
	if there, err := x.isType(x.args[1], structs.List); err != nil {
		return err
	} else if !there {
		x.w.Null()
		return nil
	}
	i, err := x.int(2)
	if err != nil {
		return err
	}
	b, ok, err := x.m().LIndex(x.args[1], i)
	if err != nil {
		return err
	}
	x.bulkOrNull(b, ok)
	return nil
}

// bounds reads two indexes and fits them to a length; empty when nothing lies
// between them.
func bounds(start, stop, n int64) (from, to int64, empty bool) {
	from, to = max(0, fromEnd(start, n)), min(fromEnd(stop, n), n-1)
	return from, to, from > to || from >= n
}

// twoInts reads arguments 2 and 3.
func (x *call) twoInts() (a, b int64, err error) {
	if a, err = x.int(2); err == nil {
		b, err = x.int(3)
	}
	return a, b, err
}

func lrange(x *call) error {
	start, stop, err := x.twoInts()
	if err != nil {
		return err
	}
	n, err := x.m().LLen(x.args[1])
	if err != nil {
		return err
	}
	from, to, empty := bounds(start, stop, n)
	if empty {
		x.w.Array(0)
		return nil
	}
	all, err := x.m().LRange(x.args[1], from, to)
	if err != nil {
		return err
	}
	x.bulks(all)
	return nil
}

func lset(x *call) error {
	if there, err := x.isType(x.args[1], structs.List); err != nil {
		return err
	} else if !there {
		return errNoKey
	}
	i, err := x.int(2)
	if err != nil {
		return err
	}
	if err := x.m().LSet(x.args[1], i, x.args[3]); err != nil {
		return err
	}
	x.changed(notifyList, "lset", x.args[1])
	return x.ok()
}

func linsert(x *call) error {
	before := x.is(2, "before")
	if !before && !x.is(2, "after") {
		return errSyntax
	}
	n, err := x.m().LInsert(x.args[1], before, x.args[3], x.args[4])
	if err != nil {
		return err
	}
	if n > 0 {
		x.changed(notifyList, "linsert", x.args[1])
	}
	x.w.Int(n)
	return nil
}

func lrem(x *call) error {
	n, err := x.int(2)
	if err != nil {
		return err
	}
	key := x.args[1]
	there, err := x.isType(key, structs.List)
	if err != nil {
		return err
	}
	if !there {
		x.w.Int(0)
		return nil
	}
	left, most := n >= 0, n
	if !left {
		most = -max(n, -math.MaxInt64)
	}
	removed, err := x.m().LRem(key, left, most, x.args[3])
	if err != nil {
		return err
	}
	if removed > 0 {
		x.changed(notifyList, "lrem", key)
		if err := x.emptied(key); err != nil {
			return err
		}
	}
	x.w.Int(removed)
	return nil
}

func ltrim(x *call) error {
	start, stop, err := x.twoInts()
	if err != nil {
		return err
	}
	key := x.args[1]
	there, err := x.isType(key, structs.List)
	if err != nil {
		return err
	}
	if !there {
		return x.ok()
	}
	n, err := x.m().LLen(key)
	if err != nil {
		return err
	}
	from, to, empty := bounds(start, stop, n)
	if empty {
		from, to = n, n-1
	}
	if err := x.m().LTrim(key, from, n-1-to); err != nil {
		return err
	}
	x.changed(notifyList, "ltrim", key)
	if err := x.emptied(key); err != nil {
		return err
	}
	return x.ok()
}

// lposOptions are what LPOS takes.
type lposOptions struct{ rank, count, maxLen int64 }

func (o *lposOptions) read(x *call) (err error) {
	o.rank, o.count = 1, -1
	for i := 3; i < len(x.args); i += 2 {
		if i+1 == len(x.args) {
			return errSyntax
		}
		switch {
		case x.is(i, "rank"):
			if o.rank, err = x.int(i + 1); err == nil && o.rank == 0 {
				err = replyError("ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list")
			} else if o.rank == math.MinInt64 {
				err = replyError("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807")
			}
		case x.is(i, "count"):
			o.count, err = x.positive(i+1, "ERR COUNT can't be negative")
		case x.is(i, "maxlen"):
			o.maxLen, err = x.positive(i+1, "ERR MAXLEN can't be negative")
		default:
			err = errSyntax
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func lpos(x *call) error {
	var o lposOptions
	if err := o.read(x); err != nil {
		return err
	}
	n, err := x.m().LLen(x.args[1])
	if err != nil {
		return err
	}
	left := o.rank > 0
	skip := max(o.rank, -o.rank) - 1
	var found []int64
	at := int64(0)
	err = x.m().LScan(x.args[1], left, func(value []byte) bool {
		if o.maxLen > 0 && at >= o.maxLen {
			return false
		}
		if bytes.Equal(value, x.args[2]) {
			if skip--; skip < 0 {
				i := at
				if !left {
					i = n - 1 - at
				}
				found = append(found, i)
			}
		}
		at++
		return len(found) == 0 || o.count >= 0 && (o.count == 0 || int64(len(found)) < o.count)
	})
	switch {
	case err != nil:
		return err
	case o.count >= 0:
		x.w.Array(len(found))
		for _, i := range found {
			x.w.Int(i)
		}
	case len(found) == 0:
		x.w.Null()
	default:
		x.w.Int(found[0])
	}
	return nil
}
