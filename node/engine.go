package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// mainStore is the name of the store that an empty directory gets.
const mainStore = "main"

// Paths inside a data directory.
func keyPath(data string) string    { return filepath.Join(data, "identity.key") }
func storesPath(data string) string { return filepath.Join(data, "stores") }

// Made is what Init found or made.
type Made struct {
	Data    string `json:"data"`
	Node    string `json:"node"`
	Store   string `json:"store"`
	Created bool   `json:"created"` // false: it was all there
}

// Init makes an identity and the store "main" in cfg.Data, as Open does on an
// empty directory, and serves nothing. What is there stays as it is. Kinds
// Conflict with a *HeldError, Storage, Corrupt.
func Init(ctx context.Context, cfg Config) (Made, error) {
	if err := cfg.Validate(); err != nil {
		return Made{}, err
	}
	l, err := takeLock(cfg.Data)
	if err != nil {
		return Made{}, err
	}
	key, id, created, err := prepare(ctx, cfg.Data, slog.New(slog.DiscardHandler))
	if err = errors.Join(err, l.release()); err != nil {
		return Made{}, err
	}
	return Made{Data: cfg.Data, Node: key.Author().String(), Store: id.String(), Created: created}, nil
}

// prepare returns the node's key and its default store, and makes what is missing.
func prepare(ctx context.Context, data string, log *slog.Logger) (key identity.Key, id lattice.StoreID, created bool, err error) {
	key, madeKey, err := loadKey(data)
	if err != nil {
		return key, id, false, err
	}
	ids, err := findStores(data)
	if err != nil {
		return key, id, false, err
	}
	if len(ids) > 0 {
		id, err = defaultStore(data, ids)
		return key, id, madeKey, err
	}
	if err := os.MkdirAll(storesPath(data), 0o700); err != nil {
		return key, id, false, lattice.E(lattice.Storage, fmt.Errorf("make the store: %w", err))
	}
	id, err = store.Create(disk.OS(), storesPath(data), key, mainStore, tick.Real{}, rand.Reader, log)
	if err != nil {
		return key, id, false, err
	}
	log.InfoContext(ctx, "made store", slog.String("name", mainStore), slog.String("id", id.String()))
	// Which one is the default does not change when others are made.
	return key, id, true, writeDefault(data, id)
}

func storeConfig(cfg Config, key identity.Key, id lattice.StoreID, log *slog.Logger) store.Config {
	return store.Config{
		FS: disk.OS(), Dir: filepath.Join(storesPath(cfg.Data), id.String()), Key: key,
		Clock: tick.Real{}, Rand: rand.Reader, Logger: log,
		KafkaNodeID: int32(cfg.Kafka.NodeID), DefaultPartitions: int32(cfg.Kafka.DefaultPartitions),
		TopicDefaults: map[string]string{
			"lattice.durability": cfg.Log.Durability,
			"flush.ms":           number(cfg.Log.FlushMs),
			"segment.bytes":      number(cfg.Log.SegmentBytes),
			"retention.ms":       number(cfg.Log.RetentionMs),
			"retention.bytes":    number(cfg.Log.RetentionBytes),
			"max.message.bytes":  number(cfg.Limits.BatchBytes),
		},
		OpenFiles: cfg.Limits.OpenSegments, MaxDecompressed: int(cfg.Limits.DecompressedBytes),
		RetentionCheck: ms(cfg.Log.RetentionCheckMs), CompactionCheck: ms(cfg.Log.CompactionCheckMs),
		Group: groupConfig(cfg.Groups), LocalGroups: cfg.Groups.Availability == "local",
		NodeConfig: kafkaConfigs(cfg),
		State:      stateConfig(cfg.State, cfg.Member),
	}
}

func groupConfig(g Groups) group.Config {
	c := group.DefaultConfig()
	c.InitialRebalanceDelay, c.OffsetsRetention = ms(g.RebalanceDelayMs), ms(g.OffsetsRetentionMs)
	c.MinSession, c.MaxSession = ms(g.MinSessionMs), ms(g.MaxSessionMs)
	return c
}

func stateConfig(c State, m Members) store.StateConfig {
	d, err := signedlog.ParseDurability(c.Durability)
	if err != nil {
		d = signedlog.Fsync // Validate has refused it
	}
	return store.StateConfig{
		Durability: d, FlushEvery: ms(c.FlushMs), CacheBytes: c.CacheBytes, DormantAfter: ms(m.DormantAfterMs),
		Upkeep: store.Upkeep{Every: ms(c.SnapshotEveryMs), Keep: c.SnapshotKeep, PruneAfter: ms(c.PruneAfterMs)},
	}
}

