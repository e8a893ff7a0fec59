package keyval

import "math/bits"

// known remembers what a fold database that was empty holds by now, so that what
// is not there is not looked for: while everything is folded again, most keys are
// new. It is a Bloom filter of a fixed size (blocks of 64 bytes, six bits a name),
// which goes by names' hashes: it may take a name for one that is there, never the
// other way round. nil knows nothing. For one goroutine.
type known struct {
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
	return &known{size: min(max(logBytes/operation*10/8, knownLeast), knownMost) / 64}
}

// lacks reports that the database has nothing of the name with that hash.
func (k *known) lacks(h uint64) bool {
	if k == nil {
		return false
	}
	if k.blocks == nil {
		return true
	}
	b := k.block(h)
	for range 6 {
		if b[h>>6&7]&(1<<(h&63)) == 0 {
			return true
		}
		h >>= 9
	}
	return false
}

// add notes that the database has something of the name with that hash.
func (k *known) add(h uint64) {
	if k == nil {
		return
	}
	if k.blocks == nil {
		k.blocks = make([]uint64, 8*k.size)
	}
	b := k.block(h)
	for range 6 {
		b[h>>6&7] |= 1 << (h & 63)
		h >>= 9
	}
}

// block returns where a name's bits are. Which of them, its hash says: nine bits for
// each.
func (k *known) block(h uint64) *[8]uint64 {
	at, _ := bits.Mul64(h*0x9e3779b97f4a7c15, uint64(k.size)) // of other bits than the six
	return (*[8]uint64)(k.blocks[8*at:])
}
