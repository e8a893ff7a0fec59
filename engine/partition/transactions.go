package partition

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/lattice-log/lattice/core/record"
)

// transactions is what the batches and markers of a partition say of transactions.
//
// A transaction is open in a partition from its first batch to its marker. Readers
// who want committed records only stop before the first batch of the oldest open
// one, the last stable offset, and pass over the batches of aborted ones, which
// they are told of.
type transactions struct {
	open    map[int64]int64 // producer -> offset of the transaction's first batch
	ending  []ending        // markers that readers may not see yet; rising
	aborted []Aborted       // by rising marker
}

// ending is a transaction whose marker is written but perhaps not committed.
type ending struct{ first, marker int64 }

// Aborted is an aborted transaction.
type Aborted struct {
	ProducerID int64
	First      int64 // offset of its first batch
	Marker     int64 // offset of the marker that ended it
	settled    int64 // when it was written, no other was open below: later ones begin here or above
}

// never stands for an offset that no record has.
const never = math.MaxInt64

// wrote notes a batch of a transaction.
func (t *transactions) wrote(h record.Header) {
	if _, open := t.open[h.ProducerID]; !open {
		t.open[h.ProducerID] = h.BaseOffset
	}
}

// ended notes a marker. One that ends nothing here changes nothing.
func (t *transactions) ended(h record.Header, commit bool) {
	first, open := t.open[h.ProducerID]
	if !open {
		return
	}
	delete(t.open, h.ProducerID)
	t.ending = append(t.ending, ending{first, h.LastOffset()})
	if !commit {
		t.aborted = append(t.aborted, Aborted{h.ProducerID, first, h.LastOffset(), min(t.firstOpen(), h.NextOffset())})
	}
}

// firstOpen returns where the oldest open transaction begins, or never.
func (t *transactions) firstOpen() int64 {
	first := int64(never)
	for _, f := range t.open {
		first = min(first, f)
	}
	return first
}

// seen forgets the markers below committed, which readers see from now on, and
// returns the first offset whose fate they do not know, or never.
func (t *transactions) seen(committed int64) int64 {
	n := 0
	for n < len(t.ending) && t.ending[n].marker < committed {
		n++
	}
	t.ending = t.ending[n:]
	if len(t.ending) == 0 {
		t.ending = nil
	}
	first := t.firstOpen()
	for _, e := range t.ending {
		first = min(first, e.first)
	}
	return first
}

// within returns the aborted transactions that have a batch or their marker in
// [from, to), by their first offset.
func (t *transactions) within(from, to int64) []Aborted {
	i := sort.Search(len(t.aborted), func(i int) bool { return t.aborted[i].Marker >= from })
	var out []Aborted
	for _, a := range t.aborted[i:] {
		if a.First < to {
			out = append(out, a)
		}
		if a.settled >= to {
			break
		}
	}
	slices.SortFunc(out, func(a, b Aborted) int { return cmp.Compare(a.First, b.First) })
	return out
}

// drop forgets the aborted transactions that lie wholly below start, and reports
// whether there were any.
func (t *transactions) drop(start int64) bool {
	i := sort.Search(len(t.aborted), func(i int) bool { return t.aborted[i].Marker >= start })
	if i > 0 {
		t.aborted = append([]Aborted(nil), t.aborted[i:]...) // lets go of their memory
	}
	return i > 0
}

// InAborted returns a function that tells the batches of these transactions from
// others.
func InAborted(all []Aborted) func(record.Header) bool {
	if len(all) == 0 {
		return func(record.Header) bool { return false }
	}
	byProducer := map[int64][]Aborted{}
	for _, a := range all {
		byProducer[a.ProducerID] = append(byProducer[a.ProducerID], a)
	}
	return func(h record.Header) bool {
		if !h.Transactional() || h.Control() {
			return false
		}
		for _, a := range byProducer[h.ProducerID] {
			if a.First <= h.BaseOffset && h.BaseOffset < a.Marker {
				return true
			}
		}
		return false
	}
}
