package merge

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// everyProof is evidence of all there is to know about these histories.
func everyProof(histories ...string) []Prefix {
	var p []Prefix
	for _, a := range histories {
		for _, b := range histories {
			if a != b && strings.HasPrefix(b, a) {
				p = append(p, proven(a, b)...)
			}
		}
	}
	return p
}

// want is what a test expects of a view, as histories.
type want struct {
	target, readable, committed string
	start, jump, expired        int64 // jump: where to, 0 for none
	frozen, diverged            bool
	forks                       int
	unproven, stranded, refused []Head
}

func expect(t *testing.T, v View, w want) {
	t.Helper()
	got := want{start: v.Start, expired: v.Expired, frozen: v.Frozen, diverged: v.Diverged, forks: len(v.Forks),
		unproven: v.Unproven, stranded: v.Stranded, refused: v.Refused}
	if v.Jump != nil {
		got.jump = v.Jump.Start
	}
	got.target, got.readable, got.committed = w.target, w.readable, w.committed
	for _, p := range []struct {
		what string
		got  Point
		want string
	}{{"target", v.Target, w.target}, {"readable", v.Readable, w.readable}, {"committed", v.Committed, w.committed}} {
		if p.got != at(p.want) {
			t.Errorf("%s: %d blocks up to %d, want %q", p.what, p.got.Size, p.got.End, p.want)
		}
	}
	if !reflect.DeepEqual(got, w) {
		t.Errorf("have %+v\nwant %+v", got, w)
	}
}

func TestEmptyState(t *testing.T) {
	expect(t, State{}.View(Empty()), want{})
	expect(t, State{}.View(at("abc")), want{diverged: false}) // nothing certified: nothing is read
}

func TestOneHead(t *testing.T) {
	s := state(head("", "aaaa", 10), proven("aa", "aaaa", "aaaaaa"))
	expect(t, s.View(at("aaaa")), want{target: "aaaa", readable: "aaaa", committed: "aaaa", start: 10})
	expect(t, s.View(at("aa")), want{target: "aaaa", readable: "aa", committed: "aaaa", start: 10})
	// Bytes received beyond the head are provisional.
	expect(t, s.View(at("aaaaaa")), want{target: "aaaa", readable: "aaaa", committed: "aaaa", start: 10})
}

// TestEqualLengthDivergentCopies: both stay, on every replica, and nobody chooses.
func TestEqualLengthDivergentCopies(t *testing.T) {
	a, b := state(head("", "aaa", 0), proven("a", "aaa")), state(head("", "abb", 0), proven("a", "abb"))
	ab, ba := Join(a, b), Join(b, a)
	if !equalStates(ab, ba) || len(ab.Heads) != 2 {
		t.Fatalf("%+v\n%+v", ab, ba)
	}
	for _, local := range []string{"aaa", "abb"} {
		expect(t, ab.View(at(local)), want{target: "a", readable: "a", committed: "", frozen: true, diverged: true, forks: 1})
	}
	if f := ab.View(Empty()).Forks[0]; f.Common != at("a") {
		t.Errorf("common %+v", f.Common)
	}
}

// TestLongerButInconsistent: size decides nothing.
func TestLongerButInconsistent(t *testing.T) {
	ours := head("", "aaa", 0)
	longer := head("", "abbbbbbb", 0)
	s := state(ours, longer, proven("a", "aaa"), proven("a", "abb", "abbbbbbb"))
	v := s.View(at("aaa"))
	if !v.Frozen || v.Readable != at("a") || len(v.Forks) != 1 || len(s.Heads) != 2 {
		t.Errorf("%+v", v)
	}
}

// TestCannotProveIsNotAFork: without a proof either way the log goes on.
func TestCannotProveIsNotAFork(t *testing.T) {
	s := state(head("", "aaa", 0), head("", "abbbbbbb", 0))
	expect(t, s.View(at("aaa")), want{target: "aaa", readable: "aaa", committed: "aaa", unproven: []Head{head("", "abbbbbbb", 0)}})
	// The other replica sees it the other way round, with the same state.
	expect(t, s.View(at("abbbbbbb")), want{target: "abbbbbbb", readable: "abbbbbbb", committed: "abbbbbbb", unproven: []Head{head("", "aaa", 0)}})
}

