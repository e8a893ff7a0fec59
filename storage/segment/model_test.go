package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/storage/disk"
)

// fataler is what testing.T and rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// item is a block that a model has.
type item struct {
	m Meta
	b []byte
}

func (it *item) String() string {
	if it == nil {
		return "none"
	}
	return fmt.Sprintf("%+v", it.m)
}

// model is what a log should hold. It does every operation on the log too.
type model struct {
	t   fataler
	fs  *disk.Mem
	opt Options
	l   *Log
	rng *rand.Rand

	items  []item
	next   int64
	start  int64 // what was dropped ends here
	term   int32
	seed   uint64
	time   int64
	synced int64            // offset up to which Sync reported success
	head   Resume           // what an engine would have saved
	tried  map[int64][]item // blocks of failed appends, by base
	gone   []item           // blocks that a failed replacement may have taken away
	last   Recovery         // of the last open
}

func newModel(t fataler, fs *disk.Mem, opt Options, seed uint64) *model {
	m := &model{t: t, fs: fs, opt: opt, rng: rand.New(rand.NewPCG(seed, 7)), tried: map[int64][]item{}, time: 1000, head: Resume{Term: -1}}
	m.open()
	return m
}

// open opens the log, retrying faults, and reconciles the model with what was
// recovered.
func (m *model) open() {
	m.t.Helper()
	for range 50 {
		var tail []item
		l, rec, err := Open(m.fs, "/log", m.opt, m.head, func(mt Meta, b []byte) error {
			tail = append(tail, item{mt, bytes.Clone(b)})
			return nil
		})
		if err != nil {
			m.wantKind("open", err, lattice.Storage)
			continue
		}
		m.l = l
		m.recovered(rec, tail)
		return
	}
	m.t.Fatalf("the log does not open")
}

func (m *model) recovered(rec Recovery, tail []item) {
	m.t.Helper()
	m.last = rec
	if len(rec.Damaged) > 0 {
		m.t.Fatalf("damage after a crash: %+v", rec.Damaged)
	}
	if m.l.Next() < m.synced {
		m.t.Fatalf("the log ends at %d, synced up to %d; recovery %+v, cut %+v", m.l.Next(), m.synced, rec, rec.Cut)
	}
	// What the model had before the head stays; the tail must be what was
	// appended, or tried to be.
	keep := m.items[:0:0]
	for _, it := range m.items {
		if it.m.Base < m.head.Next {
			keep = append(keep, it)
		}
	}
	had := m.items
	m.items = keep
	for _, it := range tail {
		i, ok := slices.BinarySearchFunc(had, it.m.Base, byBase)
		match := ok && bytes.Equal(had[i].b, it.b)
		for _, tr := range m.tried[it.m.Base] {
			match = match || bytes.Equal(tr.b, it.b)
		}
		if !match {
			m.t.Fatalf("block at offset %d is not what was appended", it.m.Base)
		}
		m.items = append(m.items, it)
	}
	m.next = m.l.Next()
	m.term = max(m.term, m.head.Term)
	m.synced = m.head.Next
	m.items = append(without(m.items, m.gone), m.gone...) // the crash may have undone it, too
	slices.SortFunc(m.items, func(a, b item) int { return byBase(a, b.m.Base) })
	m.settle()
	m.gone = nil
}

func byBase(it item, base int64) int { return int(min(max(it.m.Base-base, -1), 1)) }

func (m *model) wantKind(what string, err error, kinds ...lattice.Kind) {
	m.t.Helper()
	if !slices.Contains(kinds, lattice.KindOf(err)) {
		m.t.Fatalf("%s: %v (kind %v, want %v)", what, err, lattice.KindOf(err), kinds)
	}
}

func (m *model) append(n int) error {
	m.t.Helper()
	var metas []Meta
	var sizes []int
	var data []byte
	var items []item
	next := m.next
	for range n {
		m.seed++
		m.time += int64(m.rng.IntN(20)) - 5
		mt := Meta{Base: next, Last: next + int64(m.rng.IntN(4)), MaxTime: m.time, Term: m.term}
		b := block(mt, testHeader+m.rng.IntN(600), m.seed)
		metas, sizes, data = append(metas, mt), append(sizes, len(b)), append(data, b...)
		items = append(items, item{mt, b})
		next = mt.Last + 1
	}
	pos, err := m.l.Append(metas, sizes, bytes.Clone(data))
	if err != nil {
		m.wantKind("append", err, lattice.Storage)
		for _, it := range items {
			m.tried[it.m.Base] = append(m.tried[it.m.Base], it)
		}
		return err
	}
	if mt, at, err := m.l.Find(metas[0].Base); err == nil && (mt != metas[0] || at != pos) {
		m.t.Fatalf("appended at %s, found %+v at %s", pos, mt, at)
	}
	m.items = append(m.items, items...)
	m.next = next
	return nil
}

