package flow

// entry is one frame that waits to be sent: written already, or a patch.
type entry struct {
	sub   *Sub
	item  *Item
	frame []byte
	// cursor is what the client has when it has handled the frame; empty: as before.
	cursor string
}

func (e *entry) empty() bool { return e.item == nil && e.frame == nil }

func (e *entry) bytes() int {
	if e.item != nil {
		return e.item.bytes()
	}
	return len(e.frame)
}

type rowOfSub struct {
	sub *Sub
	row rowID
}

// queue keeps entries in order. Once it merges, it holds each row of a subscription
// once, at the place of its oldest patch and with what the newest made of it, until it is
// empty. So a frame's cursor never covers a patch that is not before it.
type queue struct {
	entries []entry
	base    int // the number of entries[0]
	live    int // entries that are not empty
	size    int // their bytes
	rows    map[rowOfSub]int
	merged  int64
}

// push appends an entry, or merges it.
func (q *queue) push(e entry) {
	if q.rows != nil && e.item != nil {
		k := rowOfSub{e.sub, e.item.row}
		if n, there := q.rows[k]; there {
			old := &q.entries[n-q.base]
			q.size -= old.bytes()
			old.item = merge(old.item, e.item)
			q.size += old.bytes()
			q.merged++
			return
		}
		q.rows[k] = q.base + len(q.entries)
	}
	q.entries = append(q.entries, e)
	q.live++
	q.size += e.bytes()
}

// startMerging merges what is there and what will come.
func (q *queue) startMerging() {
	if q.rows != nil {
		return
	}
	old := q.entries
	*q = queue{rows: map[rowOfSub]int{}, entries: make([]entry, 0, len(old)), merged: q.merged}
	for _, e := range old {
		if !e.empty() {
			q.push(e)
		}
	}
}

// pop returns the oldest entry.
func (q *queue) pop() (entry, bool) {
	for len(q.entries) > 0 {
		e := q.entries[0]
		q.drop(0)
		q.entries, q.base = q.entries[1:], q.base+1
		if e.empty() {
			continue
		}
		if q.live == 0 {
			*q = queue{merged: q.merged} // an idle connection holds no memory for what it had
		}
		return e, true
	}
	return entry{}, false
}

// drop empties an entry.
func (q *queue) drop(i int) {
	e := &q.entries[i]
	if e.empty() {
		return
	}
	if q.rows != nil && e.item != nil {
		delete(q.rows, rowOfSub{e.sub, e.item.row})
	}
	q.size -= e.bytes()
	q.live--
	*e = entry{}
}

// purge drops the entries of one subscription.
func (q *queue) purge(s *Sub) {
	for i := range q.entries {
		if q.entries[i].sub == s {
			q.drop(i)
		}
	}
}
