package field

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func (r record) String() string {
	return fmt.Sprintf("%d/%d at %d key %.40q value %.60q (%d bytes) headers %.80q", r.Partition, r.Offset, r.Timestamp, r.Key, r.Value, len(r.Value), fmt.Sprint(r.Headers))
}

// same compares all that two records say; a timestamp of 0 is any. Null is not
// empty.
func same(a, b record) bool {
	ok := sameBytes(a.Key, b.Key) && sameBytes(a.Value, b.Value) && len(a.Headers) == len(b.Headers) &&
		(a.Timestamp == 0 || b.Timestamp == 0 || a.Timestamp == b.Timestamp)
	for i := 0; ok && i < len(a.Headers); i++ {
		ok = a.Headers[i].Key == b.Headers[i].Key && sameBytes(a.Headers[i].Value, b.Headers[i].Value)
	}
	return ok
}

func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// blurred returns the records with null for all that is empty.
func blurred(records []record) []record {
	null := func(b []byte) []byte {
		if len(b) == 0 {
			return nil
		}
		return b
	}
	out := slices.Clone(records)
	for i := range out {
		r := &out[i]
		r.Key, r.Value, r.Headers = null(r.Key), null(r.Value), slices.Clone(r.Headers)
		for j := range r.Headers {
			r.Headers[j].Value = null(r.Headers[j].Value)
		}
	}
	return out
}

type place struct {
	partition int32
	offset    int64
}

func (r record) place() place { return place{r.Partition, r.Offset} }

const sampleTime = 1_700_000_000_000

// sample makes n records over ten keys that every client can write: text that
// compresses and bytes that do not, some tombstones, headers and own timestamps.
func sample(codec string, n int) []record {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(len(codec))))
	out := make([]record, n)
	for i := range out {
		out[i] = record{
			Timestamp: sampleTime + int64(i),
			Key:       fmt.Appendf(nil, "key-%d", rng.IntN(10)),
			Value:     fmt.Appendf(nil, "%s %d %s", codec, i, strings.Repeat("lattice ", 10+rng.IntN(60))),
			Headers:   []header{{"n", fmt.Append(nil, i)}, {"binary", random(rng, 9)}},
		}
		switch i % 25 {
		case 3:
			out[i].Value = nil // a tombstone
		case 7:
			out[i].Value = random(rng, rng.IntN(2000))
		case 11:
			out[i].Headers = nil
		}
	}
	return out
}

// sample makes records that this client can write.
func (c *client) sample(codec string, n int) []record {
	all := sample(codec, n)
	for i := range all {
		if !c.text {
			break
		}
		all[i].Timestamp = 0
		all[i].Headers = []header{{"codec", []byte(codec)}, {"by", []byte(c.name)}}
		if i%25 == 7 {
			all[i].Value = fmt.Appendf(nil, "%s %d", codec, i)
		}
	}
	return all
}

// shows gives records as this client shows them.
func (c *client) shows(records []record) []record {
	if !c.text {
		return records
	}
	out := slices.Clone(records)
	for i, r := range out {
		var parts []string
		for _, h := range r.Headers {
			value, _, _ := strings.Cut(string(h.Value), "\x00") // as far as it prints
			if h.Value == nil {
				value = "NULL"
			}
			parts = append(parts, h.Key+"="+value)
		}
		if out[i].Headers = nil; len(parts) > 0 {
			out[i].Headers = []header{{Value: []byte(strings.Join(parts, ","))}}
		}
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

// checkSame fails unless got is want: the same records at the same places.
func checkSame(t *testing.T, who string, got, want []record) {
	t.Helper()
	at := map[place]record{}
	for _, r := range want {
		at[r.place()] = r
	}
	if len(at) != len(want) {
		t.Errorf("%s: two records have one offset", who)
	}
	wrong := 0
	for _, r := range got {
		w, ok := at[r.place()]
		delete(at, r.place())
		if !ok || !same(r, w) {
			if wrong++; wrong <= 5 {
				t.Errorf("%s: got  %s\n\twant %s", who, r, w)
			}
		}
	}
	if len(got) != len(want) || len(at) > 0 {
		t.Errorf("%s: %d records, want %d; %d are missing", who, len(got), len(want), len(at))
	}
}

// checkOrder fails unless the records of each key are in one partition, in the
// order in which they were sent, with nothing added and nothing lost.
func checkOrder(t *testing.T, who string, got, sent []record) {
	t.Helper()
	if len(got) != len(sent) {
		t.Errorf("%s: %d records, sent %d", who, len(got), len(sent))
	}
	queue, partition := map[string][]record{}, map[string]int32{}
	for _, r := range sent {
		queue[string(r.Key)] = append(queue[string(r.Key)], r)
	}
	for _, r := range got {
		key := string(r.Key)
		if p, ok := partition[key]; ok && p != r.Partition {
			t.Errorf("%s: key %q is in partitions %d and %d", who, key, p, r.Partition)
		}
		partition[key] = r.Partition
		if len(queue[key]) == 0 || !same(r, queue[key][0]) {
			t.Errorf("%s: the next of key %q is\n\tgot  %s\n\twant %.1s", who, key, r, queue[key])
			return
		}
		queue[key] = queue[key][1:]
	}
}
