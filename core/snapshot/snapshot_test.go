package snapshot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/fold"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/sigchain"
	"github.com/lattice-log/lattice/core/state"
	"pgregory.net/rapid"
)

func keyOf(n byte) identity.Key { return identity.FromSeed([32]byte{n, 7}) }

func genesis(t rapid.TB) sigchain.Signed {
	op, err := sigchain.Genesis{Name: "test"}.Op()
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, 1, sigchain.Entry{Incarnation: 1, Seq: 1, Time: 1 << 60, Ops: []sigchain.Op{op}})
}

func sign(t rapid.TB, by byte, e sigchain.Entry) sigchain.Signed {
	s, err := sigchain.Sign(keyOf(by), e)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// content is what a snapshot holds.
type content struct {
	head    Head
	places  []sigchain.Place
	records []fold.Record
	forks   []sigchain.Signed
	rows    []row
}

type row struct {
	at  state.Address
	row state.Row
}

func (c content) write(t rapid.TB, key identity.Key) []byte {
	var b bytes.Buffer
	w := NewWriter(&b, c.head)
	var err error
	for _, p := range c.places {
		err = errors.Join(err, w.Place(state.Writer{Author: p.Author, Incarnation: p.Incarnation}, p.Seq))
	}
	for _, r := range c.records {
		err = errors.Join(err, w.Record(r))
	}
	for _, s := range c.forks {
		err = errors.Join(err, w.Fork(s))
	}
	for _, r := range c.rows {
		err = errors.Join(err, w.Row(r.at, r.row))
	}
	seal, cerr := w.Close(key)
	if err = errors.Join(err, cerr); err != nil {
		t.Fatal(err)
	}
	if seal.Counts != (Counts{uint64(len(c.places)), uint64(len(c.records)), uint64(len(c.forks)), uint64(len(c.rows))}) || w.Size() != int64(b.Len()) {
		t.Fatalf("%+v, %d bytes of %d", seal.Counts, w.Size(), b.Len())
	}
	return b.Bytes()
}

func read(r io.Reader) (c content, s Seal, err error) {
	x, err := NewReader(r)
	if err != nil {
		return c, s, err
	}
	c.head = x.Head()
	for {
		it, err := x.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return c, s, err
		}
		switch it.Kind {
		case KindFrontier:
			c.places = append(c.places, it.Place)
		case KindRecords:
			c.records = append(c.records, it.Record)
		case KindForks:
			c.forks = append(c.forks, it.Fork)
		case KindRows:
			c.rows = append(c.rows, row{it.Address, it.Row})
		case KindSignature:
			s = it.Seal
		}
	}
}

// sample is a small snapshot with something of everything.
func sample(t rapid.TB) content {
	g := genesis(t)
	a, b := keyOf(1).Author(), keyOf(2).Author()
	places := []sigchain.Place{{Author: a, Incarnation: 1, Seq: 1}, {Author: b, Incarnation: 3, Seq: 9}, {Author: a, Incarnation: 2, Seq: 4}}
	slices.SortFunc(places, sigchain.Place.Compare)
	forks := []sigchain.Signed{
		sign(t, 2, sigchain.Entry{Store: g.Home(), Incarnation: 3, Seq: 1, Time: 2 << 60}),
		sign(t, 2, sigchain.Entry{Store: g.Home(), Incarnation: 3, Seq: 1, Time: 3 << 60}),
	}
	slices.SortFunc(forks, compareForks)
	head := func(by lattice.AuthorID, seq uint64, p state.Payload) state.Head {
		return state.Head{Dot: state.Dot{Writer: state.Writer{Author: by, Incarnation: 2}, Seq: seq}, Time: 5, Payload: p}
	}
	return content{
		Head{g, lattice.Hash{1, 2, 3}}, places,
		[]fold.Record{{Key: []byte("a"), Value: []byte{1}}, {Key: []byte("c1"), Value: []byte{1, 2}}, {Key: []byte("c2"), Value: []byte{1}}},
		forks,
		[]row{
			{state.Address{Map: "", Key: []byte("k"), Kind: state.Register}, state.Row{head(a, 1, state.Payload{Bytes: []byte("v")})}},
			{state.Address{Map: "0", Key: []byte("k"), Kind: state.Field, Sub: []byte("f")}, state.Row{head(a, 2, state.Payload{Sum: &state.Subtotal{Count: -3}})}},
			{state.Address{Map: "0", Key: []byte("k"), Kind: state.Field, Sub: []byte("g")}, state.Row{head(a, 3, state.Payload{Bytes: []byte{}})}},
		},
	}
}

const golden = "testdata/v1/snapshot"

