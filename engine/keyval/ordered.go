package keyval

// ordered is a set of strings in order, with a value each: a skip list. It holds
// what the fold database does not hold yet, so that scans can merge the two. The
// zero value is empty. Readers may share it while nobody changes it.
type ordered[V any] struct {
	head  [levels]*tower[V]
	last  *tower[V]
	n     int
	seed  uint64
	spare [levels]*tower[V] // scratch of find
}

// levels bounds the height of a node: good for 4^levels entries.
const levels = 12

type tower[V any] struct {
	key  string
	val  V
	prev *tower[V]
	next []*tower[V]
}

// height draws 1 and more, each with a quarter of the chance of the one before.
func (o *ordered[V]) height() int {
	o.seed ^= o.seed << 13
	o.seed ^= o.seed >> 7
	o.seed ^= o.seed << 17
	if o.seed == 0 {
		o.seed = 0x9e3779b97f4a7c15
	}
	h := 1
	for r := o.seed; h < levels && r&3 == 0; r >>= 2 {
		h++
	}
	return h
}

// before fills o.spare with the last node before key on each level, nil for the
// head, and returns the node behind it.
func (o *ordered[V]) before(key string) *tower[V] {
	var at *tower[V]
	for l := levels - 1; l >= 0; l-- {
		for n := o.nextOf(at, l); n != nil && n.key < key; n = o.nextOf(at, l) {
			at = n
		}
		o.spare[l] = at
	}
	return o.nextOf(at, 0)
}

func (o *ordered[V]) nextOf(n *tower[V], level int) *tower[V] {
	if n == nil {
		return o.head[level]
	}
	return n.next[level]
}

// set puts key in, or changes its value.
func (o *ordered[V]) set(key string, v V) {
	n := o.before(key)
	if n != nil && n.key == key {
		n.val = v
		return
	}
	n = &tower[V]{key: key, val: v, prev: o.spare[0], next: make([]*tower[V], o.height())}
	for l := range n.next {
		if p := o.spare[l]; p == nil {
			n.next[l], o.head[l] = o.head[l], n
		} else {
			n.next[l], p.next[l] = p.next[l], n
		}
	}
	if after := n.next[0]; after != nil {
		after.prev = n
	} else {
		o.last = n
	}
	o.n++
}

// remove takes key out, if it is there.
func (o *ordered[V]) remove(key string) {
	if o == nil || o.n == 0 {
		return
	}
	n := o.before(key)
	if n == nil || n.key != key {
		return
	}
	for l := range n.next {
		if p := o.spare[l]; p == nil {
			o.head[l] = n.next[l]
		} else {
			p.next[l] = n.next[l]
		}
	}
	if after := n.next[0]; after != nil {
		after.prev = n.prev
	} else {
		o.last = n.prev
	}
	o.n--
}

// ge returns the first node that is not before key; it changes nothing.
func (o *ordered[V]) ge(key string) *tower[V] {
	if o == nil {
		return nil
	}
	var at *tower[V]
	for l := levels - 1; l >= 0; l-- {
		for n := o.nextOf(at, l); n != nil && n.key < key; n = o.nextOf(at, l) {
			at = n
		}
	}
	return o.nextOf(at, 0)
}

// le returns the last node that is not after key; end means from the end.
func (o *ordered[V]) le(key string, end bool) *tower[V] {
	switch {
	case o == nil:
		return nil
	case end:
		return o.last
	}
	n := o.ge(key)
	switch {
	case n == nil:
		return o.last
	case n.key == key:
		return n
	}
	return n.prev
}
