package group

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/tick"
)

// Config holds the coordinator's limits. Start from DefaultConfig. The names in
// quotes are Kafka's broker settings.
type Config struct {
	Clock  tick.Clock
	Rand   io.Reader // member ids and reset ids; a failing reader fails the request
	Logger *slog.Logger

	InitialRebalanceDelay time.Duration // "group.initial.rebalance.delay.ms"; 0: none
	MinSession            time.Duration // "group.min.session.timeout.ms"
	MaxSession            time.Duration // "group.max.session.timeout.ms"
	NewMemberJoin         time.Duration // a first JoinGroup waits no longer than this
	MaxRebalance          time.Duration // a longer rebalance timeout is taken as this
	MaxSize               int           // "group.max.size", "group.consumer.max.size"
	MaxMemberBytes        int           // protocol metadata, subscription or regex of one member
	MaxAssignmentBytes    int           // all assignments of one SyncGroup
	MaxGroups             int           // groups known at once

	ConsumerSession   time.Duration // "group.consumer.session.timeout.ms"
	ConsumerHeartbeat time.Duration // "group.consumer.heartbeat.interval.ms"

	OffsetMetadataBytes int           // "offset.metadata.max.bytes"
	OffsetsRetention    time.Duration // "offsets.retention.minutes"
	RetentionCheck      time.Duration // "offsets.retention.check.interval.ms"

	// Homes; nil: no group has one.
	Homes Homes
}

// Homes knows which node coordinates a group.
type Homes interface {
	// Home says whether one node coordinates a group for all of its store (known), and
	// whether it is this one (here): then it expires offsets whoever committed them, and
	// otherwise nobody else does. Not known: each node expires what it committed. It is
	// called with a group's lock held.
	Home(group string) (here, known bool)
}

// DefaultConfig returns Kafka's defaults (4.x), with bounds where Kafka has none.
func DefaultConfig() Config {
	return Config{
		InitialRebalanceDelay: 3 * time.Second,
		MinSession:            6 * time.Second,
		MaxSession:            30 * time.Minute,
		NewMemberJoin:         5 * time.Minute,
		MaxRebalance:          24 * time.Hour,
		MaxSize:               10_000,
		MaxMemberBytes:        1 << 20,
		MaxAssignmentBytes:    64 << 20,
		MaxGroups:             100_000,
		ConsumerSession:       45 * time.Second,
		ConsumerHeartbeat:     5 * time.Second,
		OffsetMetadataBytes:   4096,
		OffsetsRetention:      7 * 24 * time.Hour,
		RetentionCheck:        10 * time.Minute,
	}
}

func (c Config) validate() error {
	bad := func(format string, args ...any) error {
		return lattice.E(lattice.Invalid, fmt.Errorf("group config: "+format, args...))
	}
	switch {
	case c.Clock == nil || c.Rand == nil || c.Logger == nil:
		return lattice.E(lattice.Invalid, errors.New("group config: clock, randomness and logger are required"))
	case c.MinSession <= 0 || c.MaxSession < c.MinSession:
		return bad("session timeouts %v..%v: want 0 < min <= max", c.MinSession, c.MaxSession)
	case c.InitialRebalanceDelay < 0 || c.NewMemberJoin <= 0 || c.MaxRebalance <= 0:
		return bad("initial delay %v, new member wait %v, longest rebalance %v: want positive", c.InitialRebalanceDelay, c.NewMemberJoin, c.MaxRebalance)
	case c.MaxSize <= 0 || c.MaxGroups <= 0 || c.MaxMemberBytes <= 0 || c.MaxAssignmentBytes <= 0 || c.OffsetMetadataBytes < 0:
		return bad("sizes must be positive")
	case c.ConsumerHeartbeat <= 0 || c.ConsumerSession <= c.ConsumerHeartbeat:
		return bad("consumer heartbeat %v, session %v: want 0 < heartbeat < session", c.ConsumerHeartbeat, c.ConsumerSession)
	case c.OffsetsRetention <= 0 || c.RetentionCheck <= 0:
		return bad("offsets retention %v, checked every %v: want positive", c.OffsetsRetention, c.RetentionCheck)
	}
	return nil
}
