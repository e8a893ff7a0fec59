package promise

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merge"
)

// answers is what a member says to a round, of so many blocks in the ruling term.
func answers(t *testing.T, r *Round, by byte, blocks uint64) []byte {
	t.Helper()
	p := r.Asked()
	p.HeldTerm, p.Held = 90, merge.Point{Size: blocks, Root: lattice.Hash{byte(blocks)}, End: int64(10 * blocks)}
	b, err := Sign(seeded(by), p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func round(t *testing.T, g *grant.Signed, held uint64, votes func(lattice.AuthorID) bool) *Round {
	t.Helper()
	p := asked(t, g, 2, 2)
	p.Held = merge.Point{Size: held, Root: lattice.Hash{byte(held)}, End: int64(10 * held)}
	own, err := Sign(seeded(2), p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRound(g, own, votes)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func anyone(lattice.AuthorID) bool { return true }
func anything(merge.Point) bool    { return true }
func upTo(n uint64) func(merge.Point) bool {
	return func(p merge.Point) bool { return p.Size <= n }
}

// TestRound: what a candidate makes of what it is answered.
func TestRound(t *testing.T) {
	g := ruled(t)
	r := round(t, &g, 5, anyone)
	if ask := r.Ask(); len(ask) != 2 {
		t.Fatalf("it asks %v", ask)
	}
	r.Refused(seeded(1).Author(), errors.New("it is away"), 0)
	if _, _, err := r.Choose(anything); !errors.Is(err, ErrFew) || !strings.Contains(err.Error(), "1 of the 2") || !strings.Contains(err.Error(), "it is away") {
		t.Fatal(err)
	}
	for name, forged := range map[string][]byte{"nothing": nil, "of another": answers(t, r, 1, 9), "of a stranger": answers(t, r, 9, 9)} {
		if err := r.Take(seeded(3).Author(), forged); err == nil || r.Enough() {
			t.Fatalf("an answer %s: %v", name, err)
		}
	}
	other := r.Asked()
	other.Term += 3
	other.Held = merge.Empty()
	late, err := Sign(seeded(3), other)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Take(seeded(3).Author(), late); !errors.Is(err, ErrUnproven) {
		t.Fatalf("a promise of another term: %v", err)
	}
	if err := r.Take(seeded(3).Author(), answers(t, r, 3, 7)); err != nil {
		t.Fatal(err)
	}
	base, evidence, err := r.Choose(anything)
	if promises, _ := Evidence(evidence).Split(); err != nil || base.Size != 7 || len(promises) != 2 {
		t.Fatalf("%+v, %v", base, err)
	}
	// What a member says it has, and nobody can supply, does not count if the others are enough.
	if _, _, err := r.Choose(upTo(6)); !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "7 batches") {
		t.Fatal(err)
	}
	if err := r.Take(seeded(1).Author(), answers(t, r, 1, 6)); err != nil {
		t.Fatal(err)
	}
	base, evidence, err = r.Choose(upTo(6))
	if promises, _ := Evidence(evidence).Split(); err != nil || base.Size != 6 || len(promises) != 2 {
		t.Fatalf("%+v, %v", base, err)
	}
	// Who was removed has no vote, and is not asked.
	r = round(t, &g, 5, func(a lattice.AuthorID) bool { return a != seeded(3).Author() })
	if err := r.Take(seeded(3).Author(), answers(t, r, 3, 7)); err != nil {
		t.Fatal(err)
	}
	if ask := r.Ask(); r.Enough() || len(ask) != 1 || ask[0] != seeded(1).Author() {
		t.Fatalf("it asks %v, and has enough: %v", ask, r.Enough())
	}
}

// TestRoundsKeepWhatWasAcknowledged draws sets, numbers, what each holds and who answers:
// whatever base a round chooses, it has all that min members may have acknowledged, and its
// evidence makes the grant.
func TestRoundsKeepWhatWasAcknowledged(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	chosen := 0
	for range 400 {
		n := 2 + r.IntN(3)
		g := ruled(t)
		set := []lattice.AuthorID{}
		for i := range n {
			set = append(set, seeded(byte(i+1)).Author())
		}
		g, err := grant.Sign(seeded(1), grant.Grant{
			Store: g.Store, Partition: g.Partition, Term: 90, Leader: seeded(1).Author(), BaseSize: 4, BaseRoot: lattice.Hash{4},
			BaseOffset: 40, Previous: lattice.Hash{9}, AckSet: set, Min: uint16(1 + r.IntN(n)), Kind: grant.Seal,
		})
		if err != nil {
			t.Fatal(err)
		}
		holds := make([]uint64, n+1) // by member; each may have acknowledged all of it
		for i := 1; i <= n; i++ {
			holds[i] = 4 + r.Uint64N(6)
		}
		can := upTo(4 + r.Uint64N(6))
		x := round(t, &g, holds[2], anyone)
		for i := 1; i <= n; i++ {
			if i != 2 && r.IntN(4) > 0 {
				if err := x.Take(seeded(byte(i)).Author(), answers(t, x, byte(i), holds[i])); err != nil {
					t.Fatal(err)
				}
			}
		}
		base, evidence, err := x.Choose(func(p merge.Point) bool { return p.Size <= holds[2] || can(p) })
		if err != nil {
			continue
		}
		chosen++
		for size := base.Size + 1; size < 10; size++ {
			have := 0
			for i := 1; i <= n; i++ {
				if holds[i] >= size {
					have++
				}
			}
			// All that have it could be enough to acknowledge it, unless one of them is needed
			// whose promise of less was counted.
			if counted, _ := Evidence(evidence).Split(); have >= int(g.Min) && len(counted) >= n-int(g.Min)+1 {
				t.Fatalf("of %d members that hold %v, %d need to acknowledge; %d promises make a base of %d", n, holds[1:], g.Min, len(counted), base.Size)
			}
		}
	}
	if chosen < 100 {
		t.Fatalf("%d rounds came to an end", chosen)
	}
}
