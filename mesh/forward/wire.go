package forward

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	lattice "github.com/lattice-log/lattice"
)

// Lane is one of the two protocols. Both have the same messages, of different length and
// purpose, and streams of their own: what waits in one holds up nothing in the other.
type Lane uint8

const (
	// Records is what is asked of the leader of a partition.
	Records Lane = iota
	// Groups is what is asked of the home of a group.
	Groups
	// Lanes is how many there are.
	Lanes = iota
)

// Protocol is the id of a lane's stream protocol.
func (l Lane) Protocol() string {
	if l == Groups {
		return "/lattice/groups/1"
	}
	return "/lattice/forward/1"
}

func (l Lane) magic() []byte {
	if l == Groups {
		return []byte{'L', 'G', version, 0}
	}
	return []byte{'L', 'F', version, 0}
}

func (l Lane) has(o Op) bool { return (o >= Call) == (l == Groups) }

const (
	version = 1

	// OpeningSize is the length of an opening.
	OpeningSize = 4 + 32
	// LengthSize is the length of what comes before each message: its length.
	LengthSize = 4
	// MaxBatches bounds the record batches of one ask.
	MaxBatches = 32 << 20
	// MaxBody bounds what is asked of a group's home, and what that answers.
	MaxBody = 16 << 20

	askSize    = 1 + 1 + 2 + 8 + 4 + 16 + 4
	maxAsk     = askSize + MaxBatches
	answerSize = 1 + 1 + 2 + 8 + 3*8 + 2 + 2
	maxAnswer  = 64 << 10

	maxText    = 1 << 10
	maxRecords = 100
)

// ErrMessage means bytes that are no message of this protocol. Kind Corrupt.
var ErrMessage = lattice.E(lattice.Corrupt, errors.New("not a message of the protocol"))

// ErrTooLarge means batches that no ask can carry. Kind TooLarge.
var ErrTooLarge = lattice.E(lattice.TooLarge, fmt.Errorf("more than the %d MiB that can be forwarded to the partition's leader at a time; connect to that node", MaxBatches>>20))

// Op is what is asked for. The numbers are in messages.
type Op uint8

const (
	// Append appends Batches.
	Append Op = 1
	// Truncate moves the start of the log to Before.
	Truncate Op = 2
	// Lead gives the partition to another leader, To.
	Lead Op = 3
	// Call has the home of a group do what Body says.
	Call Op = 4
	// Cancel says that nobody waits for the answer to the ask of this ID any more.
	Cancel Op = 5
)

// Ask is one thing that a leader is to do.
type Ask struct {
	Op        Op
	Acks      int8 // as in Kafka's Produce: 0, 1 or -1; 0 for others
	ID        uint64
	Wait      uint32 // ms
	Partition lattice.TopicPartition
	Batches   []byte
	Before    int64
	To        lattice.NodeID
	Body      []byte
}

// RecordError says what is wrong with one record of a batch.
type RecordError struct {
	Record uint32
	Text   string
}

// Answer is what the leader says.
type Answer struct {
	ID      uint64
	Refused bool
	Kind    lattice.Kind // of the error, if refused
	Code    int16        // likewise, Kafka's; not 0
	Base    int64        // offset of the first record; -1: none
	Time    int64        // ms since 1970 if the topic has LogAppendTime; -1
	Start   int64        // of the log; -1: not known
	Text    string       // why it is refused
	Records []RecordError
	Body    []byte // of a Call that is done
}

// Opening encodes how a stream begins.
func (l Lane) Opening(store lattice.StoreID) []byte { return append(l.magic(), store[:]...) }

// ParseOpening reads it. Wraps ErrMessage.
func (l Lane) ParseOpening(b []byte) (lattice.StoreID, error) {
	if len(b) != OpeningSize || !bytes.Equal(b[:4], l.magic()) {
		return lattice.StoreID{}, fmt.Errorf("opening: %w", ErrMessage)
	}
	return lattice.StoreID(b[4:]), nil
}

// AskLength reads the length that comes before an ask. Wraps ErrMessage.
func (l Lane) AskLength(b [LengthSize]byte) (int, error) {
	if l == Groups {
		return length(b, askSize, askSize+MaxBody)
	}
	return length(b, askSize, maxAsk)
}

// AnswerLength reads the length that comes before an answer. Wraps ErrMessage.
func (l Lane) AnswerLength(b [LengthSize]byte) (int, error) {
	if l == Groups {
		return length(b, answerSize, maxAnswer+MaxBody)
	}
	return length(b, answerSize, maxAnswer)
}

func length(b [LengthSize]byte, least, most int) (int, error) {
	n := binary.BigEndian.Uint32(b[:])
	if int64(n) < int64(least) || int64(n) > int64(most) {
		return 0, fmt.Errorf("a message of %d bytes, %d to %d are possible: %w", n, least, most, ErrMessage)
	}
	return int(n), nil
}

// size is the length of an encoded ask, with what comes before it.
func (a *Ask) size() int {
	switch a.Op {
	case Truncate:
		return LengthSize + askSize + 8
	case Lead:
		return LengthSize + askSize + len(a.To)
	case Call, Cancel:
		return LengthSize + askSize + len(a.Body)
	}
	return LengthSize + askSize + len(a.Batches)
}

// AppendTo appends the encoded ask, and its length before it.
func (a *Ask) AppendTo(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(a.size()-LengthSize))
	b = append(b, byte(a.Op), byte(a.Acks), 0, 0)
	b = binary.BigEndian.AppendUint64(b, a.ID)
	b = binary.BigEndian.AppendUint32(b, a.Wait)
	b = append(b, a.Partition.Topic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(a.Partition.Partition))
	switch a.Op {
	case Truncate:
		return binary.BigEndian.AppendUint64(b, uint64(a.Before))
	case Lead:
		return append(b, a.To[:]...)
	case Call, Cancel:
		return append(b, a.Body...)
	}
	return append(b, a.Batches...)
}

