package node

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/p2p"
)

// Config says how a node runs. Start from Default, change what differs, and let
// Validate check the result. The key tags name each field in configuration
// files; the doc tags are shown by "lattice config print".
type Config struct {
	// Data is the directory that holds everything the node keeps.
	Data string `key:"data" doc:"directory that holds everything the node keeps"`
	// Insecure allows listeners on addresses other than loopback without TLS or
	// authentication.
	Insecure bool `key:"insecure" doc:"allow other addresses than loopback without TLS or authentication"`

	Kafka  Kafka   `key:"kafka"`
	Redis  Redis   `key:"redis"`
	HTTP   HTTP    `key:"http"`
	Mesh   Mesh    `key:"mesh"`
	TLS    TLS     `key:"tls"`
	Log    Log     `key:"log"`
	State  State   `key:"state"`
	Member Members `key:"member"`
	Groups Groups  `key:"groups"`
	Limits Limits  `key:"limits"`
	Logs   Logs    `key:"logs"`
}

// Kafka configures the Kafka front end.
type Kafka struct {
	// Listen is host:port; port 0 picks a free one; empty turns the listener off.
	Listen string `key:"listen" doc:"host:port for Kafka clients; port 0 picks one; empty: off"`
	// Advertise is the host:port that clients are told to use; empty: where the
	// listener is. Needed when the listener is on 0.0.0.0 or behind NAT.
	Advertise string `key:"advertise" doc:"host:port that clients are told to use; empty: the listener's"`
	// NodeID is the broker id that clients see, and 0 one that is derived from the
	// node's key, so that nodes which never met have different ones. A node that
	// tools know by a number can keep it; no other node of its stores may have it.
	NodeID int `key:"node_id" doc:"node id that Kafka clients see; 0: derived from the node's key"`
	// AutoCreate is "auto" (on when the listener is on loopback), "true" or "false".
	AutoCreate string `key:"auto_create" doc:"create topics that clients name: true, false, or auto (true on loopback)"`
	// DefaultPartitions is what topics get that are created without a number.
	DefaultPartitions int `key:"default_partitions" doc:"partitions of a topic created without a number"`
	// Replication is "strict" (a factor above the number of members is refused)
	// or "lenient" (accepted, for tools that insist, and described as it is).
	Replication string `key:"replication" doc:"replication factors above the number of members: strict refuses, lenient accepts"`
	// Store is the store that the listener serves, by name or id; empty: the
	// default one at the start.
	Store string `key:"store" doc:"store that Kafka clients see, by name or id; empty: the default one"`
}

// Redis configures the Redis front end and what its clients can make the node spend.
type Redis struct {
	// Listen is host:port; port 0 picks a free one; empty turns the listener off.
	Listen string `key:"listen" doc:"host:port for Redis clients; port 0 picks one; empty: off"`
	// Store is the store that the listener serves, by name or id; empty: the
	// default one at the start.
	Store string `key:"store" doc:"store that Redis clients see, by name or id; empty: the default one"`
	// Connections is the most at once; ConnectionsPerAddress from one IP address.
	Connections           int `key:"connections" doc:"Redis connections at once"`
	ConnectionsPerAddress int `key:"connections_per_address" doc:"Redis connections at once from one address"`
	// ArgumentBytes is the longest argument of a command.
	ArgumentBytes int64 `key:"argument_bytes" doc:"longest key, value or other argument of a Redis command"`
	// QueryBytes is what one connection may have sent and not had executed.
	QueryBytes int64 `key:"query_bytes" doc:"commands of one Redis connection that are not executed yet"`
	// ReplyBytes is what waits for one connection to take it, PushBytes what of it
	// are messages of pub/sub.
	ReplyBytes int64 `key:"reply_bytes" doc:"replies and messages that wait for one Redis connection to take them"`
	PushBytes  int64 `key:"push_bytes" doc:"messages of pub/sub that wait for one Redis connection"`
	// BufferedBytes bounds all of that, over all connections.
	BufferedBytes int64 `key:"buffered_bytes" doc:"commands, replies and messages held at once, over all Redis connections"`
	// IdleMs closes a connection that asks for nothing so long, in ms; 0: never.
	IdleMs int64 `key:"idle_ms" doc:"time after which a silent Redis connection is closed; 0: never"`
}

