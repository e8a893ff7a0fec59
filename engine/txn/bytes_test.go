package txn

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
)

func sample() Transaction {
	return Transaction{
		ID: "orders", State: Ongoing, Producer: 7, Epoch: 3, LastProducer: 6, LastEpoch: 2, Timeout: time.Minute,
		Started: time.UnixMilli(1000).UTC(), Updated: time.UnixMilli(2000).UTC(),
		Partitions: []lattice.TopicPartition{part(1, 0), part(1, 2)}, Groups: []string{"g", "h"},
	}
}

// TestGolden pins the bytes of a transaction: a catalogue keeps them.
func TestGolden(t *testing.T) {
	want := "01" + "02" + // version, Ongoing
		"0000000000000007" + "0003" + "0000000000000006" + "0002" + // producer 7 epoch 3, before 6 epoch 2
		"0000ea60" + "00000000000003e8" + "00000000000007d0" + // 60 s, started 1000, updated 2000
		"00000002" + "01000000000000000000000000000000" + "00000000" + "01000000000000000000000000000000" + "00000002" +
		"00000002" + "0001" + "67" + "0001" + "68"
	if got := hex.EncodeToString(sample().AppendTo(nil)); got != want {
		t.Errorf("transaction\n%s, want\n%s", got, want)
	}
	got, err := Parse("orders", sample().AppendTo(nil))
	if err != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("reads as %+v, %v", got, err)
	}
	later := sample().AppendTo(nil)
	later[0] = 2
	if _, err := Parse("orders", later); lattice.KindOf(err) != lattice.Unsupported {
		t.Errorf("a later version: %v", err)
	}
}

// FuzzParse checks, for any input: no panic, memory in proportion to the input, and
// that one transaction has one encoding.
func FuzzParse(f *testing.F) {
	f.Add(sample().AppendTo(nil))
	f.Add(sample().complete(epoch0).AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse("x", b)
		if err != nil {
			return
		}
		if again := got.AppendTo(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x reads as %+v and comes back as %x", b, got, again)
		}
	})
}
