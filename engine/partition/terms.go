package partition

import (
	"fmt"
	"sort"

	lattice "github.com/lattice-log/lattice"
)

// termStart says that a term's records begin at an offset.
type termStart struct {
	term int32
	base int64
}

// terms lists the terms that have records, oldest first: Kafka's leader epoch
// cache. Both fields rise strictly.
type terms []termStart

// add notes that term begins at base. A term without records leaves no trace: a
// later one at the same base replaces it.
func (t terms) add(term int32, base int64) terms {
	for len(t) > 0 && t[len(t)-1].base >= base {
		t = t[:len(t)-1]
	}
	if len(t) > 0 && t[len(t)-1].term >= term {
		return t
	}
	return append(t, termStart{term, base})
}

// at returns the term of the record at offset, -1 when there is none.
func (t terms) at(offset int64) int32 {
	i := sort.Search(len(t), func(i int) bool { return t[i].base > offset })
	if i == 0 {
		return -1
	}
	return t[i-1].term
}

// end answers OffsetForLeaderEpoch (KIP-101, KIP-279): the largest term that is
// not above the asked one, and where it ends.
func (t terms) end(term int32, logEnd int64) (int32, int64) {
	i := sort.Search(len(t), func(i int) bool { return t[i].term > term })
	switch {
	case i == 0:
		return -1, -1
	case i == len(t):
		return t[i-1].term, logEnd
	}
	return t[i-1].term, min(t[i].base, logEnd) // a follower can know a term before its records
}

// CheckTerm compares a client's idea of the leader epoch (-1: none given) with
// ours: Fenced when it is older, NotYet when it is newer.
func (p *Partition) CheckTerm(term int32) error {
	ours := p.term.Load()
	switch {
	case term < 0 || term == ours:
		return nil
	case term < ours:
		return lattice.E(lattice.Fenced, fmt.Errorf("%s: term %d is over, the current one is %d", p.id, term, ours))
	}
	return lattice.E(lattice.NotYet, fmt.Errorf("%s: term %d is unknown here, the newest is %d", p.id, term, ours))
}

// TermAt returns the term of the record at offset; for the log's end, the term
// of the last record; -1 when there is none.
func (p *Partition) TermAt(offset int64) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.terms.at(offset)
}

// TermEnd answers OffsetForLeaderEpoch: the largest term <= term that has
// records here, and its end offset; (-1, -1) when there is none. A term newer
// than ours is an error of Kind NotYet.
func (p *Partition) TermEnd(term int32) (int32, int64, error) {
	ours := p.term.Load()
	if term > ours {
		return -1, -1, lattice.E(lattice.NotYet, fmt.Errorf("%s: term %d is unknown here, the newest is %d", p.id, term, ours))
	}
	_, committed, _ := p.visible()
	p.mu.Lock()
	defer p.mu.Unlock()
	if term == ours {
		// Asked for the current term: it reaches to the end, with or without records.
		return term, committed, nil
	}
	found, end := p.terms.end(term, committed)
	return found, end, nil
}
