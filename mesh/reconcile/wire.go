package reconcile

import (
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

const (
	// HeaderSize is the length of what stands before a message's body.
	HeaderSize = 8
	// Version is the version of the messages.
	Version = 1

	maxControl = 1 << 20 // the body of a message without entries
	maxNote    = 32 << 10
	maxHashes  = 64
	maxItems   = 1024 // in one range, or one offer
	maxRanges  = 1024
	maxSpans   = 1024
	maxStates  = 1024
	writerSize = 32 + 8
	itemSize   = 41 + 8 + 32
)

// ErrMessage means bytes that are no message of a version known here. Kind Corrupt.
var ErrMessage = lattice.E(lattice.Corrupt, errors.New("not a message between replicas"))

// Kind is a message's kind.
type Kind uint8

// The kinds of messages.
const (
	KindHello Kind = iota + 1
	KindRanges
	KindOffer
	KindWant
	KindBlocks
	KindFork
	KindStatements
	KindPruned
	KindRefuse
	KindCredit
	KindFrontier
	KindBye
)

var kindNames = [...]string{"", "hello", "ranges", "offer", "want", "blocks", "fork", "statements", "pruned", "refuse", "credit", "frontier", "bye"}

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
	case k == KindBlocks:
		return sigchain.MaxSize + maxControl
	case k == KindFork:
		return 2*sigchain.MaxSize + 8
	}
	return maxControl
}

// Message is one of the types of this package whose names are those of the kinds.
type Message interface {
	Kind() Kind
	appendTo([]byte) []byte
}

// Root is a frontier in 36 bytes.
type Root struct {
	Hash  lattice.Hash
	Items uint32
}

// Hello begins a session.
type Hello struct {
	Min, Max uint16 // versions that are spoken
	Store    lattice.StoreID
	Node     lattice.NodeID
	Session  uint64 // random: another start of the node, another number
	Root     Root
	Window   uint32 // bytes of blocks that the other side may send before it needs credit
}

// Mode says what a range carries.
type Mode uint8

// The modes of ranges.
const (
	ModeEqual Mode = iota
	ModeDigest
	ModeItems
	ModeAnswer
)

// Range is a part of a frontier: from the one before it up to To.
type Range struct {
	To     Bound
	Mode   Mode
	Count  uint32
	Digest [16]byte
	Items  []Item
}

// Ranges compares parts of a frontier.
type Ranges struct {
	Last   bool // of the answers to one message
	From   Bound
	Ranges []Range
}

// Offer says what is newly here.
type Offer struct{ Items []Item }

// Span is a part of a log: behind After, up to Upto. Zero: and all that follows;
// at most After: nothing any more.
type Span struct {
	Log         state.Writer
	After, Upto uint64
	Ask         uint32 // stands in the blocks that answer it
}

// Want asks for entries, proofs of forks, and what is known of partitions.
type Want struct {
	Spans      []Span
	Forks      []lattice.AuthorID
	Partitions []lattice.TopicPartition
}

// Blocks are entries of a log, in order, behind After. With a checkpoint of the
// author, Left is the compact range of the tree before them, and Proof says that
// the tree that they make of it is a prefix of the checkpoint's.
type Blocks struct {
	Log     state.Writer
	Ask     uint32
	After   uint64
	Entries [][]byte
	Note    []byte
	Left    []lattice.Hash
	Proof   []lattice.Hash
}

// Fork is the proof that an author signed two entries for one place.
type Fork struct{ A, B []byte }

// Statement is something signed or proven about a partition.
type Statement struct {
	Kind  StatementKind
	Bytes []byte
}

// Statements are what is known of a partition's heads.
type Statements struct {
	Partition lattice.TopicPartition
	All       []Statement
}

// Snapshot names a file that holds a state; zero: none.
type Snapshot struct {
	Root, Sum lattice.Hash
	Bytes     uint64
}

// Pruned answers a want for what is not here any more.
type Pruned struct {
	Log      state.Writer
	First    uint64
	Snapshot Snapshot
}

// Refuse says why entries of a log, behind After, were not taken.
type Refuse struct {
	Log    state.Writer
	After  uint64
	Reason Reason
}

// Credit lets the other side send more blocks.
type Credit struct{ Bytes uint32 }

// Frontier ends catching up, and is repeated now and then.
type Frontier struct{ Root Root }

// Bye ends a session.
type Bye struct{ Reason Reason }

