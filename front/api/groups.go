package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/group"
	"github.com/lattice-log/lattice/engine/share"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

type groupService struct{ *api }

func (a groupService) List(ctx context.Context, r *pb.GroupServiceListRequest) (*pb.GroupServiceListResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	res := &pb.GroupServiceListResponse{Groups: listed(s)}
	listHomes(ctx, s, res.Groups)
	return res, nil
}

func (a groupService) Describe(ctx context.Context, r *pb.GroupServiceDescribeRequest) (*pb.GroupServiceDescribeResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	elsewhere := &pb.GroupServiceDescribeResponse{}
	if there, err := askHome(ctx, s, r.Group, false, callDescribe, r, elsewhere); there {
		return answered(elsewhere, err)
	}
	d, err := describeGroup(s, r.Group)
	if err != nil {
		return nil, groupError(r.Group, err)
	}
	res := &pb.GroupServiceDescribeResponse{Group: &pb.Group{
		Name: d.Group, State: string(d.State), Type: d.Type.String(), ProtocolType: d.ProtocolType,
		Assignor: d.Protocol, Members: int32(len(d.Members)), Epoch: d.Epoch,
	}}
	if h, ok := s.GroupHome(r.Group); ok && d.Type != group.Share {
		res.Group.Home = h.Node.String()
	}
	owners := map[lattice.TopicPartition]string{}
	for _, m := range d.Members {
		o := &pb.GroupMember{Id: m.ID, InstanceId: m.InstanceID, ClientId: m.Client.ID, Host: m.Client.Host}
		for _, tp := range m.Assigned {
			o.Assignment = append(o.Assignment, &pb.TopicPartitions{Topic: tp.Name, Partitions: tp.Partitions, TopicId: tp.ID.String()})
			for _, n := range tp.Partitions {
				owners[lattice.TopicPartition{Topic: tp.ID, Partition: n}] = m.ID
			}
		}
		res.Members = append(res.Members, o)
	}
	if d.Type == group.Share {
		res.Offsets, err = shareOffsets(s, r.Group)
	} else {
		res.Offsets, err = groupOffsets(s, r.Group, owners)
	}
	if err != nil {
		return nil, groupError(r.Group, err)
	}
	for _, o := range res.Offsets {
		res.Lag += o.Lag
	}
	return res, nil
}

