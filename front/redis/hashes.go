package redis

import (
	"errors"

	"github.com/lattice-log/lattice/engine/structs"
)

func hashCommands() family {
	const one = "@1 0,1,0"
	return family{"hash", []command{
		{name: "hset", arity: -4, flags: "write denyoom fast", specs: "RW update " + one, since: "2.0.0", about: "write fields", do: hset(true)},
		{name: "hmset", arity: -4, flags: "write denyoom fast", specs: "RW update " + one, since: "2.0.0", about: "HSET's old name", do: hset(false)},
		{name: "hsetnx", arity: 4, flags: "write denyoom fast", specs: "RW insert " + one, since: "2.0.0", about: "write a field, unless it is there", do: hsetNX},
		{name: "hget", arity: 3, flags: "readonly fast", specs: "RO access " + one, since: "2.0.0", about: "a field", do: hget},
		{name: "hmget", arity: -3, flags: "readonly fast", specs: "RO access " + one, since: "2.0.0", about: "several fields", do: hmget},
		{name: "hdel", arity: -3, flags: "write fast", specs: "RW delete " + one, since: "2.0.0", about: "remove fields", do: hdel},
		{name: "hexists", arity: 3, flags: "readonly fast", specs: "RO " + one, since: "2.0.0", about: "whether a field is there", do: hexists},
		{name: "hlen", arity: 2, flags: "readonly fast", specs: "RO " + one, since: "2.0.0", about: "number of fields", do: hlen},
		{name: "hstrlen", arity: 3, flags: "readonly fast", specs: "RO " + one, since: "3.2.0", about: "length of a field's value", do: hstrlen},
		{name: "hkeys", arity: 2, flags: "readonly", specs: "RO access " + one, tips: "nondeterministic_output_order", since: "2.0.0", about: "all fields", do: hall(true, false)},
		{name: "hvals", arity: 2, flags: "readonly", specs: "RO access " + one, tips: "nondeterministic_output_order", since: "2.0.0", about: "all values", do: hall(false, true)},
		{name: "hgetall", arity: 2, flags: "readonly", specs: "RO access " + one, tips: "nondeterministic_output_order", since: "2.0.0", about: "all fields and values", do: hall(true, true),
			note: "In the order of fields, here and in HKEYS and HVALS."},
		{name: "hincrby", arity: 4, flags: "write denyoom fast", specs: "RW access update " + one, since: "2.0.0", about: "add an integer to a field", do: hincrBy},
		{name: "hincrbyfloat", arity: 4, flags: "write denyoom fast", specs: "RW access update " + one, since: "2.6.0", about: "add a number to a field", do: hincrByFloat},
		{name: "hrandfield", arity: -2, flags: "readonly", specs: "RO access " + one, tips: "nondeterministic_output", since: "6.2.0", about: "random fields", do: hrandfield},
		{name: "hscan", arity: -3, flags: "readonly", specs: "RO access " + one, tips: "nondeterministic_output", since: "2.8.0", about: "fields, a page at a time", do: hscan, note: "As SCAN."},
	}}
}

func hset(count bool) func(*call) error {
	return func(x *call) error {
		if len(x.args)%2 != 0 {
			return errorf("ERR wrong number of arguments for '%s' command", x.cmd.fullName())
		}
		created := int64(0)
		for i := 2; i < len(x.args); i += 2 {
			isNew, err := x.m().HSet(x.args[1], x.args[i], x.args[i+1])
			if err != nil {
				return err
			}
			if isNew {
				created++
			}
		}
		x.changed(notifyHash, "hset", x.args[1])
		if !count {
			return x.ok()
		}
		x.w.Int(created)
		return nil
	}
}

func hsetNX(x *call) error {
	_, there, err := x.m().HGet(x.args[1], x.args[2])
	if err != nil {
		return err
	}
	if !there {
		if _, err := x.m().HSet(x.args[1], x.args[2], x.args[3]); err != nil {
			return err
		}
		x.changed(notifyHash, "hset", x.args[1])
	}
	x.bool(!there)
	return nil
}

