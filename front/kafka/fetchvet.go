package kafka

import (
	"fmt"
	"sync"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/partition"
	"github.com/twmb/franz-go/pkg/kerr"
)

// What Fetch reads before it answers: in the normal case nothing.

// suspects are partitions in which a read met damage after bytes of the answer
// had left, so that only the connection could be closed. The next read of one
// is checked before it is answered, so that the client gets what is whole, batch
// by batch, and then an error instead of closed connections for ever. The zero
// value is ready. Safe for concurrent use.
type suspects struct {
	some sync.Map // lattice.TopicPartition -> struct{}
}

func (s *suspects) add(id lattice.TopicPartition) { s.some.Store(id, struct{}{}) }

// vet checks the batches that p is about to answer with, if p is suspect.
func (s *suspects) vet(p *fetchPart) {
	if p.size() == 0 {
		return
	}
	id := p.log.ID()
	if _, suspect := s.some.Load(id); !suspect {
		return
	}
	p.slice.Release()
	p.slice = nil
	slice, err := p.log.Read(p.offset, 1) // one batch
	if err == nil {
		err = check(slice)
		slice.Release()
	}
	if err == nil {
		slice, err = p.log.Read(p.offset, 1)
	}
	if err != nil {
		p.fail(err)
		return
	}
	p.slice = slice
}

// check reads a slice to its end.
func check(slice *partition.Slice) error {
	buf := make([]byte, chunkRoom)
	for n := 0; n < slice.Len(); {
		got, err := slice.NextChunk(buf)
		if n += got; err != nil {
			return err
		}
	}
	return nil
}

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
		p.slice, err = p.log.Read(p.offset, size)
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
