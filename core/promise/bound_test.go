package promise

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
)

// TestGoldenBound pins a record as it was first written. If it changes, the design is
// wrong, not the test.
func TestGoldenBound(t *testing.T) {
	b := Bound{Term: 5, Candidate: lattice.AuthorID(bytes.Repeat([]byte{6}, 32)), Incarnation: 7}
	enc := b.AppendTo(nil)
	if got, want := hex.EncodeToString(enc), "4c59010000000005"+strings.Repeat("06", 32)+"0000000000000007"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if again, err := ParseBound(enc); err != nil || again != b {
		t.Errorf("%+v, %v", again, err)
	}
}

func FuzzParseBound(f *testing.F) {
	f.Add(Bound{Term: 5, Incarnation: 7}.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ParseBound(b)
		switch {
		case err != nil && !errors.Is(err, ErrBoundRecord):
			t.Fatalf("%v is none of the errors promised", err)
		case err == nil && !bytes.Equal(x.AppendTo(nil), b):
			t.Fatal("it encodes otherwise")
		}
	})
}

// judged is a grant that seeded(2) makes of promises after ruled, and its evidence.
func judged(t testing.TB, ruling *grant.Signed, change func(*grant.Grant), by ...byte) (grant.Signed, []byte) {
	t.Helper()
	p := asked(t, ruling, 2, 2)
	var evidence []byte
	for _, m := range by {
		b, err := Sign(seeded(m), p)
		if err != nil {
			t.Fatal(err)
		}
		evidence = append(evidence, b...)
	}
	g := grant.Grant{
		Store: ruling.Store, Partition: ruling.Partition, Term: p.Term, Leader: p.Candidate, Incarnation: p.Incarnation,
		BaseSize: p.Held.Size, BaseRoot: p.Held.Root, BaseOffset: p.Held.End, Previous: ruling.ID,
		AckSet: ruling.AckSet, Min: ruling.Min, Kind: grant.Promises,
	}
	if change != nil {
		change(&g)
	}
	s, err := grant.Sign(seeded(2), g)
	if err != nil {
		t.Fatal(err)
	}
	note, err := merkle.SignCheckpoint(seeded(2), merkle.Checkpoint{
		Origin: merkle.Origin(s.Store, s.Partition.String()), Size: s.BaseSize, Root: s.BaseRoot, End: s.BaseOffset,
		Term: s.Term, Grant: s.ID, Incarnation: s.Incarnation,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, append(evidence, note...)
}

// TestJudge: a grant holds by the promises beside it and by nothing else.
func TestJudge(t *testing.T) {
	r := ruled(t)
	g, evidence := judged(t, &r, nil, 2, 3)
	if err := Judge(&r, &g, evidence); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change   func(*grant.Grant)
		by       []byte
		evidence func([]byte) []byte
	}{
		"no evidence":                 {by: nil},
		"too few":                     {by: []byte{2}},
		"one twice":                   {by: []byte{2, 2}},
		"without the candidate":       {by: []byte{1, 3}},
		"a stranger":                  {by: []byte{2, 9}},
		"a smaller base":              {by: []byte{2, 3}, change: func(g *grant.Grant) { g.BaseSize, g.BaseRoot, g.BaseOffset = r.BaseSize, r.BaseRoot, r.BaseOffset }},
		"another root":                {by: []byte{2, 3}, change: func(g *grant.Grant) { g.BaseRoot[0]++ }},
		"a later term":                {by: []byte{2, 3}, change: func(g *grant.Grant) { g.Term += 3 }},
		"another incarnation":         {by: []byte{2, 3}, change: func(g *grant.Grant) { g.Incarnation++ }},
		"fewer that must acknowledge": {by: []byte{2, 3}, change: func(g *grant.Grant) { g.Min = 1 }},
		"a smaller set":               {by: []byte{2, 3}, change: func(g *grant.Grant) { g.AckSet, g.Min = []lattice.AuthorID{seeded(2).Author()}, 1 }},
		"another in the set": {by: []byte{2, 3}, change: func(g *grant.Grant) {
			g.AckSet = []lattice.AuthorID{seeded(2).Author(), seeded(3).Author(), seeded(7).Author()}
		}},
		"another kind":                 {by: []byte{2, 3}, change: func(g *grant.Grant) { g.Kind = grant.Unclean }},
		"for another":                  {by: []byte{2, 3}, change: func(g *grant.Grant) { g.Leader = seeded(3).Author() }},
		"a piece of a promise":         {by: []byte{2, 3}, evidence: func(b []byte) []byte { return b[:len(b)-1] }},
		"a forged promise":             {by: []byte{2, 3}, evidence: func(b []byte) []byte { b[len(b)-1] ^= 1; return b }},
		"more than can be looked at":   {by: []byte{2, 3}, evidence: func(b []byte) []byte { return bytes.Repeat(b, MaxEvidence) }},
		"something that is no promise": {by: []byte{2, 3}, evidence: func(b []byte) []byte { return append(make([]byte, Size), b...) }},
		"no first checkpoint":          {by: []byte{2, 3}, evidence: func(b []byte) []byte { return b[:2*Size] }},
		"another's checkpoint": {by: []byte{2, 3}, evidence: func(b []byte) []byte {
			_, e := judged(t, &r, func(g *grant.Grant) { g.Incarnation++ }, 2, 3)
			return append(b[:2*Size], e[2*Size:]...)
		}},
		"a term that is not the ruling": {by: []byte{2, 3}, change: func(g *grant.Grant) { g.Previous[0]++ }},
	} {
		g, evidence := judged(t, &r, c.change, c.by...)
		if c.evidence != nil {
			evidence = c.evidence(evidence)
		}
		if err := Judge(&r, &g, evidence); !errors.Is(err, ErrEvidence) && !errors.Is(err, grant.ErrSuccession) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
