// Package forkpoint is where a fork of a store began: the signed statement that makes a
// directory a fork, says of what and from where, and gives it its id. It is pure. (A fork
// of a log, which is two entries or heads for one place, is another thing: core/fold,
// core/merge.)
//
// # Fork point, version 1
//
// Big-endian. There is exactly one encoding.
//
//	  0  "Lf"
//	  2  version        u8 = 1
//	  3  flags          u8 = 0
//	  4  store          32, whose entries the fork's state is folded from and continues
//	 36  origin         32, the store or fork that it was made from: its id on that node
//	 68  node           32, who made it
//	100  time           u64, ms since 1970
//	108  random         16
//	124  snapshot       32, id of the snapshot that its state begins from (core/snapshot)
//	156  root           32, of the state in it
//	188  name           u16 n, 1 to 255, then n bytes of UTF-8
//	     partitions     u32 n, then n x (topic 16, partition u32, end u64), strictly
//	                    ascending by topic and partition: records from end on are the
//	                    fork's own, in partitions that are not named all are
//	     signature      64, of node
//
// The fork's id is SHA-256("lattice/forkpoint/v1\x00" || all bytes before the signature),
// the signature Ed25519 over the same. The snapshot's id is the sum of its content, which
// names the tip of every chain that was folded; so whoever has the fork point can tell what
// of the store the fork was made from, and that node says so.
//
// # Rules for changing it
//
//   - A fork point that was ever signed keeps its bytes. If TestGolden changes, the design
//     is wrong, not the test.
//   - A new field needs a new version, and a row in docs/format/README.md.
package forkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
)

const (
	version   = 1
	fixedSize = 188
	endSize   = 16 + 4 + 8

	// MaxSize is how long a fork point can be, in bytes: over two million partitions.
	MaxSize = 64 << 20
)

// ErrMalformed means bytes that are no fork point, or break a rule of it. Kind Corrupt.
var ErrMalformed = lattice.E(lattice.Corrupt, errors.New("malformed fork point"))

// ErrVersion means a fork point of a later version. Kind Unsupported.
var ErrVersion = lattice.E(lattice.Unsupported, errors.New("fork point of an unknown version"))

// End says where a partition's own records of the fork begin.
type End struct {
	Partition lattice.TopicPartition
	Offset    int64
}

func (e End) compare(o End) int {
	if c := bytes.Compare(e.Partition.Topic[:], o.Partition.Topic[:]); c != 0 {
		return c
	}
	return int(int64(e.Partition.Partition) - int64(o.Partition.Partition))
}

// Point is where a fork began.
type Point struct {
	Store    lattice.StoreID
	Origin   lattice.StoreID
	Node     lattice.NodeID
	Time     uint64 // ms since 1970
	Random   [16]byte
	Snapshot lattice.Hash
	Root     lattice.Hash
	Name     string
	Ends     []End // strictly ascending
}

// Signed is a fork point with its id, as Sign or Parse return it. Change none of its fields.
type Signed struct {
	Point
	ID  lattice.StoreID
	raw []byte
}

// Bytes returns the encoded fork point. Do not change it.
func (s Signed) Bytes() []byte { return s.raw }

// End returns the offset from which on records of a partition are the fork's own, and
// whether the partition was there when the fork was made.
func (s Signed) End(tp lattice.TopicPartition) (int64, bool) {
	i, ok := slices.BinarySearchFunc(s.Ends, End{Partition: tp}, End.compare)
	if !ok {
		return 0, false
	}
	return s.Ends[i].Offset, true
}

// Sign encodes and signs p; p.Node is the key's author, and the ends are sorted. Wraps
// ErrMalformed when p breaks a rule.
func Sign(key identity.Key, p Point) (Signed, error) {
	p.Node = key.Author()
	p.Ends = slices.Clone(p.Ends)
	slices.SortFunc(p.Ends, End.compare)
	if err := p.check(); err != nil {
		return Signed{}, fmt.Errorf("sign: %w: %w", ErrMalformed, err)
	}
	b := p.appendTo(nil)
	sig := key.Sign(identity.DomainForkpoint, b)
	return Parse(append(b, sig[:]...))
}

