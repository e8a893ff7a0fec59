package authorlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/clock"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/storage/segment"
)

const (
	headerSize = sigchain.FrameHeader
	crcAt      = headerSize - 4
)

// ErrFrame means bytes that are no whole, undamaged frame. Kind Corrupt.
var ErrFrame = lattice.E(lattice.Corrupt, errors.New("damaged frame of an entry"))

func metaOf(seq, time uint64) segment.Meta {
	return segment.Meta{Base: int64(seq - 1), Last: int64(seq - 1), MaxTime: clock.Timestamp(time).Milli()}
}

// Codec reads frames as blocks of a log that begins behind an entry.
type Codec struct{ After uint64 }

// HeaderLen is the length of what precedes an entry.
func (Codec) HeaderLen() int { return headerSize }

// Header reads what precedes an entry.
func (c Codec) Header(b []byte) (segment.Meta, int, error) {
	if len(b) < headerSize || b[0] != 'L' || b[1] != 'A' || b[2] != sigchain.FrameVersion || b[3] != 0 {
		return segment.Meta{}, 0, fmt.Errorf("%w: it does not begin with LA and version %d", ErrFrame, sigchain.FrameVersion)
	}
	size, seq := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])
	if size > sigchain.MaxSize || seq <= c.After || seq > 1<<62 {
		return segment.Meta{}, 0, fmt.Errorf("%w: entry %d of %d bytes", ErrFrame, seq, size)
	}
	return metaOf(seq-c.After, binary.BigEndian.Uint64(b[16:])), headerSize + int(size), nil
}

// Check verifies the checksum of one whole frame.
func (c Codec) Check(b []byte) error {
	_, size, err := c.Header(b)
	if err != nil {
		return err
	}
	if size != len(b) || binary.BigEndian.Uint32(b[crcAt:]) != sigchain.FrameSum(b[:crcAt], b[headerSize:]) {
		return fmt.Errorf("%w: its checksum does not match", ErrFrame)
	}
	return nil
}

// Unframe checks a whole frame and parses its entry, which shares memory with b.
// The signature is the caller's to check. Wraps ErrFrame, or an error of sigchain.Parse.
func Unframe(b []byte) (sigchain.Signed, error) {
	if err := (Codec{}).Check(b); err != nil {
		return sigchain.Signed{}, err
	}
	s, err := sigchain.Parse(b[headerSize:])
	if err != nil {
		return sigchain.Signed{}, err
	}
	if s.Seq != binary.BigEndian.Uint64(b[8:]) || s.Time != binary.BigEndian.Uint64(b[16:]) {
		return sigchain.Signed{}, fmt.Errorf("%w: it is not of the entry in it", ErrFrame)
	}
	return s, nil
}
