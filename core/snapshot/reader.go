package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
)

// chunks reads chunks and checks their sums.
type chunks struct {
	r     io.Reader
	body  []byte
	chain chain
	good  int64 // where the last whole chunk ends
	begun bool
}

// next returns the next chunk. Its body is valid until the next call.
// io.EOF: the file ends here.
func (c *chunks) next() (Kind, []byte, error) {
	if !c.begun {
		var b [fileHead]byte
		if _, err := io.ReadFull(c.r, b[:]); err != nil {
			return 0, nil, cut(err)
		}
		switch {
		case b[0] != 'L' || b[1] != 'B':
			return 0, nil, damaged("it does not begin with LB")
		case b[2] != version:
			return 0, nil, fmt.Errorf("%w: %d, this program reads %d", ErrVersion, b[2], version)
		}
		c.begun, c.good = true, fileHead
	}
	var b [chunkHead]byte
	if _, err := io.ReadFull(c.r, b[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, nil, io.EOF
		}
		return 0, nil, cut(err)
	}
	k, n := Kind(b[0]), binary.BigEndian.Uint32(b[1:])
	if k < KindHead || k > KindSignature || n == 0 || n > MaxChunk {
		return 0, nil, damaged("at byte %d: a chunk of kind %d, %d bytes", c.good, k, n)
	}
	if uint32(cap(c.body)) < n {
		c.body = make([]byte, n)
	}
	body := c.body[:n]
	if _, err := io.ReadFull(c.r, body); err != nil {
		return 0, nil, cut(err)
	}
	var sum lattice.Hash
	if _, err := io.ReadFull(c.r, sum[:]); err != nil {
		return 0, nil, cut(err)
	}
	if c.chain.next(k, body) != sum {
		return 0, nil, damaged("at byte %d: the sum of a chunk does not match", c.good)
	}
	c.good += int64(chunkHead + int(n) + len(sum))
	return k, body, nil
}

func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	return lattice.E(lattice.Storage, fmt.Errorf("read the snapshot: %w", err))
}

// Whole reads what there is of a snapshot, and returns how many of its bytes are
// in whole, undamaged chunks, and whether that is all of it. What comes behind can
// be sent again. It says nothing of what the chunks mean, nor of the signature.
// Errors wrap ErrDamaged, ErrVersion or Kind Storage; good is right all the same.
func Whole(r io.Reader) (good int64, all bool, err error) {
	c := chunks{r: r}
	for {
		k, _, err := c.next()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, ErrCut):
			return c.good, false, nil
		case err != nil:
			return c.good, false, err
		case k == KindSignature:
			return c.good, true, nil
		}
	}
}

// SumAt returns the sum that stands for the content of a snapshot of a size, as its
// end says, without looking at the rest. Errors wrap ErrDamaged, or Kind Storage.
func SumAt(r io.ReaderAt, size int64) (lattice.Hash, error) {
	const seal = chunkHead + 32 + identity.SignatureSize + 32
	const end = chunkHead + 4*8 + 32
	var b [end + chunkHead]byte
	if size < fileHead+end+seal {
		return lattice.Hash{}, ErrCut
	}
	if _, err := r.ReadAt(b[:], size-seal-end); err != nil {
		return lattice.Hash{}, cut(err)
	}
	if Kind(b[0]) != KindEnd || Kind(b[end]) != KindSignature {
		return lattice.Hash{}, damaged("it does not end with its seal")
	}
	return lattice.Hash(b[end-32 : end]), nil
}

// Item is one thing in a snapshot. Which field is set follows from Kind.
type Item struct {
	Kind    Kind
	Place   sigchain.Place
	Record  fold.Record
	Fork    sigchain.Signed
	Address state.Address
	Row     state.Row
	Seal    Seal
}

// Reader reads a snapshot and checks all that needs nothing but the file: sums,
// order, form, counts, the signatures of the genesis entry, of forks, and its own.
// Not here: whether the records and rows are what the root says, and whose signature
// counts. It holds a chunk and an item in memory. Not safe for concurrent use.
type Reader struct {
	c     chunks
	head  Head
	kind  Kind
	rest  []byte // of the chunk
	part  []byte // of an item that goes on in the next chunk
	short bool   // a chunk of this kind was not full: there is no other
	end   Counts
	count Counts
	seal  Seal

	place  sigchain.Place // the last of each
	record []byte
	fork   sigchain.Signed
	row    state.Address
}

