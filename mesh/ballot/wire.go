// Package ballot is what members of a partition's set say to each other when its leader is
// out of reach: a candidate's questions, the answers, and how a candidate counts them. It
// is pure. What a promise is, and what it binds to, says core/promise.
//
// # Messages, version 1
//
// One question and one answer on a stream of its own (Protocol), each behind its length,
// u32. Numbers are big-endian. There is exactly one encoding.
//
//	question
//	  0  "LZ" | version u8 = 1 | what u8: 1 where, 2 promise
//	  4  store 32 | topic 16 | partition u32, at most 2^31-1
//	 56  previous 32 | term u32, at most 2^31-1 | candidate 32 | incarnation u64    as in a
//	     promise (core/promise); of "where" all 0
//	132  grants
//
//	answer
//	  0  "LZ" | version u8 = 1 | what u8: 1 where, 2 promise, 0 refused
//	  4  where    size u64, batches that the member has | end u64, the offset behind them
//	     promise  280
//	     refused  kind u8, of the error (lattice.Kind) | bound u32, the latest term that the
//	              member has promised | why: u16, at most 1 KiB of UTF-8 | grants
//
//	grants    u16 n, at most 256, n x (length u32, a grant with its evidence)
//
// The grants are the newest that the sender knows of the partition, oldest first: so a
// candidate that has not heard of a term is told, and so is a member. They prove
// themselves. A message has at most 256 KiB.
//
// # Rules for changing it
//
//   - A message of version 1 keeps its bytes. If TestGolden changes, the design is wrong,
//     not the test.
//   - A change is another protocol id: who does not speak it says so before any message.
package ballot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/promise"
	"github.com/lattice-log/lattice/mesh/wire"
)

// Protocol is the id of the stream protocol.
const Protocol = "/lattice/ballot/1"

const (
	version = 1
	// LengthSize is the length of what comes before each message: its length.
	LengthSize = 4
	// MaxMessage bounds a message in bytes.
	MaxMessage = 256 << 10
	maxGrants  = 256
	maxText    = 1 << 10
	// The lengths of a message's other parts, at most.
	maxOther = 2 << 10
)

// ErrMessage means bytes that are no message of this protocol. Kind Corrupt.
var ErrMessage = lattice.E(lattice.Corrupt, errors.New("not a message of "+Protocol))

// What is asked.
type What uint8

// The questions.
const (
	Where   What = 1 // how far is the partition at the member
	Promise What = 2 // follow the candidate in the term
)

// Question is what a member is asked.
type Question struct {
	What   What
	Ask    promise.Promise // as the candidate asks for it; of Where: Store and Partition alone
	Grants [][]byte
}

// Answer is what it answers. If Err is not nil it is refused, and What is 0.
type Answer struct {
	What    What
	Promise []byte
	Size    uint64
	End     int64
	Err     error // of a kind, in words
	Bound   int32
	Grants  [][]byte
}

// newest returns as many of the newest grants as there is room for.
func newest(grants [][]byte) [][]byte {
	room, n := MaxMessage-maxOther, len(grants)
	for n > 0 && len(grants)-n < maxGrants && room >= 4+len(grants[n-1]) {
		room -= 4 + len(grants[n-1])
		n--
	}
	return grants[n:]
}

func appendGrants(b []byte, grants [][]byte) []byte {
	grants = newest(grants)
	b = binary.BigEndian.AppendUint16(b, uint16(len(grants)))
	for _, g := range grants {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(g))), g...)
	}
	return b
}

// AppendTo appends the encoded question, and its length before it.
func (q *Question) AppendTo(b []byte) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0, 'L', 'Z', version, byte(q.What))
	a := &q.Ask
	b = append(append(b, a.Store[:]...), a.Partition.Topic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(a.Partition.Partition))
	b = binary.BigEndian.AppendUint32(append(b, a.Previous[:]...), uint32(a.Term))
	b = binary.BigEndian.AppendUint64(append(b, a.Candidate[:]...), a.Incarnation)
	b = appendGrants(b, q.Grants)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-LengthSize))
	return b
}

