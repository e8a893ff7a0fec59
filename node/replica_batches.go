package node

import (
	"context"
	"fmt"
	"maps"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/batches"
)

// Partitions implements p2p.Partitions.
func (r *replica) Partitions() []batches.Have {
	var out []batches.Have
	for _, t := range r.st.Topics() {
		for n := range t.Partitions {
			if h, ok := r.Partition(lattice.TopicPartition{Topic: t.ID, Partition: n}); ok {
				out = append(out, h)
			}
		}
	}
	return out
}

// Partition implements p2p.Partitions. A store's internal topic is each node's own. One
// that could not be opened yet has nothing.
func (r *replica) Partition(id lattice.TopicPartition) (batches.Have, bool) {
	t, ok := r.st.TopicByID(id.Topic)
	if !ok || t.Internal || id.Partition < 0 || id.Partition >= t.Partitions {
		return batches.Have{}, false
	}
	h := batches.Have{Partition: id, Leader: t.Leader}
	if p, err := r.st.Partition(id.Topic, id.Partition); err == nil {
		h.Where, h.Leader, h.Cuts = whereIs(p), p.Leader(), p.Cuts()
		if h.Leader == r.st.Info().Node && !p.Leads() { // it is to lead: what it lacks, anybody may have
			h.Leader = lattice.NodeID{}
		}
	}
	return h, true
}

// whereIs is where a partition's log is. What a follower has beyond the newest
// checkpoint that is here whole it can prove to nobody. A checkpoint that comes between
// the two questions is of no more than is there at the second.
func whereIs(p *partition.Partition) batches.Where {
	var at batches.Where
	if c, ok, err := p.Checkpoint(context.Background(), false); ok && err == nil {
		at.Proven, at.Root = c.Size, c.Root
	}
	at.Size = max(p.Next(), at.Proven)
	return at
}

// ReadSpan implements p2p.Partitions.
func (r *replica) ReadSpan(_ context.Context, id lattice.TopicPartition, from uint64, max int) (s span.Span, first uint64, err error) {
	p, err := r.st.Partition(id.Topic, id.Partition)
	if err != nil {
		return s, 0, fmt.Errorf("read a span of %s: %w", id, err)
	}
	s, err = p.ReadSpan(from, max)
	switch {
	case err == nil:
	case lattice.KindOf(err) == lattice.NotYet:
		return span.Span{}, 0, nil
	case lattice.KindOf(err) == lattice.OutOfRange:
		return span.Span{}, s.From, err
	}
	return s, 0, err
}

// ReceiveSpan implements p2p.Partitions.
func (r *replica) ReceiveSpan(_ context.Context, s span.Span) (batches.Where, error) {
	p, err := r.st.Partition(s.Partition.Topic, s.Partition.Partition)
	if err != nil {
		return batches.Where{}, fmt.Errorf("receive a span of %s: %w", s.Partition, err)
	}
	_, err = p.Receive(s)
	return whereIs(p), err
}

// Acks implements p2p.Acknowledged.
func (r *replica) Acks(id lattice.TopicPartition) []batches.Ack {
	p, err := r.st.Partition(id.Topic, id.Partition)
	if err != nil {
		return nil
	}
	var out []batches.Ack
	for _, a := range p.Acks() {
		out = append(out, batches.Ack{Partition: id, By: a.By, Note: a.Note})
	}
	return out
}

// TakeAck implements p2p.Acknowledged.
func (r *replica) TakeAck(_ context.Context, id lattice.TopicPartition, note []byte) error {
	p, err := r.st.Partition(id.Topic, id.Partition)
	if err != nil {
		return fmt.Errorf("take an acknowledgement of %s: %w", id, err)
	}
	return p.TakeAck(note)
}

// WatchPartitions implements p2p.Partitions.
func (r *replica) WatchPartitions(changed func(lattice.TopicPartition)) (stop func()) {
	w := &partitionWatch{st: r.st, changed: changed, wake: make(chan struct{}, 1), done: make(chan struct{}), known: map[lattice.TopicPartition]watched{}}
	w.look()
	unwatch := r.st.WatchTopics(w.again)
	w.again() // for what came before that
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.run()
	}()
	return func() {
		unwatch()
		close(w.done)
		<-ended
	}
}

// partitionWatch follows each partition of a store, as they come and go. Its loop
// takes changes of topics together, so that a thousand new ones are looked at a few times.
type partitionWatch struct {
	st      *store.Store
	changed func(lattice.TopicPartition)
	wake    chan struct{} // one place: topics have changed
	done    chan struct{}

	// What follows is the loop's, and before it runs whoever starts it.
	known map[lattice.TopicPartition]watched
}

// watched is a partition that is followed, as it was opened; nil: it was not yet.
type watched struct {
	p      *partition.Partition
	cancel func()
}

func (w *partitionWatch) again() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

const (
	lookPause   = 20 * time.Millisecond
	unopenPause = time.Second // a partition that could not be opened is looked for again
)

func (w *partitionWatch) run() {
	retry := time.NewTicker(unopenPause)
	defer retry.Stop()
	defer func() {
		for _, x := range w.known {
			if x.cancel != nil {
				x.cancel()
			}
		}
	}()
	waits := true // for one to be opened
	for {
		select {
		case <-w.done:
			return
		case <-w.wake:
		case <-retry.C:
			if !waits {
				continue
			}
		}
		waits = w.look()
		select {
		case <-w.done:
			return
		case <-time.After(lookPause):
		}
	}
}

// look follows partitions that came, and lets go of those that went. It reports
// whether one is not open.
func (w *partitionWatch) look() (waits bool) {
	gone := maps.Clone(w.known)
	for _, t := range w.st.Topics() {
		for n := range t.Partitions {
			if t.Internal {
				continue
			}
			id := lattice.TopicPartition{Topic: t.ID, Partition: n}
			p, err := w.st.Partition(t.ID, n)
			old, ok := w.known[id]
			delete(gone, id)
			waits = waits || err != nil
			if ok && old.p == p {
				continue
			}
			if old.cancel != nil {
				old.cancel()
			}
			x := watched{p: p}
			if p != nil {
				x.cancel = p.Follow(func() { w.changed(id) })
			}
			w.known[id] = x
			w.changed(id)
		}
	}
	for id, x := range gone {
		if x.cancel != nil {
			x.cancel()
		}
		delete(w.known, id)
		w.changed(id)
	}
	return waits
}
