package redis

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"github.com/lattice-log/lattice/engine/structs"
)

func sortCommands() []command {
	const acl = "set sortedset list dangerous"
	return []command{
		{name: "sort", arity: -2, flags: "write denyoom movablekeys", acl: acl, specs: "RO access @1 0,1,0; RO access @? ?; OW update @? ?", since: "1.0.0",
			about: "elements in order, or store them so", do: sortKey(true),
			note: "With ALPHA by bytes (Redis: by the locale, which is bytes in C)."},
		{name: "sort_ro", arity: -2, flags: "readonly movablekeys", acl: acl, specs: "RO access @1 0,1,0; RO access @? ?", since: "7.0.0",
			about: "elements in order", do: sortKey(false)},
	}
}

// sorting is what SORT is asked for.
type sorting struct {
	desc, alpha  bool
	start, count int64
	by           []byte // nil: the elements themselves
	asIs         bool   // BY a pattern without *: the order is not changed
	get          [][]byte
	store        []byte
}

func (s *sorting) read(x *call, mayStore bool) (err error) {
	s.count = -1
	for i := 2; i < len(x.args); i++ {
		left := len(x.args) - i - 1
		switch {
		case x.is(i, "asc"):
			s.desc = false
		case x.is(i, "desc"):
			s.desc = true
		case x.is(i, "alpha"):
			s.alpha = true
		case x.is(i, "limit") && left >= 2:
			if s.start, err = x.int(i + 1); err == nil {
				s.count, err = x.int(i + 2)
			}
			i += 2
		case x.is(i, "store") && left >= 1 && mayStore:
			i++
			s.store = x.args[i]
		case x.is(i, "by") && left >= 1:
			i++
			s.by = x.args[i]
			s.asIs = !bytes.ContainsRune(s.by, '*')
		case x.is(i, "get") && left >= 1:
			i++
			s.get = append(s.get, x.args[i])
		default:
			err = errSyntax
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sorted is an element with what it is sorted by.
type sorted struct {
	elem   []byte
	weight []byte // alpha; nil: none
	score  float64
}

// elements returns what SORT sorts, in the order in which it lies.
func (x *call) elements(key []byte, t structs.Type, desc bool) (out []sorted, err error) {
	keep := func(b []byte) bool {
		out = append(out, sorted{elem: slices.Clone(b)})
		return true
	}
	switch t {
	case structs.List:
		err = x.m().LScan(key, !desc, keep)
	case structs.Set:
		err = x.m().SScan(key, nil, keep)
	case structs.SortedSet:
		from := math.Inf(-1)
		if desc {
			from = math.Inf(1)
		}
		err = x.m().ZScan(key, from, desc, func(s structs.Scored) bool { return keep(s.Member) })
	case structs.None:
	default:
		err = errWrongType
	}
	return out, err
}

// lookup returns what a pattern of BY or GET names for an element: the element
// itself for #, a string, or a field of a hash behind ->.
func (x *call) lookup(pattern, elem []byte) ([]byte, bool, error) {
	if string(pattern) == "#" {
		return elem, true, nil
	}
	star := bytes.IndexByte(pattern, '*')
	if star < 0 {
		return nil, false, nil
	}
	var field []byte
	rest := pattern[star+1:]
	if at := bytes.Index(rest, []byte("->")); at >= 0 && at+2 < len(rest) {
		rest, field = rest[:at], rest[at+2:]
	}
	key := slices.Concat(pattern[:star], elem, rest)
	want := structs.String
	if field != nil {
		want = structs.Hash
	}
	if t, err := x.m().Type(key); err != nil || t != want {
		return nil, false, err
	}
	if field != nil {
		v, ok, err := x.m().HGet(key, field)
		return v.Bytes, ok, err
	}
	v, ok, err := x.m().Get(key)
	return v.Bytes, ok, err
}

// weigh finds what each element is sorted by.
func (s *sorting) weigh(x *call, all []sorted) error {
	for i := range all {
		w := all[i].elem
		if s.by != nil {
			b, ok, err := x.lookup(s.by, w)
			if err != nil {
				return err
			}
			if !ok {
				continue
			}
			w = slices.Clone(b)
		}
		if s.alpha {
			all[i].weight = w
			continue
		}
		var ok bool
		if all[i].score, ok = structs.Float(w); !ok && len(w) > 0 {
			return replyError("ERR One or more scores can't be converted into double")
		}
	}
	return nil
}

// order sorts; what is equal is in the order of elements.
func (s *sorting) order(all []sorted) {
	slices.SortStableFunc(all, func(a, b sorted) int {
		c := 0
		switch {
		case !s.alpha:
			c = cmp.Compare(a.score, b.score)
		case a.weight == nil || b.weight == nil: // nothing comes first
			c = cmp.Compare(btoi(a.weight != nil), btoi(b.weight != nil))
		default:
			c = bytes.Compare(a.weight, b.weight)
		}
		if c == 0 && !s.alpha {
			c = bytes.Compare(a.elem, b.elem)
		}
		if s.desc {
			return -c
		}
		return c
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// cut returns the elements that LIMIT leaves.
func (s *sorting) cut(all []sorted) []sorted {
	n := int64(len(all))
	start := min(max(s.start, 0), n)
	if s.count < 0 {
		return all[start:]
	}
	return all[start : start+min(s.count, n-start)]
}

func sortKey(mayStore bool) func(*call) error {
	return func(x *call) error {
		var s sorting
		if err := s.read(x, mayStore); err != nil {
			return err
		}
		t, err := x.m().Type(x.args[1])
		if err != nil {
			return err
		}
		if s.asIs && t == structs.Set && s.store != nil {
			s.asIs, s.alpha, s.by = false, true, nil // a set has no order: one that is the same everywhere
		}
		all, err := x.elements(x.args[1], t, s.asIs && s.desc)
		if err != nil {
			return err
		}
		if !s.asIs {
			if err := s.weigh(x, all); err != nil {
				return err
			}
			s.order(all)
		}
		return s.reply(x, s.cut(all))
	}
}

// reply writes the result, or stores it.
func (s *sorting) reply(x *call, all []sorted) error {
	get := s.get
	if get == nil {
		get = [][]byte{{'#'}}
	}
	var out [][]byte // nil elements are not there
	for _, e := range all {
		for _, pattern := range get {
			b, ok, err := x.lookup(pattern, e.elem)
			if err != nil {
				return err
			}
			if !ok {
				out = append(out, nil)
				continue
			}
			out = append(out, append([]byte{}, b...))
		}
	}
	if s.store == nil {
		x.w.Array(len(out))
		for _, b := range out {
			x.bulkOrNull(b, b != nil)
		}
		return nil
	}
	return x.store(notifyList, "sortstore", s.store, int64(len(out)), func(m *structs.Map, key []byte) error {
		_, err := m.Push(key, false, out...)
		return err
	})
}