// TestClaim: a head that names blocks nobody has never takes away what is here.
func TestClaim(t *testing.T) {
	claim := head("", "a"+strings.Repeat("z", 100), 1000)
	s := state(head("", "aaa", 0), claim)
	expect(t, s.View(at("aaa")), want{target: "aaa", readable: "aaa", committed: "aaa", unproven: []Head{claim}})
	// Even when it is proven to extend ours, what is here stays readable: only the
	// caller, who has seen the blocks beyond, follows the jump.
	grown := head("", "aaa"+strings.Repeat("z", 100), 1000)
	v := state(head("", "aaa", 0), grown, proven("aaa", "aaa"+strings.Repeat("z", 100))).View(at("aaa"))
	if v.Readable != at("aaa") || v.Start != 0 || v.Jump == nil || v.Expired != 970 {
		t.Errorf("%+v", v)
	}
}

// TestHole: [0,2) and [5,7) of one log do not make a log with a hole.
func TestHole(t *testing.T) {
	later := head("", "aabbbcc", 50)
	s := state(head("", "aa", 0), later)
	expect(t, s.View(at("aa")), want{target: "aa", readable: "aa", committed: "aa", unproven: []Head{later}})
	// Proven, the end is still what is here. A signed start alone may skip.
	s = state(s, proven("aa", "aabbbcc"))
	expect(t, s.View(at("aa")), want{target: "aabbbcc", readable: "aa", committed: "aabbbcc", jump: 50, expired: 30})
	s = state(head("", "aa", 0), head("", "aabbbcc", 0), proven("aa", "aabbbcc"))
	expect(t, s.View(at("aa")), want{target: "aabbbcc", readable: "aa", committed: "aabbbcc"})
}

// TestStaleReplicaMeetsTruncatedLeader: [0,8) here, start 10 and end 12 there.
func TestStaleReplicaMeetsTruncatedLeader(t *testing.T) {
	stale, leader := head("", "aaaaaaaa", 0), head("", "aaaaaaaaaaaa", 100)
	s := state(stale, leader)
	expect(t, s.View(at("aaaaaaaa")), want{target: "aaaaaaaa", readable: "aaaaaaaa", committed: "aaaaaaaa", unproven: []Head{leader}})
	s = state(s, proven("aaaaaaaa", "aaaaaaaaaaaa"))
	expect(t, s.View(at("aaaaaaaa")), want{target: "aaaaaaaaaaaa", readable: "aaaaaaaa", committed: "aaaaaaaaaaaa", jump: 100, expired: 20})
	// A copy of another history is not dropped for it.
	forged := state(head("", "aaaaabbb", 0), leader, proven("aaaaa", "aaaaabbb"), proven("aaaaa", "aaaaaaaa", "aaaaaaaaaaaa"))
	v := forged.View(at("aaaaabbb"))
	if !v.Frozen || v.Jump != nil || v.Readable != at("aaaaa") {
		t.Errorf("%+v", v)
	}
	// Here, and replaced by what was fetched: no jump is left, the start is the signed one.
	expect(t, s.View(at("aaaaaaaaaaaa")), want{target: "aaaaaaaaaaaa", readable: "aaaaaaaaaaaa", committed: "aaaaaaaaaaaa", start: 100})
}

// TestUncertifiedCopyIsNotDropped: what is here but under no known head does not
// vanish because a head starts beyond it.
func TestUncertifiedCopyIsNotDropped(t *testing.T) {
	far := head("t2", "aaaaaaaaaaaa", 100)
	s := state(term("t1", "", 1, ""), term("t2", "t1", 2, "aaaaaaaaaa"), far, proven("aaaaaaaaaa", "aaaaaaaaaaaa"))
	expect(t, s.View(at("aaaaaaaa")), want{target: "aaaaaaaaaaaa", committed: "aaaaaaaaaaaa", unproven: []Head{far}})
}

