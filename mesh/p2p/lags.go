package p2p

import (
	"context"
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/lag"
)

// Lacking is what a node lacks of what is here, as far as is known.
type Lacking struct {
	Known  bool      // it was compared with since this node began
	Logs   int       // of which it lacks something
	Blocks uint64    // entries, or batches, that it lacks in all
	Since  time.Time // when that began; zero: it lacks nothing
	More   bool      // it lacks more logs than are counted
}

// LogLag is a log of which a node lacks something: a writer's, or a partition.
type LogLag struct {
	Writer    state.Writer           // zero: it is a partition
	Partition lattice.TopicPartition // if it is one
	Has, Here uint64                 // entries, or batches
	Since     time.Time              // when that began, as far as was seen here
}

// Lags are logs, and whether there are more than were asked for.
type Lags struct {
	All  []LogLag
	More bool
	// Known is false if nothing is known of any of the nodes that were asked about.
	Known bool
}

func lackingOf(s lag.Sum) Lacking {
	return Lacking{s.Known, s.Logs, s.Behind, timeAt(s.Since), s.More}
}

// timeAt is a time that is 0 for none.
func timeAt(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// errNotCarried means that a store takes no part in the mesh now. Kind Unavailable.
var errNotCarried = lattice.E(lattice.Unavailable, errors.New("the store takes no part in the mesh now"))

// query is asked of a carrier, in its loop.
type query func()

// inLoop has f called by the goroutine that owns a Replica, and returns when it was.
func inLoop(ctx context.Context, over <-chan struct{}, to chan<- query, f func()) error {
	done := make(chan struct{})
	if !hand(ctx, over, to, query(func() { f(); close(done) })) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("ask what peers lack: %w", err)
		}
		return errNotCarried
	}
	<-done
	return nil
}

// Lags returns the logs of which a node lacks most, at most n of writers and n partitions, the worst
// first. Kind Unavailable: the store takes no part now.
func (m *Mesh) Lags(ctx context.Context, store lattice.StoreID, node lattice.NodeID, n int) (Lags, error) {
	out := Lags{}
	err := m.ofReplicas(ctx, store, func(c *carrier) {
		s := c.replica.Lacks(node)
		out.Known = out.Known || s.Known
		for _, l := range c.replica.Lags(node, n) {
			out.All = append(out.All, LogLag{Writer: l.Log, Has: l.Has, Here: l.Here, Since: timeAt(l.Since)})
		}
		out.More = out.More || s.More || s.Logs > n
	}, func(c *courier) {
		s := c.replica.Lacks(node)
		out.Known = out.Known || s.Known
		for _, l := range c.replica.PeerLags(node, n) {
			out.All = append(out.All, LogLag{Partition: l.Partition, Has: l.Has, Here: l.Here, Since: timeAt(l.Since)})
		}
		out.More = out.More || s.More || s.Logs > n
	})
	return out, err
}

// Alone returns logs of which none of the nodes has all that is here: at most n of writers and n
// partitions. Has is what the one has that has most of it. A node of which nothing is known has nothing
// that others lack. Kind Unavailable: the store takes no part now.
func (m *Mesh) Alone(ctx context.Context, store lattice.StoreID, of []lattice.NodeID, n int) (Lags, error) {
	out := Lags{}
	err := m.ofReplicas(ctx, store, func(c *carrier) {
		all, more, ok := c.replica.Alone(of, n)
		for _, l := range all {
			out.All = append(out.All, LogLag{Writer: l.Log, Has: l.Has, Here: l.Here, Since: timeAt(l.Since)})
		}
		out.More, out.Known = out.More || more, out.Known || ok
	}, func(c *courier) {
		all, more, ok := c.replica.Alone(of, n)
		for _, l := range all {
			out.All = append(out.All, LogLag{Partition: l.Partition, Has: l.Has, Here: l.Here, Since: timeAt(l.Since)})
		}
		out.More, out.Known = out.More || more, out.Known || ok
	})
	return out, err
}

// ofReplicas asks both Replicas of a store, one after the other.
func (m *Mesh) ofReplicas(ctx context.Context, store lattice.StoreID, entries func(*carrier), batches func(*courier)) error {
	c := m.store(store)
	if c == nil {
		return errNotCarried
	}
	ctx, cancel := context.WithTimeout(ctx, m.c.Limits.HelloTime) // it may be between two attempts
	defer cancel()
	if err := inLoop(ctx, c.over, c.queries, func() { entries(c) }); err != nil {
		return err
	}
	if b := c.batches; b != nil {
		return inLoop(ctx, b.over, b.queries, func() { batches(b) })
	}
	return nil
}

// rate is how fast something comes, over the last seconds. The zero value has seen nothing.
type rate struct {
	at   time.Time
	have uint64
	per  float64 // a second
}

// see takes how much there is in all, about once a second.
func (r *rate) see(now time.Time, have uint64) {
	if d := now.Sub(r.at).Seconds(); !r.at.IsZero() && d > 0 {
		const weight = 0.3 // of the newest: half is of the last two seconds
		r.per += weight * (float64(have-min(have, r.have))/d - r.per)
	}
	r.at, r.have = now, have
}

// Fetching is a snapshot that is being fetched.
type Fetching struct {
	Peer        lattice.NodeID
	Bytes, Here uint64
	PerSecond   float64 // bytes, over the last seconds
	Since       time.Time
}
