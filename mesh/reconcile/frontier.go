package reconcile

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// Key names something whose state replicas compare. See the package comment.
type Key [41]byte

// The first byte of a key. Forks come first, so that a peer knows of them before it
// wants what lies beyond.
const (
	keyFork byte = iota + 1
	keyLog
	keyPartition
)

func (k Key) compare(o Key) int { return bytes.Compare(k[:], o[:]) }

// LogKey returns the key of a writer's log.
func LogKey(w state.Writer) Key {
	var k Key
	k[0] = keyLog
	copy(k[1:], w.Author[:])
	binary.BigEndian.PutUint64(k[33:], w.Incarnation)
	return k
}

// ForkKey returns the key of an author's first fork.
func ForkKey(a lattice.AuthorID) Key {
	var k Key
	k[0] = keyFork
	copy(k[1:], a[:])
	return k
}

// PartitionKey returns the key of what is known of a partition's heads.
func PartitionKey(p lattice.TopicPartition) Key {
	var k Key
	k[0] = keyPartition
	copy(k[1:], p.Topic[:])
	binary.BigEndian.PutUint32(k[17:], uint32(p.Partition))
	return k
}

func (k Key) author() lattice.AuthorID { return lattice.AuthorID(k[1:33]) }

func (k Key) writer() state.Writer {
	return state.Writer{Author: k.author(), Incarnation: binary.BigEndian.Uint64(k[33:])}
}

func (k Key) partition() lattice.TopicPartition {
	return lattice.TopicPartition{Topic: lattice.TopicID(k[1:17]), Partition: int32(binary.BigEndian.Uint32(k[17:]))}
}

// valid reports whether a key is one that the functions above return.
func (k Key) valid() bool {
	switch k[0] {
	case keyFork:
		return k == ForkKey(k.author())
	case keyLog:
		return true
	case keyPartition:
		return k == PartitionKey(k.partition())
	}
	return false
}

// Bound is where a range ends or begins: a key, or a part of one with zeros behind.
// As an end, zeros stand for past the last key.
type Bound Key

func (b Bound) isEnd() bool { return b == Bound{} }

func (b Bound) appendTo(dst []byte) []byte {
	n := len(b)
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return append(append(dst, byte(n)), b[:n]...)
}

// between returns the shortest bound above a and not above b.
func between(a, b Key) Bound {
	var out Bound
	for i := range b {
		out[i] = b[i]
		if a[i] != b[i] {
			break
		}
	}
	return out
}

// Item is the state of one thing. See the package comment for what N and ID are.
type Item struct {
	Key Key
	N   uint64
	ID  lattice.Hash
}

func (i Item) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(append(b, i.Key[:]...), i.N)
	return append(b, i.ID[:]...)
}

func (i Item) valid() bool {
	switch {
	case !i.Key.valid():
		return false
	case i.Key[0] == keyFork:
		return i.place().Seq != 0 && i == forkItem(i.place())
	}
	return i.N != 0
}

func forkItem(at sigchain.Place) Item {
	i := Item{Key: ForkKey(at.Author), N: at.Incarnation}
	binary.BigEndian.PutUint64(i.ID[:], at.Seq)
	return i
}

// place returns the place of a fork's item.
func (i Item) place() sigchain.Place {
	return sigchain.Place{Author: i.Key.author(), Incarnation: i.N, Seq: binary.BigEndian.Uint64(i.ID[:])}
}

// frontier is what is here, ascending by key.
type frontier struct {
	items []Item
	root  Root
	fresh bool // root is that of items
}

func (f *frontier) find(k Key) (int, bool) {
	return slices.BinarySearchFunc(f.items, k, func(i Item, k Key) int { return i.Key.compare(k) })
}

func (f *frontier) get(k Key) (Item, bool) {
	i, ok := f.find(k)
	if !ok {
		return Item{}, false
	}
	return f.items[i], true
}

// set puts an item in, or takes it out when its N is 0, and reports a change.
func (f *frontier) set(item Item) bool {
	i, ok := f.find(item.Key)
	gone := item.N == 0 && item.Key[0] != keyFork
	switch {
	case ok && gone:
		f.items = slices.Delete(f.items, i, i+1)
	case ok && f.items[i] != item:
		f.items[i] = item
	case !ok && !gone:
		f.items = slices.Insert(f.items, i, item)
	default:
		return false
	}
	f.fresh = false
	return true
}

// between returns the items in [from, to).
func (f *frontier) between(from, to Bound) []Item {
	i, _ := f.find(Key(from))
	j := len(f.items)
	if !to.isEnd() {
		j, _ = f.find(Key(to))
	}
	return f.items[i:max(i, j)]
}

// Root returns the frontier in 36 bytes.
func (f *frontier) Root() Root {
	if !f.fresh {
		f.root, f.fresh = Root{digest(f.items), uint32(len(f.items))}, true
	}
	return f.root
}

const rootDomain = "lattice/frontier/v1\x00"

func digest(items []Item) lattice.Hash {
	h := sha256.New()
	b := append(make([]byte, 0, 128), rootDomain...)
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
		return []Range{{To: to, Mode: ModeItems, Items: items}}
	}
	var out []Range
	for i := range fanout {
		a, b := len(items)*i/fanout, len(items)*(i+1)/fanout
		part, end := items[a:b], to
		if i < fanout-1 {
			end = between(items[b-1].Key, items[b].Key)
		}
		sum := digest(part)
		out = append(out, Range{To: end, Mode: ModeDigest, Count: uint32(len(part)), Digest: [16]byte(sum[:16])})
	}
	return out
}

// tell makes an answer of items, which may be many.
func tell(items []Item, to Bound) []Range {
	var out []Range
	for len(items) > maxItems {
		end := between(items[maxItems-1].Key, items[maxItems].Key)
		out = append(out, Range{To: end, Mode: ModeAnswer, Items: items[:maxItems]})
		items = items[maxItems:]
	}
	return append(out, Range{To: to, Mode: ModeAnswer, Items: items})
}

// answer says what follows from a peer's range of a frontier.
func (f *frontier) answer(from Bound, r Range) []Range {
	items := f.between(from, r.To)
	switch r.Mode {
	case ModeDigest:
		sum := digest(items)
		switch {
		case uint32(len(items)) == r.Count && [16]byte(sum[:16]) == r.Digest:
			return []Range{{To: r.To, Mode: ModeEqual}}
		case r.Count == 0:
			return tell(items, r.To)
		}
		return ask(items, r.To)
	case ModeItems:
		differ := slices.DeleteFunc(slices.Clone(items), func(i Item) bool {
			n, ok := slices.BinarySearchFunc(r.Items, i.Key, func(x Item, k Key) int { return x.Key.compare(k) })
			return ok && r.Items[n] == i
		})
		return tell(differ, r.To)
	}
	return []Range{{To: r.To, Mode: ModeEqual}}
}
