package client

import (
	"context"
	"time"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Topic is a topic without its details.
type Topic struct {
	Name       string    `json:"name"`
	ID         string    `json:"id"` // 32 hex characters
	Partitions int32     `json:"partitions"`
	Created    time.Time `json:"created"`
	// Records is the number of offsets in use; with compaction there are fewer records.
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"` // on disk
	// Config is what was set; defaults are not in it.
	Config map[string]string `json:"config"`
	// CreatedAs is the name that it was created with, if an earlier topic has that.
	CreatedAs string `json:"created_as,omitempty"`
}

// TopicDetails is a topic with its partitions and its whole configuration.
type TopicDetails struct {
	Topic
	Details []Partition   // by number
	Entries []ConfigEntry // sorted by name
}

// Partition describes one partition of a topic.
type Partition struct {
	Partition int32  `json:"partition"`
	Leader    string `json:"leader"` // public key in hex
	Term      int32  `json:"term"`
	Start     int64  `json:"start"`     // first offset that is still there
	End       int64  `json:"end"`       // next offset to assign
	Committed int64  `json:"committed"` // readers see records below it
	// CheckpointSize is the number of blocks in the last checkpoint, 0 when there is none.
	CheckpointSize uint64        `json:"checkpoint_size"`
	Root           string        `json:"root"` // Merkle root of that checkpoint in hex
	Bytes          int64         `json:"bytes"`
	Segments       int32         `json:"segments"`
	Failed         string        `json:"failed,omitempty"` // why it takes no writes
	Damaged        []OffsetRange `json:"damaged,omitempty"`
	// Elsewhere: its leader is another node, and what is said is of the follower here.
	Elsewhere bool `json:"elsewhere,omitempty"`
	// Replicas have to hold its records, the leader among them; MinInSync of them make one
	// committed.
	Replicas  []Replica `json:"replicas"`
	MinInSync int32     `json:"min_in_sync"`
	// OnlyHere are records that no other node is known to hold.
	OnlyHere int64 `json:"only_here"`
}

// Replica is a node that has to hold a partition's records.
type Replica struct {
	Node   string `json:"node"` // public key in hex
	End    int64  `json:"end"`  // it holds what lies below, as far as is known
	InSync bool   `json:"in_sync"`
	// Behind is for how long it has lacked something, in ms; the leader alone knows.
	Behind int64 `json:"behind_ms,omitempty"`
}

// OffsetRange is half open: From is in it, To is not.
type OffsetRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// ConfigEntry is one configuration key of a topic or a node.
type ConfigEntry struct {
	Name    string `json:"name"`
	Value   string `json:"value"`
	Default string `json:"default"`
	// Source is "default", "topic" or "node" for topics, and "default", "file",
	// "environment" or "flag" for nodes.
	Source string `json:"source"`
	// Type is "boolean", "string", "int", "long", "double", "list" or
	// "password" for topics.
	Type      string `json:"type,omitempty"`
	ReadOnly  bool   `json:"read_only,omitempty"`
	Sensitive bool   `json:"sensitive,omitempty"` // the value is left out
	Doc       string `json:"doc,omitempty"`
}

// NewTopic is a topic to create.
type NewTopic struct {
	Name         string
	Partitions   int32 // 0: the store's default
	Config       map[string]string
	ValidateOnly bool
	Leaders      []string // members that lead the partitions in turn; none: the node that is asked
}

// TopicChange is what AlterTopic does.
type TopicChange struct {
	Set          map[string]string
	Reset        []string // keys that go back to their defaults
	Partitions   int32    // new total; 0 leaves it
	ValidateOnly bool
}

// Truncation tells how the start of one partition moved.
type Truncation struct {
	Partition int32 `json:"partition"`
	OldStart  int64 `json:"old_start"`
	Start     int64 `json:"start"`
}

// PartitionOffsets is a position turned into an offset.
type PartitionOffsets struct {
	Partition int32 `json:"partition"`
	Offset    int64 `json:"offset"`
	Start     int64 `json:"start"`
	Committed int64 `json:"committed"`
}

// Topics lists the topics of the store, sorted by name.
func (c *Client) Topics(ctx context.Context) ([]Topic, error) {
	res, err := c.topics.List(ctx, &pb.TopicServiceListRequest{Store: c.store})
	if err != nil {
		return nil, err
	}
	all := make([]Topic, len(res.Topics))
	for i, t := range res.Topics {
		all[i] = topicOf(t)
	}
	return all, nil
}

// Topic describes one topic, by name or id. Kind NotFound.
func (c *Client) Topic(ctx context.Context, topic string) (TopicDetails, error) {
	res, err := c.topics.Describe(ctx, &pb.TopicServiceDescribeRequest{Store: c.store, Topic: topic})
	if err != nil {
		return TopicDetails{}, err
	}
	d := TopicDetails{Topic: topicOf(res.Topic)}
	for _, p := range res.Partitions {
		part := Partition{
			Partition: p.Partition, Leader: p.Leader, Term: p.Term, Start: p.Start, End: p.End, Committed: p.Committed,
			CheckpointSize: p.CheckpointSize, Root: p.Root, Bytes: p.Bytes, Segments: p.Segments, Failed: p.Failed,
			Elsewhere: p.Elsewhere, MinInSync: p.MinInSync, OnlyHere: p.OnlyHere, Replicas: []Replica{},
		}
		for _, r := range p.Replicas {
			part.Replicas = append(part.Replicas, Replica{r.Node, r.End, r.InSync, r.BehindMs})
		}
		for _, r := range p.Damaged {
			part.Damaged = append(part.Damaged, OffsetRange{r.From, r.To})
		}
		d.Details = append(d.Details, part)
	}
	for _, e := range res.Config {
		d.Entries = append(d.Entries, ConfigEntry{
			Name: e.Name, Value: e.Value, Default: e.Default, Source: e.Source, Type: e.Type,
			ReadOnly: e.ReadOnly, Sensitive: e.Sensitive, Doc: e.Doc,
		})
	}
	return d, nil
}

// CreateTopic makes a topic, durably. Kinds Exists, Invalid.
func (c *Client) CreateTopic(ctx context.Context, t NewTopic) (Topic, error) {
	res, err := c.topics.Create(ctx, &pb.TopicServiceCreateRequest{
		Store: c.store, Name: t.Name, Partitions: t.Partitions, Config: t.Config, ValidateOnly: t.ValidateOnly, Leaders: t.Leaders,
	})
	if err != nil {
		return Topic{}, err
	}
	return topicOf(res.Topic), nil
}

// AlterTopic changes the configuration or adds partitions. Kinds NotFound, Invalid.
func (c *Client) AlterTopic(ctx context.Context, topic string, ch TopicChange) (Topic, error) {
	res, err := c.topics.Alter(ctx, &pb.TopicServiceAlterRequest{
		Store: c.store, Topic: topic, Set: ch.Set, Reset_: ch.Reset, Partitions: ch.Partitions, ValidateOnly: ch.ValidateOnly,
	})
	if err != nil {
		return Topic{}, err
	}
	return topicOf(res.Topic), nil
}

// DeleteTopic removes a topic and its records. Kind NotFound.
func (c *Client) DeleteTopic(ctx context.Context, topic string) error {
	_, err := c.topics.Delete(ctx, &pb.TopicServiceDeleteRequest{Store: c.store, Topic: topic})
	return err
}

// TruncateTopic moves the start of the given partitions (none: of all) forward
// to before. Kind OutOfRange when that is beyond what is committed.
func (c *Client) TruncateTopic(ctx context.Context, topic string, before Position, partitions ...int32) ([]Truncation, error) {
	res, err := c.topics.Truncate(ctx, &pb.TopicServiceTruncateRequest{
		Store: c.store, Topic: topic, Partitions: partitions, Before: before.message(),
	})
	if err != nil {
		return nil, err
	}
	all := make([]Truncation, len(res.Starts))
	for i, s := range res.Starts {
		all[i] = Truncation{s.Partition, s.OldStart, s.Start}
	}
	return all, nil
}

// Led is a partition that was given to another leader. Both are node ids.
type Led struct {
	Partition int32  `json:"partition"`
	OldLeader string `json:"old_leader"`
	Leader    string `json:"leader"`
}

// LeadTopic gives the given partitions (none: all) to another leader, a member named by
// its node id or how that begins. Kinds NotFound, Conflict (transactions are open, or
// several members are meant), Invalid (it may not write), Unavailable (the leader, or
// who is to lead, cannot be reached).
func (c *Client) LeadTopic(ctx context.Context, topic, to string, partitions ...int32) ([]Led, error) {
	return c.lead(ctx, &pb.TopicServiceLeadRequest{Store: c.store, Topic: topic, Partitions: partitions, To: to})
}

func (c *Client) lead(ctx context.Context, r *pb.TopicServiceLeadRequest) ([]Led, error) {
	res, err := c.topics.Lead(ctx, r)
	if err != nil {
		return nil, err
	}
	all := make([]Led, len(res.Led))
	for i, l := range res.Led {
		all[i] = Led{l.Partition, l.OldLeader, l.Leader}
	}
	return all, nil
}

// TakeOverTopic has a member lead the given partitions (none: all) though their leader does
// not answer, by promises of enough members of their ack sets, of which it is one; to is
// as for LeadTopic, or empty: the node that is asked. Nothing that enough of them had
// acknowledged is lost. Kinds besides: Unavailable (too few promised, or nobody can supply
// what is needed; the error says who and what), Denied (it is no member of the set).
func (c *Client) TakeOverTopic(ctx context.Context, topic, to string, partitions ...int32) ([]Led, error) {
	return c.lead(ctx, &pb.TopicServiceLeadRequest{Store: c.store, Topic: topic, Partitions: partitions, To: to, Takeover: true})
}

// Offsets turns a position into offsets, for the given partitions or for all.
func (c *Client) Offsets(ctx context.Context, topic string, at Position, partitions ...int32) ([]PartitionOffsets, error) {
	res, err := c.logs.Offsets(ctx, &pb.OffsetsRequest{Store: c.store, Topic: topic, Partitions: partitions, At: at.message()})
	if err != nil {
		return nil, err
	}
	all := make([]PartitionOffsets, len(res.Offsets))
	for i, o := range res.Offsets {
		all[i] = PartitionOffsets{o.Partition, o.Offset, o.Start, o.Committed}
	}
	return all, nil
}

func topicOf(t *pb.Topic) Topic {
	return Topic{
		Name: t.GetName(), ID: t.GetId(), Partitions: t.GetPartitions(), Created: t.GetCreated().AsTime(),
		Records: t.GetRecords(), Bytes: t.GetBytes(), Config: t.GetConfig(), CreatedAs: t.GetCreatedAs(),
	}
}