// TestGolden pins the bytes. If it fails, the design is wrong, not the test.
func TestGolden(t *testing.T) {
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := sample(t).write(t, keyOf(9)); !bytes.Equal(got, want) {
		t.Fatalf("a snapshot is\n%x\nwant\n%x", got, want)
	}
	c, s, err := read(bytes.NewReader(want))
	if err != nil || s.Signer != keyOf(9).Author() {
		t.Fatal(err, s)
	}
	if again := c.write(t, keyOf(9)); !bytes.Equal(again, want) {
		t.Fatal("what was read is written in another way")
	}
}

// TestRoundTrip: what is written is read, whatever the sizes, and the content does
// not depend on who signs it.
func TestRoundTrip(t *testing.T) {
	g := genesis(t)
	rapid.Check(t, func(t *rapid.T) {
		c := content{head: Head{g, lattice.Hash{9}}}
		size := rapid.SampledFrom([]int{0, 1, 2, 3, 50, 51, 100, 101, 1000, 1001, MaxChunk - 60, 2 * MaxChunk})
		for i := range rapid.IntRange(0, 4).Draw(t, "records") {
			k := binary.BigEndian.AppendUint64(nil, uint64(i))
			c.records = append(c.records, fold.Record{Key: k, Value: bytes.Repeat([]byte{byte(i)}, size.Draw(t, "value"))})
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "rows") {
			k := binary.BigEndian.AppendUint64(nil, uint64(i))
			h := state.Head{Dot: state.Dot{Writer: state.Writer{Author: keyOf(1).Author(), Incarnation: 1}, Seq: uint64(i + 1)}, Payload: state.Payload{Bytes: make([]byte, size.Draw(t, "payload"))}}
			c.rows = append(c.rows, row{state.Address{Map: "m", Key: k, Kind: state.Register}, state.Row{h}})
		}
		b := c.write(t, keyOf(1))
		got, seal, err := read(iotestOneByte{bytes.NewReader(b)})
		if err != nil {
			t.Fatal(err)
		}
		if again := got.write(t, keyOf(1)); !bytes.Equal(again, b) {
			t.Fatal("what was read is written in another way")
		}
		if good, all, err := Whole(bytes.NewReader(b)); err != nil || !all || good != int64(len(b)) {
			t.Fatalf("%d of %d bytes are whole, %v, %v", good, len(b), all, err)
		}
		other := c.write(t, keyOf(2))
		if n := len(b) - (chunkHead + 32 + 64 + 32); !bytes.Equal(b[:n], other[:n]) {
			t.Fatal("the content depends on who signs it")
		}
		_, seal2, _ := read(bytes.NewReader(other))
		if seal.Sum != seal2.Sum || seal.Signer == seal2.Signer {
			t.Fatal("the sum depends on who signs it")
		}
	})
}

// iotestOneByte reads in odd pieces.
type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(b []byte) (int, error) { return o.r.Read(b[:min(len(b), 7919)]) }

// TestCut: a file that ends early says so at every length, and what is whole of it
// is where a copy goes on.
func TestCut(t *testing.T) {
	b := sample(t).write(t, keyOf(9))
	last := int64(0)
	for n := range len(b) {
		if _, _, err := read(bytes.NewReader(b[:n])); !errors.Is(err, ErrCut) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
		good, all, err := Whole(bytes.NewReader(b[:n]))
		if err != nil || all || good > int64(n) || good < last {
			t.Fatalf("%d bytes: %d whole, %v, %v", n, good, all, err)
		}
		last = good
	}
}

// TestFlips: every bit counts.
func TestFlips(t *testing.T) {
	b := sample(t).write(t, keyOf(9))
	for i := range len(b) * 8 {
		bad := bytes.Clone(b)
		bad[i/8] ^= 1 << (i % 8)
		_, _, err := read(bytes.NewReader(bad))
		if err == nil {
			t.Fatalf("bit %d of byte %d may change", i%8, i/8)
		}
		if k := lattice.KindOf(err); k != lattice.Corrupt && k != lattice.NotYet && k != lattice.Unsupported {
			t.Fatalf("bit %d of byte %d: %v, %v", i%8, i/8, k, err)
		}
	}
}

// forge writes chunks with right sums, whatever they say.
func forge(parts ...any) []byte {
	b := []byte{'L', 'B', version}
	var c chain
	for i := 0; i < len(parts); i += 2 {
		k, body := parts[i].(Kind), parts[i+1].([]byte)
		sum := c.next(k, body)
		b = append(binary.BigEndian.AppendUint32(append(b, byte(k)), uint32(len(body))), body...)
		b = append(b, sum[:]...)
	}
	return b
}

