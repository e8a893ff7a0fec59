package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

type topicService struct{ *api }

// topicMessage describes a topic; what it holds is counted when it can be read.
func topicMessage(s *store.Store, t store.Topic) *pb.Topic {
	m := &pb.Topic{Name: t.Name, Id: t.ID.String(), Partitions: t.Partitions, Created: stamp(t.Created), Config: t.Config, CreatedAs: t.CreatedAs}
	for n := range t.Partitions {
		if p, err := s.Partition(t.ID, n); err == nil {
			b := p.Bounds()
			m.Records += b.Committed - b.Start
			m.Bytes += p.Size()
		}
	}
	return m
}

func (a topicService) Create(ctx context.Context, r *pb.TopicServiceCreateRequest) (*pb.TopicServiceCreateResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	if r.Partitions < 0 {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("create topic %q: %d partitions", r.Name, r.Partitions))
	}
	leaders, err := leadersOf(s, r.Leaders)
	if err != nil {
		return nil, fmt.Errorf("create topic %q: %w", r.Name, err)
	}
	t, err := s.CreateTopic(ctx, store.NewTopic{Name: r.Name, Partitions: r.Partitions, Config: r.Config, ValidateOnly: r.ValidateOnly})
	if err != nil {
		return nil, fmt.Errorf("create topic %q: %w", r.Name, err)
	}
	if r.ValidateOnly {
		return &pb.TopicServiceCreateResponse{Topic: &pb.Topic{Name: r.Name, Partitions: max(t.Partitions, r.Partitions), Config: r.Config}}, nil
	}
	if err := spreadLead(ctx, s, t, leaders); err != nil {
		return nil, fmt.Errorf("create topic %q: %w", r.Name, err)
	}
	return &pb.TopicServiceCreateResponse{Topic: topicMessage(s, t)}, nil
}

func (a topicService) List(_ context.Context, r *pb.TopicServiceListRequest) (*pb.TopicServiceListResponse, error) {
	s, err := a.store(r.Store)
	if err != nil {
		return nil, err
	}
	res := &pb.TopicServiceListResponse{}
	for _, t := range s.Topics() {
		res.Topics = append(res.Topics, topicMessage(s, t))
	}
	return res, nil
}

func (a topicService) Describe(_ context.Context, r *pb.TopicServiceDescribeRequest) (*pb.TopicServiceDescribeResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	entries, err := s.TopicConfig(t.ID)
	if err != nil {
		return nil, fmt.Errorf("describe topic %q: %w", t.Name, err)
	}
	res := &pb.TopicServiceDescribeResponse{Topic: topicMessage(s, t)}
	for n := range t.Partitions {
		res.Partitions = append(res.Partitions, partitionMessage(s, t, n))
	}
	for _, e := range entries {
		m := &pb.ConfigEntry{
			Name: e.Name, Value: e.Value, Default: e.Default, Source: e.Source, Type: e.Type,
			ReadOnly: e.ReadOnly, Sensitive: e.Sensitive, Doc: e.Doc,
		}
		if e.Sensitive {
			m.Value = ""
		}
		res.Config = append(res.Config, m)
	}
	return res, nil
}

func partitionMessage(s *store.Store, t store.Topic, n int32) *pb.Partition {
	p, err := s.Partition(t.ID, n)
	switch {
	case errors.Is(err, store.ErrNotLeader):
		return &pb.Partition{Partition: n, Leader: t.Leader.String(), Elsewhere: true}
	case err != nil:
		return &pb.Partition{Partition: n, Leader: t.Leader.String(), Failed: err.Error()}
	}
	st := p.Status()
	m := &pb.Partition{
		Partition: n, Leader: st.Leader.String(), Term: st.Term, Start: st.Start, End: st.End, Committed: st.Committed,
		CheckpointSize: st.Checkpoint.Size, Bytes: st.Bytes, Segments: int32(st.Segments), Failed: st.Failed,
		Elsewhere: st.Follower,
	}
	if st.Checkpoint.Note != nil || st.Checkpoint.Size > 0 {
		m.Root = st.Checkpoint.Root.String()
	}
	acks := p.AckStatus()
	m.MinInSync, m.OnlyHere = int32(acks.Min), acks.OnlyHere
	for _, r := range acks.Replicas {
		m.Replicas = append(m.Replicas, &pb.Replica{Node: r.Node.String(), End: r.End, InSync: r.InSync, BehindMs: r.Behind.Milliseconds()})
	}
	for _, r := range st.Damaged {
		m.Damaged = append(m.Damaged, &pb.OffsetRange{From: r.From, To: r.To})
	}
	return m
}

