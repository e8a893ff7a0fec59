package sigchain

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
	"pgregory.net/rapid"
)

func hashes() *rapid.Generator[lattice.Hash] {
	return rapid.Custom(func(t *rapid.T) lattice.Hash {
		return lattice.Hash{rapid.ByteRange(1, 255).Draw(t, "h0"), 31: rapid.Byte().Draw(t, "h31")}
	})
}

func refs() *rapid.Generator[Ref] {
	return rapid.Custom(func(t *rapid.T) Ref {
		return Ref{lattice.AuthorID(hashes().Draw(t, "author")), Link{
			rapid.Uint64().Draw(t, "inc"), rapid.Uint64Min(1).Draw(t, "seq"), hashes().Draw(t, "id")}}
	})
}

func entries() *rapid.Generator[Entry] {
	return rapid.Custom(func(t *rapid.T) Entry {
		e := Entry{
			Store:       lattice.StoreID(hashes().Draw(t, "store")),
			Incarnation: rapid.Uint64Min(1).Draw(t, "inc"),
			Seq:         rapid.Uint64Range(1, 3).Draw(t, "seq"),
			Time:        rapid.Uint64().Draw(t, "time"),
			Parents:     rapid.SliceOfNDistinct(refs(), 0, 20, rapid.ID[Ref]).Draw(t, "parents"),
		}
		if e.Seq > 1 {
			e.Prev = Link{e.Incarnation, e.Seq - 1, hashes().Draw(t, "prev")}
		} else if rapid.Bool().Draw(t, "has prev") {
			e.Prev = Link{e.Incarnation - 1, rapid.Uint64Min(1).Draw(t, "prev seq"), hashes().Draw(t, "prev")}
		}
		for range rapid.IntRange(0, 4).Draw(t, "ops") {
			e.Ops = append(e.Ops, Op{rapid.Uint16Min(2).Draw(t, "kind"), rapid.SliceOf(rapid.Byte()).Draw(t, "body")})
		}
		return e
	})
}

func TestSignParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := seeded(rapid.ByteRange(1, 3).Draw(t, "key"))
		s, err := Sign(key, entries().Draw(t, "entry"))
		if err != nil {
			t.Fatal(err)
		}
		p, err := Parse(s.Bytes())
		if err != nil || p.Verify() != nil || p.ID != s.ID || p.Author != key.Author() {
			t.Fatalf("Parse = %+v, %v, %v", p, err, p.Verify())
		}
		sig := p.Signature
		if again := append(p.Entry.appendTo(nil), sig[:]...); !bytes.Equal(again, s.Bytes()) {
			t.Fatalf("encodes back as\n%x, was\n%x", again, s.Bytes())
		}
	})
}

// TestAnyChangedByte: no change to a signed entry goes unnoticed.
func TestAnyChangedByte(t *testing.T) {
	for _, s := range []Signed{genesisEntry(t), topicEntry(t), mergeEntry(t)} {
		for i := range s.Bytes() {
			for _, mask := range []byte{0x01, 0x80, 0xff} {
				b := bytes.Clone(s.Bytes())
				b[i] ^= mask
				if p, err := Parse(b); err == nil && p.Verify() == nil {
					t.Errorf("byte %d ^ %#x: still a valid entry", i, mask)
				}
			}
		}
		for i := range s.Bytes() {
			if _, err := Parse(s.Bytes()[:i]); err == nil {
				t.Errorf("the first %d bytes parse", i)
			}
		}
	}
}

// FuzzParse checks, for any input: no panic; what parses encodes back to the
// exact bytes it came from; the memory taken is bounded by the input's length;
// an error is one of the three kinds promised.
func FuzzParse(f *testing.F) {
	for _, s := range []Signed{genesisEntry(f), topicEntry(f), mergeEntry(f)} {
		f.Add(s.Bytes())
	}
	huge := bytes.Clone(genesisEntry(f).Bytes())
	copy(huge[headerSize:], "\xff\xff\xff\xff")
	f.Add(huge)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("error %v is none of those promised", err)
			}
			return
		}
		sig := s.Signature
		if again := append(s.Entry.appendTo(nil), sig[:]...); !bytes.Equal(again, b) {
			t.Fatalf("encodes back as\n%x, was\n%x", again, b)
		}
		if cap(s.Parents)*refSize > 2*len(b) || cap(s.Ops)*opHeaderSize > 2*len(b) {
			t.Fatalf("%d parents and %d operations of %d bytes", cap(s.Parents), cap(s.Ops), len(b))
		}
	})
}

