package state

import (
	"cmp"
	"slices"
)

// Cite says how much of one writer had been seen in some scope: everything up to
// operation Index of entry Seq. Since a writer's entries are folded in order, it
// names all of them at once, however many.
type Cite struct {
	Writer Writer
	Seq    uint64
	Index  uint32
}

// CiteOf returns the cite of everything up to d.
func CiteOf(d Dot) Cite { return Cite(d) }

// Cites are cites of different writers, ascending by writer. They are values.
type Cites []Cite

func (c Cites) search(w Writer) (int, bool) {
	return slices.BinarySearchFunc(c, w, func(c Cite, w Writer) int { return c.Writer.Compare(w) })
}

// Covers reports whether d had been seen.
func (c Cites) Covers(d Dot) bool {
	i, ok := c.search(d.Writer)
	return ok && (d.Seq < c[i].Seq || d.Seq == c[i].Seq && d.Index <= c[i].Index)
}

// CoversAll reports whether everything that o covers had been seen.
func (c Cites) CoversAll(o Cites) bool {
	return !slices.ContainsFunc(o, func(x Cite) bool { return !c.Covers(Dot(x)) })
}

// Raise returns c that covers d as well. c is not changed.
func (c Cites) Raise(d Dot) Cites {
	i, ok := c.search(d.Writer)
	switch {
	case !ok:
		return slices.Insert(slices.Clone(c), i, CiteOf(d))
	case cmp.Or(cmp.Compare(c[i].Seq, d.Seq), cmp.Compare(c[i].Index, d.Index)) >= 0:
		return c
	}
	out := slices.Clone(c)
	out[i] = CiteOf(d)
	return out
}

// Join returns what covers all that c or o covers.
func (c Cites) Join(o Cites) Cites {
	for _, x := range o {
		c = c.Raise(Dot(x))
	}
	return c
}

// names yields the last dot that each cite covers, until yield says stop.
func (c Cites) names(yield func(Dot) bool) bool {
	for _, x := range c {
		if !yield(Dot(x)) {
			return false
		}
	}
	return true
}
