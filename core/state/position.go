package state

import (
	"encoding/binary"
	"math"
)

// A position is where an element stands in a list: a byte string, never empty,
// that compares as the elements are ordered. It is pairs of a number and a tag of
// the writer that chose it:
//
//	number u64 | tag 8 bytes | number u64 | tag 8 bytes | ...
//
// Between any two positions there is another. Two writers that choose between
// the same two get the same number, and their tags decide; so what they push
// while apart all stays, in one order everywhere.
const (
	pairSize = 16
	middle   = 1 << 63
	// spread is how far from its neighbour an element is put that is inserted
	// into a gap without an end.
	spread = 1 << 20
)

// Tag is what tells a writer's positions apart: the first 8 bytes of a hash of it.
type Tag [8]byte

// Between returns a position after lo and before hi, which it does not share with
// another writer. An empty lo is the beginning, an empty hi the end. lo must be
// less than hi.
func Between(lo, hi []byte, tag Tag) []byte {
	out := make([]byte, 0, max(len(lo), len(hi), pairSize))
	first, endless := true, len(hi) == 0
	for {
		l, lt := pairAt(lo)
		h, ht := uint64(math.MaxUint64), Tag{}
		if !endless {
			h, ht = pairAt(hi)
		}
		if h > l && h-l > 1 {
			return appendPair(out, choose(l, h, len(lo) > 0, endless, first), tag)
		}
		// There is no room at this level: go below lo's pair.
		out = appendPair(out, l, lt)
		if l != h || lt != ht {
			endless = true
		}
		lo, hi, first = rest(lo), rest(hi), false
		if len(hi) == 0 {
			endless = true
		}
	}
}

// choose returns a number between l and h, which leaves room where the next one
// is likely.
func choose(l, h uint64, low, endless, first bool) uint64 {
	switch {
	case !low && endless:
		return middle
	case first && endless && h-l > 1: // pushed at the end
		return l + 1
	case first && !low: // pushed at the beginning
		return h - 1
	case endless && h-l > spread:
		return l + spread
	}
	return l + (h-l)/2
}

func pairAt(p []byte) (uint64, Tag) {
	if len(p) < pairSize {
		return 0, Tag{}
	}
	return binary.BigEndian.Uint64(p), Tag(p[8:pairSize])
}

func appendPair(b []byte, n uint64, t Tag) []byte {
	return append(binary.BigEndian.AppendUint64(b, n), t[:]...)
}

func rest(p []byte) []byte { return p[min(pairSize, len(p)):] }

// CheckPosition reports whether b could be a position: pairs, of which the last
// has room below it.
func CheckPosition(b []byte) bool {
	if len(b) == 0 || len(b)%pairSize != 0 {
		return false
	}
	n, _ := pairAt(b[len(b)-pairSize:])
	return n != 0
}