// TestFreshReplicaMeetsTruncatedLeader: it starts where the log starts.
func TestFreshReplicaMeetsTruncatedLeader(t *testing.T) {
	expect(t, state(head("", "aaaaaaaaaaaa", 100)).View(Empty()),
		want{target: "aaaaaaaaaaaa", committed: "aaaaaaaaaaaa", jump: 100, expired: 100})
}

// TestStartOnlyMovesForward: an older checkpoint with a higher start is not
// forgotten for a longer one with a lower.
func TestStartOnlyMovesForward(t *testing.T) {
	s := state(head("", "aaaa", 30), head("", "aaaaaa", 10), proven("aaaa", "aaaaaa"))
	if len(s.Heads) != 2 {
		t.Fatalf("%+v", s.Heads)
	}
	expect(t, s.View(at("aaaaaa")), want{target: "aaaaaa", readable: "aaaaaa", committed: "aaaaaa", start: 30})
}

// TestLeaderBehindItsOwnHead: a leader with a lost tail or a restored backup sees
// that its log went further: it fetches before it appends.
func TestLeaderBehindItsOwnHead(t *testing.T) {
	s := state(term("t1", "", 1, ""), head("t1", "aaaaa", 0), proven("aaa", "aaaaa"))
	if v := s.View(at("aaa")); v.Target != at("aaaaa") || v.Readable != at("aaa") {
		t.Errorf("%+v", v)
	}
}

// TestNewTermStrandsTheOldSuffix: the old leader went on beyond the base.
func TestNewTermStrandsTheOldSuffix(t *testing.T) {
	old, now := head("t1", "aaaxx", 0), head("t2", "aaabbbb", 0)
	s := state(term("t1", "", 1, ""), term("t2", "t1", 2, "aaa"), old)
	proofs := proven("aaa", "aaaxx")
	// The grant alone, before any head of the new term: readers stop at its base.
	expect(t, state(s, proofs).View(at("aaaxx")), want{target: "aaa", readable: "aaa", committed: "aaa", diverged: true, stranded: []Head{old}})
	s = state(s, now, proofs, proven("aaa", "aaab", "aaabbbb"), proven("aaa", "aaax", "aaaxx"))
	expect(t, s.View(at("aaaxx")), want{target: "aaabbbb", readable: "aaa", committed: "aaabbbb", diverged: true, stranded: []Head{old}})
	expect(t, s.View(at("aaab")), want{target: "aaabbbb", readable: "aaab", committed: "aaabbbb", stranded: []Head{old}})
}

// TestLongerOldTermDoesNotWin: not even when the new term has written nothing.
func TestLongerOldTermDoesNotWin(t *testing.T) {
	s := state(term("t1", "", 1, ""), term("t2", "t1", 2, "aaa"), head("t1", "aaaaaaaaa", 0), head("t2", "aaa", 0), proven("aaa", "aaaaaaaaa"))
	if len(s.Heads) != 2 {
		t.Fatalf("the new term's head was dropped for a longer one of the old term: %+v", s.Heads)
	}
	expect(t, s.View(at("aaa")), want{target: "aaa", readable: "aaa", committed: "aaa", stranded: []Head{head("t1", "aaaaaaaaa", 0)}})
}

// TestPlannedHandoff: nothing is stranded when the base is the old leader's last head.
func TestPlannedHandoff(t *testing.T) {
	s := state(term("t1", "", 1, ""), term("t2", "t1", 2, "aaa"), head("t1", "aaa", 0), head("t2", "aaabb", 0), proven("aaa", "aaabb"))
	expect(t, s.View(at("aaabb")), want{target: "aaabb", readable: "aaabb", committed: "aaabb"})
}

