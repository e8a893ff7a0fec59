package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lattice-log/lattice/test/go-clients/driver"
)

// balancer returns what a way to share partitions is configured with.
func balancer(r driver.Request) ([]kgo.Opt, error) {
	named := kgo.ConsumeTopics(r.Topic)
	switch r.Balancer {
	case "range":
		return []kgo.Opt{named, kgo.Balancers(kgo.RangeBalancer())}, nil
	case "roundrobin":
		return []kgo.Opt{named, kgo.Balancers(kgo.RoundRobinBalancer())}, nil
	case "sticky":
		return []kgo.Opt{named, kgo.Balancers(kgo.StickyBalancer())}, nil
	case "cooperative-sticky":
		return []kgo.Opt{named, kgo.Balancers(kgo.CooperativeStickyBalancer())}, nil
	case "server":
		return []kgo.Opt{named, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()}, nil
	case "server-pattern":
		pattern := kgo.ConsumeTopics(r.Topic[:len(r.Topic)-2] + ".+")
		return []kgo.Opt{pattern, kgo.ConsumeRegex(), kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()}, nil
	}
	return nil, fmt.Errorf("knows no balancer %q", r.Balancer)
}

// member consumes as one member of a group until its context ends; then it
// commits what it read and leaves. It commits before it gives partitions away.
func member(ctx context.Context, r driver.Request, tell func(driver.Event)) error {
	opts, err := balancer(r)
	if err != nil {
		return err
	}
	opts = append(opts,
		kgo.ConsumerGroup(r.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.BlockRebalanceOnPoll(),
		kgo.AutoCommitMarks(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			tell(driver.Event{Event: "assigned", Partitions: sorted(m[r.Topic])})
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, m map[string][]int32) {
			if err := cl.CommitMarkedOffsets(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "franz-go: commit before giving partitions away:", err)
			}
			tell(driver.Event{Event: "revoked", Partitions: sorted(m[r.Topic])})
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			tell(driver.Event{Event: "revoked", Partitions: sorted(m[r.Topic])})
		}),
	)
	if r.Instance != "" {
		opts = append(opts, kgo.InstanceID(r.Instance))
	}
	cl, err := client(r, opts...)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		fs.EachRecord(func(k *kgo.Record) {
			tell(driver.Event{Event: "read", Partition: k.Partition, Offset: k.Offset})
			cl.MarkCommitRecords(k)
		})
		for _, e := range fs.Errors() {
			if ctx.Err() == nil {
				return fmt.Errorf("partition %d: %w", e.Partition, e.Err)
			}
		}
		cl.AllowRebalance()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := cl.CommitMarkedOffsets(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := cl.LeaveGroupContext(ctx); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	cl.Close()
	return nil
}

func sorted(p []int32) []int32 {
	return slices.Sorted(slices.Values(p))
}
