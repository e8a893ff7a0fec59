package client

import (
	"context"
	"time"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Store describes one store.
type Store struct {
	ID          string    `json:"id"` // 64 hex characters
	Name        string    `json:"name"`
	Created     time.Time `json:"created"`
	Incarnation uint64    `json:"incarnation"` // start number of the node
	KafkaNodeID int32     `json:"kafka_node_id"`
	Topics      int32     `json:"topics"`
	Partitions  int32     `json:"partitions"`
	Bytes       int64     `json:"bytes"`
	// Default: what clients mean that name no store.
	Default bool `json:"default"`
	// Role is what the node may do in it, as far as it knows: none, reader, writer,
	// admin or owner.
	Role    string `json:"role"`
	Creator string `json:"creator"` // the node that made it, 64 hex characters
	// ForkOf is the id of the store that it is a fork of; empty: it is none.
	ForkOf string `json:"fork_of"`

	// What follows is known of a store that Store returned.

	Frontier []byte  `json:"frontier"` // how far its state is: for PruneBelow, and WatchOptions.From
	Floor    *Floor  `json:"floor"`    // up to where entries were pruned; nil: nowhere
	Upkeep   *Upkeep `json:"upkeep"`   // what the node does about that by itself
	// Watermark is up to where it may be pruned; nil: the node is its only active member.
	Watermark *Watermark `json:"watermark"`
}

// Upkeep is when the node takes snapshots of a store's state by itself, and prunes.
type Upkeep struct {
	SnapshotEvery time.Duration `json:"snapshot_every"` // 0: it does not
	SnapshotKeep  int32         `json:"snapshot_keep"`  // how many stay
	PruneAfter    time.Duration `json:"prune_after"`    // age to which it prunes; negative: never
	Snapshots     int32         `json:"snapshots"`      // there are, without the one that was pruned to
	Newest        time.Time     `json:"newest"`         // of them; zero: there is none
	PrunedEntries uint64        `json:"pruned_entries"` // since the start, for whatever reason
	Failures      uint64        `json:"failures"`       // since the start
	Failed        string        `json:"failed"`         // why the last time failed; empty: it did not
}

// Stores lists the stores that the node carries.
func (c *Client) Stores(ctx context.Context) ([]Store, error) {
	res, err := c.stores.List(ctx, &pb.StoreServiceListRequest{})
	if err != nil {
		return nil, err
	}
	all := make([]Store, len(res.Stores))
	for i, s := range res.Stores {
		all[i] = storeOf(s)
	}
	return all, nil
}

// Store describes the store that this client works with. Kind NotFound.
func (c *Client) Store(ctx context.Context) (Store, error) {
	res, err := c.stores.Info(ctx, &pb.StoreServiceInfoRequest{Store: c.store})
	if err != nil {
		return Store{}, err
	}
	return storeOf(res.Store), nil
}

// CreateStore makes a store on the node and returns it. Kinds Exists, Invalid.
func (c *Client) CreateStore(ctx context.Context, name string) (Store, error) {
	res, err := c.stores.Create(ctx, &pb.StoreServiceCreateRequest{Name: name})
	if err != nil {
		return Store{}, err
	}
	return storeOf(res.Store), nil
}

// UseStore makes a store, by name or id, the node's default. Kind NotFound.
func (c *Client) UseStore(ctx context.Context, name string) (Store, error) {
	res, err := c.stores.Use(ctx, &pb.StoreServiceUseRequest{Store: name})
	if err != nil {
		return Store{}, err
	}
	return storeOf(res.Store), nil
}

func storeOf(s *pb.Store) Store {
	return Store{
		ID: s.GetId(), Name: s.GetName(), Created: s.GetCreated().AsTime(), Incarnation: s.GetIncarnation(),
		KafkaNodeID: s.GetKafkaNodeId(), Topics: s.GetTopics(), Partitions: s.GetPartitions(), Bytes: s.GetBytes(), Default: s.GetDefault(),
		Role: s.GetRole(), Creator: s.GetCreator(), ForkOf: s.GetForkOf(),
		Frontier: s.GetFrontier(), Floor: floorOf(s.GetFloor()), Upkeep: upkeepOf(s.GetUpkeep()), Watermark: watermarkOf(s.GetWatermark()),
	}
}

func upkeepOf(u *pb.Upkeep) *Upkeep {
	if u == nil {
		return nil
	}
	out := &Upkeep{
		SnapshotEvery: time.Duration(u.SnapshotEveryMs) * time.Millisecond, SnapshotKeep: u.SnapshotKeep,
		PruneAfter: time.Duration(u.PruneAfterMs) * time.Millisecond, Snapshots: u.Snapshots,
		PrunedEntries: u.PrunedEntries, Failures: u.Failures, Failed: u.Failed,
	}
	if u.Newest != nil {
		out.Newest = u.Newest.AsTime()
	}
	return out
}