// TestTwoGrantsForOneBase: clean beats unclean, then the higher term, then the
// lower id, and so on every replica; what follows the loser loses with it.
func TestTwoGrantsForOneBase(t *testing.T) {
	root := term("t1", "", 1, "")
	unclean := term("u", "t1", 9, "aa")
	unclean.Unclean = true
	s := state(root, term("t2", "t1", 2, "aa"), unclean, term("u2", "u", 10, "aax"))
	if got := s.View(Empty()).Term; got.ID != id("t2") {
		t.Errorf("clean does not beat unclean: term %d", got.Number)
	}
	s = state(s, term("t3", "t1", 3, "aa"))
	if got := s.View(Empty()).Term; got.ID != id("t3") {
		t.Errorf("the higher term does not win: term %d", got.Number)
	}
	one, two := term("x", "t1", 4, "aa"), term("y", "t1", 4, "aa")
	lower := one
	if two.compare(one) < 0 {
		lower = two
	}
	if a, b := state(root, one, two).View(Empty()).Term, state(two, root, one).View(Empty()).Term; a.ID != lower.ID || b.ID != lower.ID {
		t.Error("two grants of one term: not the lower id, or not the same everywhere")
	}
	// The loser's blocks are stranded.
	lost := head("u2", "aaxx", 0)
	s = state(s, lost, head("t3", "aab", 0), proven("aa", "aax", "aaxx"), proven("aa", "aab"))
	expect(t, s.View(at("aab")), want{target: "aab", readable: "aab", committed: "aab", stranded: []Head{lost}})
}

// TestOwnerEndsAFreeze: a grant that names a branch ends it. The evidence stays.
func TestOwnerEndsAFreeze(t *testing.T) {
	s := state(term("t1", "", 1, ""), head("t1", "aabb", 0), head("t1", "aaccc", 0),
		everyProof("aa", "aab", "aabb", "aac", "aacc", "aaccc"))
	expect(t, s.View(at("aabb")), want{target: "aa", readable: "aa", committed: "aa", frozen: true, diverged: true, forks: 1})
	s = state(s, term("t2", "t1", 2, "aabb"))
	expect(t, s.View(at("aabb")), want{target: "aabb", readable: "aabb", committed: "aabb", forks: 1, stranded: []Head{head("t1", "aaccc", 0)}})
	s = state(s, head("t2", "aabbd", 0), proven("aabb", "aabbd"))
	expect(t, s.View(at("aabbd")), want{target: "aabbd", readable: "aabbd", committed: "aabbd", forks: 1, stranded: []Head{head("t1", "aaccc", 0)}})
}

// TestHeadOffItsBase: a head that is not proven to stand on its term's base is
// not followed, and one that contradicts it is refused.
func TestHeadOffItsBase(t *testing.T) {
	terms := state(term("t1", "", 1, ""), term("t2", "t1", 2, "aaa"), head("t1", "aaa", 0))
	off := head("t2", "bbbbb", 0)
	s := state(terms, off)
	expect(t, s.View(at("aaa")), want{target: "aaa", readable: "aaa", committed: "aaa", unproven: []Head{off}})
	s = state(s, proven("bbb", "bbbbb"))
	expect(t, s.View(at("aaa")), want{target: "aaa", readable: "aaa", committed: "aaa", refused: []Head{off}})
	// The leader signed two histories, which is evidence; but only one of them
	// can be the log, so the log goes on.
	s = state(s, head("t2", "aaac", 0), proven("aaa", "aaac"))
	expect(t, s.View(at("aaac")), want{target: "aaac", readable: "aaac", committed: "aaac", refused: []Head{off}, forks: 1})
}

