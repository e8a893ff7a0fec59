package redis

import (
	"math"
	"time"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// zends names an end of a sorted set in events.
func zends(greatest bool) string {
	if greatest {
		return "zpopmax"
	}
	return "zpopmin"
}

// ztake takes up to n members from an end of a sorted set that is there.
func (x *call) ztake(key []byte, greatest bool, n int64) ([]structs.Scored, error) {
	s := zspan{by: byScore, reverse: greatest, min: math.Inf(-1), max: math.Inf(1), limit: n}
	all, err := s.collect(x.m(), key)
	if err != nil {
		return nil, err
	}
	return all, x.removeScored(key, zends(greatest), all)
}

func zpop(greatest bool) func(*call) error {
	return func(x *call) error {
		n := int64(-1)
		switch len(x.args) {
		case 2:
		case 3:
			var err error
			if n, err = x.positive(2, errNotPositive); err != nil {
				return err
			}
		default:
			return errSyntax
		}
		if _, err := x.isType(x.args[1], structs.SortedSet); err != nil {
			return err
		}
		limit := n
		if n < 0 {
			limit = 1
		}
		all, err := x.ztake(x.args[1], greatest, limit)
		if err != nil {
			return err
		}
		// Without a count a RESP3 reply is flat, too.
		if n < 0 || !x.w.RESP3() {
			x.w.Array(2 * len(all))
			for _, m := range all {
				x.w.Bulk(m.Member)
				x.w.Double(m.Score)
			}
			return nil
		}
		x.scored(all, true)
		return nil
	}
}

// zpopMany takes members of a sorted set that is there, and replies them in
// pairs, with its key.
func (x *call) zpopMany(key []byte, greatest bool, n int64) error {
	all, err := x.ztake(key, greatest, n)
	if err != nil {
		return err
	}
	x.w.Array(2)
	x.w.Bulk(key)
	x.w.Array(len(all))
	for _, m := range all {
		x.w.Array(2)
		x.w.Bulk(m.Member)
		x.w.Double(m.Score)
	}
	return nil
}

func (x *call) readZMPop(at int) (p mpop, greatest bool, err error) {
	err = p.read(x, at, func(i int) error {
		greatest = x.is(i, "max")
		if !greatest && !x.is(i, "min") {
			return errSyntax
		}
		return nil
	})
	return p, greatest, err
}

func zmpop(x *call) error {
	p, greatest, err := x.readZMPop(1)
	if err != nil {
		return err
	}
	key, err := x.firstOf(p.keys, structs.SortedSet)
	if err != nil {
		return err
	}
	if key == nil {
		x.w.NullArray()
		return nil
	}
	return x.zpopMany(key, greatest, p.count)
}

func bzmpop(x *call) error {
	p, greatest, err := x.readZMPop(2)
	if err != nil {
		return err
	}
	var timeout time.Duration
	if timeout, err = x.timeout(1); err != nil {
		return err
	}
	popped := func(x *call, key []byte) error { return x.zpopMany(key, greatest, p.count) }
	return x.zwait(p.keys, timeout, popped)
}

func bzpop(greatest bool) func(*call) error {
	popped := func(x *call, key []byte) error {
		all, err := x.ztake(key, greatest, 1)
		if err != nil {
			return err
		}
		x.w.Array(3)
		x.w.Bulk(key)
		x.w.Bulk(all[0].Member)
		x.w.Double(all[0].Score)
		return nil
	}
	return func(x *call) error {
		timeout, err := x.timeout(len(x.args) - 1)
		if err != nil {
			return err
		}
		return x.zwait(x.args[1:len(x.args)-1], timeout, popped)
	}
}

// zwait pops from the first key that is there, or waits for one.
func (x *call) zwait(keys [][]byte, timeout time.Duration, popped func(*call, []byte) error) error {
	key, err := x.firstOf(keys, structs.SortedSet)
	if err != nil {
		return err
	}
	if key != nil {
		return popped(x, key)
	}
	return x.block(keys, structs.SortedSet, timeout, (*resp.Writer).NullArray, popped)
}
