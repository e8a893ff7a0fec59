package batches

import (
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/span"
	"github.com/lattice-log/lattice/mesh/reconcile"
)

// Version is the lowest version of the messages that this package speaks; the highest is
// VersionAcks.
const Version = 1

// versionOf is the version that a kind of message came with, which its header says.
func versionOf(k Kind) byte {
	if k >= KindAcks {
		return VersionAcks
	}
	return Version
}

// HeaderSize is the length of a message's header.
const HeaderSize = 8

// MaxBatch is the length of the largest record batch that is carried.
const MaxBatch = 32 << 20

// Bounds of what is in a message.
const (
	maxControl = 1 << 20 // bytes of a body, beside batches
	maxItems   = 4096
	maxRanges  = 1024
	maxFollows = 4096
	maxHashes  = 128
	maxNote    = 16 << 10
	maxGrants  = 1 << 14
	maxBatches = 1 << 16
	maxGrant   = 64 << 10

	partitionSize = 16 + 4
	itemSize      = partitionSize + 8 + 32
)

// ErrMessage is wrapped by what is wrong with bytes that are no message. Kind Invalid.
var ErrMessage = lattice.E(lattice.Invalid, errors.New("it is no message between replicas about batches"))

// Reason says why something was refused.
type Reason = reconcile.Reason

// Kind is the kind of a message.
type Kind uint8

// The kinds of messages.
const (
	KindHello Kind = iota + 1
	KindRanges
	KindOffer
	KindFollow
	KindSpan
	KindEnded
	KindRefuse
	KindCredit
	KindFrontier
	KindBye
)

var kindNames = [...]string{"", "hello", "ranges", "offer", "follow", "span", "ended", "refuse", "credit", "frontier", "bye", "acks"}

// String returns the kind's name.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// MaxBody returns the longest body of a kind of message; 0: there is no such kind.
func MaxBody(k Kind) int {
	switch {
	case k == 0 || int(k) >= len(kindNames):
		return 0
	case k == KindSpan:
		return MaxBatch + maxControl
	}
	return maxControl
}

// Message is one of the types of this package whose names are those of the kinds.
type Message interface {
	Kind() Kind
	appendTo([]byte) []byte
}

// Root is where all partitions are, in 36 bytes.
type Root struct {
	Hash  lattice.Hash
	Items uint32
}

// Item is where one partition is: how many batches can be had, and the root of the
// tree over them.
type Item struct {
	Partition lattice.TopicPartition
	Size      uint64
	Root      lattice.Hash
}

// Hello begins a session.
type Hello struct {
	Min, Max uint16 // versions that are spoken
	Store    lattice.StoreID
	Node     lattice.NodeID
	Session  uint64 // random: another start of the node, another number
	Root     Root
	Window   uint32 // bytes of spans that the other side may send before it needs credit
}

// Mode says what a range carries.
type Mode uint8

// The modes of ranges.
const (
	ModeEqual Mode = iota
	ModeDigest
	ModeItems
)

// Range is a part of all partitions: from the one before it up to To.
type Range struct {
	To     Bound
	Mode   Mode
	Count  uint32
	Digest [16]byte
	Items  []Item
}

// Ranges compares parts of what is here.
type Ranges struct {
	From   Bound
	Ranges []Range
}

// Offer says what is here.
type Offer struct{ Items []Item }

// Follow asks for a partition from a leaf on. Ask stands in the spans that answer it;
// 0: nothing any more.
type Follow struct {
	Partition lattice.TopicPartition
	Ask       uint32
	From      uint64
}

// Follows are several of them.
type Follows struct{ All []Follow }

// Spans carries a span. Size is that of the sender's tree.
type Spans struct {
	Ask  uint32
	Size uint64
	Span span.Span
}

// Ended says that no more comes on a follow, and why, or at which leaf the log begins.
type Ended struct {
	Partition lattice.TopicPartition
	Ask       uint32
	First     uint64
	Reason    Reason
}

// Refuse says that spans were not taken, and why.
type Refuse struct {
	Partition lattice.TopicPartition
	Ask       uint32
	Reason    Reason
}

// Credit lets the other side send more spans.
type Credit struct{ Bytes uint32 }

// Frontier says where all partitions are now.
type Frontier struct{ Root Root }

// Bye ends a session.
type Bye struct{ Reason Reason }

func (Hello) Kind() Kind    { return KindHello }
func (Ranges) Kind() Kind   { return KindRanges }
func (Offer) Kind() Kind    { return KindOffer }
func (Follows) Kind() Kind  { return KindFollow }
func (Spans) Kind() Kind    { return KindSpan }
func (Ended) Kind() Kind    { return KindEnded }
func (Refuse) Kind() Kind   { return KindRefuse }
func (Credit) Kind() Kind   { return KindCredit }
func (Frontier) Kind() Kind { return KindFrontier }
func (Bye) Kind() Kind      { return KindBye }

// Encode returns a message's bytes.
func Encode(m Message) []byte { return Append(make([]byte, 0, HeaderSize+128), m) }

