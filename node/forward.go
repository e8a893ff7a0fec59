package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/keyval"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/front/api"
	"github.com/lattice-log/lattice/front/kafka"
	"github.com/lattice-log/lattice/mesh/forward"
	"github.com/lattice-log/lattice/mesh/p2p"
)

// takePart has a store take part in a mesh: what is written comes and goes, and what
// clients want of partitions that another node leads is done there.
func takePart(m *p2p.Mesh, st *store.Store, gathered keyval.Staging) error {
	groups, err := kafka.New(kafka.Config{}, st) // it has no listener: other nodes ask it
	if err != nil {
		return err
	}
	if err := m.Add(leads{newReplica(st, gathered), st, groups, make(chan struct{}, apiCalls)}); err != nil {
		return err
	}
	st.UseSeen(m.Seen)
	st.UseElsewhere(elsewhere{m, st.Info().ID})
	return nil
}

// elsewhere is store.Elsewhere by the mesh. It decides nothing.
type elsewhere struct {
	mesh  *p2p.Mesh
	store lattice.StoreID
}

var _ store.Elsewhere = elsewhere{}

// Append implements store.Elsewhere.
func (e elsewhere) Append(leader lattice.NodeID, a store.RemoteAppend) {
	ask := forward.Ask{Op: forward.Append, Acks: a.Acks, Partition: a.Partition, Batches: a.Batches}
	e.mesh.Forward(e.store, leader, ask, a.Wait, func(x forward.Answer, err error) {
		if err = answered(x, err); err != nil {
			a.Done(partition.Result{Base: -1, AppendTime: -1, Start: startOf(x)}, err)
			return
		}
		a.Done(partition.Result{Base: x.Base, AppendTime: x.Time, Start: x.Start}, nil)
	})
}

// Lead implements store.Elsewhere.
func (e elsewhere) Lead(leader lattice.NodeID, tp lattice.TopicPartition, to lattice.NodeID, wait time.Duration, done func(error)) {
	e.mesh.Forward(e.store, leader, forward.Ask{Op: forward.Lead, Partition: tp, To: to}, wait, func(x forward.Answer, err error) {
		done(answered(x, err))
	})
}

// Ask implements store.Elsewhere.
func (e elsewhere) Ask(home lattice.NodeID, ask []byte, wait time.Duration, done func([]byte, error)) (cancel func()) {
	return e.mesh.Forward(e.store, home, forward.Ask{Op: forward.Call, Body: ask}, wait, func(x forward.Answer, err error) {
		if err = answered(x, err); err != nil {
			done(nil, err)
			return
		}
		done(x.Body, nil)
	})
}

// Reaches implements store.Elsewhere.
func (e elsewhere) Reaches(node lattice.NodeID) bool { return e.mesh.Reaches(node) }

// Truncate implements store.Elsewhere.
func (e elsewhere) Truncate(leader lattice.NodeID, tp lattice.TopicPartition, before int64, wait time.Duration, done func(int64, error)) {
	ask := forward.Ask{Op: forward.Truncate, Partition: tp, Before: before}
	e.mesh.Forward(e.store, leader, ask, wait, func(x forward.Answer, err error) {
		if err = answered(x, err); err != nil {
			done(-1, err)
			return
		}
		done(x.Start, nil)
	})
}

// startOf is the start of the log that a refusal tells, -1 if none was told.
func startOf(x forward.Answer) int64 {
	if x.Refused {
		return x.Start
	}
	return -1
}

// answered is what became of an ask as the engine's error.
func answered(x forward.Answer, err error) error {
	switch {
	case errors.Is(err, forward.ErrLost):
		return fmt.Errorf("%w: %w", store.ErrNoAnswer, err)
	case errors.Is(err, forward.ErrTooLarge):
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", store.ErrAway, err)
	case !x.Refused:
		return nil
	}
	told := &store.Answered{Code: x.Code, Text: x.Text}
	for _, r := range x.Records {
		told.Records = append(told.Records, &record.RecordError{Index: int(r.Record), Err: errors.New(r.Text)})
	}
	return lattice.E(x.Kind, told)
}

