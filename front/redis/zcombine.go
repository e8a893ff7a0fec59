package redis

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/lattice-log/lattice/engine/structs"
)

// zop is what ZUNION, ZINTER and ZDIFF, and their relatives, are asked for.
type zop struct {
	keys      [][]byte
	weights   []float64
	aggregate func(a, b float64) float64
	scores    bool // WITHSCORES
	limit     int64
}

// zkind is which of the three.
type zkind uint8

const (
	zunion zkind = iota
	zinter
	zdiff
)

// read reads from the number of keys on.
func (o *zop) read(x *call, at int, kind zkind, store, cardOnly bool) error {
	n, err := x.int(at)
	if err != nil {
		return err
	}
	if n < 1 {
		return errorf("ERR at least 1 input key is needed for '%s' command", x.cmd.fullName())
	}
	if n > int64(len(x.args)-at-1) {
		return errSyntax
	}
	o.keys, o.aggregate = x.args[at+1:at+1+int(n)], sumScores
	o.weights = make([]float64, n)
	for i := range o.weights {
		o.weights[i] = 1
	}
	if _, _, err := o.sizes(x); err != nil {
		return err
	}
	for i := at + 1 + int(n); i < len(x.args); i++ {
		left := len(x.args) - i - 1
		combines := kind != zdiff && !cardOnly
		switch {
		case x.is(i, "weights") && combines && left >= int(n):
			for k := range o.weights {
				i++
				var ok bool
				if o.weights[k], ok = structs.Float(x.args[i]); !ok {
					return replyError("ERR weight value is not a float")
				}
			}
		case x.is(i, "aggregate") && combines && left >= 1:
			i++
			switch lower(x.args[i]) {
			case "sum":
				o.aggregate = sumScores
			case "min":
				o.aggregate = math.Min
			case "max":
				o.aggregate = math.Max
			default:
				return errSyntax
			}
		case x.is(i, "withscores") && !store && !cardOnly:
			o.scores = true
		case x.is(i, "limit") && cardOnly && left >= 1:
			i++
			if o.limit, err = x.positive(i, "ERR LIMIT can't be negative"); err != nil {
				return err
			}
		default:
			return errSyntax
		}
	}
	return nil
}

// sumScores adds; opposite infinities are 0, as in Redis.
func sumScores(a, b float64) float64 {
	if f := a + b; !math.IsNaN(f) {
		return f
	}
	return 0
}

