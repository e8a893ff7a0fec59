package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/invite"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

type peerService struct{ *api }

// goodFor is how long an invitation is good that does not say.
const goodFor = 24 * time.Hour

func (a peerService) Invite(ctx context.Context, r *pb.PeerServiceInviteRequest) (*pb.PeerServiceInviteResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	role := roster.Writer
	if r.Role != "" {
		if role, err = roster.ParseRole(r.Role); err != nil {
			return nil, err
		}
	}
	good := goodFor
	if r.ExpiresIn != nil {
		if err := r.ExpiresIn.CheckValid(); err != nil {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("expires_in: %w", err))
		}
		good = r.ExpiresIn.AsDuration()
	}
	addresses := r.Addresses
	if len(addresses) == 0 && a.cfg.Mesh != nil {
		addresses = a.cfg.Mesh.Addresses()
	}
	if len(addresses) == 0 {
		return nil, hinted(fmt.Errorf("invite: %w, so nobody could use an invitation", errNoMesh), noMeshHint)
	}
	token, i, err := s.Invite(ctx, role, good, addresses...)
	if errors.Is(err, store.ErrRole) {
		err = hinted(err, "ask a node that may: lattice peer members shows who is an admin or an owner")
	}
	if err != nil {
		return nil, err
	}
	return &pb.PeerServiceInviteResponse{Token: token.Text(), Invitation: invitationMessage(i, a.now()), Addresses: addresses, Store: a.message(s)}, nil
}

// now is the wall clock, by which invitations expire.
func (a *api) now() time.Time { return time.Now() }

func invitationMessage(i store.Invitation, now time.Time) *pb.Invitation {
	m := &pb.Invitation{Id: i.ID.String(), Inviter: i.Inviter.String(), Role: i.Role.String(), Expires: stamp(i.Expires), State: i.State(now)}
	m.ClaimedBy = nodeText(i.ClaimedBy)
	return m
}

// nodeText returns "" for no node.
func nodeText(id lattice.NodeID) string {
	if id == (lattice.NodeID{}) {
		return ""
	}
	return id.String()
}

func (a peerService) Join(ctx context.Context, r *pb.PeerServiceJoinRequest) (*pb.PeerServiceJoinResponse, error) {
	token, err := invite.Parse(r.Token)
	if err != nil {
		return nil, err
	}
	if a.cfg.Mesh == nil {
		return nil, hinted(fmt.Errorf("join: %w", errNoMesh), noMeshHint)
	}
	before := a.cfg.Stores.All()[0]
	j, err := a.cfg.Mesh.Join(ctx, token, !r.KeepDefault)
	if err != nil {
		return nil, joinHint(err, token)
	}
	res := &pb.PeerServiceJoinResponse{Store: a.message(j.Store), Inviter: token.Inviter.String(), Again: j.Again}
	if now := a.cfg.Stores.All()[0]; now != before {
		res.Previous = a.message(before)
	}
	return res, nil
}

// joinHint says what to do when an invitation cannot be used.
func joinHint(err error, t invite.Token) error {
	switch {
	case errors.Is(err, roster.ErrInviteUsed):
		return hinted(err, "an invitation admits one node: ask for another one")
	case errors.Is(err, roster.ErrInviteExpired), errors.Is(err, roster.ErrInviteRevoked):
		return hinted(err, "ask for another one: lattice peer invite, on the node that made it")
	case lattice.KindOf(err) == lattice.Exists:
		return hinted(err, "lattice store list shows the stores of this node, lattice peer list how it reaches the others")
	case lattice.KindOf(err) == lattice.Unavailable:
		return hinted(err, fmt.Sprintf("node %s has to run and be reachable at %s; the invitation is not used up", t.Inviter.Short(), strings.Join(t.Addresses, ", ")))
	case lattice.KindOf(err) == lattice.Denied:
		return hinted(err, "the inviter knows no such invitation, or it does not fit this node: ask for another one")
	}
	return err
}

