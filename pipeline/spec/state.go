package spec

import (
	"fmt"
	"strings"

	"github.com/lattice-log/lattice/pipeline/spec/expr"
)

// states reads every state:
//
//	state:
//	  seat:
//	    entity_key: seat_id
//	    fields:
//	      - { name: holder, type: string, default: "" }
func (c *checker) states() {
	for _, d := range c.defs["state"] {
		what := "state " + d.name
		s := &State{Name: d.name, Stream: streamOf(d.name), at: d.at}
		c.app.States[d.name] = s
		s.shape = &expr.Shape{Kind: expr.Object, Open: true}
		b, ok := c.block(d.body, what, "entity_key", "description", "fields")
		if !ok {
			continue
		}
		s.Key = b.text("entity_key")
		b.need("entity_key", "the name of the entity's id")
		for _, item := range b.list("fields") {
			c.stateField(s, item, what)
		}
		s.shape = stateShape(s)
	}
}

func (c *checker) stateField(s *State, n *node, what string) {
	b, ok := c.block(n, what+": field", "name", "type", "default", "description", "required", "nullable", "item_type", "item_fields")
	if !ok {
		return
	}
	name := b.need("name", "a name, with / between the parts of a path")
	if name == nil {
		return
	}
	path, err := splitPath(name.text)
	if err != nil {
		c.fail(name.Pos, "%s: field: %v", what, err)
		return
	}
	f := StateField{Path: path, Type: "any"}
	what = fmt.Sprintf("%s: field %s", what, strings.Join(path, "/"))
	if t := b.has("type"); t != nil {
		f.Type = c.typeOf(t, what)
	}
	f.Default = b.value("default", f.Type)
	for _, other := range s.Fields {
		if shorter := min(len(other.Path), len(path)); joinPath(other.Path[:shorter]) == joinPath(path[:shorter]) {
			c.fail(name.Pos, "%s: %s is a field already", what, joinPath(other.Path))
			return
		}
	}
	b.unexecuted("what is in a list or an object is not checked", "item_type", "item_fields")
	s.Fields = append(s.Fields, f)
}

// stateShape returns what expressions see of an entity. What rules keep for themselves
// (_tmp) and what a language model would have decided is open.
func stateShape(s *State) *expr.Shape {
	root := &expr.Shape{Kind: expr.Object, What: "state " + s.Name, Fields: map[string]*expr.Shape{
		"_tmp": {Open: true}, "decisions": {Open: true},
	}}
	if s.Key != "" {
		root.Fields[s.Key] = &expr.Shape{Kind: expr.String}
	}
	for _, f := range s.Fields {
		m := root
		for _, name := range f.Path[:len(f.Path)-1] {
			next := m.Fields[name]
			if next == nil || next.Fields == nil {
				next = &expr.Shape{Kind: expr.Object, Fields: map[string]*expr.Shape{}, What: root.What}
				m.Fields[name] = next
			}
			m = next
		}
		m.Fields[f.Path[len(f.Path)-1]] = f.Type.shape()
	}
	return root
}

// stateNamed returns the state that a key names.
func (c *checker) stateNamed(b block, key string) *State {
	n := b.need(key, "the name of a state")
	if n == nil {
		return nil
	}
	s, ok := c.app.States[n.text]
	if !ok {
		c.unknown(n.Pos, b.what+": unknown state", n.text, sortedKeys(c.app.States))
	}
	return s
}

// stateShapes returns what lookups can read.
func (c *checker) stateShapes() map[string]*expr.Shape {
	all := map[string]*expr.Shape{}
	for name, s := range c.app.States {
		all[name] = s.shape
	}
	return all
}
