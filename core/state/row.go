package state

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
)

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
	keep := 0
	for i := range r {
		if !slices.Contains(supersedes, r[i].Dot) {
			keep++
		}
	}
	if keep == 0 { // nearly always
		return Row{h}
	}
	out := make(Row, 0, keep+1)
	for i := range r {
		if !slices.Contains(supersedes, r[i].Dot) {
			out = append(out, r[i])
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

// Check reports what no row at an address holds: for rows from outside. Wraps
// ErrMalformed, or Kind Invalid.
func (r Row) Check(a Address) error {
	if err := a.Check(); err != nil {
		return err
	}
	for _, h := range r {
		var err error
		if a.Kind == Expiry {
			_, err = ParseExpiring(h.Payload)
		} else {
			err = (&Put{Address: a, Payload: h.Payload}).check()
		}
		if err != nil {
			return fmt.Errorf("head %s: %w", h.Dot, err)
		}
	}
	return nil
}

// Last returns the greatest head. r must not be empty.
func (r Row) Last() Head {
	if len(r) == 1 { // nearly always
		return r[0]
	}
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

// Seen is what a state has seen: a Frontier, or something finer.
type Seen interface {
	// Covers reports whether the state has folded, with effect, the operation of d.
	Covers(d Dot) bool
}

// Join merges two states of one row: a, of a replica that has folded everything
// that fa covers, and b likewise. What one side has seen and does not hold was ended
// there. The kind matters for expiry, whose covers join.
//
// It is commutative, associative and idempotent, and gives what folding the
// entries of both gives.
func Join(k Kind, a Row, fa Seen, b Row, fb Seen) Row {
	var out Row
	for len(a) > 0 || len(b) > 0 {
		switch c := compareFirst(a, b); {
		case c == 0:
			out = append(out, joinHead(k, a[0], b[0]))
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

// joinHead merges what two states hold of one head. They differ in an expiry's
// cover, or when the author signed two entries for one place and nobody who has
// both is left to say so: then the greater one stays, on all replicas alike.
func joinHead(k Kind, a, b Head) Head {
	if k == Expiry && a.Time == b.Time && sameExpiry(a.Payload, b.Payload) {
		a.Payload = joinExpiry(a.Payload, b.Payload)
		return a
	}
	if a.Payload.Equal(b.Payload) && a.Time == b.Time {
		return a
	}
	if cmp.Or(cmp.Compare(a.Time, b.Time), bytes.Compare(appendPayload(nil, a.Payload, Writer{}), appendPayload(nil, b.Payload, Writer{}))) < 0 {
		return b
	}
	return a
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
