package soak

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// keyed writes to the compacted topic: a few hundred keys, each always to the same
// partition, now and then a tombstone.
type keyed struct {
	writer *writer

	mu   sync.Mutex
	last map[string]final // by key: the last record that was acknowledged
	gone int64            // records that compaction has taken, at the last audit
}

// final is the last record of a key.
type final struct {
	offset    int64
	sum       uint64
	tombstone bool
}

const keyCount = 400

func newKeyed(s *soak) keyed {
	return keyed{writer: newWriter(s, "keyed-0", s.compacted, 300, kgo.ZstdCompression()), last: map[string]final{}}
}

func (k *keyed) run(s *soak, rng *rand.Rand) {
	w := k.writer
	for s.sleep(time.Second / ticks) {
		for range w.rate / ticks {
			if w.flying.Load() > int64(4*w.rate) {
				break
			}
			n := rng.IntN(keyCount)
			r := w.record(rng, int32(n%len(w.topic.ledgers)), fmt.Appendf(nil, "key-%d", n))
			if rng.IntN(20) == 0 {
				r.Value = nil
			}
			w.send(s, r, k.acknowledged)
		}
	}
}

func (k *keyed) acknowledged(r *kgo.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// Two acknowledgements may arrive in any order; the log's order counts.
	if was, ok := k.last[string(r.Key)]; !ok || r.Offset > was.offset {
		k.last[string(r.Key)] = final{r.Offset, sum(r), r.Value == nil}
	}
}

// snapshot is what compaction must keep of what was acknowledged so far.
func (k *keyed) snapshot() map[string]final {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := make(map[string]final, len(k.last))
	for key, f := range k.last {
		m[key] = f
	}
	return m
}

// check holds the last record of each key, as read, to what was acknowledged before
// it was read. Unless it is final, a record may have been replaced by one beyond the
// end of what was read, and have gone for that.
func (k *keyed) check(s *soak, want, read map[string]final, all bool) {
	for key, w := range want {
		if r, ok := read[key]; !all && (!ok || r.offset < w.offset) && k.replaced(s, key, w.offset) {
			delete(want, key)
		}
	}
	for key, w := range want {
		r, ok := read[key]
		switch {
		case !ok && w.tombstone: // compacted away
		case !ok:
			s.wrong("compacted: %s is gone; its last value was acknowledged at %d", key, w.offset)
		case r.offset < w.offset && !w.tombstone:
			s.wrong("compacted: %s has its last record at %d; one was acknowledged at %d", key, r.offset, w.offset)
		case r.offset < w.offset:
			s.wrong("compacted: %s has a value at %d again; it was deleted at %d", key, r.offset, w.offset)
		case r.offset == w.offset && r.sum != w.sum:
			s.wrong("compacted: %s has something else at %d than was acknowledged", key, r.offset)
		}
	}
}

// replaced waits a while for the acknowledgement of a later record of the key.
func (k *keyed) replaced(s *soak, key string, offset int64) bool {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		k.mu.Lock()
		f := k.last[key]
		k.mu.Unlock()
		if f.offset > offset {
			return true
		}
		if !s.sleep(50 * time.Millisecond) {
			break
		}
	}
	return false
}
