// Package state is what a store's keys hold and how writes to them merge: one
// lattice for registers, counters, hashes, sets, sorted sets, lists and expiry.
//
// # The lattice
//
// State maps an Address (map, key, kind, sub) to a Row: the set of its live
// heads. A Head is one write: its Dot (author, incarnation, sequence number,
// index of the operation in its entry), its entry's hybrid time, and a Payload. There are two operations on
// it, and a third that is the first with more to say:
//
//	put     makes one head and ends the heads that it names
//	end     ends every head in a scope (key, kind or row) that is covered by
//	        cites: for each writer, the last dot of it that was seen there
//	expire  puts the head of an expiry, with its cover
//
// A head that was not named or covered stays, whatever the clocks say: nothing
// that an operation had not seen is ever lost to it. So the merge of two
// histories is the union of their heads without those that either of them ended.
// Clocks only choose what a plain read returns: the head with the greatest Order.
//
// # Why nothing is remembered of what ended
//
// An operation reaches the fold after everything that its author had seen. So
// the head that an operation ends was there before it, and a head that ended
// cannot come again: entries are folded once, and when states are joined (Join),
// each brings its frontier, which says what it has seen: what it has seen and
// does not hold was ended.
//
// # What an operation may name
//
// Only what its author had seen: dots before it in its own chain and in those
// that this follows, and dots of other writers at or below an entry that one of
// those names as a parent. An operation that names anything else would have
// another effect here than where that thing arrives later, so the fold makes its
// whole entry void (core/fold). An author therefore names as parents the
// folded tips of all other writers that have moved since its entry before.
//
// # Kinds
//
//	register  sub empty                 payload: the value, or a Subtotal
//	field     sub is the field          payload: the value, or a Subtotal
//	member    sub is the member         payload empty
//	scored    sub is the member         payload: Score, 8 bytes
//	element   sub is a position         payload: the value
//	expiry    sub empty                 payload: when, and what it covers
//
// # Counters
//
// An increment is a head whose payload is a Subtotal: all that one incarnation
// has added to one base, which is a value that was set, or nothing. It ends its
// writer's Subtotal before, so each increment counts once, and a base has one
// Subtotal a writer. What ends a Subtotal ends all that it had seen of that
// writer; a writer that increments without having seen that keeps its whole Subtotal.
package state

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
)

// ErrMalformed means bytes that are no operation, row or payload. Kind Corrupt.
var ErrMalformed = lattice.E(lattice.Corrupt, errors.New("malformed state"))

// Kind says what a row of a key is. The numbers are in formats.
type Kind uint8

const (
	Register Kind = 1 // one value; a string, a counter
	Field    Kind = 2 // of a hash
	Member   Kind = 3 // of a set
	Scored   Kind = 4 // member of a sorted set
	Element  Kind = 5 // of a list
	Expiry   Kind = 6 // when the key's heads are gone

	// Kinds is the length of an array that a Kind indexes.
	Kinds = 7
)

var kindNames = [Kinds]string{Register: "register", Field: "field", Member: "member", Scored: "scored", Element: "element", Expiry: "expiry"}

// String returns the name used in the package comment.
func (k Kind) String() string {
	if k.valid() {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

func (k Kind) valid() bool { return k >= Register && k < Kinds }

// plain reports whether rows of this kind have an empty sub.
func (k Kind) plain() bool { return k == Register || k == Expiry }

// MaxMap bounds the name of a map, in bytes. It is fixed by the format.
const MaxMap = 255

// Address names a row. Map is at most MaxMap bytes; Sub is empty for registers
// and expiry.
type Address struct {
	Map  string
	Key  []byte
	Kind Kind
	Sub  []byte
}

// Check reports what breaks the rules of an address. Kind Invalid.
func (a Address) Check() error {
	switch {
	case len(a.Map) > MaxMap:
		return lattice.E(lattice.Invalid, fmt.Errorf("a map's name of %d bytes: at most %d", len(a.Map), MaxMap))
	case !a.Kind.valid():
		return lattice.E(lattice.Invalid, fmt.Errorf("a row of %s", a.Kind))
	case a.Kind.plain() && len(a.Sub) != 0:
		return lattice.E(lattice.Invalid, fmt.Errorf("a %s with a sub", a.Kind))
	}
	return nil
}

// Writer is one incarnation of an author. Its entries are one chain.
type Writer struct {
	Author      lattice.AuthorID
	Incarnation uint64
}

// Compare orders writers by author and incarnation.
func (w Writer) Compare(o Writer) int {
	return cmp.Or(bytes.Compare(w.Author[:], o.Author[:]), cmp.Compare(w.Incarnation, o.Incarnation))
}

// Dot names one operation: the one with Index in entry Seq of Writer. The zero
// Dot names nothing.
type Dot struct {
	Writer Writer
	Seq    uint64 // from 1
	Index  uint32 // from 0
}

// IsZero reports whether d names nothing.
func (d Dot) IsZero() bool { return d == Dot{} }

// Compare orders dots by writer, sequence number and index.
func (d Dot) Compare(o Dot) int {
	return cmp.Or(d.Writer.Compare(o.Writer), cmp.Compare(d.Seq, o.Seq), cmp.Compare(d.Index, o.Index))
}

// String is for people: a short author, incarnation, sequence number and index.
func (d Dot) String() string {
	return fmt.Sprintf("%s/%d/%d.%d", d.Writer.Author.Short(), d.Writer.Incarnation, d.Seq, d.Index)
}

// Order is where a head stands in the total order of all operations: by hybrid
// time, then by dot.
type Order struct {
	Time uint64 // hybrid timestamp (core/clock)
	Dot  Dot
}

// Compare returns which of two operations is the later one.
func (o Order) Compare(p Order) int { return cmp.Or(cmp.Compare(o.Time, p.Time), o.Dot.Compare(p.Dot)) }

// Subtotal is what one writer has added to one base. See the package comment.
type Subtotal struct {
	Base  Dot   // the head it adds to; zero for none
	From  int64 // the integer in that head; 0 for none
	Count int64 // what the writer has added to it in all
}

// Payload is what a head holds: bytes, or a Subtotal.
type Payload struct {
	Bytes []byte
	Sum   *Subtotal
}

// Equal reports whether two payloads have one encoding.
func (p Payload) Equal(o Payload) bool {
	if p.Sum == nil || o.Sum == nil {
		return p.Sum == o.Sum && bytes.Equal(p.Bytes, o.Bytes)
	}
	return *p.Sum == *o.Sum
}

// Head is one live write.
type Head struct {
	Dot     Dot
	Time    uint64 // hybrid timestamp of its entry
	Payload Payload
}

// Order returns where h stands among all operations.
func (h Head) Order() Order { return Order{h.Time, h.Dot} }
