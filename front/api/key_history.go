package api

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// History sends what was done to a key, the newest first.
func (a keyService) History(ctx context.Context, r *pb.KeyServiceHistoryRequest, stream *connect.ServerStream[pb.KeyServiceHistoryResponse]) error {
	s, err := a.store(r.Store)
	if err != nil {
		return err
	}
	m, err := mapName(r.Map, false)
	if err != nil {
		return err
	}
	left := int(r.Limit)
	var sent error
	more := true // it ends because the logs do
	err = s.State().History(ctx, m, r.Key, func(e keyval.Event) bool {
		sent = stream.Send(eventMessage(e))
		left--
		more = sent == nil && left != 0
		return more
	})
	if err == nil {
		err = sent
	}
	if f, pruned := s.State().Floor(); err == nil && more && pruned {
		err = stream.Send(&pb.KeyServiceHistoryResponse{Floor: floorMessage(f)})
	}
	return err
}

// eventMessage says for people what an operation does.
func eventMessage(e keyval.Event) *pb.KeyServiceHistoryResponse {
	res := &pb.KeyServiceHistoryResponse{Origin: originMessage(e.Order)}
	res.Origin.Hash = e.Entry.String()
	switch op := e.Op.(type) {
	case *state.Put:
		res.Item = slices.Clone(op.Address.Sub)
		switch {
		case op.Payload.Sum != nil:
			res.What = "add up to " + strconv.FormatInt(op.Payload.Sum.Count, 10)
		case op.Address.Kind == state.Register:
			res.What, res.Value = "put", slices.Clone(op.Payload.Bytes)
		case op.Address.Kind == state.Scored:
			res.What = "scored"
			if score, err := state.ParseScore(op.Payload); err == nil {
				res.Value = strconv.AppendFloat(nil, score.Float(), 'g', -1, 64)
			}
		default:
			res.What, res.Value = op.Address.Kind.String(), slices.Clone(op.Payload.Bytes)
		}
	case *state.End:
		res.What = "delete"
		if op.Scope != state.ScopeKey {
			res.What = "delete " + op.Address.Kind.String()
			res.Item = slices.Clone(op.Address.Sub)
		}
		if op.Scope == state.ScopeRow && op.Address.Kind == state.Expiry {
			res.What = "persist"
		}
	case *state.Expire:
		res.What = "expire at " + time.UnixMilli(op.Expiring.At).UTC().Format("2006-01-02T15:04:05.000Z")
	default:
		res.What = fmt.Sprintf("%T", op)
	}
	return res
}
