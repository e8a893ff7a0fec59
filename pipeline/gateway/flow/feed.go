package flow

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/lattice-log/lattice/pipeline/event"
)

// FeedConfig bounds a feed. The zero value of each field is its default.
type FeedConfig struct {
	// ID names the topic in cursors. It has no dot.
	ID string
	// Recent is the number of patches kept for clients that come back (65,536), and
	// RecentBytes their size (64 MiB).
	Recent, RecentBytes int
	// Rows is the number of rows whose last cursor is known (262,144).
	Rows int
	// Settle is how long a row's first patch waits for an earlier one on another
	// partition (100 ms); GapWait how long any other does (5 s).
	Settle, GapWait time.Duration
	// Held bounds the patches that wait (10,000).
	Held int
	// Replay bounds the patches that one subscription gets replayed (5,000).
	Replay int
}

func (c FeedConfig) withDefaults() FeedConfig {
	ints := map[*int]int{&c.Recent: 65536, &c.RecentBytes: 64 << 20, &c.Rows: 262144, &c.Held: 10000, &c.Replay: 5000}
	for field, value := range ints {
		if *field <= 0 {
			*field = value
		}
	}
	if c.Settle <= 0 {
		c.Settle = 100 * time.Millisecond
	}
	if c.GapWait <= 0 {
		c.GapWait = 5 * time.Second
	}
	return c
}

// FeedStats counts what became of records.
type FeedStats struct {
	Patches, Duplicates, Junk, Stale, Gaps, Resets int64
	Held, Recent, RecentBytes                      int
}

// Feed is the patch topic in one order. One goroutine uses it at a time.
type Feed struct {
	cfg   FeedConfig
	read  Position // all records that were added
	floor Position // what is no longer in recent, or was never read

	recent []*Item // from first on
	first  int
	bytes  int

	// Cursors of rows, in two generations: when the newer is full, the older goes.
	rows, older map[rowID]rowState
	epochs      map[Projection]int64
	rebuilt     map[Projection]int64 // the epoch that a reset was passed on for

	held  map[rowID]*waiting
	count int     // items in held
	order []rowID // rows that wait, the longest first; some may be gone
	stats FeedStats
}

// rowState is the last patch of a row that was passed on.
type rowState struct {
	cursor int64
	gone   bool
}

// waiting are patches of one row whose predecessor has not come.
type waiting struct {
	items []*Item // by their cursor
	until time.Time
	known bool // the row's state was known: what is missing is a gap
}

// NewFeed returns a feed that begins at a position: of what is before, it knows nothing.
func NewFeed(cfg FeedConfig, begin Position) *Feed {
	return &Feed{
		cfg: cfg.withDefaults(), read: begin.clone(), floor: begin.clone(), rows: map[rowID]rowState{}, older: map[rowID]rowState{},
		epochs: map[Projection]int64{}, rebuilt: map[Projection]int64{}, held: map[rowID]*waiting{},
	}
}

// Stats returns the counts.
func (f *Feed) Stats() FeedStats {
	s := f.stats
	s.Recent, s.RecentBytes, s.Held = len(f.recent)-f.first, f.bytes, f.count
	return s
}

// Read returns the offset behind the last record that was read of a partition.
func (f *Feed) Read(partition int32) int64 {
	if int(partition) >= len(f.read) {
		return 0
	}
	return f.read[partition]
}

// Partitions returns how many partitions are known.
func (f *Feed) Partitions() int { return len(f.read) }

// Cursor returns the feed's present cursor.
func (f *Feed) Cursor() string { return f.at().Cursor(f.cfg.ID) }

