package state

import "slices"

// Row is the live heads of one address, ascending by dot. An empty row is as one
// that never was. Rows are values: methods return a new one and leave the old
// one alone; payloads are shared.
type Row []Head

// Find returns the head with dot d.
func (r Row) Find(d Dot) (Head, bool) {
	i, ok := r.search(d)
	if !ok {
		return Head{}, false
	}
	return r[i], true
}

func (r Row) search(d Dot) (int, bool) {
	return slices.BinarySearchFunc(r, d, func(h Head, d Dot) int { return h.Dot.Compare(d) })
}

// Put returns r with h, and without the heads named in supersedes. A head that
// is there already stays as it is.
func (r Row) Put(h Head, supersedes []Dot) Row {
	out := make(Row, 0, len(r)+1)
	for _, o := range r {
		if !slices.Contains(supersedes, o.Dot) {
			out = append(out, o)
		}
	}
	if i, ok := out.search(h.Dot); !ok {
		out = slices.Insert(out, i, h)
	}
	return out
}

// End returns r without the heads that c covers, and whether any was.
func (r Row) End(c Cites) (Row, bool) {
	if !slices.ContainsFunc(r, func(h Head) bool { return c.Covers(h.Dot) }) {
		return r, false
	}
	var out Row
	for _, h := range r {
		if !c.Covers(h.Dot) {
			out = append(out, h)
		}
	}
	return out, true
}

// Last returns the greatest head. r must not be empty.
func (r Row) Last() Head {
	return slices.MaxFunc(r, func(a, b Head) int { return a.Order().Compare(b.Order()) })
}

// Dots returns the dots of all heads, to be superseded.
func (r Row) Dots() []Dot {
	out := make([]Dot, len(r))
	for i, h := range r {
		out[i] = h.Dot
	}
	return out
}

// Cites returns what must be cited to end every head of r.
func (r Row) Cites() Cites {
	var c Cites
	for _, h := range r {
		c = c.Raise(h.Dot)
	}
	return c
}

// Join merges two states of one row: a, of a replica that has folded everything
// below fa, and b likewise. What one side has seen and does not hold was ended
// there. The kind matters for expiry, whose covers join.
//
// It is commutative, associative and idempotent, and gives what folding the
// entries of both gives.
func Join(k Kind, a Row, fa Frontier, b Row, fb Frontier) Row {
	var out Row
	for len(a) > 0 || len(b) > 0 {
		switch c := compareFirst(a, b); {
		case c == 0:
			h := a[0]
			if k == Expiry {
				h.Payload = joinExpiry(h.Payload, b[0].Payload)
			}
			out = append(out, h)
			a, b = a[1:], b[1:]
		case c < 0:
			if !fb.Covers(a[0].Dot) {
				out = append(out, a[0])
			}
			a = a[1:]
		default:
			if !fa.Covers(b[0].Dot) {
				out = append(out, b[0])
			}
			b = b[1:]
		}
	}
	return out
}

// compareFirst tells which row's first head comes first; an empty row's is last.
func compareFirst(a, b Row) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return a[0].Dot.Compare(b[0].Dot)
}

// Frontier is how far a state has come: for each writer the sequence number up
// to which its entries are folded. A missing writer is at 0.
type Frontier map[Writer]uint64

// Covers reports whether the entry of d has been folded.
func (f Frontier) Covers(d Dot) bool { return d.Seq <= f[d.Writer] }

// Join returns the frontier of two joined states.
func (f Frontier) Join(o Frontier) Frontier {
	out := make(Frontier, max(len(f), len(o)))
	for w, n := range f {
		out[w] = n
	}
	for w, n := range o {
		out[w] = max(out[w], n)
	}
	return out
}
