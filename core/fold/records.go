package fold

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/roster"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// What a machine must find again after a restart are records: small values under
// keys, of which few change with an entry. Big-endian; every value begins with
// its version, u8 = 1.
//
//	key                                    value after the version
//	"a" author                             flags u8 (1 forked, 2 rooted), fork
//	                                       incarnation and sequence u64, root u64
//	"c" writer                             flags u8 (1 follows, 2 has taken), tip
//	                                       sequence u64 and id 32, time u64, last
//	                                       with an effect: sequence u64 and id 32,
//	                                       what it follows: incarnation and
//	                                       sequence u64, broken u64
//	"b" writer                             flags u8 (1 has named more since), then
//	                                       the last entry that is folded for good:
//	                                       sequence u64, id 32
//	"d" writer, other writer               sequence u64: the last that it had named
//	                                       there, once it has named more
//	"e" author 32, incarnation, sequence,  needs u8, u32 n, then n x: kind u16,
//	    id 32                              length u32, body: operations of core/roster
//	"f" author                             what it has reported (reports.go)
//	"g" writer, sequence u64, author 32,   nothing: entry sequence names that grant
//	    incarnation, sequence, id 32
//	"m"                                    u8: 1 if a rebuild is due
//	"n" writer, other writer               sequence u64: the last that was named
//	"t" writer, other writer               sequence u64: the last that the chain
//	                                       which it follows had named, if taken
//	"s" writer, sequence u64               role u8: folded with it from there on
//
// A writer is author 32, incarnation u64.
const (
	recordVersion = 1

	tagAuthor  = 'a'
	tagBase    = 'b'
	tagChain   = 'c'
	tagGround  = 'd'
	tagEntry   = 'e'
	tagGrant   = 'g'
	tagMachine = 'm'
	tagCite    = 'n'
	tagSaid    = 'f'
	tagSegment = 's'
	tagTaken   = 't'

	writerSize = 32 + 8
	refSize    = writerSize + 8 + 32

	flagForked, flagRooted = 1, 2
	flagFollows, flagTaken = 1, 2
	flagGround             = 1
)

// ErrRecord means a record that Changes never returned. Kind Corrupt.
var ErrRecord = lattice.E(lattice.Corrupt, errors.New("malformed record of the fold"))

// Record is to be kept under its key, in the place of one that was.
type Record struct{ Key, Value []byte }

// changes is which records have changed since they were last asked for.
type changes struct {
	all      bool
	stale    bool // as it is kept
	authors  map[lattice.AuthorID]struct{}
	reports  map[lattice.AuthorID]struct{}
	chains   map[*chain]struct{}
	cites    map[citeKey]struct{}
	taken    map[*chain]struct{}
	grounds  map[*chain]struct{}
	entries  map[sigchain.Ref]struct{}
	grants   []Record
	segments []Record
}

type citeKey struct {
	c *chain
	w state.Writer
}

func mark[K comparable](set *map[K]struct{}, k K) {
	if *set == nil {
		*set = map[K]struct{}{}
	}
	(*set)[k] = struct{}{}
}

func (x *changes) author(id lattice.AuthorID)    { mark(&x.authors, id) }
func (x *changes) report(id lattice.AuthorID)    { mark(&x.reports, id) }
func (x *changes) chain(c *chain)                { mark(&x.chains, c) }
func (x *changes) cite(c *chain, w state.Writer) { mark(&x.cites, citeKey{c, w}) }
func (x *changes) takes(c *chain)                { mark(&x.taken, c); mark(&x.chains, c) }
func (x *changes) base(c *chain)                 { mark(&x.grounds, c) }
func (x *changes) entry(at sigchain.Ref)         { mark(&x.entries, at) }
func (x *changes) grant(c *chain, n naming)      { x.grants = append(x.grants, n.record(c)) }
func (x *changes) segment(c *chain, s segment)   { x.segments = append(x.segments, s.record(c)) }
func newRecord(value int) []byte                 { return append(make([]byte, 0, 1+value), recordVersion) }
func key(tag byte, w state.Writer, more int) []byte {
	return appendWriter(append(make([]byte, 0, 1+writerSize+more), tag), w)
}
func appendWriter(b []byte, w state.Writer) []byte {
	return binary.BigEndian.AppendUint64(append(b, w.Author[:]...), w.Incarnation)
}

