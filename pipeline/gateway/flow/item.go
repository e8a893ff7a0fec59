package flow

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/lattice-log/lattice/pipeline/event"
)

// Projection names one projection of one tenant's fork.
type Projection struct{ Tenant, Fork, Name string }

// Selector is what a subscription follows: a projection, or of that what the
// events of one entity write.
type Selector struct {
	Projection
	Stream, Entity string // both empty: all of the projection
}

// Item is one patch in the order of the feed, or several of one row merged. It
// never changes; many connections share one.
type Item struct {
	Projection
	Stream, Entity string
	// Reset: all who follow the projection are to read it anew. Then there is no row.
	Reset  bool
	Reason string // of Reset

	Partition int32
	Offset    int64
	// At is how far the feed was when it came to this, Cursor the same for clients.
	At     Position
	Cursor string

	row        rowID
	key        json.RawMessage
	ops        []event.Operation
	eventType  string
	prev, last int64 // the row's cursors
	epoch, ts  int64
	merged     int // patches in this; 0 for one
	body       []byte
}

// rowID names a row of one projection.
type rowID [16]byte

func rowOf(p Projection, epoch int64, key json.RawMessage) rowID {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %d ", p.Tenant, p.Fork, p.Name, epoch)
	h.Write(key)
	return rowID(h.Sum(nil)[:16])
}

// Matches returns the two selectors that an item can be followed by.
func (it *Item) Matches() [2]Selector {
	return [2]Selector{{Projection: it.Projection}, {Projection: it.Projection, Stream: it.Stream, Entity: it.Entity}}
}

func (it *Item) matches(s Selector) bool {
	return it.Projection == s.Projection && (s.Entity == "" || it.Reset || it.Entity == s.Entity && it.Stream == s.Stream)
}

// bytes is what an item counts in a queue.
func (it *Item) bytes() int { return len(it.body) + 64 }

// encode writes the part of the frame that all who get it share. What is before
// it says whose channel it is.
func (it *Item) encode() {
	b := make([]byte, 0, 320)
	b = field(b, "event_type", "projection:"+it.Name)
	b = field(b, "trigger_event_type", it.eventType)
	b = field(b, "fork_id", it.Fork)
	b = field(b, "entity_id", it.Entity)
	b = field(b, "projection_name", it.Name)
	b = append(append(append(b, `"key":`...), it.key...), `,"patch":[`...)
	for i, op := range it.ops {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		b = field(b, "op", op.Op)
		b = append(quoted(append(b, `"path":`...), op.Path), ',')
		if op.Op != event.OpRemove {
			b = append(append(append(b, `"value":`...), oneLine(op.Value)...), ',')
		}
		b[len(b)-1] = '}'
	}
	b = append(b, "],"...)
	b = number(b, "row_prev", it.prev)
	b = number(b, "row_cursor", it.last)
	b = number(b, "epoch", it.epoch)
	b = number(b, "ts", it.ts)
	if it.merged > 1 {
		b = number(b, "merged", int64(it.merged))
	}
	b = field(b, "cursor", it.Cursor)
	b[len(b)-1] = '}'
	it.body = b
}

// oneLine writes a value without line breaks, which end an event of SSE.
func oneLine(v json.RawMessage) []byte {
	if bytes.IndexByte(v, '\n') < 0 && bytes.IndexByte(v, '\r') < 0 {
		return v
	}
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return []byte("null") // not reached: the patch was read as JSON
	}
	return b.Bytes()
}

// merge returns one item that does what the older and then the newer does. It
// stands where the older stands: a client that comes back with its cursor gets the
// newer again, and not less.
func merge(older, newer *Item) *Item {
	it := *newer
	it.prev, it.Partition, it.Offset, it.At, it.Cursor = older.prev, older.Partition, older.Offset, older.At, older.Cursor
	it.merged = max(older.merged, 1) + max(newer.merged, 1)
	it.ops = mergeOps(older.ops, newer.ops)
	it.encode()
	return &it
}

// mergeOps leaves out operations that a later one makes void.
func mergeOps(older, newer []event.Operation) []event.Operation {
	ops := make([]event.Operation, 0, len(older)+len(newer))
	for _, op := range older {
		void := false
		for _, n := range newer {
			if op.Path == n.Path || n.Path == "" || strings.HasPrefix(op.Path, n.Path+"/") {
				void = true
				break
			}
		}
		if !void {
			ops = append(ops, op)
		}
	}
	return append(ops, newer...)
}

// removed reports whether the patch leaves no row.
func removed(ops []event.Operation) bool {
	return len(ops) > 0 && ops[len(ops)-1].Op == event.OpRemove && ops[len(ops)-1].Path == ""
}

// field appends "name":"text", and a comma.
func field(b []byte, name, text string) []byte {
	b = append(append(append(b, '"'), name...), `":`...)
	return append(quoted(b, text), ',')
}

func number(b []byte, name string, n int64) []byte {
	b = append(append(append(b, '"'), name...), `":`...)
	return append(strconv.AppendInt(b, n, 10), ',')
}

// quoted appends a JSON string.
func quoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			q, _ := json.Marshal(s) // a string has an encoding
			return append(b, q...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
