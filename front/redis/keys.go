package redis

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

func keyCommands() family {
	const sum = "request_policy:multi_shard response_policy:agg_sum"
	return family{"generic", []command{
		{name: "del", arity: -2, flags: "write", acl: "keyspace", specs: "RM delete @1 -1,1,0", tips: sum, since: "1.0.0", about: "delete keys", do: del,
			note: "Ends what this node has seen; a write that had not seen the delete survives it."},
		{name: "unlink", arity: -2, flags: "write fast", acl: "keyspace", specs: "RM delete @1 -1,1,0", tips: sum, since: "4.0.0", about: "delete keys", do: del},
		{name: "exists", arity: -2, flags: "readonly fast", acl: "keyspace", specs: "RO @1 -1,1,0", tips: sum, since: "1.0.0", about: "how many of the keys are there", do: exists},
		{name: "touch", arity: -2, flags: "readonly fast", acl: "keyspace", specs: "RO @1 -1,1,0", tips: sum, since: "3.2.1", about: "how many of the keys are there", do: exists,
			note: "There are no access times to change."},
		{name: "type", arity: 2, flags: "readonly fast", acl: "keyspace", specs: "RO @1 0,1,0", since: "1.0.0", about: "the type of a key", do: typeOf},
		{name: "expire", arity: -3, flags: "write fast", acl: "keyspace", specs: "RW update @1 0,1,0", since: "1.0.0", about: "let a key end in seconds", do: expireIn(1000, false)},
		{name: "pexpire", arity: -3, flags: "write fast", acl: "keyspace", specs: "RW update @1 0,1,0", since: "2.6.0", about: "let a key end in milliseconds", do: expireIn(1, false)},
		{name: "expireat", arity: -3, flags: "write fast", acl: "keyspace", specs: "RW update @1 0,1,0", since: "1.2.0", about: "let a key end at a second", do: expireIn(1000, true)},
		{name: "pexpireat", arity: -3, flags: "write fast", acl: "keyspace", specs: "RW update @1 0,1,0", since: "2.6.0", about: "let a key end at a millisecond", do: expireIn(1, true)},
		{name: "persist", arity: 2, flags: "write fast", acl: "keyspace", specs: "RW update @1 0,1,0", since: "2.2.0", about: "take a key's expiry away", do: persist},
		{name: "ttl", arity: 2, flags: "readonly fast", acl: "keyspace", specs: "RO access @1 0,1,0", tips: "nondeterministic_output", since: "1.0.0", about: "seconds that a key has left", do: ttl(1000, false)},
		{name: "pttl", arity: 2, flags: "readonly fast", acl: "keyspace", specs: "RO access @1 0,1,0", tips: "nondeterministic_output", since: "2.6.0", about: "milliseconds that a key has left", do: ttl(1, false)},
		{name: "expiretime", arity: 2, flags: "readonly fast", acl: "keyspace", specs: "RO access @1 0,1,0", since: "7.0.0", about: "when a key ends, in seconds", do: ttl(1000, true)},
		{name: "pexpiretime", arity: 2, flags: "readonly fast", acl: "keyspace", specs: "RO access @1 0,1,0", since: "7.0.0", about: "when a key ends, in milliseconds", do: ttl(1, true)},
		{name: "rename", arity: 3, flags: "write", acl: "keyspace", specs: "RW access delete @1 0,1,0; OW update @2 0,1,0", since: "1.0.0", about: "give a value another key", do: rename(false)},
		{name: "renamenx", arity: 3, flags: "write fast", acl: "keyspace", specs: "RW access delete @1 0,1,0; OW insert @2 0,1,0", since: "1.0.0", about: "rename, unless the other key is there", do: rename(true)},
		{name: "copy", arity: -3, flags: "write denyoom", acl: "keyspace", specs: "RO access @1 0,1,0; OW update @2 0,1,0", since: "6.2.0", about: "copy a value", do: copyKey},
		{name: "move", arity: 3, flags: "write fast", acl: "keyspace", specs: "RW access update @1 0,1,0", since: "1.0.0", about: "give a key to another database", do: move},
		{name: "keys", arity: 2, flags: "readonly", acl: "keyspace dangerous", tips: "request_policy:all_shards nondeterministic_output_order", since: "1.0.0", about: "keys that match a pattern", do: keys},
		{name: "scan", arity: -2, flags: "readonly", acl: "keyspace", tips: "nondeterministic_output request_policy:special", since: "2.8.0", about: "keys, a page at a time", do: scan,
			note: "In the order of keys. A cursor is known to the node that gave it, as long as it runs; of very many the oldest are forgotten, and refused by name."},
		{name: "randomkey", arity: 1, flags: "readonly", acl: "keyspace", tips: "request_policy:all_shards nondeterministic_output", since: "1.0.0", about: "any key", do: randomKey,
			note: "Of more than 10,000 keys, the one behind a random place: keys that follow a gap come more often."},
		objectCommands(),
		{name: "dump", arity: 2, flags: "readonly", acl: "keyspace", specs: "RO access @1 0,1,0", tips: "nondeterministic_output", since: "2.6.0", about: "refused",
			do: refused("DUMP is not served: there is no RDB form of a value here; COPY copies, and \"lattice kv export\" exports"), note: "Refused by name."},
		{name: "restore", arity: -4, flags: "write denyoom", acl: "keyspace dangerous", specs: "OW update @1 0,1,0", since: "2.6.0", about: "refused",
			do: refused("RESTORE is not served: there is no RDB form of a value here; \"lattice kv import\" imports"), note: "Refused by name."},
	}}
}

