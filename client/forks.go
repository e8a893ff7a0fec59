package client

import (
	"context"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Fork makes a copy of the store that this client works with, as it is now, under another
// name: what is written there is seen nowhere else until it is brought back with Sync.
// Kinds Exists, Invalid, NotYet (the node has written nothing in the store).
func (c *Client) Fork(ctx context.Context, name string) (Store, error) {
	res, err := c.stores.Fork(ctx, &pb.StoreServiceForkRequest{Store: c.store, Name: name})
	if err != nil {
		return Store{}, err
	}
	return storeOf(res.Store), nil
}

// Synced is what came of bringing back a fork.
type Synced struct {
	Origin     Store             `json:"origin"`     // what it is a fork of
	Entries    uint64            `json:"entries"`    // of keys, that were brought
	Partitions []SyncedPartition `json:"partitions"` // by topic and number
}

// SyncedPartition is what became of a fork's own records of one partition.
type SyncedPartition struct {
	Topic     string `json:"topic"` // as it is called in the origin
	Partition int32  `json:"partition"`
	Same      int64  `json:"same"`   // records that have the same offset there
	Moved     int64  `json:"moved"`  // appended behind others, with the header lattice.fork
	Passed    int64  `json:"passed"` // offsets of aborted transactions, and of ends of transactions
	Left      int64  `json:"left"`   // offsets that are left in the fork
	Why       string `json:"why"`    // why they are
}

// Sync brings what was written in a fork, which this client works with, back to the store
// that it is of, and tells progress, if it is not nil, of each step: how many entries and
// records it brought. What is there is not brought twice, so that it can be called again, and
// after an error goes on where it was. Kinds Invalid (it is no fork), NotFound (what it is
// of is not on the node), Denied (the node may write no more in that).
func (c *Client) Sync(ctx context.Context, progress func(brought int64)) (Synced, error) {
	var out Synced
	at := map[SyncedPartition]int{} // by topic and number
	for {
		res, err := c.stores.Sync(ctx, &pb.StoreServiceSyncRequest{Store: c.store})
		if err != nil {
			return out, err
		}
		out.Origin = storeOf(res.Origin)
		out.Entries += res.Entries
		brought := int64(res.Entries)
		for _, p := range res.Partitions {
			brought += p.Same + p.Moved
			key := SyncedPartition{Topic: p.Topic, Partition: p.Partition}
			i, ok := at[key]
			if !ok {
				i, at[key] = len(out.Partitions), len(out.Partitions)
				out.Partitions = append(out.Partitions, key)
			}
			x := &out.Partitions[i]
			x.Same, x.Moved, x.Passed = x.Same+p.Same, x.Moved+p.Moved, x.Passed+p.Passed
			x.Left, x.Why = p.Left, p.Why
		}
		if progress != nil {
			progress(brought)
		}
		if res.Done {
			return out, nil
		}
	}
}
