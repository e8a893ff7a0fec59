package partition

import (
	"math"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/signedlog"
)

// Config is what a topic's configs mean to one partition.
type Config struct {
	Durability    signedlog.Durability
	FlushInterval time.Duration // for signedlog.Interval

	SegmentBytes int64
	SegmentAge   time.Duration // roll a segment whose first record is older

	RetentionTime  time.Duration // < 0: for ever
	RetentionBytes int64         // < 0: no limit

	Delete  bool // cleanup.policy has "delete"
	Compact bool // cleanup.policy has "compact"

	MinCompactionLag  time.Duration
	MaxCompactionLag  time.Duration
	DeleteRetention   time.Duration // how long tombstones stay
	MinCleanableRatio float64       // dirty bytes over all bytes that start a compaction

	// Replicas are the nodes that acknowledge, beside the leader; MinInSync is how many
	// make a record committed, the leader among them.
	Replicas  []lattice.NodeID
	MinInSync int

	MaxBatchBytes int           // max.message.bytes
	Recompress    bool          // compression.type names a codec
	Codec         record.Codec  // which
	AppendTime    bool          // message.timestamp.type = LogAppendTime
	MaxPast       time.Duration // message.timestamp.before.max.ms; MaxDuration: no limit
	MaxFuture     time.Duration // message.timestamp.after.max.ms
}

// MaxDuration stands for "no limit".
const MaxDuration = time.Duration(math.MaxInt64)

// DefaultConfig returns what a topic without any config has: Kafka's defaults,
// apart from durability, which is fsync, and the segment size.
func DefaultConfig() Config {
	return Config{
		Durability: signedlog.Fsync, FlushInterval: time.Second,
		SegmentBytes: 128 << 20, SegmentAge: 7 * 24 * time.Hour,
		RetentionTime: 7 * 24 * time.Hour, RetentionBytes: -1,
		Delete: true, MaxCompactionLag: MaxDuration, DeleteRetention: 24 * time.Hour, MinCleanableRatio: 0.5,
		MinInSync: 1, MaxBatchBytes: 1<<20 + 12, MaxPast: MaxDuration, MaxFuture: time.Hour,
	}
}
