package keyval

import (
	"bytes"
	"encoding/binary"

	"github.com/lattice-log/lattice/core/state"
)

// packed is keys that hold one head of a register and nothing else, as most keys
// do, while logs are folded and nobody else is there (see replay.go). They lie in
// slabs without pointers: a key takes a fifth of what an entry of the table takes,
// costs no allocation, and the collector does not look at it. A key is here or in
// the table, never in both: what does not leave it as it has to be here takes it
// out (table.unpack). For one goroutine.
//
//	index   hash 32, number of a record + 1, 32: open addressing; 0: free
//	keys    records of 48 bytes: where name and payload are, the dot and time of
//	        the head, and what the fold database has of it
//	text    names as in the fold database ("k", inner), payloads as in a row
type packed struct {
	index []uint64
	keys  []*[slabKeys]packedKey
	n     uint32 // records, with those that are gone
	text  []*[textChunk]byte
	end   uint32   // where text goes on
	dirty []uint32 // numbers of records; of those that are gone, too
	order []placed // scratch
}

// packedKey is a record.
type packedKey struct {
	hash   uint64 // of its name
	time   uint64
	seq    uint64
	index  uint32 // of the operation in its entry
	writer uint32 // number
	name   uint32 // where it begins in text
	value  uint32
	// Lengths of the name, of the payload, and of the room that there is for one.
	nameLen, valueLen, room uint16
	flags                   uint8
}

const (
	packedDirty  = 1 << iota // the fold database does not hold it as it is here
	packedStored             // it holds something of that name
	packedGone               // the table has the key
)

const (
	slabKeys  = 4096
	textChunk = 1 << 20
	// packedName and packedValue bound what is packed: a register's row that is
	// larger stands apart in the fold database, and large names are rare.
	packedName  = 1024
	packedValue = inlineMax - 32
	// packedCost is what a key takes besides its name and payload, about.
	packedCost = 48 + 24
)

func newPacked() *packed { return &packed{index: make([]uint64, 1<<12)} }

// size returns what all takes in memory, about.
func (p *packed) size() int64 { return int64(p.n)*packedCost + int64(p.end) }

// reset forgets all keys, of which none may be dirty. Their memory is used again.
func (p *packed) reset() {
	clear(p.index)
	p.n, p.end, p.dirty = 0, 0, p.dirty[:0]
}

func (p *packed) at(n uint32) *packedKey { return &p.keys[n/slabKeys][n%slabKeys] }

func (p *packed) bytes(at uint32, n uint16) []byte { return p.text[at/textChunk][at%textChunk:][:n:n] }

func (p *packed) nameOf(x *packedKey) []byte  { return p.bytes(x.name, x.nameLen) }
func (p *packed) valueOf(x *packedKey) []byte { return p.bytes(x.value, x.valueLen) }

// find returns the number of the key of that name, whose hash is h.
func (p *packed) find(h uint64, name []byte) (n uint32, ok bool) {
	mask := uint64(len(p.index) - 1)
	for i := h & mask; p.index[i] != 0; i = (i + 1) & mask {
		if slot := p.index[i]; slot>>32 == h>>32 {
			n = uint32(slot) - 1
			if x := p.at(n); x.hash == h && x.flags&packedGone == 0 && string(p.nameOf(x)) == string(name) {
				return n, true
			}
		}
	}
	return 0, false
}

// add makes the record of a key that is not here.
func (p *packed) add(h uint64, name []byte) uint32 {
	n := p.n
	if 2*int(n+1) > len(p.index) {
		p.index = make([]uint64, 2*len(p.index))
		for old := range n {
			p.place(p.at(old).hash, old)
		}
	}
	if int(n/slabKeys) == len(p.keys) {
		p.keys = append(p.keys, new([slabKeys]packedKey))
	}
	p.n++
	at := p.take(len(name))
	*p.at(n) = packedKey{hash: h, name: at, nameLen: uint16(len(name))}
	copy(p.nameOf(p.at(n)), name)
	p.place(h, n)
	return n
}

func (p *packed) place(h uint64, n uint32) {
	mask := uint64(len(p.index) - 1)
	i := h & mask
	for p.index[i] != 0 {
		i = (i + 1) & mask
	}
	p.index[i] = h>>32<<32 | uint64(n+1)
}

// take returns where there is room for n bytes of text.
func (p *packed) take(n int) uint32 {
	if left := textChunk - int(p.end%textChunk); n > left {
		p.end += uint32(left)
	}
	if int(p.end/textChunk) == len(p.text) {
		p.text = append(p.text, new([textChunk]byte))
	}
	at := p.end
	p.end += uint32(n)
	return at
}

// set gives a key another head.
func (p *packed) set(x *packedKey, writer uint32, d state.Dot, time uint64, payload []byte) {
	if len(payload) > int(x.room) {
		x.value, x.room = p.take(len(payload)), uint16(len(payload))
	}
	x.valueLen = uint16(len(payload))
	copy(p.valueOf(x), payload)
	x.writer, x.seq, x.index, x.time = writer, d.Seq, d.Index, time
}

