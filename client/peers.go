package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// NewInvitation is an invitation to make. The zero value: a writer, for 24 hours, at
// the addresses where the node listens.
type NewInvitation struct {
	Role      string // reader, writer, admin or owner
	Good      time.Duration
	Addresses []string // multiaddrs where others reach the node
}

// Invited is an invitation that was made. Whoever has the token can join: keep it like
// a password.
type Invited struct {
	Invitation
	Token     string   `json:"token"`
	Addresses []string `json:"addresses"` // where it says that the node is reached
	Store     Store    `json:"store"`
}

// Invitation is what has become of an invitation.
type Invitation struct {
	ID        string    `json:"id"`
	Inviter   string    `json:"inviter"` // the node that made it and alone redeems it, 64 hex characters
	Role      string    `json:"role"`
	Expires   time.Time `json:"expires"`
	State     string    `json:"state"` // open, used, revoked or expired
	ClaimedBy string    `json:"claimed_by,omitempty"`
}

// Joined is a store that the node joined.
type Joined struct {
	Store   Store  `json:"store"`
	Inviter string `json:"inviter"`
	Again   bool   `json:"again"` // the store was here from an earlier attempt
	// Previous was the default store, if that has changed.
	Previous *Store `json:"previous,omitempty"`
}

// Peers are the other nodes of a store.
type Peers struct {
	Store     Store    `json:"store"`
	Addresses []string `json:"addresses"` // where others reach this node
	Peers     []Peer   `json:"peers"`
	// Refused is what others sent and was refused, by reason, since the node started.
	Refused map[string]int64 `json:"refused,omitempty"`
	Problem string           `json:"problem,omitempty"` // why the store takes no part now
	Catchup Catchup          `json:"catchup"`
}

// Catchup is what the node lacks of a store, as far as it knows, and how fast it comes.
type Catchup struct {
	Entries         int64   `json:"entries"` // of writers' logs
	Batches         int64   `json:"batches"` // of partitions
	BlocksPerSecond float64 `json:"blocks_per_second"`
	BytesPerSecond  float64 `json:"bytes_per_second"`
	// Fetching is the snapshot that is being fetched; nil: none.
	Fetching *Fetching `json:"fetching,omitempty"`
}

// Fetching is a snapshot that is being fetched.
type Fetching struct {
	Node           string    `json:"node"` // where from
	Bytes          int64     `json:"bytes"`
	Here           int64     `json:"here"` // of them
	BytesPerSecond float64   `json:"bytes_per_second"`
	Since          time.Time `json:"since"`
}

// Peer is another node of a store, as this one reaches it.
type Peer struct {
	Node      string        `json:"node"`
	Role      string        `json:"role"`
	Reachable bool          `json:"reachable"`
	Since     time.Time     `json:"since"`      // when it became so; zero: not known
	RoundTrip time.Duration `json:"round_trip"` // 0: not measured
	BytesIn   int64         `json:"bytes_in"`
	BytesOut  int64         `json:"bytes_out"`
	Behind    int64         `json:"behind"` // entries and batches that it has and this node lacks, as far as is known
	Ahead     int64         `json:"ahead"`  // the other way round
	// Known is true if it was compared with since the node started, so that Ahead is known, and of
	// how many logs that is, and since when it lacks something; zero: it does not.
	Known      bool      `json:"known"`
	AheadLogs  int32     `json:"ahead_logs"`
	AheadSince time.Time `json:"ahead_since,omitzero"`
	Logs       []PeerLag `json:"logs,omitempty"` // those that were asked for, the worst first
	Dormant    bool      `json:"dormant"`        // others do not wait for it
	Equal      bool      `json:"equal"`          // neither lacks anything, as it said last
	Addresses  []string  `json:"addresses"`
	Problem    string    `json:"problem,omitempty"` // why it is not reached, or why the last session ended
}

// PeerLag is a log of which a peer has less than the node.
type PeerLag struct {
	Writer      string    `json:"writer,omitempty"` // empty: it is a partition
	Incarnation uint64    `json:"incarnation,omitempty"`
	TopicID     string    `json:"topic_id,omitempty"`
	Topic       string    `json:"topic,omitempty"` // its name, if that is known
	Partition   int32     `json:"partition"`
	Has         uint64    `json:"has"` // entries, or batches
	Here        uint64    `json:"here"`
	Since       time.Time `json:"since"`
}

