package projector

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	lattice "github.com/lattice-log/lattice"
)

// Lag is how far one projection is behind on one partition.
type Lag struct {
	Projection string `json:"projection"`
	Partition  int32  `json:"partition"`
	Committed  int64  `json:"committed"` // -1: nothing was committed yet
	End        int64  `json:"end"`
	Lag        int64  `json:"lag"` // records
}

// Lags asks Kafka how far the projections are behind on a topic, in the order of their
// names and partitions.
func Lags(ctx context.Context, kafka []kgo.Opt, group, topic string, projections []string) ([]Lag, error) {
	client, err := kgo.NewClient(kafka...)
	if err != nil {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("connect to Kafka: %w", err))
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	fail := func(what string, err error) error {
		return lattice.E(lattice.Unavailable, fmt.Errorf("%s of topic %s: %w", what, topic, err))
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fail("read the ends", err)
	}
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, fail("read the starts", err)
	}
	var all []Lag
	for _, name := range projections {
		committed, err := admin.FetchOffsets(ctx, GroupOf(group, name))
		if err != nil {
			return nil, fail("read the committed offsets of "+name, err)
		}
		for partition, end := range ends[topic] {
			l := Lag{Projection: name, Partition: partition, Committed: -1, End: end.Offset}
			from := starts[topic][partition].Offset
			if c, ok := committed.Lookup(topic, partition); ok && c.Err == nil && c.At >= 0 {
				l.Committed = c.At
				from = max(from, c.At)
			}
			l.Lag = max(end.Offset-from, 0)
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b Lag) int {
		if n := strings.Compare(a.Projection, b.Projection); n != 0 {
			return n
		}
		return int(a.Partition - b.Partition)
	})
	return all, nil
}
