package merkle

import (
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
)

// ErrVersion means a statement of a later version. Kind Unsupported.
var ErrVersion = lattice.E(lattice.Unsupported, errors.New("statement of an unknown version"))

// Compaction says that the writer replaced the blocks of leaves [FirstLeaf,
// EndLeaf) by rewritten bytes: the tree goes on covering the originals, and this
// covers what is there now.
//
// Version 1, big-endian, exactly one encoding:
//
//	 0  "LC"
//	 2  version       u8 = 1
//	 3  flags         u8 = 0
//	 4  store         32
//	36  log name      u16 length + bytes, as in the checkpoint's origin
//	    first leaf    u64
//	    end leaf      u64, above first leaf
//	    base offset   u64, at most 2^63-1
//	    end offset    u64, likewise, above base offset
//	    tree size     u64, at least end leaf: the checkpoint it refers to
//	    tree root     32
//	    length        u64, of the rewritten bytes; 0: nothing is left
//	    sum           32, SHA-256 of the rewritten bytes
//	    author        32
//	    signature     64, over "lattice/compaction/v1\x00" || all before
type Compaction struct {
	Store              lattice.StoreID
	Log                string
	FirstLeaf, EndLeaf uint64
	Base, End          int64 // offsets
	Size               uint64
	Root               lattice.Hash
	Length             uint64
	Sum                lattice.Hash
	Author             lattice.AuthorID
}

const (
	compactionVersion = 1
	compactionFixed   = 36 + 2
	compactionTail    = 5*8 + 32 + 8 + 32 + 32 + identity.SignatureSize
)

// SignCompaction returns the signed statement; c.Author becomes the key's.
// Wraps ErrMalformed when c breaks a rule.
func SignCompaction(key identity.Key, c Compaction) ([]byte, error) {
	c.Author = key.Author()
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("sign: %w compaction statement: %w", ErrMalformed, err)
	}
	b := c.appendTo(make([]byte, 0, compactionFixed+len(c.Log)+compactionTail))
	sig := key.Sign(identity.DomainCompaction, b)
	return append(b, sig[:]...), nil
}

// appendTo appends everything but the signature.
func (c Compaction) appendTo(b []byte) []byte {
	b = append(b, 'L', 'C', compactionVersion, 0)
	b = append(b, c.Store[:]...)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(c.Log))), c.Log...)
	for _, n := range []uint64{c.FirstLeaf, c.EndLeaf, uint64(c.Base), uint64(c.End), c.Size} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = append(b, c.Root[:]...)
	b = binary.BigEndian.AppendUint64(b, c.Length)
	b = append(b, c.Sum[:]...)
	return append(b, c.Author[:]...)
}

// OpenCompaction reads a signed statement that takes all of b and checks its
// author's signature. Whether the author may say it is another question. Wraps
// ErrMalformed, ErrVersion or identity.ErrSignature.
func OpenCompaction(b []byte) (Compaction, error) {
	switch {
	case len(b) < 3 || b[0] != 'L' || b[1] != 'C':
		return Compaction{}, fmt.Errorf("%w compaction statement: it does not begin with LC", ErrMalformed)
	case b[2] != compactionVersion:
		return Compaction{}, fmt.Errorf("compaction: %w: %d", ErrVersion, b[2])
	case len(b) < compactionFixed || b[3] != 0:
		return Compaction{}, fmt.Errorf("%w compaction statement: %d bytes, or flags", ErrMalformed, len(b))
	}
	name := int(binary.BigEndian.Uint16(b[36:]))
	if len(b) != compactionFixed+name+compactionTail {
		return Compaction{}, fmt.Errorf("%w compaction statement: %d bytes with a name of %d", ErrMalformed, len(b), name)
	}
	c := Compaction{Store: lattice.StoreID(b[4:]), Log: string(b[compactionFixed : compactionFixed+name])}
	t := b[compactionFixed+name:]
	c.FirstLeaf, c.EndLeaf = binary.BigEndian.Uint64(t), binary.BigEndian.Uint64(t[8:])
	c.Base, c.End = int64(binary.BigEndian.Uint64(t[16:])), int64(binary.BigEndian.Uint64(t[24:]))
	c.Size, c.Root = binary.BigEndian.Uint64(t[32:]), lattice.Hash(t[40:])
	c.Length, c.Sum = binary.BigEndian.Uint64(t[72:]), lattice.Hash(t[80:])
	c.Author = lattice.AuthorID(t[112:])
	if err := c.check(); err != nil {
		return Compaction{}, fmt.Errorf("%w compaction statement: %w", ErrMalformed, err)
	}
	if !identity.Verify(c.Author, identity.DomainCompaction, b[:len(b)-identity.SignatureSize], identity.Signature(t[144:])) {
		return Compaction{}, fmt.Errorf("compaction statement of %s: %w", c.Author.Short(), identity.ErrSignature)
	}
	return c, nil
}

func (c Compaction) check() error {
	switch {
	case c.FirstLeaf >= c.EndLeaf || c.EndLeaf > c.Size:
		return fmt.Errorf("leaves %d to %d of %d", c.FirstLeaf, c.EndLeaf, c.Size)
	case c.Base < 0 || c.Base >= c.End:
		return fmt.Errorf("offsets %d to %d", c.Base, c.End)
	}
	return checkLogName(c.Log)
}