func appendRef(b []byte, r sigchain.Ref) []byte {
	b = binary.BigEndian.AppendUint64(appendWriter(b, writerOf(r.Place())), r.Seq)
	return append(b, r.ID[:]...)
}

// Changed reports whether Changes would return any.
func (m *Machine) Changed() bool {
	x := &m.changes
	return x.all || m.stale != x.stale || len(x.authors)+len(x.reports)+len(x.chains)+len(x.cites)+len(x.taken)+len(x.grounds)+len(x.entries)+len(x.grants)+len(x.segments) > 0
}

// Changes returns the records that have changed since the last call; after a
// Reset, all there are.
func (m *Machine) Changes() []Record {
	x := m.changes
	m.changes = changes{stale: m.stale}
	if x.all {
		return slices.Collect(m.records)
	}
	var out []Record
	for id := range x.authors {
		out = append(out, m.authors[id].record(id))
	}
	for id := range x.reports {
		if s := m.Said(id); s.At.Seq > 0 {
			out = append(out, saidRecord(id, s))
		}
	}
	for c := range x.chains {
		out = append(out, c.record())
	}
	for k := range x.cites {
		out = append(out, cited(tagCite, k.c.writer, k.w, k.c.named[k.w]))
	}
	for c := range x.taken {
		for w, seq := range c.taken {
			out = append(out, cited(tagTaken, c.writer, w, seq))
		}
	}
	for c := range x.grounds {
		out = append(out, c.baseRecord())
		for w, seq := range c.ground {
			out = append(out, cited(tagGround, c.writer, w, seq))
		}
	}
	for at := range x.entries {
		out = append(out, m.entryRecord(at))
	}
	if m.stale != x.stale {
		out = append(out, m.record())
	}
	return append(append(out, x.grants...), x.segments...)
}

// records yields all there are.
func (m *Machine) records(yield func(Record) bool) {
	more := yield(m.record())
	emit := func(r Record) { more = more && yield(r) }
	for id, a := range m.authors {
		if a.fork.Seq != 0 || a.rooted {
			emit(a.record(id))
		}
		if a.said.At.Seq > 0 {
			emit(saidRecord(id, a.said))
		}
	}
	for e := range m.roster.Entries {
		emit(m.entryRecord(e.At))
	}
	for _, c := range m.chains {
		if c.tip.Seq > 0 || c.after != nil || c.broken != 0 {
			emit(c.record())
		}
		if c.base.Seq > 0 {
			emit(c.baseRecord())
		}
		for w, seq := range c.ground {
			emit(cited(tagGround, c.writer, w, seq))
		}
		for w, seq := range c.named {
			emit(cited(tagCite, c.writer, w, seq))
		}
		for w, seq := range c.taken {
			emit(cited(tagTaken, c.writer, w, seq))
		}
		for _, n := range c.grants {
			emit(n.record(c))
		}
		for _, s := range c.applied {
			emit(s.record(c))
		}
	}
}

func (m *Machine) record() Record {
	v := newRecord(1)
	if m.stale {
		return Record{[]byte{tagMachine}, append(v, 1)}
	}
	return Record{[]byte{tagMachine}, append(v, 0)}
}

func (a *author) record(id lattice.AuthorID) Record {
	flags := byte(0)
	if a.fork.Seq != 0 {
		flags |= flagForked
	}
	if a.rooted {
		flags |= flagRooted
	}
	v := append(newRecord(25), flags)
	v = binary.BigEndian.AppendUint64(v, a.fork.Incarnation)
	v = binary.BigEndian.AppendUint64(v, a.fork.Seq)
	v = binary.BigEndian.AppendUint64(v, a.root)
	return Record{append([]byte{tagAuthor}, id[:]...), v}
}

