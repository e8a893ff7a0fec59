package kafka

import (
	"fmt"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/twmb/franz-go/pkg/kerr"
)

// withoutZstd cuts p off before the first batch that is compressed with zstd,
// which clients know from version 10 on. An answer that would begin with one is
// an error. Older clients pay for it: their batches are read twice.
func (p *fetchPart) withoutZstd(s *Server) {
	size := p.size()
	if size == 0 {
		return
	}
	buf := s.bufs.get(chunkRoom)
	defer s.bufs.put(buf)
	at, err := zstdAt(p.slice, buf.b[:cap(buf.b)])
	p.slice.Release()
	p.slice = nil
	if err == nil && at == 0 {
		err = fmt.Errorf("%w: the batch at %d is compressed with zstd, which needs Fetch version 10", kerr.UnsupportedCompressionType, p.offset)
	}
	if err == nil {
		p.slice, err = p.find(size)
	}
	if err != nil {
		p.slice = nil
		p.fail(err)
		return
	}
	p.limit = at
}

// zstdAt returns how many bytes of whole batches come before the first one that
// is compressed with zstd. buf is scratch and holds more than a header.
func zstdAt(slice *partition.Slice, buf []byte) (int, error) {
	held := 0 // bytes of a header at the front of buf
	read, next := 0, 0
	for read < slice.Len() {
		n, err := slice.NextChunk(buf[held:])
		if err != nil {
			return 0, err
		}
		at := read - held // where buf begins
		read += n
		for next+record.HeaderSize <= read {
			h, err := record.ParseHeader(buf[next-at:])
			if err != nil {
				return 0, err
			}
			if h.Compression() == record.Zstd {
				return next, nil
			}
			next += h.Size()
		}
		held = 0
		if next < read {
			held = copy(buf, buf[next-at:read-at])
		}
	}
	return next, nil
}