// TestHostile: what has right sums and says something else is refused by name.
func TestHostile(t *testing.T) {
	c := sample(t)
	head := append(bytes.Clone(c.head.Genesis.Bytes()), c.head.Root[:]...)
	u64 := func(n ...uint64) (b []byte) {
		for _, x := range n {
			b = binary.BigEndian.AppendUint64(b, x)
		}
		return b
	}
	rec := func(k string) []byte { return appendRecord(nil, fold.Record{Key: []byte(k), Value: []byte{1}}) }
	other := sign(t, 2, sigchain.Entry{Store: lattice.StoreID{1}, Incarnation: 1, Seq: 1, Time: 1})
	for what, b := range map[string][]byte{
		"no head":                   forge(KindRecords, rec("a")),
		"head without a genesis":    forge(KindHead, make([]byte, 200)),
		"two heads":                 forge(KindHead, head, KindHead, head),
		"records out of order":      forge(KindHead, head, KindRecords, slices.Concat(rec("b"), rec("a"))),
		"a record twice":            forge(KindHead, head, KindRecords, slices.Concat(rec("b"), rec("b"))),
		"kinds out of order":        forge(KindHead, head, KindRows, []byte{0}, KindRecords, rec("a")),
		"a short chunk, then more":  forge(KindHead, head, KindRecords, rec("a"), KindRecords, rec("b")),
		"an item without an end":    forge(KindHead, head, KindRecords, []byte{200}, KindEnd, u64(0, 0, 0, 0)),
		"a length beyond all":       forge(KindHead, head, KindRecords, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}),
		"a length in a longer form": forge(KindHead, head, KindRecords, []byte{0x81, 0x00, 'a', 1, 1}),
		"counts that are too great": forge(KindHead, head, KindRecords, rec("a"), KindEnd, u64(0, 1<<60, 0, 0)),
		"no end":                    forge(KindHead, head, KindSignature, make([]byte, 96)),
		"signed by nobody":          forge(KindHead, head, KindEnd, u64(0, 0, 0, 0), KindSignature, make([]byte, 96)),
		"a fork of another store":   forge(KindHead, head, KindForks, appendBytes(nil, other.Bytes())),
		"a fork that is no entry":   forge(KindHead, head, KindForks, appendBytes(nil, []byte("LE"))),
		"a row of no kind":          forge(KindHead, head, KindRows, []byte{0, 1, 'k', 9, 0, 1, 0}),
		"an empty row":              forge(KindHead, head, KindRows, []byte{0, 1, 'k', 1, 0, 1, 0}),
		"entry 0 of a writer":       forge(KindHead, head, KindFrontier, make([]byte, placeSize)),
	} {
		if _, _, err := read(bytes.NewReader(b)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := read(bytes.NewReader([]byte("LB\x02"))); !errors.Is(err, ErrVersion) {
		t.Errorf("another version: %v", err)
	}
	if _, _, err := read(bytes.NewReader([]byte("hello"))); !errors.Is(err, ErrDamaged) {
		t.Errorf("another file: %v", err)
	}
	// Signed for one root, shown with another.
	b := c.write(t, keyOf(9))
	at := bytes.Index(b, c.head.Root[:])
	lie := bytes.Clone(b)
	lie[at]++
	if _, _, err := read(bytes.NewReader(resum(lie))); !errors.Is(err, identity.ErrSignature) {
		t.Errorf("a forged root: %v", err)
	}
}

// resum makes the sums of a file right again.
func resum(b []byte) []byte {
	var parts []any
	for rest := b[fileHead:]; len(rest) > 0; {
		n := int(binary.BigEndian.Uint32(rest[1:]))
		parts = append(parts, Kind(rest[0]), rest[chunkHead:chunkHead+n])
		rest = rest[chunkHead+n+32:]
	}
	return forge(parts...)
}

// TestWriterOrder: a writer refuses what is out of order.
func TestWriterOrder(t *testing.T) {
	w := NewWriter(io.Discard, sample(t).head)
	if err := errors.Join(w.Record(fold.Record{Key: []byte("b")}), w.Record(fold.Record{Key: []byte("a")})); lattice.KindOf(err) != lattice.Internal {
		t.Fatal(err)
	}
	if err := w.Place(state.Writer{}, 1); lattice.KindOf(err) != lattice.Internal {
		t.Fatal(err)
	}
}

// FuzzReader: no bytes panic, take memory without bounds, or are read in two ways.
func FuzzReader(f *testing.F) {
	b := sample(f).write(f, keyOf(9))
	f.Add(b[fileHead:])
	f.Add([]byte{5, 0, 0, 0, 1, 200})
	head := append(bytes.Clone(sample(f).head.Genesis.Bytes()), make([]byte, 32)...)
	f.Fuzz(func(t *testing.T, in []byte) {
		if _, _, err := read(bytes.NewReader(append([]byte{'L', 'B', version}, in...))); err == nil {
			return
		}
		// The same as chunks with right sums, behind a good head, so that items are reached.
		parts := []any{KindHead, head}
		for len(in) > 2 {
			n := min(int(in[1])+1, len(in)-2)
			parts = append(parts, Kind(in[0]%8), in[2:2+n])
			in = in[2+n:]
		}
		if _, _, err := read(bytes.NewReader(forge(parts...))); err == nil {
			t.Fatal("a forged signature counts")
		}
	})
}