// FuzzOps checks, for any body: no panic; what parses encodes back to the exact
// bytes it came from.
func FuzzOps(f *testing.F) {
	f.Add(uint16(1), genesisEntry(f).Ops[0].Body)
	f.Add(uint16(2), topicEntry(f).Ops[0].Body)
	f.Fuzz(func(t *testing.T, kind uint16, body []byte) {
		op := Op{kind, body}
		if g, err := ParseGenesis(op); err == nil {
			if again, err := g.Op(); err != nil || !bytes.Equal(again.Body, body) {
				t.Fatalf("genesis %x encodes back as %x, %v", body, again.Body, err)
			}
		}
		if c, err := ParseCreateTopic(op); err == nil {
			if again, err := c.Op(); err != nil || !bytes.Equal(again.Body, body) {
				t.Fatalf("create topic %x encodes back as %x, %v", body, again.Body, err)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	g := genesisEntry(t)
	store := lattice.StoreID(g.ID)
	ref := func(n byte) Ref { return Ref{lattice.AuthorID{n}, Link{1, 1, lattice.Hash{n}}} }
	own := Ref{seeded(1).Author(), Link{7, 2, lattice.Hash{9}}}
	create := topicEntry(t).Ops[0]
	for name, e := range map[string]Entry{
		"sequence 0":                         {Store: store, Incarnation: 7},
		"second without a previous":          {Store: store, Incarnation: 7, Seq: 2},
		"previous of a later incarnation":    {Store: store, Incarnation: 7, Seq: 1, Prev: Link{8, 1, g.ID}},
		"previous of the same incarnation":   {Store: store, Incarnation: 7, Seq: 1, Prev: Link{7, 1, g.ID}},
		"previous skips a number":            {Store: store, Incarnation: 7, Seq: 3, Prev: Link{7, 1, g.ID}},
		"previous of another incarnation":    {Store: store, Incarnation: 7, Seq: 2, Prev: Link{6, 1, g.ID}},
		"previous without an id":             {Store: store, Incarnation: 7, Seq: 2, Prev: Link{7, 1, lattice.Hash{}}},
		"the same parent twice":              {Store: store, Incarnation: 7, Seq: 1, Parents: []Ref{ref(2), ref(2)}},
		"a parent without an id":             {Store: store, Incarnation: 7, Seq: 1, Parents: []Ref{{Link: Link{1, 1, lattice.Hash{}}}}},
		"itself as a parent":                 {Store: store, Incarnation: 7, Seq: 2, Prev: Link{7, 1, g.ID}, Parents: []Ref{own}},
		"no store and no genesis":            {Incarnation: 7, Seq: 1, Ops: []Op{create}},
		"a genesis within a store":           {Store: store, Incarnation: 7, Seq: 1, Ops: g.Ops},
		"a genesis that does something else": {Incarnation: 7, Seq: 1, Ops: []Op{g.Ops[0], create}},
		"a genesis with parents":             {Incarnation: 7, Seq: 1, Ops: g.Ops, Parents: []Ref{ref(2)}},
		"a genesis that follows something":   {Incarnation: 7, Seq: 1, Ops: g.Ops, Prev: Link{6, 1, g.ID}},
	} {
		if _, err := Sign(seeded(1), e); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v, want malformed", name, err)
		}
	}
	big := Entry{Store: store, Incarnation: 7, Seq: 1, Ops: []Op{{9, make([]byte, MaxSize)}}}
	if _, err := Sign(seeded(1), big); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	b := bytes.Clone(g.Bytes())
	b[2] = 2
	if _, err := Parse(b); !errors.Is(err, ErrVersion) || lattice.KindOf(err) != lattice.Unsupported {
		t.Errorf("version 2: %v", err)
	}
	two, err := Sign(seeded(1), Entry{Store: store, Incarnation: 7, Seq: 1, Parents: []Ref{ref(3), ref(2)}})
	if err != nil || two.Parents[0] != ref(2) {
		t.Fatalf("Sign does not sort parents: %v, %v", two.Parents, err)
	}
	b = bytes.Clone(two.Bytes())
	at := headerSize + 4
	copy(b[at:], two.Bytes()[at+refSize:at+2*refSize])
	copy(b[at+refSize:], two.Bytes()[at:at+refSize])
	if _, err := Parse(b); !errors.Is(err, ErrMalformed) {
		t.Errorf("unsorted parents: %v", err)
	}
}

// TestManyParents: there is no small cap on parents, or on operations.
func TestManyParents(t *testing.T) {
	e := Entry{Store: lattice.StoreID{1}, Incarnation: 1, Seq: 1}
	for i := range 5000 {
		e.Parents = append(e.Parents, Ref{lattice.AuthorID{byte(i), byte(i >> 8)}, Link{1, 1, lattice.Hash{1}}})
		e.Ops = append(e.Ops, Op{7, []byte{byte(i)}})
	}
	if s, err := Sign(seeded(1), e); err != nil || len(s.Parents) != 5000 || len(s.Ops) != 5000 {
		t.Fatalf("%d parents, %d operations, %v", len(s.Parents), len(s.Ops), err)
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"orders": true, "a.b_c-9": true, strings.Repeat("x", 249): true,
		"": false, ".": false, "..": false, "a b": false, "ä": false, "a/b": false, strings.Repeat("x", 250): false,
	} {
		if err := CheckTopicName(name); (err == nil) != ok {
			t.Errorf("topic %q: %v", name, err)
		}
	}
	for name, ok := range map[string]bool{
		"home": true, "Werk Süd": true, strings.Repeat("x", 255): true,
		"": false, "a\nb": false, "a\x7f": false, "a\u009b": false, "a\xff": false, strings.Repeat("x", 256): false,
	} {
		if err := CheckStoreName(name); (err == nil) != ok {
			t.Errorf("store %q: %v", name, err)
		}
	}
}

func TestIDs(t *testing.T) {
	g, topic, merge := genesisEntry(t), topicEntry(t), mergeEntry(t)
	store, gen, err := StoreID(g)
	if err != nil || store != topic.Store || gen.Name != "home" {
		t.Errorf("StoreID = %v, %+v, %v", store, gen, err)
	}
	id, c, err := TopicID(topic)
	if err != nil || !bytes.Equal(id[:], topic.ID[:16]) || c.Name != "orders" || c.Partitions != 3 || len(c.Configs) != 2 {
		t.Errorf("TopicID = %v, %+v, %v", id, c, err)
	}
	for name, err := range map[string]error{
		"store of a topic entry":  second(StoreID(topic)),
		"topic of a genesis":      second(TopicID(g)),
		"store of many ops":       second(StoreID(merge)),
		"topic of many ops":       second(TopicID(merge)),
		"partitions 0":            second2(CreateTopic{Name: "a"}.Op()),
		"configs out of order":    second2(CreateTopic{Name: "a", Partitions: 1, Configs: []Config{{"b", ""}, {"a", ""}}}.Op()),
		"the same config twice":   second2(CreateTopic{Name: "a", Partitions: 1, Configs: []Config{{"b", ""}, {"b", ""}}}.Op()),
		"a store without a name":  second2(Genesis{}.Op()),
		"a topic without a name":  second2(CreateTopic{Partitions: 1}.Op()),
		"more than int32 allowed": second2(CreateTopic{Name: "a", Partitions: 1 << 31}.Op()),
	} {
		if !errors.Is(err, ErrOp) {
			t.Errorf("%s: %v, want ErrOp", name, err)
		}
	}
	later := Op{KindCreateTopic, append([]byte{2}, topic.Ops[0].Body[1:]...)}
	if _, err := ParseCreateTopic(later); !errors.Is(err, ErrVersion) {
		t.Errorf("version 2 of an operation: %v", err)
	}
}

func second[A, B any](_ A, _ B, err error) error { return err }
func second2[A any](_ A, err error) error        { return err }

func TestVerifyNeedsTheAuthor(t *testing.T) {
	s := genesisEntry(t)
	s.Author = seeded(2).Author()
	if err := s.Verify(); !errors.Is(err, identity.ErrSignature) {
		t.Errorf("%v, want ErrSignature", err)
	}
	if err := (Signed{}).Verify(); !errors.Is(err, identity.ErrSignature) {
		t.Errorf("zero value: %v, want ErrSignature", err)
	}
}
