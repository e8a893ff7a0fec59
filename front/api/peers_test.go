package api_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/client"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/storage/disk"
)

// fakeMesh is a mesh whose join comes to err, or to a store.
type fakeMesh struct {
	addresses   []string
	store       *store.Store
	err         error
	makeDefault bool
	peers       []api.Peer
	coming      api.Coming
	lags        []api.LogLag
	called      lattice.NodeID
}

func (m *fakeMesh) Lags(_ context.Context, _ lattice.StoreID, _ lattice.NodeID, n int) ([]api.LogLag, bool, error) {
	return m.lags[:min(n, len(m.lags))], false, nil
}

func (m *fakeMesh) Alone(context.Context, lattice.StoreID, []lattice.NodeID, int) ([]api.LogLag, bool, bool, error) {
	return m.lags, false, len(m.lags) > 0, nil
}

func (m *fakeMesh) Connect(_ context.Context, n lattice.NodeID, _ []string, once bool) (lattice.NodeID, error) {
	if once {
		return n, m.err
	}
	return m.called, m.err
}

func (m *fakeMesh) Forget(n lattice.NodeID) ([]string, error) {
	m.called = n
	return []string{"/ip4/192.0.2.1/tcp/1"}, m.err
}

func (m *fakeMesh) Addresses() []string { return m.addresses }

func (m *fakeMesh) Join(_ context.Context, _ invite.Token, makeDefault bool) (api.Joined, error) {
	m.makeDefault = makeDefault
	return api.Joined{Store: m.store}, m.err
}

func (m *fakeMesh) Peers(lattice.StoreID) api.Peers {
	return api.Peers{All: m.peers, Refused: map[string]int64{"stranger": 2}, Coming: m.coming}
}

