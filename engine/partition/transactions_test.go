package partition

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/lattice-log/lattice/core/record"
)

// TestTransactionsInALog is a transcript of one partition's transactions: what is
// written, and where the first offset of unknown fate is.
func TestTransactionsInALog(t *testing.T) {
	ps := newProducers()
	batch := func(id int64, seq int32, at int64) {
		t.Helper()
		h := inTxn(head(id, 0, seq, 1, at))
		if was, err := ps.check(h); was != nil || err != nil {
			t.Fatalf("producer %d, sequence %d: %v, %v", id, seq, was, err)
		}
		ps.wrote(h)
	}
	unstable := func(committed, want int64) {
		t.Helper()
		if got := ps.txns.seen(committed); got != want {
			t.Errorf("committed %d: unstable from %d, want %d", committed, got, want)
		}
	}
	unstable(0, never)
	batch(1, 0, 10)
	batch(2, 0, 11)
	batch(1, 1, 12)
	unstable(13, 10)
	if _, err := ps.check(head(1, 0, 2, 1, 13)); !errors.Is(err, ErrTransaction) {
		t.Errorf("a batch outside of its producer's transaction: %v", err)
	}
	ps.ended(marker(1, 0, 13), true)
	unstable(13, 10) // nobody can see the marker yet
	unstable(14, 11)
	ps.ended(marker(1, 0, 14), true) // ends nothing
	unstable(14, 11)
	ps.expire(math.MaxInt64)
	if len(ps.byID) != 1 {
		t.Errorf("%d producers are left, want the one with a transaction", len(ps.byID))
	}
	ps.ended(marker(2, 1, 15), false)
	unstable(16, never)
	if _, err := ps.check(inTxn(head(2, 0, 1, 1, 16))); !errors.Is(err, ErrProducerEpoch) {
		t.Errorf("a batch of the epoch that the marker ended: %v", err)
	}
	batch2 := inTxn(head(2, 1, 0, 1, 16))
	if was, err := ps.check(batch2); was != nil || err != nil {
		t.Errorf("the first batch of the marker's epoch: %v, %v", was, err)
	}
	if got := ps.txns.within(0, 100); len(got) != 1 || got[0].First != 11 || got[0].Marker != 15 {
		t.Errorf("aborted: %+v", got)
	}
	ps.txns.drop(15)
	if len(ps.txns.aborted) != 1 {
		t.Error("an aborted transaction was forgotten with its marker still here")
	}
	ps.txns.drop(16)
	if len(ps.txns.aborted) != 0 {
		t.Error("an aborted transaction outlives its marker")
	}
}

// TestAbortedWithin compares the answer for any range with a walk through all
// transactions, over snapshots.
func TestAbortedWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ps := newProducers()
		var all []Aborted
		next, seq := int64(0), map[int64]int32{}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			id := int64(rapid.IntRange(1, 4).Draw(t, "producer"))
			first, open := ps.txns.open[id]
			switch rapid.IntRange(0, 3).Draw(t, "do") {
			case 0, 1:
				n := int32(rapid.IntRange(1, 4).Draw(t, "count"))
				ps.wrote(inTxn(head(id, 0, seq[id], n, next)))
				seq[id] += n
				next += int64(n)
			case 2:
				commit := rapid.Bool().Draw(t, "commit")
				if open && !commit {
					all = append(all, Aborted{ProducerID: id, First: first, Marker: next})
				}
				ps.ended(marker(id, 0, next), commit)
				next++
			case 3:
				ps.txns.seen(next)
				again, at, err := parseProducers(ps.snapshot(next))
				if err != nil || at != next || !reflect.DeepEqual(again, ps) {
					t.Fatalf("snapshot: %v, %d, %+v, want %+v", err, at, again, ps)
				}
				ps = again
			}
		}
		from := rapid.Int64Range(0, next).Draw(t, "from")
		to := rapid.Int64Range(from, next).Draw(t, "to")
		var want []int64
		for _, a := range all {
			if a.Marker >= from && a.First < to {
				want = append(want, a.First)
			}
		}
		slices.Sort(want)
		var got []int64
		for _, a := range ps.txns.within(from, to) {
			got = append(got, a.First)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("aborted in [%d, %d): %v, want %v of %+v", from, to, got, want, all)
		}
		if first := ps.txns.seen(next); first != ps.txns.firstOpen() {
			t.Fatalf("unstable from %d, the first open one begins at %d", first, ps.txns.firstOpen())
		}
	})
}

func TestFoldOfStoredBytes(t *testing.T) {
	ps := newProducers()
	b := record.NewBuilder(record.None, 0)
	b.Add(5, []byte("k"), []byte("v"), nil)
	data := b.Build(nil)
	record.SetProducer(data, 7, 1, 0)
	record.SetTransactional(data)
	record.Place(data, 4, 1)
	end := record.Marker{ProducerID: 7, Epoch: 1}.AppendTo(nil)
	record.Place(end, 5, 1)
	if err := errors.Join(ps.fold(data), ps.fold(end)); err != nil {
		t.Fatal(err)
	}
	if got := ps.txns.within(0, 10); len(got) != 1 || got[0].First != 4 || got[0].Marker != 5 || len(ps.txns.open) != 0 {
		t.Errorf("aborted %+v, open %v", got, ps.txns.open)
	}
	aborted := InAborted(ps.txns.aborted)
	h, _ := record.ParseHeader(data)
	m, _ := record.ParseHeader(end)
	if !aborted(h) || aborted(m) {
		t.Errorf("the batch is aborted: %v, the marker: %v", aborted(h), aborted(m))
	}
}
