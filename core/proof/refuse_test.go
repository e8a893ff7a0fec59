package proof

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
	"github.com/lattice-log/lattice/core/record"
	"github.com/lattice-log/lattice/core/sigchain"
)

// TestWrongSigners: genuine signatures by keys without the right.
func TestWrongSigners(t *testing.T) {
	other := seeded(2)
	for _, tc := range []struct {
		name, reason string
		want         error
		w            *world
	}{
		{"topic by another author", "created by", ErrUnsupported, build(func(w *world) { w.topicAuthor = other })},
		{"grant by another author", "granted by", ErrUnsupported, build(func(w *world) { w.leader = other })},
		{"checkpoint by another key", "signature does not match", ErrRefused, func() *world {
			w := build(nil)
			w.leader = other
			return w.sign()
		}()},
		{"topic of another store", "belongs to store", ErrRefused, build(func(w *world) {
			w.topic = must(sigchain.Sign(seeded(1), sigchain.Entry{Store: lattice.StoreID{9}, Incarnation: 1, Seq: 1,
				Ops: []sigchain.Op{must(sigchain.CreateTopic{Name: "orders", Partitions: 3}.Op())}}))
		})},
		{"an entry that does more", "2 operations", ErrRefused, build(func(w *world) {
			op := must(sigchain.CreateTopic{Name: "orders", Partitions: 3}.Op())
			w.topic = must(sigchain.Sign(seeded(1), sigchain.Entry{Store: w.genesis.Home(), Incarnation: 1, Seq: 1, Ops: []sigchain.Op{op, op}}))
		})},
	} {
		_, err := Verify(tc.w.file(Record, 1).Encode())
		if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.reason) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if _, err := Verify(build(func(w *world) { w.leader = other }).file(Record, 1).Encode()); lattice.KindOf(err) != lattice.Unsupported {
		t.Errorf("kind %v, want unsupported", lattice.KindOf(err))
	}
}

