package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	lattice "github.com/lattice-log/lattice"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// GroupConsumerOptions says what a GroupConsumer reads. Group and Topic are required.
type GroupConsumerOptions struct {
	Group string
	Topic string
	// From is where to begin in partitions for which nothing is committed.
	From Position
	// Follow waits for records that come later; see ConsumerOptions.
	Follow bool
	// CommitEvery is how often Next commits what was handed out before it. 0:
	// five seconds; negative: only Commit commits.
	CommitEvery time.Duration
	// InstanceID makes a static member: its partitions wait for it while it restarts.
	InstanceID string
	// ClientID is for people, in the group's description.
	ClientID string
	// Assigned is called when the member's partitions changed, from inside Next.
	Assigned func(partitions []int32)
	// Skipped, CaughtUp and Retrying are as in ConsumerOptions.
	Skipped  func(partition int32, from, to int64)
	CaughtUp func()
	Retrying func(error)
}

// GroupConsumer reads a topic together with the other members of its group, as
// any Kafka consumer of the newer protocol (KIP-848) would, and with them: each
// partition is read by one member. A record counts as done when Next is called
// again. After a crash the records since the last commit come a second time.
// Not safe for concurrent use.
type GroupConsumer struct {
	c      *Client
	o      GroupConsumerOptions
	m      *member
	ctx    context.Context
	cancel context.CancelFunc

	reader    *Consumer
	positions map[int32]int64 // of the partitions held
	committed map[int32]int64
	nextTime  time.Time // of the commit after the last one
	err       error
}

// GroupConsumer joins a group. It lives until ctx ends or Close is called; a
// member that just stops is missed after the group's session timeout.
func (c *Client) GroupConsumer(ctx context.Context, o GroupConsumerOptions) (*GroupConsumer, error) {
	setDefault(&o.CommitEvery, 5*time.Second)
	t, err := c.Topic(ctx, o.Topic)
	if err != nil {
		return nil, fmt.Errorf("group %s: %w", o.Group, err)
	}
	o.Topic = t.Name
	g := &GroupConsumer{c: c, o: o, positions: map[int32]int64{}, committed: map[int32]int64{}, nextTime: time.Now().Add(o.CommitEvery)}
	g.ctx, g.cancel = context.WithCancel(ctx)
	if g.m, err = c.join(g.ctx, o); err != nil {
		g.cancel()
		return nil, err
	}
	return g, nil
}

// Next returns the next record; its bytes are valid until the following Next.
// io.EOF: without Follow, everything in the member's partitions was read.
func (g *GroupConsumer) Next() (Record, error) {
	for g.err == nil {
		if g.o.CommitEvery > 0 && time.Now().After(g.nextTime) {
			g.nextTime = time.Now().Add(g.o.CommitEvery)
			// Tried again after the next interval: what is not committed is read again.
			if err := g.Commit(g.ctx); err != nil && g.o.Retrying != nil {
				g.o.Retrying(err)
			}
		}
		if err := g.arrange(); err != nil {
			g.err = err
			break
		}
		rec, err := g.reader.Next()
		switch {
		case err == nil:
			return rec, nil
		case g.m.changing() && g.ctx.Err() == nil:
			continue // the reader was stopped to make way
		default:
			g.err = err
		}
	}
	return Record{}, g.err
}