// Add takes the next record of a partition and returns what is to be passed on. A nil
// patch is a record that could not be read: its row shows as a gap later.
func (f *Feed) Add(now time.Time, partition int32, offset int64, p *event.Patch) []*Item {
	if f.read.has(partition, offset) {
		return nil // the reader began again
	}
	f.read = f.read.set(partition, offset+1)
	if p == nil {
		f.stats.Junk++
		return nil
	}
	it := &Item{
		Projection: Projection{p.TenantSchema, p.ForkID, p.Projection}, Stream: p.Stream, Entity: p.EntityID, Partition: partition, Offset: offset,
		key: compact(p.Key), ops: p.Operations, eventType: p.EventType, prev: p.PrevCursor, last: p.Cursor, epoch: p.Epoch, ts: p.TS,
	}
	epoch, seen := f.epochs[it.Projection]
	var out []*Item
	switch {
	case seen && p.Epoch < epoch:
		f.stats.Stale++ // of tables that nobody reads any more
		return nil
	case p.Reset && p.EntityID == "" && p.Epoch > 0 && f.rebuilt[it.Projection] == p.Epoch:
		f.stats.Duplicates++ // a patch of another partition said it before, or it came again
		return nil
	case p.Reset, seen && p.Epoch > epoch:
		f.epochs[it.Projection] = p.Epoch
		if p.EntityID == "" || p.Epoch > epoch {
			f.rebuilt[it.Projection] = p.Epoch
		}
		f.forget(it.Projection)
		out = append(out, f.reset(it, "rebuilt"))
		if p.Reset {
			return out
		}
	case !seen:
		f.epochs[it.Projection] = p.Epoch
	}
	it.row = rowOf(it.Projection, it.epoch, it.key)
	return f.chain(now, it, out)
}

// chain passes an item on if it follows what its row is, and what waited for it.
func (f *Feed) chain(now time.Time, it *Item, out []*Item) []*Item {
	st, known := f.row(it.row)
	switch {
	case known && it.last <= st.cursor:
		f.stats.Duplicates++ // publishing is at least once
		return out
	case known && st.followedBy(it), !known && it.prev == 0:
		return f.release(f.emit(out, it), it.row)
	case known && !st.gone && it.prev != 0 && it.prev < st.cursor:
		// The chain has another link than the one that was passed on.
		return f.release(f.gap(out, it), it.row)
	}
	return f.hold(now, it, known, out)
}

// hold keeps an item until the one before it is there.
func (f *Feed) hold(now time.Time, it *Item, known bool, out []*Item) []*Item {
	w := f.held[it.row]
	if w == nil {
		w = &waiting{until: now.Add(f.cfg.Settle)}
		if known {
			w.known, w.until = true, now.Add(f.cfg.GapWait)
		}
		f.held[it.row] = w
		f.order = append(f.order, it.row)
	}
	i := 0
	for i < len(w.items) && w.items[i].last < it.last {
		i++
	}
	if i < len(w.items) && w.items[i].last == it.last {
		f.stats.Duplicates++
		return out
	}
	w.items = slices.Insert(w.items, i, it)
	f.count++
	for f.count > f.cfg.Held && len(f.order) > 0 {
		row := f.order[0]
		f.order = f.order[1:]
		out = f.expire(out, row)
		if f.held[row] != nil {
			f.order = append(f.order, row)
		}
	}
	return out
}

// followedBy reports whether an item is the next of the row.
func (s rowState) followedBy(it *Item) bool {
	if s.gone {
		return it.prev == 0 && it.last > s.cursor || it.prev == s.cursor
	}
	return it.prev == s.cursor
}

// release passes on what waited for the row's present state.
func (f *Feed) release(out []*Item, row rowID) []*Item {
	w := f.held[row]
	for w != nil {
		st, _ := f.row(row)
		var next *Item
		var rest []*Item
		for _, it := range w.items {
			switch {
			case it.last <= st.cursor:
				f.stats.Duplicates++
			case next == nil && st.followedBy(it):
				next = it
			default:
				rest = append(rest, it)
			}
		}
		f.count -= len(w.items) - len(rest)
		w.items = rest
		if len(rest) == 0 {
			delete(f.held, row)
		}
		if next == nil {
			break
		}
		out = f.emit(out, next)
	}
	return out
}

