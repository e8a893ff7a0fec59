package keyval

import (
	"fmt"
	"testing"

	"github.com/lattice-log/lattice/core/state"
	"github.com/lattice-log/lattice/internal/tick"
	"github.com/lattice-log/lattice/storage/disk"
)

// TestCacheBytes holds the table to its limit, and about to what it says of its
// size: also when nearly all that was read is rows of one key, which may take what
// other keys leave.
func TestCacheBytes(t *testing.T) {
	const limit, rows = 1 << 20, 20_000
	o := options(disk.NewMem(), 0, 2, tick.NewManual(testEpoch))
	o.CacheBytes = limit
	n := start(t, o)
	defer n.close()
	field := func(i int) state.Address {
		return state.Address{Map: "0", Key: []byte("large"), Kind: state.Field, Sub: fmt.Appendf(nil, "field %d", i)}
	}
	for from := 0; from < rows; from += 1000 {
		n.must(n.update(func(tx *Tx) error {
			for i := from; i < from+1000; i++ {
				if _, err := tx.Put(field(i), state.Payload{Bytes: []byte("value")}, nil, state.Dot{}); err != nil {
					return err
				}
				if err := set(tx, fmt.Sprint(i), "value"); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	now, err := n.settledNow(t.Context()) // all is written, and may be forgotten
	n.must(err)
	now.release()
	read := func(a state.Address, heads int) {
		_, err := n.View(func(tx *Tx) error {
			r, err := tx.Row(a)
			if err == nil && len(r) != heads {
				err = fmt.Errorf("%s %s: %v", a.Key, a.Sub, r)
			}
			return err
		})
		n.must(err)
	}
	for i := range rows { // what was only just written goes first
		read(reg(fmt.Sprint("absent ", i)), 0)
	}
	for i := range rows {
		read(reg(fmt.Sprint(i)), 1)
	}
	for range 3 {
		for i := range rows {
			read(field(i), 1)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	sum, largest := int64(0), int64(0)
	for i := range n.DB.t.shards {
		s := &n.DB.t.shards[i]
		sum, largest = sum+s.bytes, max(largest, s.bytes)
		in := int64(0)
		for _, e := range s.keys {
			in += e.size()
			for _, r := range e.subs {
				if r != nil {
					for _, x := range r.rows {
						in += x.size()
					}
				}
			}
		}
		if in != s.bytes {
			t.Errorf("shard %d holds %d bytes, and says %d", i, in, s.bytes)
		}
	}
	if total := n.DB.t.total.Load(); total != sum || total > limit+1<<16 {
		t.Errorf("the table holds %d bytes, and says %d; its limit is %d", sum, total, limit)
	}
	if largest < limit/4 {
		t.Errorf("the rows of one key take %d bytes of %d at most", largest, limit)
	}
}
