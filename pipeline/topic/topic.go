// Package topic names the topics of the pipeline and makes them, with partitions,
// replication and retention said outright: what a broker does by default differs
// between brokers. A topic that is there already is left as it is.
package topic

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
)

// Names by default. All are keyed by entityId.
const (
	ProjectionEvents = "causet.projection-events.v1"
	LedgerEvents     = "causet.ledger-events.v1"
	DeadLetters      = "causet.projection-dlq.v1"
	Patches          = "causet.patches.v1"
)

// Defaults.
const (
	DefaultPartitions = 6
	DefaultRetention  = 30 * 24 * time.Hour
	// DefaultMaxBytes is what a broker takes in one batch when nobody says otherwise.
	DefaultMaxBytes = 1000012
)

// Spec is a topic as it should be made.
type Spec struct {
	Name       string
	Partitions int32 // default DefaultPartitions. It bounds the projectors that share the work
	// Replication is the number of brokers that keep each record; 0: what the
	// brokers do by default.
	Replication int16
	Retention   time.Duration // default DefaultRetention; negative: for ever
}

// Ensure makes the topics that are not there. It asks first: a program that may
// write a topic need not be allowed to make one.
func Ensure(ctx context.Context, client *kgo.Client, specs ...Spec) error {
	admin := kadm.NewClient(client)
	names := make([]string, len(specs))
	for i, s := range specs {
		names[i] = s.Name
	}
	there, err := admin.ListTopics(ctx, names...)
	if err != nil {
		return lattice.E(kind(err), fmt.Errorf("look for the topics %q: %w", names, err))
	}
	for _, s := range specs {
		if d, listed := there[s.Name]; listed && d.Err == nil {
			continue
		}
		if s.Partitions <= 0 {
			s.Partitions = DefaultPartitions
		}
		if s.Replication <= 0 {
			s.Replication = -1
		}
		retention := "-1"
		switch {
		case s.Retention == 0:
			retention = strconv.FormatInt(DefaultRetention.Milliseconds(), 10)
		case s.Retention > 0:
			retention = strconv.FormatInt(s.Retention.Milliseconds(), 10)
		}
		policy := "delete"
		r, err := admin.CreateTopic(ctx, s.Partitions, s.Replication, map[string]*string{"retention.ms": &retention, "cleanup.policy": &policy}, s.Name)
		if err == nil {
			err = r.Err
		}
		if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return lattice.E(kind(err), fmt.Errorf("make topic %s with %d partitions: %w", s.Name, s.Partitions, err))
		}
	}
	return nil
}

// MaxBytes returns the largest batch that all of the topics take, as their
// brokers say it, or DefaultMaxBytes if they do not.
func MaxBytes(ctx context.Context, client *kgo.Client, names ...string) int {
	least := DefaultMaxBytes
	configs, err := kadm.NewClient(client).DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return least
	}
	for _, c := range configs {
		for _, kv := range c.Configs {
			if kv.Key != "max.message.bytes" || kv.Value == nil {
				continue
			}
			if n, err := strconv.Atoi(*kv.Value); err == nil && n > 0 {
				least = min(least, n)
			}
		}
	}
	return least
}

func kind(err error) lattice.Kind {
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return lattice.Denied
	case errors.Is(err, kerr.InvalidTopicException), errors.Is(err, kerr.InvalidReplicationFactor),
		errors.Is(err, kerr.InvalidPartitions), errors.Is(err, kerr.InvalidConfig), errors.Is(err, kerr.PolicyViolation):
		return lattice.Invalid
	}
	return lattice.Unavailable
}
