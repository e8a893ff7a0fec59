package proof

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/sigchain"
)

func seeded(b byte) identity.Key { return identity.FromSeed([32]byte(bytes.Repeat([]byte{b}, 32))) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// world is a store, a topic and a log of a few batches, all signed by key 1
// unless a test says otherwise. Zero parts are filled in by build.
type world struct {
	creator, topicAuthor, leader identity.Key
	genesis, topic               sigchain.Signed
	grants                       []grant.Signed
	batches                      [][]byte
	leaves                       []merkle.Leaf
	checkpoint                   merkle.Checkpoint
	note                         []byte
}

const recordsPerBatch = 3

func build(change func(*world)) *world {
	w := &world{creator: seeded(1), topicAuthor: seeded(1), leader: seeded(1)}
	w.genesis = must(sigchain.Sign(w.creator, sigchain.Entry{Incarnation: 1, Seq: 1, Time: 1,
		Ops: []sigchain.Op{must(sigchain.Genesis{Name: "home", Random: [16]byte{7}}.Op())}}))
	if change != nil {
		change(w)
	}
	if w.topic.ID.IsZero() {
		w.topic = must(sigchain.Sign(w.topicAuthor, sigchain.Entry{Store: w.genesis.Home(), Incarnation: 1, Seq: 2, Time: 2,
			Prev: w.genesis.Link(), Ops: []sigchain.Op{must(sigchain.CreateTopic{Name: "orders", Partitions: 3}.Op())}}))
	}
	topic := lattice.TopicID(w.topic.ID[:16])
	if w.grants == nil {
		w.grants = []grant.Signed{must(grant.Sign(w.leader, grant.Grant{Store: w.genesis.Home(),
			Partition: lattice.TopicPartition{Topic: topic, Partition: 2}, Term: 28333333, Leader: w.leader.Author(), Incarnation: 1,
			BaseRoot: merkle.EmptyRoot(), AckSet: []lattice.AuthorID{w.leader.Author()}, Min: 1, Kind: grant.Self}))}
	}
	if w.batches == nil {
		for i := range 5 {
			w.addBatch(int64(i*recordsPerBatch), fmt.Sprintf("value %d", i))
		}
	}
	a := merkle.NewAppender(merkle.Range{})
	for _, l := range w.leaves {
		a.Append(nil, l.Hash())
	}
	last := w.grants[len(w.grants)-1]
	w.checkpoint = merkle.Checkpoint{Origin: merkle.Origin(w.genesis.Home(), topic.String()+"/2"), Size: a.Size(), Root: a.Root(),
		Start: 3, End: int64(len(w.batches) * recordsPerBatch), Term: last.Term, Grant: last.ID, Incarnation: last.Incarnation, Time: 1 << 40}
	return w.sign()
}

func (w *world) sign() *world {
	w.note = must(merkle.SignCheckpoint(w.leader, w.checkpoint))
	return w
}

func (w *world) addBatch(base int64, value string) {
	b := record.NewBuilder(record.None, 0)
	for j := range recordsPerBatch {
		b.Add(1700000000000+base+int64(j), []byte("k"), fmt.Appendf(nil, "%s.%d", value, j), []record.RecordHeader{{Key: "h", Value: nil}})
	}
	batch := b.Build(nil)
	record.Place(batch, base, 28333333)
	w.batches = append(w.batches, batch)
	w.leaves = append(w.leaves, merkle.Leaf{Base: base, Last: base + recordsPerBatch - 1, MaxTime: 1700000000000 + base + recordsPerBatch - 1,
		Epoch: 28333333, Length: uint32(len(batch)), Sum: sha256.Sum256(batch)})
}

func (w *world) file(kind Kind, index int) File {
	f := File{Kind: kind, Genesis: w.genesis.Bytes(), Topic: w.topic.Bytes(), Checkpoint: w.note}
	for _, g := range w.grants {
		f.Grants = append(f.Grants, g.Bytes())
	}
	if kind == Record {
		var hashes []lattice.Hash
		for _, l := range w.leaves {
			hashes = append(hashes, l.Hash())
		}
		s := merkle.Source{Leaves: func(from, to uint64) ([]lattice.Hash, error) { return hashes[from:to], nil }}
		f.Index, f.Offset = uint64(index), int64(index*recordsPerBatch+1)
		f.Leaf, f.Batch = w.leaves[index].AppendTo(nil), w.batches[index]
		f.Path = must(merkle.Inclusion(s, uint64(index), uint64(len(hashes))))
	}
	return f
}

func TestVerify(t *testing.T) {
	w := build(nil)
	for i := range w.batches {
		r, err := Verify(w.file(Record, i).Encode())
		if err != nil {
			t.Fatal(err)
		}
		if r.Store != w.genesis.Home() || r.StoreName != "home" || r.TopicName != "orders" || r.Partition != 2 || r.Creator != seeded(1).Author() ||
			r.Author != seeded(1).Author() || r.Checkpoint != w.checkpoint || r.Index != uint64(i) || !strings.Contains(r.What, "orders/2") {
			t.Errorf("%+v", r)
		}
		rec := r.Record
		if rec.Offset != int64(3*i+1) || string(rec.Key) != "k" || string(rec.Value) != fmt.Sprintf("value %d.1", i) ||
			rec.Timestamp != 1700000000000+rec.Offset || len(rec.Headers) != 1 || rec.Headers[0].Value != nil {
			t.Errorf("record %+v", rec)
		}
	}
	r, err := Verify(w.file(Checkpoint, 0).Encode())
	if err != nil || r.Checkpoint != w.checkpoint || r.Record.Value != nil || !strings.Contains(r.What, "5 blocks") {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestGoldenBytes pins whole files: what was written must verify for ever.
func TestGoldenBytes(t *testing.T) {
	w := build(nil)
	w.note = must(merkle.Cosign(seeded(2), 1700000000, w.note, seeded(1).Author()))
	for name, f := range map[string]File{"record.proof": w.file(Record, 3), "checkpoint.proof": w.file(Checkpoint, 0)} {
		want, err := os.ReadFile(filepath.Join("testdata", "v1", name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.Encode(), want) {
			t.Errorf("%s: now\n%s\nas frozen\n%s", name, f.Encode(), want)
		}
		if r, err := Verify(want); err != nil || len(r.Cosigners) != 1 || r.TopicName != "orders" {
			t.Errorf("%s: the frozen file: %+v, %v", name, r, err)
		}
	}
}

// TestAnyChangedByte: a file with any byte changed, cut or added is refused.
func TestAnyChangedByte(t *testing.T) {
	b := build(nil).file(Record, 3).Encode()
	if _, err := Verify(b); err != nil {
		t.Fatal(err)
	}
	for i := range b {
		for _, mask := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
			b[i] ^= mask
			if _, err := Verify(b); !errors.Is(err, ErrFormat) || lattice.KindOf(err) != lattice.Corrupt {
				t.Fatalf("byte %d ^ %#x: %v", i, mask, err)
			}
			b[i] ^= mask
		}
		if _, err := Verify(b[:i]); err == nil {
			t.Fatalf("the first %d bytes are accepted", i)
		}
	}
	for _, more := range []string{"\n", "x", "sum 00\n", string(b)} {
		if _, err := Verify(append(bytes.Clone(b), more...)); !errors.Is(err, ErrFormat) {
			t.Errorf("%q after the end: %v", more, err)
		}
	}
}

// TestForger changes each byte of each value and writes a new sum: the
// signatures and hashes refuse it.
func TestForger(t *testing.T) {
	w := build(nil)
	f := w.file(Record, 3)
	path := f.Path
	for name, field := range map[string]*[]byte{
		"genesis": &f.Genesis, "topic": &f.Topic, "grant": &f.Grants[0], "checkpoint": &f.Checkpoint, "leaf": &f.Leaf, "batch": &f.Batch,
	} {
		good := *field
		for i := range good {
			for _, mask := range []byte{1, 0x20, 0xff} {
				*field = bytes.Clone(good)
				(*field)[i] ^= mask
				if _, err := Verify(f.Encode()); err == nil {
					t.Errorf("%s, byte %d ^ %#x: accepted", name, i, mask)
				}
			}
		}
		*field = good
	}
	for i := range path {
		for j := range path[i] {
			f.Path[i][j] ^= 1
			if _, err := Verify(f.Encode()); !errors.Is(err, ErrRefused) {
				t.Errorf("hash %d, byte %d: %v", i, j, err)
			}
			f.Path[i][j] ^= 1
		}
	}
	f.Index++
	if _, err := Verify(f.Encode()); !errors.Is(err, ErrRefused) {
		t.Errorf("another index: %v", err)
	}
	f.Index--
	for _, offset := range []int64{0, 8, 12, 1 << 62} {
		f.Offset = offset
		if _, err := Verify(f.Encode()); !errors.Is(err, ErrRefused) {
			t.Errorf("offset %d: %v", offset, err)
		}
	}
	f.Offset = 10
	if _, err := Verify(f.Encode()); err != nil {
		t.Errorf("put back together: %v", err)
	}
}

// FuzzVerify checks, for any text: no panic; what parses is what Encode writes.
// The sum is corrected first, or nothing would get past it.
func FuzzVerify(f *testing.F) {
	w := build(nil)
	cut := func(b []byte) []byte { return b[:bytes.LastIndex(b, []byte("sum "))] }
	f.Add(cut(w.file(Record, 3).Encode()))
	f.Add(cut(w.file(Checkpoint, 0).Encode()))
	f.Fuzz(func(t *testing.T, b []byte) {
		b = fmt.Appendf(bytes.Clone(b), "sum %x\n", sha256.Sum256(b))
		parsed, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		if !bytes.Equal(parsed.Encode(), b) {
			t.Fatalf("%q encodes back as %q", b, parsed.Encode())
		}
		if r, err := parsed.Verify(); err == nil && (r.Store != w.genesis.Home() || r.Checkpoint != w.checkpoint) {
			t.Fatalf("accepts what nobody signed: %+v", r)
		}
	})
}
