package redis

import (
	"container/list"
	"encoding/binary"
	"hash/maphash"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/lattice-log/lattice/engine/structs"
)

// cursors remembers where scans go on. A cursor is a number to clients, and here
// the first key or member of the next page: a position in an order, so that what
// is there from the beginning to the end of a scan comes exactly once, whatever
// else comes and goes. Safe for concurrent use.
type cursors struct {
	seed maphash.Seed

	mu    sync.Mutex
	byID  map[uint64]*list.Element
	order *list.List // of *cursor, used last first
	bytes int
}

type cursor struct {
	id    uint64
	place string // what is scanned, and from where
}

// Bounds on what is remembered of all scans; the least recently used goes.
const (
	maxCursors     = 100_000
	maxCursorBytes = 32 << 20
)

func (c *cursors) init() {
	c.seed, c.byID, c.order = maphash.MakeSeed(), map[uint64]*list.Element{}, list.New()
}

// scanned names what a scan goes through.
func scanned(db int, key []byte, typ structs.Type) string {
	var b []byte
	b = append(b, byte(db), byte(typ))
	b = binary.AppendUvarint(b, uint64(len(key)))
	return string(append(b, key...))
}

// add returns the cursor for the page of what that begins at from.
func (c *cursors) add(what string, from []byte) uint64 {
	place := what + string(from)
	// Scans that stand at one place share a cursor. It has no sign, for clients
	// that read one, and is not 0, which is the beginning and the end.
	id := maphash.String(c.seed, place)>>1 | 1
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.byID[id] != nil && c.byID[id].Value.(*cursor).place != place {
		id = (id + 2) & math.MaxInt64
	}
	if e := c.byID[id]; e != nil {
		c.order.MoveToFront(e)
		return id
	}
	c.byID[id] = c.order.PushFront(&cursor{id, place})
	c.bytes += len(place)
	for c.order.Len() > maxCursors || c.bytes > maxCursorBytes && c.order.Len() > 1 {
		old := c.order.Remove(c.order.Back()).(*cursor)
		delete(c.byID, old.id)
		c.bytes -= len(old.place)
	}
	return id
}

// find returns where a cursor stands in what. Unknown cursors are an error: to
// begin again in silence could last for ever, to end would leave things out.
func (c *cursors) find(what string, id uint64) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.byID[id]
	if e == nil {
		return nil, errorf("ERR cursor %d is not known (any more) to this node; begin again with 0", id)
	}
	from, ok := strings.CutPrefix(e.Value.(*cursor).place, what)
	if !ok {
		return nil, errorf("ERR cursor %d belongs to another scan; begin again with 0", id)
	}
	c.order.MoveToFront(e)
	return []byte(from), nil
}

// scanOptions are what the SCAN family takes.
type scanOptions struct {
	cursor uint64
	count  int64
	match  []byte // nil: everything
	typ    string // "": every type
}

// readCursor reads the cursor.
func (o *scanOptions) readCursor(x *call, at int) error {
	n, err := strconv.ParseUint(string(x.args[at]), 10, 64)
	if err != nil {
		return replyError("ERR invalid cursor")
	}
	o.cursor = n
	return nil
}

// read reads what stands behind the cursor.
func (o *scanOptions) read(x *call, at int, typed bool) (err error) {
	o.count = 10
	for i := at + 1; i < len(x.args); i += 2 {
		if i+1 == len(x.args) {
			return errSyntax
		}
		switch {
		case x.is(i, "count"):
			if o.count, err = x.int(i + 1); err != nil {
				return err
			}
			if o.count < 1 {
				return errSyntax
			}
		case x.is(i, "match"):
			o.match = x.args[i+1]
		case x.is(i, "type") && typed:
			o.typ = lower(x.args[i+1])
		default:
			return errSyntax
		}
	}
	return nil
}

// page is what one call of a scan has found.
type page struct {
	next  []byte // where the next one begins; nil: this was the last
	found [][]byte
	left  int64
}

// take looks at one element, and reports whether there may be more on the page.
// It keeps the parts unless filter says no.
func (p *page) take(o *scanOptions, name []byte, parts ...[]byte) bool {
	if p.left == 0 {
		p.next = append([]byte{}, name...)
		return false
	}
	p.left--
	if o.match == nil || globMatch(o.match, name, false) {
		for _, b := range parts {
			p.found = append(p.found, append([]byte{}, b...))
		}
	}
	return true
}

// scanPage replies one page. walk yields names in order, from a first one on.
func (x *call) scanPage(o *scanOptions, what string, all bool, walk func(from []byte, p *page) error) error {
	var from []byte
	if o.cursor != 0 {
		var err error
		if from, err = x.srv.cursors.find(what, o.cursor); err != nil {
			return err
		}
	}
	p := page{left: o.count}
	if all {
		p.left = -1 // never 0
	}
	if err := walk(from, &p); err != nil {
		return err
	}
	next := uint64(0)
	if p.next != nil {
		next = x.srv.cursors.add(what, p.next)
	}
	x.w.Array(2)
	x.w.BulkString(strconv.FormatUint(next, 10))
	x.w.Array(len(p.found))
	for _, b := range p.found {
		x.w.Bulk(b)
	}
	return nil
}

func scan(x *call) error {
	var o scanOptions
	if err := o.readCursor(x, 1); err != nil {
		return err
	}
	if err := o.read(x, 1, true); err != nil {
		return err
	}
	return x.scanPage(&o, scanned(x.db, nil, structs.None), false, func(from []byte, p *page) error {
		return x.m().Keys(from, func(key []byte, t structs.Type) bool {
			if o.typ != "" && o.typ != t.String() {
				if p.left == 0 {
					return p.take(&o, key)
				}
				p.left--
				return true
			}
			return p.take(&o, key, key)
		})
	})
}

// scanIn is HSCAN, SSCAN and ZSCAN: a collection that Redis would store in its
// small form comes at once. walk yields what is in it.
func (x *call) scanIn(t structs.Type, small string, walk func(o *scanOptions, isSmall bool, from []byte, p *page) error) error {
	var o scanOptions
	if err := o.readCursor(x, 2); err != nil {
		return err
	}
	key := x.args[1]
	there, err := x.isType(key, t)
	if err != nil {
		return err
	}
	if !there {
		x.w.Array(2)
		x.w.BulkString("0")
		x.w.Array(0)
		return nil
	}
	if err := o.read(x, 2, false); err != nil {
		return err
	}
	form, err := x.encoding(key, t)
	if err != nil {
		return err
	}
	return x.scanPage(&o, scanned(x.db, key, t), form == small, func(from []byte, p *page) error {
		return walk(&o, form == small, from, p)
	})
}
