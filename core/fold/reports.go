package fold

import (
	"encoding/binary"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/core/watermark"
)

// What members report of themselves (core/watermark) is folded like rows are: from
// entries with an effect, and forgotten by a Reset. Of each author the last is a record:
//
//	"f" author    incarnation and sequence u64 of the entry, frontier as
//	              core/state encodes it

// Said returns the last that an author has reported with an effect; zero: nothing.
func (m *Machine) Said(author lattice.AuthorID) watermark.Said {
	if a := m.authors[author]; a != nil {
		return a.said
	}
	return watermark.Said{}
}

// report takes the reports of an entry that has an effect.
func (m *Machine) report(at sigchain.Place, reports []state.Frontier) {
	a := m.author(at.Author)
	for _, f := range reports {
		a.said = a.said.After(at, f)
	}
	if len(reports) > 0 {
		m.changes.report(at.Author)
	}
}

func saidRecord(id lattice.AuthorID, s watermark.Said) Record {
	v := binary.BigEndian.AppendUint64(newRecord(16), s.At.Incarnation)
	v = binary.BigEndian.AppendUint64(v, s.At.Seq)
	return Record{append([]byte{tagSaid}, id[:]...), s.Frontier.AppendTo(v)}
}

func (m *Machine) restoreSaid(id lattice.AuthorID, v *fields) {
	s := watermark.Said{At: sigchain.Place{Author: id, Incarnation: v.u64(), Seq: v.u64()}}
	f, err := state.ParseFrontier(v.take(len(v.rest)))
	s.Frontier = f
	v.bad = v.bad || err != nil || s.At.Seq == 0 || len(f) == 0
	m.author(id).said = s
}
