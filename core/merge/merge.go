// Package merge joins what replicas know about one log, and says what of the log
// can be read. It decides and never acts: it holds no blocks.
//
// The replicated value of a log is a State: four sets that only grow, each of
// signed or proven statements.
//
//   - Heads: verified checkpoints.
//   - Acks: verified cosignatures.
//   - Terms: verified grants.
//   - Prefixes: verified consistency proofs.
//
// Join is their union, less the heads and acks that others make superfluous: a
// head goes when another of its term is proven to extend its tree and has no
// lower start. So Join is commutative, associative and idempotent, even if a
// writer signs two histories: then both heads stay, on every replica. (Were "is
// a prefix of" not closed under composition the order would show; see knowledge.)
// The last head of each term stays when later terms extend it: if that term's
// leader turns out to have signed another history, it is half of the evidence,
// and a replica that had dropped it would end in another state.
//
// What readers see is View, a pure function of the State and of what is here:
//
//   - "Longer" means a larger tree and a proof that it extends ours. Never does
//     size alone decide.
//   - A fork is two heads in one term whose trees are proven to differ at one
//     size. That no proof is at hand yet is not a fork.
//   - In a fork, readers go up to what is proven common, or along the branch
//     that enough of the ack set cosigned; nothing is appended.
//   - A head that names blocks which are not here is a claim. It never takes away
//     what is here under an older head.
//   - Of two grants after one, clean beats unclean, then the higher term wins,
//     then the lower id. What the losing or older term has beyond the base of the
//     winning one is stranded.
//
// The caller must check signatures and rights before a statement enters a State.
package merge

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/grant"
	"github.com/lattice-log/lattice/core/merkle"
)

// ErrContradiction means that two points which are the same tree, or one of
// which extends the other, do not agree on offsets: a writer lied. Kind Corrupt.
var ErrContradiction = lattice.E(lattice.Corrupt, errors.New("offsets contradict the tree"))

// Point names a log up to a place: its blocks as a tree, and the offset at which
// the last of them ends.
type Point struct {
	Size uint64
	Root lattice.Hash
	End  int64
}

// Empty returns the log before its first block: a prefix of every other.
func Empty() Point { return Point{0, merkle.EmptyRoot(), 0} }

func (p Point) compare(o Point) int {
	return cmp.Or(cmp.Compare(p.Size, o.Size), bytes.Compare(p.Root[:], o.Root[:]), cmp.Compare(p.End, o.End))
}

// Head is a verified checkpoint.
type Head struct {
	ID     lattice.Hash // SHA-256 of the signed text
	Author lattice.AuthorID
	Grant  lattice.Hash // of its term; zero: a log without terms
	Term   int32
	Point
	Start       int64
	Incarnation uint64
	Time        uint64
}

// HeadOf makes a head of a checkpoint that was opened for author.
func HeadOf(c merkle.Checkpoint, author lattice.AuthorID) Head {
	return Head{
		ID: sha256.Sum256(c.Body()), Author: author, Grant: c.Grant, Term: c.Term, Point: Point{c.Size, c.Root, c.End},
		Start: c.Start, Incarnation: c.Incarnation, Time: c.Time,
	}
}

func (h Head) compare(o Head) int {
	return cmp.Or(
		bytes.Compare(h.Grant[:], o.Grant[:]), h.Point.compare(o.Point), cmp.Compare(h.Start, o.Start),
		cmp.Compare(h.Incarnation, o.Incarnation), cmp.Compare(h.Time, o.Time), cmp.Compare(h.Term, o.Term),
		bytes.Compare(h.ID[:], o.ID[:]), bytes.Compare(h.Author[:], o.Author[:]),
	)
}

// Ack is a verified cosignature: Author held the log up to Point durably, and
// counted for the term Grant.
type Ack struct {
	Author lattice.AuthorID
	Grant  lattice.Hash
	Point
}

func (a Ack) compare(o Ack) int {
	return cmp.Or(bytes.Compare(a.Grant[:], o.Grant[:]), bytes.Compare(a.Author[:], o.Author[:]), a.Point.compare(o.Point))
}

