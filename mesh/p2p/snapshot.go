package p2p

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

const (
	snapshotRequestSize = 4 + 32 + 32 + 32 + 8 + 8
	snapshotAnswerSize  = 4 + 8
	snapshotPiece       = 128 << 10
	snapshotTries       = 5

	snapshotFollows byte = 0
	snapshotNone    byte = 1
	snapshotLater   byte = 2
)

var (
	errNoSnapshot    = lattice.E(lattice.NotFound, errors.New("the peer does not have it any more"))
	errLaterSnapshot = lattice.E(lattice.Unavailable, errors.New("the peer sends others now"))
)

// snapshotRequest asks for a snapshot from an offset.
type snapshotRequest struct {
	store  lattice.StoreID
	name   reconcile.Snapshot
	offset uint64
}

func (r snapshotRequest) encode() []byte {
	b := append(make([]byte, 0, snapshotRequestSize), 'L', 'S', wireVersion, 0)
	b = append(append(b, r.store[:]...), r.name.Root[:]...)
	b = binary.BigEndian.AppendUint64(append(b, r.name.Sum[:]...), r.name.Bytes)
	return binary.BigEndian.AppendUint64(b, r.offset)
}

// parseSnapshotRequest reads a request. Wraps errAnswer.
func parseSnapshotRequest(b []byte) (snapshotRequest, error) {
	if len(b) != snapshotRequestSize || !bytes.Equal(b[:4], []byte{'L', 'S', wireVersion, 0}) {
		return snapshotRequest{}, fmt.Errorf("request for a snapshot: %w", errAnswer)
	}
	r := snapshotRequest{
		lattice.StoreID(b[4:36]), reconcile.Snapshot{Root: lattice.Hash(b[36:68]), Sum: lattice.Hash(b[68:100]), Bytes: binary.BigEndian.Uint64(b[100:])},
		binary.BigEndian.Uint64(b[108:]),
	}
	if r.name.Bytes > 1<<62 || r.offset > r.name.Bytes {
		return snapshotRequest{}, fmt.Errorf("request for a snapshot: %w", errAnswer)
	}
	return r, nil
}

// snapshotAnswer is what comes before the bytes, and how many those are.
type snapshotAnswer struct {
	status byte
	bytes  uint64
}

func (a snapshotAnswer) encode() []byte {
	return binary.BigEndian.AppendUint64([]byte{'L', 'S', wireVersion, a.status}, a.bytes)
}

// parseSnapshotAnswer reads an answer. Wraps errAnswer.
func parseSnapshotAnswer(b []byte) (snapshotAnswer, error) {
	if len(b) != snapshotAnswerSize || !bytes.Equal(b[:3], []byte{'L', 'S', wireVersion}) || b[3] > snapshotLater {
		return snapshotAnswer{}, fmt.Errorf("snapshot: %w", errAnswer)
	}
	a := snapshotAnswer{b[3], binary.BigEndian.Uint64(b[4:])}
	if a.status != snapshotFollows && a.bytes != 0 {
		return snapshotAnswer{}, fmt.Errorf("snapshot: %w", errAnswer)
	}
	return a, nil
}

// askedSnapshot sends a snapshot to a member.
func (m *Mesh) askedSnapshot(ctx context.Context, node lattice.NodeID, s network.Stream) {
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	_ = s.SetDeadline(time.Now().Add(m.c.Limits.HelloTime))
	var b [snapshotRequestSize]byte
	if _, err := io.ReadFull(s, b[:]); err != nil {
		return
	}
	r, err := parseSnapshotRequest(b[:])
	if err != nil {
		return
	}
	c := m.store(r.store)
	if c == nil || !c.admits(node) {
		return
	}
	select {
	case m.sending <- struct{}{}:
		defer func() { <-m.sending }()
	default:
		_ = write(s, snapshotAnswer{status: snapshotLater}.encode(), &m.c.Limits)
		return
	}
	if err := m.sendSnapshot(ctx, c, r, s); err != nil && ctx.Err() == nil {
		c.log.Info("a snapshot was not sent whole", "peer", node.Short(), "err", err)
	}
}

func (m *Mesh) sendSnapshot(ctx context.Context, c *carrier, r snapshotRequest, s network.Stream) error {
	from, err := c.store.OpenSnapshot(r.name, int64(r.offset))
	if err != nil {
		return errors.Join(err, write(s, snapshotAnswer{status: snapshotNone}.encode(), &m.c.Limits))
	}
	defer from.Close()
	left := r.name.Bytes - r.offset
	if err := write(s, snapshotAnswer{snapshotFollows, left}.encode(), &m.c.Limits); err != nil {
		return err
	}
	b := make([]byte, snapshotPiece)
	for left > 0 {
		n := min(left, uint64(len(b)))
		if _, err := io.ReadFull(from, b[:n]); err != nil {
			return fmt.Errorf("read it: %w", err)
		}
		if err := m.pace.wait(ctx, int(n)); err != nil {
			return err
		}
		if err := write(s, b[:n], &m.c.Limits); err != nil {
			return err
		}
		left -= n
	}
	_ = s.CloseWrite()
	_ = s.SetReadDeadline(time.Now().Add(m.c.Limits.HelloTime))
	_, _ = s.Read(b[:1]) // until the other side has it
	return nil
}

