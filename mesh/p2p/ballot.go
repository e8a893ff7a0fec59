package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	multistream "github.com/multiformats/go-multistream"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/ballot"
)

// /lattice/ballot/1, as mesh/ballot draws it: one question and one answer on a stream.

// Voter is a Store whose node is in sets of partitions, and is asked about them.
type Voter interface {
	// Vote answers a member's question, which may be hostile: nothing of it is believed.
	// It may wait for the disk.
	Vote(ctx context.Context, from lattice.NodeID, q ballot.Question) ballot.Answer
}

// ErrSpeaksNone: the peer's version knows nothing of promises. Kind Unsupported.
var ErrSpeaksNone = lattice.E(lattice.Unsupported, errors.New("it runs an older version, which does not speak "+ballot.Protocol))

const ballotsAtOnce = 16 // questions that are worked on, of all peers

// askedBallot answers a question.
func (m *Mesh) askedBallot(ctx context.Context, node lattice.NodeID, s network.Stream) {
	_ = s.SetReadDeadline(time.Now().Add(m.c.Limits.HelloTime)) // fails on a closed stream: so does reading
	b, err := readBallot(s)
	if err != nil {
		return
	}
	q, err := ballot.ParseQuestion(b)
	if err != nil {
		return
	}
	c := m.store(q.Ask.Store)
	if c == nil || !c.admits(node) {
		return
	}
	v, ok := c.store.(Voter)
	if !ok {
		return
	}
	select {
	case m.ballots <- struct{}{}:
		defer func() { <-m.ballots }()
	default:
		return // it asks again
	}
	a := v.Vote(ctx, node, q)
	if write(s, a.AppendTo(nil), &m.c.Limits) != nil {
		return
	}
	_ = s.CloseWrite()
	_ = s.SetReadDeadline(time.Now().Add(m.c.Limits.HelloTime))
	_, _ = s.Read(make([]byte, 1)) // until the other side has read it, and closes
}

func readBallot(s io.Reader) ([]byte, error) {
	var head [ballot.LengthSize]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		return nil, err
	}
	n, err := ballot.Length(head)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(s, b)
	return b, err
}

// AskBallot asks a connected member, and waits for its answer, no longer than ctx. Errors
// wrap ErrSpeaksNone, or mean that there is no answer.
func (m *Mesh) AskBallot(ctx context.Context, node lattice.NodeID, q ballot.Question) (ballot.Answer, error) {
	over, ok := m.enter()
	if !ok {
		return ballot.Answer{}, ErrClosed
	}
	defer m.work.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(over, cancel)()
	id, err := peerOf(node)
	if err != nil {
		return ballot.Answer{}, err
	}
	if m.host.Network().Connectedness(id) != network.Connected {
		m.look()
		return ballot.Answer{}, lattice.E(lattice.Unavailable, errors.New("it is not connected"))
	}
	s, err := m.stream(ctx, id, ballot.Protocol)
	if err != nil {
		var says multistream.ErrNotSupported[protocol.ID]
		if errors.As(err, &says) {
			return ballot.Answer{}, ErrSpeaksNone
		}
		return ballot.Answer{}, lattice.E(lattice.Unavailable, plain(err))
	}
	defer s.Reset()
	defer context.AfterFunc(ctx, func() { _ = s.Reset() })()
	var b []byte
	if err = write(s, q.AppendTo(nil), &m.c.Limits); err == nil {
		if at, ok := ctx.Deadline(); ok {
			_ = s.SetReadDeadline(at)
		}
		b, err = readBallot(s)
	}
	if err != nil {
		return ballot.Answer{}, lattice.E(lattice.Unavailable, fmt.Errorf("it gave no answer: %w", plain(err)))
	}
	return ballot.ParseAnswer(b)
}
