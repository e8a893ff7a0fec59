package client

import (
	"context"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Group is a consumer group without its details.
type Group struct {
	Name string `json:"name"`
	// State is spelled as Kafka does: "Stable", "Empty", "PreparingRebalance", ...;
	// "Unknown" if the node that coordinates the group cannot be asked.
	State string `json:"state"`
	// Type is "classic" or "consumer" (KIP-848).
	Type         string `json:"type"`
	ProtocolType string `json:"protocol_type"`
	Assignor     string `json:"assignor"`
	Members      int32  `json:"members"`
	Epoch        int32  `json:"epoch"` // generation, or group epoch
	Home         string `json:"home"`  // id of the node that coordinates it; empty: none does yet
}

// GroupDetails is a group with its members and its lag.
type GroupDetails struct {
	Group
	Roster  []GroupMember // the members
	Offsets []GroupOffset // sorted by topic and partition
	Lag     int64         // sum over Offsets
}

// GroupMember is one member of a group.
type GroupMember struct {
	ID         string             `json:"id"`
	InstanceID string             `json:"instance_id,omitempty"` // of a static member
	ClientID   string             `json:"client_id"`
	Host       string             `json:"host"`
	Assignment map[string][]int32 `json:"assignment"` // partitions by topic
}

// GroupOffset is how far a group is in one partition.
type GroupOffset struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"` // -1: nothing committed
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
	Metadata  string `json:"metadata,omitempty"`
	Member    string `json:"member,omitempty"` // who has the partition
}

// GroupReset says what ResetGroup does.
type GroupReset struct {
	Topic      string
	Partitions []int32 // none: all
	To         Position
	DryRun     bool
}

// GroupMoved tells how one committed offset moved.
type GroupMoved struct {
	Partition int32 `json:"partition"`
	OldOffset int64 `json:"old_offset"` // -1: nothing was committed
	Offset    int64 `json:"offset"`
}

// TopicPartition names a partition by topic name.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Groups lists the consumer groups, sorted by name.
func (c *Client) Groups(ctx context.Context) ([]Group, error) {
	res, err := c.groups.List(ctx, &pb.GroupServiceListRequest{Store: c.store})
	if err != nil {
		return nil, err
	}
	all := make([]Group, len(res.Groups))
	for i, g := range res.Groups {
		all[i] = groupOf(g)
	}
	return all, nil
}

// Group describes one group. Kind NotFound.
func (c *Client) Group(ctx context.Context, name string) (GroupDetails, error) {
	res, err := c.groups.Describe(ctx, &pb.GroupServiceDescribeRequest{Store: c.store, Group: name})
	if err != nil {
		return GroupDetails{}, err
	}
	d := GroupDetails{Group: groupOf(res.Group), Lag: res.Lag}
	for _, m := range res.Members {
		o := GroupMember{ID: m.Id, InstanceID: m.InstanceId, ClientID: m.ClientId, Host: m.Host, Assignment: map[string][]int32{}}
		for _, tp := range m.Assignment {
			o.Assignment[tp.Topic] = append(o.Assignment[tp.Topic], tp.Partitions...)
		}
		d.Roster = append(d.Roster, o)
	}
	for _, o := range res.Offsets {
		d.Offsets = append(d.Offsets, GroupOffset{o.Topic, o.Partition, o.Committed, o.End, o.Lag, o.Metadata, o.Member})
	}
	return d, nil
}

// ResetGroup moves the committed offsets of a group in one topic. Kind
// Conflict while the group has members.
func (c *Client) ResetGroup(ctx context.Context, name string, r GroupReset) ([]GroupMoved, error) {
	res, err := c.groups.Reset(ctx, &pb.GroupServiceResetRequest{
		Store: c.store, Group: name, Topic: r.Topic, Partitions: r.Partitions, To: r.To.message(), DryRun: r.DryRun,
	})
	if err != nil {
		return nil, err
	}
	all := make([]GroupMoved, len(res.Moved))
	for i, m := range res.Moved {
		all[i] = GroupMoved{m.Partition, m.OldOffset, m.Offset}
	}
	return all, nil
}

// DeleteGroup removes a group and its offsets. Kinds NotFound, and Conflict
// while it has members.
func (c *Client) DeleteGroup(ctx context.Context, name string) error {
	_, err := c.groups.Delete(ctx, &pb.GroupServiceDeleteRequest{Store: c.store, Group: name})
	return err
}

// GroupHome is which node coordinates a group, after a move and before.
type GroupHome struct {
	OldHome string // empty: none did
	Home    string
}

// MoveGroup has another node, given by its id or how that begins, coordinate a group. Its
// members join again, and go on where the group has committed. force takes the group from
// a home that cannot be reached: until that is back, members on both sides get the same
// records. Kinds NotFound, Unavailable (a node cannot be reached), Conflict (a transaction
// holds offsets of the group), Unsupported (share groups do not move).
func (c *Client) MoveGroup(ctx context.Context, name, to string, force bool) (GroupHome, error) {
	res, err := c.groups.Move(ctx, &pb.GroupServiceMoveRequest{Store: c.store, Group: name, To: to, Force: force})
	if err != nil {
		return GroupHome{}, err
	}
	return GroupHome{OldHome: res.OldHome, Home: res.Home}, nil
}

// CommitGroup stores offsets (of the next record to read) for a group without
// members. Kind Conflict when the group has members.
func (c *Client) CommitGroup(ctx context.Context, name string, offsets map[TopicPartition]int64) error {
	req := &pb.GroupServiceCommitRequest{Store: c.store, Group: name}
	for tp, o := range offsets {
		req.Offsets = append(req.Offsets, &pb.GroupServiceCommitRequest_Offset{Topic: tp.Topic, Partition: tp.Partition, Offset: o})
	}
	_, err := c.groups.Commit(ctx, req)
	return err
}

func groupOf(g *pb.Group) Group {
	return Group{
		Name: g.GetName(), State: g.GetState(), Type: g.GetType(), ProtocolType: g.GetProtocolType(),
		Assignor: g.GetAssignor(), Members: g.GetMembers(), Epoch: g.GetEpoch(), Home: g.GetHome(),
	}
}
