package soak

import (
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is one that lives through the whole run.
type topic struct {
	name    string
	configs map[string]*string
	ledgers []*ledger // by partition
	// dense: each offset has a record, from the start to the end.
	dense bool
	// committed: read read_committed.
	committed bool
	// told: its writers are told of each record where it is.
	told bool
	// keeps: no record ever goes.
	keeps bool
	// retention is after how long records may go; 0: they are not dropped by age.
	retention time.Duration
}

// ledger is what was acknowledged in one partition: 8 bytes a record.
type ledger struct {
	mu   sync.Mutex
	sums []uint64 // by offset: the sum of the record, 0 where none was acknowledged
	// stamps has the time of one record in each thousand or so, in offsets' order.
	stamps []stamp
	// The start is between trimmed and asked, the greatest of DeleteRecords that was
	// acknowledged and that was asked for; seen is the greatest that was ever listed.
	trimmed, asked, seen int64
	audited              int64 // an audit read up to here
}

type stamp struct {
	offset int64
	ms     int64
}

const stampEvery = 256

// sum stands for what a record says.
func sum(r *kgo.Record) uint64 {
	h := fnv.New64a()
	h.Write(r.Key)
	h.Write([]byte{0})
	h.Write(r.Value)
	for _, x := range r.Headers {
		fmt.Fprintf(h, "\x00%s=%s", x.Key, x.Value)
	}
	return h.Sum64() | 1 // never 0
}

// note keeps what was acknowledged.
func (s *soak) note(t *topic, r *kgo.Record) {
	l := t.ledgers[r.Partition]
	l.mu.Lock()
	defer l.mu.Unlock()
	for int64(len(l.sums)) <= r.Offset {
		l.sums = append(l.sums, 0)
	}
	if l.sums[r.Offset] != 0 {
		s.wrong("%s/%d: offset %d was acknowledged twice, now for %q", t.name, r.Partition, r.Offset, r.Value)
	}
	l.sums[r.Offset] = sum(r)
	if n := len(l.stamps); n == 0 || r.Offset >= l.stamps[n-1].offset+stampEvery {
		l.stamps = append(l.stamps, stamp{r.Offset, r.Timestamp.UnixMilli()})
	}
	s.records.Add(1)
}

// acknowledged returns the sums from offset from on.
func (l *ledger) acknowledged(from int64) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from >= int64(len(l.sums)) {
		return nil
	}
	return append([]uint64(nil), l.sums[from:]...)
}

func (t *topic) passed() int64 {
	var n int64
	for _, l := range t.ledgers {
		l.mu.Lock()
		n += l.seen
		l.mu.Unlock()
	}
	return n
}

// topics describes the topics. Segments are small, so that kills meet rolls.
func (s *soak) topics() {
	set := func(kv ...string) map[string]*string {
		m := map[string]*string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = &kv[i+1]
		}
		return m
	}
	mk := func(name string, partitions int, t topic) *topic {
		t.name = name
		for range partitions {
			t.ledgers = append(t.ledgers, &ledger{})
		}
		return &t
	}
	ms := func(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }
	s.kept = mk("kept", 4, topic{told: true, dense: true, keeps: true, configs: set("segment.bytes", "8388608", "retention.ms", "-1")})
	s.retained = mk("retained", 2, topic{told: true, dense: true, retention: s.plan.retained,
		configs: set("segment.bytes", "262144", "segment.ms", ms(s.plan.retained/2), "retention.ms", ms(s.plan.retained))})
	s.trimmed = mk("trimmed", 2, topic{told: true, dense: true, configs: set("segment.bytes", "262144", "retention.ms", "-1", "lattice.durability", "os")})
	s.compacted = mk("compacted", 2, topic{told: true, configs: set("cleanup.policy", "compact", "segment.bytes", "131072", "segment.ms", "5000",
		"min.cleanable.dirty.ratio", "0.3", "delete.retention.ms", "2000")})
	s.pairA = mk("pair-a", 2, topic{committed: true, keeps: true, configs: set("segment.bytes", "1048576", "retention.ms", "-1")})
	s.pairB = mk("pair-b", 2, topic{committed: true, keeps: true, configs: set("segment.bytes", "1048576", "retention.ms", "-1")})
	s.copied = mk("copied", 2, topic{committed: true, keeps: true, configs: set("segment.bytes", "1048576", "retention.ms", "-1")})
	s.byKcat = mk("by-kcat", 2, topic{dense: true, keeps: true, configs: set("retention.ms", "-1")})

	for i, codec := range []kgo.CompressionCodec{kgo.NoCompression(), kgo.Lz4Compression()} {
		s.writers = append(s.writers, newWriter(s, fmt.Sprintf("kept-%d", i), s.kept, 400, codec))
	}
	s.writers = append(s.writers,
		newWriter(s, "retained-0", s.retained, 200, kgo.SnappyCompression()),
		newWriter(s, "trimmed-0", s.trimmed, 200, kgo.ZstdCompression()))
	s.keys = newKeyed(s)
	s.groups = newGroups(s)
}

func (s *soak) all() []*topic {
	return []*topic{s.kept, s.retained, s.trimmed, s.compacted, s.pairA, s.pairB, s.copied, s.byKcat}
}