// touch notes that the fold database does not hold key n as it is here. It returns
// about what such changes take now, beyond before.
func (p *packed) touch(n uint32) int64 {
	x := p.at(n)
	if x.flags&packedDirty != 0 {
		return 0
	}
	x.flags |= packedDirty
	p.dirty = append(p.dirty, n)
	return packedCost + int64(x.nameLen) + int64(x.room)
}

// write yields the keys that are dirty in the order of the fold database, which
// holds them from then on.
func (p *packed) write(yield func(*packedKey)) {
	name := func(i int) []byte { return p.nameOf(p.at(p.dirty[i])) }
	p.order = inOrder(p.order, len(p.dirty), name, func(a, b int) int { return bytes.Compare(name(a), name(b)) })
	for _, o := range p.order {
		if x := p.at(p.dirty[o.i]); x.flags&packedGone == 0 {
			yield(x)
			x.flags = packedStored
		}
	}
	p.dirty = p.dirty[:0]
}

// pack applies a put, which has dot d in an entry of that time, if its key is
// packed and stays so, or can be; false: it is for the table.
func (t *table) pack(op *state.Put, d state.Dot, time uint64) (bool, error) {
	if a := &op.Address; a.Kind != state.Register || !op.Under.IsZero() || len(a.Key) > packedName-8 || len(op.Payload.Bytes) > packedValue-8 {
		return false, nil
	}
	if t.packedMap == nil || t.packedMap.name != op.Address.Map {
		t.packedMap = t.mapOf(op.Address.Map, true)
	}
	p, m := t.packed, t.packedMap
	t.buf = appendInner(append(t.buf[:0], tagKey), m, op.Address.Key)
	h := t.hash(t.buf)
	n, ok := p.find(h, t.buf)
	if !ok {
		found, err := t.packStored(h)
		if err != nil || found == forTable {
			return false, err
		}
		if found == nowhere {
			n = p.add(h, t.buf)
			m.len++
			m.dirty = t.round
		} else {
			n, ok = p.n-1, true
		}
	}
	if ok && !t.supersedes(op, p.at(n)) {
		return false, nil // both heads stay
	}
	t.payload = t.codec.appendPayload(t.payload[:0], op.Payload)
	p.set(p.at(n), t.codec.w.number(d.Writer), d, time, t.payload)
	t.bytes += p.touch(n)
	return true, nil
}

// supersedes reports whether a put ends the head of a packed key.
func (t *table) supersedes(op *state.Put, x *packedKey) bool {
	for i := range op.Supersedes {
		if d := &op.Supersedes[i]; d.Seq == x.seq && d.Index == x.index && t.codec.w.number(d.Writer) == x.writer {
			return true
		}
	}
	return false
}

// where says what became of looking for a key that is not packed.
type where uint8

const (
	nowhere   where = iota + 1
	forTable        // it is in the table, or is no key to be packed
	nowPacked       // the fold database had it, and it is the last that was packed
)

// packStored looks for the key whose name is in t.buf, and whose hash is h, where it
// can be if it is not packed.
func (t *table) packStored(h uint64) (where, error) {
	inner := t.buf[1:]
	if t.total.Load() > 0 {
		if s, _ := t.shardOf(inner); s.keys[string(inner)] != nil {
			return forTable, nil
		}
	}
	if t.absent.lacks(h) {
		return nowhere, nil
	}
	v, ok, err := t.db.Get(t.buf)
	if err != nil || !ok {
		return nowhere, err
	}
	r := reader{rest: v, w: t.codec.w}
	if r.take(1)[0] != flagRegister || r.uvarint() != 1 {
		return forTable, nil // there is more of it; or it is damaged, as whoever reads it all will say
	}
	writer := r.uvarint()
	d := state.Dot{Seq: r.uvarint(), Index: uint32(r.uvarint())}
	time := binary.BigEndian.Uint64(r.take(8))
	if r.bad || len(r.rest) > packedValue {
		return forTable, nil
	}
	x := t.packed.at(t.packed.add(h, t.buf))
	t.packed.set(x, uint32(writer), d, time, r.rest)
	x.flags = packedStored
	return nowPacked, nil
}

// unpack fills e, which is new, from its packed key, if there is one.
func (t *table) unpack(e *entry) (bool, error) {
	p := t.packed
	if p == nil {
		return false, nil
	}
	t.buf = recordKey(t.buf[:0], e.inner)
	n, ok := p.find(t.hash(t.buf), t.buf)
	if !ok {
		return false, nil
	}
	x := p.at(n)
	k, _, err := t.codec.parseKey(t.codec.appendPacked(nil, p, x))
	if err != nil {
		return false, err
	}
	e.keyState, e.counted, e.stored = k, true, x.flags&packedStored != 0
	if x.flags&packedDirty != 0 {
		e.dirty = t.round
		t.dirty = append(t.dirty, item{e: e})
		t.bytes += e.size()
	}
	x.flags |= packedGone
	return true, nil
}

// appendPacked appends the record of a packed key, as appendKey does.
func (c codec) appendPacked(b []byte, p *packed, x *packedKey) []byte {
	b = append(b, flagRegister, 1)
	b = binary.AppendUvarint(b, uint64(x.writer))
	b = binary.AppendUvarint(b, x.seq)
	b = binary.AppendUvarint(b, uint64(x.index))
	b = binary.BigEndian.AppendUint64(b, x.time)
	return append(b, p.valueOf(x)...)
}
