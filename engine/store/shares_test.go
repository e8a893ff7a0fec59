package store_test

import (
	"encoding/hex"
	"reflect"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/engine/store"
)

// TestGoldenShareRecords holds the keys and values that share groups leave in the
// catalogue.
func TestGoldenShareRecords(t *testing.T) {
	const topic = "74000000000000000000000000000000"
	for name, tc := range map[string]struct {
		key, value string
		want       any
	}{
		"a share-partition": {
			"77" + "0001" + "67" + topic + "00000003", "01" + "0000000000000005" + "00000007" + "020101" + "010300",
			store.ShareRecord{
				Key:   group.Key{Group: "g", TopicPartition: lattice.TopicPartition{Topic: lattice.TopicID{'t'}, Partition: 3}},
				State: share.State{Start: 5, Term: 7, Runs: []share.StateRun{{Length: 2, State: 1, Deliveries: 1}, {Length: 1, State: 3}}},
			},
		},
		"the configs of a group": {
			"6e" + "67", "01" + hex.EncodeToString([]byte(`{"share.auto.offset.reset":"earliest"}`)),
			store.GroupConfigRecord{Name: "g", Set: map[string]string{"share.auto.offset.reset": "earliest"}},
		},
	} {
		key, err := hex.DecodeString(tc.key)
		if err != nil {
			t.Fatal(err)
		}
		value, err := hex.DecodeString(tc.value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := store.DecodeRecord(key, value); err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := store.DecodeRecord(key, append([]byte{9}, value[1:]...)); err == nil {
			t.Errorf("%s: a later version is read", name)
		}
	}
}