// State says how keys are written and kept.
type State struct {
	// Durability is "fsync", "interval" or "os", as for records.
	Durability string `key:"durability" doc:"what an acknowledged write of a key means: fsync, interval or os"`
	// FlushMs is the longest time between syncs at "interval", in ms.
	FlushMs int64 `key:"flush_ms" doc:"longest time between syncs of keys at durability interval"`
	// CacheBytes is about how much of the keys is kept in memory.
	CacheBytes int64 `key:"cache_bytes" doc:"keys kept in memory, about, for each store"`
	// SnapshotEveryMs is how often a snapshot of a store's keys is taken, if something
	// was written since, in ms; 0: never by the node itself.
	SnapshotEveryMs int64 `key:"snapshot_every_ms" doc:"how often a snapshot of a store's keys is taken, if they changed; 0: only when asked for"`
	// SnapshotKeep is how many stay when the node takes them, those asked for among them.
	SnapshotKeep int `key:"snapshot_keep" doc:"snapshots that stay, with state.snapshot_every_ms"`
	// PruneAfterMs: with SnapshotKeep newer ones there, history is pruned to a snapshot
	// that is so old, in ms; -1: never by the node itself.
	PruneAfterMs int64 `key:"prune_after_ms" doc:"age of a snapshot, with state.snapshot_keep newer ones, to which history is pruned; -1: only when asked for"`
}

// Members says what becomes of those that are not seen.
type Members struct {
	// DormantAfterMs is how long a member of a store may be gone before this node, if it is
	// an admin there, says that it is dormant: nobody waits for it any more, in ms; 0: never.
	DormantAfterMs int64 `key:"dormant_after_ms" doc:"how long a member may be gone before an admin's node says that nobody waits for it; 0: never"`
}

// HTTP configures the API, metrics and health listener.
type HTTP struct {
	// Listen is host:port; port 0 picks a free one; empty turns the listener
	// off. The socket in the data directory is always served.
	Listen string `key:"listen" doc:"host:port for the API, /metrics, /healthz and /readyz; empty: off"`
	// TokenFile names a file with one token a line; requests must bring one of
	// them. Empty: no token is asked for. The socket never asks.
	TokenFile string `key:"token_file" doc:"file with one token a line, one of which requests must bring; empty: none"`
}

// Mesh configures how the node reaches the other nodes of its stores, and they it.
type Mesh struct {
	// Listen is where other nodes call: host:port, or multiaddrs such as
	// /ip4/0.0.0.0/udp/7946/quic-v1, with commas between; empty: the node neither
	// calls nor is called. Port 0 picks one at the first start, and the same one again
	// later, since others remember it. Only members get past the handshake, so that
	// addresses other than loopback need no certificate.
	Listen string `key:"listen" doc:"where other nodes of its stores call: HOST:PORT or multiaddrs, with commas between; port 0 picks one and keeps it; empty: off"`
	// Announce is where others are told to call, likewise; empty: where it listens.
	// Needed behind a router that forwards a port.
	Announce string `key:"announce" doc:"where other nodes are told to call, likewise; empty: the listener's"`
	// MDNS announces the node on the local network, and looks for members there.
	MDNS bool `key:"mdns" doc:"announce the node on the local network, and look for members there"`
	// SendRate bounds what is replicated to all other nodes together, in bytes a second;
	// 0: nothing does. What clients wait for, which is forwarded, is not held back.
	SendRate int64 `key:"send_rate" doc:"bytes a second that are replicated to other nodes, at most, all together; 0: no bound"`
}

// TLS configures the certificate that both listeners show.
type TLS struct {
	// Cert and Key name PEM files; both or none.
	Cert string `key:"cert" doc:"PEM file with the listeners' certificate chain"`
	Key  string `key:"key" doc:"PEM file with the certificate's private key"`
}

// Log holds the defaults of topics that do not say otherwise.
type Log struct {
	// Durability is "fsync" (an acknowledgement means fdatasync returned),
	// "interval" (synced at least every FlushMs) or "os" (page cache).
	Durability string `key:"durability" doc:"what an acknowledgement means: fsync, interval or os"`
	// FlushMs is the longest time between syncs at "interval", in ms.
	FlushMs int64 `key:"flush_ms" doc:"longest time between syncs at durability interval"`
	// SegmentBytes is the size at which a segment file is closed.
	SegmentBytes int64 `key:"segment_bytes" doc:"size at which a segment file is closed"`
	// RetentionMs is how long records are kept, in ms; -1: for ever.
	RetentionMs int64 `key:"retention_ms" doc:"how long records are kept; -1: for ever"`
	// RetentionBytes is how much of a partition is kept; -1: all.
	RetentionBytes int64 `key:"retention_bytes" doc:"how much of each partition is kept; -1: all"`
	// RetentionCheckMs is how often retention looks, in ms.
	RetentionCheckMs int64 `key:"retention_check_ms" doc:"how often retention looks"`
	// CompactionCheckMs is how often compaction looks, in ms.
	CompactionCheckMs int64 `key:"compaction_check_ms" doc:"how often compaction looks"`
}

