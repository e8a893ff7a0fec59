package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/engine/store"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

const (
	// leadWait is how long the leader's answer may take.
	leadWait = 30 * time.Second
	// takeoverWait is how long another node may take to lead by promises.
	takeoverWait = time.Minute
	// leadPause is how often this node looks who leads.
	leadPause = 10 * time.Millisecond
)

func (a topicService) Lead(ctx context.Context, r *pb.TopicServiceLeadRequest) (*pb.TopicServiceLeadResponse, error) {
	s, t, err := a.topic(r.Store, r.Topic)
	if err != nil {
		return nil, err
	}
	to := s.Info().Node
	if r.To != "" || !r.Takeover {
		to, err = memberNamed(s, r.To)
	}
	if err != nil {
		return nil, err
	}
	numbers := r.Partitions
	if len(numbers) == 0 {
		for n := range t.Partitions {
			numbers = append(numbers, n)
		}
	}
	for _, n := range numbers {
		if err := checkNumber(t, n); err != nil {
			return nil, err
		}
	}
	switch {
	case r.Unclean:
		return leadUnclean(ctx, s, t, numbers, to, r.ValidateOnly)
	case r.ValidateOnly:
		return nil, lattice.E(lattice.Invalid, errors.New("validate_only is for unclean alone"))
	}
	res := &pb.TopicServiceLeadResponse{}
	for _, n := range numbers {
		old, err := lead(ctx, s, lattice.TopicPartition{Topic: t.ID, Partition: n}, to, r.Takeover)
		if err != nil {
			return nil, fmt.Errorf("lead %s/%d: %w", t.Name, n, err)
		}
		res.Led = append(res.Led, &pb.TopicServiceLeadResponse_Led{Partition: n, OldLeader: old.String(), Leader: to.String()})
	}
	return res, nil
}

// lead gives a partition to another leader, and waits until this node knows it. It
// returns who led.
func lead(ctx context.Context, s *store.Store, tp lattice.TopicPartition, to lattice.NodeID, takeover bool) (old lattice.NodeID, err error) {
	if old, err = s.LeaderOf(tp.Topic, tp.Partition); err != nil {
		return old, err
	}
	if takeover {
		err = s.LeadByPromises(ctx, tp, to, takeoverWait)
	} else {
		err = s.Lead(ctx, tp, to, leadWait)
	}
	if err != nil {
		return old, err
	}
	ctx, cancel := context.WithTimeout(ctx, leadWait)
	defer cancel()
	for {
		now, err := s.LeaderOf(tp.Topic, tp.Partition)
		if err != nil || now == to {
			return old, err
		}
		select {
		case <-ctx.Done():
			return old, lattice.E(lattice.Unavailable, fmt.Errorf("%s gave the partition away, which this node has not heard of so far: %w", old.Short(), ctx.Err()))
		case <-time.After(leadPause):
		}
	}
}

// leadersOf finds the members that are to lead a new topic's partitions.
func leadersOf(s *store.Store, names []string) ([]lattice.NodeID, error) {
	all := make([]lattice.NodeID, 0, len(names))
	for _, name := range names {
		n, err := memberNamed(s, name)
		if err != nil {
			return nil, err
		}
		if err := s.MayLead(n); err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// spreadLead gives a new topic's partitions to leaders in turn.
func spreadLead(ctx context.Context, s *store.Store, t store.Topic, leaders []lattice.NodeID) error {
	for n := range t.Partitions {
		if len(leaders) == 0 {
			return nil
		}
		to := leaders[int(n)%len(leaders)]
		if _, err := lead(ctx, s, lattice.TopicPartition{Topic: t.ID, Partition: n}, to, false); err != nil {
			return fmt.Errorf("the topic is there, and partition %d stays with this node for now: %w", n, err)
		}
	}
	return nil
}