// offered hears that a log goes on only from a snapshot.
func (c *carrier) offered(o reconcile.SnapshotOffer) {
	switch s := o.Snapshot; {
	case s == reconcile.Snapshot{}:
		c.log.Warn("a peer has pruned what is missing here, and offers no snapshot", "peer", o.Peer.Short(), "author", o.Log.Author.Short(), "first", o.First)
	case s.Bytes > uint64(c.mesh.c.Limits.SnapshotBytes):
		c.current.refuse(reconcile.Oversize)
		c.log.Warn("a peer offers a snapshot that is larger than allowed", "peer", o.Peer.Short(), "bytes", s.Bytes)
	default:
		c.wanted = o // the newest offer
	}
}

// fetch begins to fetch what was offered, one at a time. The Replica bars the logs in
// question from being wanted again for some minutes, so it is tried here until then.
func (c *carrier) fetch(ctx context.Context, work *sync.WaitGroup) {
	if c.fetching || c.wanted.Snapshot == (reconcile.Snapshot{}) {
		return
	}
	o := c.wanted
	c.fetching, c.wanted = true, reconcile.SnapshotOffer{}
	work.Go(func() {
		var err error
		defer c.current.fetch(nil)
		for try := range snapshotTries {
			if err = c.mesh.fetchSnapshot(ctx, c, o); err == nil || ctx.Err() != nil || !again(err) {
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(backoff(try+1, c.mesh.c.Limits.RedialMin, c.mesh.c.Limits.RedialMax)):
			}
		}
		if lattice.KindOf(err) == lattice.Exists {
			err = nil
		}
		c.fetched <- err // it has a place, and nobody else uses it
	})
}

// again reports whether another attempt may bring what this one did not.
func again(err error) bool {
	switch lattice.KindOf(err) {
	case lattice.NotFound, lattice.Exists, lattice.Corrupt, lattice.TooLarge, lattice.Unsupported:
		return false
	}
	return true
}

// fetchSnapshot fetches what is missing of a snapshot, and imports it.
func (m *Mesh) fetchSnapshot(ctx context.Context, c *carrier, o reconcile.SnapshotOffer) (err error) {
	file, err := c.store.ReceiveSnapshot(o.Snapshot)
	if err != nil {
		return fmt.Errorf("receive a snapshot: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if n := file.Size(); uint64(n) < o.Snapshot.Bytes {
		if err := m.receive(ctx, c, o, file); err != nil {
			return fmt.Errorf("receive a snapshot of %d bytes from %s, at %d: %w", o.Snapshot.Bytes, o.Peer.Short(), file.Size(), err)
		}
	}
	if err := file.Import(ctx); err != nil {
		return fmt.Errorf("import a snapshot of %s: %w", o.Peer.Short(), err)
	}
	c.log.Info("a snapshot is here", "peer", o.Peer.Short(), "bytes", o.Snapshot.Bytes)
	return nil
}

func (m *Mesh) receive(ctx context.Context, c *carrier, o reconcile.SnapshotOffer, file Incoming) error {
	id, err := peerOf(o.Peer)
	if err != nil {
		return err
	}
	s, done, err := m.ask(ctx, id, protocolSnapshot)
	if err != nil {
		return err
	}
	defer done()
	at := uint64(file.Size())
	f := Fetching{Peer: o.Peer, Bytes: o.Snapshot.Bytes, Here: at, Since: time.Now()}
	var speed rate
	c.current.fetch(&f)
	if err := write(s, snapshotRequest{c.id, o.Snapshot, at}.encode(), &m.c.Limits); err != nil {
		return err
	}
	_ = s.SetReadDeadline(time.Now().Add(m.c.Limits.HelloTime))
	var head [snapshotAnswerSize]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		return err
	}
	a, err := parseSnapshotAnswer(head[:])
	switch {
	case err != nil:
		return err
	case a.status == snapshotNone:
		return errNoSnapshot
	case a.status == snapshotLater:
		return errLaterSnapshot
	case at+a.bytes != o.Snapshot.Bytes:
		return fmt.Errorf("%w: it would be %d bytes", errAnswer, at+a.bytes)
	}
	b := make([]byte, snapshotPiece)
	for left := a.bytes; left > 0; {
		n := min(left, uint64(len(b)))
		_ = s.SetReadDeadline(time.Now().Add(m.c.Limits.allowance(int(n))))
		if _, err := io.ReadFull(s, b[:n]); err != nil {
			return err
		}
		if _, err := file.Write(b[:n]); err != nil {
			return fmt.Errorf("keep it: %w", err)
		}
		left -= n
		if now := time.Now(); now.Sub(speed.at) >= showTime || left == 0 {
			f.Here = o.Snapshot.Bytes - left
			speed.see(now, f.Here)
			f.PerSecond = speed.per
			c.current.fetch(&f)
		}
	}
	return nil
}
