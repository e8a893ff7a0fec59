package store

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// ConfigError says which config is wrong and why (Kafka's INVALID_CONFIG, 40).
type ConfigError struct {
	Name string
	Err  error
}

// Error names the config and the reason.
func (e *ConfigError) Error() string { return fmt.Sprintf("config %s: %v", e.Name, e.Err) }

// Unwrap returns the reason.
func (e *ConfigError) Unwrap() error { return e.Err }

func configError(name, format string, args ...any) error {
	return lattice.E(lattice.Invalid, &ConfigError{name, fmt.Errorf(format, args...)})
}

// ConfigEntry is one topic or node config as it is shown.
type ConfigEntry struct {
	Name, Value, Default string
	Source               string // "default", "topic", "group", "node"
	Type                 string // as Kafka names them: boolean, string, int, long, double, list, password
	ReadOnly, Sensitive  bool
	Doc                  string
}

// ConfigChange sets (Value != nil) or resets (nil) one topic config. Op is "set"
// (or empty), or for lists "append" or "subtract" (KIP-339).
type ConfigChange struct {
	Name, Op string
	Value    *string
}

// topicConfig is one row of the table of topic configs: what is not in it is
// refused by name.
type topicConfig struct {
	name, kind, def, doc string
	// apply checks a value and puts its meaning into the partition's config.
	apply func(c *partition.Config, v string) error
}

// long is a config that is a whole number of at least lo.
func long(lo int64, set func(c *partition.Config, n int64)) func(*partition.Config, string) error {
	return func(c *partition.Config, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < lo {
			return fmt.Errorf("%q: want a whole number of at least %d", v, lo)
		}
		set(c, n)
		return nil
	}
}

// only is a config of which this node has the named values alone.
func only(want ...string) func(*partition.Config, string) error {
	return func(_ *partition.Config, v string) error {
		if !slices.Contains(want, v) {
			return fmt.Errorf("%q: this node has %s only", v, strings.Join(want, ", "))
		}
		return nil
	}
}

// oneOf is a config whose every value is kept on a node that is alone.
func oneOf(want ...string) func(*partition.Config, string) error {
	return func(_ *partition.Config, v string) error {
		if !slices.Contains(want, v) {
			return fmt.Errorf("%q: want %s", v, strings.Join(want, " or "))
		}
		return nil
	}
}

// satisfied is for bounds that hold whatever their value is.
func satisfied(*partition.Config, int64) {}

// never is Kafka's number for what does not happen.
const never = "9223372036854775807"