// Tick passes on what has waited long enough.
func (f *Feed) Tick(now time.Time) []*Item {
	var out []*Item
	still := f.order[:0:0]
	for _, row := range f.order {
		w := f.held[row]
		switch {
		case w == nil:
		case now.Before(w.until):
			still = append(still, row)
		default:
			out = f.expire(out, row)
			if f.held[row] != nil { // behind what was released, another is missing
				f.held[row].until, f.held[row].known = now.Add(f.cfg.GapWait), true
				still = append(still, row)
			}
		}
	}
	f.order = still
	return out
}

// expire ends the waiting of a row: its first patch is the beginning as far as we
// know, or something was lost.
func (f *Feed) expire(out []*Item, row rowID) []*Item {
	w := f.held[row]
	if w == nil {
		return out
	}
	it := w.items[0]
	f.count--
	if w.items = w.items[1:]; len(w.items) == 0 {
		delete(f.held, row)
	}
	if w.known {
		out = f.gap(out, it)
	} else {
		out = f.emit(out, it)
	}
	return f.release(out, row)
}

// gap has everybody read the projection anew. The item itself is passed on behind:
// it lies behind the reset in every replay, too.
func (f *Feed) gap(out []*Item, it *Item) []*Item {
	f.stats.Gaps++
	return f.emit(append(out, f.reset(it, "gap")), it)
}

// reset makes the item that says so, at the place of another.
func (f *Feed) reset(of *Item, reason string) *Item {
	it := &Item{Projection: of.Projection, Reset: true, Reason: reason, Partition: of.Partition, Offset: of.Offset, epoch: of.epoch}
	f.stats.Resets++
	f.keep(it)
	return it
}

func (f *Feed) emit(out []*Item, it *Item) []*Item {
	f.stats.Patches++
	f.rows[it.row] = rowState{it.last, removed(it.ops)}
	if len(f.rows) > f.cfg.Rows/2 {
		f.older, f.rows = f.rows, make(map[rowID]rowState, len(f.rows))
	}
	f.keep(it)
	return append(out, it)
}

// keep gives an item its place and remembers it.
func (f *Feed) keep(it *Item) {
	it.At = f.at()
	it.Cursor = it.At.Cursor(f.cfg.ID)
	if !it.Reset {
		it.encode()
	}
	f.recent = append(f.recent, it)
	f.bytes += it.bytes()
	for f.first < len(f.recent) && (len(f.recent)-f.first > f.cfg.Recent || f.bytes > f.cfg.RecentBytes) {
		old := f.recent[f.first]
		f.recent[f.first] = nil
		f.first++
		f.bytes -= old.bytes()
		if !f.floor.has(old.Partition, old.Offset) {
			f.floor = f.floor.set(old.Partition, old.Offset+1)
		}
	}
	if f.first > 1024 && f.first > len(f.recent)/2 {
		f.recent = append(f.recent[:0:0], f.recent[f.first:]...)
		f.first = 0
	}
}

// at returns the position to resume from: it does not cover what still waits.
func (f *Feed) at() Position {
	p := f.read.clone()
	for _, w := range f.held {
		for _, it := range w.items {
			p[it.Partition] = min(p[it.Partition], it.Offset)
		}
	}
	return p
}

// forget drops what waits for a projection that is built anew.
func (f *Feed) forget(p Projection) {
	for row, w := range f.held {
		if w.items[0].Projection == p {
			f.stats.Stale += int64(len(w.items))
			f.count -= len(w.items)
			delete(f.held, row)
		}
	}
}

func (f *Feed) row(id rowID) (rowState, bool) {
	st, ok := f.rows[id]
	if !ok {
		st, ok = f.older[id]
	}
	return st, ok
}

// compact writes a key as all of its row's are written.
func compact(key json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(key, &members) != nil {
		return key
	}
	b, err := json.Marshal(members) // in order of their names
	if err != nil {
		return key
	}
	return b
}
