package redis

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/lattice-log/lattice/front/redis/resp"
)

// settings are what CONFIG SET changes, until the node ends.
type settings struct {
	maxClients       atomic.Int64
	idleSeconds      atomic.Int64
	notify           atomic.Uint32
	slowlogSlower    atomic.Int64 // microseconds; negative: off
	slowlogMax       atomic.Int64
	latencyThreshold atomic.Int64 // milliseconds; 0: off

	// In which forms Redis would keep values in memory, which never shows in a
	// reply but that of OBJECT ENCODING, to which they are true. Nothing here is stored in such forms.
	hashEntries, hashValue, setIntset, zsetEntries, zsetValue, listSize, listCompress atomic.Int64
}

func (s *settings) init(c Config) {
	s.maxClients.Store(int64(c.MaxClients))
	s.idleSeconds.Store(int64(c.IdleTimeout / time.Second))
	s.slowlogSlower.Store(10_000)
	s.slowlogMax.Store(128)
	s.hashEntries.Store(512)
	s.hashValue.Store(64)
	s.setIntset.Store(512)
	s.zsetEntries.Store(128)
	s.zsetValue.Store(64)
	s.listSize.Store(-2)
}

// timeout returns after how long an idle connection is closed; 0: never.
func (s *settings) timeout() time.Duration { return time.Duration(s.idleSeconds.Load()) * time.Second }

// param is one setting, as CONFIG shows it.
type param struct {
	name  string
	alias string
	get   func(*Server) string
	// set checks a value and returns how to apply it. Nil: fixed while the node runs.
	set func(s *Server, value []byte) (apply func(), err error)
}

// number is a param with a value in a range.
func number(name, alias string, low, high int64, at func(*settings) *atomic.Int64) param {
	return param{name, alias,
		func(s *Server) string { return strconv.FormatInt(at(&s.settings).Load(), 10) },
		func(s *Server, value []byte) (func(), error) {
			n, ok := resp.Int(value)
			switch {
			case !ok:
				return nil, replyError("argument couldn't be parsed into an integer")
			case n < low || n > high:
				return nil, errorf("argument must be between %d and %d inclusive", low, high)
			}
			return func() { at(&s.settings).Store(n) }, nil
		}}
}

// fixed is a param that only tells.
func fixed(name string, get func(*Server) string) param { return param{name: name, get: get} }

// always is a param that has one value here: to set that is no change, and any
// other is refused.
func always(name, value string) param {
	return param{name, "", func(*Server) string { return value },
		func(_ *Server, v []byte) (func(), error) {
			if string(v) != value {
				return nil, errorf("it is always '%s' here", value)
			}
			return func() {}, nil
		}}
}

// params are the settings that exist, sorted by name.
func params() []param {
	ps := []param{
		number("maxclients", "", 1, 1<<31-1, func(s *settings) *atomic.Int64 { return &s.maxClients }),
		number("timeout", "", 0, math.MaxInt32, func(s *settings) *atomic.Int64 { return &s.idleSeconds }),
		number("slowlog-log-slower-than", "", -1, math.MaxInt64, func(s *settings) *atomic.Int64 { return &s.slowlogSlower }),
		number("slowlog-max-len", "", 0, math.MaxInt32, func(s *settings) *atomic.Int64 { return &s.slowlogMax }),
		number("latency-monitor-threshold", "", 0, math.MaxInt64, func(s *settings) *atomic.Int64 { return &s.latencyThreshold }),
		number("hash-max-listpack-entries", "hash-max-ziplist-entries", 0, math.MaxInt64, func(s *settings) *atomic.Int64 { return &s.hashEntries }),
		number("hash-max-listpack-value", "hash-max-ziplist-value", 0, math.MaxInt64, func(s *settings) *atomic.Int64 { return &s.hashValue }),
		number("set-max-intset-entries", "", 0, math.MaxInt64, func(s *settings) *atomic.Int64 { return &s.setIntset }),
		number("zset-max-listpack-entries", "zset-max-ziplist-entries", 0, math.MaxInt64, func(s *settings) *atomic.Int64 { return &s.zsetEntries }),
		number("zset-max-listpack-value", "zset-max-ziplist-value", 0, math.MaxInt64, func(s *settings) *atomic.Int64 { return &s.zsetValue }),
		number("list-max-listpack-size", "list-max-ziplist-size", math.MinInt32, math.MaxInt32, func(s *settings) *atomic.Int64 { return &s.listSize }),
		number("list-compress-depth", "", 0, math.MaxInt32, func(s *settings) *atomic.Int64 { return &s.listCompress }),
		{name: "notify-keyspace-events",
			get: func(s *Server) string { return notifyClass(s.settings.notify.Load()).String() },
			set: func(s *Server, value []byte) (func(), error) {
				n, ok := parseNotify(string(value))
				if !ok {
					return nil, replyError("Invalid event class character. Use 'Ag$lshzxetdKE'.")
				}
				return func() { s.settings.notify.Store(uint32(n)) }, nil
			}},
		fixed("proto-max-bulk-len", func(s *Server) string { return strconv.Itoa(s.cfg.MaxBulkBytes) }),
		fixed("client-query-buffer-limit", func(s *Server) string { return strconv.Itoa(s.cfg.MaxQueryBytes) }),
		fixed("client-output-buffer-limit", func(s *Server) string {
			return fmt.Sprintf("normal %d 0 0 slave 0 0 0 pubsub %d 0 0", s.cfg.MaxReplyBytes, s.cfg.MaxPushBytes)
		}),
		fixed("appendfsync", func(s *Server) string { return appendfsync(s.cfg.About.Durability) }),
		fixed("dir", func(s *Server) string { return s.cfg.About.Data }),
		fixed("port", func(s *Server) string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return strconv.Itoa(s.port)
		}),
		always("appendonly", "yes"), always("save", ""), fixed("databases", func(*Server) string { return strconv.Itoa(Databases) }),
		always("maxmemory", "0"), always("maxmemory-policy", "noeviction"), always("requirepass", ""),
		fixed("cluster-enabled", func(*Server) string { return "no" }), always("lazyfree-lazy-user-del", "no"), always("lazyfree-lazy-user-flush", "no"),
	}
	slices.SortFunc(ps, func(a, b param) int {
		if a.name < b.name {
			return -1
		}
		return 1
	})
	return ps
}

