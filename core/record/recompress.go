package record

import (
	"encoding/binary"
	"fmt"
)

// Recompressor puts batches into another codec. The zero value is ready; it
// keeps its buffers, decoders and encoders between batches, so keep it and reuse
// it.
type Recompressor struct {
	r Reader
	c compressor
}

// Recompress appends batch, one whole batch, to dst with its records compressed
// by codec. Codec, length and checksum are new; every other field, and each
// record, stays as it was, so that a producer's sequence is what it sent. A batch
// that has the codec is appended verbatim. The records themselves are not looked
// at. On an error dst is returned as it was.
func (c *Recompressor) Recompress(dst, batch []byte, codec Codec, l Limits) ([]byte, error) {
	if !codec.known() {
		return dst, fmt.Errorf("recompress: %w: %v", ErrCodec, codec)
	}
	if err := c.r.Open(batch, l); err != nil {
		return dst, fmt.Errorf("recompress to %v: %w", codec, err)
	}
	if c.r.h.Compression() == codec {
		return append(dst, batch...), nil
	}
	at := len(dst)
	dst = append(dst, batch[:HeaderSize]...)
	attr := dst[at+atAttributes:]
	binary.BigEndian.PutUint16(attr, binary.BigEndian.Uint16(attr)&^attrCodec|uint16(codec))
	dst = c.c.append(dst, codec, c.r.data)
	finish(dst[at:])
	return dst, nil
}
