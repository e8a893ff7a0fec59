package statetest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	lattice "github.com/lattice-log/lattice"
	"github.com/lattice-log/lattice/core/state"
	"pgregory.net/rapid"
)

// Entry is an entry without its signature.
type Entry struct {
	Writer state.Writer
	Seq    uint64
	Time   uint64
	After  state.Frontier // all that its author had seen, own entries included
	Ops    []state.Op
}

// History is entries of several writers; each comes after all that it has seen.
type History []Entry

// Draw draws a history of a type of up to n entries, at least one, by 3 to 5 writers, whose clocks are
// wrong, and who learn of each other's entries now and then. Sometimes a writer
// begins a new incarnation.
func Draw(t *rapid.T, what Type, n int) History {
	writers := make([]state.Writer, rapid.IntRange(3, 5).Draw(t, "writers"))
	spaces := make([]*state.Space, len(writers))
	for i := range writers {
		writers[i] = state.Writer{Author: lattice.AuthorID{byte(i + 1)}, Incarnation: 1}
		spaces[i] = &state.Space{Frontier: state.Frontier{}}
	}
	var h History
	var time uint64 = 1 << 20
	for range rapid.IntRange(0, n-1).Draw(t, "steps") {
		i := rapid.IntRange(0, len(writers)-1).Draw(t, "who")
		switch rapid.IntRange(0, 9).Draw(t, "step") {
		case 0, 1, 2:
			other := rapid.IntRange(0, len(writers)-1).Draw(t, "from")
			h.Apply(spaces[i], spaces[other].Frontier)
		case 3:
			writers[i].Incarnation++
		default:
			time += uint64(rapid.IntRange(-3, 3).Draw(t, "clock"))
			h = append(h, write(t, what, writers[i], spaces[i], time))
		}
	}
	return append(h, write(t, what, writers[0], spaces[0], time))
}

// write draws an entry, and applies it to its author's own state.
func write(t *rapid.T, what Type, w state.Writer, s *state.Space, time uint64) Entry {
	e := Entry{Writer: w, Seq: s.Frontier[w] + 1, Time: time, After: maps.Clone(s.Frontier)}
	for i := range rapid.IntRange(1, 3).Draw(t, "operations") {
		d := state.Dot{Writer: w, Seq: e.Seq, Index: uint32(i)}
		op := Op(t, what, s, d, 1000)
		s.Apply(op, d, time)
		e.Ops = append(e.Ops, op)
	}
	s.Pass(w, e.Seq)
	return e
}

// Apply folds into s what it lacks up to a frontier, in the order of h.
func (h History) Apply(s *state.Space, to state.Frontier) {
	for _, e := range h {
		if d := (state.Dot{Writer: e.Writer, Seq: e.Seq}); to.Covers(d) && !s.Frontier.Covers(d) {
			e.Apply(s)
		}
	}
}

// Apply folds an entry into s.
func (e Entry) Apply(s *state.Space) {
	for i, op := range e.Ops {
		s.Apply(op, state.Dot{Writer: e.Writer, Seq: e.Seq, Index: uint32(i)}, e.Time)
	}
	s.Pass(e.Writer, e.Seq)
}

// Fold folds the entries at the given places of h, and what they come after, in
// any order that t draws in which nothing comes before what it has seen.
func (h History) Fold(t *rapid.T, some []int) *state.Space {
	var left []Entry
	goal := h.Frontier(some)
	for _, e := range h {
		if goal.Covers(state.Dot{Writer: e.Writer, Seq: e.Seq}) {
			left = append(left, e)
		}
	}
	s := &state.Space{Frontier: state.Frontier{}}
	for len(left) > 0 {
		var ready []int
		for i, e := range left {
			if covers(s.Frontier, e.After) {
				ready = append(ready, i)
			}
		}
		i := rapid.SampledFrom(ready).Draw(t, "next")
		left[i].Apply(s)
		left = slices.Delete(left, i, i+1)
	}
	return s
}

// Frontier returns all that the entries at these places of h come to.
func (h History) Frontier(some []int) state.Frontier {
	f := state.Frontier{}
	for _, i := range some {
		f = f.Join(h[i].After).Join(state.Frontier{h[i].Writer: h[i].Seq})
	}
	return f
}

func covers(f, of state.Frontier) bool {
	for w, n := range of {
		if f[w] < n {
			return false
		}
	}
	return true
}

// Text is a state for comparison: frontier and rows, byte for byte.
func Text(s *state.Space) string {
	var b bytes.Buffer
	for _, w := range slices.SortedFunc(maps.Keys(s.Frontier), state.Writer.Compare) {
		if n := s.Frontier[w]; n > 0 {
			fmt.Fprintf(&b, "%s/%d up to %d\n", w.Author.Short(), w.Incarnation, n)
		}
	}
	for a, r := range s.Rows {
		fmt.Fprintf(&b, "%s %q %s %x: %x\n", a.Map, a.Key, a.Kind, a.Sub, r.AppendTo(nil))
	}
	return b.String()
}