func (m *model) sync() error {
	m.t.Helper()
	end, next := m.l.End()
	if err := m.l.Sync(end); err != nil {
		m.wantKind("sync", err, lattice.Storage)
		return err
	}
	pos, off := m.l.Synced()
	if off < next || pos.Compare(end) < 0 {
		m.t.Fatalf("synced up to %s, offset %d, want %s, %d", pos, off, end, next)
	}
	m.synced = off
	return nil
}

// saveHead does what an engine does after a sync: it remembers the place.
func (m *model) saveHead() {
	pos, off := m.l.Synced()
	term := int32(-1)
	for _, it := range m.items {
		if it.m.Base < off {
			term = it.m.Term
		}
	}
	m.head = Resume{Pos: pos, Next: off, Term: term, Start: m.start}
	m.synced = max(m.synced, off)
}

func (m *model) drop(before int64) error {
	m.t.Helper()
	err := m.l.Drop(before)
	if err != nil {
		m.wantKind("drop", err, lattice.Storage)
	}
	m.start = max(m.start, min(before, m.l.Start()))
	m.items = slices.DeleteFunc(m.items, func(it item) bool { return it.m.Base < m.start })
	return err
}

// replace compacts a sealed segment, keeping some blocks.
func (m *model) replace() error {
	m.t.Helper()
	infos, err := m.l.Segments()
	if err != nil {
		m.wantKind("segments", err, lattice.Storage)
		return err
	}
	var pick []Info
	for _, i := range infos {
		if i.Sealed && i.Next <= m.head.Next { // an engine compacts only behind its head
			pick = append(pick, i)
		}
	}
	if len(pick) == 0 {
		return nil
	}
	in := pick[m.rng.IntN(len(pick))]
	var keep, gone []item
	for _, it := range m.items {
		if it.m.Base >= in.Base && it.m.Base < in.Next {
			if m.rng.IntN(2) == 0 {
				keep = append(keep, it)
			} else {
				gone = append(gone, it)
			}
		}
	}
	return m.replaceBy(in.Base, keep, gone)
}

// replaceBy replaces a segment's blocks by keep, which leaves out gone.
func (m *model) replaceBy(base int64, keep, gone []item) error {
	m.t.Helper()
	err := m.l.Replace(base, func(w io.Writer) error {
		for _, it := range keep {
			if _, err := w.Write(it.b); err != nil {
				return err
			}
		}
		return nil
	})
	m.gone = gone
	if err != nil {
		m.wantKind("replace", err, lattice.Storage)
		m.settle()
		return err
	}
	m.items = without(m.items, gone)
	m.gone = nil
	return nil
}

func without(items, gone []item) []item {
	return slices.DeleteFunc(slices.Clone(items), func(it item) bool {
		return slices.ContainsFunc(gone, func(g item) bool { return g.m == it.m })
	})
}

// settle finds out whether a failed replacement took place.
func (m *model) settle() {
	m.t.Helper()
	if len(m.gone) == 0 {
		return
	}
	defer m.fs.SetFault(nil)
	m.fs.SetFault(nil)
	_, b, err := m.l.Read(m.gone[0].m.Base, nil)
	if err != nil && lattice.KindOf(err) != lattice.NotYet {
		m.t.Fatalf("read after a failed replacement: %v", err)
	}
	if err != nil || !bytes.Equal(b, m.gone[0].b) {
		m.items = without(m.items, m.gone)
	}
}

// crash takes the power away, and opens what is left.
func (m *model) crash(percent int) {
	m.t.Helper()
	clone := m.fs.CrashClone(percent, m.rng)
	m.fs.SetFault(nil)
	_ = m.l.Close()
	m.fs = clone
	m.head.Start = m.start
	m.open()
	m.term++
}

// reopen stops the process, cleanly or not, and opens the log again.
func (m *model) reopen(clean bool) {
	m.t.Helper()
	if clean {
		if err := m.l.Close(); err != nil {
			m.wantKind("close", err, lattice.Storage)
		}
	} else {
		m.opt.Handles = NewHandles(m.opt.Handles.limit) // the process is gone, with its files
	}
	m.head.Start = m.start
	m.open()
	m.term++
}

