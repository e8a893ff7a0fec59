package promise

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/identity"
	"github.com/lattice-log/lattice/core/merge"
	"github.com/lattice-log/lattice/core/merkle"
)

func seeded(b byte) identity.Key { return identity.FromSeed([32]byte(bytes.Repeat([]byte{b}, 32))) }

// goldenSignature is what seeded(1) signs the promise of TestGolden with.
const goldenSignature = "929f127c78038646b716763f9bd4e29740dfd8681f27a29255258d0d7f0060ee46bf53267dd53aebd55a9c1942af4a98febf1eea7ebe3550afcb8a85370a100b"

// ruled is a grant of a term with three members, of which two must acknowledge.
func ruled(t testing.TB) grant.Signed {
	t.Helper()
	g, err := grant.Sign(seeded(1), grant.Grant{
		Store: lattice.StoreID{1}, Partition: lattice.TopicPartition{Topic: lattice.TopicID{2}, Partition: 3}, Term: 90,
		Leader: seeded(1).Author(), BaseSize: 4, BaseRoot: lattice.Hash{4}, BaseOffset: 40, Previous: lattice.Hash{9},
		AckSet: []lattice.AuthorID{seeded(1).Author(), seeded(2).Author(), seeded(3).Author()}, Min: 2, Kind: grant.Seal,
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// asked is a promise as a candidate asks for it.
func asked(t testing.TB, g *grant.Signed, candidate, member byte) Promise {
	t.Helper()
	term, err := Term(g, seeded(candidate).Author(), 90, 0)
	if err != nil {
		t.Fatal(err)
	}
	return Promise{
		Store: g.Store, Partition: g.Partition, Previous: g.ID, Term: term, Candidate: seeded(candidate).Author(), Incarnation: 7,
		HeldTerm: 90, Held: merge.Point{Size: 5, Root: lattice.Hash{5}, End: 50}, Member: seeded(member).Author(),
	}
}

// TestGolden pins a promise as it was first signed. If it changes, the design is wrong,
// not the test.
func TestGolden(t *testing.T) {
	x := func(b string, n int) string { return strings.Repeat(b, n) }
	p := Promise{
		Store: lattice.StoreID(bytes.Repeat([]byte{1}, 32)), Partition: lattice.TopicPartition{Topic: lattice.TopicID(bytes.Repeat([]byte{2}, 16)), Partition: 3},
		Previous: lattice.Hash(bytes.Repeat([]byte{4}, 32)), Term: 5, Candidate: lattice.AuthorID(bytes.Repeat([]byte{6}, 32)), Incarnation: 7,
		HeldTerm: 4, Held: merge.Point{Size: 8, Root: lattice.Hash(bytes.Repeat([]byte{9}, 32)), End: 10},
	}
	b, err := Sign(seeded(1), p)
	if err != nil {
		t.Fatal(err)
	}
	me := seeded(1).Author()
	want := "4c550100" + x("01", 32) + x("02", 16) + "00000003" + x("04", 32) + "00000005" + x("06", 32) + "0000000000000007" +
		"00000004" + "0000000000000008" + x("09", 32) + "000000000000000a" + hex.EncodeToString(me[:])
	if got := hex.EncodeToString(b[:unsigned]); got != want || len(b) != Size {
		t.Errorf("%d bytes\n got %s\nwant %s", len(b), got, want)
	}
	if got := hex.EncodeToString(b[unsigned:]); got != goldenSignature {
		t.Errorf("signature\n got %s\nwant %s", got, goldenSignature)
	}
	again, err := Parse(b)
	if p.Member = me; err != nil || again != p {
		t.Errorf("%+v, %v", again, err)
	}
	for i := range b {
		for _, mask := range []byte{1, 0x80} {
			c := bytes.Clone(b)
			c[i] ^= mask
			if _, err := Parse(c); err == nil {
				t.Errorf("byte %d ^ %#x is taken", i, mask)
			}
		}
		if _, err := Parse(b[:i]); err == nil {
			t.Errorf("the first %d bytes are taken", i)
		}
	}
}

func FuzzParse(f *testing.F) {
	g := ruled(f)
	b, err := Sign(seeded(2), asked(f, &g, 2, 2))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, identity.ErrSignature) {
				t.Fatalf("%v is none of the errors promised", err)
			}
			return
		}
		if !bytes.Equal(p.appendTo(nil), b[:unsigned]) {
			t.Fatal("it encodes otherwise")
		}
	})
}

