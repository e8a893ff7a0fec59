package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// churn makes topics, writes to them and deletes them again. Some names are used
// again: what was in the old topic must not be in the new one.
type churn struct {
	made, deleted atomic.Int64 // acknowledged

	mu     sync.Mutex
	next   int
	unsure []string           // nobody knows whether they are there: they are deleted first
	there  map[string]passing // acknowledged, and nobody tried to delete it
	gone   map[string]bool    // deletion acknowledged
}

// passing is a topic that comes and goes.
type passing struct {
	id     kadm.TopicID
	values map[int32][]string // acknowledged, by partition, by offset
}

const mostPassing = 12

func (x *churn) run(s *soak, rng *rand.Rand) {
	x.there, x.gone = map[string]passing{}, map[string]bool{}
	c := s.dial(kgo.RequestRetries(0))
	defer c.Close()
	a := kadm.NewClient(c)
	for s.sleep(time.Duration(100+rng.IntN(1400)) * time.Millisecond) {
		if len(x.unsure) > 0 {
			x.clean(s, a)
		} else if len(x.there) < 2 || len(x.there) < mostPassing && rng.IntN(2) == 0 {
			x.make(s, rng, a)
		} else {
			x.remove(s, rng, a)
		}
	}
}

// make makes a topic, under the name of a deleted one at times.
func (x *churn) make(s *soak, rng *rand.Rand, a *kadm.Client) {
	x.mu.Lock()
	name := fmt.Sprintf("made-%d", x.next)
	x.next++
	if rng.IntN(3) == 0 {
		for old := range x.gone {
			name = old
			delete(x.gone, old)
			break
		}
	}
	x.mu.Unlock()
	partitions := int32(1 + rng.IntN(3))
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	got, err := a.CreateTopic(ctx, partitions, 1, nil, name)
	if err != nil {
		x.unsure = append(x.unsure, name)
		return
	}
	x.made.Add(1)
	x.write(s, rng, name, passing{got.ID, map[int32][]string{}}, partitions)
}

func (x *churn) write(s *soak, rng *rand.Rand, name string, p passing, partitions int32) {
	c := s.dial(kgo.RequiredAcks(kgo.AllISRAcks()))
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for i := range rng.IntN(20) {
		r := &kgo.Record{Topic: name, Partition: int32(i) % partitions, Value: fmt.Appendf(nil, "%s %x %d", name, p.id, i)}
		if err := c.ProduceSync(ctx, r).FirstErr(); err != nil {
			s.wrong("produce to the new topic %s: %v", name, err)
			return
		}
		if r.Offset != int64(len(p.values[r.Partition])) {
			s.wrong("the new topic %s took record %d of partition %d at offset %d", name, len(p.values[r.Partition]), r.Partition, r.Offset)
		}
		p.values[r.Partition] = append(p.values[r.Partition], string(r.Value))
		s.records.Add(1)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.there[name] = p
}

func (x *churn) remove(s *soak, rng *rand.Rand, a *kadm.Client) {
	x.mu.Lock()
	name, skip := "", rng.IntN(len(x.there))
	for name = range x.there {
		if skip--; skip < 0 {
			break
		}
	}
	delete(x.there, name)
	x.mu.Unlock()
	x.delete(s, a, name)
}

func (x *churn) delete(s *soak, a *kadm.Client, name string) {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	_, err := a.DeleteTopic(ctx, name)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
	case err != nil:
		x.unsure = append(x.unsure, name)
		return
	default:
		x.deleted.Add(1)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone[name] = true
}

// clean deletes a topic of which nobody knows whether it is there, since the node was
// killed before it answered.
func (x *churn) clean(s *soak, a *kadm.Client) {
	name := x.unsure[0]
	x.unsure = x.unsure[1:]
	x.delete(s, a, name)
}

// check holds the topics that are there, and what is in them, to what was
// acknowledged.
func (x *churn) check(ctx context.Context, s *soak, a *kadm.Client) {
	x.mu.Lock()
	defer x.mu.Unlock() // nothing comes or goes meanwhile
	all, err := a.ListTopics(ctx)
	if err != nil {
		s.wrong("list topics: %v", err)
		return
	}
	ends, err := a.ListEndOffsets(ctx)
	if err != nil {
		s.wrong("list ends: %v", err)
		return
	}
	for name, p := range x.there {
		d, ok := all[name]
		if !ok || d.Err != nil || d.ID != p.id {
			s.wrong("topic %s was made with id %v; now there: %t, %v with id %v", name, p.id, ok, d.Err, d.ID)
			continue
		}
		for n := range d.Partitions {
			if e, ok := ends.Lookup(name, n); !ok || e.Err != nil || e.Offset != int64(len(p.values[n])) {
				s.wrong("%s/%d ends at %d (%v); %d records were acknowledged", name, n, e.Offset, e.Err, len(p.values[n]))
			}
		}
		x.read(ctx, s, name, p)
	}
	for name := range x.gone {
		if all.Has(name) {
			s.wrong("topic %s was deleted and is there", name)
		}
	}
}

func (x *churn) read(ctx context.Context, s *soak, name string, p passing) {
	at, left := map[int32]kgo.Offset{}, 0
	for n, values := range p.values {
		at[n] = kgo.NewOffset().At(0)
		left += len(values)
	}
	if left == 0 {
		return
	}
	c := s.dial(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: at}), kgo.FetchMaxWait(100*time.Millisecond))
	defer c.Close()
	for left > 0 {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			s.wrong("read %s, %d records left: %v", name, left, err)
			return
		}
		fs.EachRecord(func(r *kgo.Record) {
			left--
			if want := p.values[r.Partition]; r.Offset >= int64(len(want)) || want[r.Offset] != string(r.Value) {
				s.wrong("%s/%d has %q at %d; acknowledged were %q", name, r.Partition, r.Value, r.Offset, want)
			}
		})
	}
}