// Member belongs to a store, or did.
type Member struct {
	Node      string    `json:"node"`
	Role      string    `json:"role"` // none: it was removed
	Creator   bool      `json:"creator"`
	Self      bool      `json:"self"`
	By        string    `json:"by,omitempty"`
	RemovedBy string    `json:"removed_by,omitempty"`
	Unseen    int64     `json:"unseen"` // entries of a removed member that are here and do not count
	Forked    bool      `json:"forked"`
	Entries   int64     `json:"entries"`
	Last      time.Time `json:"last"`
	Dormant   bool      `json:"dormant"` // nobody waits for it
}

// RemovedMember says what a removal did.
type RemovedMember struct {
	Node    string `json:"node"`
	Role    string `json:"role"`    // what it was
	Entries int64  `json:"entries"` // of its entries count on
}

// Invite makes an invitation to the store, for one node. Kinds Denied, Unavailable
// (nobody could reach the node), Invalid.
func (c *Client) Invite(ctx context.Context, n NewInvitation) (Invited, error) {
	req := &pb.PeerServiceInviteRequest{Store: c.store, Role: n.Role, Addresses: n.Addresses}
	if n.Good != 0 {
		req.ExpiresIn = durationpb.New(n.Good)
	}
	res, err := c.peers.Invite(ctx, req)
	if err != nil {
		return Invited{}, err
	}
	return Invited{invitationOf(res.Invitation), res.Token, res.Addresses, storeOf(res.Store)}, nil
}

// Join has the node join the store of an invitation, and make it its default unless
// that is to be kept. Kinds Invalid (no token), Unavailable (the inviter is not
// reached), Denied, Exists (it is a member already).
func (c *Client) Join(ctx context.Context, token string, keepDefault bool) (Joined, error) {
	res, err := c.peers.Join(ctx, &pb.PeerServiceJoinRequest{Token: token, KeepDefault: keepDefault})
	if err != nil {
		return Joined{}, err
	}
	j := Joined{Store: storeOf(res.Store), Inviter: res.Inviter, Again: res.Again}
	if res.Previous != nil {
		s := storeOf(res.Previous)
		j.Previous = &s
	}
	return j, nil
}

// Peers lists the other nodes of the store, and how this one reaches them.
func (c *Client) Peers(ctx context.Context) (Peers, error) { return c.PeersWith(ctx, 0, "") }

// PeersWith is Peers, of which logs each lacks most, up to a number of writers' logs and of partitions; of one
// peer only, named by its key or how that begins, unless node is empty. Kinds NotFound, Invalid.
func (c *Client) PeersWith(ctx context.Context, logs int, node string) (Peers, error) {
	res, err := c.peers.Peers(ctx, &pb.PeerServicePeersRequest{Store: c.store, Logs: int32(logs), Node: node})
	if err != nil {
		return Peers{}, err
	}
	out := Peers{Store: storeOf(res.Store), Addresses: res.Addresses, Peers: make([]Peer, len(res.Peers)), Refused: res.Refused, Problem: res.Problem, Catchup: catchupOf(res.Catchup)}
	for i, p := range res.Peers {
		out.Peers[i] = Peer{
			Node: p.Node, Role: p.Role, Reachable: p.Reachable, Since: timeOf(p.Since), RoundTrip: p.RoundTrip.AsDuration(),
			BytesIn: p.BytesIn, BytesOut: p.BytesOut, Behind: p.Behind, Ahead: p.Ahead, Equal: p.Equal,
			Addresses: p.Addresses, Problem: p.Problem, Known: p.Known, AheadLogs: p.AheadLogs, AheadSince: timeOf(p.AheadSince), Dormant: p.Dormant,
		}
		for _, l := range p.Logs {
			out.Peers[i].Logs = append(out.Peers[i].Logs, PeerLag{l.Writer, l.Incarnation, l.TopicId, l.Topic, l.Partition, l.Has, l.Here, timeOf(l.Since)})
		}
	}
	return out, nil
}

func catchupOf(m *pb.Catchup) Catchup {
	c := Catchup{Entries: m.GetEntries(), Batches: m.GetBatches(), BlocksPerSecond: m.GetBlocksPerSecond(), BytesPerSecond: m.GetBytesPerSecond()}
	if f := m.GetFetching(); f != nil {
		c.Fetching = &Fetching{f.Node, f.Bytes, f.Here, f.BytesPerSecond, timeOf(f.Since)}
	}
	return c
}