// NewReader reads the head of a snapshot.
func NewReader(r io.Reader) (*Reader, error) {
	x := &Reader{c: chunks{r: r}}
	k, body, err := x.c.next()
	if errors.Is(err, io.EOF) {
		err = ErrCut
	}
	if err != nil {
		return nil, err
	}
	if k != KindHead || len(body) <= 32 {
		return nil, damaged("it does not begin with its head")
	}
	body = bytes.Clone(body)
	g, err := sigchain.Parse(body[:len(body)-32])
	if err == nil {
		err = g.Verify()
	}
	if err == nil {
		_, _, err = sigchain.StoreID(g)
	}
	if err != nil {
		return nil, damaged("its genesis entry: %w", err)
	}
	x.head, x.kind = Head{g, lattice.Hash(body[len(body)-32:])}, KindHead
	return x, nil
}

// Head returns what the snapshot begins with.
func (r *Reader) Head() Head { return r.head }

// Next returns the next item; the last one is of KindSignature, with the Seal. Then
// comes io.EOF. What an item holds stays. Errors wrap ErrDamaged, ErrCut, or Kind
// Storage.
func (r *Reader) Next() (Item, error) {
	if r.kind == KindSignature {
		return Item{}, io.EOF
	}
	for {
		if len(r.rest) > 0 || len(r.part) > 0 {
			it, ok, err := r.take()
			if ok || err != nil {
				return it, err
			}
		}
		k, body, err := r.c.next()
		if errors.Is(err, io.EOF) {
			err = ErrCut
		}
		if err != nil {
			return Item{}, err
		}
		if err := r.turn(k, body); err != nil {
			return Item{}, err
		}
		if k == KindSignature {
			return Item{Kind: k, Seal: r.seal}, nil
		}
	}
}

// turn takes a chunk.
func (r *Reader) turn(k Kind, body []byte) error {
	switch {
	case k < r.kind || k == r.kind && (k == KindHead || k > KindRows || r.short):
		return damaged("a chunk of kind %d behind one of kind %d", k, r.kind)
	case k > r.kind && len(r.part) > 0:
		return damaged("an item of kind %d has no end", r.kind)
	case k > KindEnd && r.kind != KindEnd:
		return damaged("it has no end")
	}
	r.kind, r.short = k, len(body) < MaxChunk
	switch k {
	case KindEnd:
		if len(body) != 4*8 {
			return damaged("an end of %d bytes", len(body))
		}
		for i := KindFrontier; i <= KindRows; i++ {
			*r.end.of(i) = binary.BigEndian.Uint64(body[8*(i-KindFrontier):])
		}
		if r.end != r.count {
			return damaged("it says that it holds %+v, and holds %+v", r.end, r.count)
		}
		r.seal.Sum, r.seal.Counts = r.c.chain.sum, r.count
	case KindSignature:
		if len(body) != 32+identity.SignatureSize {
			return damaged("a signature of %d bytes", len(body))
		}
		r.seal.Signer, r.seal.Signature = lattice.AuthorID(body[:32]), identity.Signature(body[32:])
		if !identity.Verify(r.seal.Signer, identity.DomainSnapshot, signed(r.head, r.seal.Sum), r.seal.Signature) {
			return damaged("%w", identity.ErrSignature)
		}
	default:
		r.rest = body
	}
	return nil
}

// errMore means that an item goes on in the next chunk.
var errMore = errors.New("more")

