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
		Role: s.GetRole(), Creator: s.GetCreator(),
	}
}