// leads is a replica whose node leads partitions. It implements p2p.Leader.
type leads struct {
	*replica
	st     *store.Store
	groups *kafka.Server
	calls  chan struct{} // a place for each call of the API under way
}

var (
	_ p2p.Leader = leads{}
	_ p2p.Home   = leads{}
)

// apiCalls is how many calls of other nodes' APIs are under way at a time.
const apiCalls = 64

// Call implements p2p.Home.
func (l leads) Call(from lattice.NodeID, body []byte, wait time.Duration, done func(forward.Answer)) (cancel func()) {
	answer := func(b []byte, err error) {
		switch {
		case err == nil && len(b) > forward.MaxBody:
			err = lattice.E(lattice.TooLarge, fmt.Errorf("an answer of %d bytes, %d can be forwarded", len(b), forward.MaxBody))
			fallthrough
		case err != nil:
			done(refusal(-1, err))
		default:
			done(forward.Answer{Base: -1, Time: -1, Body: b})
		}
	}
	if body[0] != api.HomeAsk {
		return l.groups.AnswerHome(from, body, answer)
	}
	select {
	case l.calls <- struct{}{}:
	default:
		answer(nil, lattice.E(lattice.Unavailable, fmt.Errorf("%d calls of other nodes are under way", apiCalls)))
		return func() {}
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(wait, truncateTime))
	go func() { // it waits for the disk
		defer func() { <-l.calls }()
		defer cancel()
		answer(api.AnswerHome(ctx, l.st, from, body))
	}()
	return cancel
}

// truncateTime bounds how long what a peer asks, other than an append, waits for the disk.
const truncateTime = time.Minute

// Lead implements p2p.Leader.
func (l leads) Lead(from lattice.NodeID, a forward.Ask, done func(forward.Answer)) {
	switch a.Op {
	case forward.Append:
		l.st.AppendLed(from, a.Partition, partition.Append{Batches: a.Batches, All: a.Acks == -1, Wait: ackTime(a.Wait), Done: func(r partition.Result, err error) {
			if err != nil {
				done(refusal(r.Start, err))
				return
			}
			done(forward.Answer{Base: r.Base, Time: r.AppendTime, Start: r.Start})
		}})
	case forward.Lead:
		go func() { // it waits for the disk
			ctx, cancel := context.WithTimeout(context.Background(), truncateTime)
			defer cancel()
			if err := l.st.LeadLed(ctx, from, a.Partition, a.To); err != nil {
				done(refusal(-1, err))
				return
			}
			done(forward.Answer{Base: -1, Time: -1})
		}()
	case forward.Truncate:
		go func() { // it waits for the disk
			ctx, cancel := context.WithTimeout(context.Background(), truncateTime)
			defer cancel()
			start, err := l.st.TruncateLed(ctx, from, a.Partition, a.Before)
			if err != nil {
				done(refusal(-1, err))
				return
			}
			done(forward.Answer{Base: -1, Time: -1, Start: start})
		}()
	}
}

// ackTime is how long the leader waits for acknowledgements of what is forwarded: less than
// who asked waits for the leader, who could not say then what became of it.
func ackTime(ms uint32) time.Duration {
	wait := time.Duration(ms) * time.Millisecond
	return max(wait-min(wait/4, time.Second), time.Millisecond)
}

// refusal is an error as another node's clients are told it.
func refusal(start int64, err error) forward.Answer {
	x := forward.Answer{Refused: true, Kind: lattice.KindOf(err), Base: -1, Time: -1, Start: start}
	var records []*record.RecordError
	x.Code, x.Text, records = kafka.Refusal(err)
	for _, r := range records {
		x.Records = append(x.Records, forward.RecordError{Record: uint32(r.Index), Text: r.Err.Error()})
	}
	return x
}
