package forkpoint

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/identity"
)

func seeded(b byte) identity.Key { return identity.FromSeed([32]byte(bytes.Repeat([]byte{b}, 32))) }

func golden() Point {
	fill := func(b byte) [32]byte { return [32]byte(bytes.Repeat([]byte{b}, 32)) }
	topic := func(b byte, n int32) lattice.TopicPartition {
		return lattice.TopicPartition{Topic: lattice.TopicID(bytes.Repeat([]byte{b}, 16)), Partition: n}
	}
	return Point{
		Store: fill(1), Origin: fill(2), Time: 3, Random: [16]byte(bytes.Repeat([]byte{4}, 16)), Snapshot: fill(5), Root: fill(6), Name: "try",
		Ends: []End{{topic(9, 0), 7}, {topic(8, 1), 0}, {topic(8, 0), 1 << 40}},
	}
}

// What seeded(1) signs the fork point of TestGolden with, and the fork's id.
const (
	goldenSignature = "57e4094d13422b6d53522308dde10bdbfdbd2125a2fbc06090794b3ba092c27aff336bcf8138d29875e38a6ceb668ab9954c97d3a3c4799a6350e16cd93ad504"
	goldenID        = "1c27ebf807354f4a125b989e71317311ff3c7eca3d47a7804494884bdbae67ba"
)

// TestGolden pins a fork point as it was first signed. If it changes, the design is wrong,
// not the test.
func TestGolden(t *testing.T) {
	x := func(b string, n int) string { return strings.Repeat(b, n) }
	s, err := Sign(seeded(1), golden())
	if err != nil {
		t.Fatal(err)
	}
	me := seeded(1).Author()
	want := "4c660100" + x("01", 32) + x("02", 32) + hex.EncodeToString(me[:]) + "0000000000000003" + x("04", 16) + x("05", 32) + x("06", 32) +
		"0003" + hex.EncodeToString([]byte("try")) + "00000003" +
		x("08", 16) + "00000000" + "0000010000000000" + x("08", 16) + "00000001" + "0000000000000000" + x("09", 16) + "00000000" + "0000000000000007"
	b := s.Bytes()
	unsigned := len(b) - identity.SignatureSize
	if got := hex.EncodeToString(b[:unsigned]); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if got := hex.EncodeToString(b[unsigned:]); got != goldenSignature {
		t.Errorf("signature\n got %s\nwant %s", got, goldenSignature)
	}
	if s.ID.String() != goldenID {
		t.Errorf("the id is %s, want %s", s.ID, goldenID)
	}
	for _, e := range golden().Ends {
		if at, ok := s.End(e.Partition); !ok || at != e.Offset {
			t.Errorf("%s ends at %d, %v", e.Partition, at, ok)
		}
	}
	if _, ok := s.End(lattice.TopicPartition{Partition: 1}); ok {
		t.Error("a partition that it does not name ends somewhere")
	}
	for i := range b {
		c := bytes.Clone(b)
		c[i] ^= 1
		if _, err := Parse(c); err == nil {
			t.Errorf("byte %d changed is taken", i)
		}
		if _, err := Parse(b[:i]); err == nil {
			t.Errorf("the first %d bytes are taken", i)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, change := range map[string]func(*Point){
		"no store":           func(p *Point) { p.Store = lattice.StoreID{} },
		"no origin":          func(p *Point) { p.Origin = lattice.StoreID{} },
		"no snapshot":        func(p *Point) { p.Snapshot = lattice.Hash{} },
		"no name":            func(p *Point) { p.Name = "" },
		"a control name":     func(p *Point) { p.Name = "a\nb" },
		"a time":             func(p *Point) { p.Time = 1 << 60 },
		"a partition":        func(p *Point) { p.Ends[0].Partition.Partition = -1 },
		"an offset":          func(p *Point) { p.Ends[0].Offset = -1 },
		"a partition, twice": func(p *Point) { p.Ends = append(p.Ends, p.Ends[0]) },
	} {
		p := golden()
		change(&p)
		if _, err := Sign(seeded(1), p); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s, err := Sign(seeded(1), golden())
	if err != nil {
		t.Fatal(err)
	}
	later := bytes.Clone(s.Bytes())
	later[2] = 2
	if _, err := Parse(later); !errors.Is(err, ErrVersion) {
		t.Errorf("a later version: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	s, err := Sign(seeded(2), golden())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(s.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrVersion) && !errors.Is(err, identity.ErrSignature) {
				t.Fatalf("%v is none of the errors promised", err)
			}
			return
		}
		if !bytes.Equal(s.appendTo(nil), b[:len(b)-identity.SignatureSize]) {
			t.Fatal("it encodes otherwise")
		}
	})
}
