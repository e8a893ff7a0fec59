package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/internal/tick"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func admin(group string, offsets ...OffsetCommit) CommitRequest {
	return CommitRequest{Group: group, Generation: -1, Offsets: offsets}
}

// TestCommitsShareSyncs: commits that wait together, of one group and of many,
// cost one durable step, and end in the order in which they came.
func TestCommitsShareSyncs(t *testing.T) {
	w := newWorld(t, nil)
	w.topics.create("t", 1)
	var order []int64
	for i := range int64(50) {
		for _, g := range []string{"a", "b"} {
			w.CommitOffsets(admin(g, OffsetCommit{TopicPartition: w.tp("t", 0), Offset: i}), func(r CommitResult) {
				if r.Err != nil || r.Partitions[0] != nil {
					t.Error(r)
				}
				order = append(order, i)
			})
		}
	}
	if len(order) > 0 {
		t.Fatal("answered before it was durable")
	}
	w.settle()
	if w.offsets.applies != 1 {
		t.Errorf("100 commits took %d durable steps", w.offsets.applies)
	}
	for i, o := range order {
		if int64(i/2) != o {
			t.Fatalf("answers come in the order %v", order)
		}
	}
	for _, g := range []string{"a", "b"} {
		if got := w.FetchOffsets(FetchRequest{Group: g, All: true}).Offsets; len(got) != 1 || got[0].Offset != 49 {
			t.Errorf("%s: %+v", g, got)
		}
	}
}

// TestCommitsThatWaitTogetherSeeEachOther: the second of two commits in one
// durable step moves back from the first, not from what was stored before.
func TestCommitsThatWaitTogetherSeeEachOther(t *testing.T) {
	w := newWorld(t, nil)
	w.topics.create("t", 1)
	for _, offset := range []int64{10, 20, 15} {
		w.CommitOffsets(admin("g", OffsetCommit{TopicPartition: w.tp("t", 0), Offset: offset}), func(CommitResult) {})
	}
	w.settle()
	v, err := ParseValue(w.offsets.kept[string(Key{"g", w.tp("t", 0)}.AppendTo([]byte{'o'}))])
	if err != nil || v.Offset != 15 || v.Reset != 1 || v.Target != 15 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestExpiryMeetsMember: somebody joins while the removal of old offsets waits.
func TestExpiryMeetsMember(t *testing.T) {
	w := newWorld(t, nil)
	w.topics.create("t", 1)
	beat := func(epoch int32) {
		res := w.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: "g", MemberID: "m", MemberEpoch: epoch, Rebalance: time.Second, Topics: []string{"t"}})
		if res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	beat(EpochJoin)
	beat(EpochLeave)
	w.CommitOffsets(admin("g", OffsetCommit{TopicPartition: w.tp("t", 0), Offset: 5}), func(CommitResult) {})
	w.settle()
	w.clock.Advance(w.cfg.OffsetsRetention)
	w.expire()
	beat(EpochJoin)
	w.settle()
	if got := w.FetchOffsets(FetchRequest{Group: "g", All: true}).Offsets; len(got) != 1 {
		t.Error("the offsets of a group with a member expired")
	}
}

// TestBatchesAreBounded: a durable step takes no more than maxBatch changes and
// those of the write that reaches it; nothing is left behind or out of order.
func TestBatchesAreBounded(t *testing.T) {
	w := newWorld(t, nil)
	w.topics.create("t", 2500)
	for i := range int64(10) {
		var offsets []OffsetCommit
		for p := range int32(2500) {
			offsets = append(offsets, OffsetCommit{TopicPartition: w.tp("t", p), Offset: i})
		}
		w.CommitOffsets(admin("g", offsets...), func(r CommitResult) {
			if r.Err != nil {
				t.Error(r.Err)
			}
		})
	}
	w.settle()
	if w.offsets.applies != 3 {
		t.Errorf("25,000 changes took %d steps of up to %d", w.offsets.applies, maxBatch)
	}
	for _, o := range w.FetchOffsets(FetchRequest{Group: "g", All: true}).Offsets {
		if o.Offset != 9 {
			t.Fatalf("partition %d is at %d", o.Partition, o.Offset)
		}
	}
}

