package partition

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/engine/signedlog"
	"github.com/lattice-log/lattice/storage/segment"
)

// maxCompactKeys bounds the memory of one compaction: about 64 bytes a key. A log
// with more distinct keys is compacted in several rounds.
const maxCompactKeys = 2 << 20

// keySum stands for a key: 16 bytes of its SHA-256, so that memory does not
// depend on the keys' length and no producer can make two keys collide.
type keySum [16]byte

func sumKey(key []byte) keySum {
	h := sha256.Sum256(key)
	return keySum(h[:16])
}

// compact keeps, of all records with one key in the sealed files, the last, at
// its offset; the tree goes on covering the original batches. A tombstone goes
// once it was through a compaction (so that everything it deletes is gone) and is
// older than delete.retention.ms.
//
// Records of aborted transactions replace nothing, and go; nothing is done above
// the last stable offset. Markers stay. Aborted transactions of which no batch is left
// are forgotten; a crash before that is noted remembers them once more, which does no
// harm.
//
// Each file is rewritten beside the old one and renamed over it, after a signed
// statement about the new bytes is durable: a crash leaves the old file or the
// new one, and a statement for either.
func (p *Partition) compact(ctx context.Context, cfg *Config, now time.Time) error {
	cleaned, err := p.o.Meta.CleanedTo()
	if err != nil {
		return fmt.Errorf("compact %s: %w", p.id, err)
	}
	segs, dirty := p.compactable(cfg, now, cleaned)
	if len(segs) == 0 || !dirty {
		return nil
	}
	if _, err := p.log.Certify(ctx); err != nil { // statements name a checkpoint that covers the files
		return fmt.Errorf("compact %s: %w", p.id, err)
	}
	aborted := p.abortedIn(segs[0].Base, segs[len(segs)-1].Next)
	latest, upTo, err := p.latestKeys(ctx, max(cleaned, segs[0].Base), segs, aborted)
	if err != nil {
		return fmt.Errorf("compact %s: %w", p.id, err)
	}
	c := compaction{latest: latest, aborted: aborted, cleaned: cleaned, horizon: now.Add(-cfg.DeleteRetention).UnixMilli()}
	for _, s := range segs {
		if s.Base >= upTo {
			break
		}
		if err := p.rewrite(ctx, s, &c); err != nil {
			return fmt.Errorf("compact %s, segment %d: %w", p.id, s.Base, err)
		}
	}
	if err := p.o.Meta.PutCleanedTo(upTo); err != nil {
		return fmt.Errorf("compact %s: %w", p.id, err)
	}
	p.forgetAborted(upTo)
	p.o.Logger.Info("compacted", "partition", p.id, "up_to", upTo, "keys", len(latest), "dropped", c.dropped)
	return nil
}

// compactable returns the sealed files that are old enough, and whether enough of
// them is new since the last time.
func (p *Partition) compactable(cfg *Config, now time.Time, cleaned int64) (segs []segment.Info, dirty bool) {
	stable := p.Bounds().Stable
	youngest := now.Add(-cfg.MinCompactionLag).UnixMilli()
	var all, fresh int64
	oldest := now.UnixMilli()
	for _, s := range p.log.State().Segments {
		if !s.Sealed || s.Next > stable || cfg.MinCompactionLag > 0 && s.MaxTime > youngest {
			break
		}
		segs = append(segs, s)
		all += s.Bytes
		if s.Base >= cleaned {
			fresh += s.Bytes
			if s.FirstTime >= 0 {
				oldest = min(oldest, s.FirstTime)
			}
		}
	}
	if fresh == 0 {
		return nil, false
	}
	overdue := cfg.MaxCompactionLag != MaxDuration && oldest < now.Add(-cfg.MaxCompactionLag).UnixMilli()
	return segs, overdue || float64(fresh) >= cfg.MinCleanableRatio*float64(all)
}

// abortedIn returns a function that knows the batches of aborted transactions that
// have one in [from, to).
func (p *Partition) abortedIn(from, to int64) func(record.Header) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return InAborted(p.producers.txns.within(from, to))
}

// latestKeys returns the last offset of each key in the files from offset from on,
// and how far it came: a file's end.
func (p *Partition) latestKeys(ctx context.Context, from int64, segs []segment.Info, aborted func(record.Header) bool) (map[keySum]int64, int64, error) {
	latest := map[keySum]int64{}
	var r record.Reader
	upTo := from
	for _, s := range segs {
		if s.Next <= from {
			continue
		}
		err := p.log.Scan(s.Base, s.Next, func(b signedlog.Block) error {
			if err := errors.Join(ctx.Err(), r.Open(b.Data, p.o.Limits)); err != nil {
				return err
			}
			if r.Header().Control() || aborted(r.Header()) {
				return nil
			}
			var rec record.Record
			for {
				more, err := r.Next(&rec)
				if err != nil || !more {
					return err
				}
				if rec.Key != nil {
					latest[sumKey(rec.Key)] = rec.Offset
				}
			}
		})
		if err != nil {
			return nil, 0, err
		}
		upTo = s.Next
		if len(latest) >= maxCompactKeys {
			break
		}
	}
	return latest, upTo, nil
}

// compaction is one round's decision for each record.
type compaction struct {
	latest  map[keySum]int64
	aborted func(record.Header) bool
	cleaned int64 // records below were through a compaction before
	horizon int64 // tombstones older than this may go
	dropped int
}

func (c *compaction) keep(r record.Record) record.Keep {
	if r.Key == nil {
		c.dropped++ // written before the topic was compacted: nothing can replace it
		return record.Drop
	}
	if last, ok := c.latest[sumKey(r.Key)]; ok && r.Offset < last {
		c.dropped++
		return record.Drop
	}
	if r.Value == nil && r.Offset < c.cleaned && r.Timestamp < c.horizon {
		c.dropped++
		return record.Drop
	}
	return record.Retain
}

// rewrite replaces one file by what the compaction keeps of it.
func (p *Partition) rewrite(ctx context.Context, s segment.Info, c *compaction) error {
	var f record.Filterer
	before := c.dropped
	settle := func(sum [32]byte, size int64) error { return p.state(s, sum, size) }
	replaced, err := p.log.Rewrite(s.Base, settle, func(w io.Writer) (changed bool, err error) {
		var buf []byte
		err = p.log.Scan(s.Base, s.Next, func(b signedlog.Block) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			h, err := record.ParseHeader(b.Data)
			if err != nil {
				return err
			}
			if c.aborted(h) {
				c.dropped += int(h.Count)
				return nil
			}
			out := b.Data
			if !h.Control() {
				var kept int
				if buf, kept, err = f.Filter(buf[:0], b.Data, p.o.Limits, c.keep); err != nil {
					return err
				}
				if kept == 0 {
					return nil
				}
				out = buf
			}
			_, err = w.Write(out)
			return err
		})
		return c.dropped > before, err
	})
	if err != nil || !replaced {
		return err
	}
	return p.o.Meta.Settle(s.Base)
}

// state signs what became of a file and makes it durable, before the rename.
func (p *Partition) state(s segment.Info, sum [32]byte, size int64) error {
	signed, err := p.statement(s, sum, size)
	if err != nil {
		return err
	}
	return p.o.Meta.PutStatement(s.Base, signed)
}
