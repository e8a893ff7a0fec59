package crash

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

const (
	shareGroup = "workers"
	shareTopic = "tasks"
)

// TestKillShareGroup kills a node while a member of a share group holds records:
// what was acknowledged does not come again, the rest does, with the counts of
// deliveries that docs/protocol/kafka.md promises, and what was delivered as often
// as allowed is gone for ever.
func TestKillShareGroup(t *testing.T) {
	bin, dir, at := realnode.Build(t), t.TempDir(), realnode.FreeAddress(t)
	up := func() *realnode.Node { return realnode.Start(t, bin, dir, "--kafka", at) }
	node := up()
	shareSetUp(t, at, 1, map[string]string{"share.delivery.count.limit": "3"})
	put(t, at, 10)

	m := newSharer(t, at)
	first := m.take(t, 10)
	expectCounts(t, first, map[int64][]int32{0: {1}, 1: {1}, 2: {1}, 3: {1}, 4: {1}, 5: {1}, 6: {1}, 7: {1}, 8: {1}, 9: {1}})
	m.settle(t, first, map[int64]kgo.AckStatus{0: kgo.AckAccept, 1: kgo.AckAccept, 2: kgo.AckAccept, 3: kgo.AckAccept,
		4: kgo.AckRelease, 5: kgo.AckRelease, 6: kgo.AckRelease, 7: kgo.AckReject}) // it holds 8 and 9
	node.Kill()

	node = up()
	m = newSharer(t, at)
	second := m.take(t, 5)
	// Of 8 and 9 no state was written since they were given out, or one with them.
	expectCounts(t, second, map[int64][]int32{4: {2}, 5: {2}, 6: {2}, 8: {1, 2}, 9: {1, 2}})
	m.settle(t, second, map[int64]kgo.AckStatus{4: kgo.AckRelease, 5: kgo.AckRelease, 6: kgo.AckAccept, 8: kgo.AckAccept, 9: kgo.AckAccept})
	node.Kill()

	node = up()
	m = newSharer(t, at)
	third := m.take(t, 2)
	expectCounts(t, third, map[int64][]int32{4: {3}, 5: {3}})
	m.settle(t, third, map[int64]kgo.AckStatus{4: kgo.AckRelease, 5: kgo.AckRelease})
	node.Kill()

	node = up()
	put(t, at, 1)
	m = newSharer(t, at)
	expectCounts(t, m.take(t, 1), map[int64][]int32{10: {1}})
	node.Stop(t)
	verify(t, bin, dir)
}

// expectCounts fails unless exactly these records came, each delivered for one of
// the times that are given.
func expectCounts(t *testing.T, got []*kgo.Record, want map[int64][]int32) {
	t.Helper()
	counts := map[int64]int32{}
	for _, r := range got {
		counts[r.Offset] = r.DeliveryCount()
	}
	ok := len(counts) == len(want) && len(got) == len(want)
	for offset, count := range counts {
		ok = ok && slices.Contains(want[offset], count)
	}
	if !ok {
		t.Fatalf("delivered, with counts, %v; want %v", counts, want)
	}
}

// shareSetUp makes the topic and sets the group, which begins with the first record.
func shareSetUp(t *testing.T, at string, partitions int32, configs map[string]string) {
	t.Helper()
	cl := sharedClient(t, at)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, partitions, 1, nil, shareTopic); err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	group := kmsg.NewIncrementalAlterConfigsRequestResource()
	group.ResourceType, group.ResourceName = kmsg.ConfigResourceTypeGroupConfig, shareGroup
	configs = maps.Clone(configs)
	configs["share.auto.offset.reset"] = "earliest"
	for name, value := range configs {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, &value
		group.Configs = append(group.Configs, c)
	}
	req.Resources = append(req.Resources, group)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Resources[0].ErrorCode)
	}
	if err != nil {
		t.Fatalf("set the group: %v", err)
	}
}

// put writes n records to partition 0.
func put(t *testing.T, at string, n int) {
	t.Helper()
	cl := sharedClient(t, at, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range n {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: shareTopic, Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func sharedClient(t *testing.T, at string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(at)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// sharer is a member of the share group.
type sharer struct {
	*kgo.Client
	mu     sync.Mutex
	failed error // the first of its acknowledgements that was refused
}

// newSharer starts a member that fetches only when it is asked for records, so
// that all that it is given is seen.
func newSharer(t *testing.T, at string, opts ...kgo.Opt) *sharer {
	t.Helper()
	m := &sharer{}
	m.Client = sharedClient(t, at, append([]kgo.Opt{
		kgo.ShareGroup(shareGroup), kgo.ConsumeTopics(shareTopic), kgo.ShareMaxRecordsStrict(), kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			if err := results.Error(); err != nil {
				m.mu.Lock()
				defer m.mu.Unlock()
				if m.failed == nil {
					m.failed = err
				}
			}
		}),
	}, opts...)...)
	return m
}

// take gets n records, at once: to ask again would accept what came before.
func (m *sharer) take(t *testing.T, n int) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if got := m.PollFetches(ctx).Records(); len(got) > 0 {
			if len(got) != n {
				t.Fatalf("%d records came, want %d", len(got), n)
			}
			return got
		}
	}
	t.Fatalf("no record came in %s", patience)
	return nil
}

// settle acknowledges records and waits until that is confirmed.
func (m *sharer) settle(t *testing.T, got []*kgo.Record, how map[int64]kgo.AckStatus) {
	t.Helper()
	for _, r := range got {
		if status, ok := how[r.Offset]; ok {
			r.Ack(status)
		}
	}
	if err := m.flush(t.Context()); err != nil {
		t.Fatalf("acknowledge: %v", err)
	}
}

// flush waits until what was acknowledged is answered, and returns the first
// refusal since the last time.
func (m *sharer) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := m.FlushAcks(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		err = m.failed
	}
	m.failed = nil
	return err
}