// Append appends a message's bytes to b.
func Append(b []byte, m Message) []byte {
	at := len(b)
	b = append(b, 'L', 'R', versionOf(m.Kind()), byte(m.Kind()), 0, 0, 0, 0)
	b = m.appendTo(b)
	binary.BigEndian.PutUint32(b[at+4:], uint32(len(b)-at-HeaderSize))
	return b
}

// Size returns the length of a message that carries a span, with its header.
func Size(m Spans) int {
	s := &m.Span
	n := HeaderSize + partitionSize + 4 + 8 + 8 + 4 + 2 + 2 + len(s.Note) + 2 + 32*(len(s.Left)+len(s.Proof))
	for _, b := range s.Batches {
		n += 4 + len(b)
	}
	for _, g := range s.Grants {
		n += 4 + len(g)
	}
	return n
}

// fits reports whether a span can be in a message.
func fits(m Spans) bool {
	s := &m.Span
	return Size(m)-HeaderSize <= MaxBody(KindSpan) && len(s.Grants) <= maxGrants && len(s.Note) <= maxNote &&
		len(s.Left) <= maxHashes && len(s.Proof) <= maxHashes
}

// BodySize reads a header: how many bytes follow it. Wraps ErrMessage.
func BodySize(header []byte) (int, error) {
	if len(header) < HeaderSize || header[0] != 'L' || header[1] != 'R' || header[2] != versionOf(Kind(header[3])) {
		return 0, fmt.Errorf("%w: it does not begin with LR and its kind's version", ErrMessage)
	}
	k, n := Kind(header[3]), binary.BigEndian.Uint32(header[4:])
	if uint64(n) > uint64(MaxBody(k)) {
		return 0, fmt.Errorf("%w: %s of %d bytes, at most %d", ErrMessage, k, n, MaxBody(k))
	}
	return int(n), nil
}

func (m Hello) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, m.Min)
	b = binary.BigEndian.AppendUint16(b, m.Max)
	b = append(append(b, m.Store[:]...), m.Node[:]...)
	b = binary.BigEndian.AppendUint64(b, m.Session)
	return binary.BigEndian.AppendUint32(m.Root.appendTo(b), m.Window)
}

func (r Root) appendTo(b []byte) []byte {
	return binary.BigEndian.AppendUint32(append(b, r.Hash[:]...), r.Items)
}

func appendPartition(b []byte, p lattice.TopicPartition) []byte {
	return binary.BigEndian.AppendUint32(append(b, p.Topic[:]...), uint32(p.Partition))
}

func (i Item) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(appendPartition(b, i.Partition), i.Size)
	return append(b, i.Root[:]...)
}

func appendItems(b []byte, items []Item) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(items)))
	for _, i := range items {
		b = i.appendTo(b)
	}
	return b
}

func (m Ranges) appendTo(b []byte) []byte {
	b = m.From.appendTo(b)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Ranges)))
	for _, r := range m.Ranges {
		b = append(r.To.appendTo(b), byte(r.Mode))
		switch r.Mode {
		case ModeDigest:
			b = append(binary.BigEndian.AppendUint32(b, r.Count), r.Digest[:]...)
		case ModeItems:
			b = appendItems(b, r.Items)
		}
	}
	return b
}

func (m Offer) appendTo(b []byte) []byte { return appendItems(b, m.Items) }

func (m Follows) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.All)))
	for _, f := range m.All {
		b = binary.BigEndian.AppendUint32(appendPartition(b, f.Partition), f.Ask)
		b = binary.BigEndian.AppendUint64(b, f.From)
	}
	return b
}

func appendHashes(b []byte, all []lattice.Hash) []byte {
	b = append(b, byte(len(all)))
	for _, h := range all {
		b = append(b, h[:]...)
	}
	return b
}

func appendPieces(b []byte, all [][]byte) []byte {
	for _, x := range all {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(x))), x...)
	}
	return b
}

func (m Spans) appendTo(b []byte) []byte {
	s := &m.Span
	b = binary.BigEndian.AppendUint32(appendPartition(b, s.Partition), m.Ask)
	b = binary.BigEndian.AppendUint64(b, m.Size)
	b = binary.BigEndian.AppendUint64(b, s.From)
	b = appendPieces(binary.BigEndian.AppendUint32(b, uint32(len(s.Batches))), s.Batches)
	b = appendPieces(binary.BigEndian.AppendUint16(b, uint16(len(s.Grants))), s.Grants)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(s.Note))), s.Note...)
	return appendHashes(appendHashes(b, s.Left), s.Proof)
}

func (m Ended) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(appendPartition(b, m.Partition), m.Ask)
	return append(binary.BigEndian.AppendUint64(b, m.First), byte(m.Reason))
}

func (m Refuse) appendTo(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(appendPartition(b, m.Partition), m.Ask), byte(m.Reason))
}

func (m Credit) appendTo(b []byte) []byte   { return binary.BigEndian.AppendUint32(b, m.Bytes) }
func (m Frontier) appendTo(b []byte) []byte { return m.Root.appendTo(b) }
func (m Bye) appendTo(b []byte) []byte      { return append(b, byte(m.Reason)) }