func (c *chain) record() Record {
	flags, after := byte(0), uint64(0)
	if c.after != nil {
		flags, after = flags|flagFollows, c.after.writer.Incarnation
	}
	if c.taken != nil {
		flags |= flagTaken
	}
	v := append(newRecord(1+8+32+8+8+32+8+8+8), flags)
	v = append(binary.BigEndian.AppendUint64(v, c.tip.Seq), c.tip.ID[:]...)
	v = binary.BigEndian.AppendUint64(v, c.time)
	v = append(binary.BigEndian.AppendUint64(v, c.effective.Seq), c.effective.ID[:]...)
	v = binary.BigEndian.AppendUint64(v, after)
	v = binary.BigEndian.AppendUint64(v, c.from)
	v = binary.BigEndian.AppendUint64(v, c.broken)
	return Record{key(tagChain, c.writer, 0), v}
}

func (c *chain) baseRecord() Record {
	v := append(newRecord(1+8+32), 0)
	if c.ground != nil {
		v[1] = flagGround
	}
	v = append(binary.BigEndian.AppendUint64(v, c.base.Seq), c.base.ID[:]...)
	return Record{key(tagBase, c.writer, 0), v}
}

func cited(tag byte, by, w state.Writer, seq uint64) Record {
	return Record{appendWriter(key(tag, by, writerSize), w), binary.BigEndian.AppendUint64(newRecord(8), seq)}
}

func (n naming) record(c *chain) Record {
	k := binary.BigEndian.AppendUint64(key(tagGrant, c.writer, 8+refSize), n.seq)
	return Record{appendRef(k, n.grant), newRecord(0)}
}

func (s segment) record(c *chain) Record {
	k := binary.BigEndian.AppendUint64(key(tagSegment, c.writer, 8), s.from)
	return Record{k, append(newRecord(1), byte(s.role))}
}

// Restore returns the machine whose Changes came to these records, in any order.
// What waited is to be offered again. Wraps ErrRecord.
func Restore(c Config, records iter.Seq[Record]) (*Machine, error) {
	m, err := New(c)
	if err != nil {
		return nil, err
	}
	for r := range records {
		if err := m.restore(r); err != nil {
			return nil, fmt.Errorf("restore the fold: record %x: %w", r.Key, err)
		}
	}
	m.derive()
	m.changes = changes{stale: m.stale}
	return m, nil
}

// derive finds again what follows from what is recorded.
func (m *Machine) derive() {
	m.moves = 1
	for _, a := range m.authors {
		for _, c := range a.chains {
			slices.SortFunc(c.grants, naming.compare)
			slices.SortFunc(c.applied, segment.compare)
			c.heirs, c.seen = nil, nil
		}
		m.limits(a)
		for _, c := range a.chains {
			if c.after != nil {
				c.inherited = m.Named(c.after.place(c.from))
			}
			if c.after != nil && c.taken == nil && c.tip.Seq > 0 { // others find it when they enter
				c.after.heirs = append(c.after.heirs, c)
			}
			if c.effective.Seq > 0 {
				c.moved = m.moves
			}
		}
	}
}

