package redis

import (
	"bytes"
	"slices"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

func setCommands() family {
	const one, many = "@1 0,1,0", "@1 -1,1,0"
	const store = "; RO access @2 -1,1,0"
	const tips = "nondeterministic_output_order"
	return family{"set", []command{
		{name: "sadd", arity: -3, flags: "write denyoom fast", specs: "RW insert " + one, since: "1.0.0", about: "add members", do: sadd,
			note: "An add survives a remove that had not seen it."},
		{name: "srem", arity: -3, flags: "write fast", specs: "RW delete " + one, since: "1.0.0", about: "remove members", do: srem},
		{name: "smove", arity: 4, flags: "write fast", specs: "RW access delete @1 0,1,0; RW insert @2 0,1,0", since: "1.0.0", about: "move a member to another set", do: smove},
		{name: "sismember", arity: 3, flags: "readonly fast", specs: "RO " + one, since: "1.0.0", about: "whether a member is there", do: sismember},
		{name: "smismember", arity: -3, flags: "readonly fast", specs: "RO access " + one, since: "6.2.0", about: "which members are there", do: smismember},
		{name: "scard", arity: 2, flags: "readonly fast", specs: "RO " + one, since: "1.0.0", about: "number of members", do: scard},
		{name: "smembers", arity: 2, flags: "readonly", specs: "RO access " + one, tips: tips, since: "1.0.0", about: "all members", do: smembers, note: "In the order of members."},
		{name: "srandmember", arity: -2, flags: "readonly", specs: "RO access " + one, tips: "nondeterministic_output", since: "1.0.0", about: "random members", do: srandmember},
		{name: "spop", arity: -2, flags: "write fast", specs: "RW access delete " + one, tips: "nondeterministic_output", since: "1.0.0", about: "take random members", do: spop},
		{name: "sinter", arity: -2, flags: "readonly", specs: "RO access " + many, tips: tips, since: "1.0.0", about: "what is in all sets", do: combine(inter)},
		{name: "sunion", arity: -2, flags: "readonly", specs: "RO access " + many, tips: tips, since: "1.0.0", about: "what is in any set", do: combine(union)},
		{name: "sdiff", arity: -2, flags: "readonly", specs: "RO access " + many, tips: tips, since: "1.0.0", about: "what is in the first set and in no other", do: combine(diff)},
		{name: "sinterstore", arity: -3, flags: "write denyoom", specs: "RW update " + one + store, since: "1.0.0", about: "store what is in all sets", do: combineStore(inter, "sinterstore")},
		{name: "sunionstore", arity: -3, flags: "write denyoom", specs: "OW update " + one + store, since: "1.0.0", about: "store what is in any set", do: combineStore(union, "sunionstore")},
		{name: "sdiffstore", arity: -3, flags: "write denyoom", specs: "OW update " + one + store, since: "1.0.0", about: "store what is in the first set and in no other", do: combineStore(diff, "sdiffstore")},
		{name: "sintercard", arity: -3, flags: "readonly movablekeys", specs: "RO access @1 n0,1,1", since: "7.0.0", about: "how many are in all sets", do: sinterCard},
		{name: "sscan", arity: -3, flags: "readonly", specs: "RO access " + one, tips: "nondeterministic_output", since: "2.8.0", about: "members, a page at a time", do: sscan, note: "As SCAN."},
	}}
}

func sadd(x *call) error {
	n, err := x.m().SAdd(x.args[1], x.args[2:]...)
	if err != nil {
		return err
	}
	if n > 0 {
		x.changed(notifySet, "sadd", x.args[1])
	}
	x.w.Int(int64(n))
	return nil
}

func srem(x *call) error {
	n, err := x.m().SRem(x.args[1], x.args[2:]...)
	if err != nil {
		return err
	}
	if n > 0 {
		x.changed(notifySet, "srem", x.args[1])
		if err := x.emptied(x.args[1]); err != nil {
			return err
		}
	}
	x.w.Int(int64(n))
	return nil
}

func smove(x *call) error {
	from, to, member := x.args[1], x.args[2], x.args[3]
	there, err := x.isType(from, structs.Set)
	if err != nil {
		return err
	}
	if !there {
		x.w.Int(0)
		return nil
	}
	if _, err := x.isType(to, structs.Set); err != nil {
		return err
	}
	has, err := x.m().SHas(from, member)
	if err != nil {
		return err
	}
	if !has || bytes.Equal(from, to) {
		x.bool(has)
		return nil
	}
	if _, err := x.m().SRem(from, member); err != nil {
		return err
	}
	x.changed(notifySet, "srem", from)
	if err := x.emptied(from); err != nil {
		return err
	}
	n, err := x.m().SAdd(to, member)
	if err != nil {
		return err
	}
	if n > 0 {
		x.changed(notifySet, "sadd", to)
	}
	x.w.Int(1)
	return nil
}

func sismember(x *call) error {
	has, err := x.m().SHas(x.args[1], x.args[2])
	if err == nil {
		x.bool(has)
	}
	return err
}

func smismember(x *call) error {
	x.w.Array(len(x.args) - 2)
	for _, m := range x.args[2:] {
		has, err := x.m().SHas(x.args[1], m)
		if err != nil {
			return err
		}
		x.bool(has)
	}
	return nil
}

func scard(x *call) error { return x.count(x.m().SLen(x.args[1])) }

// set replies a set of strings.
func (x *call) replySet(all [][]byte) {
	x.w.Set(len(all))
	for _, b := range all {
		x.w.Bulk(b)
	}
}

func smembers(x *call) error {
	all, err := x.m().SMembers(x.args[1])
	if err == nil {
		x.replySet(all)
	}
	return err
}

// pickMembers chooses members of a set.
func (x *call) pickMembers(s *sample) ([][][]byte, error) {
	key := x.args[1]
	n, err := x.m().SLen(key)
	if err != nil {
		return nil, err
	}
	return s.pick(n, func(yield func(...[]byte) bool) error {
		return x.m().SScan(key, nil, func(b []byte) bool { return yield(b) })
	})
}

func srandmember(x *call) error {
	var s sample
	if err := s.read(x, ""); err != nil {
		return err
	}
	picked, err := x.pickMembers(&s)
	if err != nil {
		return err
	}
	s.reply(x.w, picked, nil)
	return nil
}

func spop(x *call) error {
	s := sample{one: len(x.args) == 2, count: 1, distinct: true}
	switch len(x.args) {
	case 2:
	case 3:
		var err error
		if s.count, err = x.positive(2, errNotPositive); err != nil {
			return err
		}
	default:
		return errSyntax
	}
	picked, err := x.pickMembers(&s)
	if err != nil {
		return err
	}
	members := make([][]byte, len(picked))
	for i, p := range picked {
		members[i] = slices.Clone(p[0])
	}
	if len(members) > 0 {
		if _, err := x.m().SRem(x.args[1], members...); err != nil {
			return err
		}
		x.changed(notifySet, "spop", x.args[1])
		if err := x.emptied(x.args[1]); err != nil {
			return err
		}
	}
	switch {
	case !s.one:
		x.replySet(members)
	case len(members) == 0:
		x.w.Null()
	default:
		x.w.Bulk(members[0])
	}
	return nil
}

// combination makes one set of several; nil stands for a key that is not there.
// most, unless 0, is enough.
type combination func(x *call, keys [][]byte, most int64) ([][]byte, error)

// checkSets is an error when a key is not a set, and says which are there.
func (x *call) checkSets(keys [][]byte) (there []bool, err error) {
	there = make([]bool, len(keys))
	for i, k := range keys {
		if there[i], err = x.isType(k, structs.Set); err != nil {
			return nil, err
		}
	}
	return there, nil
}

func inter(x *call, keys [][]byte, most int64) (out [][]byte, err error) {
	there, err := x.checkSets(keys)
	if err != nil || slices.Contains(there, false) {
		return nil, err
	}
	least := slices.Clone(keys) // smallest first
	size := map[string]int64{}
	for _, k := range keys {
		if size[string(k)], err = x.m().SLen(k); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(least, func(a, b []byte) int { return int(min(max(size[string(a)]-size[string(b)], -1), 1)) })
	var failed error
	err = x.m().SScan(least[0], nil, func(member []byte) bool {
		for _, k := range least[1:] {
			var has bool
			if has, failed = x.m().SHas(k, member); failed != nil {
				return false
			}
			if !has {
				return true
			}
		}
		out = append(out, slices.Clone(member))
		return most == 0 || int64(len(out)) < most
	})
	if failed != nil {
		err = failed
	}
	return out, err
}

func union(x *call, keys [][]byte, _ int64) (out [][]byte, err error) {
	if _, err := x.checkSets(keys); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, k := range keys {
		err := x.m().SScan(k, nil, func(member []byte) bool {
			if !seen[string(member)] {
				seen[string(member)] = true
				out = append(out, slices.Clone(member))
			}
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func diff(x *call, keys [][]byte, _ int64) (out [][]byte, err error) {
	there, err := x.checkSets(keys)
	if err != nil || !there[0] {
		return nil, err
	}
	var failed error
	err = x.m().SScan(keys[0], nil, func(member []byte) bool {
		for _, k := range keys[1:] {
			var has bool
			if has, failed = x.m().SHas(k, member); failed != nil {
				return false
			}
			if has {
				return true
			}
		}
		out = append(out, slices.Clone(member))
		return true
	})
	if failed != nil {
		err = failed
	}
	return out, err
}

func combine(c combination) func(*call) error {
	return func(x *call) error {
		out, err := c(x, x.args[1:], 0)
		if err == nil {
			x.replySet(out)
		}
		return err
	}
}

func combineStore(c combination, event string) func(*call) error {
	return func(x *call) error {
		out, err := c(x, x.args[2:], 0)
		if err != nil {
			return err
		}
		return x.store(notifySet, event, x.args[1], int64(len(out)), func(m *structs.Map, key []byte) error {
			_, err := m.SAdd(key, out...)
			return err
		})
	}
}

// store replaces a key by a result of n elements, which fill writes, or deletes
// it when there are none, and replies n.
func (x *call) store(class notifyClass, event string, key []byte, n int64, fill func(*structs.Map, []byte) error) error {
	was, err := x.m().Delete(key)
	if err != nil {
		return err
	}
	switch {
	case n > 0:
		if err := fill(x.m(), key); err != nil {
			return err
		}
		x.changed(class, event, key)
	case was:
		x.changed(notifyGeneric, "del", key)
	}
	x.w.Int(n)
	return nil
}

func sinterCard(x *call) error {
	n, ok := resp.Int(x.args[1])
	if !ok || n < 1 {
		return replyError("ERR numkeys should be greater than 0")
	}
	if n > int64(len(x.args)-2) {
		return replyError("ERR Number of keys can't be greater than number of args")
	}
	most := int64(0)
	for i := 2 + int(n); i < len(x.args); i += 2 {
		if !x.is(i, "limit") || i+1 == len(x.args) {
			return errSyntax
		}
		var err error
		if most, err = x.positive(i+1, "ERR LIMIT can't be negative"); err != nil {
			return err
		}
	}
	out, err := inter(x, x.args[2:2+n], most)
	if err == nil {
		x.w.Int(int64(len(out)))
	}
	return err
}

func sscan(x *call) error {
	return x.scanIn(structs.Set, "intset", func(o *scanOptions, _ bool, from []byte, p *page) error {
		return x.m().SScan(x.args[1], from, func(b []byte) bool { return p.take(o, b, b) })
	})
}