// Groups configures consumer groups, times in ms.
type Groups struct {
	// RebalanceDelayMs is how long an empty group of the classic protocol waits
	// for further members after the first.
	RebalanceDelayMs int64 `key:"rebalance_delay_ms" doc:"how long an empty group waits for further members after the first"`
	// MinSessionMs and MaxSessionMs bound the session timeouts that members of
	// the classic protocol ask for.
	MinSessionMs int64 `key:"min_session_ms" doc:"shortest session timeout that a member may ask for"`
	MaxSessionMs int64 `key:"max_session_ms" doc:"longest session timeout that a member may ask for"`
	// OffsetsRetentionMs is how long an empty group's offsets are kept.
	OffsetsRetentionMs int64 `key:"offsets_retention_ms" doc:"how long the offsets of a group without members are kept"`
	// Availability is "home" (a group whose home cannot be reached waits for it) or "local"
	// (this node coordinates it meanwhile: its members there and here get the same records).
	Availability string `key:"availability" doc:"groups whose home node cannot be reached: home waits for it, local coordinates them here meanwhile, at least once"`
}

// Limits bound what clients can make the node spend.
type Limits struct {
	// RequestBytes is the largest Kafka request that is read.
	RequestBytes int64 `key:"request_bytes" doc:"largest Kafka request"`
	// ControlBytes is the largest request of any API but Produce.
	ControlBytes int64 `key:"control_bytes" doc:"largest Kafka request that carries no records"`
	// FetchBytes is the most records in one answer, but for a single larger batch.
	FetchBytes int64 `key:"fetch_bytes" doc:"most records in one Fetch answer"`
	// BatchBytes is the largest record batch (the topics' default max.message.bytes).
	BatchBytes int64 `key:"batch_bytes" doc:"largest record batch (default max.message.bytes)"`
	// DecompressedBytes is the most that one batch may unpack to.
	DecompressedBytes int64 `key:"decompressed_bytes" doc:"most that one batch may unpack to"`
	// BufferedBytes bounds the Kafka requests held at once, over all connections.
	BufferedBytes int64 `key:"buffered_bytes" doc:"Kafka requests held at once, over all connections"`
	// Inflight and InflightBytes bound what one connection has under way.
	Inflight      int   `key:"inflight" doc:"requests under way on one Kafka connection"`
	InflightBytes int64 `key:"inflight_bytes" doc:"requests and answers held for one Kafka connection"`
	// Connections is the most Kafka connections at once.
	Connections int `key:"connections" doc:"Kafka connections at once"`
	// ConnectionsPerAddress is the most from one IP address.
	ConnectionsPerAddress int `key:"connections_per_address" doc:"Kafka connections at once from one address"`
	// IdleMs closes a Kafka connection that asked for nothing so long, in ms.
	IdleMs int64 `key:"idle_ms" doc:"time after which a silent Kafka connection is closed"`
	// StallMs closes a Kafka connection that stops in the middle of a request,
	// or does not take its answers, in ms.
	StallMs int64 `key:"stall_ms" doc:"time after which a Kafka connection that makes no progress is closed"`
	// APIRequests is how many API requests and streams run at once.
	APIRequests int `key:"api_requests" doc:"API requests and streams at once"`
	// OpenSegments is how many closed segment files are kept open.
	OpenSegments int `key:"open_segments" doc:"closed segment files kept open"`
}

// Logs configures the node's own messages.
type Logs struct {
	// Level is debug, info, warn or error.
	Level string `key:"level" doc:"debug, info, warn or error"`
	// Format is "text", "json" or "auto": text on a terminal, JSON otherwise.
	Format string `key:"format" doc:"text, json, or auto (text on a terminal)"`
}

