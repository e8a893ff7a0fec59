package redis

import (
	"math"
	"math/bits"

	"github.com/lattice-log/lattice/front/redis/resp"
)

// Bits of strings. A string is one value, so each change writes all of it.

func bitCommands() family {
	const note = "Writes the whole string, as SETRANGE does: for bitmaps of some KiB, not of MiB."
	return family{"bitmap", []command{
		{name: "setbit", arity: 4, flags: "write denyoom", specs: "RW access update @1 0,1,0", since: "2.2.0", about: "set or clear the bit at an offset", do: setBit, note: note},
		{name: "getbit", arity: 3, flags: "readonly fast", specs: "RO access @1 0,1,0", since: "2.2.0", about: "the bit at an offset", do: getBit},
		{name: "bitcount", arity: -2, flags: "readonly", specs: "RO access @1 0,1,0", since: "2.6.0", about: "how many bits are set", do: bitCount},
		{name: "bitpos", arity: -3, flags: "readonly", specs: "RO access @1 0,1,0", since: "2.8.7", about: "the first bit that is set, or clear", do: bitPos},
		{name: "bitop", arity: -4, flags: "write denyoom", specs: "OW update @2 0,1,0; RO access @3 -1,1,0", since: "2.6.0", about: "store AND, OR, XOR or NOT of strings", do: bitOp},
		{name: "bitfield", arity: -2, flags: "write denyoom", specs: "RW access update variable_flags @1 0,1,0", since: "3.2.0", about: "read and change integers of any width", do: bitField, note: note},
		{name: "bitfield_ro", arity: -2, flags: "readonly fast", specs: "RO access @1 0,1,0", since: "6.0.0", about: "read integers of any width", do: bitFieldRO},
	}}
}

// bitOffset reads an offset in bits. A number behind # counts in widths.
func (x *call) bitOffset(arg []byte, width int64) (int64, error) {
	const bad = replyError("ERR bit offset is not an integer or out of range")
	unit := int64(1)
	if width > 0 && len(arg) > 0 && arg[0] == '#' {
		arg, unit = arg[1:], width
	}
	n, ok := resp.Int(arg)
	if !ok || n < 0 || n > math.MaxInt64/unit || n*unit>>3 >= int64(x.srv.cfg.MaxBulkBytes) {
		return 0, bad
	}
	return n * unit, nil
}