// kafkaConfigs shows the node's configuration as Kafka clients ask for a
// broker's: under Kafka's names where Kafka has them.
func kafkaConfigs(cfg Config) []store.ConfigEntry {
	def := Default()
	row := func(name, kind, value, otherwise, doc string) store.ConfigEntry {
		e := store.ConfigEntry{Name: name, Value: value, Default: otherwise, Source: "default", Type: kind, ReadOnly: true, Doc: doc}
		if value != otherwise {
			e.Source = "node"
		}
		return e
	}
	all := []store.ConfigEntry{
		row("listeners", "list", cfg.Kafka.Listen, def.Kafka.Listen, "Where the node listens for Kafka clients (kafka.listen)."),
		row("advertised.listeners", "list", cfg.Kafka.Advertise, def.Kafka.Advertise, "Where clients are told to connect (kafka.advertise)."),
		row("auto.create.topics.enable", "boolean", strconv.FormatBool(cfg.AutoCreate()), strconv.FormatBool(def.AutoCreate()), "Topics are created when clients name them (kafka.auto_create)."),
		row("num.partitions", "int", number(cfg.Kafka.DefaultPartitions), number(def.Kafka.DefaultPartitions), "Partitions of a topic created without a number (kafka.default_partitions)."),
		row("log.segment.bytes", "int", number(cfg.Log.SegmentBytes), number(def.Log.SegmentBytes), "Default of segment.bytes (log.segment_bytes)."),
		row("log.retention.ms", "long", number(cfg.Log.RetentionMs), number(def.Log.RetentionMs), "Default of retention.ms (log.retention_ms)."),
		row("log.retention.bytes", "long", number(cfg.Log.RetentionBytes), number(def.Log.RetentionBytes), "Default of retention.bytes (log.retention_bytes)."),
		row("log.retention.check.interval.ms", "long", number(cfg.Log.RetentionCheckMs), number(def.Log.RetentionCheckMs), "How often retention looks (log.retention_check_ms)."),
		row("log.cleaner.backoff.ms", "long", number(cfg.Log.CompactionCheckMs), number(def.Log.CompactionCheckMs), "How often compaction looks (log.compaction_check_ms)."),
		row("log.flush.interval.ms", "long", number(cfg.Log.FlushMs), number(def.Log.FlushMs), "Default of flush.ms (log.flush_ms)."),
		row("group.initial.rebalance.delay.ms", "int", number(cfg.Groups.RebalanceDelayMs), number(def.Groups.RebalanceDelayMs), "How long an empty group waits for further members (groups.rebalance_delay_ms)."),
		row("group.min.session.timeout.ms", "int", number(cfg.Groups.MinSessionMs), number(def.Groups.MinSessionMs), "The shortest session timeout (groups.min_session_ms)."),
		row("group.max.session.timeout.ms", "int", number(cfg.Groups.MaxSessionMs), number(def.Groups.MaxSessionMs), "The longest session timeout (groups.max_session_ms)."),
		row("offsets.retention.minutes", "int", number(cfg.Groups.OffsetsRetentionMs/60_000), number(def.Groups.OffsetsRetentionMs/60_000), "How long an empty group's offsets are kept (groups.offsets_retention_ms)."),
		row("message.max.bytes", "int", number(cfg.Limits.BatchBytes), number(def.Limits.BatchBytes), "Default of max.message.bytes (limits.batch_bytes)."),
		row("socket.request.max.bytes", "int", number(cfg.Limits.RequestBytes), number(def.Limits.RequestBytes), "The largest request (limits.request_bytes)."),
		row("fetch.max.bytes", "int", number(cfg.Limits.FetchBytes), number(def.Limits.FetchBytes), "The most records in one answer (limits.fetch_bytes)."),
		row("queued.max.request.bytes", "long", number(cfg.Limits.BufferedBytes), number(def.Limits.BufferedBytes), "Requests held at once (limits.buffered_bytes)."),
		row("max.connections", "int", number(cfg.Limits.Connections), number(def.Limits.Connections), "Connections at once (limits.connections)."),
		row("max.connections.per.ip", "int", number(cfg.Limits.ConnectionsPerAddress), number(def.Limits.ConnectionsPerAddress), "Connections at once from one address (limits.connections_per_address)."),
		row("connections.max.idle.ms", "long", number(cfg.Limits.IdleMs), number(def.Limits.IdleMs), "When a silent connection is closed (limits.idle_ms)."),
		row("default.replication.factor", "int", "1", "1", "Topics have their leader alone unless lattice.replicas names more."),
		row("min.insync.replicas", "int", "1", "1", "Default of a topic's min.insync.replicas."),
		row("lattice.durability", "string", cfg.Log.Durability, def.Log.Durability, "What an acknowledged record survives by default (log.durability)."),
		row("lattice.replication", "string", cfg.Kafka.Replication, def.Kafka.Replication, "Replication factors above the number of members (kafka.replication)."),
	}
	slices.SortFunc(all, func(a, b store.ConfigEntry) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func number[N int | int32 | int64](n N) string { return strconv.FormatInt(int64(n), 10) }
