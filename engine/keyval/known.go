package keyval

import "math/bits"

// known remembers what a fold database that was empty holds by now, so that what
// is not there is not looked for: most keys that are new to the table are new. It
// is a Bloom filter (blocks of 64 bytes, six bits a name), which goes by names' hashes:
// it may take a name for one that is there, never the other way round. When a part of
// it is full, the next one is larger, up to a size; then it says less. nil knows nothing.
// Whoever adds is alone.
type known struct{ parts []knownPart }

type knownPart struct {
	size   int64    // of blocks, once there is something
	room   int64    // for names
	blocks []uint64 // eight words a block
}

const (
	knownLeast = 64 << 10 // bytes; for no more than a few rounds
	knownMost  = 16 << 20 // at ten bits a name: for 13 million
	knownStep  = 4        // a part is so much larger than the one before
)

// newKnown returns what knows that a database is empty, sized for what a log of so
// many bytes may hold.
func newKnown(logBytes int64) *known {
	const operation = 32 // bytes of a log, at least, that make a name
	return &known{[]knownPart{newKnownPart(min(max(logBytes/operation*10/8, knownLeast), knownMost))}}
}

func newKnownPart(bytes int64) knownPart { return knownPart{size: bytes / 64, room: bytes * 8 / 10} }

// lacks reports that the database has nothing of the name with that hash.
func (k *known) lacks(h uint64) bool {
	if k == nil {
		return false
	}
	for i := range k.parts {
		if !k.parts[i].lacks(h) {
			return false
		}
	}
	return true
}

func (p *knownPart) lacks(h uint64) bool {
	if p.blocks == nil {
		return true
	}
	b := p.block(h)
	for range 6 {
		if b[h>>6&7]&(1<<(h&63)) == 0 {
			return true
		}
		h >>= 9
	}
	return false
}

// empty reports that nothing was added.
func (k *known) empty() bool { return k != nil && k.parts[0].blocks == nil }

// add notes that the database has something of the name with that hash.
func (k *known) add(h uint64) {
	if k == nil {
		return
	}
	p := &k.parts[len(k.parts)-1]
	if p.room == 0 && p.size*64 < knownMost {
		k.parts = append(k.parts, newKnownPart(min(p.size*64*knownStep, knownMost)))
		p = &k.parts[len(k.parts)-1]
	}
	if p.blocks == nil {
		p.blocks = make([]uint64, 8*p.size)
	}
	p.room = max(p.room-1, 0)
	b := p.block(h)
	for range 6 {
		b[h>>6&7] |= 1 << (h & 63)
		h >>= 9
	}
}

// block returns where a name's bits are. Which of them, its hash says: nine bits for
// each.
func (p *knownPart) block(h uint64) *[8]uint64 {
	at, _ := bits.Mul64(h*0x9e3779b97f4a7c15, uint64(p.size)) // of other bits than the six
	return (*[8]uint64)(p.blocks[8*at:])
}