func setBit(x *call) error {
	at, err := x.bitOffset(x.args[2], 0)
	if err != nil {
		return err
	}
	bit, ok := resp.Int(x.args[3])
	if !ok || bit&^1 != 0 {
		return replyError("ERR bit is not an integer or out of range")
	}
	v, _, err := x.m().Get(x.args[1])
	if err != nil {
		return err
	}
	old, grows := byte(0), at>>3 >= int64(len(v.Bytes))
	if !grows {
		old = v.Bytes[at>>3]
	}
	mask := byte(0x80) >> (at & 7)
	now := old &^ mask
	if bit == 1 {
		now |= mask
	}
	if grows || now != old {
		if _, err := x.m().SetRange(x.args[1], int(at>>3), []byte{now}); err != nil {
			return err
		}
		x.changed(notifyString, "setbit", x.args[1])
	}
	x.w.Int(boolInt(old&mask != 0))
	return nil
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func getBit(x *call) error {
	at, err := x.bitOffset(x.args[2], 0)
	if err != nil {
		return err
	}
	v, _, err := x.m().Get(x.args[1])
	if err != nil {
		return err
	}
	x.w.Int(boolInt(at>>3 < int64(len(v.Bytes)) && v.Bytes[at>>3]&(0x80>>(at&7)) != 0))
	return nil
}

// bitUnit reads the word that says what an index counts, in bits, where there is one.
func (x *call) bitUnit(i int) (int64, error) {
	switch {
	case i >= len(x.args) || x.is(i, "byte"):
		return 8, nil
	case x.is(i, "bit"):
		return 1, nil
	}
	return 0, errSyntax
}

// bitRange returns the bits that two indexes mean of a string of n bytes: from
// first up to before limit.
func bitRange(from, to, unit, n int64) (first, limit int64) {
	total := n * 8 / unit
	from, to = min(max(fromEnd(from, total), 0), total), min(max(fromEnd(to, total), 0), total-1)
	return from * unit, (to + 1) * unit
}

func bitCount(x *call) error {
	v, ok, err := x.m().Get(x.args[1])
	if err != nil {
		return err
	}
	if !ok {
		x.w.Int(0)
		return nil
	}
	from, to, unit := int64(0), int64(-1), int64(8)
	switch len(x.args) {
	case 2:
	case 4, 5:
		if from, err = x.int(2); err != nil {
			return err
		}
		if to, err = x.int(3); err != nil {
			return err
		}
		if from < 0 && to < 0 && from > to {
			x.w.Int(0)
			return nil
		}
		if unit, err = x.bitUnit(4); err != nil {
			return err
		}
	default:
		return errSyntax
	}
	first, limit := bitRange(from, to, unit, int64(len(v.Bytes)))
	n := 0
	for i := first >> 3; i<<3 < limit; i++ {
		n += bits.OnesCount8(v.Bytes[i] & bitsWithin(i, first, limit))
	}
	x.w.Int(int64(n))
	return nil
}

// bitsWithin masks the bits of byte i that lie from first up to before limit.
func bitsWithin(i, first, limit int64) byte {
	mask := byte(0xff)
	if over := first - i<<3; over > 0 {
		mask &= 0xff >> over
	}
	if over := (i+1)<<3 - limit; over > 0 {
		mask &= 0xff << over
	}
	return mask
}

func bitPos(x *call) error {
	bit, err := x.int(2)
	if err != nil {
		return err
	}
	if bit&^1 != 0 {
		return replyError("ERR The bit argument must be 1 or 0.")
	}
	v, ok, err := x.m().Get(x.args[1])
	if err != nil {
		return err
	}
	if !ok { // as if there were clear bits without end
		x.w.Int(-bit)
		return nil
	}
	n, end := int64(len(v.Bytes)), len(x.args) > 4
	from, to, unit := int64(0), int64(-1), int64(8)
	if len(x.args) > 6 {
		return errSyntax
	}
	if len(x.args) > 3 {
		if from, err = x.int(3); err != nil {
			return err
		}
	}
	if unit, err = x.bitUnit(5); err != nil {
		return err
	}
	if end {
		if to, err = x.int(4); err != nil {
			return err
		}
	}
	first, limit := bitRange(from, to, unit, n)
	for i := first >> 3; i<<3 < limit; i++ {
		b := v.Bytes[i]
		if bit == 0 {
			b = ^b
		}
		if b &= bitsWithin(i, first, limit); b != 0 {
			x.w.Int(i<<3 + int64(bits.LeadingZeros8(b)))
			return nil
		}
	}
	if bit == 0 && !end && first < limit {
		x.w.Int(n << 3) // the first one behind the string
		return nil
	}
	x.w.Int(-1)
	return nil
}

func bitOp(x *call) error {
	op := lower(x.args[1])
	switch op {
	case "and", "or", "xor":
	case "not":
		if len(x.args) != 4 {
			return replyError("ERR BITOP NOT must be called with a single source key.")
		}
	default:
		return errSyntax
	}
	var out []byte
	for i, key := range x.args[3:] {
		v, _, err := x.m().Get(key)
		if err != nil {
			return err
		}
		if i == 0 {
			out = append(out, v.Bytes...)
			continue
		}
		// Where one string is shorter, it goes on with clear bits.
		if short := len(v.Bytes) - len(out); short > 0 {
			out = append(out, make([]byte, short)...)
		}
		mix(op, out, v.Bytes)
	}
	if op == "not" {
		for i := range out {
			out[i] = ^out[i]
		}
	}
	x.w.Int(int64(len(out)))
	if len(out) > 0 {
		if err := x.m().Set(x.args[2], out, false); err != nil {
			return err
		}
		x.changed(notifyString, "set", x.args[2])
		return nil
	}
	was, err := x.m().Delete(x.args[2])
	if was {
		x.changed(notifyGeneric, "del", x.args[2])
	}
	return err
}

// mix puts b into out, which is at least as long.
func mix(op string, out, b []byte) {
	for i := range out {
		var other byte
		if i < len(b) {
			other = b[i]
		}
		switch op {
		case "and":
			out[i] &= other
		case "or":
			out[i] |= other
		case "xor":
			out[i] ^= other
		}
	}
}
