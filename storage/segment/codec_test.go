package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
)

// testCodec is a small block format: magic, size, offsets, time, term, crc of
// all that follows, payload.
//
//	0     1     5      9      17     25     29
//	| 'B' | crc | size | base | time | count | term | payload
type testCodec struct{}

const testHeader = 33

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (testCodec) HeaderLen() int { return testHeader }

func (testCodec) Header(b []byte) (Meta, int, error) {
	if len(b) < testHeader || b[0] != 'B' {
		return Meta{}, 0, errors.New("no block")
	}
	u := binary.BigEndian
	base := int64(u.Uint64(b[9:]))
	m := Meta{Base: base, Last: base + int64(u.Uint32(b[25:])) - 1, MaxTime: int64(u.Uint64(b[17:])), Term: int32(u.Uint32(b[29:]))}
	return m, int(int32(u.Uint32(b[5:]))), nil
}

func (testCodec) Check(b []byte) error {
	if len(b) < testHeader || crc32.Checksum(b[5:], castagnoli) != binary.BigEndian.Uint32(b[1:]) {
		return fmt.Errorf("checksum of %d bytes", len(b))
	}
	return nil
}

// block makes a block of the given whole size.
func block(m Meta, size int, seed uint64) []byte {
	b := make([]byte, max(size, testHeader))
	u := binary.BigEndian
	rng := rand.New(rand.NewPCG(seed, uint64(m.Base)))
	for i := testHeader; i < len(b); i++ {
		b[i] = byte(rng.Uint32())
	}
	b[0] = 'B'
	u.PutUint32(b[5:], uint32(len(b)))
	u.PutUint64(b[9:], uint64(m.Base))
	u.PutUint64(b[17:], uint64(m.MaxTime))
	u.PutUint32(b[25:], uint32(m.Last-m.Base+1))
	u.PutUint32(b[29:], uint32(m.Term))
	u.PutUint32(b[1:], crc32.Checksum(b[5:], castagnoli))
	return b
}
