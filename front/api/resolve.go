package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// topic finds a topic by name or, failing that, by id.
func (a *api) topic(storeName, name string) (*store.Store, store.Topic, error) {
	s, err := a.store(storeName)
	if err != nil {
		return nil, store.Topic{}, err
	}
	t, err := findTopic(s, name)
	return s, t, err
}

func findTopic(s *store.Store, name string) (store.Topic, error) {
	if name == "" {
		return store.Topic{}, lattice.E(lattice.Invalid, fmt.Errorf("the request names no topic"))
	}
	t, ok := s.Topic(name)
	if id, err := lattice.ParseTopicID(name); !ok && err == nil {
		t, ok = s.TopicByID(id)
	}
	if !ok {
		return t, lattice.E(lattice.NotFound, hinted(fmt.Errorf("no topic %q", name), "see lattice topic list, or create it with lattice topic create"))
	}
	return t, nil
}

// place is a partition with its number.
type place struct {
	number int32
	*partition.Partition
}

// places returns the named partitions of a topic, all when none is named.
func places(s *store.Store, t store.Topic, numbers []int32) ([]place, error) {
	if len(numbers) == 0 {
		numbers = make([]int32, t.Partitions)
		for i := range numbers {
			numbers[i] = int32(i)
		}
	}
	all := make([]place, 0, len(numbers))
	seen := make(map[int32]bool, len(numbers))
	for _, n := range numbers {
		if seen[n] {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("partition %d is named twice", n))
		}
		seen[n] = true
		p, err := partitionOf(s, t, n)
		if err != nil {
			return nil, err
		}
		all = append(all, place{n, p})
	}
	return all, nil
}

// checkNumber reports a partition that a topic does not have. Kind NotFound.
func checkNumber(t store.Topic, n int32) error {
	if n >= 0 && n < t.Partitions {
		return nil
	}
	return lattice.E(lattice.NotFound, hinted(
		fmt.Errorf("topic %q has no partition %d", t.Name, n), fmt.Sprintf("its partitions are 0 to %d", t.Partitions-1)))
}

func partitionOf(s *store.Store, t store.Topic, n int32) (*partition.Partition, error) {
	if err := checkNumber(t, n); err != nil {
		return nil, err
	}
	p, err := s.Partition(t.ID, n)
	if err != nil {
		return nil, fmt.Errorf("partition %s/%d: %w", t.Name, n, err)
	}
	return p, nil
}

// resolve turns a position into an offset from which can be read.
func (p place) resolve(ctx context.Context, at *pb.Position) (int64, error) {
	b := p.Bounds()
	switch at := at.GetAt().(type) {
	case nil, *pb.Position_Start:
		return b.Start, nil
	case *pb.Position_End:
		return b.Stable, nil
	case *pb.Position_Offset:
		return at.Offset, checkRange(p.number, at.Offset, b)
	case *pb.Position_Last:
		if at.Last < 0 {
			return 0, lattice.E(lattice.Invalid, fmt.Errorf("last %d: want a number that is not negative", at.Last))
		}
		return max(b.Start, b.Stable-at.Last), nil
	case *pb.Position_Time:
		if err := at.Time.CheckValid(); err != nil {
			return 0, lattice.E(lattice.Invalid, fmt.Errorf("time: %w", err))
		}
		found, err := p.OffsetForTime(ctx, ceilMilli(at.Time.AsTime()))
		if err != nil {
			return 0, fmt.Errorf("partition %d: look up a time: %w", p.number, err)
		}
		if found.Offset < 0 {
			return p.Bounds().Stable, nil
		}
		return found.Offset, nil
	default:
		return 0, lattice.E(lattice.Unsupported, fmt.Errorf("position %T is not known here", at))
	}
}

// ceilMilli returns the first millisecond that is not before t, since 1970.
func ceilMilli(t time.Time) int64 {
	ms := t.UnixMilli()
	if time.UnixMilli(ms).Before(t) {
		ms++
	}
	return ms
}

func checkRange(number int32, offset int64, b partition.Bounds) error {
	switch {
	case offset < b.Start:
		return lattice.E(lattice.OutOfRange, fmt.Errorf("partition %d: offset %d is below the start, %d", number, offset, b.Start))
	case offset > b.Committed:
		return lattice.E(lattice.NotYet, fmt.Errorf("partition %d: offset %d is above the end, %d", number, offset, b.Committed))
	}
	return nil
}

func stamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
