package p2p

import (
	"context"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/batches"
)

// Acknowledged is Partitions whose members acknowledge what they hold. What holds for the
// methods of Store holds for these.
type Acknowledged interface {
	Partitions

	// Acks returns the newest acknowledgement of each member, from memory. When there is
	// a newer one, WatchPartitions tells of the partition.
	Acks(p lattice.TopicPartition) []batches.Ack

	// TakeAck verifies an acknowledgement, of which nothing is believed, and keeps it.
	// Kinds: Corrupt (forged, or it contradicts its term), Denied (by no member of the
	// set), Fenced (an old one), NotYet (of a term that is not known yet), Diverged.
	TakeAck(ctx context.Context, p lattice.TopicPartition, note []byte) error
}

// ackTaken is what became of one.
type ackTaken struct {
	batches.Heard
	err error
}

// takeAcks begins the work of a courier whose store acknowledges.
func (c *courier) takeAcks(ctx context.Context, spawn func(func())) {
	store, ok := c.store.(Acknowledged)
	if !ok {
		return
	}
	c.acking = newLoading[batches.Heard](c.mesh.c.Limits.Readers)
	for range c.mesh.c.Limits.Readers {
		spawn(func() {
			c.acking.run(ctx, func(h batches.Heard) bool {
				return give(ctx, c.acked, ackTaken{h, store.TakeAck(ctx, h.Partition, h.Note)})
			})
		})
	}
	for _, h := range store.Partitions() {
		c.tellAcks(h.Partition)
	}
}

// tellAcks tells which acknowledgements of a partition there are.
func (c *courier) tellAcks(p lattice.TopicPartition) {
	if store, ok := c.store.(Acknowledged); ok {
		c.do(c.replica.Told(p, store.Acks(p), c.mesh.now()))
	}
}
