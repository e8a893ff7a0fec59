package node

import (
	"context"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/engine/store"
	"github.com/lattice-log/lattice/mesh/ballot"
	"github.com/lattice-log/lattice/mesh/p2p"
)

var (
	_ store.Voters = elsewhere{}
	_ p2p.Voter    = leads{}
)

// Vote implements store.Voters.
func (e elsewhere) Vote(node lattice.NodeID, ask promise.Promise, grants [][]byte, wait time.Duration, done func(store.Vote)) {
	ask.Store = e.store
	e.ballot(node, ballot.Question{What: ballot.Promise, Ask: ask, Grants: grants}, wait, func(a ballot.Answer, err error) {
		done(store.Vote{Promise: a.Promise, Err: err, Bound: a.Bound, Grants: a.Grants})
	})
}

// Where implements store.Voters.
func (e elsewhere) Where(node lattice.NodeID, tp lattice.TopicPartition, wait time.Duration, done func(uint64, error)) {
	q := ballot.Question{What: ballot.Where, Ask: promise.Promise{Store: e.store, Partition: tp}}
	e.ballot(node, q, wait, func(a ballot.Answer, err error) { done(a.Size, err) })
}

// ballot asks, and calls done with the answer, or with why there is none or it is refused.
func (e elsewhere) ballot(node lattice.NodeID, q ballot.Question, wait time.Duration, done func(ballot.Answer, error)) {
	go func() { // it waits for the network
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		a, err := e.mesh.AskBallot(ctx, node, q)
		if err == nil {
			err = a.Err
		}
		if err == nil && a.What != q.What {
			err = ballot.ErrMessage
		}
		done(a, err)
	}()
}

// Vote implements p2p.Voter.
func (l leads) Vote(_ context.Context, from lattice.NodeID, q ballot.Question) ballot.Answer {
	if q.What == ballot.Where {
		size, end, err := l.st.Holds(from, q.Ask.Partition)
		return ballot.Answer{What: ballot.Where, Size: size, End: end, Err: err}
	}
	v := l.st.Vote(from, q.Ask, q.Grants)
	return ballot.Answer{What: ballot.Promise, Promise: v.Promise, Err: v.Err, Bound: v.Bound, Grants: v.Grants}
}
