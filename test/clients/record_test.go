package clients

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// record is one record as the drivers write and print it.
type record struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"` // ms since 1970; 0: the client's choice
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   []header `json:"headers"`
}

type header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

func (r record) String() string {
	return fmt.Sprintf("%d/%d at %d key %.40q value %.60q (%d bytes) headers %.80q", r.Partition, r.Offset, r.Timestamp, r.Key, r.Value, len(r.Value), fmt.Sprint(r.Headers))
}

// at names where a record is.
type place struct {
	partition int32
	offset    int64
}

func (r record) place() place { return place{r.Partition, r.Offset} }

// sameBytes tells null from empty, as Kafka does.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// sameContent compares all that a record says, but not where it is.
func sameContent(a, b record) bool {
	if !sameBytes(a.Key, b.Key) || !sameBytes(a.Value, b.Value) || len(a.Headers) != len(b.Headers) {
		return false
	}
	for i := range a.Headers {
		if a.Headers[i].Key != b.Headers[i].Key || !sameBytes(a.Headers[i].Value, b.Headers[i].Value) {
			return false
		}
	}
	return a.Timestamp == 0 || b.Timestamp == 0 || a.Timestamp == b.Timestamp
}

// sampleTime is where the samples' own timestamps begin.
const sampleTime = 1_700_000_000_000

// sampleRecords makes n records over ten keys: text that compresses, bytes
// that do not, values null and empty, up to 20 kB. full adds what not every
// client can write: any bytes anywhere, timestamps, headers repeated and null.
func sampleRecords(codec string, n int, full bool) []record {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(len(codec))))
	out := make([]record, n)
	for i := range out {
		r := record{
			Key:   fmt.Appendf(nil, "key-%d", rng.IntN(10)),
			Value: fmt.Appendf(nil, "%s %d %s", codec, i, strings.Repeat("lattice ", rng.IntN(60))),
		}
		switch {
		case i%17 == 3:
			r.Value = nil // a tombstone
		case i%50 == 7:
			r.Value = fmt.Appendf(nil, "%s %d %s", codec, i, strings.Repeat("all of it together, ", 1000))
		}
		if full {
			r.Timestamp = sampleTime + int64(i)
			r.Headers = []header{{"n", fmt.Append(nil, i)}, {"binary", random(rng, 9)}}
			switch i % 13 {
			case 1:
				r.Key = append(random(rng, 3), r.Key[4]) // not UTF-8
			case 2:
				r.Value = random(rng, rng.IntN(2000))
			case 4:
				r.Value = []byte{}
			case 5:
				r.Headers = nil
			}
		}
		out[i] = r
	}
	return out
}

func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// checkSame fails unless got is want byte by byte: the same records at the same
// places.
func checkSame(t *testing.T, who string, got, want []record) {
	t.Helper()
	at := map[place]record{}
	for _, r := range want {
		at[r.place()] = r
	}
	if len(at) != len(want) {
		t.Fatalf("%s: two records were acknowledged at one offset", who)
	}
	wrong := 0
	for _, r := range got {
		w, ok := at[r.place()]
		delete(at, r.place())
		if !ok || !sameContent(r, w) {
			if wrong++; wrong <= 5 {
				t.Errorf("%s: got  %s\n\twant %s", who, r, w)
			}
		}
	}
	if len(got) != len(want) || len(at) > 0 {
		t.Errorf("%s: got %d records, want %d; %d are missing", who, len(got), len(want), len(at))
	}
}

// checkInOrder fails unless, for each key, the records are in the order in
// which they were sent, in one partition, with nothing added and nothing lost.
func checkInOrder(t *testing.T, who string, got, sent []record) {
	t.Helper()
	if len(got) != len(sent) {
		t.Errorf("%s: %d records, sent %d", who, len(got), len(sent))
	}
	queue := map[string][]record{}
	for _, r := range sent {
		queue[string(r.Key)] = append(queue[string(r.Key)], r)
	}
	partition, last := map[string]int32{}, map[int32]int64{}
	for _, r := range got {
		key := string(r.Key)
		if p, ok := partition[key]; ok && p != r.Partition {
			t.Errorf("%s: key %q is in partitions %d and %d", who, key, p, r.Partition)
		}
		partition[key] = r.Partition
		if at, ok := last[r.Partition]; ok && r.Offset <= at {
			t.Errorf("%s: offset %d/%d after %d", who, r.Partition, r.Offset, at)
		}
		last[r.Partition] = r.Offset
		if len(queue[key]) == 0 {
			t.Fatalf("%s: one more than was sent: %s", who, r)
		}
		if want := queue[key][0]; !sameContent(r, want) {
			t.Fatalf("%s: the next of key %q is\n\tgot  %s\n\twant %s", who, key, r, want)
		}
		queue[key] = queue[key][1:]
	}
}
