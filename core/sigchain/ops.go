package sigchain

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	lattice "github.com/lattice-log/lattice"
)

// Kinds of operations. A kind that was ever used keeps its meaning.
const (
	KindGenesis     uint16 = 1
	KindCreateTopic uint16 = 2
	KindPrune       uint16 = 5
)

const (
	maxStoreName = 255
	maxTopicName = 249
)

// ErrOp means that an operation's body breaks its kind's format. Kind Corrupt.
var ErrOp = lattice.E(lattice.Corrupt, errors.New("malformed operation"))

// Genesis begins a store.
type Genesis struct {
	Name   string
	Random [16]byte // tells stores of the same name, author and time apart
}

// Op encodes g. Wraps ErrOp when the name breaks the rules.
func (g Genesis) Op() (Op, error) {
	if err := CheckStoreName(g.Name); err != nil {
		return Op{}, fmt.Errorf("%w: %w", ErrOp, err)
	}
	b := binary.BigEndian.AppendUint16([]byte{1}, uint16(len(g.Name)))
	b = append(append(b, g.Name...), g.Random[:]...)
	return Op{KindGenesis, b}, nil
}

// ParseGenesis reads a genesis operation. Wraps ErrOp or ErrVersion.
func ParseGenesis(op Op) (Genesis, error) {
	r, err := open(op, KindGenesis)
	if err != nil {
		return Genesis{}, err
	}
	g := Genesis{Name: string(r.take(int(r.u16())))}
	copy(g.Random[:], r.take(len(g.Random)))
	if err := r.close(CheckStoreName(g.Name)); err != nil {
		return Genesis{}, fmt.Errorf("%w: genesis: %w", ErrOp, err)
	}
	return g, nil
}

// CreateTopic creates a topic; the id of its entry becomes the topic's.
type CreateTopic struct {
	Name       string
	Partitions uint32
	Configs    []Config // keys strictly ascending
}

// Config is one topic configuration that was set. Keys and values are any bytes.
type Config struct{ Key, Value string }

// Op encodes c. Wraps ErrOp when c breaks the rules.
func (c CreateTopic) Op() (Op, error) {
	if err := c.check(); err != nil {
		return Op{}, fmt.Errorf("%w: create topic: %w", ErrOp, err)
	}
	b := binary.BigEndian.AppendUint16([]byte{1}, uint16(len(c.Name)))
	b = append(b, c.Name...)
	b = binary.BigEndian.AppendUint32(b, c.Partitions)
	b = binary.BigEndian.AppendUint32(b, uint32(len(c.Configs)))
	for _, kv := range c.Configs {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(kv.Key))), kv.Key...)
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(kv.Value))), kv.Value...)
	}
	return Op{KindCreateTopic, b}, nil
}

// ParseCreateTopic reads a create-topic operation. Wraps ErrOp or ErrVersion.
func ParseCreateTopic(op Op) (CreateTopic, error) {
	r, err := open(op, KindCreateTopic)
	if err != nil {
		return CreateTopic{}, err
	}
	c := CreateTopic{Name: string(r.take(int(r.u16()))), Partitions: uint32(r.u32())}
	if n, ok := r.count(2 + 4); ok {
		c.Configs = make([]Config, n)
	}
	for i := range c.Configs {
		c.Configs[i].Key = string(r.take(int(r.u16())))
		c.Configs[i].Value = string(r.take(r.u32()))
	}
	if err := r.close(c.check()); err != nil {
		return CreateTopic{}, fmt.Errorf("%w: create topic: %w", ErrOp, err)
	}
	return c, nil
}

func (c CreateTopic) check() error {
	if c.Partitions == 0 || c.Partitions > 1<<31-1 {
		return fmt.Errorf("%d partitions", c.Partitions)
	}
	for i, kv := range c.Configs {
		switch {
		case kv.Key == "" || len(kv.Key) > 1<<16-1:
			return fmt.Errorf("config %d has a key of %d bytes", i, len(kv.Key))
		case len(kv.Value) > MaxSize:
			return fmt.Errorf("config %q has a value of %d bytes", kv.Key, len(kv.Value))
		case i > 0 && c.Configs[i-1].Key >= kv.Key:
			return fmt.Errorf("config %q is out of order", kv.Key)
		}
	}
	return CheckTopicName(c.Name)
}

// CheckStoreName checks the rules of the package comment. Kind Invalid.
func CheckStoreName(name string) error {
	control := func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }
	if name == "" || len(name) > maxStoreName || !utf8.ValidString(name) || strings.ContainsFunc(name, control) {
		return lattice.E(lattice.Invalid, fmt.Errorf("store name %q: want 1 to %d bytes of UTF-8 without control characters", name, maxStoreName))
	}
	return nil
}

// CheckTopicName checks Kafka's rule for topic names. Kind Invalid.
func CheckTopicName(name string) error {
	illegal := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}
	if name == "" || len(name) > maxTopicName || name == "." || name == ".." || strings.ContainsFunc(name, illegal) {
		return lattice.E(lattice.Invalid, fmt.Errorf("topic name %q: want 1 to %d of a-z, A-Z, 0-9, '.', '_' and '-', but not \".\" or \"..\"", name, maxTopicName))
	}
	return nil
}

// open starts to read the body of an operation of a kind, in version 1.
func open(op Op, kind uint16) (reader, error) {
	r := reader{rest: op.Body}
	if op.Kind != kind {
		return r, fmt.Errorf("%w: kind %d, want %d", ErrOp, op.Kind, kind)
	}
	if v := r.u8(); !r.bad && v != 1 {
		return r, fmt.Errorf("%w: operation of kind %d, version %d", ErrVersion, kind, v)
	}
	return r, nil
}

// close ends reading: err, unless the lengths do not add up.
func (r *reader) close(err error) error {
	if r.bad || len(r.rest) != 0 {
		return errors.New("lengths do not add up")
	}
	return err
}

// StoreID returns the id of the store that a genesis entry begins.
// Wraps ErrOp when s is no genesis entry.
func StoreID(s Signed) (lattice.StoreID, Genesis, error) {
	if len(s.Ops) != 1 {
		return lattice.StoreID{}, Genesis{}, fmt.Errorf("%w: no genesis entry", ErrOp)
	}
	g, err := ParseGenesis(s.Ops[0])
	return lattice.StoreID(s.ID), g, err
}

// TopicID returns the id of the topic that an entry creates. Wraps ErrOp when
// creating a topic is not all that s does.
func TopicID(s Signed) (lattice.TopicID, CreateTopic, error) {
	if len(s.Ops) != 1 {
		return lattice.TopicID{}, CreateTopic{}, fmt.Errorf("%w: %d operations, want one that creates a topic", ErrOp, len(s.Ops))
	}
	c, err := ParseCreateTopic(s.Ops[0])
	return lattice.TopicID(s.ID[:16]), c, err
}