// take takes an item from what there is; false when more is needed.
func (r *Reader) take() (Item, bool, error) {
	f := fields{rest: r.rest}
	if len(r.part) > 0 {
		if len(r.part)+len(r.rest) > MaxItem {
			return Item{}, false, damaged("an item of more than %d bytes", MaxItem)
		}
		r.part = append(r.part, r.rest...)
		r.rest = nil
		f.rest = r.part
	}
	it, err := r.parse(&f)
	if errors.Is(err, errMore) {
		if r.rest != nil {
			r.part, r.rest = append(r.part[:0], r.rest...), nil
		}
		return Item{}, false, nil
	}
	if err != nil {
		return Item{}, false, err
	}
	if len(r.part) > 0 { // what is behind the item is in a buffer of its own
		r.rest, r.part = f.rest, nil
	} else {
		r.rest = f.rest
	}
	*r.count.of(r.kind)++
	return it, true, nil
}

// parse reads an item, and checks that it comes behind the one before.
func (r *Reader) parse(f *fields) (Item, error) {
	it := Item{Kind: r.kind}
	ordered := true
	switch r.kind {
	case KindFrontier:
		b := f.take(placeSize)
		if f.err != nil {
			return it, f.err
		}
		it.Place = sigchain.Place{Author: lattice.AuthorID(b[:32]), Incarnation: binary.BigEndian.Uint64(b[32:]), Seq: binary.BigEndian.Uint64(b[40:])}
		ordered = r.place.Seq == 0 || r.place.Compare(it.Place) < 0 && (r.place.Author != it.Place.Author || r.place.Incarnation != it.Place.Incarnation)
		ordered = ordered && it.Place.Seq > 0 && it.Place.Incarnation > 0
		r.place = it.Place
	case KindRecords:
		k, v := f.bytes(), f.bytes()
		if f.err != nil {
			return it, f.err
		}
		it.Record = fold.Record{Key: bytes.Clone(k), Value: bytes.Clone(v)}
		ordered = r.record == nil || bytes.Compare(r.record, k) < 0
		r.record = it.Record.Key
	case KindForks:
		b := f.bytes()
		if f.err != nil {
			return it, f.err
		}
		s, err := sigchain.Parse(bytes.Clone(b))
		if err == nil {
			err = s.Verify()
		}
		if err == nil && s.Home() != r.head.Store() {
			err = errors.New("it is of another store")
		}
		if err != nil {
			return it, damaged("the proof of a fork: %w", err)
		}
		it.Fork = s
		ordered = r.fork.Seq == 0 || compareForks(r.fork, s) < 0
		r.fork = s
	default:
		return it, r.parseRow(f, &it)
	}
	if !ordered {
		return it, damaged("items of kind %d are out of order", r.kind)
	}
	return it, nil
}

func (r *Reader) parseRow(f *fields, it *Item) error {
	m := f.take(int(f.take(1)[0]))
	k := f.bytes()
	kind := f.take(1)[0]
	sub := f.bytes()
	row := f.bytes()
	if f.err != nil {
		return f.err
	}
	a := state.Address{Map: string(m), Key: bytes.Clone(k), Kind: state.Kind(kind), Sub: bytes.Clone(sub)}
	if err := a.Check(); err != nil {
		return damaged("%w", err)
	}
	var err error
	if it.Row, err = state.ParseRow(bytes.Clone(row)); err != nil || len(it.Row) == 0 {
		return damaged("a row of key %.64q: %w", k, errors.Join(err, ErrDamaged))
	}
	if r.row.Kind != 0 && r.row.Compare(a) >= 0 {
		return damaged("rows are out of order at key %.64q", k)
	}
	it.Address, r.row = a, a
	return nil
}

// fields takes fields from rest. err is errMore once there was too little.
type fields struct {
	rest []byte
	err  error
}

func (f *fields) take(n int) []byte {
	if f.err != nil || n > len(f.rest) {
		f.fail(errMore)
		return []byte{0}
	}
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// bytes takes a length and as many bytes.
func (f *fields) bytes() []byte {
	n, size := binary.Uvarint(f.rest)
	switch {
	case f.err != nil:
		return nil
	case size == 0 && len(f.rest) < binary.MaxVarintLen64:
		f.fail(errMore)
		return nil
	case size <= 0 || n > MaxItem || size > 1 && f.rest[size-1] == 0:
		f.fail(damaged("a length of %d", n))
		return nil
	}
	f.rest = f.rest[size:]
	return f.take(int(n))
}