// Default returns the configuration of a node on the caller's own machine.
func Default() Config {
	return Config{
		Data:  DefaultData(),
		Kafka: Kafka{Listen: "127.0.0.1:9092", AutoCreate: "auto", DefaultPartitions: 4, Replication: "strict"},
		Redis: Redis{
			Listen: "127.0.0.1:6379", Connections: 10_000, ConnectionsPerAddress: 10_000, ArgumentBytes: 64 << 20, QueryBytes: 128 << 20,
			ReplyBytes: 256 << 20, PushBytes: 32 << 20, BufferedBytes: 1 << 30,
		},
		HTTP:   HTTP{Listen: "127.0.0.1:8080"},
		Mesh:   Mesh{Listen: "127.0.0.1:0"},
		State:  State{Durability: "fsync", FlushMs: 1000, CacheBytes: 256 << 20, SnapshotKeep: 3, PruneAfterMs: -1},
		Member: Members{DormantAfterMs: 30 * 24 * 3600 * 1000},
		Log: Log{
			Durability: "fsync", FlushMs: 1000, SegmentBytes: 128 << 20,
			RetentionMs: 7 * 24 * 3600 * 1000, RetentionBytes: -1, RetentionCheckMs: 300_000, CompactionCheckMs: 15_000,
		},
		Groups: Groups{RebalanceDelayMs: 3000, MinSessionMs: 6000, MaxSessionMs: 1_800_000, OffsetsRetentionMs: 7 * 24 * 3600 * 1000, Availability: "home"},
		Limits: Limits{
			RequestBytes: 100 << 20, ControlBytes: 16 << 20, FetchBytes: 55 << 20, BatchBytes: 1<<20 + 12,
			DecompressedBytes: 128 << 20, BufferedBytes: 1 << 30, Inflight: 128, InflightBytes: 16 << 20,
			Connections: 20_000, ConnectionsPerAddress: 12_000, IdleMs: 600_000, StallMs: 30_000,
			APIRequests: 4096, OpenSegments: 512,
		},
		Logs: Logs{Level: "info", Format: "auto"},
	}
}

// DefaultData is where a node keeps its data when nothing says otherwise:
// ~/.local/share/lattice, or "lattice-data" where there is no home directory.
func DefaultData() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "lattice-data"
	}
	return filepath.Join(home, ".local", "share", "lattice")
}

// FieldError is one thing wrong with a configuration.
type FieldError struct {
	Key string // as in the configuration file
	Err error
}

func (e *FieldError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *FieldError) Unwrap() error { return e.Err }

// Validate checks every field and the relations between them, and reports all
// that is wrong: a join of *FieldError, of kind Invalid.
func (c Config) Validate() error {
	var v problems
	if c.Data == "" {
		v.add("data", "names no directory")
	}
	v.oneOf("kafka.auto_create", c.Kafka.AutoCreate, "auto", "true", "false")
	v.oneOf("kafka.replication", c.Kafka.Replication, "strict", "lenient")
	v.oneOf("groups.availability", c.Groups.Availability, "home", "local")
	v.oneOf("log.durability", c.Log.Durability, "fsync", "interval", "os")
	v.oneOf("state.durability", c.State.Durability, "fsync", "interval", "os")
	v.oneOf("logs.format", c.Logs.Format, "auto", "text", "json")
	if _, err := c.LogLevel(); err != nil {
		v.add("logs.level", "%q is none of debug, info, warn, error", c.Logs.Level)
	}
	if c.Kafka.Listen == "" && c.Kafka.Advertise != "" {
		v.add("kafka.advertise", "there is no Kafka listener to advertise")
	}
	guarded := c.TLS.Cert != "" || c.Insecure
	v.listener("kafka.listen", c.Kafka.Listen, guarded, "tls.cert and tls.key")
	v.listener("redis.listen", c.Redis.Listen, guarded, "tls.cert and tls.key")
	v.listener("http.listen", c.HTTP.Listen, guarded || c.HTTP.TokenFile != "", "tls.cert and tls.key, or http.token_file")
	v.advertise(c.Kafka)
	if (c.TLS.Cert == "") != (c.TLS.Key == "") {
		v.add("tls.cert", "needs tls.key, and the other way round")
	}
	if sameAddress(c.Kafka.Listen, c.HTTP.Listen) {
		v.add("http.listen", "is the same address as kafka.listen")
	}
	for _, other := range []string{c.Kafka.Listen, c.HTTP.Listen} {
		if sameAddress(c.Redis.Listen, other) {
			v.add("redis.listen", "is the same address as another listener's")
		}
	}
	v.mesh(c.Mesh)
	v.numbers(c)
	v.redis(c)
	return v.err()
}

