// Package promise is how a partition gets another leader when its leader is out of reach:
// members of the term's ack set promise, durably and signed, to follow one candidate. It
// is pure; who asks and who answers is decided elsewhere.
//
// # Promise, version 1
//
// Big-endian. There is exactly one encoding, of 280 bytes.
//
//	  0  "LU"
//	  2  version        u8 = 1
//	  3  flags          u8 = 0
//	  4  store          32
//	 36  topic          16, the topic's incarnation
//	 52  partition      u32, at most 2^31-1
//	 56  previous       32, id of the grant that rules: its ack set promises
//	 88  term           u32, at most 2^31-1: the term that is promised
//	 92  candidate      32, who is to lead it
//	124  incarnation    u64, of the candidate
//	132  held term      u32, at most 2^31-1: of the newest head that the member took
//	136  size           u64, blocks that it holds durably, with
//	144  root           32, of their tree, and
//	176  end            u64, at most 2^63-1: the offset behind them
//	184  member         32
//	216  signature      64, of the member
//
// The signature is Ed25519 over "lattice/promise/v1\x00" and all bytes before it.
//
// # The rules
//
// A member promises a term once, to one candidate in one incarnation of that (Bound).
// The record of it is durable before the promise leaves; from then on the member
// acknowledges nothing of an older term (core/cosign.Last). A crash before the record:
// nothing was promised. After it: the same promise is given again to who asks again.
//
// A candidate is a member of the ruling term's set, promises to itself first, and needs
// |set| - min + 1 promises (Count): so many meet every min that may have acknowledged
// something. Who was removed is counted in |set| and has no vote. The base of its term is
// the greatest (held term, size) among them, and at least the ruling term's own, which it
// fetches, from whoever has it, before it leads. What was acknowledged is in it.
//
// Terms of candidates of one set differ (Term): where the number of promises lets two
// candidates have enough at once, they lead different terms, of which the higher rules
// (merge.Line), and no (term, offset) names two records. A clock promotes nobody.
//
// # Rules for changing it
//
//   - A promise that was ever signed keeps its bytes. If TestGolden changes, the design
//     is wrong, not the test.
//   - A new field needs a new version, and a row in docs/format/README.md.
package promise

import (
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/merkle"
)

const (
	version = 1
	// Size is the length of an encoded promise.
	Size = unsigned + identity.SignatureSize

	unsigned = 216
)

// ErrMalformed means bytes that are no promise. Kind Corrupt.
var ErrMalformed = lattice.E(lattice.Corrupt, errors.New("malformed promise"))

// Promise is one member's word.
type Promise struct {
	Store       lattice.StoreID
	Partition   lattice.TopicPartition
	Previous    lattice.Hash // the grant that rules
	Term        int32        // that is promised
	Candidate   lattice.AuthorID
	Incarnation uint64
	HeldTerm    int32       // of the newest head that the member took
	Held        merge.Point // what it holds durably
	Member      lattice.AuthorID
}

func (p *Promise) check() error {
	switch {
	case p.Partition.Partition < 0 || p.Term < 0 || p.HeldTerm < 0 || p.Held.End < 0:
		return fmt.Errorf("partition %d, term %d, held %d up to offset %d", p.Partition.Partition, p.Term, p.HeldTerm, p.Held.End)
	case p.HeldTerm >= p.Term:
		return fmt.Errorf("term %d is promised, and a head of term %d was taken", p.Term, p.HeldTerm)
	case p.Held.Size > uint64(p.Held.End):
		return fmt.Errorf("%d blocks end at offset %d", p.Held.Size, p.Held.End)
	case p.Held.Size == 0 && (p.Held.End != 0 || p.Held.Root != merkle.EmptyRoot()):
		return errors.New("no blocks that are not the empty log")
	case p.Previous.IsZero():
		return errors.New("no grant rules")
	}
	return nil
}

func (p *Promise) appendTo(b []byte) []byte {
	b = append(b, 'L', 'U', version, 0)
	b = append(b, p.Store[:]...)
	b = append(b, p.Partition.Topic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Partition.Partition))
	b = append(b, p.Previous[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.Term))
	b = append(b, p.Candidate[:]...)
	b = binary.BigEndian.AppendUint64(b, p.Incarnation)
	b = binary.BigEndian.AppendUint32(b, uint32(p.HeldTerm))
	b = binary.BigEndian.AppendUint64(b, p.Held.Size)
	b = append(b, p.Held.Root[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(p.Held.End))
	return append(b, p.Member[:]...)
}

// Sign encodes and signs p; p.Member is the key's author. Wraps ErrMalformed when p breaks
// a rule that needs nothing but p to check.
func Sign(key identity.Key, p Promise) ([]byte, error) {
	p.Member = key.Author()
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("sign: %w: %w", ErrMalformed, err)
	}
	b := p.appendTo(make([]byte, 0, Size))
	sig := key.Sign(identity.DomainPromise, b)
	return append(b, sig[:]...), nil
}

// Parse reads an encoded promise, and checks the member's signature. Wraps ErrMalformed or
// identity.ErrSignature. Whether it counts is another question: see Count.
func Parse(b []byte) (Promise, error) {
	if len(b) != Size || b[0] != 'L' || b[1] != 'U' || b[2] != version || b[3] != 0 {
		return Promise{}, fmt.Errorf("%w: %d bytes, or another version", ErrMalformed, len(b))
	}
	p := Promise{
		Store: lattice.StoreID(b[4:]), Partition: lattice.TopicPartition{Topic: lattice.TopicID(b[36:]), Partition: int32(binary.BigEndian.Uint32(b[52:]))},
		Previous: lattice.Hash(b[56:]), Term: int32(binary.BigEndian.Uint32(b[88:])), Candidate: lattice.AuthorID(b[92:]),
		Incarnation: binary.BigEndian.Uint64(b[124:]), HeldTerm: int32(binary.BigEndian.Uint32(b[132:])),
		Held:   merge.Point{Size: binary.BigEndian.Uint64(b[136:]), Root: lattice.Hash(b[144:]), End: int64(binary.BigEndian.Uint64(b[176:]))},
		Member: lattice.AuthorID(b[184:]),
	}
	if err := p.check(); err != nil {
		return Promise{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if !identity.Verify(p.Member, identity.DomainPromise, b[:unsigned], identity.Signature(b[unsigned:])) {
		return Promise{}, fmt.Errorf("promise of term %d: %w", p.Term, identity.ErrSignature)
	}
	return p, nil
}