// ParseAsk reads an ask, without its length. Batches and Body alias b. Wraps ErrMessage.
func (l Lane) ParseAsk(b []byte) (Ask, error) {
	bad := fmt.Errorf("ask: %w", ErrMessage)
	if len(b) < askSize || b[2] != 0 || b[3] != 0 {
		return Ask{}, bad
	}
	a := Ask{Op: Op(b[0]), Acks: int8(b[1]), ID: binary.BigEndian.Uint64(b[4:]), Wait: binary.BigEndian.Uint32(b[12:])}
	a.Partition.Topic = lattice.TopicID(b[16:32])
	a.Partition.Partition = int32(binary.BigEndian.Uint32(b[32:]))
	rest := b[askSize:]
	switch {
	case a.Partition.Partition < 0 || a.Acks < -1 || a.Acks > 1 || !l.has(a.Op):
		return Ask{}, bad
	case a.Op >= Call && (a.Acks != 0 || a.Partition != lattice.TopicPartition{}):
		return Ask{}, bad
	case a.Op == Call && len(rest) > 0 && len(rest) <= MaxBody:
		a.Body = rest
	case a.Op == Cancel && len(rest) == 0 && a.Wait == 0:
	case a.Op == Append && len(rest) > 0 && len(rest) <= MaxBatches:
		a.Batches = rest
	case a.Op == Truncate && a.Acks == 0 && len(rest) == 8:
		a.Before = int64(binary.BigEndian.Uint64(rest))
	case a.Op == Lead && a.Acks == 0 && len(rest) == len(a.To):
		a.To = lattice.NodeID(rest)
	default:
		return Ask{}, bad
	}
	return a, nil
}

// AppendTo appends the encoded answer, and its length before it. What is said of an
// error is cut to what an answer can hold.
func (a *Answer) AppendTo(b []byte) []byte {
	at := len(b)
	status := byte(0)
	if a.Refused {
		status = 1
	}
	b = append(b, 0, 0, 0, 0, status, byte(a.Kind))
	b = binary.BigEndian.AppendUint16(b, uint16(a.Code))
	b = binary.BigEndian.AppendUint64(b, a.ID)
	for _, n := range [...]int64{a.Base, a.Time, a.Start} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	b = appendText(b, a.Text)
	counts := len(b)
	b = append(b, 0, 0)
	n := 0
	for _, r := range a.Records[:min(len(a.Records), maxRecords)] {
		one := appendText(binary.BigEndian.AppendUint32(nil, r.Record), r.Text)
		if len(b)-at-LengthSize+len(one) > maxAnswer {
			break
		}
		b = append(b, one...)
		n++
	}
	binary.BigEndian.PutUint16(b[counts:], uint16(n))
	b = append(b, a.Body...)
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-LengthSize))
	return b
}

// appendText appends a text, as much of it as there may be.
func appendText(b []byte, s string) []byte {
	s = strings.ToValidUTF8(s, "?")
	for len(s) > maxText {
		_, n := utf8.DecodeLastRuneInString(s[:maxText+1])
		s = s[:maxText+1-n]
	}
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func takeText(b []byte) (s string, rest []byte, ok bool) {
	if len(b) < 2 {
		return "", b, false
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; n > maxText || n > len(b) || !utf8.Valid(b[:n]) {
		return "", b, false
	}
	return string(b[:n]), b[n:], true
}

// ParseAnswer reads an answer, without its length. Body aliases b. Wraps ErrMessage.
func (l Lane) ParseAnswer(b []byte) (Answer, error) {
	bad := fmt.Errorf("answer: %w", ErrMessage)
	most := maxAnswer
	if l == Groups {
		most += MaxBody
	}
	if len(b) < answerSize || len(b) > most || b[0] > 1 {
		return Answer{}, bad
	}
	a := Answer{Refused: b[0] == 1, Kind: lattice.Kind(b[1]), Code: int16(binary.BigEndian.Uint16(b[2:])), ID: binary.BigEndian.Uint64(b[4:])}
	for i, n := range [...]*int64{&a.Base, &a.Time, &a.Start} {
		if *n = int64(binary.BigEndian.Uint64(b[12+8*i:])); *n < -1 {
			return Answer{}, bad
		}
	}
	var ok bool
	if a.Text, b, ok = takeText(b[36:]); !ok || len(b) < 2 {
		return Answer{}, bad
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; n > maxRecords {
		return Answer{}, bad
	}
	for range n {
		if len(b) < 4 {
			return Answer{}, bad
		}
		r := RecordError{Record: binary.BigEndian.Uint32(b)}
		if r.Text, b, ok = takeText(b[4:]); !ok {
			return Answer{}, bad
		}
		a.Records = append(a.Records, r)
	}
	if l == Groups && !a.Refused && len(b) > 0 && len(b) <= MaxBody {
		a.Body, b = b, nil
	}
	switch {
	case len(b) != 0, l == Groups && (a.Base != -1 || a.Time != -1 || n != 0 || !a.Refused && a.Body == nil):
		return Answer{}, bad
	case a.Refused && (a.Code == 0 || a.Base != -1 || a.Time != -1 || int(a.Kind) >= len(lattice.Kinds())):
		return Answer{}, bad
	case !a.Refused && (a.Code != 0 || a.Kind != 0 || a.Text != "" || n != 0 || a.Start < 0):
		return Answer{}, bad
	}
	return a, nil
}
