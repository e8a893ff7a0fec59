package clients

import (
	"testing"

	"github.com/lattice-log/lattice/internal/testkit/realnode"
)

// idempotent: answers to writes are lost on the way, so that clients write
// again what is there already. It is there once, and in order.
func (b *bench) idempotent(t *testing.T) {
	b.each(t, func(t *testing.T, c client) {
		lossy := newLossy(t)
		n := realnode.Start(t, b.bin, t.TempDir(), append([]string{"--advertise", lossy.addr()}, keepOld...)...)
		lossy.to(n.Kafka)
		topic := name("lossy", c.name)
		makeTopic(t, lossy.addr(), topic, partitions)
		sent := c.sample("lz4", 1500)
		acked := c.produce(t, lossy.addr(), topic, "lz4", sent)
		there := observe(t, lossy.addr(), topic)
		stored := make([]record, len(there))
		for i, s := range there {
			stored[i] = s.record
		}
		checkInOrder(t, c.name, stored, sent)
		if acked != nil {
			checkSame(t, c.name, stored, acked)
		}
		if lost := lossy.lost.Load(); lost < 3 {
			t.Errorf("only %d answers were lost: that tests nothing", lost)
		}
	})
}
