package redis

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	runtimemetrics "runtime/metrics"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func infoCommand() command {
	return command{name: "info", arity: -1, flags: "loading stale", acl: "dangerous", tips: "nondeterministic_output request_policy:all_shards response_policy:special",
		since: "1.0.0", about: "the server's figures", set: readonly, do: info,
		note: "Fields that are true here; a section `lattice` names the node, the store and its durability."}
}

// section is one part of INFO.
type section struct {
	name  string
	usual bool // shown when nothing is asked for
	write func(x *call, b *fields) error
}

// fields builds a section.
type fields struct{ strings.Builder }

func (f *fields) add(name string, value any) { fmt.Fprintf(f, "%s:%v\r\n", name, value) }

func sections() []section {
	return []section{
		{"server", true, infoServer},
		{"clients", true, infoClients},
		{"memory", true, infoMemory},
		{"persistence", true, infoPersistence},
		{"stats", true, infoStats},
		{"replication", true, infoReplication},
		{"cpu", true, infoCPU},
		{"modules", true, func(*call, *fields) error { return nil }},
		{"commandstats", false, infoCommandStats},
		{"errorstats", true, infoErrorStats},
		{"cluster", true, func(_ *call, f *fields) error { f.add("cluster_enabled", 0); return nil }},
		{"keyspace", true, infoKeyspace},
		{"lattice", true, infoLattice},
	}
}

func info(x *call) error {
	asked := map[string]bool{}
	for _, a := range x.args[1:] {
		asked[lower(a)] = true
	}
	all := asked["all"] || asked["everything"]
	unasked := len(asked) == 0 || asked["default"]
	var out strings.Builder
	for _, s := range sections() {
		if !all && !asked[s.name] && !(unasked && s.usual) {
			continue
		}
		var f fields
		if err := s.write(x, &f); err != nil {
			return err
		}
		if out.Len() > 0 {
			out.WriteString("\r\n")
		}
		title := strings.ToUpper(s.name[:1]) + s.name[1:]
		if s.name == "cpu" {
			title = "CPU"
		}
		out.WriteString("# " + title + "\r\n" + f.String())
	}
	x.w.Verbatim("txt", out.String())
	return nil
}

func infoServer(x *call, f *fields) error {
	s := x.srv
	up := int64(s.cfg.Clock.Now().Sub(s.started).Seconds())
	f.add("redis_version", Version)
	f.add("redis_mode", "standalone")
	f.add("os", runtime.GOOS+" "+runtime.GOARCH)
	f.add("arch_bits", 32<<(^uint(0)>>63))
	f.add("process_id", os.Getpid())
	f.add("run_id", s.runID)
	s.mu.Lock()
	port := s.port
	s.mu.Unlock()
	f.add("tcp_port", port)
	f.add("server_time_usec", x.now.UnixMicro())
	f.add("uptime_in_seconds", up)
	f.add("uptime_in_days", up/86400)
	return nil
}

func infoClients(x *call, f *fields) error {
	var in, out int64
	cs := x.srv.clients()
	for _, c := range cs {
		in, out = max(in, c.inBytes.Load()), max(out, c.outBytes.Load())
	}
	f.add("connected_clients", len(cs))
	f.add("cluster_connections", 0)
	f.add("maxclients", x.srv.settings.maxClients.Load())
	f.add("client_recent_max_input_buffer", in)
	f.add("client_recent_max_output_buffer", out)
	f.add("blocked_clients", x.srv.blocked.any.Load()+x.srv.pause.waiting.Load()) // as Redis counts
	f.add("tracking_clients", 0)
	return nil
}

func infoMemory(x *call, f *fields) error {
	samples := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	runtimemetrics.Read(samples)
	used := samples[0].Value.Uint64()
	f.add("used_memory", used)
	f.add("used_memory_human", human(used))
	f.add("used_memory_rss", samples[1].Value.Uint64()-samples[2].Value.Uint64())
	f.add("maxmemory", 0)
	f.add("maxmemory_human", "0B")
	f.add("maxmemory_policy", "noeviction")
	f.add("mem_clients_normal", x.srv.budget.used.Load())
	f.add("mem_allocator", runtime.Version())
	return nil
}

