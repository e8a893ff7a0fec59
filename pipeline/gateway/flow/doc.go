// Package flow decides what each client of the gateway is told. It is two state
// machines. A Feed puts the records of all partitions into one order and remembers
// the newest; a Conn is what one client asked for and has not been sent yet. Neither
// owns a clock, a goroutine, a socket or a lock: records, frames and the time go in,
// frames come out, so that any order of subscribing, slowness and cutting can be
// played from a seed.
//
// The caller must
//
//  1. give every record of every partition to Feed.Add, in the order of its partition,
//     and call Feed.Tick now and then;
//  2. do for each Sub that Conn.Receive returns, with nothing added to the feed in
//     between: Feed.Resume, Conn.Resumed, and remember who is to be offered what;
//  3. Offer each Item to those whose Selector it Matches, in the order of the feed;
//  4. read a snapshot for each Sub that NeedsSnapshot, begun after Resumed, and give it
//     to Conn.Rows and Conn.SnapshotDone;
//  5. write what Conn.Next returns, in order, and close when it says so.
//
// # What a client can rely on
//
// A row's patches are chained: each says the row's cursor before and after. Patches of one
// row may lie in several partitions (a record's key is the entity, and several
// entities write one row), so the feed holds one back until the one before it is
// there. What does not come within GapWait is a gap: all who follow the projection get it anew.
//
// A channel's frames are chained, too: each says the channel's cursor before and
// after, so that a client sees when one is missing. That cursor is a Position, what
// was read of each partition, and means the same at every gateway of the topic.
//
// # Where one patch is sent twice
//
// A snapshot may be newer than the feed: it is read from the database, and patches
// are on their way. So a patch may say what the row already is. Its cursor is not above the
// row's: pass over it. A client that applies it all the same is right again once it has all.
package flow

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	lattice "github.com/lattice-log/lattice"
)

// Position says how far each partition was read: its index is the partition, the
// value the offset behind the last record that was read. 0: nothing.
type Position []int64

const (
	maxPartitions = 4096
	maxCursor     = 64 << 10
)

// ErrCursor means that a cursor was not made by any gateway.
var ErrCursor = lattice.E(lattice.Invalid, errors.New("this is no cursor of a gateway: leave from_cursor out"))

// has reports whether a record was read.
func (p Position) has(partition int32, offset int64) bool {
	return int(partition) < len(p) && offset < p[partition]
}

// within reports whether q has read all that p has.
func (p Position) within(q Position) bool {
	for i, n := range p {
		if n > 0 && (i >= len(q) || q[i] < n) {
			return false
		}
	}
	return true
}

// Cursor writes a position for clients, to whom it is opaque:
//
//	"1" "." feed "." base64url(uvarint of each partition's offset)
//
// feed names the topic, so that a cursor of another one is known as such.
func (p Position) Cursor(feed string) string {
	b := make([]byte, 0, 3*len(p))
	for _, n := range p {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return "1." + feed + "." + base64.RawURLEncoding.EncodeToString(b)
}

// ParseCursor reads what Cursor wrote.
func ParseCursor(s string) (feed string, p Position, err error) {
	version, rest, _ := strings.Cut(s, ".")
	feed, text, ok := strings.Cut(rest, ".")
	if !ok || version != "1" || len(s) > maxCursor {
		return "", nil, ErrCursor
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", nil, ErrCursor
	}
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > 1<<62 || len(p) == maxPartitions {
			return "", nil, ErrCursor
		}
		p, b = append(p, int64(n)), b[used:]
	}
	if p.Cursor(feed) != s {
		return "", nil, fmt.Errorf("%w: it is written in another way", ErrCursor)
	}
	return feed, p, nil
}

// set makes room for a partition and sets its offset.
func (p Position) set(partition int32, offset int64) Position {
	for int(partition) >= len(p) {
		p = append(p, 0)
	}
	p[partition] = offset
	return p
}

func (p Position) clone() Position { return slices.Clone(p) }
