package fsck_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/enginetest"
	"github.com/lattice-log/lattice/engine/fsck"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/storage/disk"
	"pgregory.net/rapid"
)

// life is a store that random things happen to.
type life struct {
	*enginetest.Node
	mem    *disk.Mem
	topics map[string]store.Topic
	seq    map[lattice.TopicPartition]int32
	txns   []*enginetest.Producer
	open   []bool // by producer
	n      int
}

func begin(t enginetest.TB) *life {
	mem := disk.NewMem()
	l := &life{Node: enginetest.New(t, mem), mem: mem, topics: map[string]store.Topic{}, seq: map[lattice.TopicPartition]int32{}}
	l.create("plain", "segment.bytes=2000")
	l.create("compact", "cleanup.policy=compact", "segment.bytes=1500", "min.cleanable.dirty.ratio=0")
	l.create("short", "retention.ms=60000", "segment.bytes=1000", "lattice.durability=os")
	l.txns, l.open = []*enginetest.Producer{l.Producer("a"), l.Producer("b")}, make([]bool, 2)
	return l
}

func (l *life) create(name string, config ...string) { l.topics[name] = l.Topic(name, 2, config...) }

// step does one random thing to a topic. draw(n) is a number below n.
func (l *life) step(draw func(n int) int) {
	names := []string{"plain", "compact", "short"}
	name := names[draw(len(names))]
	top := l.topics[name]
	part := int32(draw(2))
	tp := lattice.TopicPartition{Topic: top.ID, Partition: part}
	p := l.Part(top, part)
	l.n++
	switch k := draw(26); {
	case k >= 20:
		l.transact(draw(2), k, top, part)
	case k < 8:
		for range 1 + draw(10) {
			l.n++
			l.Put(p, record.Codec(draw(5)), fmt.Sprintf("k%d=v%d", draw(6), l.n), fmt.Sprintf("k%d=w%d", draw(6), l.n))
		}
	case k < 11:
		l.PutAs(p, 7+int64(draw(3)), 0, 0, "x") // the first is written, later ones are answered or refused
	case k < 13:
		l.PutAs(p, 1000+int64(part), 0, l.seq[tp], "a", "b")
		l.seq[tp] += 2
	case k < 14:
		if b := p.Bounds(); b.Committed > b.Start {
			l.truncate(p, b.Start+int64(draw(int(b.Committed-b.Start)))+1)
		}
	case k < 15:
		l.truncate(p, -1)
	case k < 17:
		l.Clock.Advance(time.Duration(draw(120)) * time.Second)
		l.Retain(context.Background())
	case k < 18:
		l.Commit("g", top, part, int64(draw(30)), "")
	case k < 19:
		l.recreate(name, draw)
	default:
		l.Restart()
	}
}

// transact takes a producer's transaction one step on.
func (l *life) transact(i, k int, top store.Topic, part int32) {
	p, err := l.txns[i], error(nil)
	switch {
	case k < 24:
		l.open[i] = true
		if _, err = p.Put(top, part, fmt.Sprintf("k%d", l.n%6), fmt.Sprint("t", l.n)); err == nil && k == 23 {
			err = p.Offset("g", top, part, int64(l.n))
		}
	case l.open[i]:
		err = p.End(k == 24)
		l.open[i] = false
	}
	if err != nil {
		panic(err)
	}
}

type truncater interface {
	Truncate(ctx context.Context, before int64) (int64, error)
}

func (l *life) truncate(p truncater, before int64) {
	if _, err := p.Truncate(context.Background(), before); err != nil {
		panic(err)
	}
}

func (l *life) recreate(name string, draw func(n int) int) {
	if draw(3) > 0 {
		return
	}
	if err := l.DeleteTopic(context.Background(), l.topics[name].ID); err != nil {
		panic(err)
	}
	delete(l.topics, name)
	l.create(name, "segment.bytes=1200", "cleanup.policy=compact,delete", "min.cleanable.dirty.ratio=0")
}

// TestCleanThroughLife: whatever is done to a store, a clean stop leaves
// everything as it should be, and any crash leaves nothing that is damage, before
// it is opened again and after.
func TestCleanThroughLife(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := begin(t)
		defer l.Abandon()
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			l.step(draw)
		}
		percent := draw(5) * 25
		crashed := l.mem.CrashClone(percent, rand.New(rand.NewPCG(uint64(draw(1000)), 1)))
		now := l.Clock.Now()
		l.Stop()
		fsck.MustBeClean(t, l.mem, enginetest.Dir)

		fsck.MustBeValid(t, crashed, enginetest.Dir)
		again := enginetest.Attach(t, crashed, now)
		defer again.Abandon()
		again.Start()
		again.Stop()
		fsck.MustBeClean(t, crashed, enginetest.Dir)
	})
}
