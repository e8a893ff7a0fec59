package state

import (
	"encoding/binary"
	"fmt"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/sigchain"
)

// Kinds of operations in entries (core/sigchain). Bodies, version 1:
//
//	16 put     u8 1 | address | payload | supersedes | under dot or none
//	17 end     u8 1 | map | key | scope u8 | kind u8, for scopes kind and row |
//	           sub, for scope row | cites
//	18 expire  u8 1 | map | key | at zigzag | cover cites | supersedes
//
//	address    map | key | kind u8 | sub
//	map        u8 length, bytes; key and sub: uvarint length, bytes
//	cites      uvarint n, then dots, one a writer, ascending
//	supersedes uvarint n, then dots, ascending
//
// The dot of what an operation puts is its entry's writer and sequence number,
// and its index among the entry's operations.
const (
	KindPut    uint16 = 16
	KindEnd    uint16 = 17
	KindExpire uint16 = 18

	opVersion = 1
)

// Scope says what an end reaches.
type Scope uint8

const (
	ScopeKey  Scope = 1 // every row of the key, expiry included
	ScopeKind Scope = 2 // the rows of one kind
	ScopeRow  Scope = 3 // one row
)

// Op is one operation on state: a *Put, an *End or an *Expire.
type Op interface {
	// Encode returns the operation as it stands in an entry of own. Wraps
	// lattice.Invalid when it breaks the rules.
	Encode(own Writer) (sigchain.Op, error)
	// Target returns the key that it changes.
	Target() (m string, key []byte)
	// Names yields every dot that the operation names, and cites as the last dot
	// that they cover.
	Names(yield func(Dot) bool)
}

// Put makes a head at an address, of any kind but expiry.
type Put struct {
	Address    Address
	Payload    Payload
	Supersedes []Dot // ascending
	Under      Dot   // the expiry that the head stands under; zero: none
}

// End ends the heads in a scope that Cites covers. Of Address, the map and key
// are always meant, Kind with ScopeKind and ScopeRow, Sub with ScopeRow.
type End struct {
	Address Address
	Scope   Scope
	Cites   Cites
}

// Expire puts the head of an expiry.
type Expire struct {
	Map        string
	Key        []byte
	Expiring   Expiring
	Supersedes []Dot // ascending
}

// Target returns the key that the put changes.
func (p *Put) Target() (string, []byte) { return p.Address.Map, p.Address.Key }

// Target returns the key that the end changes.
func (e *End) Target() (string, []byte) { return e.Address.Map, e.Address.Key }

// Target returns the key that the expiry changes.
func (e *Expire) Target() (string, []byte) { return e.Map, e.Key }

// Names yields every dot that the put names.
func (p *Put) Names(yield func(Dot) bool) {
	more := true
	each := func(d Dot) { more = more && (d.IsZero() || yield(d)) }
	for _, d := range p.Supersedes {
		each(d)
	}
	each(p.Under)
	if p.Payload.Sum != nil {
		each(p.Payload.Sum.Base)
	}
}

// Names yields the cites.
func (e *End) Names(yield func(Dot) bool) { e.Cites.names(yield) }

// Names yields the cover and every dot that the expiry names.
func (e *Expire) Names(yield func(Dot) bool) {
	if !e.Expiring.Cover.names(yield) {
		return
	}
	for _, d := range e.Supersedes {
		if !yield(d) {
			return
		}
	}
}

// Encode returns the put as it stands in an entry of own.
func (p *Put) Encode(own Writer) (sigchain.Op, error) {
	b, err := p.AppendBody(make([]byte, 0, 32+len(p.Address.Key)+len(p.Address.Sub)+len(p.Payload.Bytes)), own)
	if err != nil {
		return sigchain.Op{}, err
	}
	return sigchain.Op{Kind: KindPut, Body: b}, nil
}

// AppendBody appends the body of what Encode returns to b.
func (p *Put) AppendBody(b []byte, own Writer) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("put: %w", err)
	}
	b = appendTarget(append(b, opVersion), p.Address)
	b = appendBytes(append(b, byte(p.Address.Kind)), p.Address.Sub)
	b = appendPayload(b, p.Payload, own)
	b = appendDots(b, p.Supersedes, own)
	return appendDot(b, p.Under, own), nil
}

func (p *Put) check() error {
	k := p.Address.Kind
	var err error
	switch {
	case k == Expiry:
		err = lattice.E(lattice.Invalid, fmt.Errorf("an expiry is not put"))
	case p.Payload.Sum != nil && (k != Register && k != Field || p.Payload.Bytes != nil):
		err = lattice.E(lattice.Invalid, fmt.Errorf("a subtotal in a %s", k))
	case k == Member && len(p.Payload.Bytes) != 0:
		err = lattice.E(lattice.Invalid, fmt.Errorf("a member with a value"))
	case k == Element && !CheckPosition(p.Address.Sub):
		err = lattice.E(lattice.Invalid, fmt.Errorf("an element at no position"))
	case k == Scored:
		_, err = ParseScore(p.Payload)
	}
	if err == nil {
		err = p.Address.Check()
	}
	if err == nil {
		err = checkDots(p.Supersedes)
	}
	return err
}

// Encode returns the end as it stands in an entry of own.
func (e *End) Encode(own Writer) (sigchain.Op, error) {
	if err := e.check(); err != nil {
		return sigchain.Op{}, fmt.Errorf("end: %w", err)
	}
	b := append(appendTarget([]byte{opVersion}, e.Address), byte(e.Scope))
	if e.Scope != ScopeKey {
		b = append(b, byte(e.Address.Kind))
	}
	if e.Scope == ScopeRow {
		b = appendBytes(b, e.Address.Sub)
	}
	return sigchain.Op{Kind: KindEnd, Body: appendCites(b, e.Cites, own)}, nil
}

