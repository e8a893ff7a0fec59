package structs

import (
	"math"
	"slices"

	"github.com/lattice-log/lattice/core/state"
)

// Scored is a member of a sorted set.
type Scored struct {
	Member []byte
	Score  float64
}

// ZScore returns a member's score; ok is false when it is not there. Wraps ErrWrongType.
func (m *Map) ZScore(key, member []byte) (score float64, ok bool, err error) {
	v, err := m.read(key, SortedSet)
	if err != nil || !v.present() {
		return 0, false, err
	}
	r, err := m.row(v, state.Scored, member)
	if err != nil || len(r) == 0 {
		return 0, false, err
	}
	s, err := state.ParseScore(r.Last().Payload)
	return s.Float(), true, err
}

// ZSet gives a member a score. Wraps ErrWrongType; NaN is Kind Invalid.
func (m *Map) ZSet(key, member []byte, score float64) error {
	s, err := state.ScoreOf(score)
	if err != nil {
		return err
	}
	v, err := m.write(key, SortedSet)
	if err != nil {
		return err
	}
	r, err := m.row(v, state.Scored, member)
	if err != nil {
		return err
	}
	return m.put(v, state.Scored, member, s.Payload(), r)
}

// ZRem removes members and returns how many there were. Wraps ErrWrongType.
func (m *Map) ZRem(key []byte, members ...[]byte) (int, error) {
	return m.removeAll(key, SortedSet, members)
}

// ZLen returns the number of members. Wraps ErrWrongType.
func (m *Map) ZLen(key []byte) (int64, error) { return m.size(key, SortedSet) }

// ZScan yields members by ascending score, equal ones by member, from score on;
// with reverse descending, from score down. Wraps ErrWrongType. Nothing may be
// written meanwhile.
func (m *Map) ZScan(key []byte, score float64, reverse bool, yield func(Scored) bool) error {
	v, err := m.read(key, SortedSet)
	if err != nil || !v.present() {
		return err
	}
	from, err := state.ScoreOf(score)
	if err != nil {
		return err
	}
	if v.gone != nil {
		return m.zscanLeft(v, from, reverse, yield)
	}
	return m.rows.Scores(m.name, key, from, nil, reverse, func(s state.Score, member []byte) bool {
		return yield(Scored{member, s.Float()})
	})
}

// zscanLeft is ZScan for what lives on of an expired sorted set: its index knows
// only the winners, of which some are gone.
func (m *Map) zscanLeft(v view, from state.Score, reverse bool, yield func(Scored) bool) error {
	type entry struct {
		s      state.Score
		member []byte
	}
	var all []entry
	var failed error
	err := m.scan(v, state.Scored, nil, false, func(sub []byte, r state.Row) bool {
		var s state.Score
		s, failed = state.ParseScore(r.Last().Payload)
		all = append(all, entry{s, slices.Clone(sub)})
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		switch {
		case a.s < b.s:
			return -1
		case a.s > b.s:
			return 1
		}
		return 0
	})
	if reverse {
		slices.Reverse(all)
	}
	for _, e := range all {
		if !reverse && e.s < from || reverse && e.s > from {
			continue
		}
		if !yield(Scored{e.member, e.s.Float()}) {
			break
		}
	}
	return nil
}

// ZLexScan yields members by name, ascending from the first at or after from, or
// descending. Wraps ErrWrongType. It is what a sorted set with one score is for.
func (m *Map) ZLexScan(key, from []byte, reverse bool, yield func(member []byte) bool) error {
	v, err := m.read(key, SortedSet)
	if err != nil || !v.present() {
		return err
	}
	return m.scan(v, state.Scored, from, reverse, func(sub []byte, _ state.Row) bool { return yield(sub) })
}

// ZRange returns the members of ranks start to stop, both included, counted from
// the least, or with reverse from the greatest. Ranks must be within 0 and the
// length. Wraps ErrWrongType.
func (m *Map) ZRange(key []byte, start, stop int64, reverse bool) ([]Scored, error) {
	var out []Scored
	var i int64
	err := m.ZScan(key, first(reverse), reverse, func(s Scored) bool {
		if i >= start && i <= stop {
			out = append(out, Scored{slices.Clone(s.Member), s.Score})
		}
		i++
		return i <= stop
	})
	return out, err
}

func first(reverse bool) float64 {
	if reverse {
		return math.Inf(1)
	}
	return math.Inf(-1)
}

// ZRank returns a member's rank from the least, or with reverse from the
// greatest; ok is false when it is not there. Wraps ErrWrongType.
func (m *Map) ZRank(key, member []byte, reverse bool) (rank int64, ok bool, err error) {
	err = m.ZScan(key, first(reverse), reverse, func(s Scored) bool {
		ok = string(s.Member) == string(member)
		if !ok {
			rank++
		}
		return !ok
	})
	return rank, ok, err
}