// groupOffsets lists what the group committed, and what its members have
// without having committed.
func groupOffsets(s *store.Store, name string, owners map[lattice.TopicPartition]string) ([]*pb.GroupOffset, error) {
	fetched := s.Groups().FetchOffsets(group.FetchRequest{Group: name, MemberEpoch: -1, All: true})
	if fetched.Err != nil {
		return nil, fetched.Err
	}
	var all []*pb.GroupOffset
	add := func(tp lattice.TopicPartition, topic string, committed int64, metadata string) {
		o := &pb.GroupOffset{
			Topic: topic, Partition: tp.Partition, Committed: committed, End: -1, Metadata: metadata, Member: owners[tp],
		}
		if p, err := s.Partition(tp.Topic, tp.Partition); err == nil {
			b := p.Bounds()
			o.End = b.Committed
			o.Lag = max(0, b.Committed-max(committed, b.Start))
		}
		all = append(all, o)
	}
	seen := map[lattice.TopicPartition]bool{}
	for _, o := range fetched.Offsets {
		seen[o.TopicPartition] = true
		add(o.TopicPartition, o.Topic, o.Offset, o.Metadata)
	}
	for tp := range owners {
		if t, ok := s.TopicByID(tp.Topic); ok && !seen[tp] {
			add(tp, t.Name, -1, "")
		}
	}
	slices.SortFunc(all, func(a, b *pb.GroupOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all, nil
}

func (a groupService) Reset(ctx context.Context, r *pb.GroupServiceResetRequest) (*pb.GroupServiceResetResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	if r.To.GetAt() == nil {
		return nil, lattice.E(lattice.Invalid, hinted(errors.New("reset: the request does not say to where"), `set "to"`))
	}
	elsewhere := &pb.GroupServiceResetResponse{}
	if there, err := askHome(ctx, s, r.Group, true, callReset, r, elsewhere); there {
		return answered(elsewhere, err)
	}
	if err := mustBeEmpty(s, r.Group); err != nil {
		return nil, err
	}
	all, err := places(s, t, r.Partitions)
	if err != nil {
		return nil, err
	}
	fetch := group.FetchRequest{Group: r.Group, MemberEpoch: -1}
	commit := group.CommitRequest{Group: r.Group, Generation: -1}
	var moves []share.Move
	for _, p := range all {
		offset, err := p.resolve(ctx, r.To)
		if err != nil {
			return nil, fmt.Errorf("reset group %q in topic %q: %w", r.Group, t.Name, err)
		}
		tp := lattice.TopicPartition{Topic: t.ID, Partition: p.number}
		fetch.Partitions = append(fetch.Partitions, tp)
		commit.Offsets = append(commit.Offsets, group.OffsetCommit{TopicPartition: tp, Offset: offset, LeaderEpoch: -1})
		moves = append(moves, share.Move{TopicPartition: tp, Start: offset})
	}
	if isShareGroup(s, r.Group) {
		return resetShare(ctx, s, r.Group, moves, r.DryRun)
	}
	old := s.Groups().FetchOffsets(fetch)
	if old.Err != nil {
		return nil, groupError(r.Group, old.Err)
	}
	res := &pb.GroupServiceResetResponse{}
	for i, c := range commit.Offsets {
		m := &pb.GroupServiceResetResponse_Moved{Partition: c.Partition, OldOffset: -1, Offset: c.Offset}
		if i < len(old.Offsets) {
			m.OldOffset = old.Offsets[i].Offset
		}
		res.Moved = append(res.Moved, m)
	}
	if r.DryRun {
		return res, nil
	}
	return res, commitOffsets(ctx, s, commit)
}

// mustBeEmpty refuses to touch a group that somebody uses.
func mustBeEmpty(s *store.Store, name string) error {
	d, err := describeGroup(s, name)
	if errors.Is(err, group.ErrGroupNotFound) {
		return nil
	}
	if err == nil && len(d.Members) > 0 {
		err = lattice.E(lattice.Conflict, hinted(fmt.Errorf("it has members: %d", len(d.Members)), "stop the members first, see lattice group describe"))
	}
	return groupError(name, err)
}

func (a groupService) Delete(ctx context.Context, r *pb.GroupServiceDeleteRequest) (*pb.GroupServiceDeleteResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	elsewhere := &pb.GroupServiceDeleteResponse{}
	if there, err := askHome(ctx, s, r.Group, false, callDelete, r, elsewhere); there {
		return answered(elsewhere, err)
	}
	if err := mustBeEmpty(s, r.Group); err != nil {
		return nil, err
	}
	if isShareGroup(s, r.Group) {
		return &pb.GroupServiceDeleteResponse{}, deleteShare(ctx, s, r.Group)
	}
	done := make(chan error, 1)
	s.DeleteGroup(r.Group, func(err error) { done <- err })
	return &pb.GroupServiceDeleteResponse{}, waitFor(ctx, r.Group, done)
}

func (a groupService) Commit(ctx context.Context, r *pb.GroupServiceCommitRequest) (*pb.GroupServiceCommitResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	elsewhere := &pb.GroupServiceCommitResponse{}
	if there, err := askHome(ctx, s, r.Group, true, callCommit, r, elsewhere); there {
		return answered(elsewhere, err)
	}
	commit := group.CommitRequest{Group: r.Group, MemberID: r.MemberId, Generation: r.MemberEpoch}
	if r.MemberId == "" {
		commit.Generation = -1
	}
	for _, o := range r.Offsets {
		t, err := findTopic(s, o.Topic)
		if err != nil {
			return nil, groupError(r.Group, err)
		}
		if o.Offset < 0 {
			return nil, groupError(r.Group, lattice.E(lattice.Invalid, fmt.Errorf("commit %s/%d: offset %d", t.Name, o.Partition, o.Offset)))
		}
		commit.Offsets = append(commit.Offsets, group.OffsetCommit{
			TopicPartition: lattice.TopicPartition{Topic: t.ID, Partition: o.Partition},
			Offset:         o.Offset, LeaderEpoch: -1, Metadata: o.Metadata,
		})
	}
	if len(commit.Offsets) == 0 {
		return nil, groupError(r.Group, lattice.E(lattice.Invalid, errors.New("commit: the request holds no offsets")))
	}
	return &pb.GroupServiceCommitResponse{}, commitOffsets(ctx, s, commit)
}

func commitOffsets(ctx context.Context, s *store.Store, c group.CommitRequest) error {
	done := make(chan group.CommitResult, 1)
	s.Groups().CommitOffsets(c, func(r group.CommitResult) { done <- r })
	select {
	case r := <-done:
		return groupError(c.Group, errors.Join(append([]error{r.Err}, r.Partitions...)...))
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a groupService) Heartbeat(ctx context.Context, r *pb.GroupServiceHeartbeatRequest) (*pb.GroupServiceHeartbeatResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	elsewhere := &pb.GroupServiceHeartbeatResponse{}
	if there, err := askHome(ctx, s, r.Group, true, callHeartbeat, r, elsewhere); there {
		return answered(elsewhere, err)
	}
	beat := group.ConsumerHeartbeatRequest{
		Group: r.Group, MemberID: r.MemberId, MemberEpoch: r.MemberEpoch, InstanceID: r.InstanceId,
		Rebalance: time.Duration(r.RebalanceTimeoutMs) * time.Millisecond, Client: group.Client{ID: r.ClientId, Host: peerOf(ctx)},
	}
	if r.MemberEpoch == group.EpochJoin {
		if beat.Rebalance == 0 {
			beat.Rebalance = 5 * time.Minute
		}
		beat.Owned = []lattice.TopicPartition{}
	}
	if len(r.Topics) > 0 {
		beat.Topics = r.Topics
	}
	if r.Owned != nil {
		if beat.Owned, err = owned(s, r.Owned); err != nil {
			return nil, groupError(r.Group, err)
		}
	}
	out := s.Groups().ConsumerHeartbeat(beat)
	if out.Err != nil {
		return nil, groupError(r.Group, out.Err)
	}
	res := &pb.GroupServiceHeartbeatResponse{
		MemberId: out.MemberID, MemberEpoch: out.MemberEpoch, IntervalMs: int32(out.Interval.Milliseconds()),
	}
	if out.Assign {
		res.Assigned = &pb.Assignment{}
		for _, tp := range out.Assigned {
			res.Assigned.Topics = append(res.Assigned.Topics, &pb.TopicPartitions{Topic: tp.Name, Partitions: tp.Partitions, TopicId: tp.ID.String()})
		}
	}
	return res, nil
}

// owned reads what a member says that it holds; not nil.
func owned(s *store.Store, a *pb.Assignment) ([]lattice.TopicPartition, error) {
	all := []lattice.TopicPartition{}
	for _, tp := range a.Topics {
		var id lattice.TopicID
		if tp.TopicId != "" {
			parsed, err := lattice.ParseTopicID(tp.TopicId)
			if err != nil {
				return nil, err
			}
			id = parsed
		} else {
			t, err := findTopic(s, tp.Topic)
			if err != nil {
				return nil, err
			}
			id = t.ID
		}
		for _, n := range tp.Partitions {
			all = append(all, lattice.TopicPartition{Topic: id, Partition: n})
		}
	}
	return all, nil
}

// peerOf returns the caller's address, for people.
func peerOf(ctx context.Context) string {
	if caller, ok := ctx.Value(forwarded{}).(string); ok {
		return caller
	}
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		if addr := info.Peer().Addr; addr != "" && addr != "@" {
			return addr
		}
		return "local" // over the node's own socket, which has no address
	}
	return ""
}

// groupError names the group in an error about it.
func groupError(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, group.ErrGroupNotFound), errors.Is(err, share.ErrGroupNotFound):
		return hinted(fmt.Errorf("group %q: %w", name, err), "see lattice group list")
	case errors.Is(err, group.ErrMoving), errors.Is(err, store.ErrNotHome):
		return lattice.E(lattice.Unavailable, fmt.Errorf("group %q: %w", name, err)) // it is retried, and finds the home
	case errors.Is(err, group.ErrUnknownMember):
		// Not "not found", which would be said of a topic or a group.
		return lattice.E(lattice.Fenced, hinted(fmt.Errorf("group %q: %w", name, err), "join the group again"))
	}
	return fmt.Errorf("group %q: %w", name, err)
}
