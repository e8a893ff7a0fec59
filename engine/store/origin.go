package store

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// origin is what a topic's creating entry says. The topic's id is that entry's hash,
// so that nobody can change it, whatever is written about the topic later.
type origin struct {
	name       string
	partitions int32
	leader     lattice.NodeID // the entry's author
	time       uint64
	at         sigchain.Ref
}

// compare orders topics by their creation: by time, and of one time by author, as
// all operations are.
func (o origin) compare(p origin) int {
	return cmp.Or(cmp.Compare(o.time, p.time), o.at.Compare(p.at))
}

// originOf reads the creating entry of a topic's record. Kind Corrupt: there is none,
// and no such topic. Whoever may write in the store can write a record, and a change
// that had not seen the topic's deletion leaves a part of one behind.
func originOf(rec TopicRecord, store lattice.StoreID) (origin, error) {
	bad := func(err error) (origin, error) {
		return origin{}, lattice.E(lattice.Corrupt, fmt.Errorf("topic %s: its creating entry: %w", rec.ID, err))
	}
	e, err := sigchain.Parse(rec.Creation)
	if err == nil {
		err = e.Verify()
	}
	if err != nil {
		return bad(err)
	}
	id, ct, err := sigchain.TopicID(e)
	switch {
	case err != nil:
		return bad(err)
	case id != rec.ID:
		return bad(fmt.Errorf("it creates %s", id))
	case e.Home() != store:
		return bad(fmt.Errorf("it belongs to store %s", e.Home().Short()))
	}
	return origin{ct.Name, int32(ct.Partitions), e.Author, e.Time, e.Ref()}, nil
}

// dupShort is how much of a topic's id is in the name that it gets when another has
// its own, in hex digits.
const dupShort = 8

// maxTopicName is Kafka's limit.
const maxTopicName = 249

// namesOf says by which name each topic is known. It follows from the topics that
// there are, so that all nodes come to the same: of topics of one name the one that
// was created first has it, and the others are NAME.dup-ID with the beginning of
// their ids, longer where somebody has that name as well. When the first is deleted,
// the next one has the name.
func namesOf(topics map[lattice.TopicID]origin) map[lattice.TopicID]string {
	ids := make([]lattice.TopicID, 0, len(topics))
	for id := range topics {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b lattice.TopicID) int {
		return cmp.Or(topics[a].compare(topics[b]), bytes.Compare(a[:], b[:]))
	})
	names, taken := make(map[lattice.TopicID]string, len(ids)), make(map[string]bool, len(ids))
	var later []lattice.TopicID
	for _, id := range ids {
		name := topics[id].name
		if taken[name] {
			later = append(later, id)
			continue
		}
		names[id], taken[name] = name, true
	}
	for _, id := range later {
		name := dupName(topics[id].name, id, dupShort)
		for n := dupShort + 1; taken[name] && n <= 2*len(id); n++ {
			name = dupName(topics[id].name, id, n)
		}
		names[id], taken[name] = name, true
	}
	return names
}

// dupName is the name of a topic whose own is another's, with so many digits of its id.
func dupName(name string, id lattice.TopicID, digits int) string {
	suffix := ".dup-" + id.String()[:digits]
	return name[:min(len(name), maxTopicName-len(suffix))] + suffix
}