// check compares everything readable with the model.
func (m *model) check() {
	m.t.Helper()
	if m.l.Next() != m.next {
		m.t.Fatalf("next %d, want %d", m.l.Next(), m.next)
	}
	if err := m.l.Drop(m.start); err != nil { // files that a failed drop left behind
		m.t.Fatalf("drop again: %v", err)
	}
	from := m.l.Start()
	if len(m.items) > 0 && from > m.items[0].m.Base {
		m.t.Fatalf("the log starts at %d, want %d", from, m.items[0].m.Base)
	}
	var want []byte
	for _, it := range m.items {
		if it.m.Base >= from {
			want = append(want, it.b...)
		}
	}
	var got []byte
	if err := m.l.Walk(max(from, m.start), m.next, func(_ Meta, _ Pos, b []byte) error {
		got = append(got, b...)
		return nil
	}); err != nil {
		m.t.Fatalf("walk: %v", err)
	}
	if !bytes.Equal(got, want) {
		m.t.Fatalf("the log has %d bytes, want %d; they differ at %d", len(got), len(want), firstDifference(got, want))
	}
	for range 5 {
		m.checkSpans(m.start+m.rng.Int64N(m.next-m.start+1), m.rng.Int64N(m.next+2), m.rng.Int64N(3000))
	}
	m.checkTimes()
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// checkSpans compares one ranged read, and a lookup of its first offset.
func (m *model) checkSpans(from, limit, maxBytes int64) {
	m.t.Helper()
	i, ok := slices.BinarySearchFunc(m.items, from, byBase)
	if !ok && i > 0 && m.items[i-1].m.Last >= from {
		i--
	}
	var want []byte
	last := int64(-1)
	for j := i; j < len(m.items) && from < limit; j++ {
		it := m.items[j]
		if it.m.Last >= limit || len(want) > 0 && int64(len(want)+len(it.b)) > maxBytes {
			break
		}
		want = append(want, it.b...)
		last = it.m.Last
	}
	spans, err := m.l.Spans(from, limit, maxBytes)
	if err != nil {
		m.t.Fatalf("spans from %d: %v", from, err)
	}
	var got []byte
	next := from
	for _, s := range spans {
		if s.First < next && next > from || s.Last < s.First || s.Last >= limit {
			m.t.Fatalf("span of offsets %d to %d behind %d, limit %d", s.First, s.Last, next, limit)
		}
		next = s.Last + 1
		b := make([]byte, s.Len)
		if _, err := s.ReadAt(b, 0); err != nil {
			m.t.Fatalf("read span: %v", err)
		}
		got = append(got, b...)
	}
	ReleaseAll(spans)
	if len(spans) > 0 && spans[len(spans)-1].Last < last {
		m.t.Fatalf("spans(%d, %d, %d) end at %d, their last block at %d", from, limit, maxBytes, spans[len(spans)-1].Last, last)
	}
	if !bytes.Equal(got, want) {
		m.t.Fatalf("spans(%d, %d, %d): %d bytes, want %d", from, limit, maxBytes, len(got), len(want))
	}
	if from >= m.next {
		return
	}
	mt, b, err := m.l.Read(from, nil)
	switch {
	case i == len(m.items): // everything from there was compacted away
		if lattice.KindOf(err) != lattice.NotYet {
			m.t.Fatalf("read %d: %v", from, err)
		}
	case err != nil || mt != m.items[i].m || !bytes.Equal(b, m.items[i].b):
		m.t.Fatalf("read %d: %+v, %v, want %+v", from, mt, err, m.items[i].m)
	}
}

func (m *model) checkTimes() {
	m.t.Helper()
	ms := m.time - m.rng.Int64N(m.time)
	best := item{m: Meta{MaxTime: -1}}
	var want *item
	from := m.l.Start()
	for _, it := range m.items {
		if it.m.Base < from {
			continue
		}
		if it.m.MaxTime > best.m.MaxTime {
			best = it
		}
		if want == nil && it.m.MaxTime >= ms {
			want = &it
		}
	}
	mt, ok, err := m.l.FindTime(ms)
	if err != nil || ok != (want != nil) || ok && mt != want.m {
		m.t.Fatalf("time %d: %+v %v %v, want %v", ms, mt, ok, err, want)
	}
	mt, ok, err = m.l.FindMaxTime()
	if err != nil || ok != (best.b != nil) || ok && mt != best.m {
		m.t.Fatalf("greatest time: %+v %v %v, want %+v", mt, ok, err, best.m)
	}
	infos, err := m.l.Segments()
	if err != nil {
		m.t.Fatalf("segments: %v", err)
	}
	for _, in := range infos {
		var first, most int64 = -1, -1
		n := int64(0)
		for _, it := range m.items {
			if it.m.Base >= in.Base && it.m.Base < in.Next {
				if n == 0 {
					first = it.m.MaxTime
				}
				most = max(most, it.m.MaxTime)
				n += int64(len(it.b))
			}
		}
		if in.FirstTime != first || in.MaxTime != most || in.Bytes != n {
			m.t.Fatalf("segment %+v, want first time %d, greatest %d, %d bytes", in, first, most, n)
		}
	}
}

var errFault = errors.New("injected")

// randomFaults fails operations that change something with a probability of one
// in n: half of them applied all the same.
func randomFaults(rng *rand.Rand, n int) func(disk.Op) *disk.Fault {
	return func(op disk.Op) *disk.Fault {
		if !op.Kind.Changes() || rng.IntN(n) != 0 {
			return nil
		}
		return &disk.Fault{Err: fmt.Errorf("%w: %s", errFault, op.Kind), Kept: rng.IntN(2) == 0, Short: rng.Int64N(700)}
	}
}
