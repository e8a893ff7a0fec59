package store_test

import (
	"errors"
	"testing"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/storage/disk"
	"github.com/lattice-log/lattice/storage/kv"
)

// TestHangingTransaction: a transaction that the catalogue has lost holds readers
// of committed records back until it is aborted by hand, and one that it knows
// cannot be.
func TestHangingTransaction(t *testing.T) {
	mem := disk.NewMem()
	n := enginetest.New(t, mem)
	topic := n.Topic("t", 1)
	lost, known := n.Producer("lost"), n.Producer("known")
	if _, err := lost.Put(topic, 0, "lost"); err != nil {
		t.Fatal(err)
	}
	id := n.Info().ID
	n.Stop()
	db, err := kv.Open(mem, enginetest.Dir+"/stores/"+id.String()+"/kv", kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := db.Batch()
	b.Delete([]byte("xlost"))
	if err := errors.Join(db.Commit(b, true), db.Close()); err != nil {
		t.Fatal(err)
	}
	n.Start()
	p := n.Part(topic, 0)
	if _, err := known.Put(topic, 0, "known"); err != nil {
		t.Fatal(err)
	}
	n.Put(p, record.None, "plain")
	abort := func(as *enginetest.Producer, epoch int16) error {
		done := make(chan error, 1)
		p.Abort(as.Producer, epoch, func(err error) { done <- err })
		return <-done
	}
	see := func(want ...string) {
		t.Helper()
		var got []string
		for _, r := range n.ReadCommitted(p) {
			got = append(got, string(r.Value))
		}
		if len(got) != len(want) || len(got) > 0 && got[0] != want[0] {
			t.Fatalf("committed: %q, want %q", got, want)
		}
	}
	see()
	if err := abort(known, known.Epoch); !errors.Is(err, partition.ErrTransaction) {
		t.Errorf("one that its coordinator knows: %v", err)
	}
	if err := abort(lost, lost.Epoch-1); !errors.Is(err, partition.ErrProducerEpoch) {
		t.Errorf("an epoch before its own: %v", err)
	}
	if err := abort(lost, lost.Epoch); err != nil {
		t.Fatal(err)
	}
	see() // the other one is still open
	end := p.Bounds().End
	if err := abort(lost, lost.Epoch); err != nil || p.Bounds().End != end {
		t.Errorf("once more: %v, end %d, want %d", err, p.Bounds().End, end)
	}
	if err := known.End(true); err != nil {
		t.Fatal(err)
	}
	see("known", "plain")
	n.Restart()
	p = n.Part(topic, 0)
	see("known", "plain")
}