func TestRefused(t *testing.T) {
	g := ruled(t)
	for name, change := range map[string]func(*Promise){
		"a negative partition":  func(p *Promise) { p.Partition.Partition = -1 },
		"a negative term":       func(p *Promise) { p.Term = -1 },
		"a head of that term":   func(p *Promise) { p.HeldTerm = p.Term },
		"more blocks than ends": func(p *Promise) { p.Held.Size = 51 },
		"no blocks, an end":     func(p *Promise) { p.Held = merge.Point{End: 1, Root: merkle.EmptyRoot()} },
		"no grant":              func(p *Promise) { p.Previous = lattice.Hash{} },
	} {
		p := asked(t, &g, 2, 2)
		change(&p)
		if _, err := Sign(seeded(2), p); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMay: to whom a member may promise what.
func TestMay(t *testing.T) {
	g := ruled(t)
	good := asked(t, &g, 2, 3)
	bound, err := Bound{}.May(&g, &good)
	if err != nil || bound != (Bound{good.Term, good.Candidate, 7}) {
		t.Fatalf("%+v, %v", bound, err)
	}
	if again, err := bound.May(&g, &good); err != nil || again != bound {
		t.Fatalf("asked again: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*Promise)
		want   error
	}{
		"another incarnation":         {func(p *Promise) { p.Incarnation++ }, ErrBound},
		"an older term":               {func(p *Promise) { p.Term -= 3 }, ErrBound},
		"a term of another candidate": {func(p *Promise) { p.Term++ }, ErrNoMember},
		"after another grant":         {func(p *Promise) { p.Previous[0]++ }, ErrOtherGrant},
		"of another partition":        {func(p *Promise) { p.Partition.Partition++ }, ErrOtherGrant},
		"a candidate of no set":       {func(p *Promise) { p.Candidate = seeded(9).Author() }, ErrNoMember},
		"by a member of no set":       {func(p *Promise) { p.Member = seeded(9).Author() }, ErrNoMember},
	} {
		p := good
		c.change(&p)
		if b, err := bound.May(&g, &p); !errors.Is(err, c.want) || b != bound {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	other := asked(t, &g, 1, 3)
	other.Term += 3
	if b, err := bound.May(&g, &other); err != nil || b.Candidate != other.Candidate {
		t.Errorf("a later term of another: %v", err)
	}
}

// TestCount: what promises make.
func TestCount(t *testing.T) {
	g := ruled(t)
	two, three := asked(t, &g, 2, 2), asked(t, &g, 2, 3)
	everyone := func(lattice.AuthorID) bool { return true }
	count := func(votes func(lattice.AuthorID) bool, all ...Promise) (merge.Point, error) {
		return Count(&g, two.Term, two.Candidate, 7, all, votes)
	}
	if base, err := count(everyone, two, three); err != nil || base != two.Held {
		t.Fatalf("%+v, %v", base, err)
	}
	if _, err := count(everyone, two, two); !errors.Is(err, ErrFew) {
		t.Errorf("one member twice: %v", err)
	}
	if _, err := count(everyone, three, asked(t, &g, 2, 1)); !errors.Is(err, ErrNoMember) {
		t.Errorf("without the candidate's own: %v", err)
	}
	if _, err := count(func(a lattice.AuthorID) bool { return a != three.Member }, two, three); !errors.Is(err, ErrFew) {
		t.Errorf("a removed member's: %v", err)
	}
	stale := three
	stale.HeldTerm, stale.Held = 80, merge.Point{Size: 9, Root: lattice.Hash{0xee}, End: 99}
	if base, err := count(everyone, two, stale); err != nil || base != two.Held {
		t.Errorf("what an older term left beyond the ruling one's base: %+v, %v", base, err)
	}
	first := two
	first.HeldTerm, first.Held = 80, merge.Point{Size: 2, Root: lattice.Hash{2}, End: 20}
	if base, err := count(everyone, first, stale); err != nil || base.Size != g.BaseSize || base.Root != g.BaseRoot {
		t.Errorf("nobody took anything of the ruling term: %+v, %v", base, err)
	}
	split := three
	split.Held.Root[0]++
	if _, err := count(everyone, two, split); !errors.Is(err, ErrSplit) {
		t.Errorf("two histories: %v", err)
	}
}

// TestTerms: candidates of a set never ask for one term, and each goes on rising.
func TestTerms(t *testing.T) {
	g := ruled(t)
	of := map[int32]byte{}
	for _, c := range []byte{1, 2, 3} {
		after := int32(0)
		for range 50 {
			term, err := Term(&g, seeded(c).Author(), after, 95)
			if err != nil || term <= after || term < 95 {
				t.Fatalf("%d after %d: %v", term, after, err)
			}
			if by, twice := of[term]; twice {
				t.Fatalf("term %d of %d and %d", term, by, c)
			}
			of[term], after = c, term
		}
	}
	if _, err := Term(&g, seeded(9).Author(), 0, 0); !errors.Is(err, ErrNoMember) {
		t.Error(err)
	}
	if _, err := Term(&g, seeded(1).Author(), 1<<31-3, 1<<31); lattice.KindOf(err) != lattice.Unsupported {
		t.Error(err)
	}
}