// TestCosignatures: committed means held by enough of the ack set.
func TestCosignatures(t *testing.T) {
	tm := term("t1", "", 1, "")
	tm.AckSet, tm.Min = append(tm.AckSet, author("x"), author("y")), 2
	s := state(tm, head("t1", "aaaaa", 0), everyProof("a", "aa", "aaa", "aaaa", "aaaaa"))
	expect(t, s.View(at("aaaaa")), want{target: "aaaaa", readable: "aaaaa"})
	s = state(s, ack("x", "t1", "aa"))
	expect(t, s.View(at("aaaaa")), want{target: "aaaaa", readable: "aaaaa", committed: "aa"})
	s = state(s, ack("x", "t1", "aaa"), ack("y", "t1", "aaaa"), ack("stranger", "t1", "aaaaa"), ack("y", "t0", "aaaaa"))
	expect(t, s.View(at("aaaaa")), want{target: "aaaaa", readable: "aaaaa", committed: "aaaa"})
	if len(s.Acks) != 4 {
		t.Errorf("an older cosignature of x was not dropped: %+v", s.Acks)
	}
	tm.Min = 3
	s = state(tm, State{Heads: s.Heads, Acks: s.Acks, Prefixes: s.Prefixes})
	expect(t, s.View(at("aaaaa")), want{target: "aaaaa", readable: "aaaaa", committed: "aaa"})
}

// TestForkWithCosignedBranch: readers follow the branch that enough of the set
// hold; when both have enough, they stop where the branches part.
func TestForkWithCosignedBranch(t *testing.T) {
	tm := term("t1", "", 1, "")
	tm.AckSet, tm.Min = append(tm.AckSet, author("x"), author("y")), 2
	s := state(tm, head("t1", "aabb", 0), head("t1", "aacccc", 0), everyProof("aa", "aab", "aabb", "aac", "aacc", "aacccc"))
	expect(t, s.View(at("aabb")), want{target: "aa", readable: "aa", committed: "", frozen: true, diverged: true, forks: 1})
	s = state(s, ack("x", "t1", "aab"))
	expect(t, s.View(at("aabb")), want{target: "aab", readable: "aab", committed: "aab", frozen: true, diverged: true, forks: 1})
	expect(t, s.View(at("aacccc")), want{target: "aab", readable: "aa", committed: "aab", frozen: true, diverged: true, forks: 1})
	s = state(s, ack("y", "t1", "aacc"))
	expect(t, s.View(at("aabb")), want{target: "aa", readable: "aa", committed: "aa", frozen: true, diverged: true, forks: 1})
}

// TestLeaderLostQuorumLeft: what two of three held is in the new term's base; the
// old leader's own suffix is stranded.
func TestLeaderLostQuorumLeft(t *testing.T) {
	t1 := term("t1", "", 1, "")
	t1.AckSet, t1.Min = append(t1.AckSet, author("x"), author("leader t2")), 2
	t2 := term("t2", "t1", 2, "aaa")
	t2.AckSet, t2.Min = t1.AckSet, 2
	old := head("t1", "aaazz", 0)
	s := state(t1, t2, old, ack("x", "t1", "aaa"), head("t2", "aaab", 0), everyProof("aaa", "aaaz", "aaazz", "aaab"))
	v := s.View(at("aaab"))
	expect(t, v, want{target: "aaab", readable: "aaab", committed: "aaa", stranded: []Head{old}})
	expect(t, state(s, ack("x", "t2", "aaab")).View(at("aaab")), want{target: "aaab", readable: "aaab", committed: "aaab", stranded: []Head{old}})
	// The old leader returns: its suffix is not served.
	expect(t, s.View(at("aaazz")), want{target: "aaab", readable: "aaa", committed: "aaa", diverged: true, stranded: []Head{old}})
}

// TestLyingOffsets: one tree, said to end at two offsets, is two histories.
func TestLyingOffsets(t *testing.T) {
	lie := head("", "aaa", 0)
	lie.End--
	s := state(head("", "aaa", 0), lie)
	if v := s.View(at("aaa")); !v.Frozen || len(v.Forks) != 1 {
		t.Errorf("%+v", v)
	}
}

