package keyval

import (
	"hash/maphash"
	"math/bits"
)

// known remembers what a fold database that was empty holds by now, so that what
// is not there is not looked for: while everything is folded again, most keys are
// new. It is a Bloom filter of a fixed size (blocks of 64 bytes, six bits a name):
// it may take a name for one that is there, never the other way round. nil knows
// nothing. For one goroutine.
type known struct {
	seed   maphash.Seed
	size   int64    // of blocks, once there is something
	blocks []uint64 // eight words a block
}

const (
	knownLeast = 64 << 10 // bytes; for no more than a few rounds
	knownMost  = 16 << 20 // at ten bits a name: for 13 million
)

// newKnown returns what knows that a database is empty, sized for what a log of so
// many bytes may hold.
func newKnown(logBytes int64) *known {
	const operation = 32 // bytes of a log, at least, that make a name
	return &known{seed: maphash.MakeSeed(), size: min(max(logBytes/operation*10/8, knownLeast), knownMost) / 64}
}

// lacks reports that the database has nothing of that name.
func (k *known) lacks(name []byte) bool {
	if k == nil {
		return false
	}
	if k.blocks == nil {
		return true
	}
	b, h := k.block(name)
	for range 6 {
		if b[h>>6&7]&(1<<(h&63)) == 0 {
			return true
		}
		h >>= 9
	}
	return false
}

// add notes that the database has something of that name.
func (k *known) add(name []byte) {
	if k == nil {
		return
	}
	if k.blocks == nil {
		k.blocks = make([]uint64, 8*k.size)
	}
	b, h := k.block(name)
	for range 6 {
		b[h>>6&7] |= 1 << (h & 63)
		h >>= 9
	}
}

// block returns where a name's bits are, and which they are: nine bits of h each.
func (k *known) block(name []byte) (b *[8]uint64, h uint64) {
	h = maphash.Bytes(k.seed, name)
	at, _ := bits.Mul64(h*0x9e3779b97f4a7c15, uint64(k.size)) // of other bits than the six
	return (*[8]uint64)(k.blocks[8*at:]), h
}
