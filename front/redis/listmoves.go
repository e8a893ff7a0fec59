package redis

import (
	"math"
	"slices"
	"time"

	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// What moves between lists, and what waits for elements.

// readSide reads LEFT or RIGHT.
func (x *call) readSide(i int) (left bool, err error) {
	switch {
	case x.is(i, "left"):
		return true, nil
	case x.is(i, "right"):
		return false, nil
	}
	return false, errSyntax
}

// move takes an element of a list that is there to another one, and replies it.
func (x *call) moveElement(from, to []byte, fromLeft, toLeft bool) error {
	if _, err := x.isType(to, structs.List); err != nil {
		return err
	}
	popped, err := x.m().Pop(from, fromLeft, 1)
	if err != nil {
		return err
	}
	value := slices.Clone(popped[0])
	if _, err := x.m().Push(to, toLeft, value); err != nil {
		return err
	}
	x.changed(notifyList, side(toLeft, "push"), to)
	x.changed(notifyList, side(fromLeft, "pop"), from)
	if err := x.emptied(from); err != nil {
		return err
	}
	x.w.Bulk(value)
	return nil
}

// moveNow is moveElement, for a list that may not be there.
func (x *call) moveNow(fromLeft, toLeft bool) error {
	there, err := x.isType(x.args[1], structs.List)
	if err != nil {
		return err
	}
	if !there {
		x.w.Null()
		return nil
	}
	return x.moveElement(x.args[1], x.args[2], fromLeft, toLeft)
}

func lmove(x *call) error {
	fromLeft, err := x.readSide(3)
	if err != nil {
		return err
	}
	toLeft, err := x.readSide(4)
	if err != nil {
		return err
	}
	return x.moveNow(fromLeft, toLeft)
}

func rpoplpush(x *call) error { return x.moveNow(false, true) }

func blmove(x *call) error {
	fromLeft, err := x.readSide(3)
	if err != nil {
		return err
	}
	toLeft, err := x.readSide(4)
	if err != nil {
		return err
	}
	return x.moveOrWait(fromLeft, toLeft, 5)
}

func brpoplpush(x *call) error { return x.moveOrWait(false, true, 3) }

func (x *call) moveOrWait(fromLeft, toLeft bool, timeoutAt int) error {
	timeout, err := x.timeout(timeoutAt)
	if err != nil {
		return err
	}
	there, err := x.isType(x.args[1], structs.List)
	switch {
	case err != nil:
		return err
	case there:
		return x.moveElement(x.args[1], x.args[2], fromLeft, toLeft)
	case x.inExec:
		x.w.Null()
		return nil
	}
	return x.block(x.args[1:2], structs.List, timeout, (*resp.Writer).NullArray, func(x *call, key []byte) error {
		return x.moveElement(key, x.args[2], fromLeft, toLeft)
	})
}

// firstOf returns the first of keys that is there, nil when none is. It is an error when that has another
// type than t.
func (x *call) firstOf(keys [][]byte, t structs.Type) ([]byte, error) {
	for _, key := range keys {
		if there, err := x.isType(key, t); err != nil || there {
			return key, err
		}
	}
	return nil, nil
}

func bpop(left bool) func(*call) error {
	popped := func(x *call, key []byte) error {
		got, err := x.take(key, left, 1)
		if err != nil {
			return err
		}
		x.w.Array(2)
		x.w.Bulk(key)
		x.w.Bulk(got[0])
		return nil
	}
	return func(x *call) error {
		timeout, err := x.timeout(len(x.args) - 1)
		if err != nil {
			return err
		}
		keys := x.args[1 : len(x.args)-1]
		key, err := x.firstOf(keys, structs.List)
		if err != nil {
			return err
		}
		if key != nil {
			return popped(x, key)
		}
		return x.block(keys, structs.List, timeout, (*resp.Writer).NullArray, popped)
	}
}

// mpop is what LMPOP and ZMPOP have in common.
type mpop struct {
	keys  [][]byte
	where int // of LEFT and RIGHT, or MIN and MAX
	count int64
}

// read reads: number of keys, keys, where, COUNT n. is reads the where.
func (p *mpop) read(x *call, at int, is func(i int) error) error {
	n, ok := resp.Int(x.args[at])
	if !ok || n < 1 {
		return replyError("ERR numkeys should be greater than 0")
	}
	if n >= int64(len(x.args)-at-1) {
		return errSyntax
	}
	p.keys, p.where, p.count = x.args[at+1:at+1+int(n)], at+1+int(n), -1
	if err := is(p.where); err != nil {
		return err
	}
	for i := p.where + 1; i < len(x.args); i += 2 {
		if !x.is(i, "count") || i+1 == len(x.args) || p.count >= 0 {
			return errSyntax
		}
		if p.count, ok = resp.Int(x.args[i+1]); !ok || p.count < 1 {
			return replyError("ERR count should be greater than 0")
		}
	}
	if p.count < 0 {
		p.count = 1
	}
	return nil
}

func (x *call) readLMPop(at int) (p mpop, left bool, err error) {
	err = p.read(x, at, func(i int) error {
		left, err = x.readSide(i)
		return err
	})
	return p, left, err
}

// popMany takes elements of a list that is there, and replies them with its key.
func (x *call) popMany(key []byte, left bool, n int64) error {
	got, err := x.take(key, left, min(n, math.MaxInt32))
	if err != nil {
		return err
	}
	x.w.Array(2)
	x.w.Bulk(key)
	x.bulks(got)
	return nil
}

func lmpop(x *call) error {
	p, left, err := x.readLMPop(1)
	if err != nil {
		return err
	}
	key, err := x.firstOf(p.keys, structs.List)
	if err != nil {
		return err
	}
	if key == nil {
		x.w.NullArray()
		return nil
	}
	return x.popMany(key, left, p.count)
}

func blmpop(x *call) error {
	p, left, err := x.readLMPop(2)
	if err != nil {
		return err
	}
	var timeout time.Duration
	if timeout, err = x.timeout(1); err != nil {
		return err
	}
	key, err := x.firstOf(p.keys, structs.List)
	if err != nil {
		return err
	}
	if key != nil {
		return x.popMany(key, left, p.count)
	}
	return x.block(p.keys, structs.List, timeout, (*resp.Writer).NullArray, func(x *call, key []byte) error {
		return x.popMany(key, left, p.count)
	})
}
