package redis

import (
	"bytes"
	"math"
	"slices"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// rangeBy is what the ends of a range mean.
type rangeBy uint8

const (
	byRank rangeBy = iota
	byScore
	byLex
)

// zspan is a range of a sorted set.
type zspan struct {
	by      rangeBy
	reverse bool // from the greatest down

	start, stop    int64 // ranks
	min, max       float64
	lexMin, lexMax lexEnd
	minEx, maxEx   bool // of scores

	offset, limit int64 // limit negative: none
}

// lexEnd is an end of a range of names.
type lexEnd struct {
	infinite int // -1: before all, 1: after all, 0: name
	name     []byte
	ex       bool
}

// read reads the two ends, least first.
func (s *zspan) read(lo, hi []byte) (err error) {
	switch s.by {
	case byScore:
		if s.min, s.minEx, err = readScore(lo); err == nil {
			s.max, s.maxEx, err = readScore(hi)
		}
	case byLex:
		if s.lexMin, err = readLex(lo); err == nil {
			s.lexMax, err = readLex(hi)
		}
	default:
		var ok, also bool
		s.start, ok = resp.Int(lo)
		if s.stop, also = resp.Int(hi); !ok || !also {
			err = errNotInteger
		}
	}
	return err
}

func readScore(b []byte) (f float64, ex bool, err error) {
	b, ex = bytes.CutPrefix(b, []byte("("))
	f, ok := structs.Float(b)
	if !ok {
		return 0, false, replyError("ERR min or max is not a float")
	}
	return f, ex, nil
}

func readLex(b []byte) (lexEnd, error) {
	switch {
	case string(b) == "-":
		return lexEnd{infinite: -1}, nil
	case string(b) == "+":
		return lexEnd{infinite: 1}, nil
	case len(b) > 0 && (b[0] == '[' || b[0] == '('):
		return lexEnd{name: b[1:], ex: b[0] == '('}, nil
	}
	return lexEnd{}, replyError("ERR min or max not valid string range item")
}

// above reports whether a name lies at or after the end, as a least one.
func (e lexEnd) above(name []byte) bool {
	c := bytes.Compare(name, e.name)
	return e.infinite < 0 || e.infinite == 0 && (c > 0 || c == 0 && !e.ex)
}

// below reports whether a name lies at or before the end, as a greatest one.
func (e lexEnd) below(name []byte) bool {
	c := bytes.Compare(name, e.name)
	return e.infinite > 0 || e.infinite == 0 && (c < 0 || c == 0 && !e.ex)
}

// walk yields the members of the range, in its order, without offset and limit.
func (s *zspan) walk(m *structs.Map, key []byte, yield func(structs.Scored) bool) error {
	switch s.by {
	case byScore:
		return s.walkScores(m, key, yield)
	case byLex:
		return s.walkNames(m, key, yield)
	}
	n, err := m.ZLen(key)
	if err != nil {
		return err
	}
	from, to, empty := bounds(s.start, s.stop, n)
	if empty {
		return nil
	}
	all, err := m.ZRange(key, from, to, s.reverse)
	for _, member := range all {
		if err != nil || !yield(member) {
			break
		}
	}
	return err
}

func (s *zspan) walkScores(m *structs.Map, key []byte, yield func(structs.Scored) bool) error {
	from := s.min
	if s.reverse {
		from = s.max
	}
	return m.ZScan(key, from, s.reverse, func(member structs.Scored) bool {
		f := member.Score
		low := f < s.min || f == s.min && s.minEx
		high := f > s.max || f == s.max && s.maxEx
		switch {
		case low && !s.reverse, high && s.reverse:
			return true // not there yet
		case low || high:
			return false
		}
		return yield(member)
	})
}

func (s *zspan) walkNames(m *structs.Map, key []byte, yield func(structs.Scored) bool) error {
	from := s.lexMin
	if s.reverse {
		from = s.lexMax
	}
	if s.lexMin.infinite > 0 || s.lexMax.infinite < 0 {
		_, err := m.ZLen(key)
		return err
	}
	var failed error
	err := m.ZLexScan(key, from.name, s.reverse, func(name []byte) bool {
		low, high := !s.lexMin.above(name), !s.lexMax.below(name)
		switch {
		case low && !s.reverse, high && s.reverse:
			return true
		case low || high:
			return false
		}
		var score float64
		if score, _, failed = m.ZScore(key, name); failed != nil {
			return false
		}
		return yield(structs.Scored{Member: name, Score: score})
	})
	if failed != nil {
		return failed
	}
	return err
}

// collect returns the members of the range, within offset and limit.
func (s *zspan) collect(m *structs.Map, key []byte) (out []structs.Scored, err error) {
	skip := s.offset
	if s.limit == 0 || s.offset < 0 {
		_, err := m.ZLen(key) // for the key's type
		return nil, err
	}
	err = s.walk(m, key, func(member structs.Scored) bool {
		if skip > 0 {
			skip--
			return true
		}
		out = append(out, structs.Scored{Member: slices.Clone(member.Member), Score: member.Score})
		return s.limit < 0 || int64(len(out)) < s.limit
	})
	return out, err
}

// zrangeForm is what a command's name says of the range.
type zrangeForm struct {
	auto    bool // the arguments say it
	by      rangeBy
	reverse bool
}

// read reads a range whose key is argument at.
func (f zrangeForm) read(x *call, at int, store bool) (s zspan, withScores bool, err error) {
	s = zspan{by: f.by, reverse: f.reverse, limit: -1}
	limited, byWord := false, false
	for i := at + 3; i < len(x.args); i++ {
		left := len(x.args) - i - 1
		switch {
		case x.is(i, "withscores") && !store:
			withScores = true
		case x.is(i, "limit") && left >= 2:
			if s.offset, err = x.int(i + 1); err != nil {
				return s, false, err
			}
			if s.limit, err = x.int(i + 2); err != nil {
				return s, false, err
			}
			limited = s.limit != -1
			i += 2
		case x.is(i, "rev") && f.auto:
			s.reverse = true
		case x.is(i, "bylex") && f.auto && !byWord:
			s.by, byWord = byLex, true
		case x.is(i, "byscore") && f.auto && !byWord:
			s.by, byWord = byScore, true
		default:
			return s, false, errSyntax
		}
	}
	switch {
	case limited && s.by == byRank:
		return s, false, replyError("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
	case withScores && s.by == byLex:
		return s, false, replyError("ERR syntax error, WITHSCORES not supported in combination with BYLEX")
	}
	lo, hi := x.args[at+1], x.args[at+2]
	if s.reverse && s.by != byRank {
		lo, hi = hi, lo
	}
	return s, withScores, s.read(lo, hi)
}

// scored replies members, with scores if asked for.
func (x *call) scored(all []structs.Scored, withScores bool) {
	if withScores && !x.w.RESP3() {
		x.w.Array(2 * len(all))
	} else {
		x.w.Array(len(all))
	}
	for _, m := range all {
		if withScores && x.w.RESP3() {
			x.w.Array(2)
		}
		x.w.Bulk(m.Member)
		if withScores {
			x.w.Double(m.Score)
		}
	}
}

func zrange(f zrangeForm) func(*call) error {
	return func(x *call) error {
		s, withScores, err := f.read(x, 1, false)
		if err != nil {
			return err
		}
		all, err := s.collect(x.m(), x.args[1])
		if err == nil {
			x.scored(all, withScores)
		}
		return err
	}
}

func zrangeStore(x *call) error {
	s, _, err := zrangeForm{auto: true}.read(x, 2, true)
	if err != nil {
		return err
	}
	all, err := s.collect(x.m(), x.args[2])
	if err != nil {
		return err
	}
	return x.storeScored("zrangestore", x.args[1], all)
}

// storeScored replaces a key by a sorted set.
func (x *call) storeScored(event string, key []byte, all []structs.Scored) error {
	return x.store(notifyZset, event, key, int64(len(all)), func(m *structs.Map, key []byte) error {
		for _, s := range all {
			if err := m.ZSet(key, s.Member, s.Score); err != nil {
				return err
			}
		}
		return nil
	})
}

func zcount(by rangeBy) func(*call) error {
	return func(x *call) error {
		s := zspan{by: by}
		if err := s.read(x.args[2], x.args[3]); err != nil {
			return err
		}
		n := int64(0)
		err := s.walk(x.m(), x.args[1], func(structs.Scored) bool { n++; return true })
		if err == nil {
			x.w.Int(n)
		}
		return err
	}
}

func zremRange(by rangeBy, event string) func(*call) error {
	return func(x *call) error {
		s := zspan{by: by, limit: -1}
		if err := s.read(x.args[2], x.args[3]); err != nil {
			return err
		}
		key := x.args[1]
		all, err := s.collect(x.m(), key)
		if err != nil {
			return err
		}
		if err := x.removeScored(key, event, all); err != nil {
			return err
		}
		x.w.Int(int64(len(all)))
		return nil
	}
}

// removeScored removes members, if there are any, and says so.
func (x *call) removeScored(key []byte, event string, all []structs.Scored) error {
	if len(all) == 0 {
		return nil
	}
	members := make([][]byte, len(all))
	for i, m := range all {
		members[i] = m.Member
	}
	if _, err := x.m().ZRem(key, members...); err != nil {
		return err
	}
	x.changed(notifyZset, event, key)
	return x.emptied(key)
}

// scoreText writes a score as Redis does inside of scans: 17 digits, but whole
// numbers in full where its small form keeps them as integers.
func scoreText(f float64, isSmall bool) []byte {
	if isSmall && f == math.Trunc(f) && math.Abs(f) < 1<<62 {
		return appendInt(nil, int64(f))
	}
	return resp.AppendDouble(nil, f)
}
