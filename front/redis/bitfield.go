package redis

import (
	"math"

	"github.com/lattice-log/lattice/front/redis/resp"
)

// fieldOp is one operation of BITFIELD.
type fieldOp struct {
	what     string // get, set or incrby
	overflow string // wrap, sat or fail
	signed   bool
	width    int64 // bits: 1 to 64, or to 63 unsigned
	at       int64 // offset in bits
	value    int64
}

// fieldOps reads the operations from argument 2 on.
func (x *call) fieldOps() (ops []fieldOp, writes bool, err error) {
	overflow := "wrap"
	for i := 2; i < len(x.args); {
		op := fieldOp{what: lower(x.args[i]), overflow: overflow}
		left := len(x.args) - i - 1
		switch {
		case op.what == "overflow" && left >= 1:
			switch overflow = lower(x.args[i+1]); overflow {
			case "wrap", "sat", "fail":
			default:
				return nil, false, replyError("ERR Invalid OVERFLOW type specified")
			}
			i += 2
			continue
		case op.what == "get" && left >= 2, (op.what == "set" || op.what == "incrby") && left >= 3:
		default:
			return nil, false, errSyntax
		}
		if err := op.readType(x.args[i+1]); err != nil {
			return nil, false, err
		}
		if op.at, err = x.bitOffset(x.args[i+2], op.width); err != nil {
			return nil, false, err
		}
		i += 3
		if op.what != "get" {
			if op.value, err = x.int(i); err != nil {
				return nil, false, err
			}
			writes = true
			i++
		}
		ops = append(ops, op)
	}
	return ops, writes, nil
}

// readType reads a type such as i16 or u8.
func (op *fieldOp) readType(arg []byte) error {
	const bad = replyError("ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.")
	if len(arg) < 2 || arg[0] != 'i' && arg[0] != 'u' {
		return bad
	}
	op.signed = arg[0] == 'i'
	n, ok := resp.Int(arg[1:])
	if !ok || n < 1 || n > 64 || n == 64 && !op.signed {
		return bad
	}
	op.width = n
	return nil
}

// get reads the integer. What lies behind the string is clear.
func (op *fieldOp) get(b []byte) int64 {
	var v uint64
	for i := op.at; i < op.at+op.width; i++ {
		v <<= 1
		if i>>3 < int64(len(b)) && b[i>>3]&(0x80>>(i&7)) != 0 {
			v |= 1
		}
	}
	if op.signed && v>>(op.width-1) == 1 {
		v |= uint64(math.MaxUint64) << (op.width - 1) // its sign goes on
	}
	return int64(v)
}

// put writes the integer into bytes that are there.
func (op *fieldOp) put(b []byte, v int64) {
	for i := op.at + op.width - 1; i >= op.at; i-- {
		mask := byte(0x80) >> (i & 7)
		b[i>>3] &^= mask
		if v&1 == 1 {
			b[i>>3] |= mask
		}
		v >>= 1
	}
}

// add returns the sum as the type can hold it, by the way to deal with overflow. ok is
// false where that is to fail.
func (op *fieldOp) add(v, delta int64) (sum int64, ok bool) {
	low, high := int64(0), int64(uint64(math.MaxUint64)>>(65-op.width)) // of a signed type
	if op.signed {
		low = -high - 1
	} else {
		high = int64(uint64(1)<<op.width - 1)
	}
	var over, under bool
	switch {
	case delta > 0:
		over = v > high-delta
	case delta < 0 && op.signed:
		under = v < low-delta
	case delta < 0:
		under = v+delta < 0
	default: // a value of SET may be out of range by itself
		over = v > high || !op.signed && v < 0 // which is large, unsigned
		under = !over && v < low
	}
	switch {
	case !over && !under:
		return v + delta, true
	case op.overflow == "fail":
		return 0, false
	case op.overflow == "sat" && over:
		return high, true
	case op.overflow == "sat":
		return low, true
	}
	return op.wrap(v + delta), true
}

// wrap keeps the low bits of a sum that may itself have wrapped.
func (op *fieldOp) wrap(v int64) int64 {
	shift := 64 - op.width
	if op.signed {
		return v << shift >> shift
	}
	return int64(uint64(v) << shift >> shift)
}

func bitField(x *call) error { return x.bitField(false) }

func bitFieldRO(x *call) error { return x.bitField(true) }

func (x *call) bitField(readonly bool) error {
	ops, writes, err := x.fieldOps()
	if err != nil {
		return err
	}
	if writes && readonly {
		return replyError("ERR BITFIELD_RO only supports the GET subcommand")
	}
	v, _, err := x.m().Get(x.args[1])
	if err != nil {
		return err
	}
	b := v.Bytes
	changed := false
	if writes {
		size := int64(len(b))
		for _, op := range ops {
			if op.what != "get" {
				size = max(size, (op.at+op.width+7)>>3)
			}
		}
		changed = size > int64(len(b))
		b = append(make([]byte, 0, size), b...)[:size]
	}
	x.w.Array(len(ops))
	for _, op := range ops {
		old := op.get(b)
		var now int64
		ok := true
		switch op.what {
		case "get":
			x.w.Int(old)
			continue
		case "set":
			now, ok = op.add(op.value, 0)
		case "incrby":
			now, ok = op.add(old, op.value)
		}
		switch {
		case !ok:
			x.w.Null()
			continue
		case op.what == "set":
			x.w.Int(old)
		default:
			x.w.Int(now)
		}
		changed = changed || now != old
		op.put(b, now)
	}
	if !changed {
		return nil
	}
	if err := x.m().Set(x.args[1], b, true); err != nil {
		return err
	}
	x.changed(notifyString, "setbit", x.args[1])
	return nil
}