// TestUnknownIsNotRead: what is here, of which it is not known on which side of
// a fork or a change of term it lies, is not read.
func TestUnknownIsNotRead(t *testing.T) {
	fork := state(head("", "aabb", 0), head("", "aacc", 0), proven("aa", "aabb"), proven("aa", "aac", "aacc"))
	fork = state(fork, proven("aab", "aabb"))
	expect(t, fork.View(at("aab")), want{target: "aa", frozen: true, forks: 1})
	old := head("t1", "aaaxx", 0)
	terms := state(term("t1", "", 1, ""), term("t2", "t1", 2, "aaab"), old, head("t2", "aaabb", 0),
		proven("aaax", "aaaxx"), proven("aaab", "aaabb"), proven("aa", "aaaxx"))
	expect(t, terms.View(at("aa")), want{target: "aaabb", committed: "aaabb", unproven: []Head{head("t2", "aaabb", 0)}, stranded: []Head{old}})
	terms = state(terms, proven("aa", "aaabb"))
	expect(t, terms.View(at("aa")), want{target: "aaabb", readable: "aa", committed: "aaabb", stranded: []Head{old}})
}

// TestOldLieIsNotAForkOfWhatFollows: two ends were signed for one tree; heads
// that extend it are not at odds with each other for that.
func TestOldLieIsNotAForkOfWhatFollows(t *testing.T) {
	lie := at("aaa")
	lie.End--
	s := state(head("", "aaaa", 30), head("", "aaaaa", 0), proven("aaa", "aaaa", "aaaaa"), []Prefix{{lie, at("aaaa")}})
	expect(t, s.View(at("aaaaa")), want{target: "aaaaa", readable: "aaaaa", committed: "aaaaa", start: 30})
}

// TestSameThingSaidAgain: of checkpoints that differ in their time only, the
// later one stays.
func TestSameThingSaidAgain(t *testing.T) {
	first, again := head("", "aaa", 10), head("", "aaa", 10)
	again.Time, again.ID = 5, id("again")
	if s := state(again, first); len(s.Heads) != 1 || s.Heads[0] != again {
		t.Errorf("%+v", s.Heads)
	}
}

// TestViewInvariants draws worlds of which all is known, and checks the view
// against the histories themselves.
func TestViewInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := branches(t)
		var s State
		for _, h := range rapid.SliceOfN(rapid.SampledFrom(all), 0, 5).Draw(t, "heads") {
			s = state(s, head("", h, rapid.Int64Range(0, int64(10*len(h))).Draw(t, "start")))
		}
		s = state(s, everyProof(all...))
		local := rapid.SampledFrom(all).Draw(t, "local")
		v := s.View(at(local))
		readable := local[:v.Readable.Size]
		if v.Readable != at(readable) {
			t.Fatalf("readable %+v is no part of what is here, %q", v.Readable, local)
		}
		if v.Start > v.Readable.End || v.Start < 0 {
			t.Fatalf("start %d beyond what is readable, %d", v.Start, v.Readable.End)
		}
		forked := slices.ContainsFunc(s.Heads, func(a Head) bool {
			return slices.ContainsFunc(s.Heads, func(b Head) bool {
				x, _ := spell(a.Point)
				y, _ := spell(b.Point)
				return !strings.HasPrefix(x, y) && !strings.HasPrefix(y, x)
			})
		})
		if v.Frozen != forked {
			t.Fatalf("frozen %v, forked %v: %+v", v.Frozen, forked, s.Heads)
		}
		for _, h := range s.Heads {
			if x, _ := spell(h.Point); v.Frozen && !strings.HasPrefix(x, readable) && !strings.HasPrefix(readable, x) {
				t.Fatalf("reads %q, against %q", readable, x)
			}
		}
		// A claim out of nowhere takes nothing away.
		if c := state(s, head("", "dd"+strings.Repeat("z", 30), 320)).View(at(local)); c.Readable != v.Readable || c.Start != v.Start || c.Frozen != v.Frozen {
			t.Fatalf("a claim changes what is read from %+v to %+v", v, c)
		}
	})
}