// TestCheckpointAgainstGrant: a checkpoint of the right signer that does not fit
// the term, the partition or the topic.
func TestCheckpointAgainstGrant(t *testing.T) {
	for name, change := range map[string]func(*merkle.Checkpoint){
		"another grant":       func(c *merkle.Checkpoint) { c.Grant[0]++ },
		"no grant":            func(c *merkle.Checkpoint) { c.Grant = lattice.Hash{} },
		"another term":        func(c *merkle.Checkpoint) { c.Term++ },
		"another incarnation": func(c *merkle.Checkpoint) { c.Incarnation++ },
		"another partition":   func(c *merkle.Checkpoint) { c.Origin = strings.TrimSuffix(c.Origin, "2") + "1" },
		"a partition of 02":   func(c *merkle.Checkpoint) { c.Origin = strings.TrimSuffix(c.Origin, "2") + "02" },
		"no partition":        func(c *merkle.Checkpoint) { c.Origin = strings.TrimSuffix(c.Origin, "/2") },
		"another topic": func(c *merkle.Checkpoint) {
			c.Origin = merkle.Origin(build(nil).genesis.Home(), lattice.TopicID{}.String()+"/2")
		},
		"another store": func(c *merkle.Checkpoint) {
			_, log, _ := merkle.ParseOrigin(c.Origin)
			c.Origin = merkle.Origin(lattice.StoreID{}, log)
		},
		"another root":          func(c *merkle.Checkpoint) { c.Root[0]++ },
		"fewer blocks":          func(c *merkle.Checkpoint) { c.Size = 1 },
		"an end below the leaf": func(c *merkle.Checkpoint) { c.End, c.Start = 5, 3 },
	} {
		w := build(nil)
		change(&w.checkpoint)
		if _, err := Verify(w.sign().file(Record, 4).Encode()); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLyingWriter: the writer itself signs a tree whose leaf and batch disagree.
func TestLyingWriter(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"other offsets":  func(w *world) { w.leaves[1].Base++ },
		"a later last":   func(w *world) { w.leaves[1].Last++ },
		"another time":   func(w *world) { w.leaves[1].MaxTime++ },
		"another term":   func(w *world) { w.leaves[1].Epoch-- },
		"another length": func(w *world) { w.leaves[1].Length++ },
		"another sum":    func(w *world) { w.leaves[1].Sum[0]++ },
		"a newer term": func(w *world) {
			w.leaves[1].Epoch++
			record.Place(w.batches[1], 3, 28333334)
			w.leaves[1].Sum = sha256.Sum256(w.batches[1])
		},
		"a broken CRC": func(w *world) { w.batches[1][70] ^= 1; w.leaves[1].Sum = sha256.Sum256(w.batches[1]) },
		"bytes behind it": func(w *world) {
			w.batches[1] = append(w.batches[1], 0)
			w.leaves[1].Sum = sha256.Sum256(w.batches[1])
			w.leaves[1].Length++
		},
		"no batch at all": func(w *world) {
			w.batches[1] = []byte("hello")
			w.leaves[1].Sum = sha256.Sum256(w.batches[1])
			w.leaves[1].Length = 5
		},
	} {
		w := build(func(w *world) {
			for i := range 3 {
				w.addBatch(int64(3*i), "v")
			}
			change(w)
		})
		if _, err := Verify(w.file(Record, 1).Encode()); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestGrantChain: leadership moves from the creator by its seal.
func TestGrantChain(t *testing.T) {
	a, b := seeded(1), seeded(2)
	chain := func(second func(*grant.Grant)) *world {
		return build(func(w *world) {
			topic := must(sigchain.Sign(a, sigchain.Entry{Store: w.genesis.Home(), Incarnation: 1, Seq: 2, Time: 2, Prev: w.genesis.Link(),
				Ops: []sigchain.Op{must(sigchain.CreateTopic{Name: "orders", Partitions: 3}.Op())}}))
			w.topic = topic
			g := grant.Grant{Store: w.genesis.Home(), Partition: lattice.TopicPartition{Topic: lattice.TopicID(topic.ID[:16]), Partition: 2},
				Term: 28333330, Leader: a.Author(), Incarnation: 1, BaseRoot: merkle.EmptyRoot(), AckSet: []lattice.AuthorID{a.Author()}, Min: 1, Kind: grant.Self}
			first := must(grant.Sign(a, g))
			g.Term, g.Leader, g.Incarnation, g.Previous, g.Kind = 28333333, b.Author(), 4, first.ID, grant.Seal
			g.AckSet = []lattice.AuthorID{a.Author(), b.Author()}
			signer := a
			if second != nil {
				second(&g)
				if g.Kind == grant.Promises {
					signer = b
				}
			}
			w.grants = []grant.Signed{first, must(grant.Sign(signer, g))}
			w.leader = b
		})
	}
	w := chain(nil)
	r, err := Verify(w.file(Record, 2).Encode())
	if err != nil || r.Author != b.Author() || r.Creator != a.Author() {
		t.Fatalf("%+v, %v", r, err)
	}
	f := w.file(Record, 2)
	f.Grants = f.Grants[1:] // the creator signed the seal too, so it stands alone
	if _, err := Verify(f.Encode()); err != nil {
		t.Errorf("the last grant alone: %v", err)
	}
	f = w.file(Record, 2)
	f.Grants = f.Grants[:1]
	if _, err := Verify(f.Encode()); !errors.Is(err, ErrRefused) {
		t.Errorf("the first grant alone: %v", err)
	}
	f.Grants = [][]byte{w.grants[1].Bytes(), w.grants[0].Bytes()}
	if _, err := Verify(f.Encode()); !errors.Is(err, ErrRefused) {
		t.Errorf("grants in the wrong order: %v", err)
	}
	for name, tc := range map[string]struct {
		change func(*grant.Grant)
		want   error
	}{
		"not the next":       {func(g *grant.Grant) { g.Previous[0]++ }, ErrRefused},
		"an older term":      {func(g *grant.Grant) { g.Term = 5 }, ErrRefused},
		"another partition":  {func(g *grant.Grant) { g.Partition.Partition = 1 }, ErrRefused},
		"another topic":      {func(g *grant.Grant) { g.Partition.Topic[0]++ }, ErrRefused},
		"promises, unproven": {func(g *grant.Grant) { g.Kind = grant.Promises }, ErrUnsupported},
		"a base beyond":      {func(g *grant.Grant) { g.BaseSize, g.BaseOffset = 6, 18 }, ErrRefused},
		"another base root":  {func(g *grant.Grant) { g.BaseSize, g.BaseOffset = 5, 15 }, ErrRefused},
	} {
		if _, err := Verify(chain(tc.change).file(Record, 2).Encode()); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWithoutGrants: the creator's own checkpoint, in no term.
func TestWithoutGrants(t *testing.T) {
	w := build(nil)
	w.grants = nil
	if _, err := Verify(w.file(Record, 2).Encode()); !errors.Is(err, ErrRefused) {
		t.Errorf("the checkpoint names a grant that is not there: %v", err)
	}
	w.checkpoint.Grant = lattice.Hash{}
	if _, err := Verify(w.sign().file(Record, 2).Encode()); err != nil {
		t.Errorf("%v", err)
	}
}

func TestLooseFiles(t *testing.T) {
	w := build(nil)
	f := w.file(Record, 3)
	resum := func(b []byte) []byte {
		b = b[:bytes.LastIndex(b, []byte("sum "))]
		return append(b, []byte("sum "+lattice.Hash(sha256.Sum256(b)).String()+"\n")...)
	}
	good := f.Encode()
	if !bytes.Equal(resum(bytes.Clone(good)), good) {
		t.Fatal("resum is wrong")
	}
	for name, r := range map[string][2]string{
		"windows lines":    {"\ntopic", "\r\ntopic"},
		"two spaces":       {"\nindex ", "\nindex  "},
		"leading zero":     {"\nindex ", "\nindex 0"},
		"plus sign":        {"\noffset ", "\noffset +"},
		"negative":         {"\noffset ", "\noffset -"},
		"unknown kind":     {"kind record", "kind receipt"},
		"unknown line":     {"\nleaf ", "\nremark x\nleaf "},
		"line twice":       {"\noffset 10\n", "\noffset 10\noffset 10\n"},
		"another version":  {"proof-v1", "proof-v2"},
		"no base64":        {"\nleaf ", "\nleaf !"},
		"empty value":      {"\nhash ", "\nhash \nhash "},
		"a short hash":     {"\nhash ", "\nhash AAAA\nhash "},
		"other kind":       {"kind record", "kind checkpoint"},
		"upper-case words": {"\nbatch ", "\nBatch "},
	} {
		changed := bytes.Replace(good, []byte(r[0]), []byte(r[1]), 1)
		if bytes.Equal(changed, good) {
			t.Fatalf("%s: %q is not there", name, r[0])
		}
		if _, err := Verify(resum(changed)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.Path = make([]lattice.Hash, maxPath+1)
	if _, err := Verify(f.Encode()); !errors.Is(err, ErrFormat) {
		t.Errorf("65 hashes: %v", err)
	}
	if _, err := Verify(make([]byte, MaxSize+1)); !errors.Is(err, ErrFormat) {
		t.Errorf("too large: %v", err)
	}
	f = w.file(Record, 3)
	f.Kind = "other"
	if _, err := f.Verify(); !errors.Is(err, ErrFormat) {
		t.Errorf("unknown kind: %v", err)
	}
}

// TestSpareBitsOfBase64: two texts that decode to the same bytes are not both valid.
func TestSpareBitsOfBase64(t *testing.T) {
	f := build(nil).file(Record, 3)
	b := f.Encode()
	i := bytes.Index(b, []byte("\nhash ")) + len("\nhash ") + 42 // the last character before '='
	if b[i+1] != '=' {
		t.Fatalf("not the last character: %q", b[i-3:i+2])
	}
	b[i]++
	b = b[:bytes.LastIndex(b, []byte("sum "))]
	b = append(b, []byte("sum "+lattice.Hash(sha256.Sum256(b)).String()+"\n")...)
	if _, err := Parse(b); !errors.Is(err, ErrFormat) {
		t.Errorf("%v", err)
	}
}
