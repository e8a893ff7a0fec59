package batches

import (
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/mesh/wire"
)

// Ready is a message that has been taken apart, which needs no Replica.
type Ready struct {
	message Message
	size    int
	err     error // it is no message
}

// Take takes one whole message apart, whose memory the result goes on using, and hashes
// the batches in it. What is wrong with it is told by StepReady.
func Take(message []byte) Ready {
	m, err := Parse(message)
	if s, ok := m.(Spans); ok {
		s.Span.Sum()
		m = s
	}
	return Ready{m, len(message), err}
}

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

// pieces reads n byte strings, none of which is empty.
func (r *reader) pieces(n, most int) [][]byte {
	if n == 0 {
		return nil
	}
	out := make([][]byte, n)
	for i := range out {
		if out[i] = r.Take(r.Count(r.U32(), most, 1)); len(out[i]) == 0 {
			r.Fail("an empty piece")
			return nil
		}
	}
	return out
}

func (r *reader) partition() lattice.TopicPartition {
	p := lattice.TopicPartition{Topic: lattice.TopicID(r.Take(16)), Partition: int32(r.U32())}
	if p.Partition < 0 {
		r.Fail("a partition below 0")
	}
	return p
}

func (r *reader) root() Root { return Root{r.Hash(), r.U32()} }

func (r *reader) bound() Bound {
	n := int(r.U8())
	if n > len(Bound{}) {
		r.Fail("a bound that is too long")
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

// items reads ascending items that lie in [from, to), as far as those are given.
func (r *reader) items(from, to Bound) []Item {
	n := r.Count(uint32(r.U16()), maxItems, itemSize)
	if n == 0 {
		return nil
	}
	out := make([]Item, n)
	for i := range out {
		out[i] = Item{Partition: r.partition(), Size: r.U64(), Root: r.Hash()}
		at := boundAt(out[i].Partition)
		switch {
		case out[i].Size == 0:
			r.Fail("an item of nothing")
		case i > 0 && boundAt(out[i-1].Partition).compare(at) >= 0, at.compare(from) < 0, !to.isEnd() && at.compare(to) >= 0:
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
	case KindFollow:
		m := Follows{make([]Follow, r.Count(uint32(r.U16()), maxFollows, partitionSize+12))}
		for i := range m.All {
			m.All[i] = Follow{r.partition(), r.U32(), r.U64()}
		}
		if len(m.All) == 0 {
			r.Fail("it follows nothing")
		}
		return m
	case KindSpan:
		return r.span()
	case KindEnded:
		return Ended{r.partition(), r.U32(), r.U64(), Reason(r.U8())}
	case KindRefuse:
		return Refuse{r.partition(), r.U32(), Reason(r.U8())}
	case KindCredit:
		return Credit{r.U32()}
	case KindFrontier:
		return Frontier{r.root()}
	case KindAcks:
		return r.acks()
	case KindBye:
		return Bye{Reason(r.U8())}
	}
	r.Fail("no such kind")
	return nil
}

func (r *reader) ranges() Message {
	m := Ranges{From: r.bound()}
	n := r.Count(uint32(r.U16()), maxRanges, 2)
	from := m.From
	for range n {
		x := Range{To: r.bound(), Mode: Mode(r.U8())}
		if len(m.Ranges) > 0 && from.isEnd() || !x.To.isEnd() && x.To.compare(from) <= 0 {
			r.Fail("ranges out of order")
		}
		switch x.Mode {
		case ModeEqual:
		case ModeDigest:
			x.Count = r.U32()
			copy(x.Digest[:], r.Take(16))
		case ModeItems:
			x.Items = r.items(from, x.To)
		default:
			r.Fail("no such mode")
		}
		m.Ranges, from = append(m.Ranges, x), x.To
	}
	if n == 0 {
		r.Fail("no ranges")
	}
	return m
}

func (r *reader) span() Message {
	m := Spans{Span: span.Span{Partition: r.partition()}, Ask: r.U32(), Size: r.U64()}
	s := &m.Span
	s.From = r.U64()
	s.Batches = r.pieces(r.Count(r.U32(), maxBatches, 4+1), MaxBatch)
	if s.From+uint64(len(s.Batches)) < s.From {
		r.Fail("a leaf beyond the last")
	}
	s.Grants = r.pieces(r.Count(uint32(r.U16()), maxGrants, 4+1), maxGrant)
	if n := r.Count(uint32(r.U16()), maxNote, 1); n > 0 {
		s.Note = r.Take(n)
	}
	s.Left, s.Proof = r.Hashes(maxHashes), r.Hashes(maxHashes)
	return m
}
