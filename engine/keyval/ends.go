package keyval

import (
	"slices"

	"github.com/lattice-log/lattice/core/state"
)

// ends are the positions of the first and the last elements of a list, as far as
// they are known, so that pushes and pops need not look for them in the fold
// database. Changed by who holds DB.mu alone; nil knows nothing.
type ends struct{ left, right run }

// run is what a list holds at one end: the names of present rows from that end
// on, the outermost last, with no other in between. Empty: not known.
type run struct{ names []string }

const (
	// endsMost is how many names a run keeps; the inner ones go.
	endsMost = 64
	// endsFound is how many are read when an end was looked for: the next pops need them.
	endsFound = 32
	// endsSize is what ends take in memory, about, beside names that rows hold.
	endsSize = 1 << 10
)

// before reports whether a stands further out than b at an end.
func before(a, b string, right bool) bool {
	if right {
		return a > b
	}
	return a < b
}

// add notes that a row came.
func (r *run) add(name string, right bool) {
	n := len(r.names)
	switch {
	case n == 0 || before(r.names[0], name, right):
		return // not known, or further in than what is
	case before(name, r.names[n-1], right):
		r.names = append(r.names, name)
	default:
		if i, there := r.find(name, right); !there {
			r.names = slices.Insert(r.names, i, name)
		}
	}
	if len(r.names) > 2*endsMost {
		kept := copy(r.names, r.names[len(r.names)-endsMost:])
		clear(r.names[kept:])
		r.names = r.names[:kept]
	}
}

// remove notes that a row went.
func (r *run) remove(name string, right bool) {
	n := len(r.names)
	if n > 0 && r.names[n-1] == name {
		r.names[n-1] = ""
		r.names = r.names[:n-1]
		return
	}
	if i, there := r.find(name, right); there {
		r.names = slices.Delete(r.names, i, i+1)
	}
}

func (r *run) find(name string, right bool) (int, bool) {
	return slices.BinarySearchFunc(r.names, name, func(a, b string) int {
		switch {
		case a == b:
			return 0
		case before(a, b, right):
			return 1
		}
		return -1
	})
}

// lacks reports that a list holds nothing of that name, because it would stand
// further out than what stands at an end.
func (x *ends) lacks(name []byte) bool {
	if x == nil {
		return false
	}
	if n := len(x.left.names); n > 0 && string(name) < x.left.names[n-1] {
		return true
	}
	n := len(x.right.names)
	return n > 0 && string(name) > x.right.names[n-1]
}

// element notes that the row of an element came or went. The number of elements is
// still the one from before.
func (t *table) element(e *entry, name string, there bool) {
	switch {
	case t.bulk:
		e.ends = nil // nobody looks for ends while logs are folded
	case there && e.counts[state.Element] == 0:
		e.ends = &ends{run{[]string{name}}, run{[]string{name}}}
	case e.ends == nil:
	case there:
		e.ends.left.add(name, false)
		e.ends.right.add(name, true)
	default:
		e.ends.left.remove(name, false)
		e.ends.right.remove(name, true)
	}
}

// scanEnd is scan of a list from one of its ends.
func (t *table) scanEnd(e *entry, right, shared bool, yield func(name []byte, r state.Row) bool) error {
	names := e.ends.names(right)
	for i := len(names) - 1; i >= 0; i-- {
		s, err := t.findSub(e, state.Element, []byte(names[i]), shared)
		if err != nil {
			return err
		}
		if len(s.row) == 0 {
			return corrupt("element %x of key %q is at an end of its list, and is not there", names[i], e.name)
		}
		if !yield([]byte(names[i]), s.row) {
			return nil
		}
	}
	switch {
	case int64(len(names)) == e.counts[state.Element]:
		return nil
	case len(names) > 0: // go on behind the innermost
		return t.walk(e, state.Element, []byte(names[0]), right, shared, func(name []byte, r state.Row) bool {
			return string(name) == names[0] || yield(name, r)
		})
	case shared:
		return t.walk(e, state.Element, nil, right, true, yield)
	}
	var found []string
	more := true
	err := t.walk(e, state.Element, nil, right, false, func(name []byte, r state.Row) bool {
		if len(found) < endsFound {
			found = append(found, string(name))
		}
		more = more && yield(name, r)
		return more || len(found) < endsFound
	})
	if err == nil {
		slices.Reverse(found)
		t.keepEnd(e, right, found)
	}
	return err
}

// names returns the run at an end.
func (x *ends) names(right bool) []string {
	switch {
	case x == nil:
		return nil
	case right:
		return x.right.names
	}
	return x.left.names
}

// keepEnd remembers what was found at an end.
func (t *table) keepEnd(e *entry, right bool, names []string) {
	if e.ends == nil {
		e.ends = &ends{}
		t.grew(e, endsSize)
	}
	if right {
		e.ends.right.names = names
	} else {
		e.ends.left.names = names
	}
}
