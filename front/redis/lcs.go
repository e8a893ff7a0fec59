package redis

import (
	"github.com/lattice-log/lattice/engine/structs"
	"github.com/lattice-log/lattice/front/redis/resp"
)

// maxLCS bounds the table of LCS, in cells of four bytes.
const maxLCS = 16 << 20

// match is a common run of two strings: both ends are included.
type match struct{ a, b, length int }

func lcs(x *call) error {
	a, b, err := x.lcsStrings()
	if err != nil {
		return err
	}
	var onlyLen, idx, withLen bool
	least := int64(0)
	for i := 3; i < len(x.args); i++ {
		switch {
		case x.is(i, "idx"):
			idx = true
		case x.is(i, "len"):
			onlyLen = true
		case x.is(i, "withmatchlen"):
			withLen = true
		case x.is(i, "minmatchlen") && i+1 < len(x.args):
			i++
			if least, err = x.int(i); err != nil {
				return err
			}
		default:
			return errSyntax
		}
	}
	if onlyLen && idx {
		return replyError("ERR If you want both the length and indexes, please just use IDX.")
	}
	if (len(a)+1)*(len(b)+1) > maxLCS {
		return replyError("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len")
	}
	common, matches := commonSubsequence(a, b)
	switch {
	case onlyLen:
		x.w.Int(int64(len(common)))
	case idx:
		writeMatches(x.w, matches, least, withLen, len(common))
	default:
		x.w.Bulk(common)
	}
	return nil
}

func (x *call) lcsStrings() (a, b []byte, err error) {
	var s [2][]byte
	for i := range s {
		t, err := x.m().Type(x.args[1+i])
		if err != nil {
			return nil, nil, err
		}
		if t != structs.String && t != structs.None {
			return nil, nil, replyError("ERR The specified keys must contain string values")
		}
		v, _, err := x.m().Get(x.args[1+i])
		if err != nil {
			return nil, nil, err
		}
		s[i] = v.Bytes
	}
	return s[0], s[1], nil
}

func writeMatches(w *resp.Writer, matches []match, least int64, withLen bool, total int) {
	kept := matches[:0]
	for _, m := range matches {
		if int64(m.length) >= least {
			kept = append(kept, m)
		}
	}
	w.Map(2)
	w.BulkString("matches")
	w.Array(len(kept))
	for _, m := range kept {
		if withLen {
			w.Array(3)
		} else {
			w.Array(2)
		}
		for _, from := range []int{m.a, m.b} {
			w.Array(2)
			w.Int(int64(from))
			w.Int(int64(from + m.length - 1))
		}
		if withLen {
			w.Int(int64(m.length))
		}
	}
	w.BulkString("len")
	w.Int(int64(total))
}

// commonSubsequence returns a longest common subsequence of a and b, and the
// runs that it consists of, from the last to the first.
func commonSubsequence(a, b []byte) ([]byte, []match) {
	width := len(b) + 1
	longest := make([]uint32, (len(a)+1)*width) // of the first i bytes of a and j of b
	for i := range a {
		for j := range b {
			at := (i+1)*width + j + 1
			if a[i] == b[j] {
				longest[at] = longest[at-width-1] + 1
			} else {
				longest[at] = max(longest[at-width], longest[at-1])
			}
		}
	}
	out := make([]byte, longest[len(longest)-1])
	left := len(out)
	var matches []match
	for i, j := len(a), len(b); i > 0 && j > 0; {
		if a[i-1] != b[j-1] {
			if longest[(i-1)*width+j] > longest[i*width+j-1] {
				i--
			} else {
				j--
			}
			continue
		}
		left--
		i, j = i-1, j-1
		out[left] = a[i]
		if n := len(matches); n > 0 && matches[n-1].a == i+1 && matches[n-1].b == j+1 {
			matches[n-1] = match{i, j, matches[n-1].length + 1}
		} else {
			matches = append(matches, match{i, j, 1})
		}
	}
	return out, matches
}
