package redis

import (
	"math"
	"slices"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

func stringCommands() family {
	const all = "request_policy:multi_shard response_policy:all_succeeded"
	return family{"string", []command{
		{name: "get", arity: 2, flags: "readonly fast", specs: "RO access @1 0,1,0", since: "1.0.0", about: "a string", do: get},
		{name: "set", arity: -3, flags: "write denyoom", specs: "RW access update variable_flags @1 0,1,0", since: "1.0.0", about: "make a key a string", do: set,
			note: "NX and XX look at what this node knows; two nodes that have not met may both succeed, and merge."},
		{name: "setnx", arity: 3, flags: "write denyoom fast", specs: "OW insert @1 0,1,0", since: "1.0.0", about: "set, unless the key is there", do: setNX},
		{name: "setex", arity: 4, flags: "write denyoom", specs: "OW update @1 0,1,0", since: "2.0.0", about: "set, to expire in seconds", do: setEX(1000)},
		{name: "psetex", arity: 4, flags: "write denyoom", specs: "OW update @1 0,1,0", since: "2.6.0", about: "set, to expire in milliseconds", do: setEX(1)},
		{name: "getset", arity: 3, flags: "write denyoom fast", specs: "RW access update @1 0,1,0", since: "1.0.0", about: "set, and return what was there", do: getSet},
		{name: "getdel", arity: 2, flags: "write fast", specs: "RW access delete @1 0,1,0", since: "6.2.0", about: "get and delete", do: getDel},
		{name: "getex", arity: -2, flags: "write fast", specs: "RW access update @1 0,1,0", since: "6.2.0", about: "get, and set or clear the expiry", do: getEX},
		{name: "mget", arity: -2, flags: "readonly fast", specs: "RO access @1 -1,1,0", tips: "request_policy:multi_shard", since: "1.0.0", about: "several strings", do: mget},
		{name: "mset", arity: -3, flags: "write denyoom", specs: "OW update @1 -1,2,0", tips: all, since: "1.0.1", about: "set several, at once", do: mset},
		{name: "msetnx", arity: -3, flags: "write denyoom", specs: "OW insert @1 -1,2,0", tips: "request_policy:multi_shard response_policy:agg_min", since: "1.0.1", about: "set several, if none of them is there", do: msetNX},
		{name: "append", arity: 3, flags: "write denyoom fast", specs: "RW insert @1 0,1,0", since: "2.0.0", about: "put bytes behind a string", do: appendTo},
		{name: "strlen", arity: 2, flags: "readonly fast", specs: "RO @1 0,1,0", since: "2.2.0", about: "length of a string", do: strlen},
		{name: "setrange", arity: 4, flags: "write denyoom", specs: "RW update @1 0,1,0", since: "2.2.0", about: "overwrite from an offset on", do: setRange},
		{name: "getrange", arity: 4, flags: "readonly", specs: "RO access @1 0,1,0", since: "2.4.0", about: "a part of a string", do: getRange},
		{name: "substr", arity: 4, flags: "readonly", specs: "RO access @1 0,1,0", since: "1.0.0", about: "GETRANGE's old name", do: getRange},
		{name: "incr", arity: 2, flags: "write denyoom fast", specs: "RW access update @1 0,1,0", since: "1.0.0", about: "add 1", do: incr(1),
			note: "Increments of nodes that have not met all count, once each."},
		{name: "decr", arity: 2, flags: "write denyoom fast", specs: "RW access update @1 0,1,0", since: "1.0.0", about: "take 1", do: incr(-1)},
		{name: "incrby", arity: 3, flags: "write denyoom fast", specs: "RW access update @1 0,1,0", since: "1.0.0", about: "add an integer", do: incrBy},
		{name: "decrby", arity: 3, flags: "write denyoom fast", specs: "RW access update @1 0,1,0", since: "1.0.0", about: "take an integer", do: decrBy},
		{name: "incrbyfloat", arity: 3, flags: "write denyoom fast", specs: "RW access update @1 0,1,0", since: "2.6.0", about: "add a number", do: incrByFloat,
			note: "With 64 bits of mantissa, as Redis on x86. Sums of nodes that have not met are values in conflict."},
		{name: "lcs", arity: -3, flags: "readonly", specs: "RO access @1 1,1,0", since: "7.0.0", about: "longest common subsequence of two strings", do: lcs},
	}}
}

// bulkOrNull replies a string, or that there is none.
func (x *call) bulkOrNull(b []byte, ok bool) {
	if ok {
		x.w.Bulk(b)
	} else {
		x.w.Null()
	}
}

func get(x *call) error {
	v, ok, err := x.m().Get(x.args[1])
	if err != nil {
		return err
	}
	x.bulkOrNull(v.Bytes, ok)
	return nil
}

// present reports whether a key is there, of any type.
func (x *call) present(key []byte) (bool, error) {
	t, err := x.m().Type(key)
	return t != structs.None, err
}

// setOptions are what SET and GETEX take behind their values.
type setOptions struct {
	nx, xx, get, keepTTL, persist bool
	expire                        []byte // the argument, nil for none
	unit                          int64  // of expire, in ms
	absolute                      bool
}

// options reads arguments from i on, of SET or of GETEX.
func (o *setOptions) read(x *call, i int, getEX bool) error {
	for ; i < len(x.args); i++ {
		when := func(unit int64, absolute bool) bool {
			if o.expire != nil || o.keepTTL || o.persist || i+1 == len(x.args) {
				return false
			}
			i++
			o.expire, o.unit, o.absolute = x.args[i], unit, absolute
			return true
		}
		ok := false
		switch word := lower(x.args[i]); {
		case word == "nx" && !getEX && !o.xx:
			o.nx, ok = true, true
		case word == "xx" && !getEX && !o.nx:
			o.xx, ok = true, true
		case word == "get" && !getEX:
			o.get, ok = true, true
		case word == "keepttl" && !getEX && o.expire == nil:
			o.keepTTL, ok = true, true
		case word == "persist" && getEX && o.expire == nil:
			o.persist, ok = true, true
		case word == "ex":
			ok = when(1000, false)
		case word == "px":
			ok = when(1, false)
		case word == "exat":
			ok = when(1000, true)
		case word == "pxat":
			ok = when(1, true)
		}
		if !ok {
			return errSyntax
		}
	}
	return nil
}

// expireAt reads an expiry that must lie behind 0, in ms since 1970.
func (x *call) expireAt(arg []byte, unit int64, absolute bool) (int64, error) {
	n, ok := resp.Int(arg)
	if !ok {
		return 0, errNotInteger
	}
	if n <= 0 || n > math.MaxInt64/unit {
		return 0, x.badExpire()
	}
	if n *= unit; !absolute {
		if n > math.MaxInt64-x.rows.Now() {
			return 0, x.badExpire()
		}
		n += x.rows.Now()
	}
	return n, nil
}

func (x *call) badExpire() error {
	return errorf("ERR invalid expire time in '%s' command", x.cmd.fullName())
}

// expire sets when a key ends; a time that has passed deletes it. It reports
// which it did.
func (x *call) expire(key []byte, at int64) (deleted bool, err error) {
	if _, err := x.m().ExpireAt(key, at); err != nil {
		return false, err
	}
	if deleted = at <= x.rows.Now(); deleted {
		x.changed(notifyGeneric, "del", key)
	} else {
		x.changed(notifyGeneric, "expire", key)
	}
	return deleted, nil
}

func set(x *call) error {
	var o setOptions
	if err := o.read(x, 3, false); err != nil {
		return err
	}
	return x.set(x.args[1], x.args[2], o, func() { x.w.Simple("OK") }, x.w.Null)
}

// set is every way to set one key. done replies that it was, not that it was not.
func (x *call) set(key, value []byte, o setOptions, done, not func()) error {
	at := int64(0)
	if o.expire != nil {
		var err error
		if at, err = x.expireAt(o.expire, o.unit, o.absolute); err != nil {
			return err
		}
	}
	if o.get {
		old, ok, err := x.m().Get(key)
		if err != nil {
			return err
		}
		old.Bytes = slices.Clone(old.Bytes) // good until the next write only
		done = func() { x.bulkOrNull(old.Bytes, ok) }
		not = done
	}
	if o.nx || o.xx {
		there, err := x.present(key)
		if err != nil {
			return err
		}
		if there == o.nx {
			not()
			return nil
		}
	}
	if err := x.m().Set(key, value, o.keepTTL); err != nil {
		return err
	}
	x.changed(notifyString, "set", key)
	if o.expire != nil {
		if _, err := x.m().ExpireAt(key, at); err != nil {
			return err
		}
		x.notify(notifyGeneric, "expire", key)
	}
	done()
	return nil
}

func setNX(x *call) error {
	return x.set(x.args[1], x.args[2], setOptions{nx: true}, func() { x.w.Int(1) }, func() { x.w.Int(0) })
}

func setEX(unit int64) func(*call) error {
	return func(x *call) error {
		return x.set(x.args[1], x.args[3], setOptions{expire: x.args[2], unit: unit}, func() { x.w.Simple("OK") }, nil)
	}
}

func getSet(x *call) error {
	return x.set(x.args[1], x.args[2], setOptions{get: true}, nil, nil)
}

func getDel(x *call) error {
	if err := get(x); err != nil {
		return err
	}
	was, err := x.m().Delete(x.args[1])
	if was {
		x.changed(notifyGeneric, "del", x.args[1])
	}
	return err
}

func getEX(x *call) error {
	var o setOptions
	if err := o.read(x, 2, true); err != nil {
		return err
	}
	key := x.args[1]
	v, ok, err := x.m().Get(key)
	if err != nil {
		return err
	}
	if !ok {
		x.w.Null()
		return nil
	}
	at := int64(0)
	if o.expire != nil {
		if at, err = x.expireAt(o.expire, o.unit, o.absolute); err != nil {
			return err
		}
	}
	x.w.Bulk(v.Bytes)
	switch {
	case o.expire != nil:
		_, err = x.expire(key, at)
	case o.persist:
		var had bool
		if had, err = x.m().Persist(key); had {
			x.changed(notifyGeneric, "persist", key)
		}
	}
	return err
}

func mget(x *call) error {
	x.w.Array(len(x.args) - 1)
	for _, key := range x.args[1:] {
		v, ok, err := x.m().Get(key)
		if err != nil {
			if msg, answer := text(err); !answer || msg != string(errWrongType) {
				return err
			}
			ok = false
		}
		x.bulkOrNull(v.Bytes, ok)
	}
	return nil
}

// pairs checks that keys come with values.
func (x *call) pairs() error {
	if len(x.args)%2 == 0 {
		return errorf("ERR wrong number of arguments for '%s' command", x.cmd.fullName())
	}
	return nil
}

func mset(x *call) error {
	if err := x.pairs(); err != nil {
		return err
	}
	for i := 1; i < len(x.args); i += 2 {
		if err := x.m().Set(x.args[i], x.args[i+1], false); err != nil {
			return err
		}
		x.changed(notifyString, "set", x.args[i])
	}
	return x.ok()
}

func msetNX(x *call) error {
	if err := x.pairs(); err != nil {
		return err
	}
	for i := 1; i < len(x.args); i += 2 {
		if there, err := x.present(x.args[i]); err != nil {
			return err
		} else if there {
			x.w.Int(0)
			return nil
		}
	}
	before := x.w.Len()
	if err := mset(x); err != nil {
		return err
	}
	x.w.Truncate(before)
	x.w.Int(1)
	return nil
}

func appendTo(x *call) error {
	n, err := x.m().Append(x.args[1], x.args[2])
	if err != nil {
		return err
	}
	x.changed(notifyString, "append", x.args[1])
	x.w.Int(int64(n))
	return nil
}

func strlen(x *call) error {
	v, _, err := x.m().Get(x.args[1])
	if err != nil {
		return err
	}
	x.w.Int(int64(len(v.Bytes)))
	return nil
}

func setRange(x *call) error {
	offset, err := x.int(2)
	if err != nil {
		return err
	}
	if offset < 0 {
		return replyError("ERR offset is out of range")
	}
	// A string lives in one entry, so it cannot be longer than what one command carries.
	if value := x.args[3]; len(value) > 0 && offset+int64(len(value)) > int64(x.srv.cfg.MaxBulkBytes) {
		if _, _, err := x.m().Get(x.args[1]); err != nil {
			return err
		}
		return structs.ErrTooLong
	}
	n, err := x.m().SetRange(x.args[1], int(offset), x.args[3])
	if err != nil {
		return err
	}
	if len(x.args[3]) > 0 {
		x.changed(notifyString, "setrange", x.args[1])
	}
	x.w.Int(int64(n))
	return nil
}

func getRange(x *call) error {
	start, err := x.int(2)
	if err != nil {
		return err
	}
	end, err := x.int(3)
	if err != nil {
		return err
	}
	v, _, err := x.m().Get(x.args[1])
	if err != nil {
		return err
	}
	n := int64(len(v.Bytes))
	backwards := start < 0 && end < 0 && start > end
	start, end = fromEnd(start, n), fromEnd(end, n)
	start, end = max(start, 0), min(max(end, 0), n-1)
	if backwards || start > end {
		x.w.BulkString("")
		return nil
	}
	x.w.Bulk(v.Bytes[start : end+1])
	return nil
}

// fromEnd turns an index that counts from the end into one from the start.
func fromEnd(i, n int64) int64 {
	if i < 0 {
		return i + n
	}
	return i
}

func incr(delta int64) func(*call) error {
	return func(x *call) error { return x.incr(delta) }
}

func (x *call) incr(delta int64) error {
	n, err := x.m().Incr(x.args[1], delta)
	if err != nil {
		return err
	}
	x.changed(notifyString, "incrby", x.args[1])
	x.w.Int(n)
	return nil
}

func incrBy(x *call) error {
	n, err := x.int(2)
	if err != nil {
		return err
	}
	return x.incr(n)
}

func decrBy(x *call) error {
	n, err := x.int(2)
	if err != nil {
		return err
	}
	if n == math.MinInt64 {
		return replyError("ERR decrement would overflow")
	}
	return x.incr(-n)
}

func incrByFloat(x *call) error {
	v, _, err := x.m().Get(x.args[1])
	if err != nil {
		return err
	}
	if v.Bytes != nil {
		if _, ok := structs.ParseNumber(v.Bytes); !ok {
			return errNotFloat
		}
	}
	f, ok := structs.ParseNumber(x.args[2])
	if !ok {
		return errNotFloat
	}
	b, err := x.m().IncrFloat(x.args[1], f)
	if err != nil {
		return err
	}
	x.changed(notifyString, "incrbyfloat", x.args[1])
	x.w.Bulk(b)
	return nil
}