// topicConfigs returns the table, sorted by name. Values are Kafka's where the
// name is Kafka's; ours begin with "lattice.".
func topicConfigs() []topicConfig {
	return []topicConfig{
		{"cleanup.policy", "list", "delete", "What happens to old records: delete (by retention), compact (keep the last of each key), or both.", applyCleanup},
		{"compression.type", "string", "producer", "producer stores batches as they were compressed; a codec (gzip, snappy, lz4, zstd, or uncompressed) puts all others into it before they are stored.", applyCompression},
		{"delete.retention.ms", "long", "86400000", "How long a compacted topic keeps tombstones, in ms.",
			long(0, func(c *partition.Config, n int64) { c.DeleteRetention = millis(n) })},
		{"file.delete.delay.ms", "long", "60000", "The longest that the file of deleted records stays on disk, in ms; here it goes at once.", long(0, satisfied)},
		{"flush.messages", "long", never, "Sync at the latest after this many records. lattice.durability=fsync does after each; other levels count no records.", long(1, satisfied)},
		{"flush.ms", "long", "1000", "With lattice.durability=interval: sync at least this often, in ms.",
			long(1, func(c *partition.Config, n int64) { c.FlushInterval = millis(n) })},
		{"follower.replication.throttled.replicas", "list", "", "Replicas whose followers are slowed down; this node is the only one, and nothing is replicated.", applyThrottle},
		{"index.interval.bytes", "int", "4096", "The distance between entries of the index of offsets, in bytes.", only("4096")},
		{"lattice.durability", "string", "fsync", "What an acknowledged record survives: fsync (a power cut), interval (a power cut, but for the last flush.ms), os (the end of the process).",
			func(c *partition.Config, v string) (err error) {
				c.Durability, err = signedlog.ParseDurability(v)
				return err
			}},
		{"lattice.replicas", "list", "", "The ids of the nodes that acknowledge records, the leader among them, separated by commas; empty: the leader alone.", applyReplicas},
		{"leader.replication.throttled.replicas", "list", "", "Replicas whose leaders are slowed down; this node is the only one, and nothing is replicated.", applyThrottle},
		{"max.compaction.lag.ms", "long", never, "A compacted topic compacts a record at the latest this long after it was written, in ms.",
			long(1, func(c *partition.Config, n int64) { c.MaxCompactionLag = millis(n) })},
		{"max.message.bytes", "int", "1048588", "The largest record batch that is taken, in bytes.",
			func(c *partition.Config, v string) error {
				n, err := strconv.ParseInt(v, 10, 32)
				if err != nil || n < 0 {
					return fmt.Errorf("%q: want a whole number from 0 to %d", v, math.MaxInt32)
				}
				c.MaxBatchBytes = int(n)
				return nil
			}},
		{"message.timestamp.after.max.ms", "long", "3600000", "How far ahead of the node's clock a record's timestamp may be, in ms.",
			long(0, func(c *partition.Config, n int64) { c.MaxFuture = millis(n) })},
		{"message.timestamp.before.max.ms", "long", never, "How far behind the node's clock a record's timestamp may be, in ms.",
			long(0, func(c *partition.Config, n int64) { c.MaxPast = millis(n) })},
		{"message.timestamp.type", "string", "CreateTime", "CreateTime keeps the producer's timestamps, LogAppendTime puts the node's.",
			func(c *partition.Config, v string) error {
				if v != "CreateTime" && v != "LogAppendTime" {
					return fmt.Errorf("%q: want CreateTime or LogAppendTime", v)
				}
				c.AppendTime = v == "LogAppendTime"
				return nil
			}},
		{"min.cleanable.dirty.ratio", "double", "0.5", "The part of a compacted log that must be new before it is compacted again, 0 to 1.",
			func(c *partition.Config, v string) error {
				f, err := strconv.ParseFloat(v, 64)
				if err != nil || !(f >= 0 && f <= 1) {
					return fmt.Errorf("%q: want a number from 0 to 1", v)
				}
				c.MinCleanableRatio = f
				return nil
			}},
		{"min.compaction.lag.ms", "long", "0", "A compacted topic leaves a record alone for this long, in ms.",
			long(0, func(c *partition.Config, n int64) { c.MinCompactionLag = millis(n) })},
		{"min.insync.replicas", "int", "1", "How many of lattice.replicas, the leader among them, must hold a record before it is committed: acks=all answers then, and consumers see it.", applyMinInSync},
		{"retention.bytes", "long", "-1", "The size at which the oldest segments of a partition are dropped; -1: none.",
			long(-1, func(c *partition.Config, n int64) { c.RetentionBytes = n })},
		{"retention.ms", "long", "604800000", "The age at which segments are dropped, in ms; -1: never.",
			long(-1, func(c *partition.Config, n int64) { c.RetentionTime = millis(n) })},
		{"segment.bytes", "int", "134217728", "The size of a segment file.",
			func(c *partition.Config, v string) error {
				n, err := strconv.ParseInt(v, 10, 32)
				if err != nil || n < minSegmentBytes {
					return fmt.Errorf("%q: want a whole number from %d to %d", v, minSegmentBytes, math.MaxInt32)
				}
				c.SegmentBytes = n
				return nil
			}},
		{"segment.index.bytes", "int", "10485760", "The most that the index of one segment takes, in bytes; it never comes near the default.", long(10<<20, satisfied)},
		{"segment.jitter.ms", "long", "0", "The most that is taken off segment.ms at random, in ms; here nothing is.", long(0, satisfied)},
		{"segment.ms", "long", "604800000", "The age at which a segment is sealed though it is not full, in ms.",
			long(1, func(c *partition.Config, n int64) { c.SegmentAge = millis(n) })},
		{"unclean.leader.election.enable", "boolean", "false", "Whether a replica that lacks records may lead; this node has the only replicas, so none ever does.", oneOf("false", "true")},
	}
}

// minSegmentBytes keeps the number of files in proportion to the data.
const minSegmentBytes = 14

// millis converts, where more than Duration holds stands for "no limit".
func millis(n int64) time.Duration {
	if n > int64(partition.MaxDuration/time.Millisecond) {
		return partition.MaxDuration
	}
	return time.Duration(n) * time.Millisecond
}

// applyCompression takes Kafka's names, of which two are not names of codecs.
func applyCompression(c *partition.Config, v string) (err error) {
	switch c.Recompress = v != "producer"; v {
	case "producer":
	case "uncompressed":
		c.Codec = record.None
	case "none": // Kafka has it for clients only
		return fmt.Errorf("%q: want uncompressed, producer, gzip, snappy, lz4 or zstd", v)
	default:
		c.Codec, err = record.ParseCodec(v)
	}
	return err
}

