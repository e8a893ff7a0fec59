package batches

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	lattice "github.com/lattice-log/lattice"
)

// Bound is where a range ends or begins: a partition's bytes, or a part of them with
// zeros behind. As an end, zeros stand for past the last partition.
type Bound [partitionSize]byte

func boundAt(p lattice.TopicPartition) Bound {
	var b Bound
	copy(b[:], p.Topic[:])
	binary.BigEndian.PutUint32(b[16:], uint32(p.Partition))
	return b
}

func (b Bound) isEnd() bool { return b == Bound{} }

func (b Bound) compare(o Bound) int { return bytes.Compare(b[:], o[:]) }

func (b Bound) appendTo(dst []byte) []byte {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return append(append(dst, byte(n)), b[:n]...)
}

// between returns the shortest bound above a and not above b.
func between(a, b Bound) Bound {
	var out Bound
	for i := range b {
		out[i] = b[i]
		if a[i] != b[i] {
			break
		}
	}
	return out
}

func comparePartitions(a, b lattice.TopicPartition) int {
	if c := bytes.Compare(a.Topic[:], b.Topic[:]); c != 0 {
		return c
	}
	return int(a.Partition) - int(b.Partition)
}

// index is where each partition is that has something, ascending.
type index struct {
	items []Item
	root  Root
	fresh bool // root is that of items
}

func (x *index) find(b Bound) (int, bool) {
	return slices.BinarySearchFunc(x.items, b, func(i Item, b Bound) int { return boundAt(i.Partition).compare(b) })
}

func (x *index) get(p lattice.TopicPartition) (Item, bool) {
	i, ok := x.find(boundAt(p))
	if !ok {
		return Item{}, false
	}
	return x.items[i], true
}

// set puts an item in, or takes it out when its size is 0, and reports a change.
func (x *index) set(item Item) bool {
	i, ok := x.find(boundAt(item.Partition))
	switch {
	case ok && item.Size == 0:
		x.items = slices.Delete(x.items, i, i+1)
	case ok && x.items[i] != item:
		x.items[i] = item
	case !ok && item.Size != 0:
		x.items = slices.Insert(x.items, i, item)
	default:
		return false
	}
	x.fresh = false
	return true
}

// between returns the items in [from, to).
func (x *index) between(from, to Bound) []Item {
	i, _ := x.find(from)
	j := len(x.items)
	if !to.isEnd() {
		j, _ = x.find(to)
	}
	return x.items[i:max(i, j)]
}

// Root returns all of it in 36 bytes.
func (x *index) Root() Root {
	if !x.fresh {
		x.root, x.fresh = Root{digest(x.items), uint32(len(x.items))}, true
	}
	return x.root
}

const rootDomain = "lattice/partitions/v1\x00"

func digest(items []Item) lattice.Hash {
	h := sha256.New()
	b := append(make([]byte, 0, 64), rootDomain...)
	h.Write(binary.BigEndian.AppendUint32(b, uint32(len(items))))
	for _, i := range items {
		h.Write(i.appendTo(b[:0]))
	}
	return lattice.Hash(h.Sum(nil))
}

const (
	fanout = 16 // ranges into which one that differs is split
	few    = 16 // items that are told rather than digested
)

// ask makes a question of what is here in [from, to): all of it if it is little,
// otherwise digests of parts.
func ask(items []Item, to Bound) []Range {
	if len(items) <= few {
		return []Range{{To: to, Mode: ModeItems, Items: slices.Clone(items)}}
	}
	out := make([]Range, 0, fanout)
	for i := range fanout {
		a, b := len(items)*i/fanout, len(items)*(i+1)/fanout
		end := to
		if i < fanout-1 {
			end = between(boundAt(items[b-1].Partition), boundAt(items[b].Partition))
		}
		sum := digest(items[a:b])
		out = append(out, Range{To: end, Mode: ModeDigest, Count: uint32(b - a), Digest: [16]byte(sum[:16])})
	}
	return out
}

// answer says what follows from a peer's range: what to offer it, and what to ask it.
func (x *index) answer(from Bound, r Range) (offer []Item, next []Range) {
	items := x.between(from, r.To)
	switch r.Mode {
	case ModeDigest:
		sum := digest(items)
		switch {
		case uint32(len(items)) == r.Count && [16]byte(sum[:16]) == r.Digest:
		case r.Count == 0:
			return items, []Range{{To: r.To, Mode: ModeEqual}}
		default:
			return nil, ask(items, r.To)
		}
	case ModeItems:
		for _, i := range items {
			n, ok := slices.BinarySearchFunc(r.Items, i.Partition, func(x Item, p lattice.TopicPartition) int { return comparePartitions(x.Partition, p) })
			// What the peer has more of it does not need to hear.
			if !ok || r.Items[n] != i && r.Items[n].Size <= i.Size {
				offer = append(offer, i)
			}
		}
	}
	return offer, []Range{{To: r.To, Mode: ModeEqual}}
}

// merged joins neighbours that are equal, and leaves out those at the end.
func merged(all []Range) []Range {
	var out []Range
	for _, x := range all {
		if n := len(out); n > 0 && x.Mode == ModeEqual && out[n-1].Mode == ModeEqual {
			out[n-1].To = x.To
			continue
		}
		out = append(out, x)
	}
	if n := len(out); n > 0 && out[n-1].Mode == ModeEqual {
		out = out[:n-1]
	}
	return out
}