func (e *End) check() error {
	a := e.Address
	switch e.Scope {
	case ScopeKey:
		a.Kind, a.Sub = Register, nil
	case ScopeKind:
		a.Sub = nil
	case ScopeRow:
	default:
		return lattice.E(lattice.Invalid, fmt.Errorf("scope %d", e.Scope))
	}
	for i := 1; i < len(e.Cites); i++ {
		if e.Cites[i-1].Writer.Compare(e.Cites[i].Writer) >= 0 {
			return lattice.E(lattice.Invalid, fmt.Errorf("cites out of order"))
		}
	}
	return a.Check()
}

// Encode returns the expiry as it stands in an entry of own.
func (e *Expire) Encode(own Writer) (sigchain.Op, error) {
	err := (&End{Address: Address{Map: e.Map, Key: e.Key}, Scope: ScopeKey, Cites: e.Expiring.Cover}).check()
	if err == nil {
		err = checkDots(e.Supersedes)
	}
	if err != nil {
		return sigchain.Op{}, fmt.Errorf("expire: %w", err)
	}
	b := appendTarget([]byte{opVersion}, Address{Map: e.Map, Key: e.Key})
	b = binary.AppendVarint(b, e.Expiring.At)
	b = appendCites(b, e.Expiring.Cover, own)
	return sigchain.Op{Kind: KindExpire, Body: appendDots(b, e.Supersedes, own)}, nil
}

func checkDots(dots []Dot) error {
	for i, d := range dots {
		if d.Seq == 0 || i > 0 && dots[i-1].Compare(d) >= 0 {
			return lattice.E(lattice.Invalid, fmt.Errorf("superseded dots out of order"))
		}
	}
	return nil
}

func appendTarget(b []byte, a Address) []byte {
	b = append(append(b, byte(len(a.Map))), a.Map...)
	return appendBytes(b, a.Key)
}

// ParseOp reads an operation that stands in an entry of own, of kind KindPut,
// KindEnd or KindExpire. The result shares memory with op. Wraps ErrMalformed or
// sigchain.ErrVersion.
func ParseOp(op sigchain.Op, own Writer) (Op, error) {
	p := Parser{Own: own}
	return p.Parse(op)
}

// Parser reads the operations of an entry of Own, taking memory for many at a
// time: what it returned keeps what it took alive. The zero Parser, with Own set,
// is ready.
type Parser struct {
	Own Writer
	// Puts is how many puts are likely to come.
	Puts int

	m    string // the map of the operation before
	puts []Put
	dots []Dot
}

// parserStep is the most puts or dots that memory is taken for at a time.
const parserStep = 256

// Parse reads the next operation; see ParseOp.
func (p *Parser) Parse(op sigchain.Op) (Op, error) {
	r := reader{rest: op.Body, own: p.Own, parser: p}
	if v := r.u8(); !r.bad && v != opVersion {
		return nil, fmt.Errorf("%w: operation of kind %d, version %d", sigchain.ErrVersion, op.Kind, v)
	}
	var a Address
	if m := r.take(int(r.u8())); string(m) != p.m {
		p.m = string(m)
	}
	a.Map, a.Key = p.m, r.bytes()
	var out Op
	var err error
	switch op.Kind {
	case KindPut:
		put := p.put()
		put.Address = a
		put.Address.Kind = Kind(r.u8())
		put.Address.Sub = r.bytes()
		put.Payload, put.Supersedes, put.Under = r.payload(), r.dots(), r.anyDot()
		out, err = put, put.check()
	case KindEnd:
		e := &End{Address: a, Scope: Scope(r.u8())}
		if e.Scope != ScopeKey {
			e.Address.Kind = Kind(r.u8())
		}
		if e.Scope == ScopeRow {
			e.Address.Sub = r.bytes()
		}
		e.Cites = r.cites()
		out, err = e, e.check()
	case KindExpire:
		e := &Expire{Map: a.Map, Key: a.Key, Expiring: Expiring{At: r.varint(), Cover: r.cites()}}
		e.Supersedes = r.dots()
		out = e
	default:
		return nil, fmt.Errorf("%w: an operation of kind %d", ErrMalformed, op.Kind)
	}
	if bad := r.close(); bad != nil {
		err = bad
	}
	if err != nil {
		return nil, fmt.Errorf("%w: operation of kind %d: %w", ErrMalformed, op.Kind, err)
	}
	return out, nil
}

// put returns room for a put.
func (p *Parser) put() *Put {
	if len(p.puts) == 0 {
		p.puts = make([]Put, min(max(p.Puts, 1), parserStep))
		p.Puts -= len(p.puts)
	}
	x := &p.puts[0]
	p.puts = p.puts[1:]
	return x
}

// room returns an empty slice with room for n dots.
func (p *Parser) room(n int) []Dot {
	if n > len(p.dots) {
		p.dots = make([]Dot, max(n, min(len(p.puts)+1, parserStep)))
	}
	out := p.dots[0:0:n]
	p.dots = p.dots[n:]
	return out
}

// IsOp reports whether an operation's kind is one of state's.
func IsOp(kind uint16) bool { return kind == KindPut || kind == KindEnd || kind == KindExpire }

// Head returns what the put makes, as operation index of entry e.
func (p *Put) Head(d Dot, time uint64) Head { return Head{d, time, p.Payload} }

// Head returns what the expiry makes.
func (e *Expire) Head(d Dot, time uint64) Head { return Head{d, time, e.Expiring.Payload()} }