func (a topicService) Alter(ctx context.Context, r *pb.TopicServiceAlterRequest) (*pb.TopicServiceAlterResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	var changes []store.ConfigChange
	for _, name := range slices.Sorted(maps.Keys(r.Set)) {
		value := r.Set[name]
		changes = append(changes, store.ConfigChange{Name: name, Op: "set", Value: &value})
	}
	for _, name := range r.Reset_ {
		if _, both := r.Set[name]; both {
			return nil, lattice.E(lattice.Invalid, fmt.Errorf("alter topic %q: %s is set and reset", t.Name, name))
		}
		changes = append(changes, store.ConfigChange{Name: name, Op: "set"})
	}
	grow := r.Partitions != 0 && r.Partitions != t.Partitions
	if len(changes) == 0 && r.Partitions == 0 {
		return nil, lattice.E(lattice.Invalid, fmt.Errorf("alter topic %q: nothing to change", t.Name))
	}
	// Everything is checked first, so that half a change is the exception.
	for _, validate := range []bool{true, false} {
		if !validate && r.ValidateOnly {
			break
		}
		if len(changes) > 0 {
			if err := s.AlterTopic(ctx, t.ID, changes, false, validate); err != nil {
				return nil, fmt.Errorf("alter topic %q: %w", t.Name, err)
			}
		}
		if grow {
			if err := s.AddPartitions(ctx, t.ID, r.Partitions, validate); err != nil {
				return nil, fmt.Errorf("alter topic %q: %w", t.Name, err)
			}
		}
	}
	now, ok := s.TopicByID(t.ID)
	if !ok {
		now = t // deleted meanwhile by someone else; what we did stands
	}
	return &pb.TopicServiceAlterResponse{Topic: topicMessage(s, now)}, nil
}

func (a topicService) Delete(ctx context.Context, r *pb.TopicServiceDeleteRequest) (*pb.TopicServiceDeleteResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	m := topicMessage(s, t)
	if err := s.DeleteTopic(ctx, t.ID); err != nil {
		return nil, fmt.Errorf("delete topic %q: %w", t.Name, err)
	}
	return &pb.TopicServiceDeleteResponse{Topic: m}, nil
}

func (a topicService) Truncate(ctx context.Context, r *pb.TopicServiceTruncateRequest) (*pb.TopicServiceTruncateResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	if r.Before.GetAt() == nil {
		return nil, lattice.E(lattice.Invalid, hinted(errors.New("truncate: the request does not say up to where"), `set "before"`))
	}
	all, err := places(s, t, r.Partitions)
	if err != nil {
		return nil, err
	}
	before := make([]int64, len(all))
	for i, p := range all {
		start := p.Bounds().Start
		if at, ok := r.Before.At.(*pb.Position_Offset); ok && at.Offset >= 0 && at.Offset < start {
			before[i] = start // truncated already, which is no error
			continue
		}
		if before[i], err = p.resolve(ctx, r.Before); err != nil {
			return nil, fmt.Errorf("truncate topic %q: %w", t.Name, err)
		}
	}
	res := &pb.TopicServiceTruncateResponse{}
	for i, p := range all {
		old := p.Bounds().Start
		start, err := p.Truncate(ctx, before[i])
		if err != nil {
			return nil, fmt.Errorf("truncate %s/%d before %d: %w", t.Name, p.number, before[i], err)
		}
		res.Starts = append(res.Starts, &pb.TopicServiceTruncateResponse_Start{Partition: p.number, OldStart: old, Start: start})
	}
	return res, nil
}