func (a peerService) Peers(ctx context.Context, r *pb.PeerServicePeersRequest) (*pb.PeerServicePeersResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	res := &pb.PeerServicePeersResponse{Store: a.message(s)}
	if a.cfg.Mesh != nil {
		res.Addresses = a.cfg.Mesh.Addresses()
	}
	only := lattice.NodeID{}
	if r.Node != "" {
		if only, err = memberNamed(s, r.Node); err != nil {
			return nil, err
		}
	}
	if r.Logs < 0 || r.Logs > maxLogs {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("%d logs: want 0 to %d", r.Logs, maxLogs))
	}
	roles := map[lattice.NodeID]roster.Role{}
	for _, m := range s.Members() {
		roles[m.Node] = m.Role
	}
	peers := a.peersOf(s)
	res.Refused, res.Problem = peers.Refused, cmp.Or(s.State().Status().Dismissed, peers.Problem)
	res.Catchup = catchupMessage(peers.Coming)
	for _, p := range peers.All {
		if r.Node != "" && p.Node != only {
			continue
		}
		m := &pb.Peer{
			Node: p.Node.String(), Role: roles[p.Node].String(), Reachable: p.Reachable, Since: stamp(p.Since), RoundTrip: tripMessage(p.RoundTrip),
			BytesIn: p.BytesIn, BytesOut: p.BytesOut, Behind: p.Behind, Ahead: p.Ahead, Equal: p.Equal, Addresses: p.Addresses, Problem: p.Problem,
			Known: p.Known, AheadLogs: int32(p.AheadLogs), AheadSince: stamp(p.AheadSince), Dormant: p.Dormant,
		}
		if m.Logs, err = a.lagsOf(ctx, s, p, int(r.Logs)); err != nil {
			return nil, err
		}
		res.Peers = append(res.Peers, m)
	}
	return res, nil
}

// peersOf returns how the other members of a store are reached, those as well of whom
// the mesh has not heard.
func (a *api) peersOf(s *store.Store) Peers {
	var out Peers
	if a.cfg.Mesh != nil {
		out = a.cfg.Mesh.Peers(s.Info().ID)
	}
	all := slices.Clone(out.All)
	for _, m := range s.Members() {
		i := slices.IndexFunc(all, func(p Peer) bool { return p.Node == m.Node })
		switch {
		case i >= 0:
			all[i].Dormant = m.Dormant
		case !m.Self && m.Role != roster.None:
			all = append(all, Peer{Node: m.Node, Dormant: m.Dormant, Problem: "where it can be reached is not known yet"})
		}
	}
	slices.SortFunc(all, func(x, y Peer) int { return bytes.Compare(x.Node[:], y.Node[:]) })
	out.All = all
	return out
}

func (a peerService) Members(_ context.Context, r *pb.PeerServiceMembersRequest) (*pb.PeerServiceMembersResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	res := &pb.PeerServiceMembersResponse{Store: a.message(s)}
	for _, m := range s.Members() {
		res.Members = append(res.Members, memberMessage(m))
	}
	return res, nil
}

func memberMessage(m store.Member) *pb.Member {
	return &pb.Member{
		Node: m.Node.String(), Role: m.Role.String(), Creator: m.Creator, Self: m.Self, By: nodeText(m.By), RemovedBy: nodeText(m.RemovedBy),
		Unseen: int64(m.Unseen), Forked: m.Forked, Entries: int64(m.Entries), Last: stamp(m.Last), Dormant: m.Dormant,
	}
}

// member finds the one member whose id begins so.
func member(s *store.Store, begin string) (store.Member, error) {
	return choose("member", begin, s.Members(), func(m store.Member) string { return m.Node.String() }, "lattice peer members shows those there are")
}

// who finds a store, and the member of it that a request is about.
func (a peerService) who(in, begin string) (*store.Store, store.Member, error) {
	s, err := a.store(in)
	if err != nil {
		return nil, store.Member{}, err
	}
	m, err := member(s, begin)
	return s, m, err
}

