package reconcile

import (
	"bytes"
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// Parse reads one whole message, whose memory the result goes on using. What it
// accepts is exactly what Encode returns. Wraps ErrMessage.
func Parse(b []byte) (Message, error) {
	n, err := BodySize(b)
	if err != nil {
		return nil, err
	}
	if n != len(b)-HeaderSize {
		return nil, fmt.Errorf("%w: %d bytes, its header says %d", ErrMessage, len(b)-HeaderSize, n)
	}
	r := reader{rest: b[HeaderSize:]}
	m := r.message(Kind(b[3]))
	if r.why == "" && len(r.rest) != 0 {
		r.fail("bytes behind its end")
	}
	if r.why != "" {
		return nil, fmt.Errorf("%w: %s: %s", ErrMessage, Kind(b[3]), r.why)
	}
	return m, nil
}

// reader takes a body apart. Once it has failed all it returns is zero.
type reader struct {
	rest []byte
	why  string
}

func (r *reader) fail(why string) {
	if r.why == "" {
		r.why = why
	}
	r.rest = nil
}

// take never returns less than n bytes, so n must be small or checked.
func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.fail("it is cut short")
		return make([]byte, n)
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

func (r *reader) hash() lattice.Hash { return lattice.Hash(r.take(32)) }

// count bounds a number of things of at least size bytes each.
func (r *reader) count(n uint32, most, size int) int {
	if uint64(n) > uint64(most) || uint64(n)*uint64(size) > uint64(len(r.rest)) {
		r.fail(fmt.Sprintf("%d of something", n))
		return 0
	}
	return int(n)
}

func (r *reader) bytes(most int) []byte {
	n := r.count(r.u32(), most, 1)
	return r.take(n)
}

func (r *reader) writer() state.Writer {
	return state.Writer{Author: lattice.AuthorID(r.take(32)), Incarnation: r.u64()}
}

func (r *reader) partition() lattice.TopicPartition {
	return lattice.TopicPartition{Topic: lattice.TopicID(r.take(16)), Partition: int32(r.u32())}
}

func (r *reader) root() Root { return Root{r.hash(), r.u32()} }

func (r *reader) hashes() []lattice.Hash {
	n := r.count(uint32(r.u8()), maxHashes, 32)
	if n == 0 {
		return nil
	}
	out := make([]lattice.Hash, n)
	for i := range out {
		out[i] = r.hash()
	}
	return out
}

func (r *reader) bound() Bound {
	n := int(r.u8())
	if n > len(Key{}) {
		r.fail("a key that is too long")
		return Bound{}
	}
	b := r.take(n)
	if n > 0 && b[n-1] == 0 {
		r.fail("a bound that ends with zeros")
	}
	var out Bound
	copy(out[:], b)
	return out
}

// items reads ascending items; their keys lie in [from, to), as far as those are given.
func (r *reader) items(from, to Bound) []Item {
	n := r.count(uint32(r.u16()), maxItems, itemSize)
	if n == 0 {
		return nil
	}
	out := make([]Item, n)
	for i := range out {
		out[i] = Item{Key: Key(r.take(len(Key{}))), N: r.u64(), ID: r.hash()}
		k := out[i].Key
		switch {
		case !out[i].valid():
			r.fail("an item that names nothing")
		case i > 0 && out[i-1].Key.compare(k) >= 0, k.compare(Key(from)) < 0, !to.isEnd() && k.compare(Key(to)) >= 0:
			r.fail("items out of order")
		}
	}
	return out
}

func (r *reader) message(k Kind) Message {
	switch k {
	case KindHello:
		m := Hello{Min: r.u16(), Max: r.u16(), Store: lattice.StoreID(r.hash()), Node: lattice.NodeID(r.hash()), Session: r.u64(), Root: r.root(), Window: r.u32()}
		if m.Min > m.Max {
			r.fail("versions from high to low")
		}
		return m
	case KindRanges:
		return r.ranges()
	case KindOffer:
		m := Offer{r.items(Bound{}, Bound{})}
		if len(m.Items) == 0 {
			r.fail("it offers nothing")
		}
		return m
	case KindWant:
		return r.want()
	case KindBlocks:
		return r.blocks()
	case KindFork:
		return Fork{r.bytes(sigchain.MaxSize), r.bytes(sigchain.MaxSize)}
	case KindStatements:
		m := Statements{Partition: r.partition()}
		m.All = make([]Statement, r.count(uint32(r.u16()), maxStates, 5))
		for i := range m.All {
			m.All[i] = Statement{StatementKind(r.u8()), r.bytes(maxControl)}
		}
		return m
	case KindPruned:
		return Pruned{r.writer(), r.u64(), Snapshot{r.hash(), r.hash(), r.u64()}}
	case KindRefuse:
		return Refuse{r.writer(), r.u64(), Reason(r.u8())}
	case KindCredit:
		return Credit{r.u32()}
	case KindFrontier:
		return Frontier{r.root()}
	case KindBye:
		return Bye{Reason(r.u8())}
	}
	r.fail("no such kind")
	return nil
}

func (r *reader) ranges() Message {
	m := Ranges{}
	flags := r.u8()
	if flags > 1 {
		r.fail("unknown flags")
	}
	m.Last, m.From = flags == 1, r.bound()
	n := r.count(uint32(r.u16()), maxRanges, 2)
	from := m.From
	for range n {
		x := Range{To: r.bound(), Mode: Mode(r.u8())}
		if len(m.Ranges) > 0 && m.Ranges[len(m.Ranges)-1].To.isEnd() || !x.To.isEnd() && bytes.Compare(x.To[:], from[:]) <= 0 {
			r.fail("ranges out of order")
		}
		switch x.Mode {
		case ModeEqual:
		case ModeDigest:
			x.Count = r.u32()
			copy(x.Digest[:], r.take(16))
		case ModeItems, ModeAnswer:
			x.Items = r.items(from, x.To)
		default:
			r.fail("no such mode")
		}
		m.Ranges, from = append(m.Ranges, x), x.To
	}
	return m
}

func (r *reader) want() Message {
	m := Want{}
	for range r.count(uint32(r.u16()), maxSpans, writerSize+20) {
		m.Spans = append(m.Spans, Span{r.writer(), r.u64(), r.u64(), r.u32()})
	}
	for range r.count(uint32(r.u16()), maxSpans, 32) {
		m.Forks = append(m.Forks, lattice.AuthorID(r.take(32)))
	}
	for range r.count(uint32(r.u16()), maxSpans, 20) {
		m.Partitions = append(m.Partitions, r.partition())
	}
	return m
}

func (r *reader) blocks() Message {
	m := Blocks{Log: r.writer(), Ask: r.u32(), After: r.u64()}
	n := r.count(r.u32(), 1<<20, 4+1)
	for range n {
		e := r.bytes(sigchain.MaxSize)
		if len(e) == 0 {
			r.fail("an empty entry")
			break
		}
		m.Entries = append(m.Entries, e)
	}
	if n == 0 {
		r.fail("no entries")
	}
	m.Note = r.take(r.count(uint32(r.u16()), maxNote, 1))
	if len(m.Note) == 0 {
		m.Note = nil
	}
	m.Left, m.Proof = r.hashes(), r.hashes()
	return m
}