func del(x *call) error {
	n := int64(0)
	for _, key := range x.args[1:] {
		was, err := x.m().Delete(key)
		if err != nil {
			return err
		}
		if was {
			n++
			x.changed(notifyGeneric, "del", key)
		}
	}
	x.w.Int(n)
	return nil
}

func exists(x *call) error {
	n := int64(0)
	for _, key := range x.args[1:] {
		there, err := x.present(key)
		if err != nil {
			return err
		}
		if there {
			n++
		}
	}
	x.w.Int(n)
	return nil
}

func typeOf(x *call) error {
	t, err := x.m().Type(x.args[1])
	if err != nil {
		return err
	}
	x.w.Simple(t.String())
	return nil
}

// expireFlags are the conditions of EXPIRE.
type expireFlags struct{ nx, xx, gt, lt bool }

func (f *expireFlags) read(x *call) error {
	for _, a := range x.args[3:] {
		switch lower(a) {
		case "nx":
			f.nx = true
		case "xx":
			f.xx = true
		case "gt":
			f.gt = true
		case "lt":
			f.lt = true
		default:
			return errorf("ERR Unsupported option %s", a)
		}
	}
	switch {
	case f.nx && (f.xx || f.gt || f.lt):
		return replyError("ERR NX and XX, GT or LT options at the same time are not compatible")
	case f.gt && f.lt:
		return replyError("ERR GT and LT options at the same time are not compatible")
	}
	return nil
}

// hold reports whether a key that ends at is, 0 for never, may end at at.
func (f expireFlags) hold(is, at int64) bool {
	switch {
	case f.nx && is != 0, f.xx && is == 0:
		return false
	case f.gt && (is == 0 || at <= is):
		return false
	case f.lt && is != 0 && at >= is:
		return false
	}
	return true
}

func expireIn(unit int64, absolute bool) func(*call) error {
	return func(x *call) error {
		var f expireFlags
		if err := f.read(x); err != nil {
			return err
		}
		at, err := x.int(2)
		if err != nil {
			return err
		}
		base := int64(0)
		if !absolute {
			base = x.rows.Now()
		}
		if at > math.MaxInt64/unit || at < math.MinInt64/unit || at*unit > math.MaxInt64-base {
			return x.badExpire()
		}
		at = at*unit + base
		key := x.args[1]
		is, there, err := x.m().ExpiresAt(key)
		if err != nil {
			return err
		}
		if !there || !f.hold(is, at) {
			x.w.Int(0)
			return nil
		}
		if _, err := x.expire(key, at); err != nil {
			return err
		}
		x.w.Int(1)
		return nil
	}
}

func persist(x *call) error {
	had, err := x.m().Persist(x.args[1])
	if err != nil {
		return err
	}
	if had {
		x.changed(notifyGeneric, "persist", x.args[1])
	}
	x.bool(had)
	return nil
}

// bool replies 1 or 0.
func (x *call) bool(v bool) {
	if v {
		x.w.Int(1)
	} else {
		x.w.Int(0)
	}
}

func ttl(unit int64, absolute bool) func(*call) error {
	return func(x *call) error {
		at, there, err := x.m().ExpiresAt(x.args[1])
		switch {
		case err != nil:
			return err
		case !there:
			x.w.Int(-2)
		case at == 0:
			x.w.Int(-1)
		case absolute && unit == 1:
			x.w.Int(at)
		case absolute:
			x.w.Int(seconds(at))
		case unit == 1:
			x.w.Int(max(0, at-x.rows.Now()))
		default:
			x.w.Int(seconds(max(0, at-x.rows.Now())))
		}
		return nil
	}
}

// seconds rounds milliseconds, which are not negative.
func seconds(ms int64) int64 { return int64((uint64(ms) + 500) / 1000) }