func (a peerService) Change(ctx context.Context, r *pb.PeerServiceChangeRequest) (*pb.PeerServiceChangeResponse, error) {
	s, m, err := a.who(r.Store, r.Node)
	if err != nil {
		return nil, err
	}
	switch {
	case (r.Role == "") == (r.Presence == ""):
		return nil, lattice.E(lattice.Invalid, errors.New("want a role, or a presence"))
	case r.Role != "":
		var role roster.Role
		if role, err = roster.ParseRole(r.Role); err == nil {
			err = s.SetRole(ctx, m.Node, role)
		}
	case r.Presence == "dormant" || r.Presence == "active":
		err = s.SetDormant(ctx, m.Node, r.Presence == "dormant")
	default:
		err = lattice.E(lattice.Invalid, fmt.Errorf("presence %q: want dormant or active", r.Presence))
	}
	if err == nil {
		m, err = member(s, m.Node.String())
	}
	if err != nil {
		return nil, err
	}
	return &pb.PeerServiceChangeResponse{Member: memberMessage(m)}, nil
}

func (a peerService) Adopt(ctx context.Context, r *pb.PeerServiceAdoptRequest) (*pb.PeerServiceAdoptResponse, error) {
	s, m, err := a.who(r.Store, r.Node)
	if err != nil {
		return nil, err
	}
	done, err := s.Adopt(ctx, m.Node)
	if err != nil {
		return nil, err
	}
	return &pb.PeerServiceAdoptResponse{Node: done.Node.String(), Entries: int64(done.Entries)}, nil
}

func (a peerService) Invitations(_ context.Context, r *pb.PeerServiceInvitationsRequest) (*pb.PeerServiceInvitationsResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	res := &pb.PeerServiceInvitationsResponse{}
	for _, i := range s.Invitations() {
		res.Invitations = append(res.Invitations, invitationMessage(i, a.now()))
	}
	return res, nil
}

// shortest is how much of an id has to be given, in hex digits.
const shortest = 4

func (a peerService) Revoke(ctx context.Context, r *pb.PeerServiceRevokeRequest) (*pb.PeerServiceRevokeResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	i, err := choose("invitation", r.Invitation, s.Invitations(), func(i store.Invitation) string { return i.ID.String() },
		"lattice peer invitations shows those there are")
	if err != nil {
		return nil, err
	}
	if err := s.Revoke(ctx, i.Inviter, i.ID); err != nil {
		if errors.Is(err, roster.ErrInviteUsed) {
			err = hinted(err, "lattice peer remove "+i.ClaimedBy.Short()+" takes that node's rights away")
		}
		return nil, err
	}
	i.Revoked = true
	return &pb.PeerServiceRevokeResponse{Invitation: invitationMessage(i, a.now())}, nil
}

func (a peerService) Remove(ctx context.Context, r *pb.PeerServiceRemoveRequest) (*pb.PeerServiceRemoveResponse, error) {
	s, m, err := a.who(r.Store, r.Node)
	if err != nil {
		return nil, err
	}
	done, err := s.Remove(ctx, m.Node)
	if err != nil {
		return nil, err
	}
	return &pb.PeerServiceRemoveResponse{Node: done.Node.String(), Role: done.Was.String(), Entries: int64(done.Entries)}, nil
}

// memberNamed finds a member by how its node id begins.
func memberNamed(s *store.Store, begin string) (lattice.NodeID, error) {
	m, err := member(s, begin)
	return m.Node, err
}

// choose finds the one thing whose id begins so. Kinds Invalid, NotFound.
func choose[T any](what, begin string, all []T, id func(T) string, hint string) (T, error) {
	var found []T
	begin = strings.ToLower(begin)
	for _, x := range all {
		if strings.HasPrefix(id(x), begin) {
			found = append(found, x)
		}
	}
	var none T
	switch {
	case len(begin) < shortest:
		return none, lattice.E(lattice.Invalid, hinted(fmt.Errorf("%s %q: want at least the first %d digits of its id", what, begin, shortest), hint))
	case len(found) == 0:
		return none, lattice.E(lattice.NotFound, hinted(fmt.Errorf("no %s %s", what, begin), hint))
	case len(found) > 1:
		return none, lattice.E(lattice.Invalid, hinted(fmt.Errorf("the ids of %d begin with %s", len(found), begin), "give more digits of it"))
	}
	return found[0], nil
}
