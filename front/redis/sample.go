package redis

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lattice-log/lattice/front/redis/resp"
)

// sample is a random choice among the elements of a collection.
type sample struct {
	one        bool // no count was given: one element, not an array
	count      int64
	distinct   bool
	withValues bool
}

// read reads: key, count, and a word that asks for values, if there is one.
func (s *sample) read(x *call, word string) error {
	s.count, s.distinct = 1, true
	if len(x.args) == 2 {
		s.one = true
		return nil
	}
	n, ok := resp.Int(x.args[2])
	switch {
	case !ok:
		return errNotInteger
	case n == math.MinInt64:
		return errorf("ERR value is out of range, value must between %d and %d", -math.MaxInt64, math.MaxInt64)
	case len(x.args) > 4 || len(x.args) == 4 && (word == "" || !x.is(3, word)):
		return errSyntax
	}
	s.withValues = len(x.args) == 4
	if s.withValues && (n < -math.MaxInt64/2 || n > math.MaxInt64/2) {
		return replyError("ERR value is out of range")
	}
	s.count, s.distinct = max(n, -n), n >= 0
	// An element takes six bytes at least.
	if !s.distinct && s.count > int64(x.srv.cfg.MaxReplyBytes/6) {
		return errorf("ERR value is out of range: the reply would exceed %d bytes", x.srv.cfg.MaxReplyBytes)
	}
	return nil
}

// ranks returns the ranks of the choice among size elements, ascending.
func (s *sample) ranks(size int64) []int64 {
	if s.distinct && s.count >= size {
		all := make([]int64, size)
		for i := range all {
			all[i] = int64(i)
		}
		return all
	}
	out := make([]int64, 0, s.count)
	if !s.distinct {
		for range s.count {
			out = append(out, rand.Int64N(size))
		}
		slices.Sort(out)
		return out
	}
	// Floyd's way to choose some of many: each draw that is taken already is
	// replaced by the last candidate.
	chosen := make(map[int64]bool, s.count)
	for top := size - s.count; top < size; top++ {
		r := rand.Int64N(top + 1)
		if chosen[r] {
			r = top
		}
		chosen[r] = true
		out = append(out, r)
	}
	slices.Sort(out)
	return out
}

// pick returns the parts of the elements at the chosen ranks, in random order
// where they may repeat. walk yields all elements in order.
func (s *sample) pick(size int64, walk func(yield func(parts ...[]byte) bool) error) ([][][]byte, error) {
	if size == 0 || s.count == 0 {
		return nil, nil
	}
	ranks := s.ranks(size)
	out := make([][][]byte, 0, len(ranks))
	at := int64(0)
	err := walk(func(parts ...[]byte) bool {
		if len(ranks) > 0 && ranks[0] == at {
			kept := cloneArgs(parts)
			for len(ranks) > 0 && ranks[0] == at {
				ranks = ranks[1:]
				out = append(out, kept)
			}
		}
		at++
		return len(ranks) > 0
	})
	if !s.distinct {
		rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	}
	return out, err
}

// reply writes what was picked. value writes the second part.
func (s *sample) reply(w *resp.Writer, picked [][][]byte, value func(b []byte)) {
	switch {
	case s.one && len(picked) == 0:
		w.Null()
		return
	case s.one:
		w.Bulk(picked[0][0])
		return
	case s.withValues && !w.RESP3():
		w.Array(2 * len(picked))
	default:
		w.Array(len(picked))
	}
	for _, p := range picked {
		if s.withValues && w.RESP3() {
			w.Array(2)
		}
		w.Bulk(p[0])
		if s.withValues {
			value(p[1])
		}
	}
}
