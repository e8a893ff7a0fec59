package record

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestMarkerGolden pins a marker's bytes: logs keep them, and every Kafka client
// reads them.
func TestMarkerGolden(t *testing.T) {
	m := Marker{ProducerID: 7, Epoch: 3, Commit: true, CoordinatorEpoch: 5, Time: 1000}
	b := m.AppendTo(nil)
	const want = "0000000000000000" + "00000042" + "ffffffff" + "02" + "CRC_____" + "0030" + "00000000" +
		"00000000000003e8" + "00000000000003e8" + "0000000000000007" + "0003" + "ffffffff" + "00000001" +
		"20" + "00" + "00" + "00" + "08" + "00000001" + "0c" + "000000000005" + "00"
	got := hex.EncodeToString(b)
	got = got[:34] + "CRC_____" + got[42:]
	if got != want {
		t.Errorf("marker\n%s, want\n%s", got, want)
	}
	if err := CheckCRC(b); err != nil {
		t.Error(err)
	}
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatalf("kmsg: %v", err)
	}
	key := kmsg.NewControlRecordKey()
	value := kmsg.NewEndTxnMarker()
	if err := errors.Join(key.ReadFrom(k.Records[5:9]), value.ReadFrom(k.Records[10:16])); err != nil {
		t.Fatal(err)
	}
	if key.Type != kmsg.ControlRecordKeyTypeCommit || value.CoordinatorEpoch != 5 {
		t.Errorf("kmsg reads %+v, %+v", key, value)
	}
}

func TestMarkerRoundTrip(t *testing.T) {
	for _, m := range []Marker{{ProducerID: 1, Time: -1}, {ProducerID: 9, Epoch: 4, Commit: true, CoordinatorEpoch: 1, Time: 5}} {
		got, ok, err := ParseMarker(m.AppendTo([]byte("x"))[1:])
		if err != nil || !ok || got != m {
			t.Errorf("%+v reads as %+v, %v, %v", m, got, ok, err)
		}
	}
	plain := build(None, 0, []Record{{Key: []byte{0, 0, 0, 1}, Value: []byte{0, 0, 0, 0, 0, 0}}})
	if _, _, err := ParseMarker(plain); !errors.Is(err, ErrMalformed) {
		t.Errorf("a user's batch: %v", err)
	}
	other := Marker{ProducerID: 1}.AppendTo(nil)
	other[HeaderSize+5+3] = 2 // a type of another meaning
	seal(other)
	if _, ok, err := ParseMarker(other); ok || err != nil {
		t.Errorf("another control record: %v, %v", ok, err)
	}
}

// FuzzParseMarker checks, for any input: no panic, and what reads as a marker
// is written as one that reads the same.
func FuzzParseMarker(f *testing.F) {
	f.Add(Marker{ProducerID: 7, Epoch: 3, Commit: true, Time: 1000}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok, err := ParseMarker(b)
		if err != nil || !ok {
			return
		}
		if again, ok, err := ParseMarker(m.AppendTo(nil)); err != nil || !ok || again != m {
			t.Fatalf("%+v comes back as %+v, %v, %v", m, again, ok, err)
		}
	})
}
