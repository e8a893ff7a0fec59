package api

import (
	"bytes"
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/engine/keyval"
	pb "github.com/lattice-log/lattice/proto/lattice/v1"
)

// progressEvery is how often a watcher that hears nothing is given a newer place to
// go on from, if there is one.
const progressEvery = 10 * time.Second

type watchStream = connect.ServerStream[pb.KeyServiceWatchResponse]

// Watch sends the changes of keys until the caller leaves or the node stops. What
// waits for a caller that does not read is one change, and the watcher's queue.
func (a keyService) Watch(ctx context.Context, r *pb.KeyServiceWatchRequest, stream *watchStream) error {
	s, err := a.store(r.Store)
	if err != nil {
		return err
	}
	m, err := mapName(r.Map, false)
	if err != nil {
		return err
	}
	if r.Current && len(r.From) > 0 {
		return lattice.E(lattice.Invalid, errors.New("watch either goes on from a place or begins with the keys as they are"))
	}
	var from state.Frontier
	if len(r.From) > 0 {
		if from, err = s.State().ParseToken(r.From); err != nil {
			return lattice.E(lattice.Invalid, hinted(err, "give what an earlier change of this store had as resume"))
		}
	}
	w := &watching{db: s.State(), m: m, prefix: r.Prefix, stream: stream}
	if err := w.begin(from); err != nil {
		return err
	}
	defer func() { w.Close() }()
	if r.Current {
		if err := w.current(ctx); err != nil {
			return err
		}
	}
	return w.run(ctx)
}

// watching is one Watch call.
type watching struct {
	*keyval.Watcher
	db     *keyval.DB
	m      string
	prefix []byte
	stream *watchStream

	told []byte // the place to go on from that the caller has
}

// begin watches from a frontier; nil: from now.
func (w *watching) begin(from state.Frontier) (err error) {
	w.Watcher, err = w.db.Watch(w.m, w.prefix, from)
	return watchError(err)
}

// watchError says what to do about the end of a watch.
func watchError(err error) error {
	switch {
	case errors.Is(err, keyval.ErrPruned), errors.Is(err, keyval.ErrUpset):
		return hinted(err, "begin anew with the keys as they are: lattice kv watch --current")
	case errors.Is(err, keyval.ErrClosed):
		return lattice.E(lattice.Unavailable, hinted(errors.New("the node stops"), "go on from the last change's resume when it runs again"))
	}
	return err
}

func (w *watching) run(ctx context.Context) error {
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	caughtUp := false
	for {
		c, ok, err := w.Poll(ctx)
		switch {
		case errors.Is(err, keyval.ErrLagged):
			// Out of the logs, from what it has: nothing is missing.
			from := w.Frontier()
			w.Close()
			if err := w.begin(from); err != nil {
				return err
			}
			if err := w.send(&pb.KeyServiceWatchResponse{Event: &pb.KeyServiceWatchResponse_Lagged{Lagged: true}}); err != nil {
				return err
			}
			caughtUp = false
			continue
		case err != nil:
			return watchError(err)
		case ok:
			if err := w.send(&pb.KeyServiceWatchResponse{Event: &pb.KeyServiceWatchResponse_Change{Change: changeMessage(c)}}); err != nil {
				return err
			}
			continue
		case !caughtUp:
			caughtUp = true
			if err := w.send(&pb.KeyServiceWatchResponse{Event: &pb.KeyServiceWatchResponse_CaughtUp{CaughtUp: true}}); err != nil {
				return err
			}
		}
		select {
		case <-w.Ready():
		case <-progress.C:
			if token := w.Token(); !bytes.Equal(token, w.told) {
				caughtUp = false
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// send sends an event with the place to go on from after it.
func (w *watching) send(m *pb.KeyServiceWatchResponse) error {
	w.told = w.Token()
	m.Resume = w.told
	return w.stream.Send(m)
}

// current sends the keys as they are, without a place to go on from: who leaves
// meanwhile has not got them all. What changes meanwhile comes after them.
func (w *watching) current(ctx context.Context) error {
	return watchError(w.db.Each(ctx, w.m, w.prefix, func(c keyval.Change) error {
		return w.stream.Send(&pb.KeyServiceWatchResponse{Event: &pb.KeyServiceWatchResponse_Change{Change: changeMessage(c)}})
	}))
}

var changeTypes = map[state.Kind]pb.KeyType{
	state.Register: pb.KeyType_KEY_TYPE_STRING, state.Field: pb.KeyType_KEY_TYPE_HASH, state.Member: pb.KeyType_KEY_TYPE_SET,
	state.Scored: pb.KeyType_KEY_TYPE_SORTED_SET, state.Element: pb.KeyType_KEY_TYPE_LIST,
}

func changeMessage(c keyval.Change) *pb.KeyChange {
	m := &pb.KeyChange{
		Key: c.Key, Deleted: c.Deleted, Type: changeTypes[c.Kind], Value: c.Value, Conflicted: c.Conflicted, Origin: originMessage(c.Order),
	}
	if m.Origin.Pruned = c.Entry.IsZero(); !m.Origin.Pruned {
		m.Origin.Hash = c.Entry.String()
	}
	return m
}