func hget(x *call) error {
	v, ok, err := x.m().HGet(x.args[1], x.args[2])
	if err != nil {
		return err
	}
	x.bulkOrNull(v.Bytes, ok)
	return nil
}

func hmget(x *call) error {
	x.w.Array(len(x.args) - 2)
	for _, f := range x.args[2:] {
		v, ok, err := x.m().HGet(x.args[1], f)
		if err != nil {
			return err
		}
		x.bulkOrNull(v.Bytes, ok)
	}
	return nil
}

func hdel(x *call) error {
	n, err := x.m().HDel(x.args[1], x.args[2:]...)
	if err != nil {
		return err
	}
	if n > 0 {
		x.changed(notifyHash, "hdel", x.args[1])
		if err := x.emptied(x.args[1]); err != nil {
			return err
		}
	}
	x.w.Int(int64(n))
	return nil
}

func hexists(x *call) error {
	_, ok, err := x.m().HGet(x.args[1], x.args[2])
	if err == nil {
		x.bool(ok)
	}
	return err
}

func hlen(x *call) error { return x.count(x.m().HLen(x.args[1])) }

func hstrlen(x *call) error {
	v, _, err := x.m().HGet(x.args[1], x.args[2])
	if err == nil {
		x.w.Int(int64(len(v.Bytes)))
	}
	return err
}

func hall(fields, values bool) func(*call) error {
	return func(x *call) error {
		n, err := x.m().HLen(x.args[1])
		if err != nil {
			return err
		}
		if fields && values {
			x.w.Map(int(n))
		} else {
			x.w.Array(int(n))
		}
		return x.m().HScan(x.args[1], nil, func(f, v []byte) bool {
			if fields {
				x.w.Bulk(f)
			}
			if values {
				x.w.Bulk(v)
			}
			return true
		})
	}
}

// hashError gives errors of a field's value Redis's words for hashes.
func hashError(err error) error {
	switch {
	case errors.Is(err, structs.ErrNotInteger):
		return replyError("ERR hash value is not an integer")
	case errors.Is(err, structs.ErrNotFloat):
		return replyError("ERR hash value is not a float")
	}
	return err
}

func hincrBy(x *call) error {
	n, err := x.int(3)
	if err != nil {
		return err
	}
	sum, err := x.m().HIncr(x.args[1], x.args[2], n)
	if err != nil {
		return hashError(err)
	}
	x.changed(notifyHash, "hincrby", x.args[1])
	x.w.Int(sum)
	return nil
}

func hincrByFloat(x *call) error {
	f, ok := structs.ParseNumber(x.args[3])
	if !ok {
		return errNotFloat
	}
	if f.IsInf() {
		return replyError("ERR value is NaN or Infinity")
	}
	sum, err := x.m().HIncrFloat(x.args[1], x.args[2], f)
	if err != nil {
		return hashError(err)
	}
	x.changed(notifyHash, "hincrbyfloat", x.args[1])
	x.w.Bulk(sum)
	return nil
}

func hrandfield(x *call) error {
	var s sample
	if err := s.read(x, "withvalues"); err != nil {
		return err
	}
	n, err := x.m().HLen(x.args[1])
	if err != nil {
		return err
	}
	picked, err := s.pick(n, func(yield func(...[]byte) bool) error {
		return x.m().HScan(x.args[1], nil, func(f, v []byte) bool { return yield(f, v) })
	})
	if err != nil {
		return err
	}
	s.reply(x.w, picked, x.w.Bulk)
	return nil
}

func hscan(x *call) error {
	return x.scanIn(structs.Hash, "listpack", func(o *scanOptions, _ bool, from []byte, p *page) error {
		return x.m().HScan(x.args[1], from, func(f, v []byte) bool { return p.take(o, f, f, v) })
	})
}