// sizes returns the type and length of each key. Sets count as sorted sets with
// scores of 1.
func (o *zop) sizes(x *call) (types []structs.Type, sizes []int64, err error) {
	types, sizes = make([]structs.Type, len(o.keys)), make([]int64, len(o.keys))
	for i, k := range o.keys {
		if types[i], err = x.m().Type(k); err != nil {
			return nil, nil, err
		}
		switch types[i] {
		case structs.None:
		case structs.Set:
			sizes[i], err = x.m().SLen(k)
		case structs.SortedSet:
			sizes[i], err = x.m().ZLen(k)
		default:
			err = errWrongType
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return types, sizes, nil
}

// each yields the members of a key, with their scores.
func (x *call) each(key []byte, t structs.Type, yield func(member []byte, score float64) bool) error {
	switch t {
	case structs.Set:
		return x.m().SScan(key, nil, func(b []byte) bool { return yield(b, 1) })
	case structs.SortedSet:
		return x.m().ZScan(key, math.Inf(-1), false, func(s structs.Scored) bool { return yield(s.Member, s.Score) })
	}
	return nil
}

// find returns a member's score in a key.
func (x *call) find(key []byte, t structs.Type, member []byte) (float64, bool, error) {
	switch t {
	case structs.Set:
		has, err := x.m().SHas(key, member)
		return 1, has, err
	case structs.SortedSet:
		return x.m().ZScore(key, member)
	}
	return 0, false, nil
}

// weigh multiplies; infinity times nothing is 0, as in Redis.
func weigh(score, weight float64) float64 {
	if f := score * weight; !math.IsNaN(f) {
		return f
	}
	return 0
}

// combine returns the result, by score and name.
func (o *zop) combine(x *call, kind zkind) (out []structs.Scored, err error) {
	types, sizes, err := o.sizes(x)
	if err != nil {
		return nil, err
	}
	switch kind {
	case zunion:
		out, err = o.union(x, types, sizes)
	case zinter:
		out, err = o.inter(x, types, sizes)
	case zdiff:
		out, err = o.diff(x, types)
	}
	slices.SortFunc(out, func(a, b structs.Scored) int {
		if c := cmp.Compare(a.Score, b.Score); c != 0 {
			return c
		}
		return bytes.Compare(a.Member, b.Member)
	})
	return out, err
}

// bySize returns the places of keys, smallest first: the order in which Redis
// adds scores, which matters to the last digit.
func bySize(sizes []int64) []int {
	at := make([]int, len(sizes))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(a, b int) int { return cmp.Compare(sizes[a], sizes[b]) })
	return at
}

func (o *zop) union(x *call, types []structs.Type, sizes []int64) (out []structs.Scored, err error) {
	place := map[string]int{}
	for _, i := range bySize(sizes) {
		err := x.each(o.keys[i], types[i], func(member []byte, score float64) bool {
			score = weigh(score, o.weights[i])
			if at, ok := place[string(member)]; ok {
				out[at].Score = o.aggregate(out[at].Score, score)
				return true
			}
			place[string(member)] = len(out)
			out = append(out, structs.Scored{Member: slices.Clone(member), Score: score})
			return true
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (o *zop) inter(x *call, types []structs.Type, sizes []int64) (out []structs.Scored, err error) {
	order := bySize(sizes)
	least, others := order[0], order[1:]
	var failed error
	err = x.each(o.keys[least], types[least], func(member []byte, score float64) bool {
		score = weigh(score, o.weights[least])
		for _, i := range others {
			f, ok, err := x.find(o.keys[i], types[i], member)
			if err != nil {
				failed = err
				return false
			}
			if !ok {
				return true
			}
			score = o.aggregate(score, weigh(f, o.weights[i]))
		}
		out = append(out, structs.Scored{Member: slices.Clone(member), Score: score})
		return o.limit == 0 || int64(len(out)) < o.limit
	})
	if failed != nil {
		err = failed
	}
	return out, err
}

func (o *zop) diff(x *call, types []structs.Type) (out []structs.Scored, err error) {
	var failed error
	err = x.each(o.keys[0], types[0], func(member []byte, score float64) bool {
		for i := 1; i < len(o.keys); i++ {
			_, ok, err := x.find(o.keys[i], types[i], member)
			if err != nil {
				failed = err
				return false
			}
			if ok {
				return true
			}
		}
		out = append(out, structs.Scored{Member: slices.Clone(member), Score: score})
		return true
	})
	if failed != nil {
		err = failed
	}
	return out, err
}

func zcombine(kind zkind) func(*call) error {
	return func(x *call) error {
		var o zop
		if err := o.read(x, 1, kind, false, false); err != nil {
			return err
		}
		out, err := o.combine(x, kind)
		if err == nil {
			x.scored(out, o.scores)
		}
		return err
	}
}

func zcombineStore(kind zkind, event string) func(*call) error {
	return func(x *call) error {
		var o zop
		if err := o.read(x, 2, kind, true, false); err != nil {
			return err
		}
		out, err := o.combine(x, kind)
		if err != nil {
			return err
		}
		return x.storeScored(event, x.args[1], out)
	}
}

func zinterCard(x *call) error {
	var o zop
	if err := o.read(x, 1, zinter, false, true); err != nil {
		return err
	}
	out, err := o.combine(x, zinter)
	if err == nil {
		x.w.Int(int64(len(out)))
	}
	return err
}