// numbers checks ranges, and limits that must not contradict each other.
func (v *problems) numbers(c Config) {
	const most = 1 << 40
	v.between("kafka.node_id", int64(c.Kafka.NodeID), 0, math.MaxInt32)
	v.between("kafka.default_partitions", int64(c.Kafka.DefaultPartitions), 1, 10_000)
	v.between("log.flush_ms", c.Log.FlushMs, 1, 3_600_000)
	v.between("log.segment_bytes", c.Log.SegmentBytes, 1<<20, 1<<31-1)
	v.between("log.retention_ms", c.Log.RetentionMs, -1, 1<<62)
	v.between("log.retention_bytes", c.Log.RetentionBytes, -1, 1<<62)
	v.between("log.retention_check_ms", c.Log.RetentionCheckMs, 100, 24*3_600_000)
	v.between("log.compaction_check_ms", c.Log.CompactionCheckMs, 100, 24*3_600_000)
	v.between("groups.rebalance_delay_ms", c.Groups.RebalanceDelayMs, 0, 3_600_000)
	v.between("groups.min_session_ms", c.Groups.MinSessionMs, 1, 24*3_600_000)
	v.between("groups.max_session_ms", c.Groups.MaxSessionMs, 1, 24*3_600_000)
	v.between("groups.offsets_retention_ms", c.Groups.OffsetsRetentionMs, 1, 1<<40)
	v.between("limits.request_bytes", c.Limits.RequestBytes, 64<<10, 1<<30)
	v.between("limits.control_bytes", c.Limits.ControlBytes, 64<<10, 1<<30)
	v.between("limits.fetch_bytes", c.Limits.FetchBytes, 64<<10, 1<<30)
	v.between("limits.batch_bytes", c.Limits.BatchBytes, 1<<10, 1<<30)
	v.between("limits.decompressed_bytes", c.Limits.DecompressedBytes, 1<<20, 1<<31-1)
	v.between("limits.buffered_bytes", c.Limits.BufferedBytes, 1<<20, most)
	v.between("limits.inflight", int64(c.Limits.Inflight), 1, 100_000)
	v.between("limits.inflight_bytes", c.Limits.InflightBytes, 1<<20, most)
	v.between("limits.connections", int64(c.Limits.Connections), 1, 10_000_000)
	v.between("limits.connections_per_address", int64(c.Limits.ConnectionsPerAddress), 1, 10_000_000)
	v.between("limits.idle_ms", c.Limits.IdleMs, 1000, 1<<40)
	v.between("limits.stall_ms", c.Limits.StallMs, 100, 1<<40)
	v.between("limits.api_requests", int64(c.Limits.APIRequests), 1, 1_000_000)
	v.between("limits.open_segments", int64(c.Limits.OpenSegments), 8, 1_000_000)
	if g := c.Groups; g.MinSessionMs > g.MaxSessionMs && g.MaxSessionMs > 0 {
		v.add("groups.min_session_ms", "%d is above groups.max_session_ms (%d): no member could join", g.MinSessionMs, g.MaxSessionMs)
	}
	if c.Limits.BatchBytes > c.Limits.RequestBytes {
		v.add("limits.batch_bytes", "%d is above limits.request_bytes (%d): no request could carry it", c.Limits.BatchBytes, c.Limits.RequestBytes)
	}
	if c.Limits.RequestBytes > c.Limits.BufferedBytes {
		v.add("limits.request_bytes", "%d is above limits.buffered_bytes (%d): it could never be read", c.Limits.RequestBytes, c.Limits.BufferedBytes)
	}
	if c.Limits.BatchBytes > c.Log.SegmentBytes {
		v.add("limits.batch_bytes", "%d is above log.segment_bytes (%d): no segment could hold it", c.Limits.BatchBytes, c.Log.SegmentBytes)
	}
}

