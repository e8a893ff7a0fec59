package batches

import (
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
)

// Ready is a message that has been taken apart, which needs no Replica.
type Ready struct {
	message Message
	size    int
	err     error // it is no message
}

// Take takes one whole message apart, whose memory the result goes on using. What is
// wrong with it is told by StepReady.
func Take(message []byte) Ready {
	m, err := Parse(message)
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

// pieces reads n byte strings, none of which is empty.
func (r *reader) pieces(n, most int) [][]byte {
	if n == 0 {
		return nil
	}
	out := make([][]byte, n)
	for i := range out {
		if out[i] = r.take(r.count(r.u32(), most, 1)); len(out[i]) == 0 {
			r.fail("an empty piece")
			return nil
		}
	}
	return out
}

func (r *reader) partition() lattice.TopicPartition {
	p := lattice.TopicPartition{Topic: lattice.TopicID(r.take(16)), Partition: int32(r.u32())}
	if p.Partition < 0 {
		r.fail("a partition below 0")
	}
	return p
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
	if n > len(Bound{}) {
		r.fail("a bound that is too long")
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

// items reads ascending items that lie in [from, to), as far as those are given.
func (r *reader) items(from, to Bound) []Item {
	n := r.count(uint32(r.u16()), maxItems, itemSize)
	if n == 0 {
		return nil
	}
	out := make([]Item, n)
	for i := range out {
		out[i] = Item{Partition: r.partition(), Size: r.u64(), Root: r.hash()}
		at := boundAt(out[i].Partition)
		switch {
		case out[i].Size == 0:
			r.fail("an item of nothing")
		case i > 0 && boundAt(out[i-1].Partition).compare(at) >= 0, at.compare(from) < 0, !to.isEnd() && at.compare(to) >= 0:
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
	case KindFollow:
		m := Follows{make([]Follow, r.count(uint32(r.u16()), maxFollows, partitionSize+12))}
		for i := range m.All {
			m.All[i] = Follow{r.partition(), r.u32(), r.u64()}
		}
		if len(m.All) == 0 {
			r.fail("it follows nothing")
		}
		return m
	case KindSpan:
		return r.span()
	case KindEnded:
		return Ended{r.partition(), r.u32(), r.u64(), Reason(r.u8())}
	case KindRefuse:
		return Refuse{r.partition(), r.u32(), Reason(r.u8())}
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
	m := Ranges{From: r.bound()}
	n := r.count(uint32(r.u16()), maxRanges, 2)
	from := m.From
	for range n {
		x := Range{To: r.bound(), Mode: Mode(r.u8())}
		if len(m.Ranges) > 0 && from.isEnd() || !x.To.isEnd() && x.To.compare(from) <= 0 {
			r.fail("ranges out of order")
		}
		switch x.Mode {
		case ModeEqual:
		case ModeDigest:
			x.Count = r.u32()
			copy(x.Digest[:], r.take(16))
		case ModeItems:
			x.Items = r.items(from, x.To)
		default:
			r.fail("no such mode")
		}
		m.Ranges, from = append(m.Ranges, x), x.To
	}
	if n == 0 {
		r.fail("no ranges")
	}
	return m
}

func (r *reader) span() Message {
	m := Spans{Span: span.Span{Partition: r.partition()}, Ask: r.u32(), Size: r.u64()}
	s := &m.Span
	s.From = r.u64()
	s.Batches = r.pieces(r.count(r.u32(), maxBatches, 4+1), MaxBatch)
	if len(s.Batches) == 0 {
		r.fail("no batches")
	}
	if s.From+uint64(len(s.Batches)) < s.From {
		r.fail("a leaf beyond the last")
	}
	s.Grants = r.pieces(r.count(uint32(r.u16()), maxGrants, 4+1), maxGrant)
	if n := r.count(uint32(r.u16()), maxNote, 1); n > 0 {
		s.Note = r.take(n)
	}
	s.Left, s.Proof = r.hashes(), r.hashes()
	return m
}