func (p *Point) check() error {
	if err := sigchain.CheckStoreName(p.Name); err != nil {
		return err
	}
	switch {
	case p.Store == (lattice.StoreID{}) || p.Origin == (lattice.StoreID{}):
		return errors.New("it names no store")
	case p.Snapshot.IsZero():
		return errors.New("it names no snapshot")
	case p.Time > 1<<47:
		return fmt.Errorf("time %d", p.Time)
	}
	for i, e := range p.Ends {
		if e.Partition.Partition < 0 || e.Offset < 0 {
			return fmt.Errorf("partition %s ends at %d", e.Partition, e.Offset)
		}
		if i > 0 && p.Ends[i-1].compare(e) >= 0 {
			return fmt.Errorf("partition %s is out of order", e.Partition)
		}
	}
	return nil
}

func (p *Point) appendTo(b []byte) []byte {
	be := binary.BigEndian
	b = append(b, 'L', 'f', version, 0)
	b = append(b, p.Store[:]...)
	b = append(b, p.Origin[:]...)
	b = append(b, p.Node[:]...)
	b = be.AppendUint64(b, p.Time)
	b = append(b, p.Random[:]...)
	b = append(b, p.Snapshot[:]...)
	b = append(b, p.Root[:]...)
	b = be.AppendUint16(b, uint16(len(p.Name)))
	b = append(b, p.Name...)
	b = be.AppendUint32(b, uint32(len(p.Ends)))
	for _, e := range p.Ends {
		b = append(b, e.Partition.Topic[:]...)
		b = be.AppendUint32(b, uint32(e.Partition.Partition))
		b = be.AppendUint64(b, uint64(e.Offset))
	}
	return b
}

// Parse reads an encoded fork point that takes all of b, which the result goes on using,
// and checks its signature. Errors wrap ErrMalformed, ErrVersion or identity.ErrSignature.
func Parse(b []byte) (Signed, error) {
	be := binary.BigEndian
	bad := func(format string, args ...any) (Signed, error) {
		return Signed{}, fmt.Errorf("%w: %w", ErrMalformed, fmt.Errorf(format, args...))
	}
	switch {
	case len(b) < 4 || b[0] != 'L' || b[1] != 'f':
		return bad("it does not begin with Lf")
	case b[2] != version:
		return Signed{}, fmt.Errorf("%w: %d", ErrVersion, b[2])
	case b[3] != 0 || len(b) < fixedSize+2 || len(b) > MaxSize:
		return bad("%d bytes, flags %#x", len(b), b[3])
	}
	name := int(be.Uint16(b[fixedSize:]))
	at := fixedSize + 2 + name
	if len(b) < at+4 {
		return bad("%d bytes for a name of %d", len(b), name)
	}
	n := int64(be.Uint32(b[at:]))
	unsigned := int64(at+4) + n*endSize
	if int64(len(b)) != unsigned+identity.SignatureSize {
		return bad("%d bytes for %d partitions", len(b), n)
	}
	s := Signed{raw: b, Point: Point{
		Store: lattice.StoreID(b[4:]), Origin: lattice.StoreID(b[36:]), Node: lattice.NodeID(b[68:]),
		Time: be.Uint64(b[100:]), Random: [16]byte(b[108:]), Snapshot: lattice.Hash(b[124:]), Root: lattice.Hash(b[156:]),
		Name: string(b[fixedSize+2 : at]),
	}}
	for rest := b[at+4 : unsigned]; len(rest) > 0; rest = rest[endSize:] {
		s.Ends = append(s.Ends, End{
			Partition: lattice.TopicPartition{Topic: lattice.TopicID(rest), Partition: int32(be.Uint32(rest[16:]))}, Offset: int64(be.Uint64(rest[20:])),
		})
	}
	if err := s.check(); err != nil {
		return bad("%w", err)
	}
	if !identity.Verify(s.Node, identity.DomainForkpoint, b[:unsigned], identity.Signature(b[unsigned:])) {
		return Signed{}, fmt.Errorf("fork point: %w", identity.ErrSignature)
	}
	h := sha256.New()
	h.Write([]byte(identity.DomainForkpoint))
	h.Write(b[:unsigned])
	s.ID = lattice.StoreID(h.Sum(nil))
	return s, nil
}