// All yields records until the end or an error, which is the last thing it yields.
func (g *GroupConsumer) All() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			rec, err := g.Next()
			if err == io.EOF {
				return
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

// Pending reports that Next has a record at hand; see Consumer.Pending.
func (g *GroupConsumer) Pending() bool { return g.reader != nil && g.reader.Pending() }

// Partitions returns the partitions that the member reads now.
func (g *GroupConsumer) Partitions() []int32 { return slices.Sorted(maps.Keys(g.positions)) }

// Commit stores how far the member is: everything that Next returned is done.
// While the node is away it is tried again, for half a minute. Kind Fenced: the
// member was too long away and lost its partitions. Then the records since the
// last commit come again, here or elsewhere; Next goes on.
func (g *GroupConsumer) Commit(ctx context.Context) error {
	g.remember()
	req := &pb.GroupServiceCommitRequest{Store: g.c.store, Group: g.o.Group}
	for p, offset := range g.positions {
		if g.committed[p] != offset {
			req.Offsets = append(req.Offsets, &pb.GroupServiceCommitRequest_Offset{Topic: g.o.Topic, Partition: p, Offset: offset})
		}
	}
	if len(req.Offsets) == 0 {
		return nil
	}
	begun, pause := time.Now(), 50*time.Millisecond
	for fenced := 0; ; {
		req.MemberId, req.MemberEpoch = g.m.identity()
		_, err := g.c.groups.Commit(ctx, req)
		if err == nil {
			for _, o := range req.Offsets {
				g.committed[o.Partition] = o.Offset
			}
			return nil
		}
		err = fmt.Errorf("commit: %w", err)
		switch {
		case lattice.KindOf(err) == lattice.Fenced && fenced < 3:
			fenced++ // the epoch moves when others come and go; the next try has the new one
		case retriable(err) && time.Since(begun) < giveUp:
			if g.o.Retrying != nil {
				g.o.Retrying(err)
			}
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// Close commits, unless CommitEvery is negative, and leaves the group.
func (g *GroupConsumer) Close(ctx context.Context) error {
	var err error
	if g.o.CommitEvery > 0 {
		err = g.Commit(ctx)
	}
	if g.reader != nil {
		err = errors.Join(err, g.reader.Close())
	}
	g.cancel()
	if g.err == nil {
		g.err = lattice.E(lattice.Conflict, fmt.Errorf("group %s: the consumer is closed", g.o.Group))
	}
	return errors.Join(err, g.m.leave(ctx))
}

// remember takes over the reader's positions.
func (g *GroupConsumer) remember() {
	if g.reader != nil {
		g.positions = g.reader.Positions()
	}
}

// arrange makes the reader fit the assignment, and waits while there is none.
func (g *GroupConsumer) arrange() error {
	for g.reader == nil || g.m.changing() {
		partitions, err := g.m.take(g.ctx, !g.o.Follow)
		if err != nil {
			return err
		}
		g.remember()
		if g.reader != nil && g.o.CommitEvery > 0 {
			// Others begin where this commit says. If it fails they begin earlier.
			if err := g.Commit(g.ctx); err != nil && g.o.Retrying != nil {
				g.o.Retrying(err)
			}
		}
		if g.reader != nil {
			_ = g.reader.Close() // cut short on purpose
			g.reader = nil
		}
		if err := g.seat(partitions); err != nil {
			return err
		}
		g.m.hold(partitions)
		if g.o.Assigned != nil {
			g.o.Assigned(partitions)
		}
		if len(partitions) == 0 {
			continue
		}
		ctx := g.m.untilChange(g.ctx)
		g.reader, err = g.c.Consumer(ctx, ConsumerOptions{
			Topic: g.o.Topic, Partitions: partitions, Starts: g.positions, Follow: g.o.Follow, SkipExpired: true,
			Skipped: g.o.Skipped, CaughtUp: g.o.CaughtUp, Retrying: g.o.Retrying,
		})
		if err != nil && !g.m.changing() {
			return err
		}
	}
	return nil
}

// seat sets the positions for exactly these partitions: where we are, else what
// the group committed, else From.
func (g *GroupConsumer) seat(partitions []int32) error {
	seats := map[int32]int64{}
	var fresh []int32
	for _, p := range partitions {
		if at, ok := g.positions[p]; ok {
			seats[p] = at
		} else {
			fresh = append(fresh, p)
			delete(g.committed, p)
		}
	}
	if len(fresh) > 0 {
		d, err := g.c.Group(g.ctx, g.o.Group)
		if err != nil {
			return err
		}
		for _, o := range d.Offsets {
			if o.Topic == g.o.Topic && o.Committed >= 0 && slices.Contains(fresh, o.Partition) {
				seats[o.Partition], g.committed[o.Partition] = o.Committed, o.Committed
			}
		}
		fresh = slices.DeleteFunc(fresh, func(p int32) bool { _, ok := seats[p]; return ok })
	}
	if len(fresh) > 0 {
		offsets, err := g.c.Offsets(g.ctx, g.o.Topic, g.o.From, fresh...)
		if err != nil {
			return fmt.Errorf("group %s: %w", g.o.Group, err)
		}
		for _, o := range offsets {
			seats[o.Partition] = o.Offset
		}
	}
	g.positions = seats
	return nil
}
