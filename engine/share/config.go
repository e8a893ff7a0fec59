package share

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/internal/tick"
)

// Config holds the coordinator's limits. Start from DefaultConfig. The names in
// quotes are Kafka's broker settings.
type Config struct {
	Clock  tick.Clock
	Logger *slog.Logger

	MaxSize        int           // "group.share.max.size": members of a group
	MaxSessions    int           // "group.share.max.share.sessions": over all groups
	MaxGroups      int           // groups known at once, and groups with settings
	MaxParts       int           // partitions with a state, over all groups
	MaxMemberBytes int           // subscription of one member
	Retry          time.Duration // until states that could not be written are tried again

	Defaults Settings // of a group that does not say otherwise
}

// DefaultConfig returns Kafka's defaults (4.x), with bounds where Kafka has none.
func DefaultConfig() Config {
	defaults, _ := ParseSettings(Settings{}, nil) // the table's defaults are valid: a test says so
	return Config{
		MaxSize: 200, MaxSessions: 2000, MaxGroups: 100_000, MaxParts: 200_000, MaxMemberBytes: 1 << 20, Retry: time.Second,
		Defaults: defaults,
	}
}

func (c Config) validate() error {
	switch {
	case c.Clock == nil || c.Logger == nil:
		return lattice.E(lattice.Invalid, errors.New("share groups config: clock and logger are required"))
	case c.MaxSize <= 0 || c.MaxSessions <= 0 || c.MaxGroups <= 0 || c.MaxParts <= 0 || c.MaxMemberBytes <= 0 || c.Retry <= 0:
		return lattice.E(lattice.Invalid, fmt.Errorf("share groups config: %d members, %d sessions, %d groups, %d partitions, %d bytes a member, retry after %v: want positive",
			c.MaxSize, c.MaxSessions, c.MaxGroups, c.MaxParts, c.MaxMemberBytes, c.Retry))
	case c.Defaults.Session <= 0 || c.Defaults.Heartbeat <= 0 || c.Defaults.Lock <= 0 || c.Defaults.Deliveries < 2 || c.Defaults.MaxLocks <= 0:
		return lattice.E(lattice.Invalid, errors.New("share groups config: default settings are missing"))
	}
	return nil
}

// Change is one partition's state to be written; State nil: removed.
type Change struct {
	group.Key
	State *State
}

// Records keeps what must not be lost. The Manager is its only writer, one call of
// each method at a time. Both Put methods are durable when they return, all or
// nothing; after an error the Manager makes no assumption.
type Records interface {
	// LoadShares yields every stored state, in any order.
	LoadShares(yield func(group.Key, State) error) error
	PutShares([]Change) error
	// LoadGroupConfigs yields what groups were set to.
	LoadGroupConfigs(yield func(name string, set map[string]string) error) error
	// PutGroupConfig replaces it; an empty set is removed.
	PutGroupConfig(name string, set map[string]string) error
}

// Log is one partition's log. Safe for concurrent use.
type Log interface {
	Bounds() partition.Bounds
	// Find looks for batches from the one that has offset from on, about max bytes and
	// at least one: all that are committed or, with stable, whose fate is known.
	Find(from int64, max int, stable bool) (Found, error)
	// Readable returns how many bytes Find would find at from: all of them if they are
	// less than min, else min or more.
	Readable(from int64, min int, stable bool) (int, error)
	// Wait calls wake once, in some goroutine, possibly before it returns, when at
	// least min bytes may be found at from, or when the log closes.
	Wait(from int64, min int, stable bool, wake func()) (cancel func())
	// OffsetAt returns the first offset whose record is of ms or later, or the end.
	OffsetAt(ctx context.Context, ms int64) (int64, error)
}

// Found is what a log has from some offset on.
type Found struct {
	Batches []Batch
	Slice   *partition.Slice // their bytes; nil when there are none
}

// Release lets go of what is found.
func (f Found) Release() {
	if f.Slice != nil {
		f.Slice.Release()
	}
}

// Logs are the topics and logs of the store.
type Logs interface {
	group.Topics
	// Log returns a partition's log, false when there is no such partition. Like the
	// Topics, it may be called with a group's lock held.
	Log(tp lattice.TopicPartition) (Log, bool)
}

// Names are the names of groups, which share groups have together with the others.
type Names interface {
	// Claim takes a name for a share group, false if another group has it. Unclaim
	// gives it back. Neither may call the Manager.
	Claim(name string) bool
	Unclaim(name string)
}
