package kafka

import (
	"context"
	"fmt"
	mrand "math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// tried is what members of a share group were told of each record, over all crashes.
type tried struct {
	mu        sync.Mutex
	delivered map[lattice.TopicPartition]map[int64]int
	accepted  map[lattice.TopicPartition]map[int64]bool
	again     []string // records that came after they were accepted
}

// TestShareGroupThroughCrashes lets three members take and accept the records of two
// partitions, some of which they release, while power is cut again and again: what a
// member was told is accepted never comes again, and everything comes.
func TestShareGroupThroughCrashes(t *testing.T) {
	c := newCrashing(t)
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
	defer cancel()
	topic := c.prepareShares(t, 2, 1500)
	world := &tried{delivered: map[lattice.TopicPartition]map[int64]int{}, accepted: map[lattice.TopicPartition]map[int64]bool{}}
	for p := range int32(2) {
		tp := lattice.TopicPartition{Topic: topic.ID, Partition: p}
		world.delivered[tp], world.accepted[tp] = map[int64]int{}, map[int64]bool{}
	}
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	addr := c.addr // each start sets it again, to the same
	for i := range 3 {
		wg.Go(func() {
			rng := mrand.New(mrand.NewPCG(7, uint64(i)))
			for work.Err() == nil {
				world.session(work, addr, topic, fmt.Sprint("member-", i), rng)
			}
		})
	}
	rng := mrand.New(mrand.NewPCG(1, 2))
	crashes := 0
	for ; ctx.Err() == nil && (world.left(1500) > 0 || crashes < 3); crashes++ {
		time.Sleep(time.Duration(50+rng.IntN(150)) * time.Millisecond)
		if crashes < 12 {
			c.crash(rng)
		}
	}
	stop()
	wg.Wait()
	if left := world.left(1500); left > 0 || len(world.again) > 0 {
		t.Errorf("%d records were not accepted; accepted and delivered again: %v", left, world.again)
	}
}

// prepareShares makes a topic with n records in each partition, and a group that
// begins with the first and delivers as often as it takes.
func (c *crashing) prepareShares(t *testing.T, partitions int32, n int) store.Topic {
	t.Helper()
	f := &fixture{t: t, addr: c.addr}
	cl := f.dial()
	create := newReq[*kmsg.CreateTopicsRequest](7)
	create.TimeoutMillis = 10_000
	create.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: partitions, ReplicationFactor: 1}}
	r := ask[*kmsg.CreateTopicsResponse](cl, create)
	if r.Topics[0].ErrorCode != 0 {
		t.Fatalf("%+v", r.Topics[0])
	}
	topic := store.Topic{Name: "t", ID: r.Topics[0].TopicID}
	for p := range partitions {
		for i := 0; i < n; i += 5 {
			cl.produce(topic, 9, p, batch(record.None, "1", "2", "3", "4", "5"))
		}
	}
	s := &sharer{client: cl, group: "g"}
	s.set("share.auto.offset.reset", "earliest")
	s.set("share.delivery.count.limit", "10")
	s.set("share.record.lock.duration.ms", "1000")
	return topic
}

// left returns how many records nobody was told are accepted. A record that was
// delivered ten times is archived: nobody is to be told of it any more.
func (w *tried) left(n int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := 0
	for tp, accepted := range w.accepted {
		for o := range n {
			if !accepted[o] && w.delivered[tp][o] < 10 {
				left++
			}
		}
	}
	return left
}

// session is a member's connection: join, fetch, acknowledge, until something fails.
func (w *tried) session(ctx context.Context, addr string, topic store.Topic, member string, rng *mrand.Rand) {
	nc, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		time.Sleep(5 * time.Millisecond)
		return
	}
	defer nc.Close()
	cl := &quiet{Conn: nc}
	group := "g"
	beat := newReq[*kmsg.ShareGroupHeartbeatRequest](1)
	beat.GroupID, beat.MemberID, beat.SubscribedTopicNames = group, member, []string{topic.Name}
	if cl.ask(beat) == nil {
		return
	}
	for epoch := int32(0); ctx.Err() == nil; epoch++ {
		req := newReq[*kmsg.ShareFetchRequest](2)
		req.GroupID, req.MemberID, req.ShareSessionEpoch = &group, &member, epoch
		req.MinBytes, req.MaxBytes, req.MaxRecords, req.MaxWaitMillis = 1, 1<<20, 40, 100
		if epoch == 0 {
			in := kmsg.NewShareFetchRequestTopic()
			in.TopicID = topic.ID
			in.Partitions = []kmsg.ShareFetchRequestTopicPartition{{Partition: 0}, {Partition: 1}}
			req.Topics = append(req.Topics, in)
		}
		resp, ok := cl.ask(req).(*kmsg.ShareFetchResponse)
		if !ok || resp.ErrorCode != 0 {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if epoch++; !w.answer(cl, group, member, epoch, lattice.TopicPartition{Topic: topic.ID, Partition: p.Partition}, p.AcquiredRecords, rng) {
					return
				}
			}
		}
	}
}

// answer notes what a member got, and accepts most of it. It reports whether the
// session goes on.
func (w *tried) answer(cl *quiet, group, member string, epoch int32, tp lattice.TopicPartition, runs []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord, rng *mrand.Rand) bool {
	req := newReq[*kmsg.ShareAcknowledgeRequest](2)
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &group, &member, epoch
	part := kmsg.NewShareAcknowledgeRequestTopicPartition()
	part.Partition = tp.Partition
	var accepts []int64
	w.mu.Lock()
	for _, run := range runs {
		a := kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{FirstOffset: run.FirstOffset, LastOffset: run.LastOffset}
		for o := run.FirstOffset; o <= run.LastOffset; o++ {
			w.delivered[tp][o]++
			if w.accepted[tp][o] {
				w.again = append(w.again, fmt.Sprintf("%d/%d", tp.Partition, o))
			}
			kind := int8(1)
			if rng.IntN(20) == 0 {
				kind = 2
			} else {
				accepts = append(accepts, o)
			}
			a.AcknowledgeTypes = append(a.AcknowledgeTypes, kind)
		}
		part.AcknowledgementBatches = append(part.AcknowledgementBatches, a)
	}
	w.mu.Unlock()
	topic := kmsg.NewShareAcknowledgeRequestTopic()
	topic.TopicID = tp.Topic
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp, ok := cl.ask(req).(*kmsg.ShareAcknowledgeResponse)
	if !ok || resp.ErrorCode != 0 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range accepts {
		w.accepted[tp][o] = true
	}
	return true
}

// quiet is a client for which a connection that ends is no failure.
type quiet struct {
	net.Conn
	corr int32
}

// ask sends a request and returns its answer, nil if there is none.
func (q *quiet) ask(req kmsg.Request) kmsg.Response {
	q.corr++
	if err := q.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return nil
	}
	if _, err := q.Write(frame(req, q.corr)); err != nil {
		return nil
	}
	b, err := (&client{Conn: q.Conn}).readFrame()
	if err != nil || len(b) < 5 {
		return nil
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	if err := resp.ReadFrom(slices.Clone(b[5:])); err != nil {
		return nil
	}
	return resp
}