// applyThrottle takes a list of partition:node, or * for all.
func applyThrottle(_ *partition.Config, v string) error {
	if v == "" || v == "*" {
		return nil
	}
	for _, item := range strings.Split(v, ",") {
		p, n, ok := strings.Cut(strings.TrimSpace(item), ":")
		_, errP := strconv.ParseUint(p, 10, 31)
		_, errN := strconv.ParseUint(n, 10, 31)
		if !ok || errP != nil || errN != nil {
			return fmt.Errorf("%q: want * or a list of PARTITION:NODE", v)
		}
	}
	return nil
}

func applyCleanup(c *partition.Config, v string) error {
	c.Delete, c.Compact = false, false
	for _, p := range strings.Split(v, ",") {
		switch strings.TrimSpace(p) {
		case "delete":
			c.Delete = true
		case "compact":
			c.Compact = true
		default:
			return fmt.Errorf("%q: want delete, compact, or both with a comma", v)
		}
	}
	return nil
}

// parseConfig turns the store's defaults and a topic's overrides into a partition
// config. The error is a *ConfigError of Kind Invalid.
func parseConfig(defaults, set map[string]string) (partition.Config, error) {
	c := partition.DefaultConfig()
	table := topicConfigs()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if !slices.ContainsFunc(table, func(t topicConfig) bool { return t.name == name }) {
			return c, configError(name, "this node has no such topic config")
		}
	}
	for _, t := range table {
		if err := t.apply(&c, t.in(set, defaults)); err != nil {
			return c, configError(t.name, "%w", err)
		}
	}
	if n, ok := set["flush.messages"]; ok && n != never && c.Durability != signedlog.Fsync {
		return c, configError("flush.messages", "%s: lattice.durability=%v counts no records; fsync syncs after each", n, c.Durability)
	}
	return c, nil
}

// in returns the value that is in force.
func (t topicConfig) in(set, defaults map[string]string) string {
	if v, ok := set[t.name]; ok {
		return v
	}
	if v, ok := defaults[t.name]; ok {
		return v
	}
	return t.def
}

// change applies changes to a topic's overrides and returns the new map.
func change(old map[string]string, defaults map[string]string, ch []ConfigChange, replace bool) (map[string]string, error) {
	out := map[string]string{}
	if !replace {
		maps.Copy(out, old)
	}
	table := topicConfigs()
	for _, c := range ch {
		i := slices.IndexFunc(table, func(t topicConfig) bool { return t.name == c.Name })
		if i < 0 {
			return nil, configError(c.Name, "this node has no such topic config")
		}
		if c.Value == nil {
			delete(out, c.Name)
			continue
		}
		if c.Op == "" || c.Op == "set" {
			out[c.Name] = *c.Value
			continue
		}
		if table[i].kind != "list" {
			return nil, configError(c.Name, "it is no list: %s does not apply", c.Op)
		}
		v, err := editList(table[i].in(out, defaults), c.Op, *c.Value)
		if err != nil {
			return nil, configError(c.Name, "%w", err)
		}
		out[c.Name] = v
	}
	_, err := parseConfig(defaults, out)
	return out, err
}

func editList(now, op, arg string) (string, error) {
	var items []string
	if now != "" {
		items = strings.Split(now, ",")
	}
	for _, a := range strings.Split(arg, ",") {
		a = strings.TrimSpace(a)
		switch i := slices.Index(items, a); {
		case op == "append" && i < 0:
			items = append(items, a)
		case op == "subtract" && i >= 0:
			items = slices.Delete(items, i, i+1)
		case op != "append" && op != "subtract":
			return "", errors.New("unknown operation " + strconv.Quote(op))
		}
	}
	return strings.Join(items, ","), nil
}

// DescribeConfig lists every topic config with what is in force for a topic
// that sets these, whether it exists or not.
func (s *Store) DescribeConfig(set map[string]string) []ConfigEntry {
	return describe(s.cfg.TopicDefaults, set)
}

// describe lists every topic config with what is in force.
func describe(defaults, set map[string]string) []ConfigEntry {
	var out []ConfigEntry
	for _, t := range topicConfigs() {
		e := ConfigEntry{Name: t.name, Value: t.def, Default: t.def, Source: "default", Type: t.kind, Doc: t.doc}
		// A node's configuration always says all: what it leaves as it is counts
		// as default, or clients would show it for every topic.
		if v, ok := defaults[t.name]; ok && v != t.def {
			e.Value, e.Default, e.Source = v, v, "node"
		}
		if v, ok := set[t.name]; ok {
			e.Value, e.Source = v, "topic"
		}
		out = append(out, e)
	}
	return out
}