// ConnectPeer has the node call a member at multiaddrs now, named by its key or how that begins, or whichever
// member answers there if node is empty; unless once, it notes the addresses. It returns who answered. Kinds
// Invalid, NotFound, Unavailable, Conflict (all members are connected).
func (c *Client) ConnectPeer(ctx context.Context, node string, addresses []string, once bool) (string, error) {
	res, err := c.peers.Connect(ctx, &pb.PeerServiceConnectRequest{Store: c.store, Node: node, Addresses: addresses, Once: once})
	return res.GetNode(), err
}

// ForgetPeer has the node forget where a member is called, and end the connection with it. It returns the
// addresses. Kind NotFound.
func (c *Client) ForgetPeer(ctx context.Context, node string) ([]string, error) {
	res, err := c.peers.Forget(ctx, &pb.PeerServiceForgetRequest{Store: c.store, Node: node})
	return res.GetAddresses(), err
}

// Members lists who belongs to the store, and who did, as far as the node knows: the
// node itself first.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	res, err := c.peers.Members(ctx, &pb.PeerServiceMembersRequest{Store: c.store})
	if err != nil {
		return nil, err
	}
	all := make([]Member, len(res.Members))
	for i, m := range res.Members {
		all[i] = Member{
			Node: m.Node, Role: m.Role, Creator: m.Creator, Self: m.Self, By: m.By, RemovedBy: m.RemovedBy,
			Unseen: m.Unseen, Forked: m.Forked, Entries: m.Entries, Last: timeOf(m.Last), Dormant: m.Dormant,
		}
	}
	return all, nil
}

// SetRole gives a member another role, or one that was removed a role again; it is named
// by its key or how that begins. It returns the role that it has. Kinds NotFound, Denied.
func (c *Client) SetRole(ctx context.Context, node, role string) (string, error) {
	res, err := c.peers.Change(ctx, &pb.PeerServiceChangeRequest{Store: c.store, Node: node, Role: role})
	return res.GetMember().GetRole(), err
}

// SetDormant says that a member is dormant, so that nobody waits for it, or active
// again; it is named likewise. Kinds NotFound, Denied.
func (c *Client) SetDormant(ctx context.Context, node string, dormant bool) error {
	presence := "active"
	if dormant {
		presence = "dormant"
	}
	_, err := c.peers.Change(ctx, &pb.PeerServiceChangeRequest{Store: c.store, Node: node, Presence: presence})
	return err
}

// Adopt lets what a removed member wrote, and its remover had not seen, count after all.
// It returns how many entries those are. Kinds NotFound, Denied, Conflict.
func (c *Client) Adopt(ctx context.Context, node string) (int64, error) {
	res, err := c.peers.Adopt(ctx, &pb.PeerServiceAdoptRequest{Store: c.store, Node: node})
	return res.GetEntries(), err
}

// Invitations lists invitations to the store, and what became of them.
func (c *Client) Invitations(ctx context.Context) ([]Invitation, error) {
	res, err := c.peers.Invitations(ctx, &pb.PeerServiceInvitationsRequest{Store: c.store})
	if err != nil {
		return nil, err
	}
	all := make([]Invitation, len(res.Invitations))
	for i, m := range res.Invitations {
		all[i] = invitationOf(m)
	}
	return all, nil
}

// Revoke takes an invitation back, named by its id or how that begins. Kinds NotFound,
// Exists (it was used), Denied.
func (c *Client) Revoke(ctx context.Context, id string) (Invitation, error) {
	res, err := c.peers.Revoke(ctx, &pb.PeerServiceRevokeRequest{Store: c.store, Invitation: id})
	if err != nil {
		return Invitation{}, err
	}
	return invitationOf(res.Invitation), nil
}

// RemoveMember takes a member's rights away, for good; it is named by its key or how
// that begins. Kinds NotFound, Denied, Conflict.
func (c *Client) RemoveMember(ctx context.Context, node string) (RemovedMember, error) {
	res, err := c.peers.Remove(ctx, &pb.PeerServiceRemoveRequest{Store: c.store, Node: node})
	if err != nil {
		return RemovedMember{}, err
	}
	return RemovedMember{res.Node, res.Role, res.Entries}, nil
}

func invitationOf(m *pb.Invitation) Invitation {
	return Invitation{m.GetId(), m.GetInviter(), m.GetRole(), timeOf(m.GetExpires()), m.GetState(), m.GetClaimedBy()}
}

// timeOf returns the zero time for one that is not set.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
