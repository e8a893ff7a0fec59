package reconcile

import (
	"bytes"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/mesh/wire"
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
	r := reader{wire.Reader{Rest: b[HeaderSize:]}}
	m := r.message(Kind(b[3]))
	if r.Why == "" && len(r.Rest) != 0 {
		r.Fail("bytes behind its end")
	}
	if r.Why != "" {
		return nil, fmt.Errorf("%w: %s: %s", ErrMessage, Kind(b[3]), r.Why)
	}
	return m, nil
}

// reader takes a body apart.
type reader struct{ wire.Reader }

func (r *reader) bytes(most int) []byte {
	n := r.Count(r.U32(), most, 1)
	return r.Take(n)
}

func (r *reader) writer() state.Writer {
	return state.Writer{Author: lattice.AuthorID(r.Take(32)), Incarnation: r.U64()}
}

func (r *reader) partition() lattice.TopicPartition {
	return lattice.TopicPartition{Topic: lattice.TopicID(r.Take(16)), Partition: int32(r.U32())}
}

func (r *reader) root() Root { return Root{r.Hash(), r.U32()} }

func (r *reader) bound() Bound {
	n := int(r.U8())
	if n > len(Key{}) {
		r.Fail("a key that is too long")
		return Bound{}
	}
	b := r.Take(n)
	if n > 0 && b[n-1] == 0 {
		r.Fail("a bound that ends with zeros")
	}
	var out Bound
	copy(out[:], b)
	return out
}

// items reads ascending items; their keys lie in [from, to), as far as those are given.
func (r *reader) items(from, to Bound) []Item {
	n := r.Count(uint32(r.U16()), maxItems, itemSize)
	if n == 0 {
		return nil
	}
	out := make([]Item, n)
	for i := range out {
		out[i] = Item{Key: Key(r.Take(len(Key{}))), N: r.U64(), ID: r.Hash()}
		k := out[i].Key
		switch {
		case !out[i].valid():
			r.Fail("an item that names nothing")
		case i > 0 && out[i-1].Key.compare(k) >= 0, k.compare(Key(from)) < 0, !to.isEnd() && k.compare(Key(to)) >= 0:
			r.Fail("items out of order")
		}
	}
	return out
}

func (r *reader) message(k Kind) Message {
	switch k {
	case KindHello:
		m := Hello{Min: r.U16(), Max: r.U16(), Store: lattice.StoreID(r.Hash()), Node: lattice.NodeID(r.Hash()), Session: r.U64(), Root: r.root(), Window: r.U32()}
		if m.Min > m.Max {
			r.Fail("versions from high to low")
		}
		return m
	case KindRanges:
		return r.ranges()
	case KindOffer:
		m := Offer{r.items(Bound{}, Bound{})}
		if len(m.Items) == 0 {
			r.Fail("it offers nothing")
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
		m.All = make([]Statement, r.Count(uint32(r.U16()), maxStates, 5))
		for i := range m.All {
			m.All[i] = Statement{StatementKind(r.U8()), r.bytes(maxControl)}
		}
		return m
	case KindPruned:
		return Pruned{r.writer(), r.U64(), Snapshot{r.Hash(), r.Hash(), r.U64()}}
	case KindRefuse:
		return Refuse{r.writer(), r.U64(), Reason(r.U8())}
	case KindCredit:
		return Credit{r.U32()}
	case KindFrontier:
		return Frontier{r.root()}
	case KindBye:
		return Bye{Reason(r.U8())}
	}
	r.Fail("no such kind")
	return nil
}

func (r *reader) ranges() Message {
	m := Ranges{}
	flags := r.U8()
	if flags > 1 {
		r.Fail("unknown flags")
	}
	m.Last, m.From = flags == 1, r.bound()
	n := r.Count(uint32(r.U16()), maxRanges, 2)
	from := m.From
	for range n {
		x := Range{To: r.bound(), Mode: Mode(r.U8())}
		if len(m.Ranges) > 0 && m.Ranges[len(m.Ranges)-1].To.isEnd() || !x.To.isEnd() && bytes.Compare(x.To[:], from[:]) <= 0 {
			r.Fail("ranges out of order")
		}
		switch x.Mode {
		case ModeEqual:
		case ModeDigest:
			x.Count = r.U32()
			copy(x.Digest[:], r.Take(16))
		case ModeItems, ModeAnswer:
			x.Items = r.items(from, x.To)
		default:
			r.Fail("no such mode")
		}
		m.Ranges, from = append(m.Ranges, x), x.To
	}
	return m
}

func (r *reader) want() Message {
	m := Want{}
	for range r.Count(uint32(r.U16()), maxSpans, writerSize+20) {
		m.Spans = append(m.Spans, Span{r.writer(), r.U64(), r.U64(), r.U32()})
	}
	for range r.Count(uint32(r.U16()), maxSpans, 32) {
		m.Forks = append(m.Forks, lattice.AuthorID(r.Take(32)))
	}
	for range r.Count(uint32(r.U16()), maxSpans, 20) {
		m.Partitions = append(m.Partitions, r.partition())
	}
	return m
}

func (r *reader) blocks() Message {
	m := Blocks{Log: r.writer(), Ask: r.U32(), After: r.U64()}
	n := r.Count(r.U32(), 1<<20, 4+1)
	for range n {
		e := r.bytes(sigchain.MaxSize)
		if len(e) == 0 {
			r.Fail("an empty entry")
			break
		}
		m.Entries = append(m.Entries, e)
	}
	if n == 0 {
		r.Fail("no entries")
	}
	m.Note = r.Take(r.Count(uint32(r.U16()), maxNote, 1))
	if len(m.Note) == 0 {
		m.Note = nil
	}
	m.Left, m.Proof = r.Hashes(maxHashes), r.Hashes(maxHashes)
	return m
}