// AppendTo appends the encoded answer, and its length before it. What is said of an error
// is cut to what an answer can hold.
func (a *Answer) AppendTo(b []byte) []byte {
	at := len(b)
	what := a.What
	if a.Err != nil {
		what = 0
	}
	b = append(b, 0, 0, 0, 0, 'L', 'Z', version, byte(what))
	switch what {
	case Where:
		b = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, a.Size), uint64(a.End))
	case Promise:
		b = append(b, a.Promise...)
	default:
		text := strings.ToValidUTF8(a.Err.Error(), "?")
		for len(text) > maxText {
			_, n := utf8.DecodeLastRuneInString(text[:maxText+1])
			text = text[:maxText+1-n]
		}
		b = binary.BigEndian.AppendUint32(append(b, byte(lattice.KindOf(a.Err))), uint32(a.Bound))
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(text))), text...)
		b = appendGrants(b, a.Grants)
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-LengthSize))
	return b
}

// Length reads the length that comes before a message. Wraps ErrMessage.
func Length(b [LengthSize]byte) (int, error) {
	n := binary.BigEndian.Uint32(b[:])
	if n < 4 || n > MaxMessage {
		return 0, fmt.Errorf("a message of %d bytes: %w", n, ErrMessage)
	}
	return int(n), nil
}

type reader struct{ wire.Reader }

func (r *reader) header() What {
	if len(r.Rest) > MaxMessage {
		r.Fail("it is too long")
	}
	if r.U8() != 'L' || r.U8() != 'Z' || r.U8() != version {
		r.Fail("it does not begin with LZ and the version")
	}
	return What(r.U8())
}

func (r *reader) grants() [][]byte {
	n := r.Count(uint32(r.U16()), maxGrants, 4+1)
	if n == 0 {
		return nil
	}
	all := make([][]byte, n)
	for i := range all {
		if all[i] = r.Take(r.Count(r.U32(), MaxMessage, 1)); len(all[i]) == 0 {
			r.Fail("an empty grant")
		}
	}
	if r.Why == "" && len(newest(all)) != n {
		r.Fail("more grants than there is room for")
	}
	return all
}

func (r *reader) number31() int32 {
	n := r.U32()
	if n > math.MaxInt32 {
		r.Fail("a number above 2^31-1")
	}
	return int32(n)
}

func (r *reader) end() error {
	if r.Why == "" && len(r.Rest) != 0 {
		r.Fail("bytes behind its end")
	}
	if r.Why != "" {
		return fmt.Errorf("%w: %s", ErrMessage, r.Why)
	}
	return nil
}

// ParseQuestion reads a question, without its length, whose memory the result goes on
// using. Wraps ErrMessage.
func ParseQuestion(b []byte) (Question, error) {
	r := reader{wire.Reader{Rest: b}}
	q := Question{What: r.header()}
	q.Ask.Store = lattice.StoreID(r.Hash())
	q.Ask.Partition.Topic = lattice.TopicID(r.Take(16))
	q.Ask.Partition.Partition = r.number31()
	q.Ask.Previous, q.Ask.Term, q.Ask.Candidate, q.Ask.Incarnation = r.Hash(), r.number31(), lattice.AuthorID(r.Hash()), r.U64()
	q.Grants = r.grants()
	switch {
	case q.What != Where && q.What != Promise:
		r.Fail("no such question")
	case q.What == Where && q.Ask != (promise.Promise{Store: q.Ask.Store, Partition: q.Ask.Partition}):
		r.Fail("a question where it is that speaks of a term")
	}
	if err := r.end(); err != nil {
		return Question{}, err
	}
	return q, nil
}

// ParseAnswer reads an answer, without its length, whose memory the result goes on using.
// Wraps ErrMessage.
func ParseAnswer(b []byte) (Answer, error) {
	r := reader{wire.Reader{Rest: b}}
	a := Answer{What: r.header()}
	switch a.What {
	case Where:
		a.Size, a.End = r.U64(), int64(r.U64())
		if a.End < 0 || a.Size > uint64(a.End) {
			r.Fail("more batches than offsets")
		}
	case Promise:
		a.Promise = r.Take(promise.Size)
	case 0:
		kind := lattice.Kind(r.U8())
		a.Bound = r.number31()
		text := r.Take(r.Count(uint32(r.U16()), maxText, 1))
		if int(kind) >= len(lattice.Kinds()) || !utf8.Valid(text) {
			r.Fail("an error of no kind, or not in words")
		}
		a.Err = lattice.E(kind, errors.New(string(text)))
		a.Grants = r.grants()
	default:
		r.Fail("no such answer")
	}
	if err := r.end(); err != nil {
		return Answer{}, err
	}
	return a, nil
}
