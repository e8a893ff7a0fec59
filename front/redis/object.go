package redis

import (
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

func objectCommands() command {
	const tips = "nondeterministic_output"
	return command{name: "object", arity: -2, since: "2.2.3", about: "how a key is stored", sub: []command{
		{name: "encoding", arity: 3, flags: "readonly", acl: "keyspace", specs: "RO @2 0,1,0", tips: tips, since: "2.2.3", about: "what Redis would store a value of this size as", do: objectEncoding,
			note: "By type and size, as Redis would choose for a value written at once; nothing is stored so here."},
		{name: "refcount", arity: 3, flags: "readonly", acl: "keyspace", specs: "RO @2 0,1,0", tips: tips, since: "2.2.3", about: "1", do: objectRefcount},
		{name: "freq", arity: 3, flags: "readonly", acl: "keyspace", specs: "RO @2 0,1,0", tips: tips, since: "4.0.0", about: "refused, as in Redis without an LFU policy", do: objectFreq},
		helpRow(),
	}}
}

// objectType returns the type of the key, and replies that there is none.
func (x *call) objectType() (structs.Type, error) {
	t, err := x.m().Type(x.args[2])
	if err == nil && t == structs.None {
		x.w.Null()
	}
	return t, err
}

func objectRefcount(x *call) error {
	t, err := x.objectType()
	if err == nil && t != structs.None {
		x.w.Int(1)
	}
	return err
}

func objectFreq(x *call) error {
	t, err := x.objectType()
	if err != nil || t == structs.None {
		return err
	}
	return replyError("ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.")
}

func objectEncoding(x *call) error {
	t, err := x.objectType()
	if err != nil || t == structs.None {
		return err
	}
	name, err := x.encoding(x.args[2], t)
	if err != nil {
		return err
	}
	x.w.BulkString(name)
	return nil
}

// embstrBytes is the longest string that Redis stores beside its header.
const embstrBytes = 44

// encoding names the form in which Redis would store a value.
func (x *call) encoding(key []byte, t structs.Type) (string, error) {
	m, s := x.m(), &x.srv.settings
	switch t {
	case structs.String:
		v, _, err := m.Get(key)
		if err != nil {
			return "", err
		}
		if _, isInt := resp.Int(v.Bytes); isInt && len(v.Bytes) <= 20 {
			return "int", nil
		}
		if len(v.Bytes) <= embstrBytes {
			return "embstr", nil
		}
		return "raw", nil
	case structs.Hash:
		return x.small("listpack", "hashtable", s.hashEntries.Load(), func(keep func(...[]byte) bool) error {
			return m.HScan(key, nil, func(f, v []byte) bool { return keep(f, v) })
		}, func(b []byte) bool { return int64(len(b)) <= s.hashValue.Load() })
	case structs.Set:
		return x.small("intset", "hashtable", s.setIntset.Load(), func(keep func(...[]byte) bool) error {
			return m.SScan(key, nil, func(b []byte) bool { return keep(b) })
		}, func(b []byte) bool { _, ok := resp.Int(b); return ok })
	case structs.SortedSet:
		return x.small("listpack", "skiplist", s.zsetEntries.Load(), func(keep func(...[]byte) bool) error {
			return m.ZLexScan(key, nil, false, func(b []byte) bool { return keep(b) })
		}, func(b []byte) bool { return int64(len(b)) <= s.zsetValue.Load() })
	}
	return "quicklist", nil
}

// small decides between two forms: little, when there are at most most entries
// and each is fitting.
func (x *call) small(little, large string, most int64, scan func(keep func(...[]byte) bool) error, fits func([]byte) bool) (string, error) {
	n, ok := int64(0), true
	err := scan(func(parts ...[]byte) bool {
		n++
		for _, p := range parts {
			ok = ok && fits(p)
		}
		ok = ok && n <= most
		return ok
	})
	if ok {
		return little, err
	}
	return large, err
}

// memoryUsage counts the bytes of a key's rows as they are encoded.
func memoryUsage(x *call) error {
	for i := 3; i < len(x.args); i++ {
		if !x.is(i, "samples") || i+1 == len(x.args) {
			return errSyntax
		}
		i++
		if n, err := x.int(i); err != nil {
			return err
		} else if n < 0 {
			return errSyntax
		}
	}
	key := x.args[2]
	t, err := x.m().Type(key)
	if err != nil {
		return err
	}
	if t == structs.None {
		x.w.Null()
		return nil
	}
	total := int64(len(key))
	for k := state.Kind(1); k < state.Kinds; k++ {
		err := x.rows.Scan(x.m().Name(), key, k, nil, false, func(sub []byte, r state.Row) bool {
			total += int64(len(sub) + len(r.AppendTo(nil)))
			return true
		})
		if err != nil {
			return err
		}
	}
	x.w.Int(total)
	return nil
}
