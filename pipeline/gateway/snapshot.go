package gateway

import (
	"context"
	"errors"
	"fmt"
	"time"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/pipeline/gateway/flow"
)

const (
	// chunk bounds the rows of one frame, and their bytes.
	chunk      = 200
	chunkBytes = 64 << 10
	// snapshotWithin bounds the reading of one, and then again its sending.
	snapshotWithin = time.Minute
)

// snapshot reads the rows that a subscription waits for, and gives them to its client as fast as
// that takes them. It is read whole first: a slow client must not hold a transaction.
func (g *Gateway) snapshot(p *peer, s *flow.Sub, round int) {
	g.stats.snapshots.Add(1)
	chunks, asOf, err := g.readRows(s.Selector)
	if err != nil {
		g.stats.snapshotErrors.Add(1)
		g.o.Logger.Warn("read a snapshot", "subscription", s.String(), "error", err)
	} else {
		g.pacing <- struct{}{}
		err = p.give(s, round, chunks)
		<-g.pacing
	}
	p.do(func(c *flow.Conn) flow.Changes { return c.SnapshotDone(s, round, asOf, err) })
}

func (g *Gateway) readRows(s flow.Selector) (chunks [][]flow.Row, asOf int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), snapshotWithin)
	defer cancel()
	select {
	case g.reading <- struct{}{}:
		defer func() { <-g.reading }()
	case <-ctx.Done():
		return nil, 0, lattice.E(lattice.Unavailable, errors.New("many snapshots are being read: come back later"))
	}
	rows, size := 0, 0
	asOf, err = g.o.Rows.Snapshot(ctx, s, func(some []flow.Row) error {
		rows += len(some)
		for _, r := range some {
			size += len(r.Key) + len(r.Row)
		}
		if rows > g.o.SnapshotRows || size > g.o.SnapshotBytes {
			return lattice.E(lattice.TooLarge, fmt.Errorf("the projection has more than %d rows or %d bytes: follow one entity, or ask a query", g.o.SnapshotRows, g.o.SnapshotBytes))
		}
		chunks = append(chunks, some)
		return nil
	})
	return chunks, asOf, err
}

// give queues rows while there is room for them.
func (p *peer) give(s *flow.Sub, round int, chunks [][]flow.Row) error {
	late := time.NewTimer(snapshotWithin)
	defer late.Stop()
	room := make(chan struct{}, 1)
	for _, rows := range chunks {
		for {
			p.mu.Lock()
			wanted, free := !p.dead && s.NeedsSnapshot() && s.Round() == round, p.conn.Room()
			if wanted && free {
				p.conn.Rows(s, round, rows)
				p.kick()
			}
			p.room = room // two snapshots of one connection wake each other: each looks again
			p.mu.Unlock()
			if !wanted {
				return nil
			}
			if free {
				break
			}
			select {
			case <-room:
			case <-time.After(time.Second): // another's wake-up may have been taken
			case <-late.C:
				return lattice.E(lattice.Unavailable, errors.New("the snapshot was taken too slowly"))
			}
		}
	}
	return nil
}

// cut collects rows into chunks.
type cut struct {
	rows []flow.Row
	size int
	each func([]flow.Row) error
}

func (c *cut) add(r flow.Row) error {
	c.rows = append(c.rows, r)
	c.size += len(r.Key) + len(r.Row)
	if len(c.rows) < chunk && c.size < chunkBytes {
		return nil
	}
	return c.flush()
}

func (c *cut) flush() error {
	rows := c.rows
	c.rows, c.size = nil, 0
	if len(rows) == 0 {
		return nil
	}
	return c.each(rows)
}
