// Package branch describes blocks of a partition that lie beyond the base of a term that
// rules, and so are not in its log any more: a stranded branch. It is pure; the files are
// storage/aside's.
//
// # Branch, version 1
//
// Big-endian. There is exactly one encoding. The blocks themselves lie beside it, verbatim,
// back to back, as in a segment.
//
//	  0  "Lb"
//	  2  version        u8 = 1
//	  3  flags          u8: 1 some blocks were rewritten by a compaction
//	  4  store          32
//	 36  topic          16, the topic's incarnation
//	 52  partition      u32, at most 2^31-1
//	 56  from           u64, blocks before the branch: its first leaf
//	 64  blocks         u64, at least 1
//	 72  first          u64, at most 2^63-1: its first offset
//	 80  end            u64, at most 2^63-1: the offset behind its last
//	 88  records        u64, of batches that are no markers
//	 96  bytes          u64, of all blocks
//	104  sum            32, SHA-256 of all blocks
//	136  first term     u32, at most 2^31-1
//	140  last term      u32, at most 2^31-1
//	144  since          u64, ms since 1970: when it was kept aside
//	152  by             32, id of the grant beyond whose base it lies
//	184  left           u8 n, then n x 32: the compact range of the blocks before it; of a
//	                    log that dropped those, nothing
//	     note           u16 n, then n bytes: the newest checkpoint of the branch that its
//	                    leader signed; empty: none is known
//	     grants         u16 n, then n x (u32 length, a grant): the terms up to the note's
//	     checksum       u32, CRC-32C of all before it
//
// Left, blocks and note prove the branch (Prove): the leader that signed the note cannot
// deny it, and nobody can add to it.
//
// # Progress, version 1
//
// What became of a branch on this node, in a file beside it; none: nothing so far.
//
//	 0  "Lp"
//	 2  version        u8 = 1
//	 3  state          u8: 1 is being re-produced, 2 was
//	 4  producer       u64, at most 2^63-1: producer id of its records in the log
//	12  epoch          u16, at most 2^15-1
//	14  blocks         u64, of the branch, of which all records are in the log again
//	22  records        u64, of those
//	30  first          u64, at most 2^63-1: offset of the first of them
//	38  end            u64, at most 2^63-1: the offset behind the last
//	46  checksum       u32, CRC-32C of all before it
//
// # Rules for changing them
//
//   - What was ever written keeps its meaning. If TestGolden changes, the design is
//     wrong, not the test.
//   - A new field needs a new version, and a row in docs/format/README.md.
package branch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/merkle"
)

const (
	version = 1
	fixed   = 184
	crcSize = 4

	flagRewritten = 1

	// MaxGrants bounds the grants of a branch.
	MaxGrants = 1<<16 - 1
	// MaxSize bounds an encoded branch, in bytes.
	MaxSize = 16 << 20
)

// ErrMalformed means bytes that are no branch, or no progress. Kind Corrupt.
var ErrMalformed = lattice.E(lattice.Corrupt, errors.New("malformed stranded branch"))

// ErrUnproven means that blocks are not what a branch says, or that its leader did not
// sign them. Kind Corrupt.
var ErrUnproven = lattice.E(lattice.Corrupt, errors.New("the stranded blocks are not proven"))

// Branch is what is known of stranded blocks. See the package comment for each field.
type Branch struct {
	Store               lattice.StoreID
	Partition           lattice.TopicPartition
	From, Blocks        uint64
	First, End          int64
	Records, Bytes      uint64
	Sum                 lattice.Hash
	FirstTerm, LastTerm int32
	Since               uint64
	By                  lattice.Hash
	Rewritten           bool
	Left                []lattice.Hash
	Note                []byte
	Grants              [][]byte
}

// ID names a branch among those of its partition: where it begins, and what is in it.
func (b Branch) ID() string { return fmt.Sprintf("%d-%x", b.First, b.Sum[:8]) }

