package redis

// globMatch reports whether s matches a pattern of Redis's: ? is any byte, * any
// bytes, [a-c] and [^a-c] one of a class, \ takes the next byte as it is. The
// work is bounded by the product of the lengths, whatever the pattern.
func globMatch(pattern, s []byte, anyCase bool) bool {
	p, i := 0, 0
	starP, starI := -1, 0 // the last *, and what it has swallowed up to
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			starP, starI = p, i
			p++
			continue
		}
		if p < len(pattern) {
			if n, ok := globByte(pattern[p:], s[i], anyCase); ok {
				p += n
				i++
				continue
			}
		}
		if starP < 0 {
			return false
		}
		starI++
		p, i = starP+1, starI
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// globByte matches one byte with the start of a pattern, and returns how long
// that start is.
func globByte(p []byte, c byte, anyCase bool) (n int, ok bool) {
	switch {
	case p[0] == '?':
		return 1, true
	case p[0] == '[':
		return globClass(p, c, anyCase)
	case p[0] == '\\' && len(p) > 1:
		return 2, sameByte(p[1], c, anyCase)
	}
	return 1, sameByte(p[0], c, anyCase)
}

// globClass matches a byte with a class. One that is not closed ends with the
// pattern.
func globClass(p []byte, c byte, anyCase bool) (n int, ok bool) {
	i := 1
	not := i < len(p) && p[i] == '^'
	if not {
		i++
	}
	for ; i < len(p) && p[i] != ']'; i++ {
		switch {
		case p[i] == '\\' && i+1 < len(p):
			i++
			ok = ok || sameByte(p[i], c, anyCase)
		case i+2 < len(p) && p[i+1] == '-':
			lo, hi, b := p[i], p[i+2], c
			if lo > hi {
				lo, hi = hi, lo
			}
			if anyCase {
				lo, hi, b = lowByte(lo), lowByte(hi), lowByte(b)
			}
			ok = ok || lo <= b && b <= hi
			i += 2
		default:
			ok = ok || sameByte(p[i], c, anyCase)
		}
	}
	return min(i+1, len(p)), ok != not
}

func sameByte(a, b byte, anyCase bool) bool {
	return a == b || anyCase && lowByte(a) == lowByte(b)
}

func lowByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