// appendfsync is Redis's word for a level of durability.
func appendfsync(durability string) string {
	switch durability {
	case "interval":
		return "everysec"
	case "os":
		return "no"
	}
	return "always"
}

func configCommands() command {
	return command{name: "config", arity: -2, since: "2.0.0", about: "settings", sub: []command{
		{name: "get", arity: -3, flags: "admin noscript loading stale", since: "2.0.0", about: "settings whose names match patterns", do: configGet,
			note: "What exists here; `appendfsync` tells the store's durability."},
		{name: "set", arity: -4, flags: "admin noscript loading stale", tips: "request_policy:all_nodes response_policy:all_succeeded", since: "2.0.0",
			about: "change settings until the node ends", do: configSet, note: "A setting that does not exist here, or is the node's own, is refused. Those of Redis's forms in memory (`...-listpack-...`, `set-max-intset-entries`, `list-compress-depth`) are kept for OBJECT ENCODING."},
		{name: "resetstat", arity: 2, flags: "admin noscript loading stale", since: "2.0.0", about: "set counters to zero", do: configResetStat},
		helpRow(),
	}}
}

func configGet(x *call) error {
	type pair struct{ name, value string }
	var found []pair
	for _, p := range params() {
		for _, name := range []string{p.name, p.alias} {
			if name != "" && slices.ContainsFunc(x.args[2:], func(a []byte) bool { return globMatch(a, []byte(name), true) }) {
				found = append(found, pair{name, p.get(x.srv)})
			}
		}
	}
	x.w.Map(len(found))
	for _, f := range found {
		x.w.BulkString(f.name)
		x.w.BulkString(f.value)
	}
	return nil
}

// configSet changes all of what it is given, or nothing.
func configSet(x *call) error {
	if len(x.args)%2 != 0 {
		return errorf("ERR wrong number of arguments for '%s' command", x.cmd.fullName())
	}
	all := params()
	var apply []func()
	seen := map[string]bool{}
	for i := 2; i < len(x.args); i += 2 {
		name := lower(x.args[i])
		at := slices.IndexFunc(all, func(p param) bool { return p.name == name || p.alias == name && name != "" })
		if at < 0 {
			return errorf("ERR Unknown option or number of arguments for CONFIG SET - '%s'", x.args[i])
		}
		fail := func(why string) error {
			return errorf("ERR CONFIG SET failed (possibly related to argument '%s') - %s", name, why)
		}
		switch p := all[at]; {
		case seen[p.name]:
			return fail("duplicate parameter")
		case p.set == nil:
			return fail("can't set immutable config")
		default:
			seen[p.name] = true
			f, err := p.set(x.srv, x.args[i+1])
			if err != nil {
				return fail(err.Error())
			}
			apply = append(apply, f)
		}
	}
	for _, f := range apply {
		f()
	}
	return x.ok()
}

func configResetStat(x *call) error {
	s := &x.srv.stats
	for _, n := range []interface{ Store(int64) }{
		&s.connections, &s.rejected, &s.commands, &s.bytesIn, &s.bytesOut, &s.reads, &s.writes, &s.errors, &s.expired,
		&s.outputLimit, &s.queryLimit,
	} {
		n.Store(0)
	}
	s.mu.Lock()
	s.byCode = nil
	s.mu.Unlock()
	for _, c := range x.srv.table.rows {
		c.resetStats()
	}
	return x.ok()
}

func (c *command) resetStats() {
	c.stats.calls.Store(0)
	c.stats.micros.Store(0)
	c.stats.rejected.Store(0)
	c.stats.failed.Store(0)
	for i := range c.sub {
		c.sub[i].resetStats()
	}
}