// TestPeers: what people do about members, from the client to the store.
func TestPeers(t *testing.T) {
	s := openStore(t, disk.NewMem(), "stores")
	mesh := &fakeMesh{addresses: []string{"/ip4/127.0.0.1/tcp/7946"}}
	c := dial(t, client.Options{URL: serve(t, s, api.Config{Mesh: mesh})})
	ctx := t.Context()

	i, err := c.Invite(ctx, client.NewInvitation{Good: time.Hour, Role: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	token, err := invite.Parse(i.Token)
	if err != nil || token.ID().String() != i.ID || i.Role != "reader" || i.State != "open" || len(i.Addresses) != 1 || i.Store.Role != "owner" {
		t.Fatalf("%+v, %v", i, err)
	}
	bob := identity.FromSeed([32]byte{7}).Author()
	if err := s.Redeem(ctx, token.Claim(bob)); err != nil {
		t.Fatal(err)
	}
	open, err := c.Invite(ctx, client.NewInvitation{})
	if err != nil || open.Role != "writer" || time.Until(open.Expires) < 23*time.Hour {
		t.Fatalf("%+v, %v", open, err)
	}
	if got, err := c.Revoke(ctx, open.ID[:8]); err != nil || got.State != "revoked" {
		t.Fatalf("%+v, %v", got, err)
	}
	_, err = c.Revoke(ctx, i.ID)
	wantKind(t, "revoke a used one", err, lattice.Exists)
	if h := client.Hint(err); !strings.Contains(h, "peer remove "+bob.Short()) {
		t.Errorf("hint %q", h)
	}
	all, err := c.Invitations(ctx)
	if err != nil || len(all) != 2 || all[0].State != "used" || all[0].ClaimedBy != bob.String() || all[1].State != "revoked" {
		t.Fatalf("%+v, %v", all, err)
	}

	members, err := c.Members(ctx)
	if err != nil || len(members) != 2 || !members[0].Self || !members[0].Creator || members[1].Node != bob.String() || members[1].Role != "reader" {
		t.Fatalf("%+v, %v", members, err)
	}
	peers, err := c.Peers(ctx)
	if err != nil || len(peers.Peers) != 1 || peers.Peers[0].Node != bob.String() || peers.Peers[0].Reachable || peers.Peers[0].Problem == "" {
		t.Fatalf("a member of whom the mesh knows nothing: %+v, %v", peers, err)
	}
	began := time.UnixMilli(1_700_000_000_000).UTC()
	mesh.peers = []api.Peer{{Node: bob, Reachable: true, RoundTrip: time.Millisecond, Behind: 3, Known: true, Ahead: 5, AheadLogs: 2, AheadSince: began}}
	mesh.coming = api.Coming{Entries: 3, BlocksPerSecond: 1.5, Fetching: &api.Fetching{Node: bob, Bytes: 100, Here: 40}}
	mesh.lags = []api.LogLag{{Writer: bob, Incarnation: 4, Has: 1, Here: 5, Since: began}, {Partition: lattice.TopicPartition{Topic: lattice.TopicID{9}, Partition: 3}, Has: 1, Here: 2}}
	peers, err = c.PeersWith(ctx, 10, bob.String()[:8])
	if err != nil || len(peers.Peers) != 1 || len(peers.Peers[0].Logs) != 2 || peers.Catchup.Fetching == nil || peers.Catchup.Fetching.Here != 40 || peers.Catchup.Entries != 3 {
		t.Fatalf("%+v, %v", peers, err)
	}
	if l := peers.Peers[0].Logs; l[0].Writer != bob.String() || l[0].Incarnation != 4 || l[0].Here != 5 || !l[0].Since.Equal(began) || l[1].Partition != 3 || l[1].Writer != "" || l[1].TopicID == "" {
		t.Fatalf("%+v", l)
	}
	_, err = c.PeersWith(ctx, 0, "ffffffff")
	wantKind(t, "the logs of nobody", err, lattice.NotFound)
	_, err = c.PeersWith(ctx, 1<<20, "")
	wantKind(t, "a million logs", err, lattice.Invalid)
	mesh.called = bob
	if n, err := c.ConnectPeer(ctx, "", []string{"/ip4/192.0.2.1/tcp/1"}, false); err != nil || n != bob.String() {
		t.Fatalf("%s, %v", n, err)
	}
	_, err = c.ConnectPeer(ctx, "ffffffff", nil, true)
	wantKind(t, "connect with nobody", err, lattice.NotFound)
	if old, err := c.ForgetPeer(ctx, bob.String()); err != nil || len(old) != 1 {
		t.Fatalf("%v, %v", old, err)
	}
	peers, err = c.Peers(ctx)
	if p := peers.Peers; err != nil || len(p) != 1 || !p[0].Reachable || p[0].Role != "reader" || p[0].Behind != 3 || p[0].RoundTrip != time.Millisecond || peers.Refused["stranger"] != 2 {
		t.Fatalf("%+v, %v", peers, err)
	}
	st, err := c.Status(ctx)
	if err != nil || len(st.Stores[0].Peers) != 1 || !st.Stores[0].Peers[0].Reachable {
		t.Fatalf("%+v, %v", st, err)
	}
	if p := st.Stores[0].Peers[0]; p.BehindBlocks != 5 || p.MissingBlocks != 3 || p.BehindLogs != 2 || !p.BehindSince.Equal(began) || p.RoundTripMs != 1 {
		t.Fatalf("%+v", p)
	}
	if w := st.Stores[0].Watermark; w == nil || len(w.Members) != 2 || st.Stores[0].Catchup.Fetching == nil {
		t.Fatalf("%+v", st.Stores[0])
	}
	if d := st.Stores[0].Durability; !strings.Contains(d, "1 of 2 replicas is ") || !strings.Contains(d, "4 entries of keys exist on this node only") {
		t.Fatalf("%q", d)
	}

	for what, x := range map[string]struct {
		node string
		want lattice.Kind
	}{
		"too short":   {bob.String()[:3], lattice.Invalid},
		"nobody":      {"ffffffff", lattice.NotFound},
		"the creator": {members[0].Node, lattice.Denied},
	} {
		_, err := c.RemoveMember(ctx, x.node)
		wantKind(t, what, err, x.want)
	}
	if r, err := c.RemoveMember(ctx, strings.ToUpper(bob.String()[:8])); err != nil || r.Role != "reader" || r.Node != bob.String() {
		t.Fatalf("%+v, %v", r, err)
	}
	_, err = c.RemoveMember(ctx, bob.String())
	wantKind(t, "twice", err, lattice.Conflict)
	_, err = c.Invite(ctx, client.NewInvitation{Role: "king"})
	wantKind(t, "no role", err, lattice.Invalid)
	_, err = c.Invite(ctx, client.NewInvitation{Good: -time.Hour})
	wantKind(t, "expired before it is good", err, lattice.Invalid)
}

// TestJoining: each thing that keeps a node from joining has a kind and a way out.
func TestJoining(t *testing.T) {
	s := openStore(t, disk.NewMem(), "stores")
	mesh := &fakeMesh{addresses: []string{"/ip4/127.0.0.1/tcp/7946"}, store: s}
	c := dial(t, client.Options{URL: serve(t, s, api.Config{Mesh: mesh})})
	i, err := c.Invite(t.Context(), client.NewInvitation{})
	if err != nil {
		t.Fatal(err)
	}
	if j, err := c.Join(t.Context(), i.Token, true); err != nil || j.Store.ID != i.Store.ID || j.Previous != nil || mesh.makeDefault {
		t.Fatalf("%+v, %v", j, err)
	}
	_, err = c.Join(t.Context(), i.Token+"a", false)
	wantKind(t, "mistyped", err, lattice.Invalid)
	for _, x := range []struct {
		err  error
		want lattice.Kind
		hint string
	}{
		{roster.ErrInviteUsed, lattice.Exists, "ask for another one"},
		{roster.ErrInviteExpired, lattice.Denied, "lattice peer invite"},
		{lattice.E(lattice.Unavailable, errors.New("no route")), lattice.Unavailable, "/ip4/127.0.0.1/tcp/7946"},
		{lattice.E(lattice.Denied, errors.New("refused")), lattice.Denied, "ask for another one"},
		{lattice.E(lattice.Exists, errors.New("a member")), lattice.Exists, "lattice peer list"},
	} {
		mesh.err = x.err
		_, err := c.Join(t.Context(), i.Token, false)
		wantKind(t, x.err.Error(), err, x.want)
		if h := client.Hint(err); !strings.Contains(h, x.hint) {
			t.Errorf("%v: hint %q, want %q", x.err, h, x.hint)
		}
	}

	off := dial(t, client.Options{URL: serve(t, s, api.Config{})})
	_, err = off.Join(t.Context(), i.Token, false)
	wantKind(t, "without a mesh", err, lattice.Unavailable)
	if h := client.Hint(err); !strings.Contains(h, "--mesh") {
		t.Errorf("hint %q", h)
	}
	_, err = off.Invite(t.Context(), client.NewInvitation{})
	wantKind(t, "an invitation without a mesh", err, lattice.Unavailable)
	if _, err := off.Invite(t.Context(), client.NewInvitation{Addresses: []string{"/ip4/192.0.2.1/tcp/1"}}); err != nil {
		t.Errorf("with an address: %v", err)
	}
}