// TestApplyFails breaks the durable step, once losing the changes and once
// keeping them though it reports failure. Either way the committer is told that
// it failed, readers see the offset of before, later commits work, and a
// restart shows the last one.
func TestApplyFails(t *testing.T) {
	for _, c := range []struct {
		name string
		keep bool
		want int64 // after a restart at once
	}{{"lost", false, 5}, {"kept, but reported as failed", true, 9}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.topics.create("t", 1)
			commit := func(offset int64) error {
				var res CommitResult
				w.CommitOffsets(admin("g", OffsetCommit{TopicPartition: w.tp("t", 0), Offset: offset}), func(r CommitResult) { res = r })
				w.settle()
				return res.Err
			}
			at := func() int64 { return w.FetchOffsets(FetchRequest{Group: "g", All: true}).Offsets[0].Offset }
			if err := commit(5); err != nil {
				t.Fatal(err)
			}
			full := errors.New("disk full")
			w.offsets.err, w.offsets.keep = full, c.keep
			err := commit(9)
			if !errors.Is(err, ErrNotStored) || !errors.Is(err, full) || lattice.KindOf(err) != lattice.Storage {
				t.Errorf("the committer is told %v", err)
			}
			if at() != 5 {
				t.Errorf("readers see %d", at())
			}
			if !c.keep {
				w.DeleteGroup("g", func(err error) {
					if !errors.Is(err, ErrNotStored) {
						t.Errorf("deleting the group: %v", err)
					}
				})
				w.settle()
			}
			w.offsets.err = nil
			w.restart(t, nil)
			if at() != c.want {
				t.Errorf("a restart shows %d, want %d", at(), c.want)
			}
			if err := commit(12); err != nil || at() != 12 {
				t.Errorf("later: %d, %v", at(), err)
			}
		})
	}
}

// TestLogLostEverything: the log does not even know the term of the commit any
// more, and is shorter.
func TestLogLostEverything(t *testing.T) {
	w := newWorld(t, nil)
	w.topics.create("t", 1)
	w.CommitOffsets(admin("g", OffsetCommit{TopicPartition: w.tp("t", 0), Offset: 800}), func(CommitResult) {})
	w.settle()
	w.topics.lose(0)
	clear(w.topics.ends)
	w.topics.end = 30
	if got := w.FetchOffsets(FetchRequest{Group: "g", All: true}).Offsets; got[0].Offset != 30 {
		t.Errorf("reads go on at %d, the log ends at 30", got[0].Offset)
	}
}

// TestRun runs the real loop with the real clock and many callers, and stops it
// in the middle: every request is answered once, before or by the end.
func TestRun(t *testing.T) {
	topics := newMemTopics()
	topics.create("t", 8)
	id, _ := topics.TopicByName("t")
	cfg := testConfig(tick.Real{})
	cfg.InitialRebalanceDelay = time.Millisecond
	m, err := New(cfg, newMemOffsets(), topics)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- m.Run(ctx) }()

	var callers, answers sync.WaitGroup
	for c := range 8 {
		callers.Add(1)
		go func() {
			defer callers.Done()
			group := fmt.Sprint("g", c%3)
			for i := range 100 {
				answers.Add(3)
				m.Join(JoinRequest{
					Group: "c" + group, Client: Client{ID: "x"}, Session: 10 * time.Second, Rebalance: 10 * time.Second,
					ProtocolType: "consumer", Protocols: []Protocol{{Name: "range", Metadata: subscription("t")}},
				}, func(JoinResult) { answers.Done() })
				m.CommitOffsets(admin("o"+group, OffsetCommit{TopicPartition: lattice.TopicPartition{Topic: id.ID, Partition: int32(i % 8)}, Offset: int64(i)}),
					func(CommitResult) { answers.Done() })
				m.DeleteGroup("o"+group, func(error) { answers.Done() })
				res := m.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: "h" + group, MemberID: fmt.Sprint(c), Rebalance: time.Second, Topics: []string{"t"}})
				if res.Err == nil {
					m.FetchOffsets(FetchRequest{Group: "h" + group, MemberID: fmt.Sprint(c), MemberEpoch: res.MemberEpoch, All: true})
				}
				m.List()
				if _, err := m.Describe("c" + group); err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrGroupNotFound) {
					t.Error(err)
				}
				if i == 50 && c == 0 {
					cancel()
				}
			}
		}()
	}
	callers.Wait()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	answers.Wait()
	m.Join(JoinRequest{Group: "late"}, func(r JoinResult) {
		if !errors.Is(r.Err, ErrClosed) {
			t.Errorf("a join after the end: %v", r.Err)
		}
	})
}