// human writes bytes as Redis does: 1.50M.
func human(n uint64) string {
	for i, unit := range []string{"B", "K", "M", "G", "T"} {
		if size := uint64(1) << (10 * i); n < size<<10 || unit == "T" {
			if i == 0 {
				return fmt.Sprintf("%dB", n)
			}
			return fmt.Sprintf("%.2f%s", float64(n)/float64(size), unit)
		}
	}
	return ""
}

func infoPersistence(x *call, f *fields) error {
	f.add("loading", 0)
	f.add("aof_enabled", 1)
	f.add("rdb_bgsave_in_progress", 0)
	f.add("aof_rewrite_in_progress", 0)
	return nil
}

func infoStats(x *call, f *fields) error {
	s := &x.srv.stats
	f.add("total_connections_received", s.connections.Load())
	f.add("total_commands_processed", s.commands.Load())
	f.add("total_net_input_bytes", s.bytesIn.Load())
	f.add("total_net_output_bytes", s.bytesOut.Load())
	f.add("rejected_connections", s.rejected.Load())
	f.add("expired_keys", s.expired.Load())
	f.add("evicted_keys", 0)
	p := &x.srv.pubsub
	p.mu.Lock()
	f.add("pubsub_channels", len(p.channels))
	f.add("pubsub_patterns", len(p.patterns))
	f.add("pubsubshard_channels", len(p.shards))
	p.mu.Unlock()
	f.add("tracking_total_keys", 0)
	f.add("total_error_replies", s.errors.Load())
	f.add("total_reads_processed", s.reads.Load())
	f.add("total_writes_processed", s.writes.Load())
	f.add("client_query_buffer_limit_disconnections", s.queryLimit.Load())
	f.add("client_output_buffer_limit_disconnections", s.outputLimit.Load())
	return nil
}

func infoReplication(_ *call, f *fields) error {
	f.add("role", "master")
	f.add("connected_slaves", 0)
	return nil
}

func infoCPU(_ *call, f *fields) error {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return fmt.Errorf("read this process's CPU time: %w", err)
	}
	f.add("used_cpu_sys", fmt.Sprintf("%d.%06d", u.Stime.Sec, u.Stime.Usec))
	f.add("used_cpu_user", fmt.Sprintf("%d.%06d", u.Utime.Sec, u.Utime.Usec))
	return nil
}

func infoCommandStats(x *call, f *fields) error {
	var line func(c *command)
	line = func(c *command) {
		calls, micros := c.stats.calls.Load(), c.stats.micros.Load()
		if calls+c.stats.rejected.Load()+c.stats.failed.Load() > 0 {
			f.add("cmdstat_"+c.fullName(), fmt.Sprintf("calls=%d,usec=%d,usec_per_call=%.2f,rejected_calls=%d,failed_calls=%d",
				calls, micros, float64(micros)/float64(max(calls, 1)), c.stats.rejected.Load(), c.stats.failed.Load()))
		}
		for i := range c.sub {
			line(&c.sub[i])
		}
	}
	for _, c := range x.srv.table.rows {
		line(c)
	}
	return nil
}

func infoErrorStats(x *call, f *fields) error {
	s := &x.srv.stats
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, code := range slices.Sorted(maps.Keys(s.byCode)) {
		f.add("errorstat_"+code, fmt.Sprintf("count=%d", s.byCode[code]))
	}
	return nil
}

// infoKeyspace counts the keys of each database; how many of them expire, and
// when, is not known without reading them all.
func infoKeyspace(x *call, f *fields) error {
	for db := range Databases {
		n, err := x.in(db).Len()
		if err != nil {
			return err
		}
		if n > 0 {
			f.add("db"+mapNames[db], fmt.Sprintf("keys=%d", n))
		}
	}
	return nil
}

func infoLattice(x *call, f *fields) error {
	a := x.srv.cfg.About
	f.add("lattice_version", or(a.Version, "devel"))
	f.add("commit", or(a.Commit, "unknown"))
	f.add("node", a.Node)
	f.add("store", a.Store)
	f.add("durability", a.Durability)
	return nil
}