// redis checks the ranges of the Redis listener and of keys.
func (v *problems) redis(c Config) {
	r := c.Redis
	v.between("redis.connections", int64(r.Connections), 1, 10_000_000)
	v.between("redis.connections_per_address", int64(r.ConnectionsPerAddress), 1, 10_000_000)
	v.between("redis.argument_bytes", r.ArgumentBytes, 1<<10, 512<<20)
	v.between("redis.query_bytes", r.QueryBytes, r.ArgumentBytes, 1<<31-1)
	v.between("redis.reply_bytes", r.ReplyBytes, 1<<10, 1<<31-1)
	v.between("redis.push_bytes", r.PushBytes, 1<<10, 1<<31-1)
	v.between("redis.buffered_bytes", r.BufferedBytes, r.QueryBytes, 1<<40)
	v.between("redis.idle_ms", r.IdleMs, 0, 1<<40)
	v.between("state.flush_ms", c.State.FlushMs, 1, 3_600_000)
	v.between("state.cache_bytes", c.State.CacheBytes, 1<<20, 1<<40)
	if c.Mesh.SendRate != 0 {
		v.between("mesh.send_rate", c.Mesh.SendRate, p2p.MinSendRate, 1<<40)
	}
	v.between("member.dormant_after_ms", c.Member.DormantAfterMs, 0, 1<<40)
	v.snapshots(c.State)
}

// maxWaitingSnapshots bounds those that are not old enough to be pruned to yet.
const maxWaitingSnapshots = 1000

// snapshots checks when the node takes snapshots and prunes by itself.
func (v *problems) snapshots(c State) {
	v.between("state.snapshot_keep", int64(c.SnapshotKeep), 1, maxWaitingSnapshots)
	v.between("state.prune_after_ms", c.PruneAfterMs, -1, 1<<40)
	switch every := c.SnapshotEveryMs; {
	case every != 0:
		v.between("state.snapshot_every_ms", every, 1000, 1<<40)
		if c.PruneAfterMs/max(every, 1) > maxWaitingSnapshots {
			v.add("state.prune_after_ms", "%d is more than %d times state.snapshot_every_ms (%d): so many snapshots would wait for it", c.PruneAfterMs, maxWaitingSnapshots, every)
		}
	case c.PruneAfterMs >= 0:
		v.add("state.prune_after_ms", "needs state.snapshot_every_ms: there would be no snapshot to prune to")
	}
}

// AutoCreate reports whether clients create topics by naming them.
func (c Config) AutoCreate() bool {
	if c.Kafka.AutoCreate == "auto" {
		return Loopback(c.Kafka.Listen)
	}
	return c.Kafka.AutoCreate == "true"
}

// LogLevel returns the level of the node's own messages.
func (c Config) LogLevel() (slog.Level, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.Logs.Level)); err != nil {
		return l, lattice.E(lattice.Invalid, fmt.Errorf("log level: %w", err))
	}
	return l, nil
}

// Loopback reports whether a host:port can be reached from this machine only.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// problems collects what is wrong with a configuration.
type problems []error

func (v *problems) add(key, format string, args ...any) {
	*v = append(*v, &FieldError{key, fmt.Errorf(format, args...)})
}

func (v *problems) err() error { return lattice.E(lattice.Invalid, errors.Join(*v...)) }

func (v *problems) oneOf(key, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		v.add(key, "%q is none of %s", value, strings.Join(allowed, ", "))
	}
}

func (v *problems) between(key string, n, low, high int64) {
	if n < low || n > high {
		v.add(key, "%d is not between %d and %d", n, low, high)
	}
}

func (v *problems) listener(key, addr string, guarded bool, guards string) {
	if addr == "" {
		return
	}
	if err := checkAddress(addr, 0); err != nil {
		v.add(key, "%w", err)
		return
	}
	if !Loopback(addr) && !guarded {
		v.add(key, "%s can be reached from other machines: set %s, or accept it with --insecure", addr, guards)
	}
}

func (v *problems) advertise(k Kafka) {
	if k.Advertise != "" {
		if err := checkAddress(k.Advertise, 1); err != nil {
			v.add("kafka.advertise", "%w", err)
		} else if host, _, _ := net.SplitHostPort(k.Advertise); host == "" || unspecified(host) {
			v.add("kafka.advertise", "%q names no host that a client could reach", k.Advertise)
		}
	}
}

// checkAddress wants host:port with a numeric port of at least low.
func checkAddress(addr string, low int) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not host:port", addr)
	}
	if n, err := strconv.Atoi(port); err != nil || n < low || n > 65535 {
		return fmt.Errorf("%q: port %q is not between %d and 65535", addr, port, low)
	}
	return nil
}

func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

func sameAddress(a, b string) bool {
	return a != "" && a == b && !strings.HasSuffix(a, ":0")
}