// TestRunExpires lets the loop's own timer find the old offsets.
func TestRunExpires(t *testing.T) {
	w := newWorld(t, nil)
	w.topics.create("t", 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ran := make(chan error, 1)
	go func() { ran <- w.Run(ctx) }()
	stored := make(chan CommitResult, 1)
	w.CommitOffsets(admin("g", OffsetCommit{TopicPartition: w.tp("t", 0)}), func(r CommitResult) { stored <- r })
	if r := <-stored; r.Err != nil {
		t.Fatal(r.Err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for len(w.List()) > 0 { // the loop sets its timer when it gets to it
		w.clock.Advance(24 * time.Hour)
		time.Sleep(time.Millisecond)
		if time.Now().After(deadline) {
			t.Fatal("the offsets never expire")
		}
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if len(w.offsets.kept) != 0 {
		t.Errorf("%d offsets are left", len(w.offsets.kept))
	}
}

func TestSizeLimits(t *testing.T) {
	w := newWorld(t, func(c *Config) {
		c.MaxSize, c.MaxGroups, c.InitialRebalanceDelay, c.MaxMemberBytes, c.MaxAssignmentBytes, c.OffsetMetadataBytes = 2, 3, 0, 1000, 1000, 3
	})
	w.topics.create("t", 1)
	join := func(group, member string, bytes int) (res JoinResult) {
		w.Join(JoinRequest{
			Group: group, MemberID: member, Client: Client{ID: strings.Repeat("é", 200)}, Session: 10 * time.Second, Rebalance: 10 * time.Second,
			ProtocolType: "x", Protocols: []Protocol{{Name: "x", Metadata: make([]byte, bytes)}},
		}, func(r JoinResult) { res = r })
		return res
	}
	a := join("c", "", 10)
	if a.Err != nil || len(a.MemberID) > 300 {
		t.Fatalf("first member %q: %v", a.MemberID, a.Err)
	}
	w.Sync(SyncRequest{Group: "c", MemberID: a.MemberID, Generation: 1}, func(SyncResult) {})
	join("c", "", 10) // waits for the first one
	join("c", a.MemberID, 10)
	w.clock.Advance(time.Second)
	if r := join("c", "", 10); !errors.Is(r.Err, ErrMaxSize) {
		t.Errorf("third member: %v", r.Err)
	}
	if r := join("c", "", 1001); !errors.Is(r.Err, ErrInvalidRequest) {
		t.Errorf("large metadata: %v", r.Err)
	}
	w.Sync(SyncRequest{Group: "c", Assignments: []MemberAssignment{{Assignment: make([]byte, 1001)}}}, func(r SyncResult) {
		if !errors.Is(r.Err, ErrInvalidRequest) {
			t.Errorf("large assignments: %v", r.Err)
		}
	})
	beat := func(group, member string, topics ...string) error {
		return w.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: group, MemberID: member, Rebalance: time.Second, Topics: topics}).Err
	}
	for i, want := range []error{nil, nil, ErrMaxSize} {
		if err := beat("h", fmt.Sprint(i), "t"); !errors.Is(err, want) {
			t.Errorf("consumer %d: %v", i, err)
		}
	}
	if err := beat("h", "0", strings.Repeat("t", 1001)); !errors.Is(err, ErrInvalidRequest) {
		t.Errorf("large subscription: %v", err)
	}
	regex := strings.Repeat("t", maxRegexBytes+1)
	if err := w.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: "h", MemberID: "0", MemberEpoch: 2, Regex: &regex}).Err; !errors.Is(err, ErrInvalidRegex) {
		t.Errorf("large pattern: %v", err)
	}
	w.CommitOffsets(admin("o", OffsetCommit{TopicPartition: w.tp("t", 0), Metadata: "1234"}), func(r CommitResult) {
		if !errors.Is(r.Partitions[0], ErrOffsetMetadataTooLarge) {
			t.Errorf("large offset metadata: %v", r)
		}
	})
	if err := beat("one more", "0", "t"); !errors.Is(err, ErrMaxSize) {
		t.Errorf("fourth group: %v", err)
	}
	w.settle()
	w.expire() // "o" has nothing to keep
	if err := beat("one more", "0", "t"); err != nil {
		t.Errorf("a group after one went: %v", err)
	}
}

