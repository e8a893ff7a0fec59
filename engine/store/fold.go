package store

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
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

// FoldedTopics returns the topics of a state. Kind Corrupt.
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
		if err := out[len(out)-1].setField(string(a.Sub), r.Resolve()[0].Value); err != nil {
			return out, lattice.E(lattice.Corrupt, fmt.Errorf("catalogue: topic %x: %w", a.Key, err))
		}
	}
	return out, nil
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
		v, err := group.ParseValue(r.Resolve()[0].Value)
		if err != nil {
			return fmt.Errorf("offset of group %q, %s: %w", k.Group, k.TopicPartition, err)
		}
		yield(OffsetRecord{k, v})
	}
	return nil
}