func (Hello) Kind() Kind      { return KindHello }
func (Ranges) Kind() Kind     { return KindRanges }
func (Offer) Kind() Kind      { return KindOffer }
func (Want) Kind() Kind       { return KindWant }
func (Blocks) Kind() Kind     { return KindBlocks }
func (Fork) Kind() Kind       { return KindFork }
func (Statements) Kind() Kind { return KindStatements }
func (Pruned) Kind() Kind     { return KindPruned }
func (Refuse) Kind() Kind     { return KindRefuse }
func (Credit) Kind() Kind     { return KindCredit }
func (Frontier) Kind() Kind   { return KindFrontier }
func (Bye) Kind() Kind        { return KindBye }

// Encode returns a message's bytes.
func Encode(m Message) []byte { return Append(make([]byte, 0, HeaderSize+256), m) }

// Append appends a message's bytes to b.
func Append(b []byte, m Message) []byte {
	at := len(b)
	b = append(b, 'L', 'M', Version, byte(m.Kind()), 0, 0, 0, 0)
	b = m.appendTo(b)
	binary.BigEndian.PutUint32(b[at+4:], uint32(len(b)-at-HeaderSize))
	return b
}

// BodySize reads a header: how many bytes follow it. Wraps ErrMessage.
func BodySize(header []byte) (int, error) {
	if len(header) < HeaderSize || header[0] != 'L' || header[1] != 'M' || header[2] != Version {
		return 0, fmt.Errorf("%w: it does not begin with LM and version %d", ErrMessage, Version)
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

func (m Ranges) appendTo(b []byte) []byte {
	b = append(b, bit(m.Last))
	b = m.From.appendTo(b)
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Ranges)))
	for _, r := range m.Ranges {
		b = append(r.To.appendTo(b), byte(r.Mode))
		switch r.Mode {
		case ModeDigest:
			b = append(binary.BigEndian.AppendUint32(b, r.Count), r.Digest[:]...)
		case ModeItems, ModeAnswer:
			b = appendItems(b, r.Items)
		}
	}
	return b
}

func bit(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func appendItems(b []byte, items []Item) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(items)))
	for _, i := range items {
		b = i.appendTo(b)
	}
	return b
}

func (m Offer) appendTo(b []byte) []byte { return appendItems(b, m.Items) }

func appendWriter(b []byte, w state.Writer) []byte {
	return binary.BigEndian.AppendUint64(append(b, w.Author[:]...), w.Incarnation)
}

func appendPartition(b []byte, p lattice.TopicPartition) []byte {
	return binary.BigEndian.AppendUint32(append(b, p.Topic[:]...), uint32(p.Partition))
}

func (m Want) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Spans)))
	for _, s := range m.Spans {
		b = binary.BigEndian.AppendUint64(appendWriter(b, s.Log), s.After)
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, s.Upto), s.Ask)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Forks)))
	for _, a := range m.Forks {
		b = append(b, a[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(m.Partitions)))
	for _, p := range m.Partitions {
		b = appendPartition(b, p)
	}
	return b
}

func appendBytes(b, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(data))), data...)
}

func appendHashes(b []byte, all []lattice.Hash) []byte {
	b = append(b, byte(len(all)))
	for _, h := range all {
		b = append(b, h[:]...)
	}
	return b
}

func (m Blocks) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(appendWriter(b, m.Log), m.Ask)
	b = binary.BigEndian.AppendUint64(b, m.After)
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Entries)))
	for _, e := range m.Entries {
		b = appendBytes(b, e)
	}
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(m.Note))), m.Note...)
	return appendHashes(appendHashes(b, m.Left), m.Proof)
}

func (m Fork) appendTo(b []byte) []byte { return appendBytes(appendBytes(b, m.A), m.B) }

func (m Statements) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(appendPartition(b, m.Partition), uint16(len(m.All)))
	for _, s := range m.All {
		b = appendBytes(append(b, byte(s.Kind)), s.Bytes)
	}
	return b
}

func (m Pruned) appendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(appendWriter(b, m.Log), m.First)
	b = append(append(b, m.Snapshot.Root[:]...), m.Snapshot.Sum[:]...)
	return binary.BigEndian.AppendUint64(b, m.Snapshot.Bytes)
}

func (m Refuse) appendTo(b []byte) []byte {
	return append(binary.BigEndian.AppendUint64(appendWriter(b, m.Log), m.After), byte(m.Reason))
}

func (m Credit) appendTo(b []byte) []byte   { return binary.BigEndian.AppendUint32(b, m.Bytes) }
func (m Frontier) appendTo(b []byte) []byte { return m.Root.appendTo(b) }
func (m Bye) appendTo(b []byte) []byte      { return append(b, byte(m.Reason)) }