func (b Branch) check() error {
	switch {
	case b.Partition.Partition < 0 || b.FirstTerm < 0 || b.LastTerm < b.FirstTerm:
		return fmt.Errorf("%w: partition %d, terms %d to %d", ErrMalformed, b.Partition.Partition, b.FirstTerm, b.LastTerm)
	case b.First < 0 || b.End <= b.First || b.Blocks == 0 || b.Bytes == 0 || b.From > math.MaxInt64:
		return fmt.Errorf("%w: %d blocks of %d bytes, offsets %d to %d", ErrMalformed, b.Blocks, b.Bytes, b.First, b.End)
	case len(b.Left) > 64 || len(b.Note) > math.MaxUint16 || len(b.Grants) > MaxGrants:
		return fmt.Errorf("%w: %d hashes, a note of %d bytes, %d grants", ErrMalformed, len(b.Left), len(b.Note), len(b.Grants))
	}
	return nil
}

// AppendTo appends the encoded branch. Wraps ErrMalformed.
func (b Branch) AppendTo(dst []byte) ([]byte, error) {
	if err := b.check(); err != nil {
		return dst, err
	}
	at, be := len(dst), binary.BigEndian
	flags := byte(0)
	if b.Rewritten {
		flags = flagRewritten
	}
	dst = append(dst, 'L', 'b', version, flags)
	dst = append(append(dst, b.Store[:]...), b.Partition.Topic[:]...)
	dst = be.AppendUint32(dst, uint32(b.Partition.Partition))
	for _, n := range []uint64{b.From, b.Blocks, uint64(b.First), uint64(b.End), b.Records, b.Bytes} {
		dst = be.AppendUint64(dst, n)
	}
	dst = append(dst, b.Sum[:]...)
	dst = be.AppendUint32(be.AppendUint32(dst, uint32(b.FirstTerm)), uint32(b.LastTerm))
	dst = append(be.AppendUint64(dst, b.Since), b.By[:]...)
	dst = append(dst, byte(len(b.Left)))
	for _, h := range b.Left {
		dst = append(dst, h[:]...)
	}
	dst = append(be.AppendUint16(dst, uint16(len(b.Note))), b.Note...)
	dst = be.AppendUint16(dst, uint16(len(b.Grants)))
	for _, g := range b.Grants {
		dst = append(be.AppendUint32(dst, uint32(len(g))), g...)
	}
	if len(dst)-at > MaxSize-crcSize {
		return dst[:at], fmt.Errorf("%w: %d bytes", ErrMalformed, len(dst)-at)
	}
	return be.AppendUint32(dst, checksum(dst[at:])), nil
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// sealed returns what the checksum at the end of b covers.
func sealed(b []byte, magic string, least int) ([]byte, error) {
	if len(b) < least+crcSize || len(b) > MaxSize || string(b[:2]) != magic {
		return nil, fmt.Errorf("%w: %d bytes", ErrMalformed, len(b))
	}
	body := b[:len(b)-crcSize]
	switch {
	case b[2] != version:
		return nil, lattice.E(lattice.Unsupported, fmt.Errorf("a stranded branch of version %d", b[2]))
	case checksum(body) != binary.BigEndian.Uint32(b[len(body):]):
		return nil, fmt.Errorf("%w: checksum", ErrMalformed)
	}
	return body, nil
}

// Parse reads a branch that takes all of b, which the result goes on using. Wraps
// ErrMalformed; Kind Unsupported for a later version.
func Parse(b []byte) (Branch, error) {
	body, err := sealed(b, "Lb", fixed+1+2+2)
	if err != nil {
		return Branch{}, err
	}
	be := binary.BigEndian
	n := func(at int) uint64 { return be.Uint64(b[at:]) }
	x := Branch{
		Store: lattice.StoreID(b[4:]), Partition: lattice.TopicPartition{Topic: lattice.TopicID(b[36:]), Partition: int32(be.Uint32(b[52:]))},
		From: n(56), Blocks: n(64), First: int64(n(72)), End: int64(n(80)), Records: n(88), Bytes: n(96), Sum: lattice.Hash(b[104:]),
		FirstTerm: int32(be.Uint32(b[136:])), LastTerm: int32(be.Uint32(b[140:])), Since: n(144), By: lattice.Hash(b[152:]),
		Rewritten: b[3] == flagRewritten,
	}
	rest, ok := body[fixed:], b[3] <= flagRewritten
	cut := func(n int) []byte {
		if ok = ok && n >= 0 && len(rest) >= n; !ok {
			return nil
		}
		out := rest[:n:n]
		rest = rest[n:]
		return out
	}
	u16 := func() int {
		if p := cut(2); ok {
			return int(be.Uint16(p))
		}
		return 0
	}
	if p := cut(1); ok {
		for range int(p[0]) {
			if h := cut(len(lattice.Hash{})); ok {
				x.Left = append(x.Left, lattice.Hash(h))
			}
		}
	}
	x.Note = cut(u16())
	for i := u16(); i > 0 && ok; i-- {
		if p := cut(4); ok {
			x.Grants = append(x.Grants, cut(int(be.Uint32(p))))
		}
	}
	if !ok || len(rest) > 0 {
		return Branch{}, fmt.Errorf("%w: its parts do not fit", ErrMalformed)
	}
	if len(x.Note) == 0 {
		x.Note = nil
	}
	return x, x.check()
}

// Prove returns how many of a branch's leaves, in order, its leader is proven to have
// signed: those up to the checkpoint, which leader signed. Wraps ErrUnproven.
func (b Branch) Prove(leaves []lattice.Hash, leader lattice.AuthorID) (uint64, error) {
	if len(b.Note) == 0 {
		return 0, fmt.Errorf("%w: no checkpoint of it is here", ErrUnproven)
	}
	c, err := merkle.OpenCheckpoint(b.Note, leader)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnproven, err)
	}
	left, err := merkle.NewRange(b.From, b.Left)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: %w", ErrUnproven, err)
	case c.Origin != merkle.Origin(b.Store, b.Partition.String()) || c.Size < b.From || c.Size-b.From > uint64(len(leaves)):
		return 0, fmt.Errorf("%w: %q signed %d blocks, %d to %d are here", ErrUnproven, c.Origin, c.Size, b.From, b.From+uint64(len(leaves)))
	}
	a, n := merkle.NewAppender(left), c.Size-b.From
	for _, h := range leaves[:n] {
		a.Append(nil, h)
	}
	if a.Root() != c.Root {
		return 0, fmt.Errorf("%w: they lead to another root", ErrUnproven)
	}
	return n, nil
}

