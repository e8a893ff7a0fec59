package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// event is what a member prints: "assigned" and "revoked" (the partitions that
// came or went), "read" (one record) and, last, "left".
type event struct {
	Event      string  `json:"event"`
	Partitions []int32 `json:"partitions,omitempty"`
	Partition  int32   `json:"partition"`
	Offset     int64   `json:"offset"`
}

func balancer(name string) ([]kgo.GroupOpt, error) {
	switch name {
	case "range":
		return []kgo.GroupOpt{kgo.Balancers(kgo.RangeBalancer())}, nil
	case "cooperative-sticky":
		return []kgo.GroupOpt{kgo.Balancers(kgo.CooperativeStickyBalancer())}, nil
	case "server":
		return []kgo.GroupOpt{kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer()}, nil
	}
	return nil, fmt.Errorf("knows no balancer %q", name)
}

// member consumes as one member of a group until stdin ends; then it commits
// what it read and leaves. It commits before it gives partitions away.
func member(ctx context.Context, r request, out output) error {
	var mu sync.Mutex // the callbacks run beside the loop
	report := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		// A driver whose reader is gone has nobody to tell.
		if errors.Join(out.Encode(e), out.buffered.Flush()) != nil {
			os.Exit(1)
		}
	}
	group, err := balancer(r.Balancer)
	if err != nil {
		return err
	}
	opts := []kgo.Opt{
		kgo.ConsumeTopics(r.Topic),
		kgo.ConsumerGroup(r.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.BlockRebalanceOnPoll(),
		kgo.AutoCommitMarks(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			report(event{Event: "assigned", Partitions: sorted(m[r.Topic])})
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, m map[string][]int32) {
			if err := cl.CommitMarkedOffsets(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "franz-go: commit before giving partitions away:", err)
			}
			report(event{Event: "revoked", Partitions: sorted(m[r.Topic])})
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
			report(event{Event: "revoked", Partitions: sorted(m[r.Topic])})
		}),
	}
	for _, o := range group {
		opts = append(opts, o)
	}
	if r.Instance != "" {
		opts = append(opts, kgo.InstanceID(r.Instance))
	}
	cl, err := client(r, opts...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // any end of it means: leave
		cancel()
	}()
	for ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		fs.EachRecord(func(k *kgo.Record) {
			report(event{Event: "read", Partition: k.Partition, Offset: k.Offset})
			cl.MarkCommitRecords(k)
		})
		for _, e := range fs.Errors() {
			if ctx.Err() == nil {
				return fmt.Errorf("partition %d: %w", e.Partition, e.Err)
			}
		}
		cl.AllowRebalance()
	}
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := cl.CommitMarkedOffsets(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if err := cl.LeaveGroupContext(ctx); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	cl.Close()
	report(event{Event: "left"})
	return nil
}

func sorted(p []int32) []int32 {
	return slices.Sorted(slices.Values(p))
}
