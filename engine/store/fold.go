package store

import (
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/group"
)

// OfCatalogue reports whether an operation changes what the catalogue keeps as state.
func OfCatalogue(op state.Op) bool {
	m, _ := op.Target()
	return OfCatalogueMap(m)
}

// OfCatalogueMap reports whether the catalogue keeps something in a map.
func OfCatalogueMap(m string) bool { return m == topicsMap || m == offsetsMap }

// FoldedTopics returns the topics of a state, without what a change left that had not
// seen a topic's deletion. Kind Corrupt.
func FoldedTopics(s *state.Space) ([]TopicRecord, error) {
	var out []TopicRecord
	for a, r := range s.Rows {
		if a.Map != topicsMap || a.Kind != state.Field {
			continue
		}
		if len(a.Key) != len(lattice.TopicID{}) {
			return out, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: topic %x: its key is no topic id", a.Key))
		}
		if id := lattice.TopicID(a.Key); len(out) == 0 || out[len(out)-1].ID != id {
			out = append(out, TopicRecord{ID: id, Config: map[string]string{}})
		}
		t := &out[len(out)-1]
		if err := t.setField(string(a.Sub), r.Resolve()[0].Value); err != nil {
			return out, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: topic %x: %w", a.Key, err))
		}
		if string(a.Sub) == partitionsField {
			t.Partitions = max(t.Partitions, mostPartitions(r))
		}
	}
	return slices.DeleteFunc(out, func(t TopicRecord) bool { return len(t.Creation) == 0 }), nil
}

// FoldedOffsets yields the committed offsets of a state. Kind Corrupt.
func FoldedOffsets(s *state.Space, yield func(OffsetRecord)) error {
	for a, r := range s.Rows {
		if a.Map != offsetsMap || a.Kind != state.Register {
			continue
		}
		k, err := group.ParseKey(a.Key)
		if err != nil {
			return err
		}
		var all group.Value
		for i, h := range r {
			v, err := group.ParseValue(h.Payload.Bytes)
			if err != nil {
				return fmt.Errorf("offset of group %q, %s: %w", k.Group, k.TopicPartition, err)
			}
			if i == 0 {
				all = v
			}
			all = group.Join(all, v)
		}
		yield(OffsetRecord{k, all})
	}
	return nil
}

// Leader returns who leads a topic's partitions: who signed the entry that created it.
// False: the record has no such entry.
func (t TopicRecord) Leader() (lattice.NodeID, bool) {
	e, err := sigchain.Parse(t.Creation)
	return e.Author, err == nil
}