func (m *Machine) restore(r Record) error {
	if len(r.Key) == 0 || len(r.Value) == 0 {
		return fmt.Errorf("%w: empty", ErrRecord)
	}
	if r.Value[0] != recordVersion {
		return lattice.E(lattice.Unsupported, fmt.Errorf("%w: version %d", ErrRecord, r.Value[0]))
	}
	k, v := fields{rest: r.Key[1:]}, fields{rest: r.Value[1:]}
	var err error
	switch r.Key[0] {
	case tagAuthor:
		a := m.author(lattice.AuthorID(k.take(32)))
		flags := v.u8()
		a.fork.Incarnation, a.fork.Seq, a.root = v.u64(), v.u64(), v.u64()
		a.rooted = flags&flagRooted != 0
		v.bad = v.bad || flags > flagForked|flagRooted || (flags&flagForked != 0) != (a.fork.Seq != 0)
		if a.fork.Seq != 0 {
			a.fork.Author = lattice.AuthorID(r.Key[1:33])
		}
	case tagBase:
		m.restoreBase(k.writer(), &v)
	case tagGround:
		c := m.open(k.writer())
		raise(&c.ground, k.writer(), v.u64())
	case tagChain:
		m.restoreChain(k.writer(), &v)
	case tagEntry:
		err = m.restoreEntry(k.ref(), &v)
	case tagGrant:
		c := m.open(k.writer())
		c.grants = append(c.grants, naming{k.u64(), k.ref()})
	case tagMachine:
		m.stale = v.u8() == 1
	case tagCite:
		c := m.open(k.writer())
		raise(&c.named, k.writer(), v.u64())
	case tagTaken:
		c := m.open(k.writer())
		raise(&c.taken, k.writer(), v.u64())
	case tagSaid:
		m.restoreSaid(lattice.AuthorID(k.take(32)), &v)
	case tagSegment:
		c := m.open(k.writer())
		c.applied = append(c.applied, segment{k.u64(), roster.Role(v.u8())})
	default:
		return fmt.Errorf("%w: key", ErrRecord)
	}
	if err == nil && (k.bad || v.bad || len(k.rest)+len(v.rest) > 0) {
		err = fmt.Errorf("%w: lengths do not fit", ErrRecord)
	}
	return err
}

func raise(f *state.Frontier, w state.Writer, seq uint64) {
	if *f == nil {
		*f = state.Frontier{}
	}
	(*f)[w] = seq
}

func (m *Machine) restoreChain(w state.Writer, v *fields) {
	c := m.open(w)
	flags := v.u8()
	c.tip = sigchain.Link{Incarnation: w.Incarnation, Seq: v.u64(), ID: lattice.Hash(v.take(32))}
	c.time = v.u64()
	c.effective = sigchain.Link{Incarnation: w.Incarnation, Seq: v.u64(), ID: lattice.Hash(v.take(32))}
	after := v.u64()
	c.from, c.broken = v.u64(), v.u64()
	if flags&flagTaken != 0 && c.taken == nil {
		c.taken = state.Frontier{}
	}
	if flags&flagFollows != 0 {
		v.bad = v.bad || after >= w.Incarnation
		if !v.bad {
			c.after = m.open(state.Writer{Author: w.Author, Incarnation: after})
		}
	}
	if c.tip.Seq == 0 {
		c.tip = sigchain.Link{}
	}
	if c.effective.Seq == 0 {
		c.effective = sigchain.Link{}
	}
}

func (m *Machine) restoreBase(w state.Writer, v *fields) {
	c := m.open(w)
	flags := v.u8()
	c.base = sigchain.Link{Incarnation: w.Incarnation, Seq: v.u64(), ID: lattice.Hash(v.take(32))}
	v.bad = v.bad || flags > flagGround || c.base.Seq == 0
	if flags == flagGround && c.ground == nil {
		c.ground = state.Frontier{}
	}
}

// fields takes fields from rest. Once something is missing, bad is set and
// everything reads as zero.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) take(n int) []byte {
	if f.bad || n < 0 || n > len(f.rest) {
		f.bad = true
		return make([]byte, min(max(n, 0), 32))
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) u8() uint8   { return f.take(1)[0] }
func (f *fields) u16() uint16 { return binary.BigEndian.Uint16(f.take(2)) }
func (f *fields) u32() uint32 { return binary.BigEndian.Uint32(f.take(4)) }
func (f *fields) u64() uint64 { return binary.BigEndian.Uint64(f.take(8)) }

func (f *fields) writer() state.Writer {
	return state.Writer{Author: lattice.AuthorID(f.take(32)), Incarnation: f.u64()}
}

func (f *fields) ref() sigchain.Ref {
	w := f.writer()
	return sigchain.Ref{Author: w.Author, Link: sigchain.Link{Incarnation: w.Incarnation, Seq: f.u64(), ID: lattice.Hash(f.take(32))}}
}
