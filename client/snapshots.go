package client

import (
	"context"
	"time"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Snapshot is a snapshot of a store's state that the node keeps.
type Snapshot struct {
	ID    string    `json:"id"`    // stands for all of its content
	Taken time.Time `json:"taken"` // zero for the base
	Bytes int64     `json:"bytes"`
	Root  string    `json:"root"` // of the state in it
	Base  bool      `json:"base"` // entries below it were pruned: the state begins from it
}

// Floor is up to where the node pruned a store's entries: what they did is not known
// there any more, and what they came to is in a snapshot.
type Floor struct {
	Snapshot string    `json:"snapshot"` // its id
	Through  time.Time `json:"through"`  // of the newest of them, by its author's clock
	Pruned   time.Time `json:"pruned"`   // when that was done; zero: not known
}

// Watermark is up to where all active members have a store's entries, as they have said
// themselves: what may be pruned.
type Watermark struct {
	Entries uint64            `json:"entries"` // below it
	Members []WatermarkMember `json:"members"`
}

// WatermarkMember is what an active member has said.
type WatermarkMember struct {
	Node    string `json:"node"`    // its id
	Entries uint64 `json:"entries"` // that are durable with it
	Behind  uint64 `json:"behind"`  // of those that are here, what it has not said to have
	Self    bool   `json:"self"`
}

func watermarkOf(w *pb.Watermark) *Watermark {
	if w == nil {
		return nil
	}
	out := &Watermark{Entries: w.Entries}
	for _, m := range w.Members {
		out.Members = append(out.Members, WatermarkMember{m.Node, m.Entries, m.Behind, m.Self})
	}
	return out
}

// Pruned says what a pruning freed.
type Pruned struct {
	Base    Snapshot `json:"base"`
	Entries uint64   `json:"entries"` // that were dropped
	Logs    int32    `json:"logs"`    // of closed incarnations, that went as a whole
	Bytes   int64    `json:"bytes"`   // freed in logs
}

// Imported says what an import brought.
type Imported struct {
	Store   Store  `json:"store"`
	Made    bool   `json:"made"`    // the store was not on the node before
	Changed bool   `json:"changed"` // something in the snapshot was not in the store
	Entries uint64 `json:"entries"` // that were not here
	Rows    uint64 `json:"rows"`    // in the snapshot
	Signer  string `json:"signer"`  // public key of the node that signed it
	Role    string `json:"role"`    // what the node may do in the store
}

// Snapshots lists the snapshots that the node keeps of the store's state, the
// oldest first.
func (c *Client) Snapshots(ctx context.Context) ([]Snapshot, error) {
	res, err := c.stores.Snapshots(ctx, &pb.StoreServiceSnapshotsRequest{Store: c.store})
	if err != nil {
		return nil, err
	}
	all := make([]Snapshot, len(res.Snapshots))
	for i, s := range res.Snapshots {
		all[i] = snapshotOf(s)
	}
	return all, nil
}

// TakeSnapshot has the node keep a snapshot of the store's state as it is now. If the
// newest one holds the same, it is that.
func (c *Client) TakeSnapshot(ctx context.Context) (Snapshot, error) {
	res, err := c.stores.Snapshot(ctx, &pb.StoreServiceSnapshotRequest{Store: c.store})
	if err != nil {
		return Snapshot{}, err
	}
	return snapshotOf(res.Snapshot), nil
}

// DropSnapshot has the node remove a kept snapshot. Kinds NotFound, Conflict (entries
// below it were pruned).
func (c *Client) DropSnapshot(ctx context.Context, id string) error {
	_, err := c.stores.DropSnapshot(ctx, &pb.StoreServiceDropSnapshotRequest{Store: c.store, Snapshot: id})
	return err
}

// Prune has the node drop the entries that a kept snapshot covers; with an empty id it
// takes one first. The state stays what it is. Kinds NotFound, Conflict, NotYet (an active
// member has not said to have them).
func (c *Client) Prune(ctx context.Context, id string) (Pruned, error) {
	return c.prune(ctx, &pb.StoreServicePruneRequest{Store: c.store, Snapshot: id})
}

// PruneAnyway is Prune without regard to members that have not said to have the entries:
// they get them as a snapshot. Kinds NotFound, Conflict.
func (c *Client) PruneAnyway(ctx context.Context, id string) (Pruned, error) {
	return c.prune(ctx, &pb.StoreServicePruneRequest{Store: c.store, Snapshot: id, Anyway: true})
}

func (c *Client) prune(ctx context.Context, r *pb.StoreServicePruneRequest) (Pruned, error) {
	res, err := c.stores.Prune(ctx, r)
	if err != nil {
		return Pruned{}, err
	}
	return Pruned{snapshotOf(res.Base), res.Entries, res.Logs, res.Bytes}, nil
}

// PruneBelow has the node prune to the newest snapshot that is not beyond a frontier,
// which a Store had, or a change that Watch told of (its Resume); if the state is not
// beyond it, to a snapshot of now. Kinds NotFound (there is none), Invalid, Conflict, NotYet.
func (c *Client) PruneBelow(ctx context.Context, frontier []byte) (Pruned, error) {
	return c.prune(ctx, &pb.StoreServicePruneRequest{Store: c.store, Below: frontier})
}

// ReadSnapshot returns bytes of a kept snapshot from an offset on; none: that is all
// of it. Kind NotFound.
func (c *Client) ReadSnapshot(ctx context.Context, id string, offset int64) ([]byte, error) {
	res, err := c.stores.Export(ctx, &pb.StoreServiceExportRequest{Store: c.store, Snapshot: id, Offset: offset})
	if err != nil {
		return nil, err
	}
	return res.Data, nil
}

// SendSnapshot gives the node bytes of a snapshot of a size, which belong at offset,
// and returns how many it has: that is where to go on. When it has all, it joins them
// with the snapshot's store, or makes that, and says what came of it. Kinds Corrupt,
// Denied, Conflict.
func (c *Client) SendSnapshot(ctx context.Context, id string, size, offset int64, data []byte) (int64, *Imported, error) {
	res, err := c.stores.Import(ctx, &pb.StoreServiceImportRequest{Snapshot: id, Size: size, Offset: offset, Data: data})
	if err != nil {
		return 0, nil, err
	}
	if m := res.Imported; m != nil {
		return res.Received, &Imported{storeOf(m.Store), m.Made, m.Changed, m.Entries, m.Rows, m.Signer, m.Role}, nil
	}
	return res.Received, nil, nil
}

func snapshotOf(s *pb.Snapshot) Snapshot {
	out := Snapshot{ID: s.GetId(), Bytes: s.GetBytes(), Root: s.GetRoot(), Base: s.GetBase()}
	if s.GetTaken() != nil {
		out.Taken = s.GetTaken().AsTime()
	}
	return out
}

func floorOf(f *pb.Floor) *Floor {
	if f == nil {
		return nil
	}
	out := &Floor{Snapshot: f.Snapshot, Through: f.Through.AsTime()}
	if f.Pruned != nil {
		out.Pruned = f.Pruned.AsTime()
	}
	return out
}
