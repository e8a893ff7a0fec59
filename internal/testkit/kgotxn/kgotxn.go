// Package kgotxn waits for what franz-go must know before it ends a transaction.
//
// EndTransaction of franz-go (v1.22.3) looks for partitions with records in the list of
// partitions that its producer has stored. The first records to a topic can be
// acknowledged before that list is stored: their partitions are handed to the sinks
// while the metadata is being merged, and the list is stored when that function
// returns. EndTransaction then finds nothing to end ("no records were produced during
// the transaction; thus no transaction was began; ending without doing anything"),
// returns nil, and the records are decided on by the next transaction. So a test that
// ends a transaction right after the first records to a topic waits here first.
package kgotxn

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Loaded returns when the client's producer has stored the partitions of the topics,
// to each of which it has produced.
func Loaded(ctx context.Context, cl *kgo.Client, topics ...string) error {
	for _, t := range topics {
		for {
			if leader, _, err := cl.PartitionLeader(t, 0); err == nil && leader >= 0 {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the partitions of %s: %w", t, ctx.Err())
			case <-time.After(time.Millisecond):
			}
		}
	}
	return nil
}