func rename(nx bool) func(*call) error {
	return func(x *call) error {
		from, to := x.args[1], x.args[2]
		there, err := x.present(from)
		if err != nil {
			return err
		}
		if !there {
			return errNoKey
		}
		same := bytes.Equal(from, to)
		if nx {
			taken := same
			if !same {
				if taken, err = x.present(to); err != nil {
					return err
				}
			}
			if taken {
				x.w.Int(0)
				return nil
			}
		}
		if !same {
			if err := x.m().Rename(from, to); err != nil {
				return err
			}
			x.touch(from)
			x.touch(to)
			x.notify(notifyGeneric, "rename_from", from)
			x.notify(notifyGeneric, "rename_to", to)
		}
		if nx {
			x.w.Int(1)
			return nil
		}
		return x.ok()
	}
}

// otherDB reads the number of a database that a key goes to.
func (x *call) otherDB(i int) (int, error) {
	n, ok := resp.Int(x.args[i])
	switch {
	case !ok || n < math.MinInt32 || n > math.MaxInt32:
		return 0, errNotInteger
	case n < 0 || n >= Databases:
		return 0, errDBIndex
	}
	return int(n), nil
}

func copyKey(x *call) error {
	db, replace := x.db, false
	var err error
	for i := 3; i < len(x.args); i++ {
		switch {
		case x.is(i, "replace"):
			replace = true
		case x.is(i, "db") && i+1 < len(x.args):
			i++
			if db, err = x.otherDB(i); err != nil {
				return err
			}
		default:
			return errSyntax
		}
	}
	from, to := x.args[1], x.args[2]
	if db == x.db && bytes.Equal(from, to) {
		return errSameObject
	}
	there, err := x.present(from)
	if err != nil {
		return err
	}
	taken, err := x.in(db).Type(to)
	if err != nil {
		return err
	}
	if !there || taken != structs.None && !replace {
		x.w.Int(0)
		return nil
	}
	if _, err := x.m().CopyTo(x.in(db), from, to); err != nil {
		return err
	}
	x.touchIn(db, to)
	x.notifyIn(db, notifyGeneric, "copy_to", to)
	x.w.Int(1)
	return nil
}

func move(x *call) error {
	key := x.args[1]
	db, err := x.otherDB(2)
	if err != nil {
		return err
	}
	if db == x.db {
		return errSameObject
	}
	there, err := x.present(key)
	if err != nil {
		return err
	}
	taken, err := x.in(db).Type(key)
	if err != nil {
		return err
	}
	if !there || taken != structs.None {
		x.w.Int(0)
		return nil
	}
	if _, err := x.m().CopyTo(x.in(db), key, key); err != nil {
		return err
	}
	if _, err := x.m().Delete(key); err != nil {
		return err
	}
	x.touch(key)
	x.touchIn(db, key)
	x.notify(notifyGeneric, "move_from", key)
	x.notifyIn(db, notifyGeneric, "move_to", key)
	x.w.Int(1)
	return nil
}

func keys(x *call) error {
	var found [][]byte
	size := 0
	err := x.m().Keys(nil, func(key []byte, _ structs.Type) bool {
		if globMatch(x.args[1], key, false) {
			found = append(found, slices.Clone(key))
			size += len(key) + 8
		}
		return size <= x.srv.cfg.MaxReplyBytes
	})
	if err != nil {
		return err
	}
	x.w.Array(len(found))
	for _, k := range found {
		x.w.Bulk(k)
	}
	return nil
}

// exactRandom is up to how many keys RANDOMKEY counts through.
const exactRandom = 10_000

// randomKey returns a key at a random rank, or, of many, the first one behind a
// random place.
func randomKey(x *call) error {
	n, err := x.m().Len()
	if err != nil {
		return err
	}
	var found []byte
	if n <= exactRandom {
		// A key at a random rank among those that are there; one pass knows how many.
		seen := int64(0)
		err = x.m().Keys(nil, func(key []byte, _ structs.Type) bool {
			if seen++; rand.Int64N(seen) == 0 {
				found = append(found[:0], key...)
			}
			return true
		})
		if err != nil {
			return err
		}
		x.bulkOrNull(found, seen > 0)
		return nil
	}
	first, err := x.firstKey(nil)
	if err != nil {
		return err
	}
	place := slices.Clone(first)
	for i := range place {
		place[i] = byte(rand.IntN(256))
		if rand.IntN(2) == 0 {
			break
		}
	}
	if found, err = x.firstKey(place); err != nil {
		return err
	}
	if found == nil {
		found = first
	}
	x.bulkOrNull(found, found != nil)
	return nil
}

func (x *call) firstKey(from []byte) (found []byte, err error) {
	err = x.m().Keys(from, func(key []byte, _ structs.Type) bool {
		found = slices.Clone(key)
		return false
	})
	return found, err
}

// refused is the handler of a command that is known, and not served for a
// reason that one should hear.
func refused(why string) func(*call) error {
	return func(*call) error { return replyError("ERR " + why) }
}
