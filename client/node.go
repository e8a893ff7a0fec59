package client

import (
	"context"
	"time"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// Status is what the node tells about itself.
type Status struct {
	Node    string    `json:"node"` // public key in hex
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	// Ready is true when every listener accepts connections and no partition
	// has failed; Reasons says why not.
	Ready     bool          `json:"ready"`
	Reasons   []string      `json:"reasons,omitempty"`
	Listeners Listeners     `json:"listeners"`
	Stores    []StoreStatus `json:"stores"`
}

// Listeners are the node's addresses. Empty: that listener is off.
type Listeners struct {
	Kafka  string   `json:"kafka"`
	Redis  string   `json:"redis"`
	HTTP   string   `json:"http"`
	P2P    []string `json:"p2p"`
	Socket string   `json:"socket"`
}

// StoreStatus is the state of one store on the node.
type StoreStatus struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// StateRoot is the Merkle root over all keys in hex: equal roots, equal state.
	// Empty while it is being made, which takes long the first time, or when it
	// cannot be had, see StateFailed.
	StateRoot string `json:"state_root"`
	// FrontierRoot is a hash over how far each log is.
	FrontierRoot  string       `json:"frontier_root"`
	Peers         []PeerStatus `json:"peers"`
	Held          int64        `json:"held"`     // entries that count later: ahead of the clock, or of a newer program
	Waiting       int64        `json:"waiting"`  // entries that wait for others
	Refused       int64        `json:"refused"`  // entries from peers that were bad
	Stranded      int64        `json:"stranded"` // blocks beyond a new term's base
	Equivocations int64        `json:"equivocations"`
	Void          int64        `json:"void"` // entries that are kept and have no effect, since the start
	// Durability is a sentence: what an acknowledged write survives.
	Durability string            `json:"durability"`
	Topics     int32             `json:"topics"`
	Partitions int32             `json:"partitions"`
	Bytes      int64             `json:"bytes"`
	Failed     []FailedPartition `json:"failed,omitempty"`
	Blocks     int64             `json:"blocks"`  // of all partitions
	Writers    int64             `json:"writers"` // logs of writers of keys
	Entries    int64             `json:"entries"` // in them
	// StateFailed says why keys cannot be written, or what of them is damaged.
	StateFailed []string `json:"state_failed,omitempty"`
	// Watermark is up to where active members have the entries, which pruning waits for; nil: there is one.
	Watermark *Watermark `json:"watermark,omitempty"`
	Catchup   Catchup    `json:"catchup"` // what the node lacks
}

// PeerStatus is another node of the store, in short.
type PeerStatus struct {
	Node      string `json:"node"`
	Reachable bool   `json:"reachable"`
	// BehindBlocks is how many entries and batches it lacks of what is on the node, if that is Known: it was
	// compared with since the node started.
	BehindBlocks int64 `json:"behind_blocks"`
	Known        bool  `json:"known"`
	// Since is when it became reachable, or unreachable; zero: not known.
	Since       time.Time `json:"since,omitzero"`
	RoundTripMs float64   `json:"round_trip_ms"` // 0: not measured
	BytesIn     int64     `json:"bytes_in"`
	BytesOut    int64     `json:"bytes_out"`
	// BehindLogs is of how many logs it lacks something, and BehindSince since when; zero: it does not.
	BehindLogs    int32     `json:"behind_logs"`
	BehindSince   time.Time `json:"behind_since,omitzero"`
	MissingBlocks int64     `json:"missing_blocks"` // that it has and the node lacks
	Dormant       bool      `json:"dormant"`        // others do not wait for it
}

// FailedPartition takes no writes.
type FailedPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Reason    string `json:"reason"`
}

// Version names the program that runs the node.
type Version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Go       string `json:"go"`
	Platform string `json:"platform"` // as in "linux/amd64"
}

// Status describes the node and its stores.
func (c *Client) Status(ctx context.Context) (Status, error) {
	res, err := c.node.Status(ctx, &pb.NodeServiceStatusRequest{})
	if err != nil {
		return Status{}, err
	}
	l := res.GetListeners()
	st := Status{
		Node: res.Node, Version: res.Version, Started: res.GetStarted().AsTime(), Ready: res.Ready, Reasons: res.Reasons,
		Listeners: Listeners{l.GetKafka(), l.GetRedis(), l.GetHttp(), append([]string{}, l.GetP2P()...), l.GetSocket()},
		Stores:    []StoreStatus{},
	}
	for _, s := range res.Stores {
		o := StoreStatus{
			ID: s.Id, Name: s.Name, StateRoot: s.StateRoot, FrontierRoot: s.FrontierRoot, Peers: []PeerStatus{},
			Held: s.Held, Waiting: s.Waiting, Refused: s.Refused, Stranded: s.Stranded, Equivocations: s.Equivocations, Void: s.Void,
			Durability: s.Durability, Topics: s.Topics, Partitions: s.Partitions, Bytes: s.Bytes,
			Blocks: s.Blocks, Writers: s.Writers, Entries: s.Entries, StateFailed: s.StateFailed,
			Watermark: watermarkOf(s.Watermark), Catchup: catchupOf(s.Catchup),
		}
		for _, p := range s.Peers {
			o.Peers = append(o.Peers, PeerStatus{
				Node: p.Node, Reachable: p.Reachable, BehindBlocks: p.BehindBlocks, Known: p.Known, Since: timeOf(p.Since), RoundTripMs: float64(p.RoundTrip.AsDuration().Microseconds()) / 1000,
				BytesIn: p.BytesIn, BytesOut: p.BytesOut, BehindLogs: p.BehindLogs, BehindSince: timeOf(p.BehindSince), MissingBlocks: p.MissingBlocks, Dormant: p.Dormant,
			})
		}
		for _, f := range s.Failed {
			o.Failed = append(o.Failed, FailedPartition{f.Topic, f.Partition, f.Reason})
		}
		st.Stores = append(st.Stores, o)
	}
	return st, nil
}

// Version asks which program runs the node.
func (c *Client) Version(ctx context.Context) (Version, error) {
	res, err := c.node.Version(ctx, &pb.NodeServiceVersionRequest{})
	if err != nil {
		return Version{}, err
	}
	return Version{res.Version, res.Commit, res.Go, res.Platform}, nil
}

// Config lists the node's effective configuration, sorted by name.
func (c *Client) Config(ctx context.Context) ([]ConfigEntry, error) {
	res, err := c.node.Config(ctx, &pb.NodeServiceConfigRequest{})
	if err != nil {
		return nil, err
	}
	all := make([]ConfigEntry, len(res.Entries))
	for i, e := range res.Entries {
		all[i] = ConfigEntry{Name: e.Name, Value: e.Value, Default: e.Default, Source: e.Source, Doc: e.Doc, Sensitive: e.Sensitive}
	}
	return all, nil
}