// Term is a verified grant.
type Term struct {
	ID, Previous lattice.Hash
	Number       int32
	Leader       lattice.AuthorID
	Base         Point
	AckSet       []lattice.AuthorID // not to be changed
	Min          int
	Unclean      bool
}

// TermOf makes a term of a grant.
func TermOf(g grant.Signed) Term {
	return Term{
		ID: g.ID, Previous: g.Previous, Number: g.Term, Leader: g.Leader, Base: Point{g.BaseSize, g.BaseRoot, g.BaseOffset},
		AckSet: g.AckSet, Min: int(g.Min), Unclean: g.Kind == grant.Unclean,
	}
}

func (t Term) compare(o Term) int { return bytes.Compare(t.ID[:], o.ID[:]) }

// Prefix says that one point is a prefix of another. Only Prove makes one.
type Prefix struct{ from, to Point }

// Prove verifies that the log at to extends that at from, by a consistency proof
// as merkle.Consistency returns it. Wraps merkle.ErrProof or ErrContradiction.
func Prove(from, to Point, proof []lattice.Hash) (Prefix, error) {
	if err := merkle.VerifyConsistency(from.Size, to.Size, proof, from.Root, to.Root); err != nil {
		return Prefix{}, fmt.Errorf("prefix: %w", err)
	}
	if from.End > to.End || (from.Size == to.Size) != (from.End == to.End) {
		return Prefix{}, fmt.Errorf("prefix: %w: %d blocks end at %d, %d at %d", ErrContradiction, from.Size, from.End, to.Size, to.End)
	}
	return Prefix{from, to}, nil
}

func (p Prefix) compare(o Prefix) int { return cmp.Or(p.from.compare(o.from), p.to.compare(o.to)) }

// State is the replicated value of a log. Each set is sorted and without
// repetition, as New and Join make it; a State is a value that nothing changes.
type State struct {
	Heads    []Head
	Acks     []Ack
	Terms    []Term
	Prefixes []Prefix
}

// New makes a state of statements in any order, with repetitions.
func New(s State) State { return Join(s, State{}) }

// Join returns what both states know. See the package comment.
func Join(a, b State) State {
	s := State{
		Terms:    union(a.Terms, b.Terms, Term.compare),
		Prefixes: union(a.Prefixes, b.Prefixes, Prefix.compare),
	}
	k := s.knowledge()
	s.Heads = JoinHeads(a.Heads, b.Heads, k.prefix)
	s.Acks = drop(union(a.Acks, b.Acks, Ack.compare), func(x, y Ack) bool {
		return x.Author == y.Author && x.Grant == y.Grant && x.Point != y.Point && k.prefix(x.Point, y.Point)
	})
	return s
}

// JoinHeads unites two sets of heads and drops those that others of the same
// term make superfluous. prefix reports whether one point is proven to be a
// prefix of another; it must be reflexive and closed under composition.
func JoinHeads(a, b []Head, prefix func(a, b Point) bool) []Head {
	return drop(union(a, b, Head.compare), func(x, y Head) bool {
		switch {
		case x.Grant != y.Grant:
			return false
		case x.Point == y.Point && x.Start == y.Start:
			return x.compare(y) < 0 // the same thing said again: the later word stands for both
		}
		return x.Start <= y.Start && prefix(x.Point, y.Point)
	})
}

// union returns the elements of both, sorted, each once, in new memory.
func union[T any](a, b []T, compare func(a, b T) int) []T {
	all := slices.Concat(a, b)
	slices.SortFunc(all, compare)
	return slices.CompactFunc(all, func(a, b T) bool { return compare(a, b) == 0 })
}

// drop removes what is below something else. below is a strict partial order,
// so it does not matter that what is above may be removed as well.
func drop[T any](all []T, below func(x, y T) bool) []T {
	var kept []T
	for i, x := range all {
		superfluous := false
		for j, y := range all {
			if i != j && below(x, y) {
				superfluous = true
				break
			}
		}
		if !superfluous {
			kept = append(kept, x)
		}
	}
	return kept
}