// TestRefusedRequestsLeaveNoGroup: a group begins with the first request that
// is accepted.
func TestRefusedRequestsLeaveNoGroup(t *testing.T) {
	w := newWorld(t, nil)
	w.Join(JoinRequest{Group: "g", Session: time.Hour}, func(JoinResult) {})
	bad := "("
	w.ConsumerHeartbeat(ConsumerHeartbeatRequest{Group: "g", MemberID: "m", Rebalance: time.Second, Regex: &bad})
	w.CommitOffsets(CommitRequest{Group: "g", MemberID: "m", Generation: 3}, func(CommitResult) {})
	w.FetchOffsets(FetchRequest{Group: "g", All: true})
	if l := w.List(); len(l) != 0 {
		t.Errorf("%+v", l)
	}
}

// TestBytesAreCopied: callers read requests into buffers that they use again.
func TestBytesAreCopied(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.InitialRebalanceDelay = 0 })
	metadata, share := subscription("t"), assignment("t", 1)
	var joined JoinResult
	w.Join(JoinRequest{
		Group: "g", Session: 10 * time.Second, ProtocolType: "consumer", Protocols: []Protocol{{Name: "range", Metadata: metadata}},
	}, func(r JoinResult) { joined = r })
	w.Sync(SyncRequest{Group: "g", MemberID: joined.MemberID, Generation: 1, Assignments: []MemberAssignment{{joined.MemberID, share}}}, func(SyncResult) {})
	clear(metadata)
	clear(share)
	d, err := w.Describe("g")
	if err != nil || len(d.Members) != 1 || fmt.Sprint(d.Members[0].Subscribed) != "[t]" || len(d.Members[0].Assigned) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := testConfig(tick.NewManual(epoch0))
	if err := good.validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Config){
		"no clock":                 func(c *Config) { c.Clock = nil },
		"sessions upside down":     func(c *Config) { c.MaxSession = c.MinSession - 1 },
		"negative delay":           func(c *Config) { c.InitialRebalanceDelay = -1 },
		"no members":               func(c *Config) { c.MaxSize = 0 },
		"session before heartbeat": func(c *Config) { c.ConsumerSession = c.ConsumerHeartbeat },
		"no retention":             func(c *Config) { c.OffsetsRetention = 0 },
	} {
		c := good
		change(&c)
		if _, err := New(c, newMemOffsets(), newMemTopics()); lattice.KindOf(err) != lattice.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
