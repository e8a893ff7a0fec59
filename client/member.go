package client

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	lattice "github.com/lattice-log/lattice"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// member keeps a membership alive.
type member struct {
	c    *Client
	o    GroupConsumerOptions
	kick chan struct{} // a token: beat now
	news chan struct{} // a token: the assignment, or err, changed
	done chan struct{} // closed when beating ended

	mu       sync.Mutex
	id       string
	epoch    int32
	interval time.Duration
	wanted   []int32 // what the node assigned
	changed  bool    // and nobody took it yet
	held     []int32
	tell     bool // the node must hear of held
	idle     int  // beats in a row with nothing assigned
	stop     context.CancelFunc
	err      error
}

func (c *Client) join(ctx context.Context, o GroupConsumerOptions) (*member, error) {
	m := &member{c: c, o: o, kick: make(chan struct{}, 1), news: make(chan struct{}, 1), done: make(chan struct{})}
	if err := m.beat(ctx); err != nil {
		return nil, fmt.Errorf("join group %s: %w", o.Group, err)
	}
	go m.run(ctx)
	return m, nil
}

func (m *member) run(ctx context.Context) {
	defer close(m.done)
	for {
		m.mu.Lock()
		pause := m.interval
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-m.kick:
		case <-time.After(pause):
		}
		err := m.beat(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case lattice.KindOf(err) == lattice.Fenced, lattice.KindOf(err) == lattice.NotFound:
			m.dropped()
		case !retriable(err):
			m.mu.Lock()
			m.err = fmt.Errorf("group %s: %w", m.o.Group, err)
			m.change(nil)
			m.mu.Unlock()
			return
		}
	}
}

// beat tells the node that we live, and hears what is ours.
func (m *member) beat(ctx context.Context) error {
	m.mu.Lock()
	req := &pb.GroupServiceHeartbeatRequest{
		Store: m.c.store, Group: m.o.Group, MemberId: m.id, MemberEpoch: m.epoch, ClientId: m.o.ClientID, InstanceId: m.o.InstanceID,
	}
	if m.epoch == 0 {
		req.Topics = []string{m.o.Topic}
	}
	if m.epoch == 0 || m.tell {
		req.Owned = &pb.Assignment{}
		if len(m.held) > 0 {
			req.Owned.Topics = []*pb.TopicPartitions{{Topic: m.o.Topic, Partitions: slices.Clone(m.held)}}
		}
	}
	told := slices.Clone(m.held)
	m.mu.Unlock()

	res, err := m.c.groups.Heartbeat(ctx, req)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id, m.epoch = res.MemberId, res.MemberEpoch
	m.interval = max(time.Duration(res.IntervalMs)*time.Millisecond, 50*time.Millisecond)
	if slices.Equal(told, m.held) {
		m.tell = false
	}
	if res.Assigned != nil {
		var now []int32
		for _, tp := range res.Assigned.Topics {
			if tp.Topic == m.o.Topic {
				now = append(now, tp.Partitions...)
			}
		}
		slices.Sort(now)
		if !slices.Equal(now, m.wanted) {
			m.change(now)
		}
	}
	m.idle++
	if len(m.wanted) > 0 {
		m.idle = 0
	} else {
		signal(m.news)
	}
	return nil
}

// dropped starts over after the node forgot or fenced us.
func (m *member) dropped() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch, m.held, m.tell = 0, nil, false
	m.change(nil)
	signal(m.kick)
}

// change announces an assignment. Called with the lock held.
func (m *member) change(now []int32) {
	m.wanted, m.changed = now, true
	if m.stop != nil {
		m.stop()
	}
	signal(m.news)
}

func (m *member) changing() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

func (m *member) identity() (string, int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id, m.epoch
}

// take waits for a change of the assignment and returns it. With once it ends
// with io.EOF when nothing was assigned for two beats.
func (m *member) take(ctx context.Context, once bool) ([]int32, error) {
	for {
		m.mu.Lock()
		changed, wanted, err, idle := m.changed, slices.Clone(m.wanted), m.err, m.idle
		m.changed = false
		m.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case changed:
			return wanted, nil
		case once && idle > 2:
			return nil, io.EOF
		}
		select {
		case <-ctx.Done():
			return nil, lattice.E(lattice.Unavailable, fmt.Errorf("group %s: %w", m.o.Group, context.Cause(ctx)))
		case <-m.news:
		}
	}
}

// hold says what is ours from now on, and tells the node soon.
func (m *member) hold(partitions []int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held, m.tell = slices.Clone(partitions), true
	signal(m.kick)
}

// untilChange returns a context that ends when the assignment changes.
func (m *member) untilChange(ctx context.Context) context.Context {
	ctx, stop := context.WithCancel(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stop = stop
	if m.changed {
		stop()
	}
	return ctx
}

// leave ends the beating and says goodbye. A static member keeps its seat until
// its session is over.
func (m *member) leave(ctx context.Context) error {
	<-m.done
	id, epoch := m.identity()
	if epoch <= 0 {
		return nil
	}
	goodbye := int32(-1)
	if m.o.InstanceID != "" {
		goodbye = -2
	}
	_, err := m.c.groups.Heartbeat(ctx, &pb.GroupServiceHeartbeatRequest{
		Store: m.c.store, Group: m.o.Group, MemberId: id, MemberEpoch: goodbye, InstanceId: m.o.InstanceID,
	})
	// A node that is away or has forgotten us takes us for gone anyway.
	if err != nil && !retriable(err) && lattice.KindOf(err) != lattice.Fenced {
		return fmt.Errorf("leave group %s: %w", m.o.Group, err)
	}
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