// State says what is being done with a branch.
type State uint8

// What became of a branch; 0: nothing.
const (
	Underway   State = 1
	Reproduced State = 2
)

// String names the state.
func (s State) String() string {
	switch s {
	case 0:
		return "kept"
	case Underway:
		return "under way"
	case Reproduced:
		return "re-produced"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// Progress is how far a branch was re-produced. The zero Progress: not at all.
type Progress struct {
	State           State
	Producer        int64
	Epoch           int16
	Blocks, Records uint64
	First, End      int64
}

// ProgressSize is the length of an encoded progress.
const ProgressSize = 46 + crcSize

func (p Progress) check() error {
	if p.State < Underway || p.State > Reproduced || p.Producer < 0 || p.Epoch < 0 || p.First < 0 || p.End < p.First {
		return fmt.Errorf("%w: progress %+v", ErrMalformed, p)
	}
	return nil
}

// AppendTo appends the encoded progress. Wraps ErrMalformed.
func (p Progress) AppendTo(dst []byte) ([]byte, error) {
	if err := p.check(); err != nil {
		return dst, err
	}
	at, be := len(dst), binary.BigEndian
	dst = append(dst, 'L', 'p', version, byte(p.State))
	dst = be.AppendUint64(dst, uint64(p.Producer))
	dst = be.AppendUint16(dst, uint16(p.Epoch))
	for _, n := range []uint64{p.Blocks, p.Records, uint64(p.First), uint64(p.End)} {
		dst = be.AppendUint64(dst, n)
	}
	return be.AppendUint32(dst, checksum(dst[at:])), nil
}

// ParseProgress reads a progress that takes all of b. Errors are those of Parse.
func ParseProgress(b []byte) (Progress, error) {
	body, err := sealed(b, "Lp", ProgressSize-crcSize)
	if err != nil {
		return Progress{}, err
	}
	be := binary.BigEndian
	n := func(at int) uint64 { return be.Uint64(body[at:]) }
	p := Progress{State(b[3]), int64(n(4)), int16(be.Uint16(b[12:])), n(14), n(22), int64(n(30)), int64(n(38))}
	if len(b) != ProgressSize {
		return Progress{}, fmt.Errorf("%w: %d bytes of progress", ErrMalformed, len(b))
	}
	return p, p.check()
}
